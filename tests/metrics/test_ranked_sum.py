"""RankedSum@k against a naive loop over a whole ranking."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import pack

from match_graph.errors import GraphError
from match_graph.metrics import RankedSumMeter, ranked_sum_at_k


def naive_rank(scores: list[float], gold: list[int], k: int) -> float:
    """Walks down the labels, best first, those of equal scores in their order."""
    ranked = sorted(range(len(scores)), key=lambda label: (-scores[label], label))
    found = 0
    for rank, label in enumerate(ranked, start=1):
        found += label in gold
        if found == k:
            return float(rank)
    return math.inf


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[float]], list[list[int]]]:
    """Scores with ties, and gold labels in any order, some documents without."""
    num_labels, number = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    row = st.lists(st.sampled_from([-1.5, 0.0, 0.25, 2.0]), min_size=num_labels,
                   max_size=num_labels)  # fmt: skip
    labels = st.lists(st.integers(0, num_labels - 1), unique=True)
    sized = {"min_size": number, "max_size": number}
    return draw(st.lists(row, **sized)), draw(st.lists(labels, **sized))


@given(cases(), st.integers(1, 3))
def test_RankedSumMeter_equals_a_naive_loop(case, size: int) -> None:
    """In batches and float64; the mean is over documents with at least k gold labels."""
    scores, gold = case
    meter = RankedSumMeter((1, 2, 4))
    for start in range(0, len(gold), size):
        logits = torch.tensor(scores[start : start + size], dtype=torch.float64)
        meter.update(logits, *pack(gold[start : start + size]))
    expected = {}
    for k in (1, 2, 4):
        ranks = [naive_rank(row, labels, k) for row, labels in zip(scores, gold, strict=True)]
        found = ranked_sum_at_k(torch.tensor(scores), *pack(gold), k)
        assert found.dtype == torch.float64
        assert found.tolist() == ranks
        if finite := [rank for rank in ranks if rank < math.inf]:
            expected[f"RankedSum@{k}"] = sum(finite) / len(finite)
    assert meter.compute() == pytest.approx(expected, abs=1e-12)


def test_ranked_sum_at_k_by_hand() -> None:
    """Gold labels at ranks 1 and 4; the third is never found."""
    logits = torch.tensor([[0.1, 0.9, 0.5, 0.3]])
    found = [ranked_sum_at_k(logits, *pack([[0, 1]]), k).item() for k in (1, 2, 3)]
    assert found == [1.0, 4.0, math.inf]


def test_ranked_sum_at_k_wrong_inputs_are_an_error() -> None:
    """A label beyond the last one; a score of NaN."""
    with pytest.raises(GraphError) as error:
        ranked_sum_at_k(torch.zeros(1, 4), *pack([[4]]), 1)
    assert str(error.value) == (
        "Gold labels must be those of 1 documents and 4 labels, found 1 documents and label 4."
    )
    with pytest.raises(GraphError):
        ranked_sum_at_k(torch.tensor([[math.nan]]), *pack([[0]]), 1)
