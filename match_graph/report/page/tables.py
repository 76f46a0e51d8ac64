"""Tables of a page and number formats."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Table:
    """Table of text; the first column names the rows.

    Args:
        columns: Headings of the columns.
        rows: Rows with a cell per column.
        best: Cells in bold, as (row, column).
        caption: Caption above the table; may be empty.
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    caption: str = ""


def fraction(value: float | None, digits: int = 4) -> str:
    """Formats a fraction as metrics.json and tables have it; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.4g}"


def seconds(value: float) -> str:
    """Formats a duration."""
    if value < 60:
        return f"{value:.1f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
