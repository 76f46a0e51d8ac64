"""Thresholds against an exhaustive search over the same candidates."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from match_graph.errors import GraphError
from match_graph.metrics import ThresholdSearch, pack_predictions


def draw(seed: int, num_documents: int = 60, num_labels: int = 6):
    """Logits that know the gold labels a little, and packed gold labels; label 0 is rare."""
    generator = torch.Generator().manual_seed(seed)
    share = torch.linspace(0.02, 0.6, num_labels)
    gold = torch.rand(num_documents, num_labels, generator=generator) < share
    logits = 4 * torch.randn(num_documents, num_labels, generator=generator) + 4 * gold - 3
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), gold.sum(1).cumsum(0)])
    return logits, ptr, gold.nonzero()[:, 1], gold


def f1(predicted: torch.Tensor, gold: torch.Tensor) -> float:
    return 2 * int((predicted & gold).sum()) / max(int(predicted.sum() + gold.sum()), 1)


@given(seed=st.integers(0, 10_000), cut=st.integers(1, 59), least=st.integers(1, 20))
def test_ThresholdSearch_no_candidate_is_better(seed: int, cut: int, least: int) -> None:
    """Every label's own threshold has the best F1 of the grid, and the shared one the best micro
    F1; in any batches."""
    logits, ptr, index, gold = draw(seed)
    search = ThresholdSearch(6, min_positives=least)
    search.update(logits[:cut], ptr[: cut + 1], index[: ptr[cut]])
    search.update(logits[cut:], ptr[cut:] - ptr[cut], index[ptr[cut] :])
    found = search.compute()
    probability = torch.sigmoid(logits)
    best = max(f1(probability >= candidate, gold) for candidate in search.grid)
    assert f1(probability >= found.shared, gold) == best
    assert found.num_positives.tolist() == gold.sum(0).tolist()
    for label in range(6):
        own = int(gold[:, label].sum()) >= least
        column, answer = probability[:, label], gold[:, label]
        best = max(f1(column >= candidate, answer) for candidate in search.grid)
        assert bool(found.is_own[label]) == (own and best > 0)
        if found.is_own[label]:
            assert f1(column >= found.value[label], answer) == best
        else:
            assert float(found.value[label]) == found.shared


def test_ThresholdSearch_middle_of_a_gap_is_taken() -> None:
    """Gold at log-odds 4, the others at 0: any candidate in (0, 4] is perfect, 2 is in between."""
    logits = torch.tensor([4.0, 4.0, 0.0, 0.0]).unsqueeze(1)
    search = ThresholdSearch(1, min_positives=2)
    search.update(logits, torch.tensor([0, 1, 2, 2, 2]), torch.tensor([0, 0]))
    found = search.compute()
    assert bool(found.is_own[0])
    assert float(torch.logit(found.value[0])) == pytest.approx(2.0, abs=0.01)


def test_ThresholdSearch_without_gold_labels_one_half() -> None:
    """Nothing to choose from: 0.5 for all."""
    search = ThresholdSearch(2)
    search.update(torch.zeros(3, 2), torch.zeros(4, dtype=torch.int64), torch.zeros(0).long())
    found = search.compute()
    assert found.value.tolist() == [0.5, 0.5]
    assert found.is_own.tolist() == [False, False]


def test_ThresholdSearch_shares_where_gold_is_below_the_grid() -> None:
    """A label whose gold documents all score below .00034 shares the others' threshold."""
    logits = torch.tensor([[-20.0, 3.0]]).repeat(4, 1)
    search = ThresholdSearch(2, min_positives=1)
    search.update(logits, torch.arange(0, 9, 2), torch.tensor([0, 1] * 4))
    found = search.compute()
    assert found.is_own.tolist() == [False, True]
    assert found.num_positives.tolist() == [4, 4]


@pytest.mark.parametrize(
    ("logits", "gold", "expected"),
    [
        # five of six gold below: F1 is 2 / 7 above 2, and 4 / 11 in [-8, 0]
        ([4.0, 2.0, 2.0, 2.0, 0.0, -20.0, -20.0, -20.0, -20.0], [0, 4, 5, 6, 7, 8], -4.0),
        # at the end of the grid: F1 is 4 / 8 at -8, and 2 / 3 in (-8, 4]
        ([4.0, -8.0, -8.0, -8.0, -8.0, -8.0], [0, 1], -2.0),
    ],
)
def test_ThresholdSearch_counts_scores_beyond_the_grid(
    logits: list[float], gold: list[int], expected: float
) -> None:
    """Gold labels below the grid lower recall, and a score at its lowest candidate is predicted."""
    search = ThresholdSearch(1, min_positives=2)
    lengths = torch.tensor([document in gold for document in range(len(logits))])
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    search.update(torch.tensor(logits).unsqueeze(1), ptr, torch.zeros(len(gold)).long())
    found = search.compute()
    assert bool(found.is_own[0])
    assert float(torch.logit(found.value[0])) == pytest.approx(expected, abs=0.01)


def test_pack_predictions_are_labels_at_or_above_thresholds() -> None:
    """Packed, ascending; a probability equal to its threshold is in, an empty row is kept."""
    logits = torch.tensor([[0.0, -1.0, 2.0], [-9.0, -9.0, -9.0], [1.0, 3.0, -2.0]])
    ptr, index = pack_predictions(logits, torch.tensor([0.5, 0.2, 0.9]))
    assert ptr.tolist() == [0, 2, 2, 4]
    assert index.tolist() == [0, 1, 0, 1]


def test_pack_predictions_thresholds_must_fit_the_labels() -> None:
    """Thresholds of another data set are refused."""
    with pytest.raises(GraphError) as caught:
        pack_predictions(torch.zeros(1, 3), torch.tensor([0.5]))
    assert str(caught.value) == (
        "There must be a threshold for each label, found 1 for 3 labels; "
        "choose them on this data set."
    )
