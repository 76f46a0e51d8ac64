"""GraphSAGE with weights of their own for each edge type."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import HeteroConv, SAGEConv

from match_graph.nn.encoders.graph import GraphEncoder, key_of_edge
from match_graph.nn.neighbors import Neighbors, join_means
from match_graph.typing import EdgeType


class HeteroSageEncoder(GraphEncoder):
    """The mean of the neighbours by each edge type, mapped, added to the node's own state, mapped.

    Source: Hamilton et al. 2017, https://arxiv.org/abs/1706.02216; the results are averaged over
    the edge types, where the paper knows one, and states are not scaled to unit length, but by
    LayerNorm as in every graph encoder here.
    """

    paper: ClassVar[str] = "Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216"
    takes_lists: ClassVar[bool] = True

    def make_layer(self, config: Any, edge_types: list[EdgeType]) -> nn.Module:
        return MeanLayer(config.channels, edge_types)


class MeanLayer(nn.Module):
    """PyG's HeteroConv of SAGEConvs, with its weights, in one product per node type.

    Args:
        channels: Width of the states.
        edge_types: Edge types that messages follow.
    """

    def __init__(self, channels: int, edge_types: list[EdgeType]) -> None:
        super().__init__()
        convs = {key_of_edge(edge_type): SAGEConv(channels, channels) for edge_type in edge_types}
        self.conv = HeteroConv(convs, aggr="mean")
        self.edge_types = edge_types

    def reset_parameters(self) -> None:
        """Reinitializes the weights."""
        self.conv.reset_parameters()

    def forward(
        self, states: dict[str, Tensor], lists: dict[EdgeType, Neighbors]
    ) -> dict[str, Tensor]:
        """New states [n, channels] of the targets of ``lists``, by type."""
        found = {}
        for name, into, joined in join_means(states, lists, self.edge_types):
            convs = [self.conv.convs[key_of_edge(edge_type)] for edge_type in into]
            own = torch.stack([conv.lin_r.weight for conv in convs]).sum(0)
            matrix = torch.cat([own, *(conv.lin_l.weight for conv in convs)], dim=1)
            bias = torch.stack([conv.lin_l.bias for conv in convs]).mean(0)
            found[name] = F.linear(joined, matrix / len(into), bias)
        return found
