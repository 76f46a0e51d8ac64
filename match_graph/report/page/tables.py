"""Tables of a page and number formats."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Table:
    """Rows of text; the first column names them.

    Args:
        columns: Their headings.
        rows: As many cells each.
        best: (row, column) of the cells that are printed in bold.
        caption: Above it; may be empty.
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    caption: str = ""


def fraction(value: float | None, digits: int = 4) -> str:
    """A measure as metrics.json and tables have it; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.4g}"


def seconds(value: float) -> str:
    """A duration."""
    if value < 60:
        return f"{value:.1f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
