"""A Transformer over the words; a document's state is the mean of its tokens' states."""

from typing import ClassVar

from pydantic import Field
from torch_geometric.utils import segment

from match_graph.graph import EgoBatch
from match_graph.nn.attention import unreached
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import (
    EncoderOutput,
    NumHeads,
    NumLayers,
    Rate,
    TextEncoder,
    Width,
)
from match_graph.nn.encoders.presets import read_presets
from match_graph.nn.layers import TransformerStack, add_positions, check_heads


class TransformerEncoder(TextEncoder):
    """The encoder of Vaswani et al. 2017, averaged over the tokens of each document.

    Source: section 3 of https://arxiv.org/abs/1706.03762; the mean as compared in MATCH, after
    NeuralClassifier, which divides by the padded length, where this is the true one. Sinusoidal
    position codes are added to the words, none to metadata. Dropout acts on the residual branches
    and on embeddings (``model.embedding_dropout``), not on attention weights. A document without
    tokens has the state zero.
    """

    class Config(TextEncoder.Config):
        """Settings; 3 layers and 2 heads as the paper's MATCH, whose default here is one layer."""

        num_layers: NumLayers = Field(3, description="number of Transformer layers")
        num_heads: NumHeads = 2
        hidden_channels: Width = Field(
            400, description="width of the feed-forward network's hidden layer"
        )
        dropout: Rate = Field(0.2, description="dropout rate on residual branches")

    paper: ClassVar[str] = "Vaswani et al., NeurIPS 2017, https://arxiv.org/abs/1706.03762"
    presets = read_presets("transformer")

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.channels = self.out_channels = embedding.channels
        check_heads(self.channels, config.num_heads, "model.channels")
        self.layers = TransformerStack(
            config.num_layers,
            self.channels,
            config.num_heads,
            config.hidden_channels,
            config.dropout,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the parameters."""
        self.layers.reset_parameters()

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, delta]."""
        batch, tokens = self.embed(batch)
        tokens = add_positions(tokens, batch.position, batch.field == self.word_field)
        if tokens.size(0):
            tokens = self.layers(tokens, batch.ptr)
        else:
            tokens = tokens + unreached(*self.layers.parameters())
        return EncoderOutput(segment(tokens, batch.ptr, "mean"), None, batch.ptr)
