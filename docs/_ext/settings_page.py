"""The page of settings: every key of the schema with its type, default and meaning."""

import inspect
from pathlib import Path
from typing import Any

from api_pages import write_if_changed

import match_graph as mg
from match_graph.settings import Setting, list_settings

PAGE = Path(__file__).parents[1] / "generated" / "settings.md"
HEAD = """# Settings

Every setting has a default. A YAML file (`--config FILE`) or single settings
(`--set train.epochs=5`, repeatable) change it. Where the default is `null`, the value follows from
what stands under "meaning", often the size of the corpus. The `config.yaml` of a run's folder has
the values that the run used.
"""


def write_table(rows: list[Setting]) -> str:
    """A table of keys in Markdown."""
    lines = ["````{container} settings", "| key | type | default | meaning |", "|---|---|---|---|"]
    for row in rows:
        kind, meaning = (text.replace("|", "\\|") for text in (row.type, row.meaning))
        lines.append(f"| `{row.key}` | {kind} | `{row.default}` | {meaning} |")
    return "\n".join([*lines, "````"]) + "\n"


def write_registered(title: str, text: str, registry: dict[str, Any], key: str) -> str:
    """A section on a registry, with one for each class."""
    parts = [f"## {title}\n\n{text}\n"]
    for name, cls in sorted(registry.items()):
        rows = list_settings(cls.Config, f"{key}.")
        line = (inspect.getdoc(cls) or "").partition("\n")[0]
        table = write_table(rows) if rows else "It has no settings.\n"
        link = f"{{py:obj}}`{cls.__name__} <match_graph.{cls.__name__}>`"
        parts.append(f"### `{name}`\n\n{link}: {line}\n\n{table}")
    return "\n".join(parts)


def render_page() -> str:
    """The whole page in MyST Markdown."""
    rows = list_settings(mg.Config)
    sections = {row.key.partition(".")[0] if "." in row.key else "" for row in rows}
    parts = [HEAD]
    for section in ["", *(name for name in mg.Config.model_fields if name in sections)]:
        chosen = [row for row in rows if row.key.rpartition(".")[0].partition(".")[0] == section]
        heading = f"`{section}`" if section else "The whole run"
        doc = inspect.getdoc(mg.Config.model_fields[section].annotation) if section else ""
        text = (doc or "").replace("``", "`")
        parts.append(f"## {heading}\n\n{text}\n\n{write_table(chosen)}")
    text = "`model.encoder` names one of these."
    parts.append(write_registered("Encoders", text, mg.ENCODERS, "model.encoder_config"))
    text = "`model.head` names one of these; without it the one that fits the encoder is used."
    parts.append(write_registered("Heads", text, mg.HEADS, "model.head_config"))
    text = "`model.encoder` takes their names too. Settings that they do not use are refused."
    parts.append(write_registered("Baselines", text, mg.BASELINES, "model.encoder_config"))
    return "\n".join(parts)


def setup(app: Any) -> dict[str, bool]:
    """Writes the page before Sphinx reads the sources."""
    app.connect("builder-inited", lambda _: write_if_changed(PAGE, render_page()), priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
