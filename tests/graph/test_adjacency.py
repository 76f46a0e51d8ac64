"""Neighbour lists and their reachable part, against naive loops."""

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from match_graph.errors import GraphError
from match_graph.graph.adjacency import Adjacency, ReachableLists

KIND = ("document", "has", "author")
edges_of = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=20)
masks = st.lists(st.booleans(), min_size=7, max_size=7)
times = st.lists(st.integers(0, 3), min_size=7, max_size=7)


def take_all(lists: Adjacency, degree: torch.Tensor) -> list[tuple[int, int]]:
    offset = torch.cat([torch.arange(count) for count in degree.tolist()])
    found, edge = lists.find(torch.arange(len(degree)), degree, offset)
    return list(zip(found.tolist(), edge.tolist(), strict=True))


@given(edges_of)
def test_Adjacency_lists_are_those_of_a_loop(pairs: list[tuple[int, int]]) -> None:
    """Neighbours and edges of every node in the order of the edges."""
    edge_index = torch.tensor(pairs, dtype=torch.int32).view(-1, 2).t()
    lists = Adjacency.from_edges(KIND, edge_index, 7)
    assert (lists.source, lists.target) == KIND[::2]
    expected: list[list[tuple[int, int]]] = [[] for _ in range(7)]
    for number, (source, target) in enumerate(pairs):
        expected[source].append((target, number))
    degree = lists.degree(torch.arange(9))  # two past the graph
    assert degree.tolist() == [*map(len, expected), 0, 0]
    assert take_all(lists, degree) == [*chain(*expected)]


def test_Adjacency_long_lists_keep_the_order_of_edges() -> None:
    """Edges of long lists keep their order, which an unstable sort would lose."""
    row = torch.arange(200).flip(0) % 3
    lists = Adjacency.from_edges(KIND, torch.stack([row, torch.arange(200)]), 3)
    expected = [(edge, edge) for source in range(3) for edge in range(200) if row[edge] == source]
    assert take_all(lists, lists.degree(torch.arange(3))) == expected


@given(edges_of, st.lists(st.integers(0, 9), min_size=20, max_size=20))
def test_Adjacency_lists_are_in_order_of_position(
    pairs: list[tuple[int, int]], values: list[int]
) -> None:
    """Edges of one position keep their order."""
    edge_index = torch.tensor(pairs, dtype=torch.int32).view(-1, 2).t()
    position = torch.tensor(values[: len(pairs)], dtype=torch.int16)
    lists = Adjacency.from_edges(KIND, edge_index, 7, position)
    order = sorted(range(len(pairs)), key=lambda edge: (pairs[edge][0], values[edge]))
    expected = [(pairs[edge][1], edge) for edge in order]
    assert take_all(lists, lists.degree(torch.arange(7))) == expected


def test_Adjacency_positions_must_be_one_for_each_edge() -> None:
    """Fewer positions than edges are named."""
    edge_index, position = torch.tensor([[0, 0, 1], [1, 2, 0]]), torch.tensor([1, 0])
    with pytest.raises(GraphError, match=r"has 3 edges and positions \[2\]; give one number"):
        Adjacency.from_edges(KIND, edge_index, 2, position)


@given(edges_of, st.none() | masks, st.none() | times)
def test_Adjacency_by_training_sorts_training_time_source(
    pairs: list[tuple[int, int]], train: list[bool] | None, time: list[int] | None
) -> None:
    """Edges of one source and target keep their order; ``stop`` ends those of training."""
    edge_index = torch.tensor(pairs, dtype=torch.int32).view(-1, 2).t()
    mask = None if train is None else torch.tensor(train)
    values = None if time is None else torch.tensor(time)
    lists = Adjacency.by_training(KIND, edge_index, 7, mask, values)
    assert (lists.source, lists.target) == KIND[::-2]
    order = sorted(
        range(len(pairs)),
        key=lambda edge: (
            pairs[edge][1],
            train is not None and not train[pairs[edge][0]],
            0 if time is None else time[pairs[edge][0]],
            pairs[edge][0],
            edge,
        ),
    )
    degree = lists.degree(torch.arange(7))
    assert take_all(lists, degree) == [(pairs[edge][0], edge) for edge in order]
    assert lists.stop is not None
    expected = [
        sum(col == target and (train is None or train[row]) for row, col in pairs)
        for target in range(7)
    ]
    assert (lists.stop - lists.ptr[:-1]).tolist() == expected


@pytest.mark.parametrize("backwards", [False, True])
@given(
    edges_of,
    st.none() | masks,
    st.booleans(),
    times,
    st.none() | st.lists(st.integers(-1, 3), min_size=9, max_size=9),
)
def test_ReachableLists_find_candidates_equals_a_loop(
    backwards: bool,
    pairs: list[tuple[int, int]],
    mask: list[bool] | None,
    is_training: bool,
    time: list[int],
    limit: list[int] | None,
) -> None:
    """Of every node exactly the allowed neighbours, each edge at one offset."""
    edge_index = torch.tensor(pairs, dtype=torch.int32).view(-1, 2).t()
    reachable = None if mask is None else torch.tensor(mask)
    if backwards:
        train = reachable if is_training else torch.tensor(time) > 1
        lists = Adjacency.by_training(KIND, edge_index, 7, train, torch.tensor(time))
    else:
        is_training = False
        lists = Adjacency.from_edges(KIND, edge_index, 7)
    restricted = ReachableLists(
        lists, reachable, is_training and mask is not None, torch.tensor(time)
    )
    nodes = torch.arange(9)  # two past the graph
    latest = None if limit is None else torch.tensor(limit)
    candidates = restricted.find_candidates(nodes, latest)
    row = torch.repeat_interleave(nodes, candidates.degree)
    offset = torch.cat([torch.arange(count) for count in candidates.degree.tolist()])
    found, edge = candidates.take(row, offset)
    expected = []
    for number, pair in enumerate(pairs):
        source, target = reversed(pair) if backwards else pair
        is_early = limit is None or time[target] <= limit[source]
        if is_early and (mask is None or mask[target]):
            expected.append((source, target, number))
    assert sorted(zip(row.tolist(), found.tolist(), edge.tolist(), strict=True)) == sorted(expected)


@pytest.mark.parametrize("limit", [None, 9])
def test_ReachableLists_have_nothing_past_the_graph(limit: int | None) -> None:
    """Nodes that the graph lacks do not get the neighbours of its last node."""
    edge_index, train = torch.tensor([[0, 1, 2], [1, 1, 1]]), torch.tensor([True, True, False])
    time = None if limit is None else torch.tensor([3, 1, 2])
    lists = Adjacency.by_training(KIND, edge_index, 2, train, time)
    for mask in (train, None) if limit else (train,):
        restricted = ReachableLists(lists, mask, mask is not None, time)
        latest = None if limit is None else torch.full((3,), limit)
        candidates = restricted.find_candidates(torch.tensor([1, 2, 5]), latest)
        assert candidates.degree.tolist() == [3 if mask is None else 2, 0, 0]


def test_ReachableLists_sort_forward_lists_by_time() -> None:
    lists = Adjacency.from_edges(KIND, torch.tensor([[0, 0, 0], [0, 1, 2]]), 1)
    restricted = ReachableLists(lists, time=torch.tensor([3, 1, 2]))
    candidates = restricted.find_candidates(torch.tensor([0]), torch.tensor([9]))
    found, edge = candidates.take(torch.zeros(3, dtype=torch.int64), torch.arange(3))
    assert found.tolist() == edge.tolist() == [1, 2, 0]


@pytest.mark.parametrize("is_sorted", [False, True])
def test_Adjacency_sorted_edges_are_not_copied(is_sorted: bool) -> None:
    """The graph's own column is used if the sources are sorted."""
    sources = [0, 0, 2] if is_sorted else [1, 1, 0]
    edge_index = torch.tensor([sources, [1, 1, 0]], dtype=torch.int32)
    lists = Adjacency.from_edges(KIND, edge_index, 3)
    assert (lists.edge is None) == is_sorted
    assert (lists.node.data_ptr() == edge_index[1].data_ptr()) == is_sorted
    assert lists.node.dtype == torch.int32


def test_Adjacency_type_without_nodes_has_no_neighbours() -> None:
    """A node type without nodes gives empty lists."""
    lists = Adjacency.from_edges(KIND, torch.empty(2, 0, dtype=torch.int64), 0)
    assert lists.degree(torch.tensor([0, 3])).tolist() == [0, 0]
