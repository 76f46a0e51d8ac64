"""Nodes -> token ids of one space, and batches of packed token sets."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.errors import GraphError
from match_graph.graph.labels import Targets
from match_graph.graph.sampler import EgoDraw
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


@dataclass  # not frozen: Lightning Fabric rebuilds its inputs field by field
class EgoBatch:
    """Token sets of B documents, packed: per document first metadata, then words.

    Args:
        document: Document rows in the built graph, [B], int64, in training and evaluation; -1 for
            a new document, which is in no graph (see `as_new`).
        token_id: Ids in the token space, [N], int64.
        field: Index of the token's type in the token space, [N], int64.
        position: Place in the text for words, 0 for metadata (they are a set), [N], int64.
        ptr: Offsets per document, [B + 1], int64.
        label_ptr: Offsets of the gold labels, [B + 1], int64; None without targets.
        label_index: Gold labels, packed, [sum of labels], int64; None without targets.
        graph: The sampled subgraph, for encoders that need one; ``n_id`` of its documents counts
            as ``document`` does.
        text: The raw texts, for encoders that need them.
        share: Share of these documents among those of all processes at this step; 0 if they are
            another's, and only there because every process must have some.
        num_together: Number of documents of all processes at this step; None if only these.
    """

    document: Tensor
    token_id: Tensor
    field: Tensor
    position: Tensor
    ptr: Tensor
    label_ptr: Tensor | None = None
    label_index: Tensor | None = None
    graph: HeteroData | None = None
    text: list[str] | None = None
    share: float = 1.0
    num_together: int | None = None

    @property
    def num_documents(self) -> int:
        return self.document.numel()

    @property
    def gold(self) -> tuple[Tensor, Tensor]:
        """Offsets [B + 1] and packed gold labels of a batch that has them."""
        assert self.label_ptr is not None
        assert self.label_index is not None
        return self.label_ptr, self.label_index

    def as_new(self) -> "EgoBatch":
        """The batch as one of new documents, as prediction gives it: of no row in any graph.

        The documents around them are known, and keep theirs.
        """
        graph = copy.copy(self.graph)
        if graph is not None:
            store = graph[DOCUMENT]
            store.n_id = store.n_id.clone()
            store.n_id[: self.num_documents] = -1
        return replace(self, document=torch.full_like(self.document, -1), graph=graph)

    def select_tokens(self, kept: Tensor) -> "EgoBatch":
        """The batch with some of its tokens, [N], bool; documents, labels and graph stay."""
        ptr = torch.cat([self.ptr.new_zeros(1), kept.cumsum(0)])[self.ptr]
        return replace(
            self,
            token_id=self.token_id[kept],
            field=self.field[kept],
            position=self.position[kept],
            ptr=ptr,
        )

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "EgoBatch":
        """The batch with every tensor, and the graph, on a device."""
        moved = {
            item.name: copy.copy(getattr(self, item.name)).to(device, non_blocking=non_blocking)
            for item in fields(self)  # a graph would be moved in place
            if isinstance(getattr(self, item.name), Tensor | HeteroData)
        }
        return replace(self, **moved)


def make_batch(draw: EgoDraw, space: TokenSpace, targets: Targets | None = None) -> EgoBatch:
    """The token sets of a draw, with gold labels where targets are given."""
    token_id = torch.zeros_like(draw.node)
    field = torch.zeros_like(draw.node)
    known = torch.zeros_like(draw.node, dtype=torch.bool)
    for number, edge_type in enumerate(draw.edge_types):
        if edge_type[2] not in space.types:
            continue
        mask = draw.edge_type == number
        token_id[mask] = space.encode(edge_type[2], draw.node[mask])
        field[mask] = space.field_index(edge_type[2])
        known |= mask
    label_ptr, label_index = targets.select(draw.seed) if targets else (None, None)
    batch = EgoBatch(draw.seed, token_id, field, draw.position, draw.ptr, label_ptr, label_index)
    return batch if bool(known.all()) else batch.select_tokens(known)
