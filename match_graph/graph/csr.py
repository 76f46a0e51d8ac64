"""Ragged lists packed behind a `ptr`: selection of rows without a Python loop."""

import torch
from torch import Tensor


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
    """The lists of some rows, packed again.

    Args:
        ptr: Offsets of all lists, [D + 1], int64.
        index: Their packed values, [E].
        rows: Which lists, [B], int64.

    Returns:
        Offsets [B + 1], int64, and values [N] of the type of ``index``.
    """
    start = ptr[rows]
    lengths = ptr[rows + 1] - start
    return make_ptr(lengths), index[ragged_arange(start, lengths)]


def row_index(ptr: Tensor) -> Tensor:
    """The row of every packed value, [N], int64."""
    rows = torch.arange(ptr.numel() - 1, device=ptr.device)
    return torch.repeat_interleave(rows, ptr.diff(), output_size=int(ptr[-1]))
