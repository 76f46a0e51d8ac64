"""Tables of text, as Markdown and LaTeX, and CSV of data frames."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pandas as pd

from match_graph.io.escape import escape_formulas, escape_markdown
from match_graph.io.files import write_text

_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "λ": r"$\lambda$",
}


@dataclass(frozen=True)
class Table:
    """Table of text; its first columns name the rows. Pages render it as HTML.

    Args:
        columns: Headings of the columns.
        rows: Rows with a cell per column.
        best: Cells in bold, as (row, column).
        stars: Marks of significance after cells, by (row, column).
        caption: Caption above the table; may be empty.
        num_names: Number of columns that name the rows.
        below: Small second lines of cells, such as intervals, by (row, column).
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()
    stars: Mapping[tuple[int, int], str] = field(default_factory=dict)
    caption: str = ""
    num_names: int = 1
    below: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def to_markdown(self) -> str:
        """Markdown without the caption; names are aligned left, all else right."""
        head = map(escape_markdown, self.columns)
        rule = ["---"] * self.num_names + ["--:"] * (len(self.columns) - self.num_names)
        body = (
            [self._mark(escape_markdown(text), (row, column)) for column, text in enumerate(cells)]
            for row, cells in enumerate(self.rows)
        )
        return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *body])

    def _mark(self, text: str, place: tuple[int, int]) -> str:
        text = f"**{text}**" if place in self.best else text
        text += escape_markdown(self.stars.get(place, ""))
        return f"{text}<br>{escape_markdown(self.below[place])}" if place in self.below else text

    def to_latex(self) -> str:
        """LaTeX with booktabs; stars are superscripts, second lines are rows of their own."""
        lines = [[*map(escape_latex, cells)] for cells in self.rows]
        for line in lines:
            if line[0].startswith(("[", "*")):  # else an argument of \\ in the line before
                line[0] = f"{{}}{line[0]}"
        for row, column in self.best:
            lines[row][column] = rf"\textbf{{{lines[row][column]}}}"
        for (row, column), stars in self.stars.items():
            lines[row][column] += rf"\textsuperscript{{{stars}}}"
        second = [["" for _ in self.columns] for _ in lines]
        for (row, column), text in self.below.items():
            second[row][column] = rf"{{\scriptsize {escape_latex(text)}}}"
        lines = [
            line
            for first, below in zip(lines, second, strict=True)
            for line in ([first, below] if any(below) else [first])
        ]
        frame = pd.DataFrame(lines, columns=[*map(escape_latex, self.columns)])
        alignment = "l" * self.num_names + "r" * (len(self.columns) - self.num_names)
        latex: str = frame.to_latex(index=False, escape=False, column_format=alignment)
        return latex


def escape_latex(text: str) -> str:
    """Escapes text for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def write_csv(path: Path, frame: pd.DataFrame) -> None:
    """Writes a frame as CSV, with spreadsheet formulas escaped by an apostrophe."""
    write_text(path, escape_formulas(frame).to_csv(index=False))


def number(value: float | None, form: str = ",") -> str:
    """Formats a number by a format specification; "-" for None."""
    return "-" if value is None else format(value, form)


def fraction(value: float | None, digits: int = 4) -> str:
    """Formats a fraction with a number of decimals; "-" for None."""
    return number(value, f".{digits}f" if value is None or abs(value) < 1000 else ".4g")


def signed(value: float, digits: int = 4) -> str:
    """Formats a difference with a number of decimals and its sign.

    A small one keeps its sign, which tells whether an interval holds 0, unless it is what adding
    up in another order leaves of 0.
    """
    return f"{value:+.{digits}f}" if abs(value) > 1e-12 else f"{0:.{digits}f}"


def rounded(value: float | None, digits: int) -> str:
    """Formats a number to significant digits, or to an integer if it has more; "-" for None."""
    is_large = value is not None and abs(value) >= 10**digits - 0.5
    return number(value, ",.0f" if is_large else f",.{digits}g")
