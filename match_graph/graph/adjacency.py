"""One edge type in one direction, as lists of neighbours."""

from dataclasses import dataclass

import torch
from torch import Tensor

from match_graph.graph.csr import sorted_row_ptr
from match_graph.typing import EdgeType


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
