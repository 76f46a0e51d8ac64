"""Names of node and edge types, and the dimensions used in shapes.

Dimensions: B documents of a batch, N packed tokens, C channels, L labels, E label edges, K ranks.
Ragged lists are packed: entry i of a list with ``ptr`` [B + 1] lies at ``ptr[i]:ptr[i + 1]``.
"""

from typing import Literal, TypeAlias

Split: TypeAlias = Literal["train", "valid", "test"]
#: How a text becomes words; see `match_graph.corpus.split_words`.
Tokenizer: TypeAlias = Literal["regex", "unicode", "whitespace"]
EdgeType: TypeAlias = tuple[str, str, str]

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
MASKS: dict[Split, str] = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}

DOCUMENT = "document"
WORD = "word"
LABEL = "label"
RESERVED_TYPES = (DOCUMENT, WORD, LABEL)
#: Name of the table of the words' context vectors; not a node type.
CONTEXT = "context"

CONTAINS: EdgeType = (DOCUMENT, "contains", WORD)
CITES: EdgeType = (DOCUMENT, "cites", DOCUMENT)
TAGGED: EdgeType = (DOCUMENT, "tagged", LABEL)
IS_A: EdgeType = (LABEL, "is_a", LABEL)


def has_edge(field: str) -> EdgeType:
    """The edge type from documents to one metadata field."""
    return (DOCUMENT, "has", field)


def token_edge(node_type: str) -> EdgeType:
    """The edge type from documents to one type of tokens: words, or a metadata field."""
    return CONTAINS if node_type == WORD else has_edge(node_type)


def reverse_edge(edge_type: EdgeType) -> EdgeType:
    """The edge type that PyG's `ToUndirected` adds for the other direction."""
    return (edge_type[2], f"rev_{edge_type[1]}", edge_type[0])
