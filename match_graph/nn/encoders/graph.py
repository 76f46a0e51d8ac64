"""Base of graph encoders: start states of nodes, layers, document states."""

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import UninitializedParameter
from torch_geometric.data import HeteroData

from match_graph.config import StrictModel
from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch, NeighborhoodConfig, TokenSpace
from match_graph.graph.build import CITATION_FIELD
from match_graph.nn.attention import reset_layers
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import Encoder, EncoderOutput, NumLayers, Rate, Width
from match_graph.nn.layers import ByteDropout
from match_graph.nn.neighbors import Neighbors, take_rows
from match_graph.typing import CITES, DOCUMENT, EdgeType, reverse_edge, token_edge


class GraphEncoder(Encoder):
    """Message passing over sampled neighbourhoods, by a layer that a subclass makes.

    Words and metadata start from their embedded tokens, documents from the mean of theirs and from
    their features, so that a document at the sample's boundary, or without edges, has a state of
    its own; one linear map and a learned vector for each node type follow. Reverse edges are added
    to the sampled graph. Each layer is followed by GELU, dropout, residual and LayerNorm, the same
    for all, so that encoders differ in their messages alone. The last layer updates documents only,
    and each other one only the nodes that a later one reads. A document's state joins those of all
    layers, the start included: jumping knowledge (Xu et al. 2018,
    https://arxiv.org/abs/1806.03536), so that its own text is not smoothed away.
    """

    class Config(StrictModel):
        """Settings; a subclass adds its layer's."""

        num_layers: NumLayers = Field(2, description="number of layers, rounds of messages")
        channels: Width = Field(128, description="width of node states")
        dropout: Rate = Field(0.2, description="dropout rate after each layer")
        neighborhood: NeighborhoodConfig = Field(default_factory=NeighborhoodConfig)

    needs: ClassVar[frozenset[str]] = frozenset({"graph"})
    takes_lists: ClassVar[bool] = False  # whether its layers take `Neighbors`, not edges

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.edge_types = list_edge_types(embedding.space, config.neighborhood)
        touched = {end for edge_type in self.edge_types for end in edge_type[::2]}
        self.node_types = [DOCUMENT, *(name for name in embedding.space.types if name in touched)]
        self.out_channels = config.channels * (config.num_layers + 1)
        self.project = nn.Linear(embedding.channels, config.channels)
        self.node_type = nn.Parameter(torch.empty(len(self.node_types), config.channels))
        self.dropout = ByteDropout(config.dropout)
        into_documents = [edge_type for edge_type in self.edge_types if edge_type[2] == DOCUMENT]
        self._forwards = {reverse_edge(edge_type): edge_type for edge_type in self.edge_types}
        self.layer_edge_types = [self.edge_types] * (config.num_layers - 1) + [into_documents]
        with warnings.catch_warnings():  # of PyG, on node types that a layer need not update
            warnings.filterwarnings("ignore", "There exist node types", UserWarning)
            self.layers = nn.ModuleList(
                self._check_layer(self.make_layer(config, edge_types))
                for edge_types in self.layer_edge_types
            )
        self.norms = nn.ModuleList(nn.LayerNorm(config.channels) for _ in self.layers)
        self.reset_parameters()

    @classmethod
    def neighborhood(cls, config: StrictModel) -> NeighborhoodConfig | None:
        assert isinstance(config, GraphEncoder.Config)
        return config.neighborhood

    def make_layer(self, config: Any, edge_types: list[EdgeType]) -> nn.Module:
        """A layer for messages of some edge types.

        It is called with states [n, channels] by node type and edges [2, E] by edge type, as PyG's
        layers are, and gives new states of the nodes that these edge types lead to. With
        ``takes_lists`` it gets `Neighbors` by edge type instead, whose targets are the first nodes
        of their type, and gives new states of these alone. Widths must be known: nothing is lazy.
        """
        raise NotImplementedError

    def _check_layer(self, layer: Any) -> nn.Module:
        if not isinstance(layer, nn.Module) or not hasattr(layer, "reset_parameters"):
            raise ConfigError(
                f"make_layer of '{type(self).__name__}' must return a module with "
                f"reset_parameters, found {type(layer).__name__}."
            )
        if any(isinstance(one, UninitializedParameter) for one in layer.parameters()):
            raise ConfigError(
                f"Layers of '{type(self).__name__}' must be made with known widths, found "
                f"parameters without a shape; give (channels, channels) where PyG takes (-1, -1)."
            )
        return layer

    def _check_states(self, found: Any, name: str, size: int) -> None:
        channels = self.project.out_features
        is_mapping = isinstance(found, Mapping)
        new = found.get(name) if is_mapping else None
        if not isinstance(new, Tensor) or new.shape[1:] != (channels,) or len(new) < size:
            other = type(new if is_mapping else found).__name__
            shape = list(new.shape) if isinstance(new, Tensor) else other
            raise ConfigError(
                f"Layers of '{type(self).__name__}' must give states [n, {channels}] by node type, "
                f"for n = {size} of '{name}', found {shape}."
            )

    def reset_parameters(self) -> None:
        """Reinitializes the parameters."""
        reset_layers(self.project)
        nn.init.normal_(self.node_type, std=0.1)
        for module in (*self.layers, *self.norms):
            module.reset_parameters()

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, channels * (num_layers + 1)]."""
        assert batch.graph is not None
        states = self.encode_documents(batch.graph, batch.num_documents)
        return EncoderOutput(states, None, batch.ptr)

    def encode_documents(self, graph: HeteroData, number: int | None = None) -> Tensor:
        """States of the first documents of a subgraph, [number, out_channels]; None for all.

        Args:
            graph: Sampled subgraph; nodes in the order of discovery, so that what a layer need not
                compute lies at the end.
            number: Number of first documents whose states are wanted; the batch's come first.
        """
        number = graph[DOCUMENT].num_nodes if number is None else number
        lists = self._list_neighbors(graph)
        steps = self._find_steps(lists, number)
        states = self.start(graph)
        of_documents = [states[DOCUMENT][:number]]
        for layer, norm, step in zip(self.layers, self.norms, steps, strict=True):
            found = layer(states, step if self.takes_lists else _list_edges(step))
            sizes = {edge_type[2]: neighbors.num_targets for edge_type, neighbors in step.items()}
            for name, size in sizes.items():
                self._check_states(found, name, size)
                new = self.dropout(nn.functional.gelu(found[name][:size]))
                states[name] = norm(states[name][:size] + new)
            of_documents.append(states[DOCUMENT][:number])
        return torch.cat(of_documents, dim=1)

    def _list_neighbors(self, graph: HeteroData) -> dict[EdgeType, Neighbors]:
        """The sampled edges and their reverses, empty where nothing was sampled."""
        lists = {}
        for edge_type in self.edge_types:
            edge_index = graph[DOCUMENT].n_id.new_empty(2, 0)
            forwards = edge_type in graph.edge_types
            if forwards:
                edge_index = graph[edge_type].edge_index
            elif (sampled := self._forwards.get(edge_type)) in graph.edge_types:
                edge_index = graph[sampled].edge_index.flip(0)
            num_targets = graph[edge_type[2]].num_nodes if edge_type[2] in graph.node_types else 0
            lists[edge_type] = Neighbors.from_edges(edge_index, num_targets)
        return lists

    def _find_steps(
        self, lists: dict[EdgeType, Neighbors], number: int
    ) -> list[dict[EdgeType, Neighbors]]:
        """Neighbour lists per layer, of those nodes that the first documents depend on by it."""
        sizes = dict.fromkeys(self.node_types, 0) | {DOCUMENT: number}
        steps = []
        for edge_types in reversed(self.layer_edge_types):
            step = {
                edge_type: lists[edge_type].first(sizes[edge_type[2]]) for edge_type in edge_types
            }
            for edge_type, neighbors in step.items():
                sizes[edge_type[0]] = max(sizes[edge_type[0]], neighbors.num_sources)
            steps.append(step)
        return steps[::-1]

    def start(self, graph: HeteroData) -> dict[str, Tensor]:
        """The states of the nodes before any message, [n, channels] by type.

        A document that lies in several neighbourhoods is embedded once: its copies start from the
        same dropped tokens and channels.
        """
        documents, space = graph[DOCUMENT], self.embedding.space
        token_id, field = [documents.token_id], [documents.field]
        for name in self.node_types[1:]:  # a list of one token for each node
            tokens = graph[name].token_id if name in graph.node_types else token_id[0][:0]
            token_id.append(tokens)
            field.append(torch.full_like(tokens, space.field_index(name)))
        sizes = [documents.token_ptr.numel() - 1, *map(len, token_id[1:])]
        ends = torch.arange(1, sum(sizes[1:]) + 1, device=documents.token_ptr.device)
        ptr = torch.cat([documents.token_ptr, documents.token_ptr[-1] + ends])
        embedded = self.embedding.mean(torch.cat(token_id), torch.cat(field), ptr)
        split = self.project(embedded).split(sizes)
        states = {
            name: vectors + vector
            for name, vectors, vector in zip(self.node_types, split, self.node_type, strict=True)
        }
        states[DOCUMENT] = take_rows(states[DOCUMENT], documents.token_row)
        if self.embedding.document is not None:
            vectors = self.embedding.dropout(self.embedding.document(documents.x))
            states[DOCUMENT] = states[DOCUMENT] + F.linear(vectors, self.project.weight)
        return states


def _list_edges(lists: dict[EdgeType, Neighbors]) -> dict[EdgeType, Tensor]:
    return {edge_type: neighbors.edge_index for edge_type, neighbors in lists.items()}


def key_of(node_type: str) -> str:
    """The name of a node type in PyG's layers.

    PyG names parameters and modules by node types and joins those of an edge type by underscores;
    a metadata field called ``type``, ``keys`` or ``name_`` would clash with an attribute of the
    module, or be split in the wrong place when PyG takes the name apart.
    """
    return f"{node_type}-"


def key_of_edge(edge_type: EdgeType) -> EdgeType:
    """The name of an edge type in PyG's layers."""
    return key_of(edge_type[0]), edge_type[1], key_of(edge_type[2])


def list_edge_types(space: TokenSpace, neighborhood: NeighborhoodConfig) -> list[EdgeType]:
    """The edge types of messages: those that are sampled, each with its reverse."""
    edge_types = [token_edge(name) for name in space.types]
    if CITATION_FIELD in space.types:
        edge_types.append(CITES)
    fanouts = neighborhood.resolve(edge_types)
    sampled = [
        edge_type
        for edge_type in edge_types
        if any(fanouts[edge_type]) or any(fanouts[reverse_edge(edge_type)])
    ]
    return [*sampled, *map(reverse_edge, sampled)]
