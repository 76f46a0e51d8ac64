"""Rendering of a page: self-contained HTML, no scripts, all text escaped."""

from importlib import resources
from pathlib import Path
from typing import Any

from match_graph.errors import MatchGraphError
from match_graph.report.page.blocks import Page
from match_graph.report.tables import write_text

_TEMPLATE, _STYLE = "page.html.jinja", "page.css"


def render_page(page: Page) -> str:
    """HTML of a page; the same page gives the same text.

    Raises:
        MatchGraphError: jinja2 or matplotlib, which finds round marks for axes, is not installed.
    """
    here = resources.files("match_graph.report.page")
    style = here.joinpath(_STYLE).read_text(encoding="utf-8")
    template = _make_environment().from_string(here.joinpath(_TEMPLATE).read_text(encoding="utf-8"))
    sections = [section for section in page.sections if section.blocks]
    text: str = template.render(page=page, sections=sections, style=_trust(style))
    return text.strip() + "\n"


def write_page(page: Page, path: Path) -> None:
    """Writes `render_page` to a file atomically."""
    write_text(path, render_page(page))


def _make_environment() -> Any:
    try:
        import matplotlib  # noqa: F401
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MatchGraphError(
            f"A page needs jinja2 and matplotlib, but {error.name} is not installed; run pip "
            f"install 'match-graph[report]'."
        ) from error
    return Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _trust(style: str) -> Any:
    """Marks the package's own style sheet as safe, so that it is not escaped."""
    from markupsafe import Markup

    return Markup(style)  # noqa: S704
