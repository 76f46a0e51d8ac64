"""Common read interface of graphs, for memory-mapped files and `HeteroData`."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.errors import GraphError
from match_graph.graph.adjacency import Adjacency
from match_graph.typing import MASKS, EdgeType


class GraphView(Protocol):
    """Read interface of a graph: counts, attributes and neighbour lists by type.

    `MappedGraph` implements it; `view_graph` wraps a `HeteroData` in it.
    """

    @property
    def node_types(self) -> list[str]:
        """Node types, in their order."""

    @property
    def edge_types(self) -> list[EdgeType]:
        """Edge types, in their order."""

    def num_nodes(self, node_type: str) -> int:
        """Number of nodes of a type."""

    def num_edges(self, edge_type: EdgeType) -> int:
        """Number of edges of a type."""

    def is_sequence(self, edge_type: EdgeType) -> bool:
        """Whether the lists of an edge type are sequences, such as words, and not sets."""

    def node_tensor(self, node_type: str, name: str) -> Tensor | None:
        """Attribute of the nodes of a type, [num_nodes, ...]; None where they have no such."""

    def edge_tensor(self, edge_type: EdgeType, name: str) -> Tensor | None:
        """Attribute of the edges of a type, [E, ...]; None where they have no such."""

    def list_attributes(self, of: str | EdgeType) -> list[str]:
        """Names of the attributes of a node type or an edge type."""

    def adjacency(self, edge_type: EdgeType, backwards: bool = False) -> Adjacency:
        """Neighbour lists of an edge type, by its sources or backwards by its targets."""

    def edge_index(self, edge_type: EdgeType) -> Tensor:
        """Edges of a type, [2, E]; in memory, for small types."""

    def train_degree(self, edge_type: EdgeType) -> Tensor:
        """Edges at each target whose source is of training, [num_targets], int64.

        Where sources have no training mask all edges count.
        """

    def without(self, node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> "GraphView":
        """Copy that hides types; edges of hidden nodes go with them."""

    def with_edges(self, edges: Mapping[EdgeType, Tensor]) -> "GraphView":
        """Copy with other edges of some types, [2, E] each, that have no attributes."""

    @property
    def loader_data(self) -> Any:
        """The graph as PyG's loaders take it."""


#: What samplers, token spaces and statistics take as a graph.
Graph: TypeAlias = HeteroData | GraphView


class MemoryGraph:
    """`GraphView` of a `HeteroData`; neighbour lists are made on first use.

    Args:
        data: A graph; not copied, and not to be changed while the view is used.
    """

    def __init__(self, data: HeteroData) -> None:
        self.loader_data = data
        self._data = data
        self._lists: dict[tuple[EdgeType, bool], Adjacency] = {}

    @property
    def node_types(self) -> list[str]:
        return list(self._data.node_types)

    @property
    def edge_types(self) -> list[EdgeType]:
        return list(self._data.edge_types)

    def num_nodes(self, node_type: str) -> int:
        return count_nodes(self._data, node_type)

    def num_edges(self, edge_type: EdgeType) -> int:
        return int(self._data[edge_type].edge_index.size(1))

    def is_sequence(self, edge_type: EdgeType) -> bool:
        """Whether the edges of a type have a ``position``."""
        return "position" in self._data[edge_type]

    def node_tensor(self, node_type: str, name: str) -> Tensor | None:
        return self._data[node_type].get(name)

    def edge_tensor(self, edge_type: EdgeType, name: str) -> Tensor | None:
        return self._data[edge_type].get(name)

    def list_attributes(self, of: str | EdgeType) -> list[str]:
        return [key for key in self._data[of] if key not in ("num_nodes", "edge_index", "position")]

    def adjacency(self, edge_type: EdgeType, backwards: bool = False) -> Adjacency:
        if (edge_type, backwards) not in self._lists:
            edge_index = self.edge_index(edge_type)
            self._lists[edge_type, backwards] = make_lists(self, edge_type, edge_index, backwards)
        return self._lists[edge_type, backwards]

    def edge_index(self, edge_type: EdgeType) -> Tensor:
        return self._data[edge_type].edge_index

    def train_degree(self, edge_type: EdgeType) -> Tensor:
        train = self.node_tensor(edge_type[0], MASKS["train"])
        row, col = self.edge_index(edge_type)
        chosen = col if train is None else col[train[row.long()]]
        return torch.bincount(chosen, minlength=self.num_nodes(edge_type[2]))

    def without(self, node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> "MemoryGraph":
        kept = [name for name in self.node_types if name not in node_types]
        data = self._data.node_type_subgraph(kept)
        for edge_type in {*edge_types} & {*data.edge_types}:
            del data[edge_type]
        return MemoryGraph(data)

    def with_edges(self, edges: Mapping[EdgeType, Tensor]) -> "MemoryGraph":
        data = copy.copy(self._data)
        for edge_type, edge_index in edges.items():
            data[edge_type].clear()
            data[edge_type].edge_index = edge_index
        return MemoryGraph(data)


def count_nodes(data: HeteroData, node_type: str) -> int:
    """Number of nodes of a type.

    Raises:
        GraphError: There is no such type, or its number of nodes is unknown.
    """
    number = data[node_type].num_nodes if node_type in data.node_types else None
    if number is None:
        raise GraphError(
            f"A graph must tell how many nodes of each type it has, found no number of "
            f"'{node_type}'; set data['{node_type}'].num_nodes."
        )
    return int(number)


def make_lists(
    graph: GraphView, edge_type: EdgeType, edge_index: Tensor, backwards: bool
) -> Adjacency:
    """Neighbour lists of edges [2, E] between the nodes of a graph, in the order of a built graph.

    Forward lists are sorted by ``position`` if the edges have one.
    """
    source, _, target = edge_type
    if not backwards:
        position = graph.edge_tensor(edge_type, "position")
        return Adjacency.from_edges(edge_type, edge_index, graph.num_nodes(source), position)
    time = graph.node_tensor(source, "time")
    if time is not None and list(time.shape) != [graph.num_nodes(source)]:
        time = None  # samples up to a time say what is wrong with it
    train = graph.node_tensor(source, MASKS["train"])
    return Adjacency.by_training(edge_type, edge_index, graph.num_nodes(target), train, time)


def view_graph(graph: Graph) -> GraphView:
    """A graph as `GraphView`; one that is a view already is returned as it is."""
    return MemoryGraph(graph) if isinstance(graph, HeteroData) else graph
