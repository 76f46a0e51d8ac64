"""Figure of an experiment with its data as CSV: bars, curves over epochs, or a grid."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from match_graph.benchmark.experiment import PlannedRow
from match_graph.benchmark.results import DatasetRecord, Results
from match_graph.errors import MatchGraphError
from match_graph.io.progress import Reporter
from match_graph.report.figures import draw_bars, draw_grid, draw_training_curves
from match_graph.report.summary import RowSummary
from match_graph.report.tables import write_csv


def write_figure(
    folder: Path,
    results: Results,
    record: DatasetRecord,
    rows: Sequence[RowSummary],
    reporter: Reporter | None = None,
) -> list[Path]:
    """Writes ``DATASET-FIGURE.csv`` and ``.png``; nothing without a figure or data.

    Args:
        folder: Target folder.
        results: Results, finished or not.
        record: Record of the data set.
        rows: Row summaries of the data set.
        reporter: Reporter, told why there is no picture where matplotlib is missing.
    """
    kind, measures = results.experiment.figure, results.experiment.measures
    draw: Callable[[Path], None]
    if kind == "bars":
        table = collect_bars(rows)
        draw = partial(draw_bars, table=table)
    elif kind == "curves":
        histories = collect_histories(results, record)
        columns = [name for name in measures if _has_column(histories, name)]
        table = _join_histories(histories, columns)
        draw = partial(draw_training_curves, histories=histories, measures=columns)
    elif kind == "grid":
        table = collect_grid(record.rows, rows)
        draw = partial(draw_grid, table=table, keys=[*results.experiment.grid])
    else:
        return []
    if table.empty:
        return []
    path = folder / f"{record.name}-{kind}.csv"
    write_csv(path, table)
    try:
        draw(path.with_suffix(".png"))
    except MatchGraphError as error:
        if reporter is not None:
            reporter.warn(f"tables only: {error}")
        return [path]
    return [path, path.with_suffix(".png")]


def collect_bars(rows: Sequence[RowSummary]) -> pd.DataFrame:
    """Data of bars, a line per value: ``row``, ``measure``, ``mean``, ``std`` (NaN for one run)."""
    lines = [
        {"row": row.name, "measure": measure, "mean": value.mean, "std": value.std}
        for row in rows
        for measure, value in row.measured.items()
    ]
    return pd.DataFrame(lines).astype({"std": "float64"}) if lines else pd.DataFrame()


def collect_histories(results: Results, record: DatasetRecord) -> dict[str, list[pd.DataFrame]]:
    """Histories per row, a table per finished run, a line per epoch; rows without are left out."""
    found: dict[str, list[pd.DataFrame]] = {}
    for row in record.rows:
        cells = results.find_cells(record.name, row.name)
        tables = [
            pd.DataFrame(cell.history).assign(seed=cell.seed) for cell in cells if cell.history
        ]
        if tables:
            found[row.name] = tables
    return found


def collect_grid(planned: Sequence[PlannedRow], rows: Sequence[RowSummary]) -> pd.DataFrame:
    """Data of a grid, per point and measure: ``row``, the settings, ``measure``, ``mean``."""
    lines = [
        {"row": row.name, **plan.point, "measure": measure, "mean": value.mean}
        for plan, row in zip(planned, rows, strict=True)
        for measure, value in row.measured.items()
    ]
    return pd.DataFrame(lines)


def _has_column(histories: Mapping[str, Sequence[pd.DataFrame]], name: str) -> bool:
    return all(name in table for tables in histories.values() for table in tables)


def _join_histories(
    histories: Mapping[str, Sequence[pd.DataFrame]], measures: Sequence[str]
) -> pd.DataFrame:
    """Joined histories, a line per row, seed and epoch."""
    tables = [table.assign(row=name) for name, runs in histories.items() for table in runs]
    columns = ["row", "seed", "epoch", "loss_recent", *measures]
    return pd.concat(tables)[columns] if tables else pd.DataFrame()
