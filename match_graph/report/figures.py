"""Figures: curves over epochs and over seconds, bars, heat maps, as PNG."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from match_graph.errors import MatchGraphError
from match_graph.io.files import write_beside

#: Line styles and colours in the order in which variants are given; the first is ours.
_STYLES = ("-", "--", ":", "-.")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")


def draw_training_curves(
    path: Path, histories: Mapping[str, Sequence[pd.DataFrame]], measures: Sequence[str]
) -> None:
    """Training loss and validation measures over epochs, a line style per variant.

    Source: the figure of MATCH with and without pre-training, https://arxiv.org/abs/2102.07349: on
    the left the mean loss of the
    last 100 batches of each epoch, on the right the measures; the mean over seeds as a line, one
    standard deviation as a band.

    Args:
        path: Path of the PNG file.
        histories: Histories by variant, one table per seed with ``epoch``, ``loss_recent`` and
            ``measures``.
        measures: Columns of validation measures, for the right side.

    Raises:
        MatchGraphError: matplotlib is not installed.
    """
    figure, (left, right) = _make_figure(2, width=11.5)
    for style, (variant, runs) in zip(cycle(_STYLES), histories.items(), strict=False):
        table = pd.concat(runs).groupby("epoch")
        _draw_band(left, table["loss_recent"], style, _COLOURS[0], variant)
        for colour, measure in zip(cycle(_COLOURS), measures, strict=False):
            _draw_band(right, table[measure], style, colour, f"{measure}, {variant}")
    left.set(xlabel="epoch", ylabel="training loss, last 100 batches")
    right.set(xlabel="epoch", ylabel="on validation")
    for axis in (left, right):
        axis.xaxis.get_major_locator().set_params(integer=True)
    right.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=7)  # beside the curves
    _save(figure, (left,), path)


def draw_time_to_quality(path: Path, table: pd.DataFrame, measure: str = "mrr") -> None:
    """Quality of pre-trained vectors against seconds, a curve per mode, a panel per node type.

    Args:
        path: Path of the PNG file.
        table: Table from `measure_time_to_quality`.
        measure: Measure to draw, a column of the table.

    Raises:
        MatchGraphError: matplotlib is not installed.
    """
    types = sorted(table["type"].unique(), key=lambda name: (name != "mean", name))
    figure, axes = _make_figure(len(types))
    for axis, name in zip(axes, types, strict=True):
        of_type = table[table["type"] == name]
        for number, (mode, points) in enumerate(of_type.groupby("mode", sort=False)):
            axis.plot(
                points["seconds"], points[measure], _STYLES[number % 4], marker="o", markersize=3,
                color=_COLOURS[number % 6], label=mode,
            )  # fmt: skip
        axis.set(xscale="log", xlabel="seconds", ylabel=f"held-out {measure}", title=name)
    _save(figure, axes[:1], path)


def draw_bars(path: Path, table: pd.DataFrame) -> None:
    """A group of bars per measure, a bar per row with one standard deviation.

    Source: the figure of MATCH without one kind of metadata, https://arxiv.org/abs/2102.07349. The
    axis starts below the lowest bar, as differences are small.

    Args:
        path: Path of the PNG file.
        table: Table with ``row``, ``measure``, ``mean`` and ``std``, in the order of bars.

    Raises:
        MatchGraphError: matplotlib is not installed.
    """
    names, measures = list(table["row"].unique()), list(table["measure"].unique())
    figure, (axis,) = _make_figure(1, width=1.5 + 0.22 * len(names) * len(measures))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        bars = table[table["row"] == name].set_index("measure").reindex(measures)
        places = [place + (number + 0.5) * width - 0.4 for place in range(len(measures))]
        axis.bar(
            places, bars["mean"], width, yerr=bars["std"].fillna(0.0), label=name,
            color=_COLOURS[number % 6], hatch="/" * (number // 6), error_kw={"lw": 0.8},
        )  # fmt: skip
    low, high = float(table["mean"].min()), float(table["mean"].max())
    axis.set_ylim(max(0.0, low - 0.3 * (high - low) - 0.01), None)
    axis.set_xticks(range(len(measures)), measures)
    figure.legend(loc="outside right upper", fontsize=7)  # beside the bars, never over them
    _save(figure, [], path)


def draw_grid(path: Path, table: pd.DataFrame, keys: Sequence[str]) -> None:
    """A heat map per measure over two settings, the values written in it.

    Args:
        path: Path of the PNG file.
        table: Table with a column per setting, ``measure`` and ``mean``.
        keys: Names of the two settings: down the rows of a map, and across its columns.

    Raises:
        MatchGraphError: matplotlib is not installed.
    """
    measures = list(table["measure"].unique())
    figure, axes = _make_figure(len(measures))
    for axis, measure in zip(axes, measures, strict=True):
        points = table[table["measure"] == measure]
        grid = points.pivot_table(index=keys[0], columns=keys[1], values="mean")
        image = axis.imshow(grid.to_numpy(), aspect="auto", cmap="cividis")
        middle = (image.norm.vmin + image.norm.vmax) / 2
        for (row, column), value in np.ndenumerate(grid.to_numpy()):
            if np.isfinite(value):
                colour = "white" if value < middle else "black"
                axis.text(column, row, f"{value:.4f}", ha="center", va="center", color=colour)
        axis.set_xticks(range(grid.shape[1]), map(str, grid.columns))
        axis.set_yticks(range(grid.shape[0]), map(str, grid.index))
        axis.set(xlabel=keys[1], ylabel=keys[0], title=measure)
        figure.colorbar(image, ax=axis)
    _save(figure, [], path)


def _draw_band(axis: Any, groups: Any, style: str, colour: str, label: str) -> None:
    mean, spread = groups.mean(), groups.std().fillna(0.0)
    axis.plot(mean.index, mean, style, color=colour, label=label)
    axis.fill_between(mean.index, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)


def _make_figure(panels: int, width: float = 0.0) -> tuple[Any, Sequence[Any]]:
    try:
        from matplotlib.figure import Figure  # without pyplot: no window system, no global state
    except ImportError as error:
        raise MatchGraphError(
            "A figure needs matplotlib, which is not installed; run pip install "
            "'match-graph[report]'."
        ) from error
    figure = Figure(figsize=(max(4.6 * panels, width), 3.6), layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _save(figure: Any, legends: Sequence[Any], path: Path) -> None:
    for axis in legends:
        axis.legend(fontsize=7)
    write_beside(path, lambda beside: figure.savefig(beside, format="png", dpi=150))
