"""Positive pairs sampled from the graph on the fly, with their negatives, in full chunks."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.adjacency import Adjacency
from match_graph.graph.csr import RowFinder, make_ptr, row_index, select_rows
from match_graph.graph.view import Graph, view_graph
from match_graph.typing import CONTEXT, DOCUMENT, MASKS, EdgeType

NEGATIVE_POWER = 0.75

#: Edges are scanned in pieces of this size, so that temporaries stay small.
_PIECE = 1 << 17
#: A relation is left out if this many trial samples give no pair.
_TRIALS = 100_000


@dataclass
class Relation(ABC):
    """Pairs (anchor, target), each edge of the graph equally likely.

    Lists are read in place, in memory or in files; nothing else grows with the number of edges.

    Args:
        name: Name of the relation, for messages and logs.
        anchor: Name of the table of anchors.
        target: Name of the table of positives and negatives.
        lists: Targets of each source of the edges.
        degree: Number of edges of each target that may be sampled, [num_targets], int64; nodes from
            ``num_targets`` on are not sampled.
    """

    name: str
    anchor: str
    target: str
    lists: Adjacency
    degree: InitVar[Tensor]
    cdf: Tensor = field(init=False)

    def __post_init__(self, degree: Tensor) -> None:
        self.num_targets = degree.numel()
        self.num_pairs = int(degree.sum())
        self.num_distinct = int((degree > 0).sum())
        self.cdf = torch.cumsum(degree.to(torch.float64) ** NEGATIVE_POWER, 0)

    def to(self, device: torch.device) -> "Relation":
        """Moves the tensors of pairs to a device, in place; lists are copied to a GPU."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor | RowFinder):
                setattr(self, name, value.to(device))
            elif isinstance(value, Adjacency):
                moved = replace(value, ptr=value.ptr.to(device), node=value.node.to(device))
                setattr(self, name, moved)
        return self

    @abstractmethod
    def sample(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Up to ``number`` pairs: anchors and targets, int64; pairs not allowed are dropped."""

    def gives_pairs(self) -> bool:
        """True if the relation gives pairs that have negatives.

        Found by sampling some, because windows may leave none.
        """
        if not self.num_pairs or self.num_distinct < 2:
            return False
        trial = torch.Generator(self.cdf.device).manual_seed(0)
        return any(len(self.sample(number, trial)[0]) for number in (_TRIALS // 100, _TRIALS))

    def sample_negatives(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Targets with probability proportional to degree^0.75, int64."""
        uniform = torch.rand(
            tuple(shape), generator=generator, device=self.cdf.device, dtype=torch.float64
        )
        index = torch.searchsorted(self.cdf, uniform * self.cdf[-1], right=True)
        return index.clamp(max=self.num_targets - 1)

    def holds(self, anchor: Tensor, target: Tensor) -> Tensor:
        """Mask of the (anchor, target) pairs that are edges of the graph, [P, K], bool.

        Pairs of a word and its context are no edges.

        Args:
            anchor: Anchors, [P], int64.
            target: Targets, [K] or [P, K], int64.
        """
        ptr, node = select_rows(self.lists.ptr, self.lists.node, anchor)
        span = max(self.num_targets, int(target.max()) + 1 if target.numel() else 0)
        kept = node < span
        keys = torch.unique(row_index(ptr)[kept] * span + node[kept])
        own = torch.arange(anchor.numel(), device=anchor.device).unsqueeze(1)
        key = own * span + target
        if not keys.numel():
            return torch.zeros_like(key, dtype=torch.bool)
        place = torch.searchsorted(keys, key).clamp(max=keys.numel() - 1)
        return keys[place] == key


@dataclass
class SetRelation(Relation):
    """Pairs of sets, such as a document's authors: the target is sampled first, then its source.

    Args:
        back: Sources of each target, of which the first ``degree`` may be sampled.
    """

    back: Adjacency

    def __post_init__(self, degree: Tensor) -> None:
        super().__post_init__(degree)
        ptr = make_ptr(degree)
        self.targets, self.shift = RowFinder(ptr), self.back.ptr[: self.num_targets] - ptr[:-1]

    def sample(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        device = self.cdf.device
        pair = torch.randint(self.num_pairs, (number,), generator=generator, device=device)
        target = self.targets.find(pair)
        anchor = self.back.node.index_select(0, pair + self.shift.index_select(0, target))
        return anchor.to(torch.int64), target


@dataclass
class SequenceRelation(Relation):
    """Pairs of sequences, such as a document's words: with the source, or within a window.

    Pairs are sampled by rejection of those not allowed, so that no storage grows with
    edges x window.

    Args:
        mask: Mask of the sources that may be sampled, bool; None for all.
        window: Maximum distance of partners in the sequence, for (word, context); 0 for edges.
        target_mask: Mask of the targets that may be sampled, [num_targets], bool; None for all.
    """

    mask: Tensor | None = None
    window: int = 0
    target_mask: Tensor | None = None

    def __post_init__(self, degree: Tensor) -> None:
        super().__post_init__(degree)
        self.sources = RowFinder(self.lists.ptr)
        self.first, self.stop = self._find_ends()

    def within(self, window: int, name: str) -> "SequenceRelation":
        """The same sequences as pairs of targets and their contexts."""
        other = copy.copy(self)
        other.name, other.anchor, other.window = name, CONTEXT, window
        return other

    def sample(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        node, ptr = self.lists.node, self.lists.ptr
        device, shape = self.cdf.device, (number,)
        edge = torch.randint(self.first, self.stop, shape, generator=generator, device=device)
        row, target = self.sources.find(edge), node.index_select(0, edge)
        allowed = self._is_target(target)
        if self.mask is not None:
            allowed &= self.mask.index_select(0, row)
        anchor = row
        if self.window:
            step = torch.randint(2 * self.window, shape, generator=generator, device=device)
            step = step - self.window + (step >= self.window)  # -window..-1, 1..window
            partner = edge + step
            start, end = ptr.index_select(0, row), ptr.index_select(0, row + 1)
            inside = (partner >= start) & (partner < end)
            anchor = node.index_select(0, torch.where(inside, partner, edge))
            allowed &= inside & self._is_target(anchor)
        kept = allowed.nonzero().view(-1)
        anchor, target = anchor.index_select(0, kept), target.index_select(0, kept)
        return anchor.to(torch.int64), target.to(torch.int64)

    def holds(self, anchor: Tensor, target: Tensor) -> Tensor:
        if not self.window:
            return super().holds(anchor, target)
        shape = anchor.size(0), target.size(-1)
        return torch.zeros(shape, dtype=torch.bool, device=target.device)

    def _is_target(self, node: Tensor) -> Tensor:
        inside = node < self.num_targets
        if self.target_mask is None or not self.num_targets:
            return inside
        return inside & self.target_mask.index_select(0, node.clamp(max=self.num_targets - 1))

    def _find_ends(self) -> tuple[int, int]:
        """First edge that gives a pair, and the place after the last."""
        num_edges, piece = self.lists.node.numel(), _PIECE
        starts = range(0, num_edges, piece)
        first = next(filter(None, map(self._allowed_within, starts)), None)
        last = next(filter(None, map(self._allowed_within, reversed(starts))), None)
        return (0, num_edges) if first is None or last is None else (first[0], last[1])

    def _allowed_within(self, start: int) -> tuple[int, int] | None:
        """First allowed edge of a piece, and the place after its last; None if there is none."""
        col = self.lists.node[start : start + _PIECE]
        allowed = self._is_target(col)
        if self.mask is not None:
            edge = torch.arange(start, start + col.numel(), device=col.device)
            allowed = allowed & self.mask.index_select(0, self.sources.find(edge))
        place = allowed.nonzero()
        return (start + int(place[0]), start + int(place[-1]) + 1) if len(place) else None


def find_relations(
    data: Graph,
    num_rows: Mapping[str, int],
    window: int,
    edge_types: Sequence[EdgeType] | None = None,
) -> list[list[Relation]]:
    """The kinds of proximity of a graph, each a list of relations; see section 3.1 of MATCH.

    (document, metadata of each field) is one kind, (document, label), (document, word) and
    (word, context) are one each; on other graphs every edge type is a kind. An edge type with
    ``position`` is a sequence and gives (target, context) pairs as well. Of nodes with a training
    mask only those of training are sampled, as anchors or as targets.

    Args:
        data: A graph, in memory or in files, which are read in place.
        num_rows: Number of rows of each node type's table; nodes beyond are not trained.
        window: Context window of (word, context) in words; 0 leaves that proximity out.
        edge_types: Edge types to use; None takes all but (document, cites, document) and (label,
            is_a, label).

    Returns:
        Kinds with at least one pair and two distinct targets, as otherwise there are no negatives,
        of which 100,000 samples give a pair.

    Raises:
        GraphError: An edge type is not in the graph, or contexts are not of one node type.
    """
    graph = view_graph(data)
    if edge_types is None:
        edge_types = [
            edge_type for edge_type in graph.edge_types if edge_type[1] not in ("cites", "is_a")
        ]
    missing = [edge_type for edge_type in edge_types if edge_type not in graph.edge_types]
    if missing:
        raise GraphError(
            f"Pre-training needs edge types of the graph, found {missing}; "
            f"choose from {graph.edge_types}."
        )
    kinds: dict[object, list[Relation]] = {}
    names: set[str] = set()
    for edge_type in edge_types:
        source, relation, target = edge_type
        name = _name_pairs(names, f"({source}, {target})", f"({source}, {relation}, {target})")
        key = "has" if relation == "has" and source == DOCUMENT else edge_type
        degree = graph.train_degree(edge_type)[: num_rows[target]]
        allowed = graph.node_tensor(target, MASKS["train"])
        allowed = None if allowed is None else allowed[: degree.numel()]
        degree = degree if allowed is None else degree * allowed
        lists = graph.adjacency(edge_type)
        if not graph.is_sequence(edge_type):
            back = graph.adjacency(edge_type, backwards=True)
            kinds.setdefault(key, []).append(SetRelation(name, source, target, lists, degree, back))
            continue
        mask = graph.node_tensor(source, MASKS["train"])
        words = SequenceRelation(name, source, target, lists, degree, mask, target_mask=allowed)
        kinds.setdefault(key, []).append(words)
        if window:
            own = f"({source}, {relation}, {target}, {CONTEXT})"
            name = _name_pairs(names, f"({target}, {CONTEXT})", own)
            kinds[(edge_type, CONTEXT)] = [words.within(window, name)]
    _check_contexts(graph, [kind[0] for kind in kinds.values()])
    usable = [[relation for relation in kind if relation.gives_pairs()] for kind in kinds.values()]
    return [kind for kind in usable if kind]


def _name_pairs(names: set[str], short: str, own: str) -> str:
    """The short name of a relation, or its full one if the short one is taken; added to names."""
    name = own if short in names else short
    names.add(name)
    return name


def _check_contexts(graph: Graph, relations: Sequence[Relation]) -> None:
    """Checks that context vectors, which share one table, are of one node type."""
    found = sorted({one.target for one in relations if one.anchor == CONTEXT})
    if len(found) > 1 or (found and CONTEXT in graph.node_types):
        found += [CONTEXT] * (CONTEXT in graph.node_types)
        raise GraphError(
            f"Pre-training keeps contexts of the nodes of one type in a table '{CONTEXT}', found "
            f"{found}; choose other edge_types, rename the nodes, or set window to 0."
        )


#: Chunks whose pairs and negatives are sampled at once.
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
    """Buffer from which a relation's pairs are taken in chunks.

    Rejected samples are dropped in blocks of 32 chunks, so that every chunk is full, counts are of
    pairs, and a GPU is synchronised once per block.

    Args:
        relation: Relation that pairs are sampled from.
        chunk_size: Number of pairs per chunk, P.
        num_negatives: Number of negatives per pair, or per chunk if shared, K.
        shared: Whether a chunk's pairs share their negatives.
    """

    def __init__(
        self, relation: Relation, chunk_size: int, num_negatives: int, shared: bool
    ) -> None:
        self.relation, self.chunk_size = relation, chunk_size
        self.num_negatives, self.shared = num_negatives, shared
        empty = torch.empty(0, dtype=torch.int64, device=relation.cdf.device)
        self.anchor = self.positive = empty  # [buffered pairs]
        self.negative = empty.view(0, num_negatives)  # [buffered chunks, K]

    def next_chunk(self, size: int, generator: torch.Generator) -> Chunk:
        """The next ``size`` pairs, at most ``chunk_size``."""
        while self.anchor.numel() < size:
            self._refill(generator)
        anchor, self.anchor = self.anchor[:size], self.anchor[size:]
        positive, self.positive = self.positive[:size], self.positive[size:]
        if not self.shared:
            shape = (size, self.num_negatives)
            negative = self.relation.sample_negatives(shape, generator)
            return Chunk(anchor, positive, negative)
        if not len(self.negative):
            shape = (_CHUNKS_PER_BLOCK, self.num_negatives)
            self.negative = self.relation.sample_negatives(shape, generator)
        negative, self.negative = self.negative[0], self.negative[1:]
        return Chunk(anchor, positive, negative)

    def _refill(self, generator: torch.Generator) -> None:
        sampled = self.relation.sample(_CHUNKS_PER_BLOCK * self.chunk_size, generator)
        self.anchor = torch.cat([self.anchor, sampled[0]])
        self.positive = torch.cat([self.positive, sampled[1]])

    def state_dict(self) -> dict[str, Tensor]:
        """Buffered pairs, on which, with the generator's state, the next chunks depend."""
        store = {"anchor": self.anchor, "positive": self.positive, "negative": self.negative}
        return {name: value.clone() for name, value in store.items()}

    def load_state_dict(self, state: Mapping[str, Tensor], num_anchors: int) -> None:
        """Resumes from a saved state.

        Args:
            state: Saved state, from `state_dict`.
            num_anchors: Number of rows of the relation's table of anchors.

        Raises:
            ValueError: It was saved with other settings, or a row is out of range.
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
