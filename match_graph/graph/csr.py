"""Ragged lists (CSR): offsets, selected rows, sparse products; a check for NaN."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from match_graph.errors import GraphError

#: Bisection steps for all places at once; a full search follows for those still undecided.
_BISECTIONS = 2


def make_ptr(lengths: Tensor) -> Tensor:
    """Offsets [B + 1], int64, of ragged lists with the given lengths [B]."""
    ptr = torch.zeros(lengths.numel() + 1, dtype=torch.int64, device=lengths.device)
    torch.cumsum(lengths, 0, out=ptr[1:])
    return ptr


def sorted_row_ptr(row: Tensor, num_rows: int) -> Tensor:
    """Offsets [num_rows + 1], int64, of a sorted row index [E]."""
    rows = torch.arange(num_rows + 1, dtype=row.dtype, device=row.device)
    return torch.searchsorted(row.contiguous(), rows)


def ragged_arange(start: Tensor, lengths: Tensor) -> Tensor:
    """start[0], start[0] + 1, ... (lengths[0] values), start[1], ...; [sum(lengths)], int64."""
    ptr = make_ptr(lengths)
    total = int(ptr[-1])
    shift = torch.repeat_interleave(start - ptr[:-1], lengths, output_size=total)
    return shift + torch.arange(total, device=start.device)


def select_rows(ptr: Tensor, index: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The lists of some rows, packed.

    Args:
        ptr: Offsets of all lists, [D + 1], int64.
        index: Packed values of all lists, [E].
        rows: Lists to select, [B], int64.

    Returns:
        Offsets [B + 1], int64, and values [N] of the type of ``index``.
    """
    start = ptr[rows]
    lengths = ptr[rows + 1] - start
    return make_ptr(lengths), index[ragged_arange(start, lengths)]


def check_rows(rows: Tensor, number: int, node_type: str) -> None:
    """Checks that node indices are integers in range: negative ones would index from the end.

    Args:
        rows: Node indices, [B], int64 or int32.
        number: Number of nodes of the type.
        node_type: Node type, for the message.

    Raises:
        GraphError: They are of another type or shape, or one is outside.
    """
    if rows.dtype not in (torch.int64, torch.int32) or rows.dim() != 1:
        raise GraphError(
            f"Nodes of '{node_type}' must be given by their indices, [B], int64, found "
            f"{rows.dtype} {list(rows.shape)}."
        )
    low, high = rows.aminmax() if rows.numel() else (0, -1)
    if low < 0 or high >= number:
        raise GraphError(
            f"Nodes of '{node_type}' must be in 0..{number - 1}, found {int(low)}..{int(high)}."
        )


def row_index(ptr: Tensor, total: int | None = None) -> Tensor:
    """The row of every packed value, [N], int64.

    Args:
        ptr: Offsets of the rows, [R + 1], int64.
        total: The last offset, N, if known; reading it from a GPU waits for all earlier work.
    """
    rows = torch.arange(ptr.numel() - 1, device=ptr.device)
    total = int(ptr[-1]) if total is None else total
    return torch.repeat_interleave(rows, ptr.diff(), output_size=total)


def open_gaps(ptr: Tensor, number: int, total: int) -> tuple[Tensor, Tensor]:
    """Offsets and places of packed values after inserting some before those of each row.

    Args:
        ptr: Offsets of the rows, [R + 1], int64.
        number: Number of values to insert before each row.
        total: Number N of packed values.

    Returns:
        Offsets of the longer rows, [R + 1], and the new place of every value, [N]; int64.
    """
    longer = ptr + number * torch.arange(len(ptr), device=ptr.device)
    place = torch.arange(total, device=ptr.device) + number * (1 + row_index(ptr, total))
    return longer, place


class RowFinder:
    """Rows of packed values by place, faster than a search over all offsets.

    A table holds the rows of evenly spaced places, so that a search covers only the few rows
    between two entries. It has two entries a row, of 4 bytes each (8 from 2^31 rows on).

    Args:
        ptr: Offsets of the rows, ascending from 0, [R + 1], int64.
    """

    def __init__(self, ptr: Tensor) -> None:
        self.ptr, total = ptr, int(ptr[-1])
        self.shift = max(0, math.ceil(math.log2(max(total, 1) / (2 * ptr.numel()))))
        place = torch.arange((total >> self.shift) + 2, device=ptr.device) << self.shift
        row = torch.searchsorted(ptr, place, right=True) - 1
        self.table = row if ptr.numel() > 2**31 else row.to(torch.int32)

    def find(self, place: Tensor) -> Tensor:
        """The row of each place [N], int64, below the last offset."""
        key = place >> self.shift
        low = self.table.index_select(0, key).to(torch.int64)
        high = self.table.index_select(0, key + 1).to(torch.int64)
        for _ in range(_BISECTIONS):
            middle = (low + high + 1) >> 1
            is_behind = self.ptr.index_select(0, middle) <= place
            low = torch.where(is_behind, middle, low)
            high = torch.where(is_behind, high, middle - 1)
        rest = (low < high).nonzero().view(-1)  # where many short rows are adjacent
        if rest.numel():
            low[rest] = torch.searchsorted(self.ptr, place[rest], right=True) - 1
        return low

    def to(self, device: torch.device) -> "RowFinder":
        """Copy on a device."""
        other = copy.copy(self)
        other.ptr, other.table = self.ptr.to(device), self.table.to(device)
        return other


@dataclass(frozen=True)
class SparseRows:
    """A sparse matrix [R, N] by rows, for products with a dense one.

    Args:
        offset: Offset of the first entry of each row, [R], int64.
        column: Column of each entry, [M], int64.
        value: Value of each entry, [M], floating point.
    """

    offset: Tensor
    column: Tensor
    value: Tensor

    @classmethod
    def from_entries(
        cls, row: Tensor, column: Tensor, value: Tensor, num_rows: int
    ) -> "SparseRows":
        """Matrix of entries in any order, each [M]; those of one place are summed."""
        order = torch.argsort(row, stable=True)
        offset = torch.searchsorted(row[order], torch.arange(num_rows, device=row.device))
        return cls(offset, column[order], value[order])

    def to(self, device: torch.device | str) -> "SparseRows":
        """Copy on a device."""
        return SparseRows(*(part.to(device) for part in (self.offset, self.column, self.value)))

    def multiply(self, dense: Tensor) -> Tensor:
        """Product with a dense matrix [N, C] -> [R, C], without gradient.

        By `embedding_bag`, which takes half of the time of `torch.sparse.mm` (measured with the
        Laplacian of 634 labels, 603 edges and 1,024 channels) and all threads.
        """
        return nn.functional.embedding_bag(
            self.column,
            dense.detach(),
            self.offset,
            mode="sum",
            per_sample_weights=self.value.to(dense.dtype),
        )


def check_not_nan(values: Tensor, name: str) -> None:
    """Refuses NaN, in one pass and without a temporary of the size of ``values``.

    Args:
        values: Values to check, any shape, floating point.
        name: Plural noun for the values in the error message.

    Raises:
        GraphError: A value is NaN.
    """
    if values.numel() and bool(values.amax().isnan()):  # the maximum passes NaN on
        raise GraphError(
            f"{name} must be numbers, found NaN in {int(values.isnan().sum())} of {values.numel()} "
            f"values; look for a training that diverged, or for damaged weights."
        )
