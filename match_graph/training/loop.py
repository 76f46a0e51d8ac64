"""The training loop, on Lightning Fabric: it reads from top to bottom."""

import math
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel
from torch.utils.tensorboard import SummaryWriter

from match_graph.config import TrainConfig
from match_graph.errors import CheckpointError, ConfigError
from match_graph.graph import EgoLoader
from match_graph.nn import MatchModel, match_loss
from match_graph.training.device import make_fabric
from match_graph.training.evaluate import evaluate_model
from match_graph.training.files import (
    HISTORY,
    MODEL,
    STATE,
    read_state,
    write_beside,
    write_state,
    write_tensors,
)
from match_graph.training.optimizers import make_average, make_optimizers, set_progress
from match_graph.training.progress import Reporter

#: The validation measure that chooses the checkpoint and stops the training.
MONITOR = "NDCG@5"
#: Batches at the end of an epoch whose mean loss the history keeps beside that of the epoch.
RECENT = 100


@dataclass
class TrainState:
    """What a resumed training goes on from."""

    epoch: int = 0
    best: float = -1.0
    best_epoch: int = 0

    def is_over(self, config: TrainConfig) -> bool:
        """Whether the epochs or the patience are used up."""
        assert config.epochs is not None
        return self.epoch >= config.epochs or self.epoch - self.best_epoch >= config.patience


@dataclass(frozen=True)
class Hierarchy:
    """The label edges as the loss takes them: [2, E], int64, and a weight each, [E], or None."""

    edge_index: Tensor
    edge_weight: Tensor | None

    def to(self, device: torch.device) -> "Hierarchy":
        """The same on a device."""
        weight = None if self.edge_weight is None else self.edge_weight.to(device)
        return Hierarchy(self.edge_index.to(device), weight)


def train_model(
    model: MatchModel,
    train_loader: EgoLoader,
    valid_loader: EgoLoader,
    hierarchy: Hierarchy,
    config: TrainConfig,
    folder: Path,
    seed: int,
    reporter: Reporter,
) -> TrainState:
    """Trains, keeps the best weights on validation NDCG@5, and resumes where a checkpoint is.

    Every epoch starts from a seed of its own, so that a resumed training equals an uninterrupted
    one without saving random states. Writes ``model.safetensors`` (best weights), ``history.csv``,
    ``checkpoint/`` and TensorBoard events into ``folder``.

    Args:
        model: On the CPU; holds the best weights afterwards.
        train_loader: Its batch sampler and node sampler take ``set_epoch``.
        valid_loader: Batches with gold labels, in any order.
        hierarchy: Label edges.
        config: Resolved settings.
        folder: The run folder.
        seed: Of dropout and order.
        reporter: For progress.
    """
    checkpoint = read_state(folder / STATE) if (folder / STATE).is_file() else None
    if checkpoint is not None and TrainState(**checkpoint["train"]).is_over(config):
        return TrainState(**checkpoint["train"])
    fabric = make_fabric(config)
    optimizers = make_optimizers(model, config)
    wrapped, *wrapped_optimizers = fabric.setup(model, *optimizers)
    average = make_average(model, config.average) if config.average else None
    state, history = TrainState(), pd.DataFrame()
    if checkpoint is not None:
        state, history = _resume(checkpoint, model, average, optimizers)
        reporter.line(f"train: resumed after epoch {state.epoch}")
    edges = hierarchy.to(fabric.device)
    scored = model if average is None else average

    with SummaryWriter(str(folder / "events"), purge_step=state.epoch + 1) as writer:
        while not state.is_over(config):
            torch.manual_seed(seed * 1_000_003 + state.epoch)
            losses = _train_epoch(
                fabric, model, wrapped, wrapped_optimizers, average, train_loader, edges, config,
                state.epoch, reporter,
            )  # fmt: skip
            with fabric.autocast():
                measures = evaluate_model(scored, valid_loader, hierarchy.edge_index, fabric.device)
            state.epoch += 1
            if measures[MONITOR] > state.best:
                state.best, state.best_epoch = measures[MONITOR], state.epoch
                write_tensors(folder / MODEL, _weights(model, average))
            row = {"epoch": state.epoch, **losses, **measures}
            for name, value in row.items():
                writer.add_scalar(name, value, state.epoch)
            history = pd.concat([history, pd.DataFrame([row])], ignore_index=True)
            _save(folder, model, average, optimizers, state, history)
            reporter.line(
                f"train: epoch {state.epoch} of {config.epochs}, loss {losses['loss']:.4f}, "
                f"valid P@1 {measures['P@1']:.4f}, NDCG@5 {measures[MONITOR]:.4f}"
                + (" (best)" if state.best_epoch == state.epoch else "")
            )
    return state


def _train_epoch(
    fabric: Fabric,
    model: MatchModel,
    wrapped: nn.Module,
    optimizers: list[Optimizer],
    average: AveragedModel | None,
    loader: EgoLoader,
    hierarchy: Hierarchy,
    config: TrainConfig,
    epoch: int,
    reporter: Reporter,
) -> dict[str, float]:
    """One pass over the training documents; mean losses per document.

    ``loss_recent`` is the mean over the last `RECENT` batches, which the paper's figure with and
    without pre-training shows.
    """
    loader.batch_sampler.set_epoch(epoch)
    loader.node_sampler.set_epoch(epoch)
    wrapped.train()
    assert config.epochs is not None
    sums = torch.zeros(4, device=fabric.device)
    recent: deque[Tensor] = deque(maxlen=RECENT)
    total = len(loader.batch_sampler.lengths)
    done = 0
    with reporter.track(f"train: epoch {epoch + 1}", total, "documents") as advance:
        for number, cpu_batch in enumerate(loader):
            batch = cpu_batch.to(fabric.device, non_blocking=True)
            progress = (epoch + (number + 1) / len(loader.batch_sampler)) / config.epochs
            for optimizer in optimizers:
                set_progress(optimizer, progress, config.warmup)
                optimizer.zero_grad()
            losses = match_loss(
                wrapped(batch), batch.label_ptr, batch.label_index,
                model.head.label_weight, hierarchy.edge_index, hierarchy.edge_weight,
                config.lambda_parameter, config.lambda_output,
            )  # fmt: skip
            fabric.backward(losses.total)
            fabric.clip_gradients(
                wrapped, optimizers[0], max_norm=config.clip_norm, error_if_nonfinite=False
            )
            for optimizer in optimizers:
                optimizer.step()
            if average is not None:
                average.update_parameters(model)
            total_loss = losses.total.detach()
            terms = torch.stack([total_loss, losses.bce, losses.parameter, losses.output])
            sums += terms * batch.num_documents
            recent.append(total_loss)
            done += batch.num_documents
            if number % 20 == 0:
                advance(done, f"loss {float(total_loss):.3f}")
    names = ("loss", "loss_bce", "loss_parameter", "loss_output")
    means = dict(zip(names, (sums / max(done, 1)).tolist(), strict=True))
    means["loss_recent"] = float(torch.stack(list(recent)).mean()) if recent else 0.0
    if not math.isfinite(means["loss"]):
        raise ConfigError(
            f"The training loss must stay finite, but it did not in epoch {epoch + 1}; lower "
            f"train.learning_rate (now {config.learning_rate}) and run again with --overwrite."
        )
    return means


def _weights(model: nn.Module, average: AveragedModel | None) -> dict[str, Tensor]:
    return dict((model if average is None else average.module).state_dict())


def _save(
    folder: Path,
    model: nn.Module,
    average: AveragedModel | None,
    optimizers: list[Optimizer],
    state: TrainState,
    history: pd.DataFrame,
) -> None:
    write_beside(folder / HISTORY, lambda beside: history.to_csv(beside, index=False))
    content = {
        "train": asdict(state),
        "model": model.state_dict(),
        "average": None if average is None else average.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "history": history.to_dict("list"),
    }
    write_state(folder / STATE, content)


def _resume(
    checkpoint: dict[str, Any],
    model: nn.Module,
    average: AveragedModel | None,
    optimizers: list[Optimizer],
) -> tuple[TrainState, pd.DataFrame]:
    """Loads a checkpoint; model and optimizers are on their device already."""
    model.load_state_dict(checkpoint["model"])
    if average is not None:
        average.load_state_dict(checkpoint["average"])
    for optimizer, saved in zip(optimizers, checkpoint["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    return TrainState(**checkpoint["train"]), pd.DataFrame(checkpoint["history"])


def close_training(folder: Path, config: TrainConfig) -> None:
    """Drops weights and optimizers from the checkpoint of a training that is over.

    What stays says that it is over, so that no later command trains on or again.

    Raises:
        CheckpointError: The training was broken off.
    """
    if not (folder / STATE).is_file():
        return
    state = TrainState(**read_state(folder / STATE)["train"])
    if not state.is_over(config):
        raise CheckpointError(
            f"A run is evaluated when its training is over, but that in '{folder}' was broken off "
            f"after epoch {state.epoch} of {config.epochs}; finish it with the command that "
            f"started it."
        )
    write_state(folder / STATE, {"train": asdict(state)})
