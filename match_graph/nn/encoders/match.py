"""The encoder of MATCH: a Transformer over [CLS] tokens, metadata and words."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from match_graph.config import StrictModel
from match_graph.graph import EgoBatch
from match_graph.nn.dropout import ByteDropout
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import Encoder, EncoderOutput
from match_graph.nn.transformer import TransformerStack, check_heads, prepend, sinusoids
from match_graph.typing import WORD


class MatchEncoder(Encoder):
    """[CLS] tokens, metadata and words attend to each other; the final [CLS] states are joined.

    Source: section 3.2 and equations 16 to 20 of MATCH, https://arxiv.org/abs/2102.07349.

    The paper is silent on the following, and this is what stands here: the position code has 28
    channels, so that the width is 128 with delta = 100; metadata are a set, so their code is zero;
    a learned vector of its type is added to every token, so that a venue can be told from an
    author and both from a word; the feed-forward layer is 4 times as wide, with ReLU; [CLS] tokens
    are learned at full width; dropout acts on the residual branches and not on attention weights,
    which costs most of the time on CPU. Dropout is 0.2 by default against the paper's 0.1, which
    overfits on corpora of a few thousand documents. So do its 3 layers on corpora of 20,000: by
    default there is one, in which the [CLS] tokens read all others (experiments/defaults).

    Args:
        embedding: Embeds tokens.
        config: Settings.
    """

    class Config(StrictModel):
        """Settings; the defaults are the paper's where it gives one, but for layers and dropout."""

        num_cls: int = Field(8, ge=1, description="[CLS] tokens; the paper's C")
        num_layers: int = Field(1, ge=1, description="the paper's L, which is 3 there")
        num_heads: int = Field(2, ge=1, description="the paper's k")
        position_channels: int = Field(28, ge=2)
        feed_forward: int = Field(4, ge=1, description="times the width")
        dropout: float = Field(0.2, ge=0, lt=1)

    paper: ClassVar[str] = "Zhang et al., WWW 2021, https://arxiv.org/abs/2102.07349"
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # section 4.1. The lambdas are not printed: these are the release's 1e-8, which stand beside
        # a loss averaged over documents and labels, for batches of 256 and 15,809 labels (MAG-CS)
        "paper": {
            "pretrain.channels": 100,
            "pretrain.margin": 0.3,
            "pretrain.window": 5,
            "model.channels": 100,
            "model.init": "spherical",
            "model.embedding_dropout": 0.1,
            "model.token_dropout": 0.0,
            "model.wide": False,
            "model.encoder_config": {
                "num_cls": 8,
                "num_layers": 3,
                "num_heads": 2,
                "dropout": 0.1,
            },
            "train.batch_size": 256,
            "train.optimizer": "adam",
            "train.learning_rate": 0.001,
            "train.weight_decay": 0.0,
            "train.warmup": 0.0,
            "train.average": 0.0,
            "train.calibrate": False,
            "train.lambda_parameter": 1.6e-4,
            "train.lambda_output": 0.04,
            "train.edge_weight": "none",
        },
    }
    needs: ClassVar[frozenset[str]] = frozenset({"tokens"})
    gives: ClassVar[Literal["document", "tokens"]] = "document"

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.num_cls = config.num_cls
        self.channels = embedding.channels + config.position_channels
        check_heads(self.channels, config.num_heads, "embedding plus position channels")
        self.out_channels = self.channels * config.num_cls
        self.word_field = embedding.space.field_index(WORD)
        self.cls = nn.Parameter(torch.empty(config.num_cls, self.channels))
        self.field = nn.Parameter(torch.empty(len(embedding.space.types), self.channels))
        self.dropout = ByteDropout(config.dropout)
        self.position_channels = config.position_channels
        self.layers = TransformerStack(
            config.num_layers,
            self.channels,
            config.num_heads,
            config.feed_forward * self.channels,
            config.dropout,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters anew."""
        nn.init.normal_(self.cls)
        nn.init.normal_(self.field, std=0.1)
        self.layers.reset_parameters()

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, num_cls * (delta + position_channels)]."""
        tokens, ptr = self.join(batch)  # [N + B num_cls, C]
        document = self.layers.forward_first(tokens, ptr, self.num_cls)
        return EncoderOutput(document, None, ptr)

    def join(self, batch: EgoBatch) -> tuple[Tensor, Tensor]:
        """The layer input H: packed [CLS] tokens, metadata, words, and its offsets [B + 1]."""
        embedded = self.embedding(batch.token_id, batch.field)  # [N, delta]
        is_word = (batch.field == self.word_field).unsqueeze(1).to(embedded.dtype)
        code = sinusoids(batch.position, self.position_channels).to(embedded.dtype)
        content = torch.cat([embedded, code * is_word], dim=1)  # [N, C]
        content = content + nn.functional.embedding(batch.field, self.field)
        cls = self.dropout(self.cls).expand(batch.num_documents, -1, -1)
        return prepend(cls, content, batch.ptr)
