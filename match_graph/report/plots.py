"""Figure of an experiment as PNG, with its data as CSV: bars, curves over epochs, or a grid."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from match_graph.benchmark.experiment import PlannedRow
from match_graph.benchmark.results import DatasetRecord, Results
from match_graph.errors import MatchGraphError
from match_graph.io.progress import Reporter
from match_graph.report.figures import (
    COLOURS,
    LINE_STYLES,
    add_legend,
    make_panels,
    save_figure,
    write_name,
)
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
        reporter: Reporter, warned if matplotlib is missing, when only the data are written.
    """
    kind, measures = results.experiment.figure, results.experiment.measures
    draw: Callable[[Path], None]
    if kind == "bars":
        table = collect_bars(rows)
        draw = partial(draw_bars, table=table)
    elif kind == "curves":
        table = collect_histories(results, record)
        shown = [name for name in measures if name in table]
        table = table.reindex(columns=["row", "seed", "epoch", "loss_recent", *shown])
        draw = partial(draw_training_curves, table=table, measures=shown)
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


def collect_histories(results: Results, record: DatasetRecord) -> pd.DataFrame:
    """Histories of finished runs, a line per ``row``, ``seed`` and ``epoch``; empty without any."""
    tables = [
        pd.DataFrame(cell.history).assign(row=row.name, seed=cell.seed)
        for row in record.rows
        for cell in results.find_cells(record.name, row.name)
        if cell.history
    ]
    return pd.concat(tables) if tables else pd.DataFrame()


def keep_common_epochs(runs: pd.DataFrame) -> pd.DataFrame:
    """Lines of a row's history up to the epoch where the first of its seeds stopped."""
    seeds = runs.groupby("epoch")["epoch"].transform("size")
    return runs[seeds == seeds.max()]


def collect_grid(planned: Sequence[PlannedRow], rows: Sequence[RowSummary]) -> pd.DataFrame:
    """Data of a grid, per point and measure: ``row``, the settings, ``measure``, ``mean``."""
    lines = [
        {"row": row.name, **plan.point, "measure": measure, "mean": value.mean}
        for plan, row in zip(planned, rows, strict=True)
        for measure, value in row.measured.items()
    ]
    return pd.DataFrame(lines)


def draw_training_curves(path: Path, table: pd.DataFrame, measures: Sequence[str]) -> None:
    """Training loss and validation measures over epochs, a line style per variant.

    Source: the figure of MATCH with and without pre-training, https://arxiv.org/abs/2102.07349: on
    the left the mean loss of the last 100 batches of each epoch, on the right the measures; the
    mean over seeds as a line, one standard deviation as a band. A variant's lines end where the
    first of its seeds stopped, since later means would be of fewer seeds.

    Args:
        path: Path of the PNG file.
        table: Table with ``row``, the variant, ``epoch``, ``loss_recent`` and ``measures``, a line
            per variant, seed and epoch.
        measures: Columns of validation measures, for the right panel.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure, (left, right) = make_panels(2, width=11.5)
    variants = table.groupby("row", sort=False)
    for style, (variant, runs) in zip(cycle(LINE_STYLES), variants, strict=False):
        epochs = keep_common_epochs(runs).groupby("epoch")
        _draw_band(left, epochs["loss_recent"], style, COLOURS[0], str(variant))
        for colour, measure in zip(cycle(COLOURS), measures, strict=False):
            _draw_band(right, epochs[measure], style, colour, f"{measure}, {variant}")
    left.set(xlabel="epoch", ylabel="training loss, last 100 batches")
    right.set(xlabel="epoch", ylabel="on validation")
    for axis in (left, right):
        axis.xaxis.get_major_locator().set_params(integer=True)
    add_legend(right, right.lines, loc="upper left", bbox_to_anchor=(1, 1))  # beside the curves
    add_legend(left, left.lines)
    save_figure(figure, path)


def draw_bars(path: Path, table: pd.DataFrame) -> None:
    """A group of bars per measure, a bar per row with one standard deviation.

    Source: the figure of MATCH without one kind of metadata, https://arxiv.org/abs/2102.07349. The
    axis starts below the lowest bar, as differences are small.

    Args:
        path: Path of the PNG file.
        table: Table with ``row``, ``measure``, ``mean`` and ``std``, in the order of bars.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    names, measures = list(table["row"].unique()), list(table["measure"].unique())
    figure, (axis,) = make_panels(1, width=1.5 + 0.22 * len(names) * len(measures))
    width, drawn = 0.8 / len(names), []
    for number, name in enumerate(names):
        bars = table[table["row"] == name].set_index("measure").reindex(measures)
        places = [place + (number + 0.5) * width - 0.4 for place in range(len(measures))]
        drawn.append(axis.bar(
            places, bars["mean"], width, yerr=bars["std"].fillna(0.0), label=write_name(name),
            color=COLOURS[number % 6], hatch="///" * (number // 6), error_kw={"lw": 0.8},
        ))  # fmt: skip
    low, high = float(table["mean"].min()), float(table["mean"].max())
    axis.set_ylim(max(0.0, low - 0.3 * (high - low) - 0.01), None)
    axis.set_xticks(range(len(measures)), measures)
    add_legend(figure, drawn, loc="outside right upper")  # beside the bars, never over them
    save_figure(figure, path)


def draw_grid(path: Path, table: pd.DataFrame, keys: Sequence[str]) -> None:
    """A heat map per measure over two settings, the values written in it.

    Args:
        path: Path of the PNG file.
        table: Table with a column per setting, ``measure`` and ``mean``.
        keys: Names of the two settings: down the rows of a map, and across its columns.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    measures = list(table["measure"].unique())
    table = table.copy()
    values = {}
    for key in keys:  # as text and in order: an index would sort them, and drop lists and null
        table[key] = [*map(str, table[key])]
        values[key] = table[key].unique()
    figure, axes = make_panels(len(measures))
    for axis, measure in zip(axes, measures, strict=True):
        points = table[table["measure"] == measure]
        grid = points.pivot_table(index=keys[0], columns=keys[1], values="mean")
        grid = grid.reindex(index=values[keys[0]], columns=values[keys[1]])
        image = axis.imshow(grid.to_numpy(), aspect="auto", cmap="cividis")
        middle = (image.norm.vmin + image.norm.vmax) / 2
        for (row, column), value in np.ndenumerate(grid.to_numpy()):
            if np.isfinite(value):
                colour = "white" if value < middle else "black"
                axis.text(column, row, f"{value:.4f}", ha="center", va="center", color=colour)
        axis.set_xticks(range(grid.shape[1]), map(write_name, grid.columns))
        axis.set_yticks(range(grid.shape[0]), map(write_name, grid.index))
        axis.set(xlabel=keys[1], ylabel=keys[0], title=measure)
        figure.colorbar(image, ax=axis)
    save_figure(figure, path)


def _draw_band(axis: Any, groups: Any, style: str, colour: str, label: str) -> None:
    mean, spread = groups.mean(), groups.std().fillna(0.0)
    axis.plot(mean.index, mean, style, color=colour, label=write_name(label))
    axis.fill_between(mean.index, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
