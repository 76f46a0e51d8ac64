"""Ego-networks: the neighbours of documents, sampled within budgets, as a PyG sampler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, NodeSamplerInput

from match_graph.errors import GraphError
from match_graph.graph.csr import check_rows, make_ptr, ragged_arange, row_index
from match_graph.graph.hashing import hash_type, sample_uniform
from match_graph.graph.view import Graph, view_graph
from match_graph.typing import DOCUMENT, LABEL, EdgeType


@dataclass(frozen=True)
class EgoSample:
    """Packed neighbours of B seeds; per seed first the metadata by type, then the words.

    Args:
        seed: Seed nodes, [B], int64.
        edge_types: Sampled edge types, in the order of the packing.
        node: Index of each neighbour within its type, [N], int64.
        edge_type: Index into ``edge_types``, [N], int64.
        position: Index among the seed's edges of a sequence type, 0 for metadata, [N], int64.
        edge: Index into ``edge_index`` of the edge that leads to each neighbour, [N], int64.
        ptr: Offsets per seed, [B + 1], int64.
    """

    seed: Tensor
    edge_types: tuple[EdgeType, ...]
    node: Tensor
    edge_type: Tensor
    position: Tensor
    edge: Tensor
    ptr: Tensor


class EpochSampler(BaseSampler):
    """Base class of samplers around nodes, whose random samples depend on seed and epoch."""

    epoch = 0
    seed_type: str

    def take_seeds(self, index: NodeSamplerInput) -> Tensor:
        """Seeds of PyG's input, [B].

        Raises:
            GraphError: They are of another type than ``seed_type``.
        """
        if index.input_type not in (None, self.seed_type):
            raise GraphError(
                f"The seeds must be of the sampler's seed_type '{self.seed_type}', found "
                f"'{index.input_type}'; make a sampler with seed_type='{index.input_type}'."
            )
        return index.node

    def set_epoch(self, epoch: int) -> None:
        """Chooses the random samples of the next iteration, which depend on (seed, epoch) alone."""
        self.epoch = epoch

    def sample_from_edges(self, *_: Any, **__: Any) -> Any:
        """Not offered: ego-networks and neighbourhoods belong to nodes.

        Raises:
            GraphError: Always.
        """
        raise GraphError(
            f"{type(self).__name__} samples around nodes, found a call for edges; use NodeLoader."
        )


class EgoSampler(EpochSampler):
    """Samples the one-hop ego-networks of seed nodes; vectorised, O(budget) per seed.

    Edges whose type has ``position`` are sequences: the first ``max_words`` by it are taken. All
    others are metadata: ``max_metadata`` per seed, shared evenly between the types (what one type
    does not use goes to the others). Where a type has more than its share, sampling is systematic:
    all edges have the same inclusion probability, none is taken twice, and their order is kept. The
    authors' release truncates metadata and words together at 500 tokens, so that one long author
    list can push out the whole text.

    No edge that touches a ``label`` node is ever sampled, nor any edge between seeds.

    Args:
        data: A graph whose edges point away from the seeds, in memory or in files, which are read
            in place; plain PyPI packages are enough.
        max_metadata: Budget of metadata neighbours per seed.
        max_words: Budget of sequence neighbours per seed.
        random: Whether to resample every epoch; else a type's first edges are taken. A seed's
            sample is a function of (seed, epoch, seed node, edge type): it is the same in any
            batch, process or worker, and resuming needs no state.
        seed: Random seed of the samples, which also depend on the epoch; see `set_epoch`.
        seed_type: Node type of the seeds.
        edge_types: Edge types to sample; None takes all from ``seed_type`` that do not touch
            labels or seeds, sequences last.

    Raises:
        GraphError: A budget is negative, or an edge type is unknown or repeated, does not start
            at the seeds, or leads to labels or seeds.
    """

    def __init__(
        self,
        data: Graph,
        max_metadata: int = 64,
        max_words: int = 500,
        random: bool = False,
        seed: int = 0,
        seed_type: str = DOCUMENT,
        edge_types: Sequence[EdgeType] | None = None,
    ) -> None:
        if max_metadata < 0 or max_words < 0:
            raise GraphError(
                f"max_metadata and max_words must be at least 0, found {max_metadata} and "
                f"{max_words}."
            )
        self.max_metadata, self.max_words = max_metadata, max_words
        self.random, self.seed, self.seed_type = random, seed, seed_type
        graph = view_graph(data)
        self.num_seeds = graph.num_nodes(seed_type)
        allowed = [
            edge_type
            for edge_type in graph.edge_types
            if edge_type[0] == seed_type and edge_type[2] not in (LABEL, seed_type)
        ]
        edge_types = allowed if edge_types is None else edge_types
        _check_edge_types(allowed, edge_types, seed_type)
        sets = tuple(edge_type for edge_type in edge_types if not graph.is_sequence(edge_type))
        sequences = tuple(edge_type for edge_type in edge_types if graph.is_sequence(edge_type))
        self.edge_types = sets + sequences
        self.num_sets = len(sets)
        self._lists = [graph.adjacency(edge_type) for edge_type in self.edge_types]
        self._keys = [hash_type(edge_type) for edge_type in self.edge_types]

    def lengths(self, seed: Tensor) -> Tensor:
        """Number of neighbours in the sample of each seed, [B], int64."""
        return self._shares(self._degrees(seed)).sum(dim=1)

    def sample(self, seed: Tensor) -> EgoSample:
        """The neighbours of seeds.

        Args:
            seed: Seeds, [B], int64.

        Raises:
            GraphError: A seed is not in the graph.
        """
        check_rows(seed, self.num_seeds, self.seed_type)
        degree = self._degrees(seed)  # [B, num_edge_types]
        take = self._shares(degree)
        slot_ptr = make_ptr(take.reshape(-1))
        start = slot_ptr[:-1].view_as(take)
        total = int(slot_ptr[-1])
        node, edge_type, position, edge = (torch.empty(total, dtype=torch.int64) for _ in range(4))
        for number, lists in enumerate(self._lists):
            count = take[:, number]
            place = ragged_arange(start[:, number], count)  # [samples of this type]
            rank = place - torch.repeat_interleave(start[:, number], count)
            offset = rank
            if self.random and number < self.num_sets:
                shift = sample_uniform(seed, self.seed, self.epoch, self._keys[number])
                offset = _systematic(rank, degree[:, number], count, shift)
            node[place], edge[place] = lists.find(seed, count, offset)
            edge_type[place] = number
            position[place] = offset if number >= self.num_sets else 0
        ptr = make_ptr(take.sum(dim=1))
        return EgoSample(seed, self.edge_types, node, edge_type, position, edge, ptr)

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> HeteroSamplerOutput:
        """PyG's form of `sample`: distinct nodes per type, edges re-indexed to them.

        Raises:
            GraphError: As `sample` and `take_seeds`.
        """
        sample = self.sample(self.take_seeds(index))
        source = row_index(sample.ptr)
        row, col, edge = {}, {}, {}
        into: dict[str, list[EdgeType]] = {}
        for number, edge_type in enumerate(sample.edge_types):
            mask = sample.edge_type == number
            row[edge_type], edge[edge_type] = source[mask], sample.edge[mask]
            col[edge_type] = sample.node[mask]  # re-indexed below
            into.setdefault(edge_type[2], []).append(edge_type)
        node = {self.seed_type: sample.seed}
        num_nodes = {self.seed_type: [sample.seed.numel(), 0]}
        for node_type, edge_types in into.items():  # one may be reached by several edge types
            parts = [col[edge_type] for edge_type in edge_types]
            node[node_type], place = torch.unique(torch.cat(parts), return_inverse=True)
            num_nodes[node_type] = [0, node[node_type].numel()]
            col.update(zip(edge_types, place.split(list(map(len, parts))), strict=True))
        return HeteroSamplerOutput(
            node=node,
            row=row,
            col=col,
            edge=edge,
            num_sampled_nodes=num_nodes,
            num_sampled_edges={edge_type: [len(found)] for edge_type, found in edge.items()},
            metadata=(index.input_id, index.time, sample),
        )

    def _degrees(self, seed: Tensor) -> Tensor:
        if not self._lists:
            return torch.zeros(seed.numel(), 0, dtype=torch.int64)
        return torch.stack([lists.degree(seed) for lists in self._lists], dim=1)

    def _shares(self, degree: Tensor) -> Tensor:
        """How many edges of each type to sample, [B, num_edge_types], within the budgets."""
        return torch.cat(
            [
                share_budget(degree[:, : self.num_sets], self.max_metadata),
                share_budget(degree[:, self.num_sets :], self.max_words),
            ],
            dim=1,
        )


def _systematic(rank: Tensor, degree: Tensor, count: Tensor, shift: Tensor) -> Tensor:
    """floor((rank + shift) * degree / count), shift [B] in [0, 1); [samples], int64."""
    step = degree.to(torch.float64) / count.clamp(min=1)
    offset = (rank + torch.repeat_interleave(shift, count)) * torch.repeat_interleave(step, count)
    last = torch.repeat_interleave(degree, count) - 1
    return torch.minimum(offset.to(torch.int64), last)


def share_budget(count: Tensor, budget: int) -> Tensor:
    """Splits a budget evenly over what each type has; unused shares go to the other types.

    Args:
        count: Number of items available per type, [B, num_types], int64.
        budget: Upper bound of each row's sum.

    Returns:
        [B, num_types], int64, at most ``count``; rows sum to min(budget, row sum of ``count``).
    """
    num_types = count.size(1)
    ascending, order = torch.sort(count, dim=1, stable=True)
    remaining = torch.full((count.size(0),), budget, dtype=torch.int64)
    take = torch.empty_like(ascending)
    for column in range(num_types):  # the smallest first: what it leaves goes to the larger ones
        take[:, column] = torch.minimum(ascending[:, column], remaining // (num_types - column))
        remaining -= take[:, column]
    return torch.empty_like(take).scatter_(1, order, take)


def _check_edge_types(
    allowed: Sequence[EdgeType], edge_types: Sequence[EdgeType], seed_type: str
) -> None:
    for edge_type in edge_types:
        if edge_type not in allowed:
            raise GraphError(
                f"EgoSampler samples edges that start at '{seed_type}' and lead neither to labels "
                f"nor to seeds, found {edge_type}; choose from {[*allowed]}."
            )
    if len(set(edge_types)) < len(edge_types):
        raise GraphError(
            f"EgoSampler samples each edge type once, found one repeated in {list(edge_types)}."
        )
