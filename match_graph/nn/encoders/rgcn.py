"""Relational graph convolutions."""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch_geometric.nn import RGCNConv

from match_graph.nn.encoders.base import NumTokens
from match_graph.nn.encoders.graph import GraphEncoder
from match_graph.nn.neighbors import Neighbors, join_means
from match_graph.typing import EdgeType


class RgcnEncoder(GraphEncoder):
    """The mean of the neighbours by each edge type, mapped by a sum of shared matrices, added.

    Source: Schlichtkrull et al. 2018, https://arxiv.org/abs/1703.06103, with basis
    decomposition (equation 3).
    """

    paper: ClassVar[str] = "Schlichtkrull et al., ESWC 2018, https://arxiv.org/abs/1703.06103"
    takes_lists: ClassVar[bool] = True

    class Config(GraphEncoder.Config):
        """Settings."""

        num_bases: NumTokens = Field(4, description="number of matrices that the edge types share")

    def make_layer(self, config: Any, edge_types: list[EdgeType]) -> nn.Module:
        return RelationalLayer(config.channels, edge_types, config.num_bases)


class RelationalLayer(nn.Module):
    """The formula of PyG's RGCNConv, whose weights it has, over nodes of several types.

    Args:
        channels: Width of the states.
        edge_types: Edge types that messages follow.
        num_bases: Number of matrices that the edge types share.
    """

    def __init__(self, channels: int, edge_types: list[EdgeType], num_bases: int) -> None:
        super().__init__()
        self.edge_types = edge_types
        self.conv = RGCNConv(channels, channels, len(edge_types), num_bases)

    def reset_parameters(self) -> None:
        """Reinitializes the weights."""
        self.conv.reset_parameters()

    def forward(
        self, states: dict[str, Tensor], lists: dict[EdgeType, Neighbors]
    ) -> dict[str, Tensor]:
        """New states [n, channels] of the targets of ``lists``, by type.

        Means are mapped by all matrices of a node type at once.
        """
        conv = self.conv
        weight = conv.comp @ conv.weight.flatten(1)  # [num_edge_types, C * C]
        of_type = dict(zip(self.edge_types, weight.view(-1, *conv.root.shape), strict=True))
        found = {}
        for name, into, joined in join_means(states, lists, self.edge_types):
            matrix = torch.cat([conv.root, *(of_type[edge_type] for edge_type in into)])
            found[name] = joined @ matrix + conv.bias
        return found
