"""Pages of results: sections of tables, figures and texts, as self-contained HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

from match_graph.errors import import_extra
from match_graph.io.files import write_text
from match_graph.predict.case_study import CaseStudy
from match_graph.report.charts import Chart
from match_graph.report.label_rows import LabelRows
from match_graph.report.tables import Table


@dataclass(frozen=True)
class Headline:
    """Number at the head of a page, in large print.

    Args:
        name: Name of the number.
        value: Value as shown.
        about: Short comment, such as the name of the row.
    """

    name: str
    value: str
    about: str = ""


@dataclass(frozen=True)
class Note:
    """Paragraphs that stand out, such as the reason why something is missing."""

    kind: ClassVar[str] = "note"
    lines: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Content of a file, collapsed.

    Args:
        summary: Heading, such as the file's name.
        text: Content of the file.
    """

    kind: ClassVar[str] = "code"
    summary: str
    text: str


@dataclass(frozen=True)
class Case:
    """Case study with the labels around its document, as scored by each variant.

    Args:
        study: Case study: the document and the variants.
        rows: Label figure of each variant.
    """

    kind: ClassVar[str] = "case"
    study: CaseStudy
    rows: Sequence[LabelRows]


Block: TypeAlias = Table | Chart | Note | Code | Case


@dataclass(frozen=True)
class Section:
    """Section of a page.

    Args:
        title: Heading of the section.
        about: Description of what is shown; may be empty.
        blocks: Content in order; consecutive figures stand side by side where there is room.
    """

    title: str
    about: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """Page of results.

    Args:
        title: Heading of the page.
        about: Subheading.
        headlines: Most important numbers.
        sections: Sections in order; those without blocks are left out.
    """

    title: str
    about: str
    headlines: Sequence[Headline]
    sections: Sequence[Section]


def render_page(page: Page) -> str:
    """HTML of a page: no script, all text escaped; the same page gives the same text.

    Raises:
        ConfigError: jinja2 or matplotlib is not installed.
    """
    import_extra("matplotlib", "A page", "report")
    jinja2 = import_extra("jinja2", "A page", "report")
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.PackageLoader("match_graph", "report"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [section for section in page.sections if section.blocks]
    text: str = environment.get_template("page.html.jinja").render(page=page, sections=sections)
    return text.strip() + "\n"


def write_page(page: Page, path: Path) -> None:
    """Writes `render_page` to a file atomically."""
    write_text(path, render_page(page))
