"""The embedding layer that all encoders share: tokens and features -> vectors."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from match_graph.errors import GraphError
from match_graph.graph import EgoBatch, NodeFeatures, TokenSpace
from match_graph.graph.csr import check_not_nan, row_index
from match_graph.graph.tokens import PAD_ID
from match_graph.nn.layers import ByteDropout
from match_graph.nn.neighbors import mean_rows
from match_graph.nn.tables import FetchedRows, TokenTable, blocks_of

#: Rows of features that are read at a time.
_ROWS = 65_536


class FeatureInput(nn.Module):
    r"""Features of a node type as vectors of a model's width.

    .. math:: s \, W \frac{x - \mu}{\sigma} + b

    with the mean of each feature and one standard deviation for all, over the nodes of training:
    the directions in which vectors of a language model differ most stay the largest. W starts with
    variance 1 / (F + C), b with 0, so that vectors of C channels are s √(F C / (F + C)) long.

    Args:
        num_features: Number of features F.
        channels: Width of the vectors.
        scale: Factor s.
        dropout: Dropout rate on the features.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, num_features: int, channels: int, scale: float, dropout: float) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("deviation", torch.ones(()))
        self.linear = nn.Linear(num_features, channels)
        self.dropout = ByteDropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the weights."""
        nn.init.normal_(self.linear.weight, std=sum(self.linear.weight.shape) ** -0.5)
        nn.init.zeros_(self.linear.bias)

    def set_moments(self, x: Tensor, rows: Tensor | None = None) -> None:
        """Sets mean and deviation from features [num_nodes, F], or from some of their rows."""
        rows = torch.arange(len(x)) if rows is None else rows
        total, square = torch.zeros(2, x.size(1), dtype=torch.float64)
        for part in rows.split(_ROWS):
            values = x[part].double()
            total += values.sum(0)
            square += values.square().sum(0)
        mean = total / max(len(rows), 1)
        variance = (square / max(len(rows), 1) - mean.square()).clamp(min=0).mean()
        self.mean.copy_(mean)
        self.deviation.copy_(variance.sqrt() if variance > 0 else torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Vectors [n, channels] of features [n, F]."""
        standard = (x.to(self.mean.dtype) - self.mean) / self.deviation
        vectors: Tensor = self.linear(self.dropout(standard))
        return vectors * self.scale


class TokenEmbedding(TokenTable):
    """Vectors of a token space, scaled by the square root of their width unless disabled.

    Rows start uniform on the unit sphere, or from pre-trained unit vectors by `load_vectors`;
    the factor (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762) brings either to unit
    variance per channel. MATCH does not name it; its settings leave it out. [UNK] rows are trained
    by token dropout: in training a share of the tokens is replaced by the [UNK] of its type.

    This is the one place where features become input. Those of a document are the vector of one
    more token, see `prepare`; those of other nodes are mapped and added to the learned vectors of
    their tokens. The rows themselves stay as they are and are no weights.

    Args:
        space: The token space.
        channels: Width of the embeddings, the paper's delta.
        dropout: Dropout rate on the channels of embedded tokens.
        token_dropout: Share of tokens replaced by [UNK] in training.
        scaled: Whether vectors are multiplied by the square root of ``channels``.
        features: Features of documents and other nodes.
        feature_dropout: Dropout rate on features.
        feature_scale: Factor of features' vectors; at 1 those of F features start √(F C / (F + C))
            times as long as a token's, 8.9 times with 384 and 100 channels.
        sharded: Whether processes share the table; then `prepare` fetches what a batch needs.
    """

    def __init__(
        self,
        space: TokenSpace,
        channels: int = 100,
        dropout: float = 0.0,
        token_dropout: float = 0.0,
        scaled: bool = True,
        features: NodeFeatures | None = None,
        feature_dropout: float = 0.0,
        feature_scale: float = 1.0,
        sharded: bool = False,
    ) -> None:
        super().__init__(space.num_tokens, channels, sharded)
        features = features or NodeFeatures()
        self.scale = channels**0.5 if scaled else 1.0
        self.space, self.channels, self.token_dropout = space, channels, token_dropout
        self._fetched: FetchedRows | None = None
        self.dropout = ByteDropout(dropout)
        make = partial(
            FeatureInput,
            channels=channels,
            scale=feature_scale * self.scale,
            dropout=feature_dropout,
        )
        self.document = make(features.width) if features.width else None
        #: Node types of the space whose nodes have features.
        self.featured = [name for name in space.types if name in features.rows]
        self.inputs = nn.ModuleList(make(features.rows[name].size(1)) for name in self.featured)
        #: No buffers: rows mapped from a file are neither saved nor sent to other processes.
        self._rows = [
            features.rows[name][: space.num_kept[space.field_index(name)]] for name in self.featured
        ]
        self.reset_parameters()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "TokenEmbedding":
        """Moves the rows of features with the weights."""
        self._rows = [fn(rows) for rows in self._rows]
        return super()._apply(fn, recurse)

    def move_features(self, device: torch.device) -> None:
        """Moves the rows of features alone."""
        self._rows = [rows.to(device) for rows in self._rows]

    @property
    def num_fields(self) -> int:
        """Number of types that tokens can have: those of the space, and documents with features."""
        return len(self.space.types) + (self.document is not None)

    def reset_parameters(self) -> None:
        """Reinitializes every row; [PAD] is zero."""
        for first, last in blocks_of(self.num_tokens):
            block = self.weight.new_empty(last - first, self.channels).normal_()
            block = nn.functional.normalize(block, dim=1)
            if first <= PAD_ID < last:
                block[PAD_ID - first] = 0
            self.set_rows(first, block)
        for module in (self.document, *self.inputs):
            if isinstance(module, FeatureInput):
                module.reset_parameters()

    def set_moments(self, x: Tensor | None, documents: Tensor) -> None:
        """Standardizes features: those of documents by some of them, of other types by all rows.

        Args:
            x: Features of all documents, [num_documents, F]; None without.
            documents: Documents of training, [D], int64.
        """
        if self.document is not None and x is not None:
            self.document.set_moments(x, documents)
        for module, rows in zip(self.inputs, self._rows, strict=True):
            assert isinstance(module, FeatureInput)
            module.set_moments(rows)

    def load_vectors(self, vectors: Mapping[str, Tensor]) -> dict[str, int]:
        """Initializes the kept nodes of some types from given vectors.

        The [UNK] of a type is set to the mean of the type's vectors, which is shorter than a unit
        vector. Types without vectors keep theirs.

        Args:
            vectors: Vectors of nodes by node type, at least the kept ones, [num_nodes, C].

        Returns:
            Node type -> how many rows were set.

        Raises:
            GraphError: Vectors have another width, are fewer than the kept nodes, or hold NaN.
        """
        loaded = {}
        for node_type in (name for name in self.space.types if name in vectors):
            span = self.space.span(node_type)
            kept, given = span.stop - span.start, vectors[node_type]
            if given.size(1) != self.channels or given.size(0) < kept:
                raise GraphError(
                    f"Vectors of '{node_type}' must be [{kept} or more, {self.channels}], found "
                    f"{list(given.shape)}; train them with the same settings as the model."
                )
            check_not_nan(given, f"Vectors of '{node_type}'")
            if kept:
                self.set_rows(span.start, given[:kept])
                mean = given[:kept].to(self.weight).mean(dim=0, keepdim=True)
                self.set_rows(self.space.unk_id(node_type), mean)
            loaded[node_type] = kept
        return loaded

    def prepare(self, batch: EgoBatch) -> EgoBatch:
        """The batch as encoders read it: documents with features begin with a token for these.

        Of a sharded table the rows of the batch's tokens are fetched; every process calls this.

        Raises:
            GraphError: The documents have no features, or others than the embedding was made for.
        """
        if self.shard is not None:
            reader = self.rows if self.training else None
            tokens = self._list_tokens(batch)
            self._fetched = FetchedRows(self.weight, self.shard, tokens, reader)
        if self.document is None:
            return batch
        width = None if batch.x is None else batch.x.size(1)
        if width != self.document.linear.in_features:
            raise GraphError(
                f"Documents must have the {self.document.linear.in_features} features that the "
                f"model was made for, found {width or 'none'}; give x with the batch."
            )
        return batch.with_document_tokens(self.space.document_field)

    def forward(self, batch: EgoBatch) -> Tensor:
        """Vectors of the tokens of a prepared batch, [N, C]."""
        embedded = self._embed(self._drop_tokens(batch.token_id, batch.field))
        if self.document is not None and batch.x is not None:
            (place,) = (batch.field == self.space.document_field).nonzero(as_tuple=True)
            vectors = self.document(batch.x[row_index(batch.ptr)[place]])
            embedded = embedded.index_copy(0, place, vectors.to(embedded.dtype))
        return self.dropout(embedded)

    def mean(self, token_id: Tensor, field: Tensor, ptr: Tensor) -> Tensor:
        """Means of packed lists of tokens, zero for empty ones, [B, C]; channels dropped after.

        Args:
            token_id: Token ids, [N], int64.
            field: Index of each token's type, [N], int64.
            ptr: Offsets of the lists, [B + 1], int64.
        """
        shown = self._drop_tokens(token_id, field)
        if self.featured:
            everything = torch.arange(len(shown), device=shown.device)
            return self.dropout(mean_rows(self._embed(shown), everything, ptr))
        means = mean_rows(*self._find(shown), ptr)
        return self.dropout(means * self.scale)

    def reduce_gradient(self) -> None:
        if self.shard is None or self._fetched is None:
            return
        if self.weight.requires_grad:
            self._fetched.reduce_gradient()
        self._fetched = None

    def _list_tokens(self, batch: EgoBatch) -> Tensor:
        """Tokens that an encoder may look up: those of a batch and its graph, [PAD], all [UNK]."""
        listed = [torch.arange(1 + len(self.space.types), device=self.weight.device)]
        listed.append(batch.token_id)
        if batch.graph is not None:
            for name, store in batch.graph.node_items():
                if "token_id" in store:
                    listed.append(store.token_id)
                elif name in self.space.types:
                    listed.append(self.space.encode(name, store.n_id))
        return torch.cat(listed)

    def _find(self, token_id: Tensor) -> tuple[Tensor, Tensor]:
        """The table, or what was fetched of it, and where tokens lie in it."""
        if self.shard is not None:
            assert self._fetched is not None, "a batch is prepared before its tokens are embedded"
            return self._fetched.values, self._fetched.find(token_id)
        if self.rows is not None and self.training:
            return self.rows.look_up(token_id)
        return self.weight, token_id

    def _embed(self, token_id: Tensor) -> Tensor:
        """Learned vectors of tokens [N], with what their features add, [N, C]."""
        table, place = self._find(token_id)
        embedded = nn.functional.embedding(place, table) * self.scale
        for name, module, rows in zip(self.featured, self.inputs, self._rows, strict=True):
            span = self.space.span(name)
            (place,) = ((token_id >= span.start) & (token_id < span.stop)).nonzero(as_tuple=True)
            distinct, inverse = torch.unique(token_id[place] - span.start, return_inverse=True)
            vectors = module(rows[distinct])
            added = vectors.index_select(0, inverse).to(embedded.dtype)
            embedded = embedded.index_add(0, place, added)
        return embedded

    def _drop_tokens(self, token_id: Tensor, field: Tensor) -> Tensor:
        """In training, replaces a share of the tokens by the [UNK] of their type."""
        if not (self.training and self.token_dropout):
            return token_id
        dropped = torch.rand(token_id.shape, device=token_id.device) < self.token_dropout
        if self.document is not None:  # the token of a document's features has no [UNK]
            dropped &= field < self.space.document_field
        return torch.where(dropped, 1 + field, token_id)  # [UNK] ids follow [PAD]
