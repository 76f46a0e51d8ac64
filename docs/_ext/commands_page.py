"""The page of commands: every sub-command of match-graph with its arguments and options."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api_pages import write_if_changed
from typer.main import get_command

from match_graph.cli import app as program

PAGE = Path(__file__).parents[1] / "generated" / "commands.md"
HEAD = """# Command line

One sub-command per stage; `match-graph COMMAND --help` prints the same. The exit code is 0, 1 after
an error (one sentence), 2 on wrong usage.
"""


def describe(parameters: list[Any]) -> Iterator[str]:
    """A row for each argument and option."""
    for parameter in parameters:
        names = [*parameter.opts, *parameter.secondary_opts]
        if parameter.param_type_name == "argument":
            names = [parameter.metavar or parameter.name.upper()]
        elif parameter.metavar and not parameter.is_flag:
            names[-1] += f" {parameter.metavar}"
        shown = ", ".join(f"`{name}`" for name in names)
        text = " ".join((parameter.help or "").split()).replace("|", "\\|")
        yield f"| {shown} | {text} |"


def render_page() -> str:
    """The whole page in MyST Markdown."""
    parts = [HEAD]
    for name, command in get_command(program).commands.items():
        text = "\n".join(line.strip() for line in (command.help or "").splitlines())
        parts += [f"## `match-graph {name}`", "", text, ""]
        rows = list(describe([item for item in command.params if item.name != "help"]))
        parts += ["| | |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(parts)


def setup(app: Any) -> dict[str, bool]:
    """Writes the page before Sphinx reads the sources."""
    app.connect("builder-inited", lambda _: write_if_changed(PAGE, render_page()), priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
