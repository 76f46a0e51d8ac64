"""Tables of a benchmark as Markdown, CSV and LaTeX, with the best values bold and stars."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from match_graph.benchmark.results import DatasetRecord, Results
from match_graph.io.escape import escape_formulas
from match_graph.io.files import write_beside
from match_graph.io.progress import Reporter
from match_graph.report.plots import write_figure
from match_graph.report.summary import RowSummary, Value, collect_notes, summarize

TABLES = "tables"
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~$!&])")
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
class _Style:
    """Text style of a format."""

    escape: Callable[[str], str]
    bold: Callable[[str], str]
    raised: Callable[[str], str]


def escape_markdown(text: str) -> str:
    """Escapes text for Markdown, also in table cells."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def escape_latex(text: str) -> str:
    """Escapes text for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


MARKDOWN = _Style(escape_markdown, lambda text: f"**{text}**", escape_markdown)
LATEX = _Style(
    escape_latex, lambda text: rf"\textbf{{{text}}}", lambda text: rf"\textsuperscript{{{text}}}"
)


def write_tables(folder: Path, results: Results, reporter: Reporter | None = None) -> list[Path]:
    """Writes ``tables/DATASET.md``, ``.csv`` and ``.tex``, and the experiment's figure.

    Fractions are printed with 4 digits, as in the paper. In CSV a name that a spreadsheet would
    compute, such as "=1+1", has an apostrophe before it. Without matplotlib there are tables only.

    Args:
        folder: Folder of the benchmark.
        results: Results, finished or not.
        reporter: Reporter, told why there is no figure.

    Returns:
        What was written.

    Raises:
        CheckpointError: A finished cell lacks a measure.
    """
    written = []
    for record in results.datasets:
        rows = summarize(results, record.name, folder)
        stem = folder / TABLES / record.name
        measures = results.experiment.measures
        texts = {
            ".md": make_markdown(results, record, rows),
            ".csv": escape_formulas(make_csv(rows, measures)).to_csv(index=False),
            ".tex": make_latex(rows, measures, results.experiment.reference),
        }
        for ending, text in texts.items():
            path = stem.with_name(f"{stem.name}{ending}")
            _write_text(path, text)
            written.append(path)
        written += write_figure(folder / TABLES, results, record, rows, reporter)
    return written


def _write_text(path: Path, text: str) -> None:
    write_beside(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def make_csv(rows: Sequence[RowSummary], measures: Sequence[str]) -> pd.DataFrame:
    """CSV with a line per row and unrounded numbers; empty where there is none.

    Columns of each measure: itself (the mean), ``_std``, ``_stars``, ``_p`` (over runs),
    ``_p_documents`` (over documents), ``_expected`` and ``_difference``.
    """
    lines = []
    for row in rows:
        line: dict[str, object] = {"row": row.name, "runs": row.runs}
        for measure in measures:
            line |= _list_values(measure, row.measured.get(measure))
        line |= {
            "parameters": row.parameters,
            "train_seconds": row.train_seconds,
            "seconds_per_epoch": row.seconds_per_epoch,
            "peak_mib": row.peak_mib,
            "notes": " ".join(row.notes),
        }
        lines.append(line)
    return pd.DataFrame(lines, dtype=object)


def _list_values(measure: str, value: Value | None) -> dict[str, object]:
    if value is None:
        return {measure: None}
    test, documents = value.test, value.documents
    return {
        measure: value.mean,
        f"{measure}_std": value.std,
        f"{measure}_stars": value.stars,
        f"{measure}_p": None if test is None else test.p_value,
        f"{measure}_p_documents": None if documents is None else documents.p_value,
        f"{measure}_expected": value.expected[0] if value.expected else None,
        f"{measure}_difference": value.difference,
    }


def make_latex(rows: Sequence[RowSummary], measures: Sequence[str], reference: str | None) -> str:
    """LaTeX table in the style of booktabs, its legend as a comment above."""
    frame = _make_frame(rows, measures, LATEX)
    columns = "l" + "r" * (frame.shape[1] - 1)
    table: str = frame.to_latex(index=False, escape=False, column_format=columns)
    legend = _make_legend(rows, reference)
    comments = [f"% {' '.join(line.split())}\n" for line in [*legend, *collect_notes(rows)]]
    return "".join(comments) + table


def make_markdown(results: Results, record: DatasetRecord, rows: Sequence[RowSummary]) -> str:
    """Markdown table with provenance above, legend and notes below."""
    experiment = results.experiment
    parts = [
        f"## {escape_markdown(experiment.name)} on {escape_markdown(record.name)}",
        escape_markdown(experiment.question),
        _describe_setting(results, record),
        _format_markdown(_make_frame(rows, experiment.measures, MARKDOWN)),
        "  \n".join(escape_markdown(line) for line in _make_legend(rows, experiment.reference)),
    ]
    expected = _make_expected(rows, experiment.measures)
    if expected is not None:
        parts += ["Numbers of the paper, and ours minus them:", _format_markdown(expected)]
    notes = [f"- {escape_markdown(note)}" for note in collect_notes(rows)]
    parts += ["\n".join(notes)] if notes else []
    return "\n\n".join(part for part in parts if part) + "\n"


def _describe_setting(results: Results, record: DatasetRecord) -> str:
    experiment, machine = results.experiment, results.machine
    sizes = ", ".join(f"{number:,} {split}" for split, number in record.documents.items())
    budget = "" if record.epochs is None else f" Epochs of every network: {record.epochs}."
    processor = ", ".join([f"{machine.cores} cores ({machine.processor})", *machine.gpus])
    cells = [cell for cell in results.cells if cell.dataset == record.name]
    seeds = sorted({cell.seed for cell in cells})  # those of earlier calls too
    finished = sum(cell.status == "done" for cell in cells)
    return escape_markdown(
        f"{sizes} documents, {record.num_labels:,} labels; measured on {experiment.split}. "
        f"Seeds {', '.join(map(str, seeds))}; {finished} runs are finished.{budget} "
        f"{results.updated}, {processor}, torch {machine.versions.get('torch', '?')}, "
        f"commit {machine.git or 'unknown'}, data {record.checksum[:12]}."
    )


def _make_legend(rows: Sequence[RowSummary], reference: str | None) -> list[str]:
    lines = ["Mean ± standard deviation over runs; documents without labels count as 0."]
    if reference is not None and any(row.measured for row in rows):
        lines.append(
            f"Two-tailed t-test against {reference}, paired by seed. *: significantly worse "
            f"(p < 0.05), **: (p < 0.01); + and ++: significantly better."
        )
    return lines


def _make_frame(rows: Sequence[RowSummary], measures: Sequence[str], style: _Style) -> pd.DataFrame:
    head = ["", *measures, "runs", "parameters", "train s", "s / epoch", "peak MiB"]
    lines = []
    for row in rows:
        numbers = [_format_value(row.measured.get(measure), style) for measure in measures]
        lines.append(
            [
                style.escape(row.name),
                *numbers,
                str(row.runs),
                "-" if row.parameters is None else f"{row.parameters:,}",
                "-" if row.train_seconds is None else f"{row.train_seconds:,.4g}",
                "-" if row.seconds_per_epoch is None else f"{row.seconds_per_epoch:,.3g}",
                "-" if row.peak_mib is None else f"{row.peak_mib:,.0f}",
            ]
        )
    return pd.DataFrame(lines, columns=[style.escape(name) for name in head])


def _format_value(value: Value | None, style: _Style) -> str:
    if value is None:
        return "-"
    spread = "" if value.std is None else f" ± {value.std:.4f}"
    text = style.escape(f"{value.mean:.4f}{spread}")
    text = style.bold(text) if value.is_best else text
    return text + (style.raised(value.stars) if value.stars else "")


def _make_expected(rows: Sequence[RowSummary], measures: Sequence[str]) -> pd.DataFrame | None:
    """Table of expected numbers with the difference in brackets; None where there are none."""
    lines = []
    for row in rows:
        values = [row.measured.get(measure) for measure in measures]
        if any(value is not None and value.expected for value in values):
            lines.append([escape_markdown(row.name), *map(_format_expected, values)])
    head = ["", *map(escape_markdown, measures)]
    return pd.DataFrame(lines, columns=head) if lines else None


def _format_expected(value: Value | None) -> str:
    if value is None or value.difference is None:
        return "-"
    return f"{value.expected[0]:.4f} ({value.difference:+.4f})"


def _format_markdown(frame: pd.DataFrame) -> str:
    rule = ["---", *["--:"] * (frame.shape[1] - 1)]
    return "\n".join(_join_cells([frame.columns, rule, *frame.itertuples(index=False)]))


def _join_cells(lines: Iterable[Iterable[str]]) -> Iterator[str]:
    return (f"| {' | '.join(line)} |" for line in lines)
