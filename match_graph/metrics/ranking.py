"""P@k, NDCG@k and R@k of ranked labels against packed gold labels."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.csr import check_not_nan, row_index
from match_graph.metrics.meter import Meter

#: Policies for documents with few gold labels: those without any count as 0 (MATCH's release), or
#: are left out (PyG); those with fewer than k are left out at k (OAXMLC-Bench).
EmptyPolicy: TypeAlias = Literal["zero", "skip", "at_least_k"]

#: (label, probability) of each document, most probable first.
Chosen: TypeAlias = list[list[tuple[int, float]]]

DEFAULT_KS = (1, 3, 5)


def find_hits(ranked: Tensor, label_ptr: Tensor, label_index: Tensor) -> Tensor:
    """Which ranked labels are gold.

    Args:
        ranked: Label indices, best first, [B, K], int64; a negative one pads and is a miss.
        label_ptr: Offsets of gold labels, [B + 1], int64.
        label_index: Gold labels, packed, int64.

    Returns:
        [B, K], bool.

    Raises:
        GraphError: ``ranked`` is not of two dimensions, or ``label_ptr`` has not B + 1 entries.
    """
    if ranked.dim() != 2 or label_ptr.numel() != ranked.size(0) + 1:
        raise GraphError(
            f"Ranked labels must be [B, K] with label_ptr [B + 1], found {list(ranked.shape)} "
            f"and {list(label_ptr.shape)}."
        )
    if not label_index.numel() or not ranked.numel():
        return torch.zeros_like(ranked, dtype=torch.bool)
    width = int(torch.maximum(ranked.max(), label_index.max())) + 1
    gold = torch.sort(row_index(label_ptr) * width + label_index).values
    rows = torch.arange(ranked.size(0), device=ranked.device).unsqueeze(1)
    key = rows * width + ranked
    place = torch.searchsorted(gold, key).clamp(max=gold.numel() - 1)
    return (gold[place] == key) & (ranked >= 0)  # the key of -1 is a label of the row before


def precision_at_k(hits: Tensor, k: int) -> Tensor:
    r"""P@k of each document, :math:`\frac{1}{k} \sum_{i \le k} y_{rank(i)}`.

    Source: equation 21 of MATCH, https://arxiv.org/abs/2102.07349; divides by k also where there
    are fewer labels.

    Args:
        hits: Whether each ranked label is gold, from `find_hits`, [B, K], bool.
        k: Number of ranks that count; those beyond K are misses.

    Returns:
        [B], float64, in 0..1.
    """
    return hits[:, :k].sum(dim=1).double() / k


def recall_at_k(hits: Tensor, num_gold: Tensor, k: int) -> Tensor:
    """R@k of each document: the share of its gold labels that are among the k best.

    Args:
        hits: Whether each ranked label is gold, from `find_hits`, [B, K], bool.
        num_gold: Number of gold labels of each document, [B].
        k: Number of ranks that count.

    Returns:
        [B], float64, in 0..1; 0 where there is no gold label.
    """
    return hits[:, :k].sum(dim=1).double() / num_gold.clamp(min=1)


def ndcg_at_k(hits: Tensor, num_gold: Tensor, k: int) -> Tensor:
    r"""NDCG@k of each document, the ideal being min(k, number of gold labels) hits.

    Source: equation 21 of MATCH, https://arxiv.org/abs/2102.07349.

    Args:
        hits: Whether each ranked label is gold, from `find_hits`, [B, K], bool.
        num_gold: Number of gold labels of each document, [B].
        k: Number of ranks that count.

    Returns:
        [B], float64, in 0..1; 0 where there is no gold label.
    """
    discount = 1 / torch.log2(torch.arange(2, k + 2, dtype=torch.float64, device=hits.device))
    gain = hits[:, :k].double() @ discount[: hits.size(1)]
    ideal = torch.cat([discount.new_zeros(1), discount.cumsum(0)])[num_gold.clamp(max=k)]
    return torch.where(ideal > 0, gain / ideal.clamp(min=1e-12), 0.0)


def rank_labels(scores: Tensor, k: int, label_rank: Tensor | None = None) -> Tensor:
    """The k best labels of each document, best first, [B, min(k, L)], int64.

    Args:
        scores: Label scores, [B, L], floating point.
        k: Number of labels to rank.
        label_rank: Rank of each label among equal scores, the lower first, [L], int64, a
            permutation; scores are compared in float32 then. None takes the label indices, the more
            frequent first, and leaves the order of scores of minus infinity undefined.

    Raises:
        GraphError: A score is NaN.
    """
    k = min(k, scores.size(1))
    if label_rank is None:
        best, ranked = torch.topk(scores, min(k + 1, scores.size(1)), dim=1)
        check_not_nan(best[:, :1], "Label scores")  # above all numbers for topk
        # topk does not define the order of equal scores, nor which of them are among the k
        tied = (best[:, 1:] == best[:, :-1]) & (best[:, 1:] > -torch.inf)
        rows = tied.any(dim=1).nonzero()[:, 0]
        ranked = ranked[:, :k]
        ranked[rows] = scores[rows].argsort(dim=1, descending=True, stable=True)[:, :k]
        return ranked
    check_not_nan(scores, "Label scores")
    # one integer key: above the score's bits, made monotone, below the rank; -0.0 + 0.0 is 0.0
    bits = (scores.float() + 0.0).view(torch.int32).long()
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return torch.topk((ordered << 32) - label_rank, k, dim=1).indices


def choose_labels(
    logits: Tensor,
    top_k: int | None,
    thresholds: Tensor | None,
    label_rank: Tensor | None = None,
) -> Chosen:
    """(label, probability) of each document, most probable first.

    Args:
        logits: Label scores before the sigmoid, [B, L], float32.
        top_k: Largest number of labels; None for no limit.
        thresholds: Least probability of each label, [L]; None for all labels.
        label_rank: Rank of each label in the hierarchy, as for `rank_labels`.

    Raises:
        GraphError: A score is NaN.
    """
    check_not_nan(logits, "Label scores")
    probability = torch.sigmoid(logits)
    count = torch.full((len(logits),), logits.size(1))
    if thresholds is not None:
        above = probability >= thresholds
        logits = logits.masked_fill(~above, -torch.inf)
        count = above.sum(dim=1)
    if top_k is not None:
        count = count.clamp(max=min(top_k, 2**31))
    ranked = rank_labels(logits, int(count.max()) if len(count) else 0, label_rank)
    values = probability.gather(1, ranked)
    return [
        list(zip(labels[:number], shares[:number], strict=True))
        for labels, shares, number in zip(
            ranked.tolist(), values.tolist(), count.tolist(), strict=True
        )
    ]


class RankingMeter(Meter):
    """P@k, NDCG@k and R@k over batches.

    Args:
        ks: Cut-offs k.
        empty: Policy for documents with few gold labels: "zero" counts those without any as 0,
            "skip" leaves them out, "at_least_k" leaves those with fewer than k out of the measures
            at k, as https://github.com/eXascaleInfolab/oaxmlc-bench does (misc/metrics).
    """

    summed = ("_sums", "_counts", "num_documents")

    def __init__(self, ks: Sequence[int] = DEFAULT_KS, empty: EmptyPolicy = "zero") -> None:
        self.ks, self.empty = tuple(ks), empty
        self._sums = torch.zeros(3, len(self.ks), dtype=torch.float64)  # P, NDCG, R
        self._counts = torch.zeros(len(self.ks), dtype=torch.int64)
        self.num_documents = 0

    def update(self, ranked: Tensor, label_ptr: Tensor, label_index: Tensor) -> None:
        """Adds a batch; arguments as for `find_hits`, K at least max(ks) or L."""
        hits = find_hits(ranked, label_ptr, label_index)
        num_gold = label_ptr.diff()
        if self.empty == "skip":
            hits, num_gold = hits[num_gold > 0], num_gold[num_gold > 0]
        for place, k in enumerate(self.ks):
            counted = num_gold >= (k if self.empty == "at_least_k" else 0)
            some, gold = hits[counted], num_gold[counted]
            self._sums[0, place] += float(precision_at_k(some, k).sum())
            self._sums[1, place] += float(ndcg_at_k(some, gold, k).sum())
            self._sums[2, place] += float(recall_at_k(some, gold, k).sum())
            self._counts[place] += len(gold)
        self.num_documents += len(num_gold)

    def compute(self) -> dict[str, float]:
        """Means over documents, fractions in 0..1; without those k at which no document counts.

        Raises:
            GraphError: No document was added.
        """
        if not self.num_documents:
            raise GraphError(
                "Metrics need at least one document, found none; the split is empty, or all of its "
                "documents lack gold labels under empty='skip'."
            )
        names = [f"{name}@{k}" for name in ("P", "NDCG", "R") for k in self.ks]
        counts = self._counts.tolist() * 3
        sums = self._sums.flatten().tolist()
        return {
            name: total / count
            for name, total, count in zip(names, sums, counts, strict=True)
            if count
        }
