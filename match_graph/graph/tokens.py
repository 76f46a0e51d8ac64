"""Nodes -> token ids: one table of embeddings for metadata and words."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.errors import GraphError
from match_graph.typing import DOCUMENT, RESERVED_TYPES, WORD

PAD_ID = 0


@dataclass(frozen=True)
class TokenSpace:
    """Token ids of metadata and words: [PAD], one [UNK] per type, then the kept nodes of each type.

    Nodes of a type are ordered by training frequency, so the kept ones are a prefix and a node's
    id is ``offset + index`` if ``index < num_kept``, else the [UNK] of its type.

    Args:
        types: Node types in the order of their ids: metadata fields, then ``word``.
        num_kept: Number of kept nodes of each type.
    """

    types: tuple[str, ...]
    num_kept: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.types) != len(self.num_kept) or len(set(self.types)) != len(self.types):
            raise GraphError(
                f"A token space needs one count for each of its distinct types, found types "
                f"{self.types} with counts {self.num_kept}."
            )

    @classmethod
    def from_data(
        cls,
        data: HeteroData,
        min_count: int = 2,
        min_word_count: int = 2,
        types: Sequence[str] | None = None,
    ) -> "TokenSpace":
        """The token space of a graph.

        Args:
            data: A graph; node types without ``train_count`` (descending) are kept whole.
            min_count: Least number of training documents of a metadata instance; others become
                [UNK].
            min_word_count: Least number of training occurrences of a word; others become [UNK].
            types: Node types to take; None takes all but documents and labels, words last.
        """
        if types is None:
            types = [name for name in data.node_types if name not in RESERVED_TYPES]
            types += [WORD] if WORD in data.node_types else []
        kept = []
        for name in types:
            store = data[name]
            least = min_word_count if name == WORD else min_count
            count = store.get("train_count")
            kept.append(int(store.num_nodes if count is None else (count >= least).sum()))
        return cls(tuple(types), tuple(kept))

    @property
    def num_tokens(self) -> int:
        """Number of token ids, [PAD] and [UNK]s included."""
        return 1 + len(self.types) + sum(self.num_kept)

    def field_index(self, node_type: str) -> int:
        """Index of a node type in ``types``."""
        return self.types.index(node_type)

    def unk_id(self, node_type: str) -> int:
        """The id of a type's [UNK]."""
        return 1 + self.field_index(node_type)

    def offset(self, node_type: str) -> int:
        """The id of a type's first node."""
        position = self.field_index(node_type)
        return 1 + len(self.types) + sum(self.num_kept[:position])

    def span(self, node_type: str) -> slice:
        """The ids of a type's kept nodes."""
        start = self.offset(node_type)
        return slice(start, start + self.num_kept[self.field_index(node_type)])

    def encode(self, node_type: str, index: Tensor) -> Tensor:
        """Token ids, int64, of nodes of a type given by index, any shape."""
        index = index.to(torch.int64)
        kept = self.num_kept[self.field_index(node_type)]
        return torch.where(index < kept, index + self.offset(node_type), self.unk_id(node_type))

    def document_count(self, data: HeteroData, documents: Tensor) -> Tensor:
        """Number of the given documents that carry each token, [num_tokens], int64.

        Args:
            data: Graph of this token space.
            documents: Documents to count over, without repetition, [B], int64.
        """
        chosen = torch.zeros(int(data[DOCUMENT].num_nodes), dtype=torch.bool)
        chosen[documents] = True
        count = torch.zeros(self.num_tokens, dtype=torch.int64)
        for name in self.types:
            for edge_type in data.edge_types:
                if edge_type[0] != DOCUMENT or edge_type[2] != name:
                    continue
                row, col = data[edge_type].edge_index[
                    :, chosen[data[edge_type].edge_index[0].long()]
                ]
                pair = torch.unique(row.long() * self.num_tokens + self.encode(name, col))
                count += torch.bincount(pair % self.num_tokens, minlength=self.num_tokens)
        return count
