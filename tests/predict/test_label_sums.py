"""Sums of documents with gold labels: equal to meters over all, however they are split."""

from pathlib import Path

import pytest
import torch

from match_graph.graph import Hierarchy
from match_graph.graph.csr import make_ptr
from match_graph.metrics import (
    CalibrationMeter,
    F1Meter,
    HierarchicalMeter,
    PropensityMeter,
    RankedSumMeter,
    RankingMeter,
    SliceMeter,
    average_sets,
    inverse_propensity,
    pack_predictions,
    rank_labels,
    slice_by_depth,
    slice_by_frequency,
)
from match_graph.predict.label_sums import LabelSums, RunLabels

NUM_LABELS, NUM_UNKNOWN, NUM_DOCUMENTS = 12, 4, 60
EDGES = torch.tensor([[1, 2, 3, 4, 5], [0, 0, 1, 1, 2]])


@pytest.fixture
def batch() -> tuple[RunLabels, torch.Tensor, list[list[str]]]:
    """Labels of a run, logits with ties, and gold labels, some unknown to the run."""
    generator = torch.Generator().manual_seed(0)
    names = [f"l{number}" for number in range(NUM_LABELS + NUM_UNKNOWN)]
    is_gold = torch.rand(NUM_DOCUMENTS, len(names), generator=generator) < 0.2
    is_gold[:5] = False
    gold = [[names[label] for label in row.nonzero().flatten().tolist()] for row in is_gold]
    labels = RunLabels(
        {name: row for row, name in enumerate(names[:NUM_LABELS])},
        Hierarchy(EDGES, NUM_LABELS),
        torch.randint(0, 200, (NUM_LABELS,), generator=generator),
        400,
        torch.full((NUM_LABELS,), 0.6),
        0.6,
        torch.randperm(NUM_LABELS, generator=generator),
    )
    return labels, torch.randn(NUM_DOCUMENTS, NUM_LABELS, generator=generator).round(), gold


def expect(labels: RunLabels, logits: torch.Tensor, gold: list[list[str]]) -> dict[str, float]:
    """Measures of a run that knows all labels and never predicts the unknown ones."""
    number = NUM_LABELS + NUM_UNKNOWN
    index = torch.tensor([int(name[1:]) for row in gold for name in row])
    every = make_ptr(torch.tensor(list(map(len, gold)))), index
    low = torch.cat([logits, torch.full((len(gold), NUM_UNKNOWN), -50.0)], dim=1)
    hierarchy = Hierarchy(EDGES, number)
    count = torch.cat([labels.train_count, torch.zeros(NUM_UNKNOWN, dtype=torch.int64)])
    rank = torch.cat([labels.rank, torch.arange(NUM_LABELS, number)])
    ranked, packed = rank_labels(low, 5, rank), pack_predictions(low, torch.full((number,), 0.6))
    ranking, hierarchical = RankingMeter(), HierarchicalMeter(hierarchy)
    propensity = PropensityMeter(inverse_propensity(count, 400))
    f1, slices = F1Meter(number), SliceMeter([slice_by_frequency(count), slice_by_depth(hierarchy)])
    for meter in (ranking, propensity, slices):
        meter.update(ranked, *every)
    for meter in (f1, hierarchical):
        meter.update(*packed, *every)
    least = RankingMeter((1, 2, 3), "at_least_k")
    least.update(ranked, *every)
    found = {f"at_least_k/{name}": value for name, value in least.compute().items()}
    found = {name: value for name, value in found.items() if "/R@" not in name}
    found |= {f"shared_threshold/{n}": value for n, value in average_sets(f1.counts).items()}
    found |= {**ranking.compute(), **propensity.compute(), **f1.compute()}
    return found | hierarchical.compute() | slices.compute(f1)


def test_LabelSums_compute_unknown_labels_stay_in_denominators(batch) -> None:
    """Unknown gold labels count in every measure as labels that are never predicted."""
    labels, logits, gold = batch
    sums = LabelSums(labels)
    sums.update(logits, gold)
    assert len(sums.unknown) == NUM_UNKNOWN
    measures, expected = sums.compute(), expect(labels, logits, gold)
    assert {name: measures[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    ranked = {f"at_least_k/RankedSum@{k}" for k in (1, 2, 3)}
    others = {"ECE@5", "ECE", "violation_rate", "violation_size"}
    assert measures.keys() - expected.keys() == others | ranked
    known = [[name for name in row if name in labels.row] for row in gold]
    calibration, index = CalibrationMeter(), [labels.row[name] for row in known for name in row]
    packed = make_ptr(torch.tensor(list(map(len, known)))), torch.tensor(index)
    calibration.update(logits, *packed, rank_labels(logits, 5, labels.rank))
    ranks = RankedSumMeter((1, 2, 3))
    ranks.update(logits, *packed)
    assert {f"at_least_k/{name}": value for name, value in ranks.compute().items()} == {
        name: measures[name] for name in ranked
    }
    assert {name: measures[name] for name in ("ECE@5", "ECE")} == calibration.compute()
    pairs = sum(name not in labels.row for row in gold for name in row)
    assert sums.counts.tolist() == [60, sum(not row for row in gold), sum(map(len, gold))]
    assert sums.unknown.total() == pairs > 0


def test_LabelSums_add_file_sums_of_parts_are_those_of_all(batch, tmp_path: Path) -> None:
    """Sums over parts equal those over all: counts exactly, others up to rounding."""
    labels, logits, gold = batch
    whole, total = LabelSums(labels), LabelSums(labels)
    whole.update(logits, gold)
    for number, (start, end) in enumerate([(0, 3), (3, 3), (3, 40), (40, 60)]):
        part = LabelSums(labels)
        if end > start:
            part.update(logits[start:end], gold[start:end])
        part.write(tmp_path / str(number))
        total.add_file(tmp_path / str(number))
    assert total.unknown == whole.unknown
    for name, value in whole.state().items():
        found = total.state()[name]
        assert found.dtype == value.dtype, name
        if value.is_floating_point():  # a sigmoid differs in its last bit by place in a batch
            torch.testing.assert_close(found, value, rtol=1e-8, atol=1e-8)
        else:
            assert torch.equal(found, value), name
    assert total.compute() == pytest.approx(whole.compute(), abs=1e-8)
