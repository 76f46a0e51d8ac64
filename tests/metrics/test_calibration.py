"""The calibration error against a hand computation and a naive loop, in any batches."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from match_graph.errors import GraphError
from match_graph.metrics import CalibrationMeter


def logit(probability: float) -> float:
    return math.log(probability / (1 - probability))


def draw(seed: int, num_documents: int = 13, num_labels: int = 9):
    """Logits [B, L] and packed gold labels; some documents have none."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(num_documents, num_labels, generator=generator)
    gold = torch.rand(num_documents, num_labels, generator=generator) < 0.25
    gold[0] = False
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), gold.sum(1).cumsum(0)])
    return logits, ptr, gold.nonzero()[:, 1], gold


def naive_error(pairs: list[tuple[float, bool]], num_bins: int) -> float:
    """Guo et al. 2017, equation 3, pair by pair."""
    error = 0.0
    for number in range(num_bins):
        low, high = number / num_bins, (number + 1) / num_bins
        inside = [pair for pair in pairs if low < pair[0] <= high or pair[0] == low == 0]
        if inside:
            confidence = sum(probability for probability, _ in inside) / len(inside)
            accuracy = sum(hit for _, hit in inside) / len(inside)
            error += len(inside) / len(pairs) * abs(accuracy - confidence)
    return error


def test_CalibrationMeter_by_hand() -> None:
    """Two documents, three labels, two bins.

    Ranked (k = 1): (.9, gold) and (.8, not gold) share the upper bin: |1/2 - .85| = .35.
    All: upper bin (.9 gold, .8 not, .6 not): 3/6 |1/3 - 2.3/3|; lower bin (.2 gold, .1, .3):
    3/6 |1/3 - .2|; together .21667 + .06667.
    """
    logits = torch.tensor(
        [[logit(0.9), logit(0.2), logit(0.6)], [logit(0.8), logit(0.1), logit(0.3)]]
    )
    meter = CalibrationMeter(k=1, num_bins=2)
    meter.update(logits, torch.tensor([0, 2, 2]), torch.tensor([0, 1]))
    measures = meter.compute()
    assert measures == {
        "ECE@1": pytest.approx(0.35, abs=1e-6),
        "ECE": pytest.approx(0.28333, abs=1e-5),
    }


@given(
    seed=st.integers(0, 10_000),
    k=st.integers(1, 12),
    bins=st.integers(1, 20),
    cut=st.integers(1, 12),
)
def test_CalibrationMeter_equals_the_naive_loop_in_any_batches(
    seed: int, k: int, bins: int, cut: int
) -> None:
    """Both errors, streamed in two batches, against a loop over pairs."""
    logits, ptr, index, gold = draw(seed)
    meter = CalibrationMeter(k, bins)
    meter.update(logits[:cut], ptr[: cut + 1], index[: ptr[cut]])
    meter.update(logits[cut:], ptr[cut:] - ptr[cut], index[ptr[cut] :])
    probability = torch.sigmoid(logits)
    every = [
        (probability[row, label].item(), bool(gold[row, label]))
        for row in range(len(logits))
        for label in range(logits.size(1))
    ]
    ranked = [
        (probability[row, label].item(), bool(gold[row, label]))
        for row in range(len(logits))
        for label in probability[row].argsort(descending=True)[:k].tolist()
    ]
    measures = meter.compute()
    assert measures[f"ECE@{k}"] == pytest.approx(naive_error(ranked, bins), abs=1e-6)
    assert measures["ECE"] == pytest.approx(naive_error(every, bins), abs=1e-6)


def test_CalibrationMeter_certain_and_right_is_calibrated() -> None:
    """Probabilities 0 and 1 that are right give no error; wrong ones give 1."""
    logits = torch.tensor([[200.0, -200.0]])
    for gold, error in ((0, 0.0), (1, 1.0)):
        meter = CalibrationMeter(k=1)
        meter.update(logits, torch.tensor([0, 1]), torch.tensor([gold]))
        assert meter.compute() == {"ECE@1": error, "ECE": error}


@given(seed=st.integers(0, 10_000), k=st.integers(1, 12), bins=st.integers(1, 20))
def test_CalibrationMeter_bins_give_the_errors_back(seed: int, k: int, bins: int) -> None:
    """The weighted distance from the diagonal is the error; empty bins are NaN."""
    logits, ptr, index, gold = draw(seed)
    meter = CalibrationMeter(k, bins)
    meter.update(logits, ptr, index)
    measures, found = meter.compute(), meter.bins()
    for key, name in ((f"ECE@{k}", "ranked"), ("ECE", "all")):
        pairs, probability, share = found[name]
        error = (pairs * (share - probability).abs()).nansum() / pairs.sum()
        assert measures[key] == pytest.approx(float(error), abs=1e-9)
        assert torch.equal(share.isnan(), pairs == 0)
    assert int(found["all"][0].sum()) == gold.numel()


def test_CalibrationMeter_upper_edge_belongs_to_its_bin() -> None:
    """A gold label of probability 1/2 is in the first of two bins."""
    meter = CalibrationMeter(k=1, num_bins=2)
    meter.update(torch.zeros(1, 1), torch.tensor([0, 1]), torch.tensor([0]))
    for bins in meter.bins().values():
        assert bins[:, 0].tolist() == [1.0, 0.5, 1.0]


def test_CalibrationMeter_takes_the_ranking_of_others() -> None:
    """ECE@k counts the k labels of the given ranking, which may break ties of scores otherwise."""
    logits, ptr, index = torch.zeros(1, 3), torch.tensor([0, 1]), torch.tensor([2])
    meter = CalibrationMeter(k=1)
    meter.update(logits, ptr, index, torch.tensor([[2, 0, 1]]))
    assert meter.compute()["ECE@1"] == 0.5
    assert meter.bins()["ranked"][2].nansum() == 1.0
    alone = CalibrationMeter(k=1)
    alone.update(logits, ptr, index)
    assert alone.bins()["ranked"][2].nansum() == 0.0


def test_CalibrationMeter_refuses_nan() -> None:
    """Also where the ranking is given."""
    logits = torch.tensor([[1.0, math.nan]])
    gold = torch.tensor([0, 1]), torch.tensor([0])
    for ranked in (None, torch.tensor([[0]])):
        with pytest.raises(GraphError, match="NaN"):
            CalibrationMeter(k=1).update(logits, *gold, ranked)


def test_CalibrationMeter_needs_a_document() -> None:
    """Without a document there is no calibration error."""
    with pytest.raises(GraphError) as caught:
        CalibrationMeter().compute()
    assert str(caught.value) == ("The calibration error needs at least one document, found none.")
