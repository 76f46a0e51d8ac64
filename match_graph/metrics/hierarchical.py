"""Hierarchy measures: violations of scores, precision and recall with ancestors."""

import math

import torch
from torch import Tensor

from match_graph.graph.csr import check_not_nan, row_index, select_rows, sorted_row_ptr
from match_graph.graph.labels import Hierarchy
from match_graph.metrics.meter import Meter
from match_graph.metrics.sets import find_common


class ViolationMeter(Meter):
    """Hypernymy violations over batches: children scored above their parents.

    Source: the distributional inclusion hypothesis as in section 3.4 of MATCH,
    https://arxiv.org/abs/2102.07349. Logits are read batch by batch and not kept.

    Args:
        hierarchy: Label hierarchy, on the device of the logits.
    """

    summed = ("num_pairs", "num_violations", "excess")

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.hierarchy = hierarchy
        self.num_pairs = 0
        self.num_violations = 0
        self.excess = 0.0

    def update(self, logits: Tensor) -> None:
        """Adds label scores before the sigmoid, [B, L].

        Raises:
            GraphError: The hierarchy is of another number of labels, or the score of an edge's end
                is NaN.
        """
        self.hierarchy.check_labels(logits.size(1))
        child, parent = self.hierarchy.edge_index
        if not child.numel():
            return
        scores = logits.float()
        probability, scores = torch.sigmoid(scores).t(), scores.t()  # [L, B]
        excess = probability[child] - probability[parent]  # [E, B]
        size = float(excess.clamp(min=0).sum(dtype=torch.float64))
        if math.isnan(size):
            check_not_nan(logits, "Label scores")
        self.num_pairs += excess.numel()
        # by logits: the vectorised sigmoid of equal values differs in the last bit at times
        self.num_violations += int((scores[child] > scores[parent]).sum())
        self.excess += size

    def compute(self) -> dict[str, float]:
        """``violation_rate``: share of (document, child, parent) with the child above, in 0..1;
        ``violation_size``: mean excess of those, in probability units. Both 0 without edges.
        """
        return {
            "violation_rate": self.num_violations / max(self.num_pairs, 1),
            "violation_size": self.excess / max(self.num_violations, 1),
        }


class HierarchicalMeter(Meter):
    r"""Precision, recall and F1 of label sets with all their ancestors, over batches.

    .. math:: hP = \frac{\sum_d |\hat P_d \cap \hat T_d|}{\sum_d |\hat P_d|}, \quad
        hR = \frac{\sum_d |\hat P_d \cap \hat T_d|}{\sum_d |\hat T_d|}, \quad
        hF_1 = \frac{2 hP hR}{hP + hR}

    where :math:`\hat P` and :math:`\hat T` are the predicted and the gold labels with their
    ancestors. A wrong label near a right one costs less than a far one.

    Source: Kiritchenko et al., Canadian AI 2006, https://doi.org/10.1007/11766247_34; summed over
    documents (micro) as in section 6 of Silla & Freitas 2011,
    https://doi.org/10.1007/s10618-010-0175-9. The source leaves the root out as it is in every
    set; here there is no common root, and the labels at the top are labels like the others.

    Args:
        hierarchy: Label hierarchy; only its sparse closure is used, never [L, L].
    """

    summed = ("_counts",)

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.num_labels = hierarchy.num_labels
        self._ancestors = hierarchy.ancestors()
        self._counts = torch.zeros(3, dtype=torch.int64)  # common, predicted, gold

    def update(
        self, predicted_ptr: Tensor, predicted_index: Tensor, label_ptr: Tensor, label_index: Tensor
    ) -> None:
        """Adds a batch; arguments and errors as for `F1Meter.update`."""
        # first of the given sets: this checks that labels are in range
        find_common(predicted_ptr, predicted_index, label_ptr, label_index, self.num_labels)
        predicted = self.close(predicted_ptr, predicted_index)
        gold = self.close(label_ptr, label_index)
        common = find_common(*predicted, *gold, self.num_labels).sum()
        self._counts += torch.stack([common, predicted[0][-1], gold[0][-1]])

    def close(self, ptr: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Label sets with all ancestors, each once, packed; as the arguments of `update`."""
        above_ptr, above = select_rows(*self._ancestors, index)
        row = row_index(ptr)
        key = torch.cat(
            [row * self.num_labels + index, row[row_index(above_ptr)] * self.num_labels + above]
        )
        key = torch.unique(key)
        return sorted_row_ptr(key // self.num_labels, ptr.numel() - 1), key % self.num_labels

    def compute(self) -> dict[str, float]:
        """``hierarchical_P``, ``hierarchical_R`` and ``hierarchical_F1`` in 0..1.

        P is left out where nothing was predicted, R where nothing was gold, F1 where both (0/0).
        """
        common, predicted, gold = self._counts.tolist()
        parts = {
            "P": (common, predicted),
            "R": (common, gold),
            "F1": (2 * common, predicted + gold),
        }
        return {f"hierarchical_{name}": n / total for name, (n, total) in parts.items() if total}
