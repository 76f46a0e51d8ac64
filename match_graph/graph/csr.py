"""Ragged lists behind a `ptr`: rows selected, neighbour lists, sparse matrices; NaN refused."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from match_graph.errors import GraphError
from match_graph.typing import EdgeType


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
        index: Packed values of all lists, [E].
        rows: Lists to select, [B], int64.

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
    """Refuses NaN, in one pass without anything of the size of ``values``.

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


@dataclass(frozen=True)
class Adjacency:
    """The neighbours of every node by one edge type, followed forwards or backwards.

    Args:
        edge_type: Edge type as it stands in the graph.
        backwards: Whether the edge type is followed from the second row of ``edge_index`` to the
            first.
        ptr: Offsets per source node, [num_nodes + 1], int64.
        node: Packed neighbours, [E], int32 or int64.
        edge: Index into ``edge_index`` of each neighbour's edge, [E], dtype of ``node``; None if
            the packed order is that of ``edge_index``.
    """

    edge_type: EdgeType
    backwards: bool
    ptr: Tensor
    node: Tensor
    edge: Tensor | None

    @classmethod
    def from_edges(
        cls,
        edge_type: EdgeType,
        edge_index: Tensor,
        num_sources: int,
        backwards: bool = False,
        reachable: Tensor | None = None,
    ) -> "Adjacency":
        """Neighbour lists of an edge type.

        Args:
            edge_type: Edge type as it stands in the graph.
            edge_index: Edges in any order, [2, E].
            num_sources: Number of nodes that have lists.
            backwards: Whether to follow edges from the second row to the first.
            reachable: Mask of targets that may stand in the lists, [num_targets], bool; None for
                all.
        """
        row, col = edge_index.flip(0) if backwards else edge_index
        edge = None
        if reachable is not None:
            edge = reachable[col].nonzero().view(-1)
            row, col = row[edge], col[edge]
        if row.numel() and bool((row[1:] < row[:-1]).any()):
            order = torch.argsort(row, stable=True)
            row, col = row[order], col[order]
            edge = order if edge is None else edge[order]
        if edge is not None and edge_index.size(1) < 2**31:
            edge = edge.to(torch.int32)
        return cls(edge_type, backwards, sorted_row_ptr(row, num_sources), col, edge)

    @property
    def source(self) -> str:
        """Type of the nodes that have neighbours here."""
        return self.edge_type[2] if self.backwards else self.edge_type[0]

    @property
    def target(self) -> str:
        """Type of the neighbours."""
        return self.edge_type[0] if self.backwards else self.edge_type[2]

    def degree(self, node: Tensor) -> Tensor:
        """How many neighbours nodes have, [R], int64; nodes past the graph have none."""
        known = node < self.ptr.numel() - 1
        node = node.clamp(max=max(self.ptr.numel() - 2, 0))
        if self.ptr.numel() == 1:
            return torch.zeros_like(node)
        return (self.ptr[node + 1] - self.ptr[node]) * known

    def find(self, node: Tensor, count: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
        """Chosen neighbours and the edges that lead to them, [sum(count)], int64 each.

        Args:
            node: Source nodes, [R], int64.
            count: Number of neighbours chosen for each node, [R], int64.
            offset: Chosen positions in the nodes' neighbour lists, packed, [sum(count)], int64.
        """
        start = self.ptr[node.clamp(max=self.ptr.numel() - 1)]
        place = torch.repeat_interleave(start, count, output_size=offset.numel()) + offset
        edge = place if self.edge is None else self.edge[place].to(torch.int64)
        return self.node[place].to(torch.int64), edge
