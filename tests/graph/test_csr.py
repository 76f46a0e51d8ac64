"""Ragged lists and neighbour lists against naive loops."""

import itertools
from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from match_graph.graph.csr import (
    Adjacency,
    make_ptr,
    ragged_arange,
    row_index,
    select_rows,
    sorted_row_ptr,
)

ragged = st.lists(st.lists(st.integers(0, 99), max_size=4), max_size=7)


def pack(lists: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Offsets and values by a loop."""
    ptr, index = [0], []
    for values in lists:
        index += values
        ptr.append(len(index))
    return torch.tensor(ptr), torch.tensor(index, dtype=torch.int32)


def unpack(ptr: Tensor, index: Tensor) -> list[list[int]]:
    values = index.tolist()
    return [values[start:stop] for start, stop in itertools.pairwise(ptr.tolist())]


@given(ragged)
def test_make_ptr_sums_lengths(lists: list[list[int]]) -> None:
    """Offsets are the running sum, int64, also of nothing."""
    ptr = make_ptr(torch.tensor([len(values) for values in lists], dtype=torch.int64))
    assert ptr.dtype == torch.int64
    assert ptr.tolist() == pack(lists)[0].tolist()


@given(st.lists(st.integers(0, 6), max_size=12).map(sorted), st.sampled_from([torch.int32, None]))
def test_sorted_row_ptr_counts_rows(rows: list[int], dtype: torch.dtype | None) -> None:
    """Row r of a sorted index lies at ptr[r]:ptr[r + 1]; rows may be empty."""
    ptr = sorted_row_ptr(torch.tensor(rows, dtype=dtype or torch.int64), 7)
    assert ptr.dtype == torch.int64
    counts = [rows.count(row) for row in range(7)]
    assert ptr.tolist() == [0, *itertools.accumulate(counts)]


def test_sorted_row_ptr_takes_a_row_of_an_edge_index() -> None:
    """A strided view gives no warning and the same result."""
    edge_index = torch.tensor([[0, 9], [0, 9], [2, 9]]).t()
    assert sorted_row_ptr(edge_index[0], 3).tolist() == [0, 2, 2, 3]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), max_size=8))
def test_ragged_arange_equals_ranges(pairs: list[tuple[int, int]]) -> None:
    """Consecutive ranges, also empty ones."""
    start = torch.tensor([first for first, _ in pairs], dtype=torch.int64)
    lengths = torch.tensor([length for _, length in pairs], dtype=torch.int64)
    expected = [value for first, length in pairs for value in range(first, first + length)]
    assert ragged_arange(start, lengths).tolist() == expected


@given(st.data(), ragged.filter(bool))
def test_select_rows_equals_indexing(data: st.DataObject, lists: list[list[int]]) -> None:
    """Rows in any order, also repeated and none."""
    rows = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=8))
    ptr, index = select_rows(*pack(lists), torch.tensor(rows, dtype=torch.int64))
    assert index.dtype == torch.int32
    assert unpack(ptr, index) == [lists[row] for row in rows]


@given(ragged)
def test_row_index_repeats_rows(lists: list[list[int]]) -> None:
    """Every value is told its row."""
    expected = [row for row, values in enumerate(lists) for _ in values]
    assert row_index(pack(lists)[0]).tolist() == expected


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
