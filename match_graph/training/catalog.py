"""Catalog of encoders, heads and baselines."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from match_graph.baselines import BASELINES, Baseline
from match_graph.errors import ConfigError
from match_graph.graph import Hierarchy, LabelGraph, TokenSpace
from match_graph.nn import ENCODERS, HEADS, Encoder, Head, TokenEmbedding
from match_graph.nn.model import choose_head
from match_graph.own_code import find_class
from match_graph.settings import Setting, list_settings, write_value
from match_graph.training.models import count_parameters

_Kind: TypeAlias = Literal["encoder", "head", "baseline"]

#: The size at which parameters are counted.
CHANNELS, NUM_LABELS, FIELDS = 100, 1000, ("venue", "author", "reference")
#: For the heading of a table.
SIZE = f"{CHANNELS} channels, {NUM_LABELS:,} labels, {len(FIELDS)} metadata fields"


@dataclass(frozen=True)
class Entry:
    """One registered class.

    Args:
        name: Name as in ``model.encoder`` or ``model.head``.
        kind: Kind of the class.
        needs: Parts of a batch that an encoder or baseline reads, or states that a head takes.
        gives: Output: the states of an encoder, or logits.
        parameters: Number of parameters without token embeddings, at the size of `SIZE`; None
            where there are none before fitting, or where a checkpoint decides.
        parameters_with_head: Number of parameters with the fitting head, at the same size.
        paper: Paper with its URL; empty for none.
        summary: Summary in one line.
    """

    name: str
    kind: _Kind
    needs: Sequence[str]
    gives: str
    parameters: int | None
    parameters_with_head: int | None
    paper: str
    summary: str


@dataclass(frozen=True)
class ModelDescription:
    """One encoder, head or baseline with its settings.

    Args:
        name: Name as in ``model.encoder`` or ``model.head``.
        kind: Kind of the class.
        summary: Summary in one line.
        paper: Paper with its URL; empty for none.
        settings: Settings of its own, by whole key.
        presets: Values as YAML that each preset sets, by dotted key.
    """

    name: str
    kind: _Kind
    summary: str
    paper: str
    settings: Sequence[Setting]
    presets: Mapping[str, Mapping[str, str]]


def describe_model(name: str) -> ModelDescription:
    """An encoder, head or baseline by its name, or a class of one's own, which is imported.

    Raises:
        ConfigError: There is none.
    """
    registered: dict[str, type[Any]] = {**ENCODERS, **HEADS, **BASELINES}
    cls = find_class(name, registered, (Encoder, Head, Baseline), "encoder, head or baseline")
    is_head = issubclass(cls, Head)
    kind: _Kind = "head" if is_head else "encoder" if issubclass(cls, Encoder) else "baseline"
    prefix = "model.head_config." if is_head else "model.encoder_config."
    presets = {
        preset: {key: write_value(value) for key, value in _flatten(values).items()}
        for preset, values in getattr(cls, "presets", {}).items()
    }
    entry = _describe(name, cls, kind)
    settings = list_settings(cls.Config, prefix)
    return ModelDescription(name, kind, entry.summary, entry.paper, settings, presets)


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of encoder and head as dotted ones too."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = value if isinstance(value, dict) and key.endswith("_config") else {"": value}
        found |= {f"{key}.{name}".rstrip("."): one for name, one in inner.items()}
    return found


def list_models() -> list[Entry]:
    """Names that ``model.encoder`` and ``model.head`` take: encoders, heads, baselines."""
    with torch.random.fork_rng(devices=[]):  # initializing must not change the caller's state
        encoders = [_describe(*one, "encoder", *_count(one[1])) for one in sorted(ENCODERS.items())]
        heads = [_describe(*one, "head", _count_head(one[1])) for one in sorted(HEADS.items())]
    return [*encoders, *heads, *(_describe(*one, "baseline") for one in sorted(BASELINES.items()))]


def _describe(
    name: str,
    cls: type[Any],
    kind: _Kind,
    parameters: int | None = None,
    with_head: int | None = None,
) -> Entry:
    needs = [cls.takes] if kind == "head" else sorted(cls.needs)
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    gives, paper = getattr(cls, "gives", "logits"), getattr(cls, "paper", "")
    return Entry(name, kind, needs, gives, parameters, with_head, paper, summary)


def _count(cls: type[Encoder]) -> tuple[int | None, int | None]:
    """Parameters of an encoder with its defaults, alone and with its head; None by a checkpoint."""
    space = TokenSpace((*FIELDS, "word"), (0,) * (len(FIELDS) + 1))
    try:
        encoder = cls(TokenEmbedding(space, CHANNELS), cls.Config())
    except ConfigError:
        return None, None
    own = count_parameters(encoder)
    return own, own + _count_head(HEADS[choose_head(cls)], encoder.out_channels)


def _count_head(cls: type[Head], channels: int = CHANNELS) -> int:
    no_edge = LabelGraph(Hierarchy.without_edges(NUM_LABELS))
    return count_parameters(cls(channels, NUM_LABELS, cls.Config(), no_edge))
