"""Ragged lists against naive loops."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from match_graph.graph.csr import (
    RowFinder,
    make_ptr,
    open_gaps,
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
    """Every value gets the index of its row."""
    expected = [row for row, values in enumerate(lists) for _ in values]
    assert row_index(pack(lists)[0]).tolist() == expected


@given(ragged, st.integers(0, 3))
def test_open_gaps_makes_room_before_each_row(lists: list[list[int]], number: int) -> None:
    """Values at their places, among zeros, are the rows with so many zeros before them."""
    ptr, index = pack(lists)
    longer, place = open_gaps(ptr, number, len(index))
    opened = index.new_zeros(len(index) + number * len(lists))
    opened[place] = index
    assert unpack(longer, opened) == [[0] * number + values for values in lists]


@given(st.lists(st.sampled_from([0, 0, 0, 1, 2, 40]), min_size=1, max_size=60))
def test_RowFinder_finds_the_row_of_every_place(lengths: list[int]) -> None:
    """Also where long rows and runs of empty ones alternate."""
    ptr = make_ptr(torch.tensor(lengths))
    rows = row_index(ptr)
    assert torch.equal(RowFinder(ptr).find(torch.arange(len(rows))), rows)
