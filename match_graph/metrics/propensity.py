"""PSP@k and PSNDCG@k: ranking measures that weigh rare labels up by Jain's propensities."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.csr import check_not_nan, row_index
from match_graph.metrics.meter import Meter
from match_graph.metrics.ranking import DEFAULT_KS, find_hits

#: (A, B) as the source fits them; "default" is for every other data set.
PROPENSITY_PARAMETERS = {
    "default": (0.55, 1.5),
    "wikipedia": (0.5, 0.4),  # WikiLSHTC-325K, WikipediaLarge-500K
    "amazon": (0.6, 2.6),  # Amazon-670K, Amazon-3M
}


def inverse_propensity(
    train_count: Tensor,
    num_documents: int,
    a: float = PROPENSITY_PARAMETERS["default"][0],
    b: float = PROPENSITY_PARAMETERS["default"][1],
) -> Tensor:
    r"""Jain's inverse propensity of each label: the rarer in training, the larger.

    .. math:: \frac{1}{p_l} = 1 + C (N_l + B)^{-A}, \quad C = (\ln N - 1)(B + 1)^A

    Source: section 4 of Jain, Prabhu & Varma, KDD 2016, https://doi.org/10.1145/2939672.2939756.
    Differs from it below 3 documents, where C would be negative and a propensity above 1 or below
    0: C is 0 then, and every propensity 1.

    Args:
        train_count: Number of training documents of each label :math:`N_l`, [L]; 0 is allowed.
        num_documents: Number of training documents N, at least 1.
        a: Jain's parameter A of the data set, see `PROPENSITY_PARAMETERS`.
        b: Jain's parameter B of the data set, above 0.

    Returns:
        [L], float64, at least 1.

    Raises:
        GraphError: There is no training document, or b is not above 0.
    """
    if num_documents < 1 or b <= 0:
        raise GraphError(
            f"Propensities need at least one training document and b above 0, found "
            f"{num_documents} and {b}."
        )
    c = max(math.log(num_documents) - 1, 0.0) * (b + 1) ** a
    return 1 + c * (train_count.double() + b) ** -a


class PropensityMeter(Meter):
    r"""PSP@k and PSNDCG@k over batches, relative to the best attainable ranking.

    .. math:: PSP@k = \frac{\sum_d \sum_{i \le k} y_{rank(i)} / p_{rank(i)}}
        {\sum_d \sum_{i \le k} y_{best(i)} / p_{best(i)}}

    where best ranks a document's gold labels by descending 1/p. PSNDCG@k is the same with each
    term divided by log2(i + 1), and each document's sum by its ideal NDCG, that of min(k, gold)
    labels. It is one ratio of sums over documents and not a mean of ratios, as the XMC repository
    reports it (http://manikvarma.org/downloads/XC/XMLRepository.html) and napkinXC computes it.
    The page there prints k instead of min(k, gold) in the ideal. Documents without gold labels
    add nothing to either sum, so there is no policy for them.

    Args:
        weight: Inverse propensities, [L]; from `inverse_propensity`.
        ks: Cut-offs k.

    Raises:
        GraphError: A weight is NaN.
    """

    summed = ("_found", "_best")

    def __init__(self, weight: Tensor, ks: Sequence[int] = DEFAULT_KS) -> None:
        check_not_nan(weight, "Propensities")
        self.weight, self.ks = weight.double(), tuple(ks)
        self._found = torch.zeros(2, len(self.ks), dtype=torch.float64)  # PSP, PSNDCG
        self._best = torch.zeros(2, len(self.ks), dtype=torch.float64)

    def update(self, ranked: Tensor, label_ptr: Tensor, label_index: Tensor) -> None:
        """Adds a batch; arguments as for `RankingMeter.update`.

        Raises:
            GraphError: A label has no weight.
        """
        largest = max((int(x.max()) for x in (ranked, label_index) if x.numel()), default=-1)
        if largest >= len(self.weight):
            raise GraphError(
                f"There must be a propensity for each label, found {len(self.weight)} and label "
                f"{largest}; count the training documents of all labels."
            )
        hits = find_hits(ranked, label_ptr, label_index)
        num_gold = label_ptr.diff()
        self._add(self._found, self.weight[ranked] * hits, num_gold)
        self._add(self._best, self._best_gains(label_ptr, label_index), num_gold)

    def _best_gains(self, label_ptr: Tensor, label_index: Tensor) -> Tensor:
        """The largest weights of each document's gold labels, descending, 0 beyond; [B, K]."""
        weight, row = self.weight[label_index], row_index(label_ptr)
        order = torch.argsort(weight, descending=True)
        order = order[torch.argsort(row[order], stable=True)]  # by document, then by weight
        rank = torch.arange(len(order)) - label_ptr[row]
        kept = rank < max(self.ks)
        gains = torch.zeros(label_ptr.numel() - 1, max(self.ks), dtype=torch.float64)
        gains[row[kept], rank[kept]] = weight[order[kept]]
        return gains

    def _add(self, sums: Tensor, gains: Tensor, num_gold: Tensor) -> None:
        discount = 1 / torch.log2(torch.arange(2, max(self.ks) + 2, dtype=torch.float64))
        ideal = torch.cat([discount[:1], discount.cumsum(0)])  # no gold label: 0 over anything
        for place, k in enumerate(self.ks):
            cut = gains[:, :k]
            sums[0, place] += cut.sum() / k
            sums[1, place] += ((cut @ discount[: cut.size(1)]) / ideal[num_gold.clamp(max=k)]).sum()

    def compute(self) -> dict[str, float]:
        """PSP@k and PSNDCG@k in 0..1; empty where no document had a gold label (0/0)."""
        if not self._best.any():
            return {}
        names = [f"{name}@{k}" for name in ("PSP", "PSNDCG") for k in self.ks]
        return dict(zip(names, (self._found / self._best).flatten().tolist(), strict=True))
