"""Evaluation of a model on a split, batch by batch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from match_graph.graph import EgoBatch, Hierarchy
from match_graph.metrics import RankingMeter, ViolationMeter, rank_labels
from match_graph.metrics.ranking import EmptyPolicy

#: Takes logits [B, L], and the gold labels' offsets [B + 1] and indices.
Observer: TypeAlias = Callable[[Tensor, Tensor, Tensor], None]
#: Takes ranked labels [B, K], and the same.
RankObserver: TypeAlias = Callable[[Tensor, Tensor, Tensor], None]


class WatchedBatches:
    """Exposes the current batch's document ids to observers of `evaluate_model`.

    Args:
        batches: Batches of documents.
    """

    def __init__(self, batches: Iterable[EgoBatch]) -> None:
        self.batches = batches
        #: The documents of the current batch, [B], int64, on the CPU.
        self.document = torch.empty(0, dtype=torch.int64)

    def __iter__(self) -> Iterator[EgoBatch]:
        for batch in self.batches:
            self.document = batch.document.cpu()
            yield batch


@torch.no_grad()
def evaluate_model(
    model: nn.Module,
    batches: Iterable[EgoBatch],
    hierarchy: Hierarchy | None,
    device: torch.device | str = "cpu",
    empty: EmptyPolicy = "zero",
    observers: Sequence[Observer] = (),
    rank_observers: Sequence[RankObserver] = (),
    total: Callable[[Tensor], Tensor] | None = None,
    label_rank: Tensor | None = None,
) -> dict[str, float]:
    """Measures of a model over batches with gold labels; nothing of size [documents, L] is kept.

    Args:
        model: Model that maps an `EgoBatch` to logits [B, L]; put into evaluation mode and back.
        batches: Batches with gold labels.
        hierarchy: Label hierarchy, on the CPU; None leaves violations out.
        device: Device of the model.
        empty: Treatment of documents without gold labels, see `RankingMeter`.
        observers: Callbacks that get every batch's logits and gold labels, on the CPU.
        rank_observers: Callbacks that get every batch's 5 best labels and gold labels, on the CPU.
        total: Function that sums a tensor over processes that share the batches; None is one
            process.
        label_rank: Rank of each label among equal scores, [L], int64, see `rank_labels`.

    Returns:
        P@k, NDCG@k and R@k for k of 1, 3 and 5, violation_rate and violation_size, in 0..1.

    Raises:
        GraphError: A score is NaN.
    """
    ranking = RankingMeter(empty=empty)
    violations = None if hierarchy is None else ViolationMeter(hierarchy)
    was_training = model.training
    model.eval()
    for batch in batches:
        logits = model(batch.to(device)).float().cpu()
        if not batch.share:  # another process counts it; a model in parts needs all to step
            continue
        ranked = rank_labels(logits, max(ranking.ks), label_rank)
        gold = batch.gold[0].cpu(), batch.gold[1].cpu()
        ranking.update(ranked, *gold)
        if violations is not None:
            violations.update(logits)
        for observe in observers:
            observe(logits, *gold)
        for observe in rank_observers:
            observe(ranked, *gold)
    model.train(was_training)
    measures: dict[str, float] = {}
    for meter in (ranking, violations):
        if meter is not None:
            if total is not None:
                meter.reduce(total)
            measures |= meter.compute()
    return measures


def label_prior(
    train_count: Tensor, label_ptr: Tensor, label_index: Tensor, empty: EmptyPolicy = "zero"
) -> dict[str, float]:
    """Measures of the label prior: every document gets the most frequent training labels.

    Args:
        train_count: Number of training documents of each label, [L].
        label_ptr: Offsets of gold labels, [B + 1], int64.
        label_index: Gold labels, packed, int64.
        empty: Treatment of documents without gold labels, see `RankingMeter`.
    """
    meter = RankingMeter(empty=empty)
    order = torch.argsort(train_count, descending=True, stable=True)[: max(meter.ks)]
    meter.update(order.expand(label_ptr.numel() - 1, -1), label_ptr, label_index)
    return meter.compute()
