"""The Heterogeneous Graph Transformer."""

from typing import Any, ClassVar

from pydantic import Field
from torch import nn
from torch_geometric.nn import HGTConv

from match_graph.errors import ConfigError
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.graph import GraphEncoder
from match_graph.typing import EdgeType


class HgtEncoder(GraphEncoder):
    """Attention to the neighbours with keys, queries and values by node and edge type.

    Source: Hu et al. 2020, https://arxiv.org/abs/2003.01332, by PyG's HGTConv. Neither knows
    temporal encoding here: documents have no time.

    Args:
        embedding: Embeds tokens.
        config: Settings.

    Raises:
        ConfigError: The heads do not share the channels evenly.
    """

    paper: ClassVar[str] = "Hu et al., WWW 2020, https://arxiv.org/abs/2003.01332"

    class Config(GraphEncoder.Config):
        """Settings."""

        num_heads: int = Field(4, ge=1)

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        if config.channels % config.num_heads:
            raise ConfigError(
                f"channels must be a multiple of num_heads, found {config.channels} and "
                f"{config.num_heads}; change model.encoder_config."
            )
        super().__init__(embedding, config)

    def make_layer(self, config: Any, edge_types: list[EdgeType]) -> nn.Module:
        metadata = (self.node_types, edge_types)
        conv = HGTConv(config.channels, config.channels, metadata, config.num_heads)
        for name in set(self.node_types) - {kind[2] for kind in edge_types}:
            conv.out_lin.lins[name].requires_grad_(False)  # of states that the layer does not give
            conv.skip[name].requires_grad_(False)
        return conv
