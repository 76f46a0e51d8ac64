"""GraphSAGE with weights of their own for each edge type."""

import warnings
from typing import Any, ClassVar

from torch import nn
from torch_geometric.nn import HeteroConv, SAGEConv

from match_graph.nn.encoders.graph import GraphEncoder
from match_graph.typing import EdgeType


class HeteroSageEncoder(GraphEncoder):
    """The mean of the neighbours by each edge type, mapped, added to the node's own state, mapped.

    Source: Hamilton et al. 2017, https://arxiv.org/abs/1706.02216, by PyG's SAGEConv; HeteroConv
    averages over the edge types, where the paper knows one.
    """

    paper: ClassVar[str] = "Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216"

    def make_layer(self, config: Any, edge_types: list[EdgeType]) -> nn.Module:
        convs = {kind: SAGEConv(config.channels, config.channels) for kind in edge_types}
        with warnings.catch_warnings():  # metadata and words are not updated by the last layer
            warnings.filterwarnings("ignore", "There exist node types", UserWarning)
            return HeteroConv(convs, aggr="mean")
