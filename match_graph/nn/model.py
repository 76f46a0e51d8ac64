"""The model that wires embedding, encoder and head."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from match_graph.config import ModelConfig, StrictModel, parse_settings
from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch, Hierarchy, LabelGraph, NodeFeatures, TokenSpace
from match_graph.nn.contract import (
    check_encoder_class,
    check_head_class,
    check_types,
    make_encoder,
)
from match_graph.nn.embedding import FeatureInput, TokenEmbedding
from match_graph.nn.encoders import ENCODERS, Encoder, EncoderOutput
from match_graph.nn.heads import HEADS, Head
from match_graph.nn.tables import TokenTable
from match_graph.own_code import find_class
from match_graph.typing import LABEL

#: Width of documents' features beside the state: 256 scored higher than 100 (experiments/features).
_JOINED = 256


class MatchModel(nn.Module):
    """Batches of ego-networks -> label scores.

    Features of documents reach the head twice: through the encoder, which reads them as a token or
    as a start state, and mapped once more beside the encoder's state. The token alone scores lower,
    and at the length of other tokens it draws attention away from metadata where these decide,
    hence its scale. Beside the state they are hidden for a share of the training documents, as in
    ModDrop (Neverova et al. 2015, https://arxiv.org/abs/1501.00102), so that the encoder goes on
    learning from words and metadata where features alone would do. Validation results of each are
    in experiments/features.

    Args:
        space: The token space.
        num_labels: Number of labels L.
        config: Names of encoder and head, with their settings.
        hierarchy: Label hierarchy, for the head; None for the nodes of a level above the labels.
        features: Features of documents and other nodes.
        sharded: Whether processes share the tables of tokens, where there are several.

    Raises:
        ConfigError: A name or setting is unknown, the head takes what the encoder does not give,
            or a head that needs it has no hierarchy.
        GraphError: The hierarchy is of another number of labels.
    """

    def __init__(
        self,
        space: TokenSpace,
        num_labels: int,
        config: ModelConfig,
        hierarchy: Hierarchy | None = None,
        features: NodeFeatures | None = None,
        sharded: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(
            space,
            config.channels,
            config.embedding_dropout,
            config.token_dropout,
            config.scale_embedding,
            features,
            config.feature_dropout,
            config.feature_scale,
            sharded,
        )
        encoder_cls = find_class(config.encoder, ENCODERS, Encoder, "encoder")
        check_encoder_class(encoder_cls, config.encoder)
        head, head_cls = config.head or choose_head(encoder_cls), find_head(config)
        if head_cls.takes != encoder_cls.gives:
            fitting = sorted(name for name, cls in HEADS.items() if cls.takes == encoder_cls.gives)
            raise ConfigError(
                f"The head must take what the encoder gives, but '{head}' takes "
                f"{head_cls.takes} and '{config.encoder}' gives {encoder_cls.gives}; "
                f"choose model.head from {fitting}."
            )
        settings = parse_settings(
            encoder_cls.Config, config.encoder_config, "model.encoder_config must be valid"
        )
        self.encoder = make_encoder(encoder_cls, self.embedding, settings, config.encoder)
        check_types(self.encoder, "encoder", config.encoder)
        label_graph = None
        if hierarchy is not None:
            x = None if features is None else features.rows.get(LABEL)
            label_graph = LabelGraph(hierarchy, None if x is None else x[:num_labels])
        self.joined: FeatureInput | None = None
        width = self.encoder.out_channels
        if features is not None and features.width and head_cls.takes == "document":
            width += _JOINED
            self.joined = FeatureInput(
                features.width, _JOINED, scale=1.0, dropout=config.feature_dropout
            )
        self.head = head_cls(width, num_labels, head_settings(head_cls, config), label_graph)
        check_types(self.head, "head", head)

    def forward(self, batch: EgoBatch) -> Tensor:
        """Label scores before the sigmoid, [B, L]."""
        logits: Tensor = self.head(self.encode(batch))
        return logits

    def encode(self, batch: EgoBatch) -> EncoderOutput:
        """The states of a batch as the head takes them, with features of documents."""
        output: EncoderOutput = self.encoder(self.embedding.prepare(batch))
        if self.joined is None:
            return output
        assert output.document is not None
        assert batch.x is not None
        vectors = self.joined(batch.x).to(output.document.dtype)
        if self.training and self.config.feature_hidden:
            chance = torch.rand(len(vectors), 1, device=vectors.device)
            vectors = vectors * (chance >= self.config.feature_hidden)
        return replace(output, document=torch.cat([output.document, vectors], dim=1))

    def set_moments(self, x: Tensor | None, documents: Tensor) -> None:
        """Standardizes features by nodes of training; arguments as `TokenEmbedding.set_moments`."""
        self.embedding.set_moments(x, documents)
        if self.joined is not None and x is not None:
            self.joined.set_moments(x, documents)

    @property
    def sharded_tables(self) -> dict[str, TokenTable]:
        """Tables that processes share, by name, those of other levels too."""
        tables = {name: part for name, part in self.named_modules() if isinstance(part, TokenTable)}
        return {name: table for name, table in tables.items() if table.shard is not None}

    def reset_parameters(self) -> None:
        """Reinitializes every parameter."""
        self.embedding.reset_parameters()
        self.encoder.reset_parameters()
        self.head.reset_parameters()
        if self.joined is not None:
            self.joined.reset_parameters()


def choose_head(encoder_cls: type[Encoder]) -> str:
    """The name of the head for what an encoder gives, where the configuration names none."""
    return {"document": "linear", "tokens": "label_attention"}[encoder_cls.gives]


def find_head(config: ModelConfig) -> type[Head]:
    """The class of the head that a configuration names, or that fits its encoder.

    Raises:
        ConfigError: There is no such head or encoder, or the head does not keep its contract.
    """
    encoder_cls = find_class(config.encoder, ENCODERS, Encoder, "encoder")
    name = config.head or choose_head(encoder_cls)
    head_cls = find_class(name, HEADS, Head, "head")
    check_head_class(head_cls, name)
    return head_cls


def head_settings(head_cls: type[Head], config: ModelConfig) -> StrictModel:
    """The head's settings, checked.

    Raises:
        ConfigError: One is unknown or impossible.
    """
    return parse_settings(head_cls.Config, config.head_config, "model.head_config must be valid")
