"""Commands that list what there is: datasets, encoders, settings."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from match_graph.cli.app import echo
from match_graph.cli.options import JsonOption, RootOption, command
from match_graph.errors import ConfigError, suggest
from match_graph.io.escape import SafeConsole

#: Headings of the kinds of models: what they are, and the setting that names one.
_KINDS = {
    "encoder": "Encoders (model.encoder)",
    "head": "Heads (model.head)",
    "baseline": "Baselines (model.encoder)",
}


@command("datasets")
def show_datasets(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A registered name: list its options.")
    ] = None,
    root: RootOption = None,
    json_lines: JsonOption = False,
) -> None:
    """List the registered data sets with licence, size and state; or the options of one."""
    from match_graph.datasets import list_datasets, list_options

    rows = list_datasets(root) if name is None else list_options(name)
    if json_lines:
        _print_json(rows)
        return
    columns = ("name", "state", "size", "licence", "needs") if name is None else tuple(rows[0])
    print_table(columns, [[row[column] for column in columns] for row in rows])


@command()
def encoders(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="An encoder, head or baseline: list its settings and presets."
        ),
    ] = None,
    json_lines: JsonOption = False,
) -> None:
    """List encoders, heads and baselines with size and paper; or the settings of one."""
    from match_graph.training.catalog import SIZE, list_models

    if name is not None:
        show_model(name, json_lines)
        return
    entries = list_models()
    if json_lines:
        _print_json([asdict(entry) for entry in entries])
        return
    for kind, title in _KINDS.items():
        rows = [
            [
                entry.name,
                ", ".join(entry.needs) or "-",
                entry.gives,
                *(
                    "-" if size is None else f"{size:,}"
                    for size in (entry.parameters, entry.parameters_with_head)
                ),
                entry.paper.partition(", http")[0] or "-",  # the address is in --json
            ]
            for entry in entries
            if entry.kind == kind
        ]
        print_table(("name", "needs", "gives", "parameters", "with head", "paper"), rows, title)
    echo(f"Parameters without token embeddings, at {SIZE}.")


def show_model(name: str, json_lines: bool) -> None:
    """Prints an encoder, head or baseline: summary, paper, settings, presets."""
    from match_graph.training.catalog import describe_model

    model = describe_model(name)
    if json_lines:
        _print_json([asdict(model)])
        return
    console = SafeConsole(highlight=False)
    about = f"{model.name}, {model.kind}: {model.summary}"
    console.print(Text(about))
    if model.paper:
        console.print(Text(f"Paper: {model.paper}"), soft_wrap=True)
    if model.settings:
        print_table(
            ("setting", "default", "meaning"),
            [[one.key, one.default, one.about] for one in model.settings],
        )
    else:
        console.print(Text("It has no settings of its own."))
    if model.presets:
        keys = list(dict.fromkeys(key for values in model.presets.values() for key in values))
        rows = [[key, *(each.get(key, "-") for each in model.presets.values())] for key in keys]
        print_table(("preset", *model.presets), rows)


@command()
def settings(
    part: Annotated[
        str | None,
        typer.Argument(metavar="[PART]", help="A section, or part of a key: train, learning_rate."),
    ] = None,
    json_lines: JsonOption = False,
) -> None:
    """List the settings of a run with default and meaning; `encoders NAME` lists a model's own."""
    from match_graph.config import Config
    from match_graph.settings import list_settings

    rows = list_settings(Config)
    inside = [one for one in rows if one.key.startswith(f"{part}.")]
    chosen = inside or [one for one in rows if part is None or part in one.key]
    if not chosen:
        words = {word for one in rows for word in one.key.split(".")}
        raise ConfigError(
            f"A part of a key must be in one of the settings, found '{part}'; "
            f"{suggest(str(part), words)}."
        )
    if json_lines:
        _print_json([asdict(one) for one in chosen])
        return
    print_table(
        ("setting", "default", "meaning"), [[one.key, one.default, one.about] for one in chosen]
    )


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Prints a table as wide as the terminal; the first column, names to be typed, stays whole.

    A column of nothing but "-" is left out.
    """
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title or None, title_justify="left"
    )
    shown = [n for n in range(len(columns)) if any(row[n] != "-" for row in rows)]
    for number in shown:
        table.add_column(columns[number], no_wrap=not number, overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[number]) for number in shown))
    SafeConsole(highlight=False).print(table)


def _print_json(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        echo(json.dumps(row, ensure_ascii=False))
