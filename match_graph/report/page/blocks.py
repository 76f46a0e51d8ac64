"""Page model: sections of tables, figures and texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from match_graph.predict.case_study import CaseStudy
from match_graph.report.page.charts import BarChart, LineChart
from match_graph.report.page.label_rows import LabelRows
from match_graph.report.page.tables import Table


@dataclass(frozen=True)
class Headline:
    """A number in large print.

    Args:
        name: What it is.
        value: As shown.
        about: A few words, such as the same of a comparison.
    """

    name: str
    value: str
    about: str = ""


@dataclass(frozen=True)
class Note:
    """Paragraphs that a reader should not miss, such as why something is not there."""

    kind: ClassVar[str] = "note"
    lines: Sequence[str]


@dataclass(frozen=True)
class Code:
    """A file as it stands, folded.

    Args:
        summary: Its name.
        text: Its content.
    """

    kind: ClassVar[str] = "code"
    summary: str
    text: str


@dataclass(frozen=True)
class Case:
    """A case study with the labels around its document as each variant sees them.

    Args:
        study: The document and the variants.
        rows: A figure for each variant.
    """

    kind: ClassVar[str] = "case"
    study: CaseStudy
    rows: Sequence[LabelRows]


Block: TypeAlias = Table | LineChart | BarChart | Note | Code | Case


@dataclass(frozen=True)
class Section:
    """A part of a page.

    Args:
        title: Its heading.
        about: What is shown; may be empty.
        blocks: In order; neighbouring figures stand side by side where there is room.
    """

    title: str
    about: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Page:
    """A whole page.

    Args:
        title: Its heading.
        about: Below it.
        headlines: The numbers that matter most.
        sections: In order; those without a block are left out.
    """

    title: str
    about: str
    headlines: Sequence[Headline]
    sections: Sequence[Section]
