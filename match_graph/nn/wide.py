"""The wide term: a linear model from tokens to labels beside the encoder."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from match_graph.graph import EgoBatch
from match_graph.graph.csr import SparseRows, row_index
from match_graph.io.exchange import RowRoute, RowShard, exchange_rows, gather_numbers
from match_graph.nn.tables import TokenTable


class WideTerm(TokenTable):
    r"""Adds to every label's score a weighted sum over the document's distinct tokens.

    .. math:: s_{bl} = \sum_t x_{bt} W_{tl}, \quad x_{bt} \propto (1 + \log c_{bt}) \, idf_t

    with :math:`c_{bt}` occurrences of token t and :math:`\lVert x_b \rVert = 1`, metadata and words
    alike. It is what linear classifiers over TF-IDF have and a narrow encoder lacks: one number for
    a rare token and the one label that it betrays. Not in MATCH; its settings leave it out.

    Source: Cheng et al. 2016, Wide & Deep Learning, https://arxiv.org/abs/1606.07792.

    The weights start at zero. Their gradient is sparse in rows: a step costs as much as the tokens
    of its batch, so they have an optimizer of their own (see `training.optimizers`).

    Args:
        num_tokens: Number of tokens V of the token space.
        num_labels: Number of labels L.
        sharded: Whether processes share the table. Then documents go to the rows: each process
            makes the part of all processes' scores that its rows give, [B, L] for each of them,
            where the rows of a batch's distinct tokens would be a hundred times as much to send.
    """

    def __init__(self, num_tokens: int, num_labels: int, sharded: bool = False) -> None:
        super().__init__(num_tokens, num_labels, sharded)
        self.idf: Tensor
        self.register_buffer("idf", torch.ones(num_tokens))
        self._shares: _SharedProduct | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets every weight to zero again."""
        nn.init.zeros_(self.weight)

    def set_frequencies(self, count: Tensor, num_documents: int) -> None:
        """Sets the inverse document frequencies, smoothed as in scikit-learn.

        Args:
            count: Number of training documents with each token, [V].
            num_documents: Number of training documents.
        """
        self.idf.copy_(torch.log((1 + num_documents) / (1 + count.double())) + 1)

    def forward(self, batch: EgoBatch) -> Tensor:
        """The scores to be added, [B, L], float32."""
        if self.shard is not None:
            self._shares = _SharedProduct(self.weight, self.shard, *self._weigh(batch), batch)
            return self._shares.scores
        if not batch.token_id.numel():
            return self.weight.new_zeros(batch.num_documents, self.weight.size(1))
        scores: Tensor = _SparseProduct.apply(self.weight, *self._weigh(batch), batch.num_documents)
        return scores

    def reduce_gradient(self) -> None:
        if self._shares is not None:
            self._shares.reduce_gradient(self.weight)
            self._shares = None

    def contributions(self, batch: EgoBatch, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Contribution of each distinct token to some labels' logits; `forward` is their sum.

        Args:
            batch: Batch of B documents.
            labels: Labels to attribute, [K], int64.

        Returns:
            Document and token, ascending, [M], int64; what it adds, [M, K], float32.
        """
        document, token, value = self._weigh(batch)
        return document, token, value.unsqueeze(1) * self.weight[token.unsqueeze(1), labels]

    def _weigh(self, batch: EgoBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Document, token and x of every distinct token, by document and token, [M] each."""
        key = row_index(batch.ptr) * self.num_tokens + batch.token_id
        distinct, occurrences = torch.unique(key, return_counts=True)  # [M], by document
        document, token = distinct // self.num_tokens, distinct % self.num_tokens
        value = (1 + occurrences.log()) * self.idf[token]
        square = torch.zeros(batch.num_documents, device=value.device)
        norm = square.index_add_(0, document, value * value).sqrt()
        return document, token, value / norm[document]


class _SparseProduct(torch.autograd.Function):
    """x W of sparse features x [B, V] in entries sorted by row; the gradient has a row per token.

    The gradient is a product with the transpose, x^T times the scores' gradient, in which every row
    is written once. That of `embedding_bag` has a row for every token of every document, scaled in
    a second pass: with the step that follows 4.3 ms of processor time against 3.2, with 16
    documents of 145 words and 1,500 labels.
    """

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, document: Tensor, token: Tensor, value: Tensor, num_documents: int
    ) -> Tensor:
        ctx.save_for_backward(document, token, value)
        ctx.shape = weight.shape
        return SparseRows.from_entries(document, token, value, num_documents).multiply(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor, None, None, None, None]:
        document, token, value = ctx.saved_tensors
        gradient = _weigh_gradient(document, token, value, outgoing.contiguous(), ctx.shape)
        return gradient, None, None, None, None


def _weigh_gradient(
    document: Tensor, token: Tensor, value: Tensor, outgoing: Tensor, shape: torch.Size
) -> Tensor:
    """Gradient of the table, sparse in rows, from that of the scores [B, L]; entries [M] each."""
    tokens, row = torch.unique(token, return_inverse=True)
    transpose = SparseRows.from_entries(row, document, value, len(tokens))
    gradient = transpose.multiply(outgoing)
    return torch.sparse_coo_tensor(
        tokens.unsqueeze(0), gradient, shape, is_coalesced=True, check_invariants=False
    )


class _SharedProduct:
    """x W of a table whose rows lie with several processes, each with documents of its own.

    Args:
        weight: The process's rows, [size, L].
        shard: Its share of the table.
        document: Document of each entry of x, [M], int64.
        token: Its token, [M], int64.
        value: Its value, [M].
        batch: The process's documents.
    """

    def __init__(
        self,
        weight: nn.Parameter,
        shard: RowShard,
        document: Tensor,
        token: Tensor,
        value: Tensor,
        batch: EgoBatch,
    ) -> None:
        self.shard, self.num_documents = shard, batch.num_documents
        route = RowRoute(shard, token)
        sizes = gather_numbers(self.num_documents, shard, weight.device)
        first = torch.tensor([0, *sizes[:-1]], device=weight.device).cumsum(0)
        rank = torch.repeat_interleave(torch.tensor(route.held, device=weight.device))
        self._sizes = sizes
        #: Entries of all processes' documents in this one's rows.
        self._entries = route.send(document) + first[rank], route.local, route.send(value)
        document, local, value = self._entries
        parts = SparseRows.from_entries(document, local, value, sum(sizes)).multiply(weight)
        received = exchange_rows(parts, sizes, [self.num_documents] * shard.num_processes)
        total = received.view(shard.num_processes, self.num_documents, weight.size(1)).sum(0)
        #: Scores [B, L], a leaf that collects their gradient.
        self.scores = total.requires_grad_(torch.is_grad_enabled() and weight.requires_grad)

    def reduce_gradient(self, weight: nn.Parameter) -> None:
        """Sets the gradient of the process's rows, sparse, to the mean over processes."""
        outgoing = self.scores.grad
        if outgoing is None:
            outgoing = torch.zeros_like(self.scores)
        number = self.shard.num_processes
        everyone = exchange_rows(
            outgoing.repeat(number, 1), [self.num_documents] * number, self._sizes
        )
        weight.grad = _weigh_gradient(*self._entries, everyone / number, weight.shape)
