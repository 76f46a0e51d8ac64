"""What graph encoders share: start states of nodes, layers, states of documents."""

from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.transforms import ToUndirected

from match_graph.config import StrictModel
from match_graph.graph import EgoBatch, NeighborhoodConfig, TokenSpace
from match_graph.graph.build import CITATION_FIELD
from match_graph.nn.dropout import ByteDropout
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import Encoder, EncoderOutput
from match_graph.typing import CITES, CONTAINS, DOCUMENT, WORD, EdgeType, has_edge, reverse_edge


class GraphEncoder(Encoder):
    """Messages over the neighbourhoods of documents, by a layer of PyG that a subclass makes.

    Words and metadata start from their embedded tokens, documents from the mean of theirs, so
    that a document that lies at the rim, or is isolated, says what it is about; one linear map
    and a learned vector for each node type follow. Reverse edges are added to the sampled graph.
    Each layer is PyG's, then GELU, dropout, residual and LayerNorm; the last one computes
    documents only. A document's state is that of all layers, the start included, joined: jumping
    knowledge (Xu et al. 2018, https://arxiv.org/abs/1806.03536), so that its own text is not
    smoothed away.

    Args:
        embedding: Embeds tokens.
        config: Settings.
    """

    class Config(StrictModel):
        """Settings; a subclass adds its layer's."""

        num_layers: int = Field(2, ge=1)
        channels: int = Field(128, ge=1)
        dropout: float = Field(0.2, ge=0, lt=1)
        neighborhood: NeighborhoodConfig = Field(default_factory=NeighborhoodConfig)

    needs: ClassVar[frozenset[str]] = frozenset({"graph"})
    gives: ClassVar[Literal["document", "tokens"]] = "document"

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.edge_types = list_edge_types(embedding.space, config.neighborhood)
        touched = {end for kind in self.edge_types for end in kind[::2]}
        self.node_types = [DOCUMENT, *(name for name in embedding.space.types if name in touched)]
        self.out_channels = config.channels * (config.num_layers + 1)
        self.project = nn.Linear(embedding.channels, config.channels)
        self.node_type = nn.Parameter(torch.empty(len(self.node_types), config.channels))
        self.dropout = ByteDropout(config.dropout)
        into_documents = [kind for kind in self.edge_types if kind[2] == DOCUMENT]
        self.layer_edge_types = [self.edge_types] * (config.num_layers - 1) + [into_documents]
        self.layers = nn.ModuleList(
            self.make_layer(config, kinds) for kinds in self.layer_edge_types
        )
        self.norms = nn.ModuleList(nn.LayerNorm(config.channels) for _ in self.layers)
        self.reset_parameters()

    @classmethod
    def neighborhood(cls, config: StrictModel) -> NeighborhoodConfig | None:
        assert isinstance(config, GraphEncoder.Config)
        return config.neighborhood

    def make_layer(self, config: Any, edge_types: list[EdgeType]) -> nn.Module:
        """A layer for messages of some edge types.

        It is called with states [n, channels] by node type and edges [2, E] by edge type, and
        gives new states of the nodes that these edge types lead to.
        """
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Draws the parameters anew."""
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)
        nn.init.normal_(self.node_type, std=0.1)
        for module in (*self.layers, *self.norms):
            module.reset_parameters()

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, channels * (num_layers + 1)]."""
        assert batch.graph is not None
        states = self.encode_documents(batch.graph)
        return EncoderOutput(states[: batch.num_documents], None, batch.ptr)

    def encode_documents(self, graph: HeteroData) -> Tensor:
        """States of all documents of a subgraph, the batch's first, [D, out_channels]."""
        graph = ToUndirected(merge=False)(graph)
        none = torch.empty(2, 0, dtype=torch.int64, device=graph[DOCUMENT].n_id.device)
        edges = dict.fromkeys(self.edge_types, none)  # also where nothing was drawn
        edges.update({kind: graph[kind].edge_index for kind in edges if kind in graph.edge_types})
        states = self.start(graph)
        of_documents = [states[DOCUMENT]]
        steps = zip(self.layers, self.norms, self.layer_edge_types, strict=True)
        for layer, norm, kinds in steps:
            found = layer(states, {kind: edges[kind] for kind in kinds})
            states |= {
                name: norm(states[name] + self.dropout(nn.functional.gelu(found[name])))
                for name in dict.fromkeys(kind[2] for kind in kinds)
            }
            of_documents.append(states[DOCUMENT])
        return torch.cat(of_documents, dim=1)

    def start(self, graph: HeteroData) -> dict[str, Tensor]:
        """The states of the nodes before any message, [n, channels] by type."""
        documents = graph[DOCUMENT]
        none = documents.n_id.new_empty(0)
        embedded = [self.embedding.mean(documents.token_id, documents.field, documents.token_ptr)]
        for name in self.node_types[1:]:
            token_id = graph[name].token_id if name in graph.node_types else none
            field = torch.full_like(token_id, self.embedding.space.field_index(name))
            embedded.append(self.embedding(token_id, field))
        return {
            name: self.project(vectors) + vector
            for name, vectors, vector in zip(self.node_types, embedded, self.node_type, strict=True)
        }


def list_edge_types(space: TokenSpace, neighborhood: NeighborhoodConfig) -> list[EdgeType]:
    """The edge types over which messages go: those that are drawn, each with its reverse."""
    kinds = [CONTAINS if name == WORD else has_edge(name) for name in space.types]
    if CITATION_FIELD in space.types:
        kinds.append(CITES)
    fanouts = neighborhood.resolve(kinds)
    drawn = [kind for kind in kinds if any(fanouts[kind]) or any(fanouts[reverse_edge(kind)])]
    return [*drawn, *map(reverse_edge, drawn)]
