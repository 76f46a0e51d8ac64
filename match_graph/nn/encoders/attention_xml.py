"""The encoder of AttentionXML: a bidirectional LSTM over the words."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field
from torch import nn

from match_graph.config import MAX_CHANNELS
from match_graph.graph import EgoBatch
from match_graph.nn.dropout import ByteDropout
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import EncoderOutput
from match_graph.nn.encoders.presets import COMPARED
from match_graph.nn.encoders.text import TextEncoder
from match_graph.nn.recurrent import run_recurrent

_FLAT = {"flat_labels": 499_999, "cluster_size": 64, "beam": 15}


class AttentionXmlEncoder(TextEncoder):
    """A bidirectional LSTM gives every word a state; `LabelAttentionHead` attends to them.

    Source: section 3.2 of AttentionXML (You et al., NeurIPS 2019),
    https://arxiv.org/abs/1811.01727. The LSTM starts from zero states; the authors' release learns
    them.

    Args:
        embedding: Embedding layer of the token space.
        config: Settings of the encoder.
    """

    class Config(TextEncoder.Config):
        """Settings; the defaults are the paper's for EUR-Lex."""

        hidden_channels: int = Field(
            256, ge=1, le=MAX_CHANNELS, description="width of the state of each direction"
        )
        num_layers: int = Field(1, ge=1, le=256, description="number of LSTM layers")
        dropout: float = Field(0.5, ge=0, lt=1, description="dropout rate on the states")

    gives: ClassVar[Literal["document", "tokens"]] = "tokens"
    paper: ClassVar[str] = "You et al., NeurIPS 2019, https://arxiv.org/abs/1811.01727"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # CorNet's, which has no label tree
        "paper": {
            **COMPARED,
            "model.embedding_dropout": 0.2,
            "model.encoder_config": {
                "metadata": False,
                "hidden_channels": 200,
                "num_layers": 1,
                "dropout": 0.5,
            },
            "model.head_config": {"hidden_channels": [100], **_FLAT},
        },
        # its authors' for EUR-Lex (https://github.com/yourh/AttentionXML), but that words learn;
        # they train a label tree from 500,000 labels on
        "own": {
            **COMPARED,
            "pretrain.channels": 300,
            "model.channels": 300,
            "model.embedding_dropout": 0.2,
            "model.encoder_config": {
                "metadata": False,
                "hidden_channels": 256,
                "num_layers": 1,
                "dropout": 0.5,
            },
            "model.head_config": {"hidden_channels": [256], **_FLAT},
            "train.batch_size": 40,
            "train.epochs": 30,
            "train.average_after": 10,
            "train.patience": 30,
        },
    }

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.out_channels = 2 * config.hidden_channels
        self.lstm = nn.LSTM(
            embedding.channels, config.hidden_channels, config.num_layers, bidirectional=True
        )
        self.dropout = ByteDropout(config.dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters anew, as torch does."""
        self.lstm.reset_parameters()

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Token states [N, 2 * hidden_channels], packed."""
        batch, tokens = self.embed(batch)
        states = run_recurrent(self.lstm, tokens, batch.ptr)
        return EncoderOutput(None, self.dropout(states), batch.ptr)
