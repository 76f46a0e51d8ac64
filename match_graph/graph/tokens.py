"""Token ids of nodes in one space, and batches of packed token sets."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.errors import GraphError
from match_graph.graph.csr import make_ptr, open_gaps
from match_graph.graph.labels import Targets
from match_graph.graph.sampler import EgoSample
from match_graph.graph.view import Graph, view_graph
from match_graph.typing import DOCUMENT, RESERVED_TYPES, WORD

#: Id of padding, and of tokens that stand for features.
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
        data: Graph,
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
        graph = view_graph(data)
        if types is None:
            types = [name for name in graph.node_types if name not in RESERVED_TYPES]
            types += [WORD] if WORD in graph.node_types else []
        kept = []
        for name in types:
            least = min_word_count if name == WORD else min_count
            count = graph.node_tensor(name, "train_count")
            kept.append(graph.num_nodes(name) if count is None else int((count >= least).sum()))
        return cls(tuple(types), tuple(kept))

    @property
    def document_field(self) -> int:
        """Field of the token that stands for a document's features; it has no id of its own."""
        return len(self.types)

    @property
    def kept_by_type(self) -> dict[str, int]:
        """Number of kept nodes by type: the rows of a table of vectors."""
        return dict(zip(self.types, self.num_kept, strict=True))

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


@dataclass(frozen=True)
class NodeFeatures:
    """Features that a model reads beside tokens.

    Args:
        width: Number of features F of a document; 0 without.
        rows: Features of other nodes by type, [num_nodes, F]; of a type of the token space at least
            the kept nodes, of ``label`` all.
    """

    width: int = 0
    rows: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def from_data(cls, data: Graph) -> "NodeFeatures":
        """The features ``x`` of a built graph."""
        graph = view_graph(data)
        every = {name: graph.node_tensor(name, "x") for name in graph.node_types}
        found = {name: x for name, x in every.items() if x is not None}
        documents = found.pop(DOCUMENT, None)
        return cls(0 if documents is None else documents.size(1), found)


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
        x: Features of the documents, [B, F], float16 or float32; None without.
        graph: The sampled subgraph, for encoders that need one; ``n_id`` of its documents counts
            as ``document`` does.
        text: The raw texts, for encoders that need them.
        share: Share of these documents among those of all processes at this step; 0 if they belong
            to another process and are only here because every process must have some.
    """

    document: Tensor
    token_id: Tensor
    field: Tensor
    position: Tensor
    ptr: Tensor
    label_ptr: Tensor | None = None
    label_index: Tensor | None = None
    x: Tensor | None = None
    graph: HeteroData | None = None
    text: list[str] | None = None
    share: float = 1.0

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
        """The batch as one of new documents, as in prediction: with no row in any graph.

        Documents around them are known, and keep their rows.
        """
        graph = copy.copy(self.graph)
        if graph is not None:
            store = graph[DOCUMENT]
            store.n_id = store.n_id.clone()
            store.n_id[: self.num_documents] = -1
        return replace(self, document=torch.full_like(self.document, -1), graph=graph)

    def with_document_tokens(self, document_field: int) -> "EgoBatch":
        """The batch with a token for the features of each document before all others.

        Args:
            document_field: Field of these tokens, `TokenSpace.document_field`; their id is [PAD].
        """
        number = len(self.token_id)
        ptr, place = open_gaps(self.ptr, 1, number)
        token_id, field, position = self.token_id.new_zeros(3, number + self.num_documents)
        field[ptr[:-1]] = document_field
        token_id[place], field[place], position[place] = self.token_id, self.field, self.position
        return replace(self, token_id=token_id, field=field, position=position, ptr=ptr)

    def split(self, sizes: Sequence[int]) -> list["EgoBatch"]:
        """Batches of consecutive documents, with views of this batch's tensors.

        Args:
            sizes: Number of documents of each batch, B in all.

        Raises:
            GraphError: There is a subgraph, which is not split.
        """
        if self.graph is not None:
            raise GraphError("A batch must have no subgraph to be split, found one; sample anew.")
        bounds = torch.tensor([0, *itertools.accumulate(sizes)])
        documents = list(itertools.pairwise(bounds.tolist()))
        tokens = itertools.pairwise(self.ptr[bounds].tolist())
        parts = [
            replace(
                self,
                document=self.document[start:stop],
                token_id=self.token_id[first:last],
                field=self.field[first:last],
                position=self.position[first:last],
                ptr=self.ptr[start : stop + 1] - first,
                x=None if self.x is None else self.x[start:stop],
                text=None if self.text is None else self.text[start:stop],
            )
            for (start, stop), (first, last) in zip(documents, tokens, strict=True)
        ]
        if self.label_ptr is not None and self.label_index is not None:
            labels = itertools.pairwise(self.label_ptr[bounds].tolist())
            for part, (start, stop), (first, last) in zip(parts, documents, labels, strict=True):
                part.label_ptr = self.label_ptr[start : stop + 1] - first
                part.label_index = self.label_index[first:last]
        return parts

    def select_tokens(self, kept: Tensor) -> "EgoBatch":
        """The batch with some of its tokens, [N], bool; documents, labels and graph stay."""
        token_id, field, position = self.token_id[kept], self.field[kept], self.position[kept]
        ptr = make_ptr(kept)[self.ptr]
        return replace(self, token_id=token_id, field=field, position=position, ptr=ptr)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "EgoBatch":
        """The batch with every tensor, and the graph, on a device."""
        moved = {
            item.name: copy.copy(getattr(self, item.name)).to(device, non_blocking=non_blocking)
            for item in fields(self)  # a graph would be moved in place
            if isinstance(getattr(self, item.name), Tensor | HeteroData)
        }
        return replace(self, **moved)


def make_batch(
    sample: EgoSample, space: TokenSpace, targets: Targets | None = None, x: Tensor | None = None
) -> EgoBatch:
    """The token sets of a sample, with gold labels where targets are given.

    Args:
        sample: Sampled neighbours of B documents.
        space: Token space.
        targets: Gold labels of all documents.
        x: Features of all documents, [num_documents, F].
    """
    token_id = torch.zeros_like(sample.node)
    field = torch.zeros_like(sample.node)
    known = torch.zeros_like(sample.node, dtype=torch.bool)
    for number, edge_type in enumerate(sample.edge_types):
        if edge_type[2] not in space.types:
            continue
        mask = sample.edge_type == number
        token_id[mask] = space.encode(edge_type[2], sample.node[mask])
        field[mask] = space.field_index(edge_type[2])
        known |= mask
    label_ptr, label_index = targets.select(sample.seed) if targets else (None, None)
    batch = EgoBatch(
        sample.seed, token_id, field, sample.position, sample.ptr, label_ptr, label_index
    )
    batch = batch if bool(known.all()) else batch.select_tokens(known)
    return batch if x is None else replace(batch, x=x[sample.seed])
