"""Relational graph convolutions."""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch_geometric.nn import RGCNConv

from match_graph.nn.encoders.graph import GraphEncoder
from match_graph.typing import EdgeType


class RgcnEncoder(GraphEncoder):
    """The mean of the neighbours by each edge type, mapped by a sum of shared matrices, added.

    Source: Schlichtkrull et al. 2018, https://arxiv.org/abs/1703.06103, by PyG's RGCNConv with
    basis decomposition (equation 3).
    """

    paper: ClassVar[str] = "Schlichtkrull et al., ESWC 2018, https://arxiv.org/abs/1703.06103"

    class Config(GraphEncoder.Config):
        """Settings."""

        num_bases: int = Field(4, ge=1, description="matrices that the edge types share")

    def make_layer(self, config: Any, edge_types: list[EdgeType]) -> nn.Module:
        return RelationalLayer(config.channels, edge_types, config.num_bases)


class RelationalLayer(nn.Module):
    """RGCNConv, which takes one kind of nodes, over nodes of several types.

    Args:
        channels: Width of the states.
        edge_types: What messages go over.
        num_bases: Matrices that they share.
    """

    def __init__(self, channels: int, edge_types: list[EdgeType], num_bases: int) -> None:
        super().__init__()
        self.edge_types = edge_types
        self.conv = RGCNConv(channels, channels, len(edge_types), num_bases)

    def reset_parameters(self) -> None:
        """Draws the weights anew."""
        self.conv.reset_parameters()

    def forward(
        self, states: dict[str, Tensor], edges: dict[EdgeType, Tensor]
    ) -> dict[str, Tensor]:
        """New states [n, channels] of all nodes by type, of states and edges [2, E] by type."""
        sizes = [state.size(0) for state in states.values()]
        starts = dict(zip(states, [0, *torch.tensor(sizes).cumsum(0).tolist()], strict=False))
        kinds = [kind for kind in self.edge_types if kind in edges]
        moved, numbers = [], []
        for kind in kinds:
            row, col = edges[kind]
            moved.append(torch.stack([row + starts[kind[0]], col + starts[kind[2]]]))
            numbers.append(torch.full_like(row, self.edge_types.index(kind)))
        joined = torch.cat(list(states.values()))
        found = self.conv(joined, torch.cat(moved, dim=1), torch.cat(numbers))
        return dict(zip(states, found.split(sizes), strict=True))
