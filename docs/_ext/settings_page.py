"""The page of settings: every key of the schema with its type, default and meaning."""

import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from api_pages import write_if_changed
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import match_graph as mg

PAGE = Path(__file__).parents[1] / "generated" / "settings.md"
HEAD = """# Settings

Every setting has a default. A YAML file (`--config FILE`) or single settings
(`--set train.epochs=5`, repeatable) change it. Where the default is `null`, the value follows from
what stands under "meaning", often the size of the corpus. The `config.yaml` of a run's folder has
the values that the run used.
"""
REGISTERED = """## {title}

{text}
"""
BOUNDS = {"ge": "≥ ", "gt": "> ", "le": "≤ ", "lt": "< "}


def list_settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Dotted keys of a model and of the models inside it."""
    for name, field in model.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            yield from list_settings(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field
        for inner in get_args(field.annotation):  # by a name of the user's
            if inspect.isclass(inner) and issubclass(inner, BaseModel):
                yield from list_settings(inner, f"{prefix}{name}.TYPE.")


def describe_type(annotation: Any) -> str:
    """A type in words: the values of a choice, "or null" for what may be left open."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return describe_type(inner[0])
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(describe_type(part) for part in inner)
    if origin is list:
        return f"list of {describe_type(inner[0])}"
    if origin is dict:
        return "mapping"
    return "null" if annotation is type(None) else annotation.__name__


def describe_bounds(field: FieldInfo) -> str:
    """Its least and greatest value, such as "≥ 0, < 1"."""
    bounds = [
        f"{sign}{value:,}"
        for part in field.metadata
        for bound, sign in BOUNDS.items()
        if (value := getattr(part, bound, None)) is not None
    ]
    return ", ".join(bounds)


def describe_default(field: FieldInfo) -> str:
    """Its default as YAML writes it."""
    value = field.get_default(call_default_factory=True)
    text = yaml.safe_dump(value, default_flow_style=True, width=1000)
    return text.removesuffix("\n").removesuffix("\n...")


def write_table(rows: list[tuple[str, FieldInfo]]) -> str:
    """A table of keys in Markdown."""
    lines = ["````{container} settings", "| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in rows:
        kind = ", ".join(filter(None, (describe_type(field.annotation), describe_bounds(field))))
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{name}` | {kind} | `{describe_default(field)}` | {meaning} |")
    return "\n".join([*lines, "````"]) + "\n"


def write_registered(registry: dict[str, Any], key: str) -> str:
    """A section for each registered class that has settings of its own."""
    parts = []
    for name, cls in sorted(registry.items()):
        rows = [(f"{key}.{inner}", field) for inner, field in list_settings(cls.Config)]
        line = (inspect.getdoc(cls) or "").partition("\n")[0]
        table = write_table(rows) if rows else "It has no settings.\n"
        link = f"{{py:obj}}`{cls.__name__} <match_graph.{cls.__name__}>`"
        parts.append(f"### `{name}`\n\n{link}: {line}\n\n{table}")
    return "\n".join(parts)


def render_page() -> str:
    """The whole page in MyST Markdown."""
    rows = list(list_settings(mg.Config))
    sections = {name.partition(".")[0] if "." in name else "" for name, _ in rows}
    parts = [HEAD]
    for section in ["", *(name for name in mg.Config.model_fields if name in sections)]:
        chosen = [row for row in rows if (row[0].rpartition(".")[0].partition(".")[0]) == section]
        heading = f"`{section}`" if section else "The whole run"
        doc = inspect.getdoc(mg.Config.model_fields[section].annotation) if section else ""
        text = (doc or "").replace("``", "`")
        parts.append(f"## {heading}\n\n{text}\n\n{write_table(chosen)}")
    parts.append(REGISTERED.format(title="Encoders", text="`model.encoder` names one of these."))
    parts.append(write_registered(mg.ENCODERS, "model.encoder_config"))
    text = "`model.head` names one of these; without it the one that fits the encoder is used."
    parts.append(REGISTERED.format(title="Heads", text=text))
    parts.append(write_registered(mg.HEADS, "model.head_config"))
    text = "`model.encoder` takes their names too. Settings that they do not use are refused."
    parts.append(REGISTERED.format(title="Baselines", text=text))
    parts.append(write_registered(mg.BASELINES, "model.encoder_config"))
    return "\n".join(parts)


def setup(app: Any) -> dict[str, bool]:
    """Writes the page before Sphinx reads the sources."""
    app.connect("builder-inited", lambda _: write_if_changed(PAGE, render_page()), priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
