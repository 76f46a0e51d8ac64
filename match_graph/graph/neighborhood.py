"""Neighbourhoods of several hops around documents, sampled by fan-outs, as a PyG sampler."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, NodeSamplerInput

from match_graph.errors import GraphError
from match_graph.graph.adjacency import Adjacency, ReachableLists, check_times
from match_graph.graph.csr import check_rows, make_ptr, row_index
from match_graph.graph.hashing import hash_keys, hash_type, sample_subsets
from match_graph.graph.sampler import EpochSampler
from match_graph.graph.view import Graph, GraphView, view_graph
from match_graph.typing import DOCUMENT, LABEL, MASKS, EdgeType, reverse_edge


@dataclass(frozen=True)
class Neighborhood:
    """The neighbourhoods of B seeds, one component each: a node that two seeds reach occurs twice.

    Args:
        node: Node indices in the graph, per node type, in the order of discovery, so that
            the seeds come first, int64.
        root: Index of the seed whose component each node is in, per node type, int64.
        row: Source of every edge as an index into ``node``, per edge type, int64.
        col: Target of every edge as an index into ``node``, per edge type, int64.
        edge: Edges as indices into ``edge_index`` of the graph, per edge type, each once in a
            component, int64.
    """

    node: dict[str, Tensor]
    root: dict[str, Tensor]
    row: dict[EdgeType, Tensor]
    col: dict[EdgeType, Tensor]
    edge: dict[EdgeType, Tensor]


class NeighborhoodSampler(EpochSampler):
    """Samples neighbourhoods of several hops; vectorised, O(fan-out) per sample.

    A node is expanded once, with the fan-outs of the hop after the one that reached it. For each
    edge type from it, or reversed to it, that many edges are sampled uniformly without replacement,
    at a cost that does not depend on its degree. The edges of the result keep the direction of the
    graph, whichever way they were followed.

    Every seed has a component of its own, so that its state cannot depend on the other seeds of a
    batch, even if an encoder adds reverse edges. Samples are hashes of (seed, node, edge type), and
    of epoch and seed document where they are random, so that they depend on no other sample. If
    they are not random, the hash of the first hop leaves the node out: a document then samples the
    same in the graph and as a new one, and from lists of one length all documents take the same
    places.

    A seed that is ``reachable``, as training documents are, may be sampled at a later hop of its
    own component, where it adds nothing: other seeds reach a few more documents by the same
    fan-outs.

    No edge that touches a ``label`` node is ever sampled. Nodes of the seeds' type are reached only
    if ``reachable``, by any edge type; in a sample up to a time, on any hop, only if their ``time``
    is not later than that of the component's seed. Equal times are reached, as in PyG's temporal
    sampling: many sources know the year alone.

    pyg-lib is not used, even if installed: it samples from one global generator, so that a
    document's neighbourhood would depend on its batch, and it cannot leave out unreachable nodes.

    Args:
        data: A graph, in memory or in files, which are read in place; plain PyPI packages are
            enough. Samples up to a time need the ``time`` of the seeds' type, [num_nodes].
        fanouts: Number of edges to sample at each hop, by edge type or its reverse
            ``(target, "rev_" + name, source)``; -1 samples all, missing hops sample none.
        reachable: Mask of the nodes of ``seed_type`` that may be reached, [num_nodes], bool; None
            for all.
        random: Whether samples depend on the epoch and the seed document.
        seed: Random seed of the samples.
        seed_type: Node type of the seeds.

    Raises:
        GraphError: An edge type is unknown or touches labels, a fan-out is below -1, or
            ``reachable`` is not a mask of the seeds' type.
    """

    def __init__(
        self,
        data: Graph,
        fanouts: Mapping[EdgeType, Sequence[int]],
        reachable: Tensor | None = None,
        random: bool = False,
        seed: int = 0,
        seed_type: str = DOCUMENT,
    ) -> None:
        graph = view_graph(data)
        num_seeds = graph.num_nodes(seed_type)
        _check_fanouts(graph.edge_types, fanouts)
        _check_mask(reachable, num_seeds, seed_type)
        self.random, self.seed, self.seed_type = random, seed, seed_type
        self.fanouts = {edge_type: tuple(hops) for edge_type, hops in fanouts.items() if any(hops)}
        self.num_hops = max(map(len, self.fanouts.values()), default=0)
        self.edge_types = tuple(
            edge_type
            for edge_type in graph.edge_types
            if self.fanouts.keys() & {edge_type, reverse_edge(edge_type)}
        )
        types = dict.fromkeys(
            [seed_type, *(end for edge_type in self.edge_types for end in edge_type[::2])]
        )
        self.num_nodes = {name: graph.num_nodes(name) for name in types}
        train = graph.node_tensor(seed_type, MASKS["train"])
        self._is_training = (
            reachable is not None and train is not None and torch.equal(reachable, train)
        )
        self._reachable = reachable
        self._time, self._num_known = graph.node_tensor(seed_type, "time"), num_seeds
        self._seed_lists = self._lists = self._make_lists(graph)
        self._first_seed = 0

    def with_random(self, random: bool) -> "NeighborhoodSampler":
        """Copy with random samples or without; both share the graph."""
        other = copy.copy(self)
        other.random = random
        return other

    def adopt(self, data: HeteroData) -> "NeighborhoodSampler":
        """Copy for seeds that are not nodes of the graph.

        Args:
            data: Graph of the seeds, with the edges that start at them, and those that end at them
                as reverse edge types. The other ends are numbered as in the graph; larger numbers
                are unknown nodes.

        Returns:
            It samples around the seeds of ``data``. In its samples they are numbered after the
            graph's nodes, and their edges have negative indices.
        """
        other = copy.copy(self)
        other._seed_lists = self._adopt_lists(view_graph(data))
        other._first_seed = self.num_nodes[self.seed_type]
        other.num_nodes = {
            name: max(size, int(data[name].num_nodes)) if name in data.node_types else size
            for name, size in self.num_nodes.items()
        }
        num_seeds = int(data[self.seed_type].num_nodes)
        other.num_nodes[self.seed_type] = other._first_seed + num_seeds
        return other

    def sample(self, seed: Tensor, time: Tensor | None = None) -> Neighborhood:
        """The neighbourhoods of seeds.

        Args:
            seed: Seeds, [B], int64.
            time: Latest time of the nodes of their type that each may reach, [B], as in the
                graph's ``time``; None for any. A sample depends on it even if it excludes no node.

        Raises:
            GraphError: A seed is not in the graph, the graph has no ``time``, or ``time`` is not of
                its form.
        """
        check_rows(seed, self.num_nodes[self.seed_type] - self._first_seed, self.seed_type)
        if time is not None:
            check_times(self._time, self._num_known, self.seed_type, time, seed.numel())
        visited = {name: _Visited(size) for name, size in self.num_nodes.items()}
        visited[self.seed_type].add(torch.arange(seed.numel()), seed + self._first_seed)
        steps: list[_Step] = []
        for hop in range(self.num_hops):
            found = self._follow(seed, time, visited, hop)
            for nodes in visited.values():
                nodes.first_new = nodes.node.numel()
            for target in dict.fromkeys(step.lists.target for step in found):
                into = [step for step in found if step.lists.target == target]
                roots, nodes_found = zip(*((step.root, step.node) for step in into), strict=True)
                places = visited[target].add(torch.cat(roots), torch.cat(nodes_found))
                for step, place in zip(into, places.split(list(map(len, roots))), strict=True):
                    step.target_place = place
            steps += found
        row, col, edge = {}, {}, {}
        for edge_type in self.edge_types:
            of_type = [step for step in steps if step.lists.edge_type == edge_type]
            row[edge_type], col[edge_type], edge[edge_type] = _join_edges(of_type)
        node = {name: nodes.node for name, nodes in visited.items()}
        root = {name: nodes.root for name, nodes in visited.items()}
        return Neighborhood(node, root, row, col, edge)

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> HeteroSamplerOutput:
        """PyG's form of `sample`, up to ``index.time`` if there is one.

        ``batch`` tells the components apart.

        Raises:
            GraphError: As `sample` and `take_seeds`.
        """
        sample = self.sample(self.take_seeds(index), index.time)
        return HeteroSamplerOutput(
            node=sample.node,
            row=sample.row,
            col=sample.col,
            edge=sample.edge,
            batch=sample.root,
            metadata=(index.input_id, index.time, sample),
        )

    def _follow(
        self, seed: Tensor, limit: Tensor | None, visited: dict[str, "_Visited"], hop: int
    ) -> list["_Step"]:
        """Samples edges of all nodes that the last hop found, by every edge type of this hop."""
        pending, keys = [], []
        epoch = self.epoch + 1 if self.random else 0
        for edge_type, reachable in (self._lists if hop else self._seed_lists).items():
            fanout = self.fanouts[edge_type][hop] if hop < len(self.fanouts[edge_type]) else 0
            nodes = visited[reachable.lists.source]
            node, root = nodes.node[nodes.first_new :], nodes.root[nodes.first_new :]
            if not fanout or not node.numel():
                continue
            # without its index, so that a document samples the same in the graph and adopted
            name = node if hop else torch.zeros_like(node)
            owner = seed[root] if self.random else 0
            keys.append(hash_keys(self.seed, epoch, hash_type(edge_type), owner, name))
            node = node if hop else node - self._first_seed
            latest = None if limit is None else limit[root]
            candidates = reachable.find_candidates(node, latest)
            count = candidates.degree if fanout < 0 else candidates.degree.clamp(max=fanout)
            pending.append((candidates, count, root, nodes.first_new))
        if not pending:
            return []
        degrees = torch.cat([candidates.degree for candidates, *_ in pending])
        counts = [count for _, count, *_ in pending]
        sampled = sample_subsets(degrees, torch.cat(counts), torch.cat(keys))
        offsets = sampled.split([int(count.sum()) for count in counts])
        steps = []
        for (candidates, count, root, first), offset in zip(pending, offsets, strict=True):
            lists, row = candidates.lists, row_index(make_ptr(count))
            node, edge = candidates.take(row, offset)
            if not hop and self._first_seed:
                edge = -1 - 2 * edge - int(lists.backwards)  # unlike the graph's
            steps.append(_Step(lists, root[row], first + row, node, edge))
        return steps

    def _make_lists(self, graph: GraphView) -> dict[EdgeType, ReachableLists]:
        """Reachable neighbours by sampled edge type."""
        forward = {reverse_edge(edge_type): edge_type for edge_type in self.edge_types}
        found = {}
        for edge_type in self.fanouts:
            backwards = edge_type not in self.edge_types
            name = forward[edge_type] if backwards else edge_type
            lists = graph.adjacency(name, backwards)
            found[edge_type] = ReachableLists(lists)
            if lists.target == self.seed_type:
                found[edge_type] = ReachableLists(
                    lists, self._reachable, self._is_training, self._time
                )
        return found

    def _adopt_lists(self, graph: GraphView) -> dict[EdgeType, ReachableLists]:
        """Reachable neighbours of adopted seeds, by those edge types that they have."""
        found = {}
        for edge_type, known in self._lists.items():
            if edge_type not in graph.edge_types:
                continue
            name, backwards = known.lists.edge_type, known.lists.backwards
            lists = graph.adjacency(edge_type)  # not sorted by training and time
            lists = replace(lists, edge_type=name, backwards=backwards, stop=None)
            found[edge_type] = replace(known, lists=lists)
        return found


class _Visited:
    """The nodes of one type that a sample has found, each once in a component."""

    def __init__(self, num_nodes: int) -> None:
        self.num_nodes = num_nodes
        self.node, self.root, self._keys, self._places = torch.empty(4, 0, dtype=torch.int64)
        self.first_new = 0

    def add(self, root: Tensor, node: Tensor) -> Tensor:
        """The places of nodes [R] of components [R]; what is new goes to the end."""
        key = root * self.num_nodes + node
        size = self._keys.numel()
        at = torch.searchsorted(self._keys, key)
        known = torch.zeros_like(key, dtype=torch.bool)
        if size:
            known = self._keys[at.clamp(max=size - 1)] == key
        new, inverse = torch.unique(key[~known], return_inverse=True)
        place = torch.empty_like(key)
        place[known] = self._places[at[known]]
        place[~known] = size + inverse
        self.node = torch.cat([self.node, new % self.num_nodes])
        self.root = torch.cat([self.root, new // self.num_nodes])
        self._keys, order = torch.sort(torch.cat([self._keys, new]))
        self._places = torch.cat([self._places, torch.arange(size, size + new.numel())])[order]
        return place


@dataclass
class _Step:
    """Edges of one type that one hop samples, E in all.

    Args:
        lists: Neighbour lists that were followed.
        root: Component of each edge, [E].
        source_place: Index of each followed node among the found ones of its type, [E].
        node: Neighbour at the other end of each edge, [E].
        edge: Index of each edge, [E].
        target_place: Index of each neighbour among the found nodes of its type, [E]; set later.
    """

    lists: Adjacency
    root: Tensor
    source_place: Tensor
    node: Tensor
    edge: Tensor
    target_place: Tensor = field(init=False)

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Row and column of the edges in the direction of the graph, [E] each."""
        if self.lists.backwards:
            return self.target_place, self.source_place
        return self.source_place, self.target_place


def _join_edges(steps: list[_Step]) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and edge of all edges of a type, each edge once in a component."""
    if not steps:
        empty = torch.empty(0, dtype=torch.int64)
        return empty, empty, empty
    root, edge = (torch.cat([getattr(step, name) for step in steps]) for name in ("root", "edge"))
    row, col = (torch.cat(ends) for ends in zip(*(step.ends for step in steps), strict=True))
    if not edge.numel():
        return row, col, edge
    least = edge.min()
    key, order = torch.sort(root * (edge.max() - least + 1) + edge - least)
    order = order[torch.cat([key.new_ones(1, dtype=torch.bool), key[1:] != key[:-1]])]
    return row[order], col[order], edge[order]


def _check_fanouts(
    edge_types: Sequence[EdgeType], fanouts: Mapping[EdgeType, Sequence[int]]
) -> None:
    allowed = [edge_type for edge_type in edge_types if LABEL not in edge_type]
    known = [*allowed, *map(reverse_edge, allowed)]
    if not isinstance(fanouts, Mapping):
        raise GraphError(
            f"fanouts must be a dict of fan-outs per hop by edge type, found {fanouts!r:.60}; give "
            f"each edge type its own, as {{{known[0] if known else 'edge_type'}: [5, 5]}}."
        )
    for edge_type, hops in fanouts.items():
        if edge_type not in known:
            raise GraphError(
                f"NeighborhoodSampler samples edges of the graph or their reverses that do not "
                f"touch labels, found {edge_type}; choose from {known}."
            )
        if any(fanout < -1 for fanout in hops):
            raise GraphError(
                f"A fan-out must be at least 0, or -1 for all, found {list(hops)} for {edge_type}."
            )


def _check_mask(reachable: Tensor | None, num_nodes: int, seed_type: str) -> None:
    if reachable is not None and (
        reachable.dtype != torch.bool or list(reachable.shape) != [num_nodes]
    ):
        raise GraphError(
            f"reachable must be a mask of the {num_nodes} nodes of '{seed_type}', found "
            f"{reachable.dtype} {list(reachable.shape)}."
        )
