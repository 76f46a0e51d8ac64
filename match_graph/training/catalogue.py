"""Catalogue of encoders, heads and baselines: needs, size, paper."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from match_graph.baselines import BASELINES
from match_graph.errors import ConfigError
from match_graph.graph import TokenSpace
from match_graph.nn import ENCODERS, HEADS, Encoder, TokenEmbedding
from match_graph.nn.model import choose_head

#: The size at which parameters are counted.
CHANNELS, NUM_LABELS, FIELDS = 100, 1000, ("venue", "author", "reference")


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
        paper: URL of the paper.
        summary: Summary in one line.
    """

    name: str
    kind: Literal["encoder", "head", "baseline"]
    needs: Sequence[str]
    gives: str
    parameters: int | None
    parameters_with_head: int | None
    paper: str
    summary: str


#: For the heading of a table.
SIZE = f"{CHANNELS} channels, {NUM_LABELS:,} labels, {len(FIELDS)} metadata fields"


def list_models() -> list[Entry]:
    """Names that ``model.encoder`` and ``model.head`` take, encoders first."""
    with torch.random.fork_rng(devices=[]):  # parameters are drawn; leave the caller's draws alone
        entries = [_describe_encoder(name) for name in sorted(ENCODERS)]
        for name in sorted(HEADS):
            cls = HEADS[name]
            number = count_parameters(cls(CHANNELS, NUM_LABELS, cls.Config()))
            paper = getattr(cls, "paper", "")
            entries.append(
                Entry(name, "head", [cls.takes], "logits", number, None, paper, _summary(cls))
            )
    for name in sorted(BASELINES):
        baseline = BASELINES[name]
        needs, line = sorted(baseline.needs), _summary(baseline)
        entries.append(Entry(name, "baseline", needs, "logits", None, None, baseline.paper, line))
    return entries


def count_parameters(module: nn.Module) -> int:
    """Number of learned parameters of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def _describe_encoder(name: str) -> Entry:
    cls = ENCODERS[name]
    own = with_head = None
    if (encoder := _make_encoder(cls)) is not None:
        head_cls = HEADS[choose_head(cls)]
        own = count_parameters(encoder)
        head = head_cls(encoder.out_channels, NUM_LABELS, head_cls.Config())
        with_head = own + count_parameters(head)
    return Entry(
        name, "encoder", sorted(cls.needs), cls.gives, own, with_head, cls.paper, _summary(cls)
    )


def _make_encoder(cls: type[Encoder]) -> Encoder | None:
    """An encoder with its defaults; None where they are not enough."""
    space = TokenSpace((*FIELDS, "word"), (0,) * (len(FIELDS) + 1))
    try:
        return cls(TokenEmbedding(space, CHANNELS), cls.Config())
    except ConfigError:
        return None


def _summary(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0]
