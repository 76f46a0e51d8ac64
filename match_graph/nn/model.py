"""The model that wires embedding, encoder and head."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from match_graph.config import ModelConfig, StrictModel, parse_settings
from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch, Hierarchy, TokenSpace
from match_graph.nn.coherent import CoherentOutput
from match_graph.nn.contract import check_encoder_class, check_width
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders import ENCODERS, Encoder
from match_graph.nn.heads import HEADS, Head
from match_graph.nn.wide import WideTerm
from match_graph.typing import WORD

T = TypeVar("T")


class MatchModel(nn.Module):
    """Batches of ego-networks -> label scores.

    Args:
        space: The token space.
        num_labels: Number of labels L.
        config: Names of encoder and head, with their settings.
        hierarchy: Label hierarchy, for ``config.coherent``.

    Raises:
        ConfigError: A name or setting is unknown, the head takes what the encoder does not give,
            or a coherent output has no hierarchy.
    """

    def __init__(
        self,
        space: TokenSpace,
        num_labels: int,
        config: ModelConfig,
        hierarchy: Hierarchy | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(
            space,
            config.channels,
            config.embedding_dropout,
            config.token_dropout,
            config.scale_embedding,
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
        self.encoder = encoder_cls(
            self.embedding,
            parse_settings(
                encoder_cls.Config, config.encoder_config, "model.encoder_config must be valid"
            ),
        )
        check_width(self.encoder, config.encoder)
        self.head = head_cls(self.encoder.out_channels, num_labels, head_settings(head_cls, config))
        self.wide = WideTerm(space.num_tokens, num_labels) if config.wide else None
        self.coherent = _make_coherent(hierarchy, num_labels) if config.coherent else None

    def forward(self, batch: EgoBatch) -> Tensor:
        """Label scores before the sigmoid, [B, L]."""
        logits: Tensor = self.head(self.encoder(batch))
        if self.wide is not None:
            logits = logits + self.wide(self.wide_tokens(batch))
        return logits if self.coherent is None else self.coherent(logits)

    @property
    def reads_metadata(self) -> bool:
        """Whether metadata tokens count; encoders of texts leave them out unless asked for."""
        return bool(getattr(self.encoder.config, "metadata", True))

    def wide_tokens(self, batch: EgoBatch) -> EgoBatch:
        """The batch with the tokens that the wide term reads: what the encoder may read."""
        if self.reads_metadata:
            return batch
        return batch.select_tokens(batch.field == self.embedding.space.field_index(WORD))

    def reset_parameters(self) -> None:
        """Draws every parameter anew."""
        self.embedding.reset_parameters()
        self.encoder.reset_parameters()
        self.head.reset_parameters()
        if self.wide is not None:
            self.wide.reset_parameters()


def _make_coherent(hierarchy: Hierarchy | None, num_labels: int) -> CoherentOutput:
    if hierarchy is None or hierarchy.num_labels != num_labels:
        found = "none" if hierarchy is None else f"one of {hierarchy.num_labels} labels"
        raise ConfigError(
            f"A coherent output needs the hierarchy of the {num_labels} labels, found {found}; "
            f"give a hierarchy, or set model.coherent to false."
        )
    return CoherentOutput(hierarchy)


def choose_head(encoder_cls: type[Encoder]) -> str:
    """The name of the head for what an encoder gives, where the configuration names none."""
    return {"document": "linear", "tokens": "label_attention"}[encoder_cls.gives]


def find_head(config: ModelConfig) -> type[Head]:
    """The class of the head that a configuration names, or that fits its encoder.

    Raises:
        ConfigError: There is no such head or encoder.
    """
    encoder_cls = find_class(config.encoder, ENCODERS, Encoder, "encoder")
    return find_class(config.head or choose_head(encoder_cls), HEADS, Head, "head")


def head_settings(head_cls: type[Head], config: ModelConfig) -> StrictModel:
    """The head's settings, checked.

    Raises:
        ConfigError: One is unknown or impossible.
    """
    return parse_settings(head_cls.Config, config.head_config, "model.head_config must be valid")


def find_class(
    name: str,
    registered: Mapping[str, type[T]],
    base: type[T] | tuple[type[Any], ...],
    kind: str,
) -> type[T]:
    """A registered class, or the one that ``package.module:Class`` names, which is imported.

    Modules are looked for in the current folder too, after all others. Who takes a name from a file
    asks the caller first (`match_graph.config.check_code`).

    Raises:
        ConfigError: There is no such class, or it is not of the kind.
    """
    if name in registered:
        return registered[name]
    module_name, colon, class_name = name.partition(":")
    found: object = None
    cause = ""
    if colon:
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)
        try:
            found = getattr(importlib.import_module(module_name), class_name, None)
        except Exception as error:  # whatever the code of others raises when it is imported
            cause = f" ({error})"
    if not (isinstance(found, type) and issubclass(found, base)):
        bases = " or ".join(one.__name__ for one in (base if isinstance(base, tuple) else (base,)))
        raise ConfigError(
            f"The {kind} must be one of {sorted(registered)} or package.module:Class naming a "
            f"subclass of {bases}, found '{name}'{cause}; check the name."
        )
    return found
