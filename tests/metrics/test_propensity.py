"""Propensities by hand; PSP@k and PSNDCG@k against a naive loop and napkinXC."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import pack

from match_graph.errors import GraphError
from match_graph.metrics import (
    PROPENSITY_PARAMETERS,
    PropensityMeter,
    inverse_propensity,
    rank_labels,
)

KS = (1, 2, 3, 5, 8)


def naive_measures(ranked, gold, weight: list[float]) -> dict[str, float]:
    """Document by document, rank by rank: what is found, over the best that could be found."""
    measures = {}
    for k in KS:
        found, best = [0.0, 0.0], [0.0, 0.0]
        for labels, true in zip(ranked, gold, strict=True):
            ideal = sum(1 / math.log2(i + 2) for i in range(min(k, len(true)))) or 1.0
            for i, label in enumerate(labels[:k]):
                if label in true:
                    found[0] += weight[label] / k
                    found[1] += weight[label] / math.log2(i + 2) / ideal
            for i, value in enumerate(sorted((weight[label] for label in true), reverse=True)[:k]):
                best[0] += value / k
                best[1] += value / math.log2(i + 2) / ideal
        if best[0]:
            measures[f"PSP@{k}"] = found[0] / best[0]
            measures[f"PSNDCG@{k}"] = found[1] / best[1]
    return measures


@st.composite
def rankings(draw: st.DrawFn):
    """Rankings cut at one K, gold labels of which some are never ranked, weights with ties."""
    num_labels, number = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    cut = draw(st.integers(1, num_labels))
    ranked = [draw(st.permutations(range(num_labels)))[:cut] for _ in range(number)]
    one = st.lists(st.integers(0, num_labels - 1), unique=True)
    gold = draw(st.lists(one, min_size=number, max_size=number))
    value = st.sampled_from([1.0, 1.5, 2.25, 9.0])
    return ranked, gold, draw(st.lists(value, min_size=num_labels, max_size=num_labels))


@given(rankings(), st.integers(1, 3))
def test_PropensityMeter_equals_a_naive_loop(case, size: int) -> None:
    """In batches, for k below and above the number of labels; nothing where there is no gold."""
    ranked, gold, weight = case
    meter = PropensityMeter(torch.tensor(weight), KS)
    for start in range(0, len(gold), size):
        stop = start + size
        meter.update(torch.tensor(ranked[start:stop]), *pack(gold[start:stop]))
    assert meter.compute() == pytest.approx(naive_measures(ranked, gold, weight), abs=1e-12)


def test_PropensityMeter_best_gains_of_many_documents() -> None:
    """Forty documents of five gold labels, all weights different."""
    gold = [[(document + 7 * number) % 40 for number in range(5)] for document in range(40)]
    weight = [1.0 + label for label in range(40)]
    ranked = [labels[::-1] for labels in gold]
    meter = PropensityMeter(torch.tensor(weight), KS)
    meter.update(torch.tensor(ranked), *pack(gold))
    assert meter.compute() == pytest.approx(naive_measures(ranked, gold, weight), abs=1e-12)


def test_inverse_propensity_by_hand() -> None:
    """N = 100: C = (4.60517 - 1) 2.5^.55 = 5.96750; a label of 3 documents: 1 + C 4.5^-.55."""
    found = inverse_propensity(torch.tensor([0, 3, 100]), 100)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx([5.77466, 3.60931, 1.47015], abs=1e-5)
    assert PROPENSITY_PARAMETERS["default"] == (0.55, 1.5)


@pytest.mark.parametrize("number", [1, 2])
def test_inverse_propensity_of_few_documents_is_positive(number: int) -> None:
    """Few documents give no negative propensity.

    C would be negative.
    """
    assert inverse_propensity(torch.tensor([0, 1]), number).tolist() == [1.0, 1.0]


def test_PropensityMeter_rare_label_counts_more() -> None:
    """Two documents with both labels: finding the rare one first is the best that can be."""
    weight = torch.tensor([1.0, 4.0])
    values = []
    for first in ([0, 1], [1, 0]):
        meter = PropensityMeter(weight, (1, 2))
        meter.update(torch.tensor([first, first]), *pack([[0, 1], [0, 1]]))
        values.append(meter.compute())
    ideal = 4 + 1 / math.log2(3)
    assert values[0] == pytest.approx(
        {"PSP@1": 0.25, "PSP@2": 1.0, "PSNDCG@1": 0.25, "PSNDCG@2": (1 + 4 / math.log2(3)) / ideal}
    )
    assert set(values[1].values()) == {1.0}


@pytest.mark.parametrize("parameters", sorted(PROPENSITY_PARAMETERS))
def test_inverse_propensity_napkinxc_agrees(parameters: str) -> None:
    """Its propensities, PSP@1..8 and PSNDCG@1..8, for each of the source's parameters."""
    napkinxc = pytest.importorskip("napkinxc.metrics", reason="napkinXC is not installed")
    a, b = PROPENSITY_PARAMETERS[parameters]
    generator = torch.Generator().manual_seed(0)
    share = torch.linspace(0.02, 0.5, 20)
    gold = torch.rand(60, 20, generator=generator) < share
    gold[::7] = False
    ranked = rank_labels(torch.rand(60, 20, generator=generator) + 0.3 * gold, 8)
    sets = [row.nonzero().view(-1).tolist() for row in gold]
    weight = inverse_propensity(gold.sum(dim=0), len(gold), a, b)
    expected = napkinxc.Jain_et_al_inverse_propensity(gold.int().numpy(), a, b)
    assert weight.numpy() == pytest.approx(expected, abs=1e-12)
    meter = PropensityMeter(weight, range(1, 9))
    meter.update(ranked, *pack(sets))
    measures = meter.compute()
    for name, measure in (("PSP", "psprecision_at_k"), ("PSNDCG", "psndcg_at_k")):
        found = [measures[f"{name}@{k}"] for k in range(1, 9)]
        peer = getattr(napkinxc, measure)(sets, ranked.tolist(), weight.numpy(), k=8)
        assert found == pytest.approx(peer.tolist(), abs=1e-12)


def test_PropensityMeter_processes_add_up() -> None:
    """Twice the sums are the same shares."""
    meter = PropensityMeter(torch.tensor([1.0, 2.0]), (1,))
    meter.update(torch.tensor([[0]]), *pack([[0, 1]]))
    meter.reduce(lambda sums: 2 * sums)
    assert meter.compute() == {"PSP@1": 0.5, "PSNDCG@1": 0.5}


def test_inverse_propensity_no_training_document_is_an_error() -> None:
    """There is no logarithm of 0."""
    with pytest.raises(GraphError) as error:
        inverse_propensity(torch.tensor([0]), 0)
    assert str(error.value) == (
        "Propensities need at least one training document and b above 0, found 0 and 1.5."
    )


def test_PropensityMeter_labels_without_a_weight_are_an_error() -> None:
    """Ranked or gold."""
    for ranked, gold in (([[2]], [[0]]), ([[0]], [[2]])):
        with pytest.raises(GraphError) as error:
            PropensityMeter(torch.ones(2)).update(torch.tensor(ranked), *pack(gold))
        assert str(error.value) == (
            "There must be a propensity for each label, found 2 and label 2; "
            "count the training documents of all labels."
        )
