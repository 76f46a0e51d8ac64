"""Gold labels, and the label hierarchy against networkx and naive loops."""

import math
from unittest.mock import patch

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.errors import GraphError
from match_graph.graph import BuiltGraph, Hierarchy, LabelGraph, Targets
from match_graph.graph.labels import check_label_edges

NUM_LABELS = 8


@st.composite
def dag_edges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(child, parent) edges that follow a random order of the labels, so without a cycle."""
    order = draw(st.permutations(range(NUM_LABELS)))
    pairs = st.tuples(st.integers(0, NUM_LABELS - 1), st.integers(0, NUM_LABELS - 1))
    chosen = draw(st.lists(pairs.filter(lambda pair: pair[0] != pair[1]), max_size=14, unique=True))
    return list(dict.fromkeys((order[max(pair)], order[min(pair)]) for pair in chosen))


def make_dag(edges: list[tuple[int, int]]) -> Hierarchy:
    return Hierarchy(torch.tensor(edges, dtype=torch.int64).view(-1, 2).t(), NUM_LABELS)


def make_graph(edges: list[tuple[int, int]]) -> "nx.DiGraph[int]":
    """Edges from child to parent over all labels."""
    graph: nx.DiGraph[int] = nx.DiGraph(edges)
    graph.add_nodes_from(range(NUM_LABELS))
    return graph


label_sets = st.lists(st.sets(st.integers(0, NUM_LABELS - 1)), min_size=1, max_size=6)


def make_targets(sets: list[set[int]]) -> Targets:
    ptr, index = [0], []
    for labels in sets:
        index += sorted(labels)
        ptr.append(len(index))
    return Targets(torch.tensor(ptr), torch.tensor(index, dtype=torch.int32), NUM_LABELS)


@given(dag_edges())
def test_Hierarchy_depth_is_the_longest_path_to_a_root(edges: list[tuple[int, int]]) -> None:
    """0 for roots and labels outside; num_layers counts from the deepest label."""
    dag = make_dag(edges)

    def longest(label: int) -> int:
        return max((1 + longest(parent) for child, parent in edges if child == label), default=0)

    depths = [longest(label) for label in range(NUM_LABELS)]
    assert dag.depth.tolist() == depths
    assert dag.num_layers == (max(depths) + 1 if edges else 0)
    assert dag.num_edges == len(edges)


@given(dag_edges())
def test_Hierarchy_ancestors_equal_networkx(edges: list[tuple[int, int]]) -> None:
    """Every proper ancestor once, ascending; the closure says the same."""
    dag, graph = make_dag(edges), make_graph(edges)
    ptr, index = dag.ancestors()
    assert (ptr.dtype, index.dtype) == (torch.int64, torch.int64)
    expected = [sorted(nx.descendants(graph, label)) for label in range(NUM_LABELS)]
    assert [part.tolist() for part in index.split(ptr.diff().tolist())] == expected
    dense = dag.closure.toarray()
    assert [[label for label in range(NUM_LABELS) if row[label]] for row in dense] == expected


@given(dag_edges(), label_sets, st.integers(0, 6))
def test_Hierarchy_parent_given_child_equals_a_loop(
    edges: list[tuple[int, int]], sets: list[set[int]], num_chosen: int
) -> None:
    """Of the chosen documents with the child, the share with the parent; 1 without the child."""
    targets = make_targets(sets)
    chosen = list(range(len(sets)))[:num_chosen]
    with patch("match_graph.graph.labels._DOCUMENTS", 2):
        found = make_dag(edges).parent_given_child(targets, torch.tensor(chosen, dtype=torch.int64))
    assert found.dtype == torch.float32
    assert found.numel() == len(edges)
    for (child, parent), share in zip(edges, found.tolist(), strict=True):
        with_child = [sets[document] for document in chosen if child in sets[document]]
        if with_child:
            expected = sum(parent in labels for labels in with_child) / len(with_child)
            assert share == pytest.approx(expected)
        else:
            assert share == 1


@given(dag_edges(), st.booleans())
def test_Hierarchy_matrices_of_the_edges(edges: list[tuple[int, int]], weighted: bool) -> None:
    """Laplacian = degree - adjacency = incidence^T weight incidence."""
    weight = torch.rand(len(edges), dtype=torch.float64) if weighted else torch.ones(len(edges))
    expected = torch.zeros(NUM_LABELS, NUM_LABELS, dtype=torch.float64)
    for (child, parent), factor in zip(edges, weight.tolist(), strict=True):
        expected[child, child] += factor
        expected[parent, parent] += factor
        expected[child, parent] -= factor
        expected[parent, child] -= factor
    hierarchy = make_dag(edges)
    if weighted:
        assert hierarchy.laplacian.value.dtype == torch.float32  # kept, and not of the copy
        hierarchy = hierarchy.weighted(weight)
    hierarchy = hierarchy.to("cpu")
    identity = torch.eye(NUM_LABELS, dtype=torch.float64)
    assert torch.allclose(hierarchy.laplacian.multiply(identity), expected, rtol=1e-6, atol=1e-7)
    if edges:
        incidence = hierarchy.child_minus_parent.multiply(identity)
        product = hierarchy.edges_of_label.multiply(incidence)
        assert torch.allclose(product, expected, rtol=1e-6, atol=1e-7)


def test_Hierarchy_to_moves_edges_weights_and_matrices() -> None:
    """Nothing of the copy stays on the CPU; the original does."""
    hierarchy = make_dag([(1, 0), (2, 1)])
    for device in ("cpu", "meta", "cpu"):  # matrices are kept from the first on
        one = hierarchy if device == "cpu" else hierarchy.to(device)
        matrices = one.laplacian, one.child_minus_parent, one.edges_of_label
        tensors = [one.edge_index, one.edge_weight, *(matrix.value for matrix in matrices)]
        assert [tensor.device.type for tensor in tensors] == [device] * 5


def test_Hierarchy_edge_weights_that_do_not_fit_are_an_error() -> None:
    """One weight per edge."""
    edges = torch.tensor([[1, 2], [0, 0]])
    for make in (Hierarchy(edges, 3).weighted, lambda weight: Hierarchy(edges, 3, weight)):
        with pytest.raises(GraphError) as error:
            make(torch.ones(3))
        assert str(error.value) == "edge_weight must be [2], one per label edge, found [3]."


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -0.5])
def test_Hierarchy_edge_weights_that_are_no_weights_are_refused(wrong: float) -> None:
    """With the first of them."""
    with pytest.raises(GraphError) as caught:
        Hierarchy(torch.tensor([[1, 2], [0, 0]]), 3, torch.tensor([0.5, wrong]))
    assert str(caught.value) == (
        f"edge_weight must be finite and at least 0, found {wrong}; "
        f"Hierarchy.parent_given_child gives weights that are."
    )


def test_Hierarchy_from_data_reads_the_built_graph(toy_graph: BuiltGraph) -> None:
    """The toy hierarchy: kernels joined science, misc stands outside, bridge has two parents."""
    dag = Hierarchy.from_data(toy_graph.data)
    names = toy_graph.tables["label"]["id"].tolist()
    edges = {(names[child], names[parent]) for child, parent in dag.edge_index.T.tolist()}
    assert edges == {
        ("learning", "science"),
        ("biology", "science"),
        ("kernels", "science"),
        ("deep", "learning"),
        ("bridge", "learning"),
        ("bridge", "biology"),
        ("cells", "biology"),
    }
    assert dag.depth[names.index("misc")] == 0
    assert dag.depth[names.index("bridge")] == 2


def test_Hierarchy_from_data_without_hierarchy() -> None:
    """A graph without is_a edges has labels only."""
    data = HeteroData()
    data["label"].num_nodes = 3
    dag = Hierarchy.from_data(data)
    assert (dag.num_edges, dag.num_layers, dag.depth.tolist()) == (0, 0, [0, 0, 0])
    assert [part.tolist() for part in dag.ancestors()] == [[0, 0, 0, 0], []]


def test_Hierarchy_cycle_is_named() -> None:
    """The whole path is in the sentence."""
    with pytest.raises(GraphError) as caught:
        Hierarchy(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3)
    assert str(caught.value) == (
        "The label hierarchy must be acyclic, but 0 -> 1 -> 2 -> 0 is a cycle; "
        "remove one of these edges, or leave the hierarchy out (of files: data.hierarchy=ignore)."
    )


@pytest.mark.parametrize(
    ("edge_index", "sentence"),
    [
        (
            torch.zeros(3, 2, dtype=torch.int64),
            "label_edge_index must be [2, E] int64 (row 0 child, row 1 parent), "
            "found [3, 2] torch.int64.",
        ),
        (
            torch.zeros(2, dtype=torch.int64),
            "label_edge_index must be [2, E] int64 (row 0 child, row 1 parent), "
            "found [2] torch.int64.",
        ),
        (
            torch.zeros(2, 1, dtype=torch.int32),
            "label_edge_index must be [2, E] int64 (row 0 child, row 1 parent), "
            "found [2, 1] torch.int32.",
        ),
        (
            torch.tensor([[0, 1], [1, 4]]),
            "label_edge_index must name labels in [0, 4), found 0 to 4.",
        ),
        (
            torch.tensor([[0, -1], [1, 2]]),
            "label_edge_index must name labels in [0, 4), found -1 to 2.",
        ),
        (
            torch.tensor([[1, 2, 1], [0, 0, 0]]),
            "label_edge_index must name each edge once, found 1 below 0 twice; give "
            "torch.unique(label_edge_index, dim=1).",
        ),
        (
            np.array([[1], [0]]),
            "label_edge_index must be a tensor [2, E] int64, found a ndarray; wrap it in "
            "torch.tensor.",
        ),
    ],
    ids=["rows", "dimensions", "dtype", "beyond", "negative", "twice", "array"],
)
def test_check_label_edges_wrong_edges_are_refused(edge_index: Tensor, sentence: str) -> None:
    """Shape, dtype and range have a sentence each, and the class checks them too."""
    for check in (check_label_edges, Hierarchy):
        with pytest.raises(GraphError) as caught:
            check(edge_index, 4)
        assert str(caught.value) == sentence


def test_check_label_edges_correct_edges_pass() -> None:
    """The largest label and no edge at all are in range."""
    check_label_edges(torch.tensor([[3], [0]]), 4)
    check_label_edges(torch.empty(2, 0, dtype=torch.int64), 0)


def test_Hierarchy_rank_is_the_place_by_depth_then_index() -> None:
    """Parents come before children, labels of one depth in their order."""
    dag = Hierarchy(torch.tensor([[0, 2, 2], [3, 0, 4]]), 5)  # 3 over 0 over 2, 4 over 2
    assert dag.depth.tolist() == [1, 0, 2, 0, 0]
    assert dag.rank.tolist() == [3, 0, 4, 1, 2]


def test_Hierarchy_closure_of_a_chain_grows_with_its_entries() -> None:
    """1,000 labels one above the other, in mixed order: each has all that are above it."""
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    dag = Hierarchy(torch.stack([order[1:], order[:-1]]), 1000)
    assert dag.num_layers == 1000
    ptr, above = dag.ancestors()
    assert ptr.diff()[order].tolist() == list(range(1000))
    last = int(order[-1])
    assert above[ptr[last] : ptr[last + 1]].tolist() == sorted(order[:-1].tolist())


@pytest.mark.gpu
def test_Hierarchy_closure_on_a_gpu() -> None:
    """A hierarchy that was moved before anything was computed from it."""
    dag = Hierarchy(torch.tensor([[1, 2], [0, 1]], device="cuda"), 3)
    assert dag.ancestors()[1].tolist() == [0, 0, 1]


def test_Hierarchy_closure_past_its_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no memory holds is a sentence."""
    monkeypatch.setattr("match_graph.graph.labels._MAX_PAIRS", 5)
    with pytest.raises(GraphError) as caught:
        Hierarchy(torch.tensor([[1, 2, 3], [0, 1, 2]]), 5).ancestors()
    assert str(caught.value) == (
        "A label hierarchy must have at most 5 pairs of a label and an ancestor, found more after "
        "5 of 5 labels; use a shallower hierarchy, or set data.hierarchy=ignore."
    )


@given(st.data(), label_sets)
def test_Targets_select_and_count_equal_loops(data: st.DataObject, sets: list[set[int]]) -> None:
    """Labels of chosen documents, and how many of these carry each label; documents may repeat."""
    chosen = data.draw(st.lists(st.integers(0, len(sets) - 1), max_size=7))
    documents = torch.tensor(chosen, dtype=torch.int64)
    targets = make_targets(sets)
    ptr, index = targets.select(documents)
    assert (ptr.dtype, index.dtype) == (torch.int64, torch.int64)
    assert [part.tolist() for part in index.split(ptr.diff().tolist())] == [
        sorted(sets[document]) for document in chosen
    ]
    dense = targets.to_sparse(documents).toarray()
    assert dense.shape == (len(chosen), NUM_LABELS)
    assert [set(row.nonzero()[0].tolist()) for row in dense] == [sets[one] for one in chosen]
    assert targets.count(documents).tolist() == [
        sum(label in sets[document] for document in chosen) for label in range(NUM_LABELS)
    ]


def test_Targets_takes_a_mask_of_documents() -> None:
    """As their numbers; what is neither is one sentence, and nothing counts from the end."""
    targets = make_targets([{1, 3}, set(), {0}])
    mask, numbers = torch.tensor([True, False, True]), torch.tensor([0, 2])
    for masked, chosen in zip(targets.select(mask), targets.select(numbers), strict=True):
        assert torch.equal(masked, chosen)
    assert (targets.to_sparse(mask) != targets.to_sparse(numbers)).nnz == 0
    assert torch.equal(targets.count(mask), targets.count(numbers))
    whole = "must be given by their indices, [B], int64, found "
    for wrong, found in (
        (torch.tensor([-1]), "must be in 0..2, found -1..-1."),
        (torch.tensor([0, 3]), "must be in 0..2, found 0..3."),
        (mask[:2], f"{whole}torch.bool [2]."),
        (torch.tensor([0.5]), f"{whole}torch.float32 [1]."),
    ):
        with pytest.raises(GraphError) as caught:
            targets.select(wrong)
        assert str(caught.value) == f"Nodes of 'document' {found}"


def test_Targets_to_dict_gives_what_the_class_takes() -> None:
    """Saving and loading by a dictionary keeps everything."""
    targets = make_targets([{1, 3}, set(), {0}])
    again = Targets(**targets.to_dict())
    assert torch.equal(again.ptr, targets.ptr)
    assert torch.equal(again.index, targets.index)
    assert again.num_labels == NUM_LABELS


def test_Targets_merged_labels_count_once_per_document() -> None:
    """Groups ascending, empty documents empty; all counts as a loop has them."""
    targets = Targets(torch.tensor([0, 3, 3, 5]), torch.tensor([0, 2, 4, 1, 2]).int(), 5)
    merged = targets.merge(torch.tensor([1, 0, 1, 0, 2]), 4)
    assert merged.ptr.tolist() == [0, 2, 2, 4]
    assert merged.index.tolist() == [1, 2, 0, 1]
    assert (merged.num_labels, merged.index.dtype) == (4, torch.int32)
    assert merged.count(torch.arange(3)).tolist() == [1, 2, 1, 0]


@pytest.mark.parametrize("x", [torch.zeros(NUM_LABELS - 1, 2), torch.zeros(NUM_LABELS)])
def test_LabelGraph_features_are_a_row_per_label(x: Tensor) -> None:
    """None is as good; otherwise one sentence."""
    dag = make_dag([(1, 0)])
    assert LabelGraph(dag).x is None
    assert LabelGraph(dag, torch.zeros(NUM_LABELS, 0)).hierarchy is dag
    with pytest.raises(GraphError) as caught:
        LabelGraph(dag, x)
    assert str(caught.value) == (
        f"Features of labels must be [8, F], a row per label of the hierarchy, found "
        f"{list(x.shape)}."
    )
