"""The encoder of AttentionXML: a bidirectional LSTM over the words."""

from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from match_graph.graph import EgoBatch
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import EncoderOutput, NumLayers, Rate, TextEncoder, Width
from match_graph.nn.encoders.presets import read_presets
from match_graph.nn.layers import ByteDropout
from match_graph.nn.recurrent import run_recurrent


class AttentionXmlEncoder(TextEncoder):
    """A bidirectional LSTM gives every word a state; `LabelAttentionHead` attends to them.

    Source: section 3.4 of AttentionXML (You et al., NeurIPS 2019),
    https://arxiv.org/abs/1811.01727. The LSTM starts from zero states; the authors' release learns
    them.
    """

    class Config(TextEncoder.Config):
        """Settings; the defaults are the paper's for EUR-Lex."""

        hidden_channels: Width = Field(256, description="width of the state of each direction")
        num_layers: NumLayers = Field(1, description="number of LSTM layers")
        dropout: Rate = Field(0.5, description="dropout rate on the states")

    gives: ClassVar[Literal["document", "tokens"]] = "tokens"
    paper: ClassVar[str] = "You et al., NeurIPS 2019, https://arxiv.org/abs/1811.01727"
    presets = read_presets("attention_xml")

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.out_channels = 2 * config.hidden_channels
        self.lstm = nn.LSTM(
            embedding.channels, config.hidden_channels, config.num_layers, bidirectional=True
        )
        self.dropout = ByteDropout(config.dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the parameters, as torch does."""
        self.lstm.reset_parameters()

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Token states [N, 2 * hidden_channels], packed."""
        batch, tokens = self.embed(batch)
        states = run_recurrent(self.lstm, tokens, batch.ptr)
        return EncoderOutput(None, self.dropout(states), batch.ptr)
