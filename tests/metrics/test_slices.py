"""Slices of the labels by hand, and R@k of slices against a naive loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import pack

from match_graph.errors import GraphError
from match_graph.graph import Hierarchy
from match_graph.metrics import (
    FREQUENCY_CUTS,
    F1Meter,
    LabelSlices,
    SliceMeter,
    slice_by_depth,
    slice_by_frequency,
)

KS = (1, 3)


def test_slice_by_frequency_cuts() -> None:
    """The ends of the torso belong to it; labels never seen are tail."""
    assert FREQUENCY_CUTS == (20, 100)
    labels = slice_by_frequency(torch.tensor([0, 19, 20, 100, 101])).labels()
    assert {name: mask.nonzero().view(-1).tolist() for name, mask in labels.items()} == {
        "head": [4],
        "torso": [2, 3],
        "tail": [0, 1],
    }
    assert list(slice_by_frequency(torch.tensor([5])).labels()) == ["tail"]


def test_slice_by_depth_depths() -> None:
    """By the longest path; a label outside the hierarchy is at the top; no edge, no slice."""
    dag = Hierarchy(torch.tensor([[1, 2, 2], [0, 1, 0]]), 4)
    labels = slice_by_depth(dag).labels()
    assert {name: mask.nonzero().view(-1).tolist() for name, mask in labels.items()} == {
        "depth_0": [0, 3],
        "depth_1": [1],
        "depth_2": [2],
    }
    assert slice_by_depth(Hierarchy(torch.empty(2, 0).long(), 4)).labels() == {}


@st.composite
def rankings(draw: st.DrawFn):
    """Rankings, gold labels, and which of three slices each label is in."""
    num_labels, number = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    cut = draw(st.integers(1, num_labels))
    ranked = [draw(st.permutations(range(num_labels)))[:cut] for _ in range(number)]
    one = st.lists(st.integers(0, num_labels - 1), unique=True)
    gold = draw(st.lists(one, min_size=number, max_size=number))
    places = draw(st.lists(st.integers(0, 2), min_size=num_labels, max_size=num_labels))
    return ranked, gold, places


@given(rankings(), st.integers(1, 3))
def test_SliceMeter_equals_a_naive_loop(case, size: int) -> None:
    """Pairs found over gold pairs, in batches; a slice without a gold pair has no R@k."""
    ranked, gold, places = case
    meter = SliceMeter([LabelSlices(("a", "b", "c"), torch.tensor(places))], KS)
    for start in range(0, len(gold), size):
        stop = start + size
        meter.update(torch.tensor(ranked[start:stop]), *pack(gold[start:stop]))
    expected: dict[str, float] = {}
    for place, name in enumerate("abc"):
        if place not in places:
            continue
        pairs = [(row, label) for row, labels in enumerate(gold) for label in labels]
        pairs = [(row, label) for row, label in pairs if places[label] == place]
        expected |= {f"{name}/num_labels": places.count(place), f"{name}/num_gold": len(pairs)}
        for k in KS if pairs else ():
            found = sum(label in ranked[row][:k] for row, label in pairs)
            expected[f"{name}/R@{k}"] = found / len(pairs)
    assert meter.compute() == pytest.approx(expected, abs=1e-12)


def test_SliceMeter_with_f1_and_processes() -> None:
    """F1 of the slice's labels beside its R@k; twice the counts are the same shares."""
    meter, f1 = SliceMeter([slice_by_frequency(torch.tensor([500, 3]))], (1,)), F1Meter(2)
    meter.update(torch.tensor([[0, 1], [0, 1]]), *pack([[0], [0, 1]]))
    f1.update(*pack([[0], [1]]), *pack([[0], [0, 1]]))
    meter.reduce(lambda counts: 2 * counts)
    assert meter.compute(f1) == {
        "head/num_labels": 1, "head/num_gold": 4, "head/R@1": 1.0,
        "head/F1_micro": 2 / 3, "head/F1_macro": 2 / 3,
        "tail/num_labels": 1, "tail/num_gold": 2, "tail/R@1": 0.0,
        "tail/F1_micro": 1.0, "tail/F1_macro": 1.0,
    }  # fmt: skip


def test_LabelSlices_of_other_labels_are_an_error() -> None:
    """Two partitions, of three and of two labels."""
    parts = [LabelSlices(("a",), torch.zeros(n, dtype=torch.int64)) for n in (3, 2)]
    with pytest.raises(GraphError) as error:
        SliceMeter(parts)
    assert str(error.value) == (
        "Slices must be of the same labels, found [2, 3] as numbers of labels."
    )
