"""Blend of a network's scores with a linear classifier's, its weight from validation documents."""

from dataclasses import dataclass

import torch
from torch import Tensor

from match_graph.metrics.meter import Meter
from match_graph.metrics.ranking import find_hits, ndcg_at_k, rank_labels

#: Candidate shares of the network.
_SHARES = tuple(step / 10 for step in range(10))
#: Prior share of the network, and the strength of the penalty on the squared distance to it: in
#: documents times NDCG@5 (experiments/defaults).
_PRIOR, _STRENGTH = 0.4, 20.0


@dataclass(frozen=True)
class Blend:
    r"""Weighted mean of two models' log-odds, :math:`w z^{network} + (1 - w) z^{linear}`.

    Args:
        share: Share of the network w, in 0..0.9.
        fold_share: Shares fitted without each fold of the documents, [K], float32.
    """

    share: float
    fold_share: Tensor

    def __call__(self, network: Tensor, linear: Tensor, fold: Tensor | None = None) -> Tensor:
        """Blended log-odds, [B, L], float32.

        Args:
            network: Label scores of the network before the sigmoid, [B, L].
            linear: Those of the linear classifier, [B, L].
            fold: Fold of each document, [B], int64: blends by the share fitted without it, so that
                documents on which shares were fitted can be evaluated. None blends by the share of
                all.
        """
        share: Tensor | float = self.share
        if fold is not None:
            share = self.fold_share.to(network.device)[fold.to(network.device)].unsqueeze(1)
        return _mix(network.float(), linear.float(), share)


def _mix(network: Tensor, linear: Tensor, share: Tensor | float) -> Tensor:
    return share * network + (1 - share) * linear


class BlendSearch(Meter):
    r"""The share of the network with the best ranking, shrunk where documents are few.

    .. math:: \max_w \frac{1}{D} \sum_d NDCG@5_d(w) - \frac{c}{D} (w - w_0)^2

    over shares :math:`w` in steps of .1 below 1. On 125 documents NDCG@5 of two equally good models
    differs by .01 by chance, and the best share of the network by .3; there the second term keeps
    it near the prior share :math:`w_0`, while it is negligible among thousands.

    Source: stacking, Wolpert 1992, https://doi.org/10.1016/S0893-6080(05)80023-1, with a single
    weight.

    Args:
        num_folds: Number of folds K.
    """

    summed = ("_sums",)

    def __init__(self, num_folds: int = 5) -> None:
        self._sums = torch.zeros(num_folds, len(_SHARES), dtype=torch.float64)

    def update(
        self, network: Tensor, linear: Tensor, gold: tuple[Tensor, Tensor], fold: Tensor
    ) -> None:
        """Adds a batch.

        Args:
            network: Label scores of the network before the sigmoid, [B, L].
            linear: Those of the linear classifier, [B, L].
            gold: Offsets [B + 1] and indices of the gold labels, int64.
            fold: Fold of each document, [B], int64.

        Raises:
            GraphError: A score is NaN.
        """
        num_gold = gold[0].diff()
        for place, share in enumerate(_SHARES):
            scores = _mix(network.float(), linear.float(), share)
            hits = find_hits(rank_labels(scores, 5), *gold)
            self._sums[:, place].index_add_(0, fold, ndcg_at_k(hits, num_gold, 5))

    def compute(self) -> Blend:
        """The best share, of all documents and without each fold."""
        shares = torch.tensor(_SHARES, dtype=torch.float64)
        penalty = _STRENGTH * (shares - _PRIOR).square()
        total = self._sums.sum(dim=0)
        best = [_SHARES[int((sums - penalty).argmax())] for sums in (total, *(total - self._sums))]
        return Blend(best[0], torch.tensor(best[1:], dtype=torch.float32))
