"""A Transformer over the words; a document's state is the mean of its tokens' states."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field
from torch_geometric.utils import segment

from match_graph.config import MAX_CHANNELS
from match_graph.graph import EgoBatch
from match_graph.nn.attention import unreached
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import EncoderOutput
from match_graph.nn.encoders.presets import COMPARED, NEURAL_CLASSIFIER
from match_graph.nn.encoders.text import TextEncoder
from match_graph.nn.transformer import TransformerStack, add_positions, check_heads


class TransformerEncoder(TextEncoder):
    """The encoder of Vaswani et al. 2017, averaged over the tokens of each document.

    Source: section 3 of https://arxiv.org/abs/1706.03762; the mean as compared in MATCH, after
    NeuralClassifier. Sinusoidal position codes are added to the words, none to metadata. Dropout
    acts on the residual branches and on embeddings (``model.embedding_dropout``), not on attention
    weights. A document without tokens has the state zero.

    Args:
        embedding: Embedding layer of the token space.
        config: Settings of the encoder.
    """

    class Config(TextEncoder.Config):
        """Settings; the defaults are those of the encoder of MATCH, for comparison."""

        num_layers: int = Field(3, ge=1, le=256, description="number of Transformer layers")
        num_heads: int = Field(2, ge=1, le=1024, description="number of attention heads")
        hidden_channels: int = Field(
            400,
            ge=1,
            le=MAX_CHANNELS,
            description="width of the feed-forward network's hidden layer",
        )
        dropout: float = Field(0.2, ge=0, lt=1, description="dropout rate on residual branches")

    paper: ClassVar[str] = "Vaswani et al., NeurIPS 2017, https://arxiv.org/abs/1706.03762"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # NeuralClassifier's, but heads of 25 channels, where it has 32, and no dropout on logits
        "paper": {
            **NEURAL_CLASSIFIER,
            "model.encoder_config": {
                "metadata": False,
                "num_layers": 1,
                "num_heads": 4,
                "hidden_channels": 128,
                "dropout": 0.1,
            },
        },
        # the base model of Vaswani et al.; the peak of their learning rates after 4,000 of 100,000
        # steps, and a fall to 0 in place of their inverse root
        "own": {
            **COMPARED,
            "pretrain.channels": 512,
            "model.channels": 512,
            "model.scale_embedding": True,
            "model.embedding_dropout": 0.1,
            "model.encoder_config": {
                "metadata": False,
                "num_layers": 6,
                "num_heads": 8,
                "hidden_channels": 2048,
                "dropout": 0.1,
            },
            "train.learning_rate": 0.0007,
            "train.warmup": 0.04,
            "train.schedule": "linear",
            "train.average": 0.0,
            "train.average_after": 0,
        },
    }

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
        """Draws the parameters anew."""
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
