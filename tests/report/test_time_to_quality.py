"""Held-out ranks against seconds: a row per mode, budget and type."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from match_graph.cli import app
from match_graph.datasets import Synthetic
from match_graph.report.time_to_quality import MODES, measure_time_to_quality


def test_measure_time_to_quality_row_per_mode_budget_type_mean(
    synthetic: Synthetic, small_settings
) -> None:
    """The mean row is the mean over types; pairs grow with the budget."""
    lines: list[str] = []
    table = measure_time_to_quality(
        synthetic,
        small_settings(),
        (0.05, 0.4),
        torch.device("cpu"),
        dict([*MODES.items()][:2]),
        lines.append,
    )
    types = set(table["type"]) - {"mean"}
    assert {"author", "venue", "label"} <= types
    assert len(table) == 2 * 2 * (len(types) + 1)
    assert len(lines) == 4
    for _, point in table.groupby(["mode", "pairs"]):
        of_types, mean = point[point["type"] != "mean"], point[point["type"] == "mean"]
        for measure in ("mrr", "mrr_filtered"):
            assert mean[measure].item() == pytest.approx(of_types[measure].mean())
    means = table[table["type"] == "mean"]
    for _, curve in means.groupby("mode"):
        assert curve["pairs"].is_monotonic_increasing


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
