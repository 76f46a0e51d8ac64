"""RankedSum@k: the rank at which a document's k-th gold label is found."""

from collections.abc import Sequence

import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.csr import check_not_nan, row_index
from match_graph.metrics.meter import Meter
from match_graph.metrics.ranking import DEFAULT_KS


def ranked_sum_at_k(logits: Tensor, label_ptr: Tensor, label_index: Tensor, k: int) -> Tensor:
    r"""RankedSum@k of each document: the rank of the k-th of its gold labels; lower is better.

    .. math:: \min \{ r : \sum_{i \le r} y_{rank(i)} = k \}

    Source: ``ranked_sum_at_k`` of https://github.com/eXascaleInfolab/oaxmlc-bench, misc/metrics.
    Labels of equal scores rank in their order. The tables that the benchmark publishes under the
    name RS are fractions, so not this measure.

    Args:
        logits: Label scores, [B, L], floating point.
        label_ptr: Offsets of gold labels, [B + 1], int64.
        label_index: Gold labels, packed, without repetition in a document, int64.
        k: Number of gold labels to be found.

    Returns:
        [B], float64, from k; infinity where a document has fewer than k gold labels.

    Raises:
        GraphError: A score is NaN, ``label_ptr`` has not B + 1 entries, or a label is not below L.
    """
    return _rank_gold(logits, label_ptr, label_index, (k,))[:, 0]


def _rank_gold(logits: Tensor, label_ptr: Tensor, label_index: Tensor, ks: Sequence[int]) -> Tensor:
    """`ranked_sum_at_k` for several k, [B, len(ks)]; gold labels are checked and sorted once."""
    check_not_nan(logits, "Label scores")
    num_labels = logits.size(1)
    if label_ptr.numel() != len(logits) + 1 or (label_index >= num_labels).any():
        largest = int(label_index.max()) if label_index.numel() else -1
        raise GraphError(
            f"Gold labels must be those of {len(logits)} documents and {num_labels} labels, found "
            f"{label_ptr.numel() - 1} documents and label {largest}."
        )
    row = row_index(label_ptr)
    order = torch.argsort(label_index, stable=True)
    order = order[torch.argsort(logits[row, label_index][order], descending=True, stable=True)]
    order = order[torch.argsort(row[order], stable=True)]  # by document, score and label
    rank = torch.full((len(logits), len(ks)), torch.inf, dtype=torch.float64)
    for place, k in enumerate(ks):
        found = (label_ptr.diff() >= k).nonzero()[:, 0]
        label = label_index[order[label_ptr[found] + k - 1]]  # [D]
        rank[found, place] = _rank_labels(logits[found], label).double()
    return rank


def _rank_labels(logits: Tensor, label: Tensor) -> Tensor:
    """Rank from 1 of one label of each document, [D], int64; of equal scores the lower is first."""
    score = logits.gather(1, label.unsqueeze(1))  # [D, 1]
    rank = 1 + (logits > score).sum(dim=1, dtype=torch.int32).long()
    tied = ((logits == score).sum(dim=1, dtype=torch.int32) > 1).nonzero()[:, 0]
    is_before = torch.arange(logits.size(1)) < label[tied].unsqueeze(1)  # [T, L]
    rank[tied] += ((logits[tied] == score[tied]) & is_before).sum(dim=1)
    return rank


class RankedSumMeter(Meter):
    """RankedSum@k over batches, averaged over the documents with at least k gold labels.

    Args:
        ks: Numbers of gold labels to be found.
    """

    summed = ("_sums", "_counts")

    def __init__(self, ks: Sequence[int] = DEFAULT_KS) -> None:
        self.ks = tuple(ks)
        self._sums = torch.zeros(len(self.ks), dtype=torch.float64)
        self._counts = torch.zeros(len(self.ks), dtype=torch.int64)

    def update(self, logits: Tensor, label_ptr: Tensor, label_index: Tensor) -> None:
        """Adds a batch; arguments and errors as for `ranked_sum_at_k`."""
        rank = _rank_gold(logits, label_ptr, label_index, self.ks)  # [B, K]
        self._sums += torch.where(rank.isinf(), 0.0, rank).sum(dim=0)
        self._counts += rank.isfinite().sum(dim=0)

    def compute(self) -> dict[str, float]:
        """Mean ranks; without those k for which no document has k gold labels."""
        parts = zip(self.ks, self._sums.tolist(), self._counts.tolist(), strict=True)
        return {f"RankedSum@{k}": total / count for k, total, count in parts if count}
