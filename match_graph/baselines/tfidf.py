"""TF-IDF features of token sets: words and metadata, as sparse rows of unit length."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from match_graph.graph import EgoBatch, TokenSpace
from match_graph.graph.csr import make_ptr

#: A scipy matrix in compressed rows.
Rows: TypeAlias = Any


class TfidfFeatures:
    r"""TF-IDF over a token space.

    .. math:: x_{dt} \propto tf_{dt} \cdot \left(1 + \ln \frac{1 + D}{1 + df_t}\right)

    with rows of unit length, tf being the count of a token in a document or 1 + ln of it. A
    metadata instance is one more token of the document. [PAD] and [UNK]s are no features.

    Source: Salton and Buckley 1988, https://doi.org/10.1016/0306-4573(88)90021-0, in the smoothed
    form of scikit-learn.

    Args:
        space: The token space.
        sublinear: Whether tf is 1 + ln of the count.
    """

    def __init__(self, space: TokenSpace, sublinear: bool) -> None:
        from sklearn.feature_extraction.text import TfidfTransformer

        self.space = space
        self.transformer = TfidfTransformer(sublinear_tf=sublinear)

    @property
    def num_features(self) -> int:
        """Number of features: one per token id; those of [PAD] and [UNK]s stay empty."""
        return self.space.num_tokens

    @property
    def idf(self) -> Tensor:
        """Inverse document frequency of each token, [num_features], float32."""
        return torch.from_numpy(self.transformer.idf_.astype(np.float32))

    @idf.setter
    def idf(self, value: Tensor) -> None:
        self.transformer.idf_ = value.numpy()

    def count(self, batches: Iterable[EgoBatch]) -> Rows:
        """Token counts of each document, [D, num_features]."""
        return sparse.vstack([self._count_batch(batch) for batch in batches], format="csr")

    def _count_batch(self, batch: EgoBatch) -> Rows:
        token_id, ptr = batch.token_id.cpu().numpy(), batch.ptr.cpu().numpy()
        known = token_id > len(self.space.types)  # beyond [PAD] and the [UNK]s
        values = known.astype(np.float32)
        shape = (batch.num_documents, self.num_features)
        counts = sparse.csr_matrix((values, token_id, ptr), shape=shape)
        counts.sum_duplicates()
        counts.eliminate_zeros()
        return counts

    def fit(self, counts: Rows) -> Rows:
        """Learns the factors from training counts and gives their features."""
        self.transformer.fit(counts)
        return self.transform(counts)

    def transform(self, counts: Rows) -> Rows:
        """Features of documents, [D, num_features], float32, rows of unit length or empty."""
        return self.transformer.transform(counts).astype(np.float32)


def stack_labels(batches: Iterable[EgoBatch], num_labels: int) -> Rows:
    """The gold labels of documents, [D, L], ones."""
    lengths, labels = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.int64)]
    for batch in batches:
        label_ptr, label_index = batch.gold
        lengths.append(label_ptr.cpu().diff())
        labels.append(label_index.cpu())
    ptr, index = make_ptr(torch.cat(lengths)).numpy(), torch.cat(labels).numpy()
    ones = np.ones(len(index), dtype=np.float32)
    return sparse.csr_matrix((ones, index, ptr), shape=(len(ptr) - 1, num_labels))
