"""F1, precision and recall of packed label sets against naive loops and scikit-learn."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import pack
from sklearn.metrics import f1_score, precision_recall_fscore_support

from match_graph.errors import GraphError
from match_graph.metrics import F1Meter, average_sets, find_common


def naive_f1(predicted: list[list[int]], gold: list[list[int]], num_labels: int) -> dict:
    """Label by label, document by document; 0/0 is left out."""
    scores, total_correct, total = [], 0, 0
    for label in range(num_labels):
        correct = both = 0
        for some, right in zip(predicted, gold, strict=True):
            correct += label in some and label in right
            both += (label in some) + (label in right)
        if both:
            scores.append(2 * correct / both)
        total_correct, total = total_correct + correct, total + both
    if not total:
        return {}
    return {"F1_micro": 2 * total_correct / total, "F1_macro": sum(scores) / len(scores)}


@st.composite
def label_sets(draw: st.DrawFn) -> tuple[int, list[list[int]], list[list[int]]]:
    """Predicted and gold labels of a few documents, in any order, some empty."""
    num_labels = draw(st.integers(2, 7))
    one = st.lists(st.integers(0, num_labels - 1), unique=True)
    number = draw(st.integers(1, 5))
    predicted, gold = (draw(st.lists(one, min_size=number, max_size=number)) for _ in range(2))
    return num_labels, predicted, gold


@given(label_sets(), st.integers(1, 3))
def test_F1Meter_f1_equals_a_naive_loop_and_scikit_learn(case, size: int) -> None:
    """In batches; labels that are neither gold nor predicted are not in the macro mean."""
    num_labels, predicted, gold = case
    meter = F1Meter(num_labels)
    dense = torch.zeros(2, len(gold), num_labels, dtype=torch.int64)
    for start in range(0, len(gold), size):
        stop = start + size
        meter.update(*pack(predicted[start:stop]), *pack(gold[start:stop]))
    for row in range(len(gold)):
        dense[0, row, predicted[row]] = 1
        dense[1, row, gold[row]] = 1
    measures = meter.compute()
    assert measures == pytest.approx(naive_f1(predicted, gold, num_labels), abs=1e-12)
    for name, value in measures.items():
        expected = f1_score(
            dense[1].numpy(), dense[0].numpy(), average=name[3:], zero_division=float("nan")
        )
        assert value == pytest.approx(expected, abs=1e-12)


def naive_average(predicted: list[list[int]], gold: list[list[int]], num_labels: int) -> dict:
    """True and false positives and false negatives, pair by pair; 0/0 is 0."""
    counts = [[0, 0, 0] for _ in range(num_labels)]
    for some, right in zip(predicted, gold, strict=True):
        for label, count in enumerate(counts):
            count[0] += label in some and label in right
            count[1] += label in some and label not in right
            count[2] += label not in some and label in right

    def share(true: int, false: int) -> float:
        return true / (true + false) if true + false else 0.0

    def harmonic(p: float, r: float) -> float:
        return 2 / (1 / p + 1 / r) if p and r else 0.0

    true, positive, negative = (sum(column) for column in zip(*counts, strict=True))
    micro = share(true, positive), share(true, negative)
    macro = [sum(share(one[0], one[place]) for one in counts) / num_labels for place in (1, 2)]
    return {
        "P_micro": micro[0], "R_micro": micro[1], "F1_micro": harmonic(*micro),
        "P_macro": macro[0], "R_macro": macro[1], "F1_of_macro": harmonic(*macro),
    }  # fmt: skip


@given(label_sets())
def test_average_sets_equals_a_naive_loop_and_scikit_learn(case) -> None:
    """Over all labels, in float64; F1_of_macro is not scikit-learn's mean of F1."""
    num_labels, predicted, gold = case
    meter = F1Meter(num_labels)
    meter.update(*pack(predicted), *pack(gold))
    found = average_sets(meter.counts)
    assert found == pytest.approx(naive_average(predicted, gold, num_labels), abs=1e-12)
    dense = torch.zeros(2, len(gold), num_labels, dtype=torch.int64)
    for row in range(len(gold)):
        dense[0, row, predicted[row]] = 1
        dense[1, row, gold[row]] = 1
    for average in ("micro", "macro"):
        p, r, *_ = precision_recall_fscore_support(
            dense[1].numpy(), dense[0].numpy(), average=average, zero_division=0.0
        )
        assert found[f"P_{average}"] == pytest.approx(p, abs=1e-12)
        assert found[f"R_{average}"] == pytest.approx(r, abs=1e-12)


def test_F1Meter_of_some_labels() -> None:
    """Label 0 is right once and wrong once, label 1 is missed, label 2 is nowhere."""
    meter = F1Meter(3)
    meter.update(*pack([[0], [0], []]), *pack([[0], [1], []]))
    assert meter.compute(torch.tensor([True, False, True])) == {
        "F1_micro": pytest.approx(2 / 3),
        "F1_macro": pytest.approx(2 / 3),
    }
    assert meter.compute(torch.tensor([False, True, False])) == {"F1_micro": 0.0, "F1_macro": 0.0}
    assert meter.compute(torch.tensor([False, False, True])) == {}


def test_find_common_entries() -> None:
    """By document: what another document has does not count."""
    common = find_common(*pack([[2, 0], [1], []]), *pack([[0], [2], [1]]), 3)
    assert common.tolist() == [False, True, False]


def test_F1Meter_sets_of_other_documents_are_an_error() -> None:
    """Two predicted, one gold."""
    with pytest.raises(GraphError) as error:
        F1Meter(3).update(*pack([[0], [1]]), *pack([[0]]))
    assert str(error.value) == (
        "Predicted and gold labels must be of the same documents, found 2 and 1 documents."
    )


def test_F1Meter_refuses_unknown_labels() -> None:
    """A gold label beyond L."""
    with pytest.raises(GraphError) as error:
        F1Meter(3).update(*pack([[0]]), *pack([[1, 7]]))
    assert str(error.value) == "Labels must lie in [0, 3), found 1 to 7."
