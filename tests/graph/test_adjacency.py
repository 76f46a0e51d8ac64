"""Lists of neighbours in both directions against a loop over the edges."""

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from match_graph.graph.adjacency import Adjacency

KIND = ("document", "has", "author")
edges_of = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=20)


@given(edges_of, st.booleans(), st.none() | st.lists(st.booleans(), min_size=7, max_size=7))
def test_Adjacency_lists_are_those_of_a_loop(
    pairs: list[tuple[int, int]], backwards: bool, reachable: list[bool] | None
) -> None:
    """Neighbours and edges of every node in the order of the edges, unreachable ones left out."""
    edge_index = torch.tensor(pairs, dtype=torch.int32).view(-1, 2).t()
    mask = None if reachable is None else torch.tensor(reachable)
    lists = Adjacency.from_edges(KIND, edge_index, 7, backwards, mask)
    assert (lists.source, lists.target) == (KIND[::-2] if backwards else KIND[::2])
    expected: list[list[tuple[int, int]]] = [[] for _ in range(7)]
    for number, pair in enumerate(pairs):
        source, target = reversed(pair) if backwards else pair
        if reachable is None or reachable[target]:
            expected[source].append((target, number))
    nodes = torch.arange(9)  # two past the graph
    degree = lists.degree(nodes)
    assert degree.tolist() == [*map(len, expected), 0, 0]
    offset = torch.cat([torch.arange(count) for count in degree.tolist()])
    found, edge = lists.find(nodes, degree, offset)
    assert list(zip(found.tolist(), edge.tolist(), strict=True)) == [*chain(*expected)]


@pytest.mark.parametrize("backwards", [False, True])
def test_Adjacency_sorted_edges_are_not_copied(backwards: bool) -> None:
    """The graph's own column serves where the sources ascend."""
    edge_index = torch.tensor([[0, 0, 2], [1, 1, 0]], dtype=torch.int32)
    lists = Adjacency.from_edges(KIND, edge_index, 3, backwards)
    assert (lists.edge is None) == (not backwards)
    assert lists.node.dtype == torch.int32


def test_Adjacency_type_without_nodes_has_no_neighbours() -> None:
    """Nothing is found where nothing is."""
    lists = Adjacency.from_edges(KIND, torch.empty(2, 0, dtype=torch.int64), 0)
    assert lists.degree(torch.tensor([0, 3])).tolist() == [0, 0]
