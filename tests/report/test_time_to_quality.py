"""Held-out ranks against seconds: a row per mode, budget and type."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from match_graph.cli import app
from match_graph.datasets import Synthetic
from match_graph.graph.view import GraphView
from match_graph.pretrain import SphericalTrainer, evaluate_vectors
from match_graph.report import time_to_quality
from match_graph.report.time_to_quality import (
    MODES,
    draw_time_to_quality,
    measure_time_to_quality,
)
from match_graph.typing import has_edge


def test_measure_time_to_quality_row_per_mode_budget_type_mean(
    synthetic: Synthetic, small_settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean row is the mean over types; pairs grow with the budget, and none held out is seen.

    Ranks are with the margin of the training.
    """
    lines, graphs, margins = list[str](), list[GraphView](), set[float]()

    def train(graph: GraphView, *arguments, **options) -> SphericalTrainer:
        graphs.append(graph)
        return SphericalTrainer(graph, *arguments, **options)

    def evaluate(tables, held, margin: float):
        margins.add(margin)
        return evaluate_vectors(tables, held, margin)

    monkeypatch.setattr(time_to_quality, "SphericalTrainer", train)
    monkeypatch.setattr(time_to_quality, "evaluate_vectors", evaluate)
    table = measure_time_to_quality(
        synthetic,
        small_settings("pretrain.margin=0.25"),
        (0.05, 0.4),
        torch.device("cpu"),
        dict([*MODES.items()][:2]),
        lines.append,
    )
    types = set(table["type"]) - {"mean"}
    assert {"author", "venue", "label"} <= types
    assert len(table) == 2 * 2 * (len(types) + 1)
    assert len(lines) == 4
    assert margins == {0.25}
    edge_type = has_edge("author")
    edges = {graph.num_edges(edge_type) for graph in graphs}
    assert max(edges) < synthetic.graph.num_edges(edge_type)
    for _, point in table.groupby(["mode", "pairs"]):
        of_types, mean = point[point["type"] != "mean"], point[point["type"] == "mean"]
        for measure in ("mrr", "mrr_filtered"):
            assert mean[measure].item() == pytest.approx(of_types[measure].mean())
    means = table[table["type"] == "mean"]
    for _, curve in means.groupby("mode"):
        assert curve["pairs"].is_monotonic_increasing


def test_draw_time_to_quality_shows_its_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A panel per type, the mean first; a curve per mode of what its axis names."""
    pytest.importorskip("matplotlib", reason="figures need the extra 'report'")
    points = [
        {"mode": mode, "seconds": 2.0, "type": name, "mrr": mrr, "mrr_filtered": 0.9}
        for mode, name, mrr in (("a", "x", 0.1), ("a", "mean", 0.2), ("b", "x", 0.3))
    ]
    figures: list = []
    monkeypatch.setattr(time_to_quality, "save_figure", lambda figure, _: figures.append(figure))
    draw_time_to_quality(tmp_path / "curve.png", pd.DataFrame(points))
    [figure] = figures
    first, second = (
        [axis for axis in figure.axes if axis.get_title() == title] for title in ("mean", "x")
    )
    found = [[line.get_ydata().tolist() for line in axis.get_lines()] for axis in first + second]
    assert found == [[[0.2]], [[0.1], [0.3]]]
    assert {axis.get_ylabel() for axis in first + second} == {"held-out mrr"}


def test_write_time_to_quality_by_the_command(tmp_path: Path) -> None:
    """There are five doubling budgets per mode; other stages are an error."""
    pytest.importorskip("matplotlib", reason="figures need the extra 'report'")
    options = ["--dataset", "synthetic", "--seconds", "0.2", "--root", str(tmp_path / "root"),
               "--curve", str(tmp_path / "curve"), "--set", "train.accelerator=cpu",
               "--set", "data.options={num_documents: 200, num_labels: 12}"]  # fmt: skip
    result = CliRunner().invoke(app, ["speed", "pretrain", *options])
    assert result.exit_code == 0, result.output
    names = ["time_to_quality-synthetic.csv", "time_to_quality-synthetic.png"]
    assert sorted(path.name for path in (tmp_path / "curve").iterdir()) == names
    table = pd.read_csv(tmp_path / "curve" / names[0])
    points = table[table["type"] == "mean"].groupby("mode")["pairs"]
    assert points.size().tolist() == [5] * len(MODES)
    result = CliRunner().invoke(app, ["speed", "step", *options])
    assert str(result.exception) == (
        "Only the stage 'pretrain' has a quality against seconds, found 'step'; leave out --curve."
    )
