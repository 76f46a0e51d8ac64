"""Positive pairs drawn from the graph on the fly, with their negatives, in full chunks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.errors import GraphError
from match_graph.typing import CONTEXT, DOCUMENT, MASKS, EdgeType

NEGATIVE_POWER = 0.75

#: Edges are counted in pieces of this size, so that temporaries stay small.
_PIECE = 1 << 20
#: A relation of which so many trial draws give no pair is left out.
_TRIALS = 100_000


@dataclass
class Relation:
    """Pairs (anchor, target), each edge of the graph equally likely.

    Args:
        name: Name of the relation, for messages and logs.
        anchor: Name of the table of anchors.
        target: Name of the table of positives and negatives.
        row: Anchor of each edge, ascending for sequences, [E].
        col: Target of each edge, [E].
        num_targets: Number of targets that may be drawn, a prefix of the table.
        row_mask: Mask of anchors that may be drawn, bool; None for all.
        window: Maximum distance of partners in the sequence, for (word, context); 0 for edges.

    Pairs that are not allowed are drawn and dropped, so that nothing is stored that grows with
    edges x window.
    """

    name: str
    anchor: str
    target: str
    row: Tensor
    col: Tensor
    num_targets: int
    row_mask: Tensor | None = None
    window: int = 0
    cdf: Tensor = field(init=False)
    _keys: Tensor | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        degree = torch.zeros(self.num_targets, dtype=torch.int64)
        self.first, self.stop = 0, self.col.numel()  # edges outside hold no pair
        allowed_pieces = []
        for start in range(0, self.col.numel(), _PIECE):
            row, col = self.row[start : start + _PIECE], self.col[start : start + _PIECE]
            allowed = col < self.num_targets
            if self.row_mask is not None:
                allowed &= self.row_mask.index_select(0, row)
            degree += torch.bincount(col[allowed], minlength=self.num_targets)
            place = allowed.nonzero()
            if len(place):
                allowed_pieces.append((start + int(place[0]), start + int(place[-1]) + 1))
        if allowed_pieces:
            self.first, self.stop = allowed_pieces[0][0], allowed_pieces[-1][1]
        self.num_pairs = int(degree.sum())
        self.num_distinct = int((degree > 0).sum())
        self.cdf = torch.cumsum(degree.to(torch.float64) ** NEGATIVE_POWER, 0)

    def to(self, device: torch.device) -> "Relation":
        """Moves the tensors of pairs to a device, in place."""
        for name in ("row", "col", "row_mask", "cdf"):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value.to(device))
        return self

    def is_drawable(self) -> bool:
        """Whether there are pairs, and negatives to them; by trial where windows decide."""
        if not self.num_pairs or self.num_distinct < 2:
            return False
        trial = torch.Generator(self.col.device).manual_seed(0)
        return any(len(self.draw(number, trial)[0]) for number in (_TRIALS // 100, _TRIALS))

    def draw(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Up to ``number`` pairs: anchors and targets, int64; fewer where some are not allowed."""
        device, shape = self.col.device, (number,)
        edge = torch.randint(self.first, self.stop, shape, generator=generator, device=device)
        row, target = self.row.index_select(0, edge), self.col.index_select(0, edge)
        allowed = target < self.num_targets
        if self.row_mask is not None:
            allowed &= self.row_mask.index_select(0, row)
        anchor = row
        if self.window:
            step = torch.randint(2 * self.window, shape, generator=generator, device=device)
            step = step - self.window + (step >= self.window)  # -window..-1, 1..window
            partner = edge + step
            inside = (partner >= 0) & (partner < self.col.numel())
            partner = torch.where(inside, partner, edge)
            anchor = self.col.index_select(0, partner)
            allowed &= inside & (self.row.index_select(0, partner) == row)
            allowed &= anchor < self.num_targets
        kept = allowed.nonzero().view(-1)
        anchor, target = anchor.index_select(0, kept), target.index_select(0, kept)
        return anchor.to(torch.int64), target.to(torch.int64)

    def draw_negatives(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Targets with probability proportional to degree^0.75, int64."""
        uniform = torch.rand(
            tuple(shape), generator=generator, device=self.cdf.device, dtype=torch.float64
        )
        index = torch.searchsorted(self.cdf, uniform * self.cdf[-1], right=True)
        return index.clamp(max=self.num_targets - 1)

    def holds(self, anchor: Tensor, target: Tensor) -> Tensor:
        """Whether (anchor, target) is a pair, [P, K], bool; edges only, not contexts.

        Args:
            anchor: Anchors, [P], int64.
            target: Targets, [K] or [P, K], int64.
        """
        if self.window:
            return torch.zeros(
                anchor.size(0), target.size(-1), dtype=torch.bool, device=target.device
            )
        if self._keys is None:
            keys = self.row.to(torch.int64) * self.num_targets + self.col
            self._keys = torch.unique(keys[self.col < self.num_targets])
        key = anchor.unsqueeze(1) * self.num_targets + target
        place = torch.searchsorted(self._keys, key).clamp(max=self._keys.numel() - 1)
        return self._keys[place] == key


def find_relations(
    data: HeteroData,
    num_rows: Mapping[str, int],
    window: int,
    edge_types: Sequence[EdgeType] | None = None,
) -> list[list[Relation]]:
    """The kinds of proximity of a graph, each a list of relations; see section 3.1 of MATCH.

    (document, metadata of each field) is one kind, (document, label), (document, word) and
    (word, context) are one each; on other graphs every edge type is a kind. An edge type with
    ``position`` is a sequence and gives (target, context) pairs as well. Nodes that hold a
    training mask are drawn from it alone, be they anchors or targets.

    Args:
        data: A graph.
        num_rows: Number of rows of each node type's table; nodes beyond are not trained.
        window: Context window of (word, context) in words; 0 leaves that proximity out.
        edge_types: Edge types to use; None takes all but (document, cites, document) and (label,
            is_a, label).

    Returns:
        Kinds with at least one pair and two distinct targets: otherwise there is no negative.
        Contexts of which 100,000 draws give none are left out, too.

    Raises:
        GraphError: An edge type is not in the graph.
    """
    if edge_types is None:
        edge_types = [
            edge_type for edge_type in data.edge_types if edge_type[1] not in ("cites", "is_a")
        ]
    missing = [edge_type for edge_type in edge_types if edge_type not in data.edge_types]
    if missing:
        raise GraphError(
            f"Pre-training needs edge types of the graph, found {missing}; "
            f"choose from {data.edge_types}."
        )
    kinds: dict[object, list[Relation]] = {}
    names: set[str] = set()
    for edge_type in edge_types:
        source, _, target = edge_type
        row, col = data[edge_type].edge_index
        mask = data[source].get(MASKS["train"])
        if "position" not in data[edge_type]:
            # small: keep what may be drawn, so that no draw is lost
            allowed = col < num_rows[target]
            allowed = allowed if mask is None else allowed & mask[row]
            target_mask = data[target].get(MASKS["train"])
            allowed = allowed if target_mask is None else allowed & target_mask[col]
            row, col, mask = row[allowed], col[allowed], None
        name = f"({source}, {target})"
        name = f"({source}, {edge_type[1]}, {target})" if name in names else name
        names.add(name)
        relation = Relation(name, source, target, row, col, num_rows[target], mask)
        key = "has" if edge_type[1] == "has" and source == DOCUMENT else edge_type
        kinds.setdefault(key, []).append(relation)
        if "position" in data[edge_type] and window:
            pair = Relation(
                f"({target}, {CONTEXT})", CONTEXT, target, row, col, num_rows[target], mask, window
            )
            kinds[(edge_type, CONTEXT)] = [pair]
    usable = [[relation for relation in kind if relation.is_drawable()] for kind in kinds.values()]
    return [kind for kind in usable if kind]


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
