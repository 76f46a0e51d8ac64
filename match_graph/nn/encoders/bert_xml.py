"""BertXML: a Transformer over several [CLS] tokens and the words, from scratch."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from match_graph.graph import EgoBatch
from match_graph.nn.attention import reset_layers
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import (
    EncoderOutput,
    NumHeads,
    NumLayers,
    NumTokens,
    Rate,
    TextEncoder,
    Width,
)
from match_graph.nn.encoders.presets import read_presets
from match_graph.nn.layers import ByteDropout, TransformerStack, check_heads, prepend


class BertXmlEncoder(TextEncoder):
    """[CLS] tokens and words attend to each other; the final [CLS] states pass a pooling layer.

    Source: BertXML as in CorNet (Xun et al., KDD 2020), https://doi.org/10.1145/3394486.3403151,
    which MATCH compares itself to; BERT-XML of Zhang et al. 2020
    (https://aclanthology.org/2020.clinicalnlp-1.3) is another network of that name, with one
    attention per label. Positions are learned, ELU stands before and after the pooling layer.
    LayerNorm is real here, while the release's does nothing. Dropout is not on attention weights,
    and draws one mask for the [CLS] tokens of a batch. With ``metadata``, metadata tokens have no
    position. Nothing is pre-trained but the words' vectors.
    """

    class Config(TextEncoder.Config):
        """Settings; the defaults are CorNet's."""

        num_cls: NumTokens = Field(5, description="number of [CLS] tokens")
        num_layers: NumLayers = Field(3, description="number of Transformer layers")
        num_heads: NumHeads = 2
        hidden_channels: Width = Field(
            600, description="width of the feed-forward network's hidden layer"
        )
        max_positions: int = Field(
            500,
            ge=1,
            le=10**6,
            description="number of positions; words further on share the last one",
        )
        dropout: Rate = Field(0.1, description="dropout rate on residual branches")

    paper: ClassVar[str] = "Xun et al., KDD 2020, https://doi.org/10.1145/3394486.3403151"
    presets = read_presets("bert_xml")

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        channels, self.num_cls = embedding.channels, config.num_cls
        check_heads(channels, config.num_heads, "model.channels")
        self.out_channels = channels * config.num_cls
        self.cls = nn.Parameter(torch.empty(config.num_cls, channels))
        self.position = nn.Parameter(torch.empty(config.max_positions, channels))
        self.layers = TransformerStack(
            config.num_layers, channels, config.num_heads, config.hidden_channels, config.dropout
        )
        self.pooler = nn.Linear(self.out_channels, self.out_channels)
        self.dropout = ByteDropout(config.dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the parameters."""
        nn.init.normal_(self.cls, std=self.embedding.scale / self.embedding.channels**0.5)
        nn.init.normal_(self.position, std=0.1)
        self.layers.reset_parameters()
        reset_layers(self.pooler)

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, num_cls * delta]."""
        batch, tokens = self.embed(batch)
        place = batch.position.clamp(max=self.position.size(0) - 1)
        is_word = (batch.field == self.word_field).unsqueeze(1)
        code = nn.functional.embedding(place, self.position) * is_word
        cls = self.dropout(self.cls).expand(batch.num_documents, -1, -1)
        joined, ptr = prepend(cls, tokens + code.to(tokens.dtype), batch.ptr)
        states = nn.functional.elu(self.layers.forward_first(joined, ptr, self.num_cls))
        document = nn.functional.elu(self.pooler(states))
        return EncoderOutput(document, None, ptr)
