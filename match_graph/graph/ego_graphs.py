"""Sampled subgraphs as input of graph encoders: with token ids, without labels."""

import copy
from collections.abc import Iterable
from typing import Annotated

import torch
from pydantic import AfterValidator, Field
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.config import StrictModel
from match_graph.errors import ConfigError
from match_graph.graph.csr import make_ptr, ragged_arange
from match_graph.graph.neighborhood import NeighborhoodSampler
from match_graph.graph.sampler import EgoSampler
from match_graph.graph.tokens import TokenSpace, make_batch
from match_graph.graph.view import Graph, GraphView, view_graph
from match_graph.typing import CONTAINS, DOCUMENT, LABEL, EdgeType, reverse_edge

#: Maximum number of documents' tokens that are cached.
_CACHED_TOKENS = 2**26


def _check_hops(hops: list[int]) -> list[int]:
    if any(fanout < -1 for fanout in hops):
        raise ValueError("a fan-out must be at least 0, or -1 for all")
    return hops


#: A fan-out for each hop.
Hops = Annotated[
    list[Annotated[int, Field(ge=-(2**31), le=10**6)]],
    Field(max_length=256),
    AfterValidator(_check_hops),
]


class NeighborhoodConfig(StrictModel):
    """How far and how wide neighbourhoods are sampled: edges per node at each hop, -1 for all."""

    metadata: Hops = Field([16, 0], description="fan-out document -> metadata of each field")
    words: Hops = Field([64, 0], description="fan-out document -> words")
    metadata_documents: Hops = Field([0, 4], description="fan-out metadata -> documents")
    word_documents: Hops = Field([0, 1], description="fan-out word -> documents")
    cites: Hops = Field([8, 0], description="fan-out document -> cited documents")
    cited_by: Hops = Field([8, 0], description="fan-out document -> citing documents")
    fanouts: dict[str, Hops] = Field(
        default_factory=dict,
        description="fan-outs of single edge types, as 'author rev_has document'; override others",
    )
    document_metadata: int = Field(
        8, ge=0, le=100_000, description="metadata tokens in a document's start state"
    )
    document_words: int = Field(32, ge=0, le=10**6, description="words in a document's start state")

    def resolve(self, edge_types: Iterable[EdgeType]) -> dict[EdgeType, list[int]]:
        """The fan-outs of a graph's edge types in both directions, labels left out.

        Raises:
            ConfigError: ``fanouts`` names another edge type.
        """
        table: dict[EdgeType, list[int]] = {}
        for edge_type in (edge_type for edge_type in edge_types if LABEL not in edge_type):
            there, back = self.metadata, self.metadata_documents
            if edge_type == CONTAINS:
                there, back = self.words, self.word_documents
            elif edge_type[0] == edge_type[2] == DOCUMENT:
                there, back = self.cites, self.cited_by
            table[edge_type], table[reverse_edge(edge_type)] = there, back
        named = {" ".join(edge_type): edge_type for edge_type in table}
        if strangers := sorted(self.fanouts.keys() - named.keys()):
            raise ConfigError(
                f"neighborhood.fanouts must name edge types of the graph or their reverses, found "
                f"{strangers}; choose from {sorted(named)}."
            )
        return {**table, **{named[name]: hops for name, hops in self.fanouts.items()}}


class EgoGraphs:
    """Samples the subgraphs around documents.

    A subgraph has one component for each document (see `NeighborhoodSampler`), and holds what an
    encoder may know of its nodes::

        graph["document"]   n_id, batch [D]; the first B are the batch's documents; input tokens:
                            token_id, field [M] and token_ptr [U + 1]; the list of each document:
                            token_row [D], one for all copies of a reached document
        graph[TYPE]         n_id, batch, token_id [n] for metadata and words
        graph[EDGE_TYPE]    edge_index [2, E], e_id [E] for every edge type that is sampled
        graph["document"]   time [D] where the built graph has times
        graph[TYPE]         x [n, F] of every type that has x there
        graph[EDGE_TYPE]    edge_attr [E, K] of every edge type that has attributes there

    A document's input is its first tokens, within budgets, so that documents of the last hop have
    content without another hop.

    Args:
        data: A built graph.
        config: Fan-outs and budgets.
        space: Token space, for token ids.
        reachable: Mask of documents that may be reached, as in `NeighborhoodSampler`: those of
            training, or None in the transductive setting.
        seed: Random seed of the samples.
        temporal: Whether subgraphs hold no document later than the one that they are around.

    Raises:
        ConfigError: The configuration names an edge type that the graph lacks, or ``temporal`` is
            asked of documents without a time.
    """

    def __init__(
        self,
        data: Graph,
        config: NeighborhoodConfig,
        space: TokenSpace,
        reachable: Tensor | None = None,
        seed: int = 0,
        temporal: bool = False,
    ) -> None:
        self.config, self.space = config, space
        graph = view_graph(data)
        self.sampler = NeighborhoodSampler(
            graph, config.resolve(graph.edge_types), reachable, seed=seed
        )
        sampler = self._make_token_sampler(graph)
        self._tokens, self._seed_tokens = _DocumentTokens(sampler, space), sampler
        self._attributes = _Attributes(graph, self.sampler, reachable is None)
        self._temporal = temporal
        if temporal and self._attributes.time is None:
            raise ConfigError(
                "data.temporal needs the time of every document, but the graph has none; read it "
                "into data['document'].time, or set data.temporal to false."
            )

    def with_random(self, random: bool) -> "EgoGraphs":
        """Copy with samples that change with the epoch, or without; both share the graph."""
        other = copy.copy(self)
        other.sampler = self.sampler.with_random(random)
        return other

    def adopt(self, data: HeteroData) -> "EgoGraphs":
        """Copy for documents that are not in the graph, as `NeighborhoodSampler.adopt`.

        Their ``x`` and ``time`` come from ``data``; by default ``x`` is zero and ``time`` is that
        of the graph's latest document. ``x`` is zero for other unknown nodes too, and so is
        ``edge_attr`` for the edges of ``data``.
        """
        other = copy.copy(self)
        other.sampler = self.sampler.adopt(data)
        other._seed_tokens = self._make_token_sampler(data)
        other._attributes = self._attributes.adopt(data)
        return other

    def set_epoch(self, epoch: int) -> None:
        """Makes random samples depend on (seed, epoch) alone."""
        self.sampler.set_epoch(epoch)

    def sample(self, document: Tensor) -> HeteroData:
        """The subgraph of documents [B], int64."""
        time = self._attributes.time_of(document) if self._temporal else None
        sample = self.sampler.sample(document, time)
        graph = HeteroData()
        for node_type, node in sample.node.items():
            store = graph[node_type]
            store.num_nodes, store.n_id, store.batch = node.numel(), node, sample.root[node_type]
            if node_type in self.space.types:
                store.token_id = self.space.encode(node_type, node)
        for edge_type in self.sampler.edge_types:
            graph[edge_type].edge_index = torch.stack(
                [sample.row[edge_type], sample.col[edge_type]]
            )
            graph[edge_type].e_id = sample.edge[edge_type]
        reached, copy_of = torch.unique(
            sample.node[DOCUMENT][document.numel() :], return_inverse=True
        )
        seeds = make_batch(self._seed_tokens.sample(document), self.space)
        token_id, field, ptr = self._tokens.select(reached)
        store = graph[DOCUMENT]
        store.token_id = torch.cat([seeds.token_id, token_id])
        store.field = torch.cat([seeds.field, field])
        store.token_ptr = torch.cat([seeds.ptr, seeds.ptr[-1] + ptr[1:]])
        own = torch.arange(document.numel())
        store.token_row = torch.cat([own, document.numel() + copy_of])
        self._attributes.fill(graph)
        return graph

    def _make_token_sampler(self, data: Graph) -> EgoSampler:
        return EgoSampler(data, self.config.document_metadata, self.config.document_words)


class _Attributes:
    """Features, times and edge attributes of the sampled node and edge types.

    Adopted documents are numbered after those of the graph.

    Args:
        graph: A built graph.
        sampler: Sampler of the subgraphs, for their node and edge types.
        transductive: Whether nodes without a training document keep their features; else these are
            zero, as in predictions, which do not know such nodes.
    """

    def __init__(self, graph: GraphView, sampler: NeighborhoodSampler, transductive: bool) -> None:
        self._num_documents = graph.num_nodes(DOCUMENT)
        x = {name: graph.node_tensor(name, "x") for name in sampler.num_nodes}
        self._x = {name: values for name, values in x.items() if values is not None}
        for name in () if transductive else self._x:
            if (count := graph.node_tensor(name, "train_count")) is not None:  # descending
                self._x[name] = self._x[name][: int((count > 0).sum())]
        attr = {name: graph.edge_tensor(name, "edge_attr") for name in sampler.edge_types}
        self._edge_attr = {name: values for name, values in attr.items() if values is not None}
        self.time = graph.node_tensor(DOCUMENT, "time")
        self._adopted: HeteroData | None = None

    def adopt(self, data: HeteroData) -> "_Attributes":
        """Copy with the documents of another graph after those of this one."""
        other = copy.copy(self)
        other._adopted = data
        return other

    def time_of(self, document: Tensor) -> Tensor:
        """The time of seeds, [B]."""
        assert self.time is not None
        if self._adopted is None:
            return self.time[document]
        if "time" in self._adopted[DOCUMENT]:
            return self._adopted[DOCUMENT].time[document].to(self.time.dtype)
        return self.time.max().expand(document.numel())

    def fill(self, graph: HeteroData) -> None:
        """Adds ``x``, ``edge_attr`` and ``time`` to a subgraph."""
        for name, x in self._x.items():
            graph[name].x = _take_known(x, graph[name].n_id)
        for edge_type, edge_attr in self._edge_attr.items():
            graph[edge_type].edge_attr = _take_known(edge_attr, graph[edge_type].e_id)
        documents = graph[DOCUMENT]
        if self.time is not None:
            documents.time = _take_known(self.time, documents.n_id)
        if self._adopted is None:
            return
        new = documents.n_id >= self._num_documents
        row = documents.n_id[new] - self._num_documents
        if "x" in documents and "x" in self._adopted[DOCUMENT]:
            documents.x[new] = self._adopted[DOCUMENT].x[row].to(documents.x.dtype)
        if self.time is not None:
            documents.time[new] = self.time_of(row)


def _take_known(values: Tensor, index: Tensor) -> Tensor:
    """Rows of values [V, ...] by index [n], int64; zero for an index out of range."""
    known = (index >= 0) & (index < len(values))
    if bool(known.all()):
        return values[index]
    taken = values.new_zeros(len(index), *values.shape[1:])
    taken[known] = values[index[known]]
    return taken


class _DocumentTokens:
    """Input tokens of documents of the graph, cached.

    Once as many documents have been requested as the graph has, the tokens of all are cached, at 6
    bytes each, if they take at most 400 MB; otherwise they are sampled at each request.

    Args:
        sampler: Sampler of the documents' first neighbours.
        space: Token space, for token ids.
    """

    def __init__(self, sampler: EgoSampler, space: TokenSpace) -> None:
        self.sampler, self.space = sampler, space
        self._num_requested = 0
        self._cached: tuple[Tensor, Tensor, Tensor] | None = None

    def select(self, documents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Token ids [M] and fields [M] of documents [U], and their offsets [U + 1], int64."""
        if self._cached is None:
            self._num_requested += documents.numel()
            budget = self.sampler.max_metadata + self.sampler.max_words
            is_large = self.sampler.num_seeds * budget > _CACHED_TOKENS
            if is_large or self._num_requested <= self.sampler.num_seeds:
                return self._sample(documents)
            token_id, field, ptr = self._sample(torch.arange(self.sampler.num_seeds))
            self._cached = token_id.to(torch.int32), field.to(torch.int16), ptr
        token_id, field, ptr = self._cached
        start = ptr[documents]
        lengths = ptr[documents + 1] - start
        place = ragged_arange(start, lengths)
        return token_id[place].long(), field[place].long(), make_ptr(lengths)

    def _sample(self, documents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch = make_batch(self.sampler.sample(documents), self.space)
        return batch.token_id, batch.field, batch.ptr
