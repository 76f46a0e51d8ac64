"""MATCH with a graph encoder: the Transformer also reads the documents near a document."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from match_graph.config import StrictModel
from match_graph.graph import EgoBatch, NeighborhoodConfig
from match_graph.graph.csr import make_ptr, ragged_arange
from match_graph.nn.attention import reset_layers
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import NumLayers, Width
from match_graph.nn.encoders.hetero_sage import HeteroSageEncoder
from match_graph.nn.encoders.match import MatchEncoder
from match_graph.typing import DOCUMENT


class MatchHeteroEncoder(MatchEncoder):
    """The encoder of MATCH over [CLS], metadata, words, and a token for each document nearby.

    The documents that a document cites, that cite it, and that share metadata with it are sampled
    with their own metadata and encoded by `HeteroSageEncoder`; their states, and the document's
    own, are mapped to the width of the Transformer and follow its other tokens, with a learned
    vector for its own and one for those of the others. Not of the paper, whose encoder sees no
    other document; its preset "paper" is that of MATCH, for what the two share.
    """

    class Config(MatchEncoder.Config):
        """Settings: those of MATCH, and of its graph encoder."""

        graph_layers: NumLayers = Field(2, description="number of graph layers")
        graph_channels: Width = Field(64, description="width of node states")
        neighborhood: NeighborhoodConfig = Field(
            default_factory=lambda: NeighborhoodConfig(words=[0], word_documents=[0])
        )

    needs: ClassVar[frozenset[str]] = frozenset({"tokens", "graph"})

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        inner = HeteroSageEncoder.Config(
            num_layers=config.graph_layers,
            channels=config.graph_channels,
            dropout=config.dropout,
            neighborhood=config.neighborhood,
        )
        self.graph_encoder = HeteroSageEncoder(embedding, inner)
        self.adapt = nn.Linear(self.graph_encoder.out_channels, self.channels)
        self.role = nn.Parameter(torch.empty(2, self.channels))  # the document's own, another's
        self.reset_parameters()

    @classmethod
    def neighborhood(cls, config: StrictModel) -> NeighborhoodConfig | None:
        assert isinstance(config, MatchHeteroEncoder.Config)
        return config.neighborhood

    def reset_parameters(self) -> None:
        """Reinitializes the parameters."""
        super().reset_parameters()
        if not hasattr(self, "role"):  # called by the constructor of MATCH
            return
        self.graph_encoder.reset_parameters()
        reset_layers(self.adapt)
        nn.init.normal_(self.role, std=0.1)

    def join(self, batch: EgoBatch) -> tuple[Tensor, Tensor]:
        """Layer input of MATCH, with the states of documents behind the words of each document."""
        assert batch.graph is not None
        tokens, ptr = super().join(batch)
        root = batch.graph[DOCUMENT].batch
        is_other = torch.arange(root.numel(), device=root.device) >= batch.num_documents
        states = self.adapt(self.graph_encoder.encode_documents(batch.graph))
        states = states + nn.functional.embedding(is_other.long(), self.role)
        order = torch.argsort(root, stable=True)
        added = torch.bincount(root, minlength=batch.num_documents)
        lengths = ptr.diff()
        new_ptr = make_ptr(lengths + added)
        joined = tokens.new_empty(int(new_ptr[-1]), self.channels)
        joined = joined.index_copy(0, ragged_arange(new_ptr[:-1], lengths), tokens)
        place = ragged_arange(new_ptr[:-1] + lengths, added)
        return joined.index_copy(0, place, states[order].to(joined.dtype)), new_ptr
