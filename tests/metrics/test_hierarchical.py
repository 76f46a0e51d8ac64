"""Violations and hierarchical F1 against naive loops, and scikit-learn on closed label sets."""

import math

import networkx as nx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import pack
from sklearn.metrics import precision_recall_fscore_support

from match_graph.errors import GraphError
from match_graph.graph import Hierarchy
from match_graph.metrics import HierarchicalMeter, ViolationMeter

NO_EDGES = torch.empty(2, 0, dtype=torch.int64)


def naive_violations(
    logits: list[list[float]], edges: list[tuple[int, int]]
) -> tuple[float, float]:
    """Rate and mean size, document by document, edge by edge."""
    pairs, violations, excess = 0, 0, 0.0
    for row in logits:
        for child, parent in edges:
            pairs += 1
            gap = 1 / (1 + math.exp(-row[child])) - 1 / (1 + math.exp(-row[parent]))
            if gap > 0:
                violations += 1
                excess += gap
    return violations / max(pairs, 1), excess / max(violations, 1)


@st.composite
def scored_hierarchies(draw: st.DrawFn) -> tuple[list[list[float]], list[tuple[int, int]]]:
    """Logits on a coarse grid, so that ties are exact, and edges from later to earlier labels."""
    num_labels = draw(st.integers(1, 6))
    possible = [(child, parent) for child in range(num_labels) for parent in range(child)]
    edges = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    value = st.integers(-12, 12).map(lambda step: step / 4)
    row = st.lists(value, min_size=num_labels, max_size=num_labels)
    return draw(st.lists(row, min_size=1, max_size=5)), edges


@given(scored_hierarchies(), st.integers(1, 3))
def test_ViolationMeter_equals_a_naive_loop(
    case: tuple[list[list[float]], list[tuple[int, int]]], size: int
) -> None:
    """Rate and size over (document, child, parent), in batches; ties are no violations."""
    logits, edges = case
    edge_index = torch.tensor(edges, dtype=torch.int64).view(-1, 2).t()
    meter = ViolationMeter(Hierarchy(edge_index, len(logits[0])))
    for rows in torch.tensor(logits).split(size):
        meter.update(rows)
    rate, mean = naive_violations(logits, edges)
    measures = meter.compute()
    assert list(measures) == ["violation_rate", "violation_size"]
    assert measures["violation_rate"] == pytest.approx(rate, abs=1e-12)
    assert measures["violation_size"] == pytest.approx(mean, abs=1e-6)


def test_ViolationMeter_batches_add_up() -> None:
    """Several batches give the measures of one."""
    logits = torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
    hierarchy = Hierarchy(torch.stack([torch.arange(1, 20), torch.arange(1, 20) // 2]), 20)
    whole, parts = ViolationMeter(hierarchy), ViolationMeter(hierarchy)
    whole.update(logits)
    for rows in logits.split(7):
        parts.update(rows)
    assert parts.num_violations == whole.num_violations
    assert parts.compute() == pytest.approx(whole.compute(), abs=1e-7)
    assert 0.3 < whole.compute()["violation_rate"] < 0.7


def test_ViolationMeter_equal_scores_are_no_violation() -> None:
    """Also where the sigmoid of equal values differs in the last bit, at the end of a vector."""
    hierarchy = Hierarchy(torch.stack([torch.arange(1, 140), torch.arange(139)]), 140)
    for value in torch.linspace(-5, 5, 200).tolist():
        meter = ViolationMeter(hierarchy)
        meter.update(torch.full((1, 140), value))
        assert meter.num_violations == 0


def test_ViolationMeter_coherent_scores_have_no_violation() -> None:
    """Children at or below their parents: both measures are 0."""
    meter = ViolationMeter(Hierarchy(torch.tensor([[1, 2], [0, 1]]), 3))
    meter.update(torch.tensor([[2.0, 2.0, -1.0]]))
    assert meter.compute() == {"violation_rate": 0.0, "violation_size": 0.0}


@pytest.mark.parametrize("num_documents", [0, 3])
def test_ViolationMeter_without_edges_both_measures_are_0(num_documents: int) -> None:
    """A flat label set cannot be violated."""
    meter = ViolationMeter(Hierarchy(NO_EDGES, 4))
    meter.update(torch.randn(num_documents, 4))
    assert meter.compute() == {"violation_rate": 0.0, "violation_size": 0.0}


def test_ViolationMeter_low_precision_transposed_scores_taken() -> None:
    """bfloat16 logits and the transposed view of a head give what float32 gives."""
    logits = torch.randn(9, 5, generator=torch.Generator().manual_seed(1)).bfloat16()
    edge_index = torch.tensor([[1, 2, 3, 4], [0, 0, 1, 2]])
    meters = [ViolationMeter(Hierarchy(edge_index, 5)) for _ in range(3)]
    meters[0].update(logits.float())
    meters[1].update(logits)
    meters[2].update(logits.float().t().contiguous().t())
    expected = pytest.approx(meters[0].compute(), abs=1e-7)
    assert meters[1].compute() == expected
    assert meters[2].compute() == expected


def test_ViolationMeter_edges_of_other_labels_are_an_error() -> None:
    """The sentence of every function that takes a hierarchy."""
    with pytest.raises(GraphError) as error:
        ViolationMeter(Hierarchy(torch.tensor([[3], [0]]), 4)).update(torch.zeros(2, 3))
    assert str(error.value) == ("Values must be of the 4 labels of the hierarchy, found 3.")


def close(labels: list[int], edges: list[tuple[int, int]]) -> set[int]:
    """The labels and their ancestors, by networkx."""
    graph = nx.DiGraph(edges)  # child -> parent
    graph.add_nodes_from(labels)
    return set(labels).union(*(nx.descendants(graph, label) for label in labels))


@st.composite
def label_sets(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], list, list]:
    """Labels in any order, and edges from later to earlier labels, so diamonds too."""
    num_labels = draw(st.integers(1, 7))
    possible = [(child, parent) for child in range(num_labels) for parent in range(child)]
    edges = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    one = st.lists(st.integers(0, num_labels - 1), unique=True)
    number = draw(st.integers(1, 5))
    predicted, gold = (draw(st.lists(one, min_size=number, max_size=number)) for _ in range(2))
    return num_labels, edges, predicted, gold


@given(label_sets(), st.integers(1, 3))
def test_HierarchicalMeter_hierarchical_f1_equals_naive_loop(case, size: int) -> None:
    """Hierarchical F1 equals a naive loop and scikit-learn.

    Kiritchenko's sums over closed sets, in batches; 0/0 is left out.
    """
    num_labels, edges, predicted, gold = case
    meter = HierarchicalMeter(Hierarchy(torch.tensor(edges).long().view(-1, 2).t(), num_labels))
    for start in range(0, len(gold), size):
        stop = start + size
        meter.update(*pack(predicted[start:stop]), *pack(gold[start:stop]))
    common = found = true = 0
    closed = torch.zeros(2, len(gold), num_labels, dtype=torch.int64)
    for row, (some, right) in enumerate(zip(predicted, gold, strict=True)):
        above, answer = close(some, edges), close(right, edges)
        common, found, true = common + len(above & answer), found + len(above), true + len(answer)
        closed[0, row, list(above)] = 1
        closed[1, row, list(answer)] = 1
    expected = {}
    if found:
        expected["hierarchical_P"] = common / found
    if true:
        expected["hierarchical_R"] = common / true
    if found + true:
        expected["hierarchical_F1"] = 2 * common / (found + true)
    measures = meter.compute()
    assert measures == pytest.approx(expected, abs=1e-12)
    if found and true:
        peer = (
            precision_recall_fscore_support(
                closed[1].numpy(), closed[0].numpy(), average="micro", zero_division=0.0
            )
            if num_labels > 1
            else None
        )
        if peer is not None:
            assert list(measures.values()) == pytest.approx(peer[:3], abs=1e-12)


def test_HierarchicalMeter_hierarchical_measures_by_hand() -> None:
    """A diamond: 3 is a 1 and a 2, both are a 0; 4 is a 2. Predicted 4, gold 3.

    Closed: {4, 2, 0} and {3, 1, 2, 0}; two in common, of three and of four.
    """
    edges = torch.tensor([[1, 2, 3, 3, 4], [0, 0, 1, 2, 2]])
    meter = HierarchicalMeter(Hierarchy(edges, 5))
    meter.update(*pack([[4]]), *pack([[3]]))
    assert meter.compute() == pytest.approx(
        {"hierarchical_P": 2 / 3, "hierarchical_R": 2 / 4, "hierarchical_F1": 4 / 7}
    )


def test_HierarchicalMeter_closure_names_each_ancestor_once() -> None:
    """A document with a label, its parent, and a sibling; an empty one between."""
    meter = HierarchicalMeter(Hierarchy(torch.tensor([[1, 2, 3], [0, 1, 1]]), 4))
    ptr, index = meter.close(*pack([[3, 2, 1], [], [0]]))
    assert ptr.tolist() == [0, 4, 4, 5]
    assert index.tolist() == [0, 1, 2, 3, 0]


def test_HierarchicalMeter_processes_add_up() -> None:
    """Twice the counts are the same shares."""
    meter = HierarchicalMeter(Hierarchy(torch.tensor([[1], [0]]), 2))
    meter.update(*pack([[1], [0]]), *pack([[0], [0]]))
    before = meter.compute()
    meter.reduce(lambda counts: 2 * counts)
    assert meter.compute() == before == {
        "hierarchical_P": 2 / 3, "hierarchical_R": 1.0, "hierarchical_F1": 0.8,
    }  # fmt: skip


def test_HierarchicalMeter_labels_outside_hierarchy_are_error() -> None:
    """Before ancestors are looked up."""
    meter = HierarchicalMeter(Hierarchy(NO_EDGES, 3))
    with pytest.raises(GraphError) as error:
        meter.update(*pack([[3]]), *pack([[0]]))
    assert str(error.value) == "Labels must lie in [0, 3), found 3 to 3."


def test_ViolationMeter_reduce_keeps_fractions() -> None:
    """The summed excess is rounded neither in the sum over processes nor in a state."""
    scores = torch.tensor([[1.0, -1.0]])
    meters = [ViolationMeter(Hierarchy(torch.tensor([[0], [1]]), 2)) for _ in range(2)]
    meters[0].update(scores)
    expected = float(scores[0, 0].sigmoid() - scores[0, 1].sigmoid())
    meters[0].reduce(lambda values: 2 * values)
    meters[1].add(meters[0].state())
    for meter in meters:
        assert (meter.num_pairs, meter.num_violations) == (2, 2)
        assert meter.compute()["violation_size"] == pytest.approx(expected)
