"""Neighbour lists of nodes, and means over them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from match_graph.graph.csr import make_ptr, row_index
from match_graph.typing import EdgeType


def mean_rows(values: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
    """Means of chosen rows by packed lists, zero for empty ones, [B, C].

    No [N, C] tensor is made, neither here nor for the gradient, which is the sum over the lists
    that hold a row, found by one sort.

    Args:
        values: Rows to average, [V, C], floating point.
        index: Packed rows of ``values``, [N], int64.
        ptr: Offsets of the lists, [B + 1], int64.
    """
    mean: Tensor = _MeanRows.apply(values, index, ptr)
    return mean


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """Rows by their numbers [N], [N, C]; its gradient is summed as that of `mean_rows`."""
    return mean_rows(values, index, torch.arange(index.numel() + 1, device=index.device))


class _MeanRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
        ctx.save_for_backward(index, ptr)
        ctx.num_values = values.size(0)
        return F.embedding_bag(index, values, ptr, mode="mean", include_last_offset=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        index, ptr = ctx.saved_tensors
        size = ptr.diff().clamp(min=1).unsqueeze(1)
        order = torch.argsort(index, stable=True)
        lists = make_ptr(torch.bincount(index, minlength=ctx.num_values))
        gradient = F.embedding_bag(
            row_index(ptr)[order],
            (gradients[0] / size).contiguous(),
            lists,
            mode="sum",
            include_last_offset=True,
        )
        return gradient, None, None


@dataclass(frozen=True)
class Neighbors:
    """The sources of the edges of one type, as a list for each target.

    Args:
        source: Packed source nodes, [E], int64.
        ptr: Offsets by target, [num_targets + 1], int64.
    """

    source: Tensor
    ptr: Tensor

    @classmethod
    def from_edges(cls, edge_index: Tensor, num_targets: int) -> "Neighbors":
        """The lists of edges [2, E], int64, in any order."""
        source, target = edge_index
        order = torch.argsort(target, stable=True)
        return cls(source[order], make_ptr(torch.bincount(target, minlength=num_targets)))

    def first(self, num_targets: int) -> "Neighbors":
        """The lists of the first targets."""
        ptr = self.ptr[: num_targets + 1]
        return Neighbors(self.source[: int(ptr[-1])], ptr)

    @property
    def num_targets(self) -> int:
        """Number of lists."""
        return self.ptr.numel() - 1

    @property
    def edge_index(self) -> Tensor:
        """Sources and targets, sorted by target, [2, E], int64."""
        return torch.stack([self.source, row_index(self.ptr)])

    @property
    def num_sources(self) -> int:
        """Least possible number of source nodes: the highest index plus one."""
        return int(self.source.max()) + 1 if self.source.numel() else 0

    def mean(self, states: Tensor) -> Tensor:
        """The mean of the neighbours of each target, zero without any, [num_targets, C]."""
        return mean_rows(states, self.source, self.ptr)


def join_means(
    states: dict[str, Tensor], lists: dict[EdgeType, Neighbors], edge_types: Sequence[EdgeType]
) -> Iterator[tuple[str, list[EdgeType], Tensor]]:
    """The states of the targets beside the means of their neighbours, by node type.

    Yields:
        Node type, the edge types that lead to it, and [num_targets, (1 + edge types) * C].
    """
    for name in dict.fromkeys(edge_type[2] for edge_type in edge_types):
        into = [edge_type for edge_type in edge_types if edge_type[2] == name]
        own = states[name][: lists[into[0]].num_targets]
        means = [lists[edge_type].mean(states[edge_type[0]]) for edge_type in into]
        yield name, into, torch.cat([own, *means], dim=1)
