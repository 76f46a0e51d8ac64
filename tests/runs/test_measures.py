"""The measures of a split against loops over the documents' scores."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from match_graph.datasets import Synthetic
from match_graph.metrics import ThresholdSearch, rank_labels
from match_graph.runs.measures import SplitMeasures, write_bins


def feed(measures: SplitMeasures, scores: torch.Tensor, ptr: torch.Tensor, index: torch.Tensor):
    for observe in measures.observers():
        observe(scores, ptr, index)
    for observe in measures.rank_observers():
        observe(rank_labels(scores, 5), ptr, index)
    return measures.compute()


def test_SplitMeasures_of_valid_and_test(synthetic: Synthetic) -> None:
    """Names on both splits; slices add up to the whole."""
    ptr, index = synthetic.targets.select(synthetic.documents("test_mask"))
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(len(ptr) - 1, synthetic.num_labels, generator=generator)
    search = ThresholdSearch(synthetic.num_labels)
    search.update(scores, ptr, index)
    valid = feed(SplitMeasures(synthetic), scores, ptr, index)
    propensity = [f"{name}@{k}" for name in ("PSP", "PSNDCG") for k in (1, 3, 5)]
    assert list(valid) == ["ECE@5", "ECE", *propensity]
    test = feed(SplitMeasures(synthetic, search.compute()), scores, ptr, index)
    assert {name: test[name] for name in valid} == valid
    sets = ["F1_micro", "F1_macro", "hierarchical_P", "hierarchical_R", "hierarchical_F1"]
    assert [name for name in test if name not in valid and "/" not in name] == sets

    rows = torch.repeat_interleave(torch.arange(len(ptr) - 1), ptr.diff())
    ranked = scores.argsort(dim=1, descending=True)[:, :5]
    found = sum(
        label in ranked[row] for row, label in zip(rows.tolist(), index.tolist(), strict=True)
    )
    for part in (("head", "torso", "tail"), [f"depth_{depth}" for depth in range(3)]):
        names = [name for name in part if f"{name}/num_gold" in test]
        gold = [test[f"{name}/num_gold"] for name in names]
        assert sum(test[f"{name}/num_labels"] for name in names) == synthetic.num_labels
        assert sum(gold) == len(index)
        recall = sum(
            test[f"{name}/R@5"] * count for name, count in zip(names, gold, strict=True) if count
        )
        assert recall == pytest.approx(found)


def test_SplitMeasures_processes_add_up(synthetic: Synthetic) -> None:
    """Sums of two equal processes give the same shares."""
    ptr, index = synthetic.targets.select(synthetic.documents("test_mask"))
    scores = torch.randn(len(ptr) - 1, synthetic.num_labels)
    search = ThresholdSearch(synthetic.num_labels)
    measures = SplitMeasures(synthetic, search.compute())
    before = feed(measures, scores, ptr, index)
    measures.reduce(lambda sums: 2 * sums)
    after = measures.compute()
    shares = [name for name in before if not name.endswith("num_gold")]
    assert [after[name] for name in shares] == pytest.approx([before[name] for name in shares])
    assert after["depth_0/num_gold"] == 2 * before["depth_0/num_gold"]


def test_write_bins_of_both_splits_are_written(synthetic: Synthetic, tmp_path: Path) -> None:
    """Fifteen bins of the ranked labels and of all, whose pairs are those that were fed."""
    ptr, index = synthetic.targets.select(synthetic.documents("test_mask"))
    scores = torch.randn(len(ptr) - 1, synthetic.num_labels)
    measures = SplitMeasures(synthetic)
    values = feed(measures, scores, ptr, index)
    write_bins(tmp_path / "bins.csv", {"valid": measures, "test": measures})
    table = pd.read_csv(tmp_path / "bins.csv")
    assert table.columns.tolist() == ["split", "labels", "bin", "pairs", "probability", "gold"]
    assert len(table) == 2 * 2 * 15
    for labels, pairs, error in (
        ("ranked", 5 * len(scores), values["ECE@5"]),
        ("all", scores.numel(), values["ECE"]),
    ):
        rows = table[(table["split"] == "test") & (table["labels"] == labels)]
        assert rows["pairs"].sum() == pairs
        distance = (rows["gold"] - rows["probability"]).abs() * rows["pairs"]
        assert distance.sum() / pairs == pytest.approx(error)
