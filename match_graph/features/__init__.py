"""Features of nodes: from files, memory and language models; checked, aligned and kept."""

from match_graph.features.store import (
    Features,
    identify_features,
    make_features,
    open_embedder,
    open_features,
)
from match_graph.features.text_embedder import TextEmbedder
from match_graph.features.texts import choose_columns, join_texts, list_texts

__all__ = [
    "Features",
    "TextEmbedder",
    "choose_columns",
    "identify_features",
    "join_texts",
    "list_texts",
    "make_features",
    "open_embedder",
    "open_features",
]
