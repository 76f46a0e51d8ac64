"""Per-label decision thresholds, chosen by F1 on validation documents."""

from dataclasses import dataclass

import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.csr import check_not_nan, make_ptr, row_index
from match_graph.metrics.meter import Meter, add_to_bins

#: Candidate thresholds in log-odds: every 1/16 from -8 to 8, probabilities .00034 to .99966.
_LOW, _HIGH, _PER_UNIT = -8, 8, 16


@dataclass(frozen=True)
class Thresholds:
    """Decision threshold of each label.

    Args:
        value: Threshold of each label, [L], float32; a label is predicted if its probability is at
            least this.
        num_positives: Number of validation documents that carry each label, [L], int64.
        is_own: Whether the label has a threshold of its own, [L], bool; the others share one.
        shared: Threshold that the labels without one of their own share.
    """

    value: Tensor
    num_positives: Tensor
    is_own: Tensor
    shared: float


class ThresholdSearch(Meter):
    r"""The threshold of each label with the best F1, from scores seen batch by batch.

    .. math:: F_1(t) = \frac{2 TP(t)}{predicted(t) + gold}

    Candidates are a fixed grid in log-odds. Memory holds two histograms per label over that
    grid, of its scores and of its gold scores: [L, 258] int32 each, for any number of documents.
    Counts at a candidate are exact, so the choice is the best of the grid; thresholds between two
    candidates, whose odds differ by 6.4 %, and beyond the grid's ends are not considered.
    Of equally good candidates the median is taken, which is the middle of a gap between scores.

    Labels with fewer than ``min_positives`` gold documents, or without any gold score on the grid,
    share the threshold that is best for all pairs together (micro F1): a threshold of their own
    would fit a handful of documents.

    Source: SCut with a fallback, Yang 2001, https://doi.org/10.1145/383952.383975.

    Args:
        num_labels: Number of labels L.
        min_positives: Least number of gold documents for a label to have a threshold of its own.
    """

    summed = ("_scores", "_gold")

    def __init__(self, num_labels: int, min_positives: int = 10) -> None:
        self.num_labels, self.min_positives = num_labels, min_positives
        steps = torch.arange(_LOW * _PER_UNIT, _HIGH * _PER_UNIT + 1) / _PER_UNIT
        self.grid = torch.sigmoid(steps)  # [T], ascending
        shape = (num_labels, len(self.grid) + 1)  # bin 0 lies below the grid
        self._scores = torch.zeros(shape, dtype=torch.int32)
        self._gold = torch.zeros(shape, dtype=torch.int32)

    def update(self, logits: Tensor, label_ptr: Tensor, label_index: Tensor) -> None:
        """Adds a batch; arguments and errors as for `CalibrationMeter.update`."""
        check_not_nan(logits, "Label scores")
        probability = torch.sigmoid(logits.float()).cpu()
        label_ptr, label_index = label_ptr.cpu(), label_index.cpu()
        row, label = (probability >= self.grid[0]).nonzero(as_tuple=True)  # few: most are below
        self._add(self._scores, label, probability[row, label])
        self._add(self._gold, label_index, probability[row_index(label_ptr), label_index])

    def _add(self, histogram: Tensor, label: Tensor, probability: Tensor) -> None:
        place = label * histogram.size(1) + torch.bucketize(probability, self.grid, right=True)
        add_to_bins(histogram, place)

    def compute(self) -> Thresholds:
        """The thresholds; 0.5 for all if no gold label has a score on the grid."""
        together = self._scores.sum(dim=0, keepdim=True), self._gold.sum(dim=0, keepdim=True)
        common, found = _best_candidate(*together)
        shared = self.grid[common[0]] if found[0] else torch.tensor(0.5)
        own, found = _best_candidate(self._scores, self._gold)
        num_positives = self._gold.sum(dim=1)
        is_own = found & (num_positives >= self.min_positives)
        value = torch.where(is_own, self.grid[own], shared)
        return Thresholds(value, num_positives, is_own, float(shared))


def _best_candidate(scores: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the best candidate [L], int64, and whether its F1 is above 0 [L], bool."""
    num_gold = gold.sum(dim=1, keepdim=True)
    # [L, T]: bin i + 1 and those above it lie at or above candidate i
    predicted = scores[:, 1:].flip(1).cumsum(1).flip(1)
    correct = gold[:, 1:].flip(1).cumsum(1).flip(1)
    f1 = 2 * correct.double() / (predicted + num_gold).clamp(min=1)
    best = f1.max(dim=1, keepdim=True).values
    rank = (f1 == best).cumsum(1)
    middle = (rank[:, -1:] + 1) // 2
    return (rank >= middle).int().argmax(dim=1), best.squeeze(1) > 0


def pack_predictions(logits: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """The labels of each document whose probability is at least their threshold, packed.

    Args:
        logits: Label scores before the sigmoid, [B, L].
        threshold: Least probability of each label, [L], float32.

    Returns:
        Offsets [B + 1] and labels, ascending in each document, both int64, on the CPU.

    Raises:
        GraphError: There are not as many thresholds as labels, or a score or threshold is NaN.
    """
    if logits.size(1) != len(threshold):
        raise GraphError(
            f"There must be a threshold for each label, found {len(threshold)} for "
            f"{logits.size(1)} labels; choose them on this data set."
        )
    check_not_nan(logits, "Label scores")
    check_not_nan(threshold, "Thresholds")
    above = torch.sigmoid(logits.float()).cpu() >= threshold  # [B, L]
    return make_ptr(above.sum(dim=1)), above.nonzero()[:, 1]
