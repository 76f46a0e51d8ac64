"""How well scores respect the label hierarchy."""

from collections.abc import Callable

import torch
from torch import Tensor

from match_graph.graph.label_dag import check_label_edges


class ViolationMeter:
    """Hypernymy violations over batches: children scored above their parents.

    Source: the distributional inclusion hypothesis as in definition 1 of MATCH,
    https://arxiv.org/abs/2102.07349. Logits are read batch by batch and not kept.

    Args:
        label_edge_index: "child is_a parent", [2, E], int64; row 0 child, row 1 parent.
    """

    def __init__(self, label_edge_index: Tensor) -> None:
        self.label_edge_index = label_edge_index
        self.num_pairs = 0
        self.num_violations = 0
        self.excess = 0.0

    def update(self, logits: Tensor) -> None:
        """Adds label scores before the sigmoid, [B, L]."""
        check_label_edges(self.label_edge_index, logits.size(1))
        child, parent = self.label_edge_index
        scores = logits.float()
        probability, scores = torch.sigmoid(scores).t(), scores.t()  # [L, B]
        excess = probability[child] - probability[parent]  # [E, B]
        self.num_pairs += excess.numel()
        # by logits: the vectorised sigmoid of equal values differs in the last bit at times
        self.num_violations += int((scores[child] > scores[parent]).sum())
        self.excess += float(excess.clamp(min=0).sum(dtype=torch.float64))

    def reduce(self, total: Callable[[Tensor], Tensor]) -> None:
        """As `RankingMeter.reduce`."""
        counts = total(torch.tensor([self.num_pairs, self.num_violations]))
        self.num_pairs, self.num_violations = counts.tolist()
        self.excess = float(total(torch.tensor(self.excess, dtype=torch.float64)))

    def compute(self) -> dict[str, float]:
        """``violation_rate``: share of (document, child, parent) with the child above, in 0..1;
        ``violation_size``: mean excess of those, in probability units. Both 0 without edges.
        """
        return {
            "violation_rate": self.num_violations / max(self.num_pairs, 1),
            "violation_size": self.excess / max(self.num_violations, 1),
        }
