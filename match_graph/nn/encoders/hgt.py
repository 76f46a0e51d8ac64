"""The Heterogeneous Graph Transformer."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import HGTConv
from torch_geometric.utils import softmax

from match_graph.errors import ConfigError
from match_graph.graph.csr import row_index
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import NumHeads
from match_graph.nn.encoders.graph import GraphEncoder, key_of, key_of_edge
from match_graph.nn.neighbors import Neighbors, mean_rows, take_rows
from match_graph.typing import EdgeType


class HgtEncoder(GraphEncoder):
    """Attention to the neighbours with keys, queries and values by node and edge type.

    Source: Hu et al. 2020, https://arxiv.org/abs/2003.01332, without its temporal encoding, which
    needs a time of every node. The residual, gated as in the authors' code, is followed by the
    GELU, residual and LayerNorm that every graph encoder has here.

    Raises:
        ConfigError: The heads do not share the channels evenly.
    """

    paper: ClassVar[str] = "Hu et al., WWW 2020, https://arxiv.org/abs/2003.01332"
    takes_lists: ClassVar[bool] = True

    class Config(GraphEncoder.Config):
        """Settings."""

        num_heads: NumHeads = 4

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        if config.channels % config.num_heads:
            raise ConfigError(
                f"channels must be a multiple of num_heads, found {config.channels} and "
                f"{config.num_heads}; change model.encoder_config."
            )
        super().__init__(embedding, config)

    def make_layer(self, config: Any, edge_types: list[EdgeType]) -> nn.Module:
        return AttentionLayer(config.channels, self.node_types, edge_types, config.num_heads)


class AttentionLayer(nn.Module):
    """The formula of PyG's HGTConv, whose weights it has, over lists of neighbours.

    The maps of an edge type are moved from the source nodes, of which there are many, to the
    targets: to the query before the product with the keys, to the sum of the values after it.

    Args:
        channels: Width of the states.
        node_types: All node types of the graph.
        edge_types: Edge types that messages follow.
        num_heads: Number of attention heads, which share the channels.
    """

    def __init__(
        self, channels: int, node_types: list[str], edge_types: list[EdgeType], num_heads: int
    ) -> None:
        super().__init__()
        self.edge_types, self.num_heads = edge_types, num_heads
        metadata = [*map(key_of, node_types)], [*map(key_of_edge, edge_types)]
        self.conv = HGTConv(channels, channels, metadata, num_heads)
        targets = {edge_type[2] for edge_type in edge_types}
        for name in set(node_types) - targets:  # not updated
            self.conv.out_lin.lins[key_of(name)].requires_grad_(False)
            self.conv.skip[key_of(name)].requires_grad_(False)

    def reset_parameters(self) -> None:
        """Reinitializes the weights."""
        self.conv.reset_parameters()

    def forward(
        self, states: dict[str, Tensor], lists: dict[EdgeType, Neighbors]
    ) -> dict[str, Tensor]:
        """New states [n, channels] of the targets of ``lists``, by type."""
        conv, maps = self.conv, self.conv.kqv_lin.lins
        keys, queries, values = {}, {}, {}
        for name in dict.fromkeys(end for edge_type in self.edge_types for end in edge_type[::2]):
            shape = (len(states[name]), 3, self.num_heads, states[name].size(1) // self.num_heads)
            mapped = maps[key_of(name)](states[name]).view(shape)
            keys[name], queries[name], values[name] = mapped.unbind(1)  # [n, H, C / H]
        found = {}
        for name in dict.fromkeys(edge_type[2] for edge_type in self.edge_types):
            into = {
                edge_type: lists[edge_type] for edge_type in self.edge_types if edge_type[2] == name
            }
            old = states[name][: next(iter(into.values())).num_targets]
            joined = self._attend(into, keys, queries[name][: len(old)], values)
            new = conv.out_lin.lins[key_of(name)](F.gelu(joined))
            gate = conv.skip[key_of(name)].sigmoid()
            found[name] = gate * new + (1 - gate) * old
        return found

    def _attend(
        self,
        into: dict[EdgeType, Neighbors],
        keys: dict[str, Tensor],
        query: Tensor,
        values: dict[str, Tensor],
    ) -> Tensor:
        """The sum of the values of all neighbours by their attention, [n, channels].

        Args:
            into: Neighbour lists of n nodes, by edge type.
            keys: Keys by node type, [num_nodes, H, C / H].
            query: Queries of the n nodes, [n, H, C / H].
            values: Values by node type, [num_nodes, H, C / H].
        """
        shape = (self.num_heads, len(self.edge_types), query.size(2), query.size(2))
        key_map, value_map = (
            rel.weight.view(shape).unbind(1) for rel in (self.conv.k_rel, self.conv.v_rel)
        )
        targets, scores = [], []
        for edge_type, neighbors in into.items():
            number, target = self.edge_types.index(edge_type), row_index(neighbors.ptr)
            asked = torch.einsum("nhe,hde->nhd", query, key_map[number])
            score = _take(asked, target) * _take(keys[edge_type[0]], neighbors.source)
            targets.append(target)
            scores.append(score.sum(2) * self.conv.p_rel["__".join(key_of_edge(edge_type))])
        score = torch.cat(scores) / query.size(2) ** 0.5
        weights = softmax(score, torch.cat(targets), num_nodes=len(query))  # [E, H]
        found = torch.zeros_like(query)
        for (edge_type, neighbors), weight in zip(
            into.items(), weights.split([len(target) for target in targets]), strict=True
        ):
            value = _take(values[edge_type[0]], neighbors.source) * weight.unsqueeze(2)
            degree = neighbors.ptr.diff().unsqueeze(1)
            place = torch.arange(len(value), device=value.device)
            total = mean_rows(value.flatten(1), place, neighbors.ptr) * degree
            relation = value_map[self.edge_types.index(edge_type)]
            found = found + torch.einsum("nhd,hde->nhe", total.view_as(query), relation)
        return found.flatten(1)


def _take(values: Tensor, index: Tensor) -> Tensor:
    """Rows of [n, H, D] by their numbers."""
    rows = values.reshape(len(values), values.shape[1:].numel())
    return take_rows(rows, index).view(len(index), *values.shape[1:])
