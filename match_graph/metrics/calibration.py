"""Expected calibration error, and the bins of reliability diagrams."""

import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.csr import check_not_nan, row_index
from match_graph.metrics.meter import Meter
from match_graph.metrics.ranking import find_hits, rank_labels


class CalibrationMeter(Meter):
    r"""Expected calibration error over batches, of the ranked labels and of all.

    .. math:: \sum_m \frac{|B_m|}{n} |acc(B_m) - conf(B_m)|

    over bins :math:`B_m` of equal width, :math:`(\frac{m-1}{M}, \frac{m}{M}]` (0 is in the first);
    conf is the mean probability of a bin, acc its share of gold labels, n the number of all.

    Source: equation 3 of Guo et al. 2017, https://arxiv.org/abs/1706.04599, for one label per
    input. Here an item is a pair (document, label), and there are two errors: over the k most
    probable labels of each document, which is what a reader sees; and over all pairs, which
    nearly all are improbable and not gold, so that this one is small for nearly every model and
    serves only to compare models on one data set.

    Logits are read batch by batch; three numbers per bin are kept.

    Args:
        k: Number of ranked labels per document.
        num_bins: Number of bins M; 15 in the source.
    """

    summed = ("_ranked", "_all")

    def __init__(self, k: int = 5, num_bins: int = 15) -> None:
        self.k, self.num_bins = k, num_bins
        self._edges = torch.arange(1, num_bins) / num_bins  # between the bins
        self._ranked = torch.zeros(3, num_bins, dtype=torch.float64)  # pairs, probability, gold
        self._all = torch.zeros(3, num_bins, dtype=torch.float64)

    def update(
        self,
        logits: Tensor,
        label_ptr: Tensor,
        label_index: Tensor,
        ranked: Tensor | None = None,
    ) -> None:
        """Adds a batch.

        Args:
            logits: Label scores before the sigmoid, [B, L].
            label_ptr: Offsets of gold labels, [B + 1], int64.
            label_index: Gold labels, packed, int64.
            ranked: Labels already ranked, best first, [B, K], K at least k or L; None ranks them by
                score, ties by label index.

        Raises:
            GraphError: A score is NaN.
        """
        check_not_nan(logits, "Label scores")
        probability = torch.sigmoid(logits.float()).cpu()
        label_ptr, label_index = label_ptr.cpu(), label_index.cpu()
        ranked = (rank_labels(logits, self.k) if ranked is None else ranked[:, : self.k]).cpu()
        hits = find_hits(ranked, label_ptr, label_index)
        self._ranked += self._count(probability.gather(1, ranked), hits)
        self._all += self._count_all(probability)
        self._all[2] += self._count(probability[row_index(label_ptr), label_index])[0]

    def _count(self, probability: Tensor, hits: Tensor | None = None) -> Tensor:
        """Pairs, sum of probabilities, and hits of each bin, [3, num_bins], float64."""
        values = probability.reshape(-1)
        number = torch.bucketize(values, self._edges)
        sums = torch.zeros(3, self.num_bins, dtype=torch.float64)
        sums[0] = torch.bincount(number, minlength=self.num_bins)
        sums[1] = torch.bincount(number, values.double(), minlength=self.num_bins)
        if hits is not None:
            sums[2] = torch.bincount(number[hits.reshape(-1)], minlength=self.num_bins)
        return sums

    def _count_all(self, probability: Tensor) -> Tensor:
        """`_count` with the first bin, which holds nearly all pairs, from what the others leave."""
        upper = probability > self._edges[0] if self.num_bins > 1 else probability < 0
        sums = self._count(probability[upper])
        sums[0, 0] += probability.numel() - sums[0].sum()
        sums[1, 0] += probability.sum(dtype=torch.float64) - sums[1].sum()
        return sums

    def compute(self) -> dict[str, float]:
        """``ECE@k`` over the ranked labels and ``ECE`` over all, in 0..1.

        Raises:
            GraphError: No document was added.
        """
        if not self._all[0].any():
            raise GraphError("The calibration error needs at least one document, found none.")
        return {f"ECE@{self.k}": _error(self._ranked), "ECE": _error(self._all)}

    def bins(self) -> dict[str, Tensor]:
        """The bins of a reliability diagram.

        Returns:
            ``ranked`` and ``all`` -> pairs, their mean probability and their share of gold labels
            in each bin, [3, num_bins], float64; NaN where a bin has no pair.
        """
        return {
            name: torch.stack([sums[0], sums[1] / sums[0], sums[2] / sums[0]])
            for name, sums in (("ranked", self._ranked), ("all", self._all))
        }


def _error(sums: Tensor) -> float:
    pairs, probability, gold = sums
    return float((gold - probability).abs().sum() / pairs.sum())
