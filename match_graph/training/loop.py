"""The training loop, on Lightning Fabric."""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.nn.utils import get_total_norm

from match_graph.config import TrainConfig
from match_graph.errors import CheckpointError, ConfigError
from match_graph.graph import EgoBatch, EgoLoader, Hierarchy
from match_graph.io.files import write_beside
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import HISTORY, STATE
from match_graph.nn import MatchModel, match_loss
from match_graph.nn.loss import whole
from match_graph.openmp import limit_threads
from match_graph.training.checkpoint import (
    SaveTimer,
    TrainState,
    check_same,
    is_save_point,
    read_checkpoint,
)
from match_graph.training.device import count_threads
from match_graph.training.evaluate import evaluate_model
from match_graph.training.learner import Learner, make_learner, start_average
from match_graph.training.loggers import Tracker, open_tracker
from match_graph.training.optimizers import find_progress, set_progress
from match_graph.training.processes import lead, sum_squares, sum_up
from match_graph.training.profiling import profile_steps
from match_graph.training.shards import find_shard

#: Takes the measures of an epoch by name, "epoch" among them.
Watch = Callable[[Mapping[str, float]], None]
#: The validation measure that chooses the checkpoint and stops the training.
MONITOR = "NDCG@5"


def watch_nothing(row: Mapping[str, float]) -> None:
    """`Watch` that does nothing."""


@dataclass(frozen=True)
class FitInputs:
    """Inputs of a training, and where its results go.

    Args:
        train_loader: Batches of the training documents, with gold labels.
        valid_loader: Batches of validation documents, with gold labels.
        hierarchy: Label hierarchy of the losses.
        folder: Folder of weights, history and checkpoint.
        reporter: Reporter of progress.
        fabric: Devices and processes.
        origin: Name of data and settings; a checkpoint of others is refused.
        watch: Called after each epoch with its row of the history; what it raises ends the
            training.
        settings: Resolved settings by dotted key, for the logger; None logs nothing.
        profile: Folder for a profile of some steps; None makes none.
    """

    train_loader: EgoLoader
    valid_loader: EgoLoader
    hierarchy: Hierarchy
    folder: Path
    reporter: Reporter
    fabric: Fabric
    origin: str
    watch: Watch = watch_nothing
    settings: Mapping[str, Any] | None = None
    profile: Path | None = None


def train_model(model: MatchModel, inputs: FitInputs, config: TrainConfig, seed: int) -> TrainState:
    """Trains, keeps the best weights on validation NDCG@5, and resumes from a checkpoint if any.

    Checkpoints are written after the last epoch, after others unless writing would take a twentieth
    of the time, and between two batches of a long epoch. The order of an epoch's batches, what is
    sampled for them and the seed of its random numbers depend on seed and epoch alone, and a
    checkpoint within an epoch holds the generators' states: so a resumed training equals an
    uninterrupted one. Writes ``model.safetensors`` (best weights), ``history.csv`` and
    ``checkpoint/`` into ``folder``, and the history to the tracker that ``logger`` names.

    Each of several processes takes a share of every batch; their mean gradient is the batch's.

    Args:
        model: Model on the CPU; trained in place.
        inputs: Batches, hierarchy, folder and processes; the samplers of the training documents
            have ``set_epoch``.
        config: Resolved settings.
        seed: Random seed of dropout and order.

    Raises:
        CheckpointError: The checkpoint is broken, or of another origin or model, or not all
            processes see the same one.
        ConfigError: The loss did not stay finite.
    """
    fabric, folder, reporter = inputs.fabric, inputs.folder, inputs.reporter
    loader = inputs.train_loader
    content = read_checkpoint(folder, inputs.origin, reporter)
    path = folder / STATE
    before = None if content is None else TrainState.from_checkpoint(content, path)
    check_same(fabric, content, path)
    if before is not None and before.is_over(config):
        return before
    assert config.epochs is not None
    num_steps = config.epochs * len(loader.order)
    learner = make_learner(fabric, model, config, num_steps, inputs.origin)
    random = None if content is None else _resume(learner, content, path, loader)
    if content is not None:
        content = None  # as large as weights, average and moments together
        reporter.line(f"train: resumed after {learner.state}")
    edges, state, timer = inputs.hierarchy.to(fabric.device), learner.state, SaveTimer(fabric)

    def save(step: int) -> None:
        tick()
        if timer.is_due(step):
            _check_finite(learner, config)
            with timer.writing():
                learner.save(folder)

    with ExitStack() as stack:
        stack.callback(learner.close)
        tick = stack.enter_context(profile_steps(inputs.profile))
        tracker = _open_tracker(stack, learner, inputs, config)
        while not state.is_over(config):
            torch.manual_seed(draw_seed(seed, state.epoch, fabric.global_rank))
            losses = _train_epoch(learner, loader, edges, config, random, save, reporter)
            random = None
            measures, is_due = _end_epoch(learner, inputs, config, timer)
            row = {"epoch": state.epoch, **losses, **measures}
            learner.add_row(row)
            _write_history(learner, folder, tracker)
            if is_due:
                with timer.writing():
                    learner.save(folder)
            reporter.line(_describe_epoch(state, config, row))
            inputs.watch(row)
    if state.epoch < config.epochs:
        reporter.line(
            f"train: stopped after epoch {state.epoch} of {config.epochs}, as validation "
            f"{MONITOR} did not rise for {config.patience} epochs (train.patience)"
        )
    return state


def draw_seed(seed: int, epoch: int, rank: int) -> int:
    """The seed of a process's random numbers in an epoch, such as those of dropout; 64 bits.

    Hashed, not concatenated: torch's CPU generator reads only the lower 32 bits.

    Args:
        seed: Seed of the run, below 2^32.
        epoch: Number of the epoch, below 2^32.
        rank: Rank of the process, below 2^32.
    """
    return int(np.random.SeedSequence((seed, epoch, rank)).generate_state(1, np.uint64)[0])


def _resume(
    learner: Learner, content: Mapping[str, Any], path: Path, loader: EgoLoader
) -> Mapping[str, Tensor] | None:
    """Loads a checkpoint; returns the random generators' states, None between epochs."""
    learner.load(content, path)
    num_steps = len(loader.order)
    if learner.state.step > num_steps:
        raise CheckpointError(
            f"The checkpoint '{path}' must be of at most {num_steps:,} steps within an epoch, "
            f"but it is of {learner.state.step:,}; delete the folder '{path.parent}' to train "
            f"again."
        )
    return content.get("random") if learner.state.step else None


def _train_epoch(
    learner: Learner,
    loader: EgoLoader,
    hierarchy: Hierarchy,
    config: TrainConfig,
    random: Mapping[str, Tensor] | None,
    save: Callable[[int], None],
    reporter: Reporter,
) -> dict[str, float]:
    """One pass over the training documents, or the rest of one; mean losses per document.

    ``loss_recent`` is the mean over the last batches, which is what the paper's figure with and
    without pre-training shows.

    Args:
        learner: Model, optimizer and progress within the epoch.
        loader: Batches of the training documents.
        hierarchy: Label hierarchy on the device.
        config: Resolved settings.
        random: States of the random generators to restore; None keeps the present ones.
        save: Callback after each step, gets the number of steps done.
        reporter: Reporter of progress.
    """
    state, batches = learner.state, loader.order
    batches.set_epoch(state.epoch, state.step)
    loader.set_epoch(state.epoch)
    learner.wrapped.train()
    assert config.epochs is not None
    total = len(batches.lengths)
    done_before, num_steps = state.epoch * len(batches), config.epochs * len(batches)
    iterator = iter(loader)  # draws a random number itself
    if random is not None:
        learner.restore_random(random)
    with reporter.track(f"train: epoch {state.epoch + 1}", total, "documents") as advance:
        for batch in iterator:
            step = done_before + state.step + 1
            loss = train_step(learner, batch, hierarchy, config, step, num_steps)
            if state.step % 20 == 0:
                done = min((state.step + 1) * batches.batch_size, total)
                advance(done, f"loss {float(loss):.3f}")
            state.step += 1
            if is_save_point(state.step):
                learner.settle()
            save(state.step)
    learner.settle()
    _check_finite(learner, config)
    means = learner.losses.compute(learner.fabric)
    learner.losses.reset()
    return means


def train_step(
    learner: Learner,
    cpu_batch: EgoBatch,
    hierarchy: Hierarchy,
    config: TrainConfig,
    step: int,
    num_steps: int,
) -> Tensor:
    """One step of the optimizer; the batch's mean loss.

    Args:
        learner: Model and optimizer, changed in place.
        cpu_batch: Batch with gold labels, on the CPU.
        hierarchy: Label hierarchy on the device.
        config: Resolved settings.
        step: Number of this step in the whole training, from 1.
        num_steps: Number of training steps.
    """
    fabric, model = learner.fabric, learner.model
    batch = cpu_batch.to(fabric.device, non_blocking=True)
    set_progress(learner.optimizer, find_progress(step, num_steps), config)
    learner.optimizer.zero_grad()
    if learner.rows is not None:
        learner.rows.start(step)
    with limit_threads(count_threads(batch, model)):
        losses = match_loss(
            learner.wrapped(batch),
            batch.gold,
            model.head,
            hierarchy,
            lambda_parameter=config.lambda_parameter,
            lambda_output=config.lambda_output,
            document_weight=fabric.world_size * batch.share,
            check=False,
        )
        fabric.backward(losses.total)
    for table in learner.tables.values():
        table.reduce_gradient()
    gradient = learner.collect_rows()
    clip_gradients(learner, config.clip_norm, gradient)
    learner.stepper.step()
    if learner.rows is not None:
        learner.rows.update()
    if learner.average is not None:
        learner.average.update(step - start_average(config, num_steps))
    return learner.losses.update(losses, config, batch)


def clip_gradients(learner: Learner, max_norm: float, of_rows: Tensor | None = None) -> None:
    """Clips the gradients by their norm over all processes' shards.

    Args:
        learner: Model with gradients, changed in place.
        max_norm: Largest norm.
        of_rows: Gradient of the embedding's rows that is not in its weight's ``grad``, changed in
            place.
    """
    if not learner.tables and of_rows is None:
        learner.fabric.clip_gradients(
            learner.wrapped, learner.stepper, max_norm=max_norm, error_if_nonfinite=False
        )
        return
    weights = {table.weight for table in learner.tables.values()}
    own: list[Tensor] = []
    common: list[Tensor] = []
    for group in learner.optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                (own if parameter in weights else common).append(parameter.grad)
    if of_rows is not None:
        (own if learner.model.embedding.shard is not None else common).append(of_rows)
    square = whole(get_total_norm(common)).square()
    if learner.tables:
        square = square + sum_squares(own, learner.fabric.device)
    factor = (max_norm / (square.sqrt() + 1e-6)).clamp(max=1.0)  # as torch's own
    torch._foreach_mul_([find_shard(gradient) for gradient in (*own, *common)], factor)


def _check_finite(learner: Learner, config: TrainConfig) -> None:
    """Checks the sums of the epoch's losses and the weights, before they are saved.

    Every process must call this; all fail if one does.

    Raises:
        ConfigError: One of them is not finite.
    """
    values = [learner.losses.sums, *(value.detach() for value in learner.model.parameters())]
    local = [find_shard(value).float() for value in values if find_shard(value).numel()]
    largest = torch.stack([torch.linalg.vector_norm(value, math.inf) for value in local])
    broken = sum_up(learner.fabric, (~largest.isfinite()).sum())

    def fail() -> None:
        raise ConfigError(
            f"The training loss and the weights must stay finite, but they did not in epoch "
            f"{learner.state.epoch + 1}; lower train.learning_rate (now {config.learning_rate}) "
            f"and run again (overwrite=True, --overwrite)."
        )

    if int(broken):
        lead(learner.fabric, fail)


def _end_epoch(
    learner: Learner, inputs: FitInputs, config: TrainConfig, timer: SaveTimer
) -> tuple[dict[str, float], bool]:
    """Counts an epoch, and keeps the averaged weights if they are the best on validation.

    Returns:
        Validation measures, and whether a checkpoint is due.
    """
    state = learner.state
    with learner.averaged():
        measures = _validate(inputs.fabric, learner.model, inputs.valid_loader, inputs.hierarchy)
        state.epoch, state.step = state.epoch + 1, 0
        is_best = measures[MONITOR] > state.best
        if is_best:
            state.best, state.best_epoch = measures[MONITOR], state.epoch
        is_due = state.is_over(config) or timer.is_due_after_epoch()
        if is_best:
            learner.keep_weights(inputs.folder, write=is_due)
    return measures, is_due


def _describe_epoch(state: TrainState, config: TrainConfig, row: Mapping[str, float]) -> str:
    best = " (best)" if state.best_epoch == state.epoch else ""
    return (
        f"train: epoch {state.epoch} of {config.epochs}, loss {row['loss']:.4f}, "
        f"valid P@1 {row['P@1']:.4f}, NDCG@5 {row[MONITOR]:.4f}{best}"
    )


def _validate(
    fabric: Fabric, model: MatchModel, loader: EgoLoader, hierarchy: Hierarchy
) -> dict[str, float]:
    with fabric.autocast():
        return evaluate_model(
            model, loader, hierarchy, fabric.device, total=lambda values: sum_up(fabric, values)
        )


def _open_tracker(
    stack: ExitStack, learner: Learner, inputs: FitInputs, config: TrainConfig
) -> Tracker:
    """Tracker of the first process, open as long as the stack; others log nothing."""
    name = "none" if inputs.settings is None else config.logger
    opened = open_tracker(name, inputs.folder, inputs.settings or {}, learner.history)
    return lead(inputs.fabric, lambda: stack.enter_context(opened)) or Tracker("none")


def _write_history(learner: Learner, folder: Path, tracker: Tracker) -> None:
    history = learner.history

    def write() -> None:
        write_beside(folder / HISTORY, lambda beside: history.to_csv(beside, index=False))
        tracker.log_epochs(history)

    lead(learner.fabric, write)
