"""Held-out ranks against seconds: a row per mode, budget and type."""

import pytest
import torch

from match_graph.benchmark.time_to_quality import MODES, measure_time_to_quality
from match_graph.datasets import Synthetic


def test_a_row_per_mode_budget_and_type_and_their_mean(
    synthetic: Synthetic, small_settings
) -> None:
    """The mean row is the mean of the types; pairs grow with the budget."""
    lines: list[str] = []
    table = measure_time_to_quality(
        synthetic, small_settings(), (0.05, 0.4), torch.device("cpu"), MODES[:2], lines.append
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
