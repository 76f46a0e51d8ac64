"""Evaluation of a model on a split, batch by batch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from match_graph.graph import EgoBatch, Hierarchy
from match_graph.metrics import RankingMeter, ViolationMeter, rank_labels


@dataclass(frozen=True)
class ScoredBatch:
    """Batch of B documents with logits and gold labels, on the CPU.

    Args:
        document: Documents, [B], int64.
        logits: Label scores before the sigmoid, [B, L], float32.
        ranked: The 5 best labels, [B, K], int64.
        gold: Offsets [B + 1] and indices of the gold labels.
    """

    document: Tensor
    logits: Tensor
    ranked: Tensor
    gold: tuple[Tensor, Tensor]


#: Callback that gets a scored batch.
Observer: TypeAlias = Callable[[ScoredBatch], None]


@torch.no_grad()
def evaluate_model(
    model: nn.Module,
    batches: Iterable[EgoBatch],
    hierarchy: Hierarchy | None,
    device: torch.device | str = "cpu",
    observers: Sequence[Observer] = (),
    total: Callable[[Tensor], Tensor] | None = None,
    label_rank: Tensor | None = None,
) -> dict[str, float]:
    """Measures of a model over batches with gold labels; nothing of size [documents, L] is kept.

    Args:
        model: Model that maps an `EgoBatch` to logits [B, L]; put into evaluation mode and back.
        batches: Batches with gold labels.
        hierarchy: Label hierarchy, on the CPU; None leaves violations out.
        device: Device of the model.
        observers: Callbacks that get every scored batch.
        total: Function that sums a tensor over processes that share the batches; None is one
            process.
        label_rank: Rank of each label among equal scores, [L], int64, see `rank_labels`.

    Returns:
        P@k, NDCG@k and R@k for k of 1, 3 and 5, violation_rate and violation_size, in 0..1.

    Raises:
        GraphError: A score is NaN.
    """
    ranking = RankingMeter()
    violations = None if hierarchy is None else ViolationMeter(hierarchy)
    was_training = model.training
    model.eval()
    for batch in batches:
        logits = model(batch.to(device)).float().cpu()
        if not batch.share:  # another process counts it; a sharded model needs all to compute
            continue
        ranked = rank_labels(logits, max(ranking.ks), label_rank)
        gold = batch.gold[0].cpu(), batch.gold[1].cpu()
        ranking.update(ranked, *gold)
        if violations is not None:
            violations.update(logits)
        for observe in observers:
            observe(ScoredBatch(batch.document.cpu(), logits, ranked, gold))
    model.train(was_training)
    measures: dict[str, float] = {}
    for meter in (ranking, violations):
        if meter is not None:
            if total is not None:
                meter.reduce(total)
            measures |= meter.compute()
    return measures


def label_prior(train_count: Tensor, label_ptr: Tensor, label_index: Tensor) -> dict[str, float]:
    """Measures of the label prior: every document gets the most frequent training labels.

    Args:
        train_count: Number of training documents of each label, [L].
        label_ptr: Offsets of gold labels, [B + 1], int64.
        label_index: Gold labels, packed, int64.
    """
    meter = RankingMeter()
    order = torch.argsort(train_count, descending=True, stable=True)[: max(meter.ks)]
    meter.update(order.expand(label_ptr.numel() - 1, -1), label_ptr, label_index)
    return meter.compute()
