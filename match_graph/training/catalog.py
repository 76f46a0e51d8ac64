"""Names that settings take for encoders, heads and baselines, with what each needs and weighs."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from match_graph.baselines import BASELINES
from match_graph.errors import ConfigError
from match_graph.graph import Hierarchy, LabelGraph, TokenSpace
from match_graph.nn import ENCODERS, HEADS, Encoder, Head, TokenEmbedding
from match_graph.nn.model import choose_head
from match_graph.training.models import count_parameters

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


def list_models() -> list[Entry]:
    """Names that ``model.encoder`` and ``model.head`` take: encoders, heads, baselines."""
    with torch.random.fork_rng(devices=[]):  # parameters are drawn; leave the caller's draws alone
        encoders = [_describe(*one, "encoder", *_count(one[1])) for one in sorted(ENCODERS.items())]
        heads = [_describe(*one, "head", _count_head(one[1])) for one in sorted(HEADS.items())]
    return [*encoders, *heads, *(_describe(*one, "baseline") for one in sorted(BASELINES.items()))]


def _describe(
    name: str,
    cls: type[Any],
    kind: Literal["encoder", "head", "baseline"],
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
