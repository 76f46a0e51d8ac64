"""Figures: curves over epochs and over seconds, as PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from match_graph.errors import MatchGraphError
from match_graph.training.files import write_beside

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
        path: The PNG file.
        histories: By variant, one table per seed with ``epoch``, ``loss_recent`` and ``measures``.
        measures: Columns for the right side.

    Raises:
        MatchGraphError: matplotlib is not installed.
    """
    figure, (left, right) = _make_figure(2)
    for style, (variant, runs) in zip(_STYLES, histories.items(), strict=False):
        table = pd.concat(runs).groupby("epoch")
        _draw_band(left, table["loss_recent"], style, _COLOURS[0], variant)
        for colour, measure in zip(_COLOURS, measures, strict=False):
            _draw_band(right, table[measure], style, colour, f"{measure}, {variant}")
    left.set(xlabel="epoch", ylabel="training loss, last 100 batches")
    right.set(xlabel="epoch", ylabel="on validation")
    _save(figure, (left, right), path)


def draw_time_to_quality(path: Path, table: pd.DataFrame, measure: str = "mrr") -> None:
    """Quality of pre-trained vectors against seconds, a curve per mode, a panel per node type.

    Args:
        path: The PNG file.
        table: From `measure_time_to_quality`.
        measure: Its column.

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


def _draw_band(axis: Any, groups: Any, style: str, colour: str, label: str) -> None:
    mean, spread = groups.mean(), groups.std().fillna(0.0)
    axis.plot(mean.index, mean, style, color=colour, label=label)
    axis.fill_between(mean.index, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)


def _make_figure(panels: int) -> tuple[Any, Sequence[Any]]:
    try:
        from matplotlib.figure import Figure  # without pyplot: no window system, no global state
    except ImportError as error:
        raise MatchGraphError(
            "A figure needs matplotlib, which is not installed; run pip install "
            "'match-graph[report]'."
        ) from error
    figure = Figure(figsize=(4.6 * panels, 3.6), layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _save(figure: Any, legends: Sequence[Any], path: Path) -> None:
    for axis in legends:
        axis.legend(fontsize=7)
    write_beside(path, lambda beside: figure.savefig(beside, format="png", dpi=150))
