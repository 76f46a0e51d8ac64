"""Optimizer and learning-rate schedule."""

from torch import nn, optim

from match_graph.config import TrainConfig
from match_graph.nn import MatchModel


def make_optimizer(model: MatchModel, config: TrainConfig) -> optim.Optimizer:
    """Adam or AdamW.

    Weight decay acts by AdamW and on matrices only, an encoder's vectors of positions and fields
    among them, not on the embeddings of tokens, biases and norms: Adam would add it to the gradient
    and rescale it, to a step of the learning rate however small it is. An encoder may ask for a
    lower rate for parts of it (``rate_factors``).

    Args:
        model: Model; each parameter that needs a gradient is in one group.
        config: Settings of learning rates and weight decay.
    """
    factors = {f"encoder.{name}": value for name, value in model.encoder.rate_factors.items()}
    parts: dict[tuple[str, float], list[nn.Parameter]] = {("matrix", 1.0): [], ("other", 1.0): []}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        # the table is a group of its own: it may be sharded, and not as FSDP shards
        kind = "matrix" if parameter.dim() > 1 else "other"
        kind = "table" if name == "embedding.weight" else kind
        factor = next((value for part, value in factors.items() if name.startswith(part)), 1.0)
        parts.setdefault((kind, factor), []).append(parameter)
    is_decoupled = config.optimizer == "adamw"
    groups = [
        {
            "params": some,
            "weight_decay": config.weight_decay if is_decoupled and kind == "matrix" else 0.0,
            "lr": factor * config.learning_rate,
        }
        for (kind, factor), some in parts.items()
    ]
    adam = optim.AdamW if is_decoupled else optim.Adam
    optimizer: optim.Optimizer = adam(groups, lr=config.learning_rate, fused=True)
    for group in optimizer.param_groups:
        group["peak_lr"] = group["lr"]
    return optimizer


def set_progress(optimizer: optim.Optimizer, progress: float, config: TrainConfig) -> None:
    """Sets the learning rate of every group.

    Args:
        optimizer: Optimizer from `make_optimizer`.
        progress: Share of all steps done, in 0..1.
        config: Settings of warm-up and schedule.
    """
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * schedule(progress, config.warmup, config.schedule)


def find_progress(step: int, num_steps: int) -> float:
    """Share of the training done after a step, in 0..1.

    A training of a single step is at 1/2, as it would have learning rate 0 otherwise.

    Args:
        step: Number of the step, from 1.
        num_steps: Number of all steps.
    """
    return step / max(2, num_steps)


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
