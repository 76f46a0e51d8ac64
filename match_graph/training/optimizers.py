"""Optimizers and learning-rate schedule."""

import torch
from torch import nn, optim

from match_graph.config import TrainConfig
from match_graph.nn import MatchModel


def make_optimizers(model: MatchModel, config: TrainConfig) -> list[optim.Optimizer]:
    """Adam or AdamW for the network, plain gradient descent for the wide term if there is one.

    Weight decay acts on matrices only, not on embeddings, biases and norms. An encoder may ask for
    a lower rate for parts of it (``rate_factors``).

    The wide term's gradients are sparse in rows, which Adam refuses. Gradient descent moves the
    rows of the batch alone, and its one rate for all tokens keeps the weights of rare ones small,
    as the margin of a linear classifier does: alone on biotools it reaches a validation NDCG@5 of
    .498, where Adagrad, which gives rare tokens the largest steps, stops at .429. Its rate is that
    of a single document: times the documents over which the loss of a step is averaged, see
    `set_progress`, so that a document moves the weights as far whatever its batch. Clipping leaves
    it out.

    Args:
        model: Model; each parameter that needs a gradient is in one group.
        config: Settings of learning rates and weight decay.
    """
    wide: list[nn.Parameter] = []
    factors = {f"encoder.{name}": value for name, value in model.encoder.rate_factors.items()}
    dense: dict[tuple[str, float], list[nn.Parameter]] = {("matrix", 1.0): [], ("other", 1.0): []}
    for name, parameter in model.named_parameters():
        if name.startswith("wide."):
            wide.append(parameter)
        if name.startswith("wide.") or not parameter.requires_grad:
            continue
        # the table alone: its rows may lie with several processes, and not as FSDP's do
        kind = "matrix" if parameter.dim() > 1 else "other"
        kind = "table" if name == "embedding.weight" else kind
        factor = next((value for part, value in factors.items() if name.startswith(part)), 1.0)
        dense.setdefault((kind, factor), []).append(parameter)
    groups = [
        {
            "params": some,
            "weight_decay": config.weight_decay if kind == "matrix" else 0.0,
            "lr": factor * config.learning_rate,
        }
        for (kind, factor), some in dense.items()
    ]
    adam = optim.AdamW if config.optimizer == "adamw" else optim.Adam
    optimizers: list[optim.Optimizer] = [adam(groups, lr=config.learning_rate, fused=True)]
    if wide:
        torch.sparse.check_sparse_tensor_invariants.disable()  # torch's default; silent if stated
        group = {"params": wide, "per_document": True}
        optimizers.append(optim.SGD([group], lr=config.wide_learning_rate))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def set_progress(
    optimizer: optim.Optimizer, progress: float, config: TrainConfig, num_documents: int
) -> None:
    """Sets the learning rate of every group.

    Args:
        optimizer: Optimizer from `make_optimizers`.
        progress: Share of all steps done, in 0..1.
        config: Settings of warm-up and schedule.
        num_documents: Number of documents of all processes that the step's loss is averaged over; a
            factor of the rates that are per document.
    """
    for group in optimizer.param_groups:
        factor = num_documents if group.get("per_document") else 1
        group["lr"] = group["peak_lr"] * schedule(progress, config.warmup, config.schedule) * factor


def schedule(progress: float, warmup: float, kind: str = "linear") -> float:
    """Factor of the learning rate: linear warm-up, then linear decay to 0, or a constant rate.

    Args:
        progress: Share of all steps done, in 0..1.
        warmup: Share of all steps in the warm-up, in 0..1.
        kind: Schedule after the warm-up, as ``train.schedule``.
    """
    if progress < warmup:
        return progress / warmup
    if kind == "constant":
        return 1.0
    return max(0.0, (1 - progress) / max(1 - warmup, 1e-9))
