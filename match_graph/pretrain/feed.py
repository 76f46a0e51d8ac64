"""Chunks of positive pairs with their negatives, drawn in blocks."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from match_graph.pretrain.pairs import Relation

#: Chunks whose pairs and negatives are drawn in one go.
_CHUNKS_PER_BLOCK = 32


class Chunk(NamedTuple):
    """Positive pairs with their negatives.

    Args:
        anchor: Rows of the relation's table of anchors, [P], int64.
        positive: Rows of the relation's table of targets, [P], int64.
        negative: Rows of the relation's table of targets, [K] shared or [P, K] independent, int64.
    """

    anchor: Tensor
    positive: Tensor
    negative: Tensor


class PairFeed:
    """Hands out full chunks of a relation's pairs.

    Draws that give no pair are dropped within a block of many chunks, so that every chunk is full,
    what is counted are pairs, and a GPU is waited for once per block. A block is small: 32 chunks.

    Args:
        relation: Relation that pairs are drawn from.
        chunk_size: Number of pairs per chunk, P.
        num_negatives: Number of negatives per pair, or per chunk if shared, K.
        shared: Whether a chunk's pairs share their negatives.
    """

    def __init__(
        self, relation: Relation, chunk_size: int, num_negatives: int, shared: bool
    ) -> None:
        self.relation, self.chunk_size = relation, chunk_size
        self.num_negatives, self.shared = num_negatives, shared
        empty = torch.empty(0, dtype=torch.int64, device=relation.col.device)
        self.anchor = self.positive = empty  # [pairs in store]
        self.negative = empty.view(0, num_negatives)  # [chunks in store, K]

    def next_chunk(self, size: int, generator: torch.Generator) -> Chunk:
        """The next ``size`` pairs, at most ``chunk_size``."""
        while self.anchor.numel() < size:
            self._refill(generator)
        anchor, self.anchor = self.anchor[:size], self.anchor[size:]
        positive, self.positive = self.positive[:size], self.positive[size:]
        if not self.shared:
            shape = (size, self.num_negatives)
            negative = self.relation.draw_negatives(shape, generator)
            return Chunk(anchor, positive, negative)
        if not len(self.negative):
            shape = (_CHUNKS_PER_BLOCK, self.num_negatives)
            self.negative = self.relation.draw_negatives(shape, generator)
        negative, self.negative = self.negative[0], self.negative[1:]
        return Chunk(anchor, positive, negative)

    def _refill(self, generator: torch.Generator) -> None:
        drawn = self.relation.draw(_CHUNKS_PER_BLOCK * self.chunk_size, generator)
        self.anchor = torch.cat([self.anchor, drawn[0]])
        self.positive = torch.cat([self.positive, drawn[1]])

    def state_dict(self) -> dict[str, Tensor]:
        """Pairs in store; with the generator's state all that the next chunks depend on."""
        store = {"anchor": self.anchor, "positive": self.positive, "negative": self.negative}
        return {name: value.clone() for name, value in store.items()}

    def load_state_dict(self, state: Mapping[str, Tensor], num_anchors: int) -> None:
        """Goes on from a saved state.

        Args:
            state: Saved state, from `state_dict`.
            num_anchors: Number of rows of the relation's table of anchors.

        Raises:
            ValueError: It is of other settings, or a row is out of range.
        """
        anchor, positive, negative = (state[name] for name in ("anchor", "positive", "negative"))
        if anchor.dim() != 1 or anchor.shape != positive.shape or negative.dim() != 2:
            raise ValueError("pairs in store have other shapes")
        if negative.size(1) != self.num_negatives:
            raise ValueError(f"{negative.size(1)} negatives are in store, not {self.num_negatives}")
        bounds = (num_anchors, self.relation.num_targets, self.relation.num_targets)
        for rows, number in zip((anchor, positive, negative), bounds, strict=True):
            if rows.dtype != torch.int64 or bool(((rows < 0) | (rows >= number)).any()):
                raise ValueError(f"a row in store is not in 0..{number - 1}")
        device = self.anchor.device
        self.anchor, self.positive = anchor.to(device), positive.to(device)
        self.negative = negative.to(device)
