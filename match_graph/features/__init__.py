"""Features of nodes: from files, memory and texts; checked, aligned and kept."""

from match_graph.features.latent import LatentTexts
from match_graph.features.neighbors import NeighborPredictor
from match_graph.features.store import (
    VECTORS,
    Features,
    identify_features,
    make_features,
    open_embedder,
    open_features,
)
from match_graph.features.text_embedder import TextEmbedder
from match_graph.features.texts import choose_columns, join_texts, list_texts
from match_graph.features.vectors import TextVectors, read_text_vectors

__all__ = [
    "VECTORS",
    "Features",
    "LatentTexts",
    "NeighborPredictor",
    "TextEmbedder",
    "TextVectors",
    "choose_columns",
    "identify_features",
    "join_texts",
    "list_texts",
    "make_features",
    "open_embedder",
    "open_features",
    "read_text_vectors",
]
