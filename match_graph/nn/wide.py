"""A linear term from tokens to labels, beside the encoder."""

import torch
from torch import Tensor, nn

from match_graph.graph import EgoBatch
from match_graph.graph.csr import row_index


class WideTerm(nn.Module):
    r"""Adds to every label's score a weighted sum over the document's distinct tokens.

    .. math:: s_{bl} = \sum_t x_{bt} W_{tl}, \quad x_{bt} \propto (1 + \log c_{bt}) \, idf_t

    with :math:`c_{bt}` occurrences of token t and :math:`\lVert x_b \rVert = 1`, metadata and words
    alike. It is what linear classifiers over TF-IDF have and a narrow encoder lacks: one number for
    a rare token and the one label that it betrays. Not in MATCH; its settings leave it out.

    Source: Cheng et al. 2016, Wide & Deep Learning, https://arxiv.org/abs/1606.07792.

    The weights start at zero. Their gradient is sparse in rows: a step costs as much as the tokens
    of its batch, so they have an optimizer of their own (see `training.optimizers`).

    Args:
        num_tokens: V.
        num_labels: L.
    """

    def __init__(self, num_tokens: int, num_labels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_tokens, num_labels))
        self.idf: Tensor
        self.register_buffer("idf", torch.ones(num_tokens))

    def reset_parameters(self) -> None:
        """Sets every weight to zero again."""
        nn.init.zeros_(self.weight)

    def set_frequencies(self, count: Tensor, num_documents: int) -> None:
        """Sets the inverse document frequencies, smoothed as in scikit-learn.

        Args:
            count: Training documents with each token, [V].
            num_documents: In training.
        """
        self.idf.copy_(torch.log((1 + num_documents) / (1 + count.double())) + 1)

    def forward(self, batch: EgoBatch) -> Tensor:
        """The scores to be added, [B, L], float32."""
        if not batch.token_id.numel():
            return self.weight.new_zeros(batch.num_documents, self.weight.size(1))
        document, token, value = self._weigh(batch)
        documents = torch.arange(batch.num_documents, device=value.device)
        return nn.functional.embedding_bag(
            token,
            self.weight,
            torch.searchsorted(document, documents),
            mode="sum",
            per_sample_weights=value,
            sparse=True,
        )

    def contributions(self, batch: EgoBatch, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What each distinct token adds to the scores of some labels; `forward` is their sum.

        Args:
            batch: B documents.
            labels: [K], int64.

        Returns:
            Document and token, ascending, [M], int64; what it adds, [M, K], float32.
        """
        document, token, value = self._weigh(batch)
        return document, token, value.unsqueeze(1) * self.weight[token.unsqueeze(1), labels]

    def _weigh(self, batch: EgoBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Document, token and x of every distinct token, by document and token, [M] each."""
        num_tokens = self.weight.size(0)
        key = row_index(batch.ptr) * num_tokens + batch.token_id
        distinct, occurrences = torch.unique(key, return_counts=True)  # [M], by document
        document, token = distinct // num_tokens, distinct % num_tokens
        value = (1 + occurrences.log()) * self.idf[token]
        square = torch.zeros(batch.num_documents, device=value.device)
        norm = square.index_add_(0, document, value * value).sqrt()
        return document, token, value / norm[document]
