"""Micro and macro precision, recall and F1 of predicted label sets, packed."""

import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.csr import row_index
from match_graph.metrics.meter import Meter


def find_common(
    ptr: Tensor, index: Tensor, other_ptr: Tensor, other_index: Tensor, num_labels: int
) -> Tensor:
    """Mask of the entries of packed label sets that are in the document's other set, [N], bool.

    Args:
        ptr: Offsets of the sets, [B + 1], int64.
        index: Labels, packed, without repetition in a document, int64.
        other_ptr: Offsets of the other sets, [B + 1], int64.
        other_index: Labels of the other sets, packed, without repetition in a document, int64.
        num_labels: Number of labels L.

    Raises:
        GraphError: The two are not of as many documents, or name a label outside [0, L).
    """
    if ptr.shape != other_ptr.shape:
        raise GraphError(
            f"Predicted and gold labels must be of the same documents, found "
            f"{ptr.numel() - 1} and {other_ptr.numel() - 1} documents."
        )
    for labels in (index, other_index):
        if labels.numel() and (int(labels.min()) < 0 or int(labels.max()) >= num_labels):
            raise GraphError(
                f"Labels must lie in [0, {num_labels}), found {int(labels.min())} to "
                f"{int(labels.max())}."
            )
    key = row_index(ptr) * num_labels + index
    other = row_index(other_ptr) * num_labels + other_index
    return torch.isin(key, other, assume_unique=True)


def average_sets(counts: Tensor) -> dict[str, float]:
    r"""Micro and macro precision, recall and F1 as OAXMLC-Bench defines them; 0/0 is 0.

    .. math:: P_{micro} = \frac{\sum_l TP_l}{\sum_l predicted_l}, \quad
        P_{macro} = \frac{1}{L} \sum_l \frac{TP_l}{predicted_l}

    and R likewise with gold in place of predicted. F1_micro and F1_of_macro are the harmonic means
    of the two. Differs from `F1Meter`: all labels count in the macro mean, those too that no
    document has, and F1_of_macro is made of two means; F1_macro there is a mean of F1 per label.

    Source: ``precision_recall`` of https://github.com/eXascaleInfolab/oaxmlc-bench, misc/metrics.

    Args:
        counts: Correct, predicted and gold documents of each label, [3, L], int64; `F1Meter` has
            them as ``counts``.
    """
    correct, predicted, gold = counts.double()
    measures = {}
    for name, of in (("P", predicted), ("R", gold)):
        measures[f"{name}_micro"] = float(correct.sum() / of.sum().clamp(min=1))
        measures[f"{name}_macro"] = float((correct / of.clamp(min=1)).sum() / max(len(of), 1))
    for average, name in (("micro", "F1_micro"), ("macro", "F1_of_macro")):
        p, r = measures[f"P_{average}"], measures[f"R_{average}"]
        measures[name] = 2 * p * r / (p + r) if p and r else 0.0
    return measures


class F1Meter(Meter):
    r"""Micro and macro F1 of predicted label sets, over batches.

    Micro: :math:`2 TP / (predicted + gold)` over all pairs. Macro: the mean of the same per label,
    over the labels that are gold or predicted for some document (for the others it is 0/0), as
    scikit-learn's ``f1_score(average="macro", zero_division=nan)``. Which labels are predicted
    is the caller's choice; `pack_predictions` takes those at or above thresholds.

    Args:
        num_labels: Number of labels L.
    """

    summed = ("counts",)

    def __init__(self, num_labels: int) -> None:
        self.num_labels = num_labels
        #: Correct, predicted and gold documents of each label, [3, L], int64.
        self.counts = torch.zeros(3, num_labels, dtype=torch.int64)

    def update(
        self, predicted_ptr: Tensor, predicted_index: Tensor, label_ptr: Tensor, label_index: Tensor
    ) -> None:
        """Adds a batch.

        Args:
            predicted_ptr: Offsets of predicted labels, [B + 1], int64.
            predicted_index: Predicted labels, packed, without repetition in a document, int64.
            label_ptr: Offsets of gold labels, [B + 1], int64.
            label_index: Gold labels, packed, int64.

        Raises:
            GraphError: As for `find_common`.
        """
        common = find_common(
            predicted_ptr, predicted_index, label_ptr, label_index, self.num_labels
        )
        for place, labels in enumerate((predicted_index[common], predicted_index, label_index)):
            self.counts[place] += torch.bincount(labels, minlength=self.num_labels)

    def compute(self, labels: Tensor | None = None) -> dict[str, float]:
        """``F1_micro`` and ``F1_macro`` in 0..1; empty where nothing is gold or predicted (0/0).

        Args:
            labels: Mask of labels that count, [L], bool; None is all.
        """
        correct, predicted, gold = self.counts if labels is None else self.counts[:, labels]
        total = predicted + gold
        defined = total > 0
        if not bool(defined.any()):
            return {}
        f1 = 2 * correct[defined].double() / total[defined]
        return {"F1_micro": 2 * int(correct.sum()) / int(total.sum()), "F1_macro": float(f1.mean())}
