"""Tables and their writers, and numbers as tables show them."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from match_graph.report.tables import (
    Table,
    escape_latex,
    fraction,
    rounded,
    signed,
    write_csv,
)

TABLE = Table(["", "P_1"], [["a|b", "0.5 ± 0.1"], ["c", "-"]], frozenset({(0, 1)}), {(0, 1): "*"})


def test_Table_to_markdown() -> None:
    """Text is escaped, and marks are not."""
    assert TABLE.to_markdown().splitlines() == [
        r"|  | P\_1 |", "| --- | --: |", r"| a\|b | **0.5 ± 0.1**\* |", "| c | - |",
    ]  # fmt: skip


def test_Table_to_latex() -> None:
    """It has booktabs rules, the best in bold, and stars as superscripts."""
    assert TABLE.to_latex().splitlines() == [
        r"\begin{tabular}{lr}", r"\toprule", r" & P\_1 \\", r"\midrule",
        r"a\textbar{}b & \textbf{0.5 $\pm$ 0.1}\textsuperscript{*} \\", r"c & - \\",
        r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip


def test_Table_second_lines() -> None:
    """An interval is below its cell, by a line break or in a row of small print."""
    table = replace(TABLE, below={(0, 1): "[-0.1, +0.1]"})
    assert table.to_markdown().splitlines()[2] == r"| a\|b | **0.5 ± 0.1**\*<br>\[-0.1, +0.1\] |"
    assert table.to_latex().splitlines()[4:7] == [
        r"a\textbar{}b & \textbf{0.5 $\pm$ 0.1}\textsuperscript{*} \\",
        r" & {\scriptsize [-0.1, +0.1]} \\", r"c & - \\",
    ]  # fmt: skip


def test_Table_to_latex_names_are_no_arguments() -> None:
    r"""A first cell in brackets or with a star is no argument of ``\\midrule`` or ``\\\\``."""
    table = Table(["", "P@1"], [["[CLS] alone", "[1]"], ["* of all", "*"]], frozenset({(0, 0)}))
    assert table.to_latex().splitlines()[4:6] == [
        r"\textbf{{}[CLS] alone} & [1] \\", r"{}* of all & * \\",
    ]  # fmt: skip


def test_write_csv(tmp_path: Path) -> None:
    """Formulas are escaped, in names of columns too."""
    write_csv(tmp_path / "a.csv", pd.DataFrame({"=x": ["=1+1", "b"]}))
    assert (tmp_path / "a.csv").read_text() == "'=x\n'=1+1\nb\n"


def test_escape_latex_of_all_that_it_reads() -> None:
    assert escape_latex("50% of A_1 & {B} ~ λ\\") == (
        r"50\% of A\_1 \& \{B\} \textasciitilde{} $\lambda$\textbackslash{}"
    )


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.12345, 4, "0.1235"), (1.0, 3, "1.000"), (None, 4, "-"), (1e30, 4, "1e+30")],
)
def test_fraction(value: float | None, digits: int, text: str) -> None:
    """It has a number of decimals; a missing value is a dash."""
    assert fraction(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.03854, "0.0385"), (999.4, "999"), (999.6, "1,000"), (12345.6, "12,346"), (None, "-")],
)
def test_rounded(value: float | None, text: str) -> None:
    """Numbers with more digits are integers with separators of thousands."""
    assert rounded(value, 3) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.00004999, 4, "+0.0000"), (-0.00004999, 4, "-0.0000"), (-0.0014, 3, "-0.001"),
        (0.0, 4, "0.0000"), (-1e-17, 4, "0.0000"), (1e-17, 3, "0.000"),
    ],
)  # fmt: skip
def test_signed(value: float, digits: int, text: str) -> None:
    """A difference has a sign, small ones too, but not what rounding errors leave of 0."""
    assert signed(value, digits) == text
