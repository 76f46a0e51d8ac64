"""Checkpoints of a training, independent of the number of processes."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from torch import Tensor

from match_graph.config import TrainConfig
from match_graph.errors import CheckpointError
from match_graph.graph import EgoBatch
from match_graph.io.files import has_state, read_state, write_state
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import STATE
from match_graph.nn.loss import Losses
from match_graph.training.parts import check_parts, remove_parts
from match_graph.training.processes import any_of, gather

#: Least seconds between two checkpoints within an epoch, and as a multiple of what one takes.
SAVE_SECONDS, SAVE_FACTOR = 30.0, 20.0
#: No training has as many epochs, or steps in one.
_MOST = 2**40
#: Batches between two points of an epoch where a checkpoint may be written. Lazily updated rows are
#: brought up to date at each of them, so that training does not depend on whether one is written.
SAVE_POINT_EVERY = 256
#: Batches at the end of an epoch whose mean loss the history keeps beside that of the epoch.
RECENT = 100


def is_save_point(step: int) -> bool:
    """Whether a step of an epoch, counted from 1, is one of those where checkpoints are allowed."""
    return step % SAVE_POINT_EVERY == 0


@pydantic_dataclass(config=ConfigDict(strict=True, extra="forbid"))
class TrainState:
    """Progress of a training, which a checkpoint keeps.

    Args:
        epoch: Number of finished epochs.
        best: Best validation measure so far.
        best_epoch: Epoch of the best validation measure.
        step: Number of batches done of the next epoch.
    """

    epoch: int = Field(default=0, ge=0, lt=_MOST)
    best: float = Field(default=-1.0, ge=-1, le=1)
    best_epoch: int = Field(default=0, ge=0, lt=_MOST)
    step: int = Field(default=0, ge=0, lt=_MOST)

    @classmethod
    def from_checkpoint(cls, content: Mapping[str, Any], path: Path) -> "TrainState":
        """Progress of a checkpoint's training.

        Raises:
            CheckpointError: The checkpoint's progress is missing or impossible.
        """
        found = content.get("train")
        with suppress(TypeError, ValueError):
            state = cls(**found) if found else None
            if state and asdict(state) == found and state.best_epoch <= state.epoch:
                return state
        raise CheckpointError(
            f"The checkpoint '{path}' must say how far its training was, but it holds {found!r}; "
            f"delete the folder '{path.parent}' to train again."
        )

    def __str__(self) -> str:
        within = f" and {self.step} steps" if self.step else ""
        return f"epoch {self.epoch}{within}"

    def is_over(self, config: TrainConfig) -> bool:
        """Whether the epochs or the patience are used up."""
        assert config.epochs is not None
        return self.epoch >= config.epochs or self.epoch - self.best_epoch >= config.patience


class LossMeter:
    """Mean losses per document over an epoch, and over its last `RECENT` batches."""

    NAMES = ("loss", "loss_bce", "loss_parameter", "loss_output")

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(4, device=device)
        self.recent: deque[Tensor] = deque(maxlen=RECENT)
        self.num_documents = 0

    def reset(self) -> None:
        """Starts an epoch."""
        self.sums = torch.zeros_like(self.sums)
        self.recent.clear()
        self.num_documents = 0

    def update(self, losses: Losses, config: TrainConfig, batch: EgoBatch) -> Tensor:
        """Adds a batch; its mean loss, []."""
        # not the total: its terms are weighted by the share
        loss = losses.bce + config.lambda_parameter * losses.parameter
        loss = loss + config.lambda_output * losses.output
        terms = torch.stack([loss, losses.bce, losses.parameter, losses.output])
        number = batch.num_documents if batch.share else 0
        self.sums += terms * number
        self.recent.append(loss * batch.share)
        self.num_documents += number
        return loss

    def compute(self, fabric: Fabric) -> dict[str, float]:
        """The means over all processes' documents, and ``loss_recent``."""
        state = self.state_dict(fabric)
        means = state["sums"].sum(0) / max(int(state["num_documents"].sum()), 1)
        recent = state["recent"].sum(0)
        names = dict(zip(self.NAMES, means.tolist(), strict=True))
        return {**names, "loss_recent": float(recent.mean()) if recent.numel() else 0.0}

    def state_dict(self, fabric: Fabric) -> dict[str, Tensor]:
        """Sums and counts of each process, [num_processes, ...]; every process must call this."""
        recent = torch.stack(list(self.recent)) if self.recent else self.sums[:0]
        number = torch.tensor(self.num_documents)
        return {
            "sums": gather(fabric, self.sums),
            "recent": gather(fabric, recent),
            "num_documents": gather(fabric, number),
        }

    def load_state_dict(self, state: Mapping[str, Tensor], fabric: Fabric) -> None:
        """Restores each process's sums; with another number of processes, the first takes all.

        Raises:
            ValueError: It has other shapes, or a number is not finite.
        """
        shapes = {name: tuple(state[name].shape) for name in ("sums", "recent", "num_documents")}
        processes = shapes["num_documents"]
        if shapes["sums"] != (*processes, 4) or shapes["recent"][:-1] != processes:
            raise ValueError("losses have other shapes")
        if not all(bool(state[name].isfinite().all()) for name in shapes):
            raise ValueError("a loss is not finite")
        rank, number = fabric.global_rank, len(state["sums"])
        if number == fabric.world_size:
            state = {name: values[rank] for name, values in state.items()}
        else:
            factor = 0 if rank else 1
            state = {name: factor * values.sum(0) for name, values in state.items()}
        self.sums = state["sums"].to(self.sums)
        self.recent.extend(state["recent"].to(self.sums).unbind())
        self.num_documents = int(state["num_documents"])


def read_checkpoint(folder: Path, origin: str, reporter: Reporter) -> dict[str, Any] | None:
    """The checkpoint of a run folder; None if there is none.

    Raises:
        CheckpointError: It is of other data or settings, or it and the previous one are broken.
    """
    path = folder / STATE
    if not has_state(path):
        return None
    content = read_state(path, reporter.warn, lambda state: check_parts(path.parent, state))
    if content.get("origin") != origin:
        raise CheckpointError(
            f"The checkpoint '{path}' must be of the data and settings of this run, but it was "
            f"made with others; delete the folder '{path.parent}' to train again."
        )
    return content


def check_same(fabric: Fabric, content: Mapping[str, Any] | None, path: Path) -> None:
    """Checks that all processes resume from the same step; every process must call this.

    Raises:
        CheckpointError: A process sees another checkpoint than the first one, or none.
    """
    train = {"epoch": -1, "step": -1} if content is None else content["train"]
    seen = gather(fabric, torch.tensor([train["epoch"], train["step"]]))
    if bool((seen != seen[0]).any()):
        other = int((seen != seen[0]).any(dim=1).nonzero()[0])
        raise CheckpointError(
            f"All processes of a run must see the same files, but '{path}' is at epoch and step "
            f"{seen[0].tolist()} for process 0 and {seen[other].tolist()} for process {other} (-1: "
            f"there is none); choose a folder on a disk that the machines share (out, --out)."
        )


def check_over(folder: Path, config: TrainConfig) -> dict[str, Any] | None:
    """Checkpoint of a training that is over; None without one.

    Raises:
        CheckpointError: The training was broken off.
    """
    path = folder / STATE
    if not has_state(path):
        return None
    content = read_state(path)
    state = TrainState.from_checkpoint(content, path)
    if not state.is_over(config):
        raise CheckpointError(
            f"A run is evaluated when its training is over, but that in '{folder}' was broken off "
            f"after epoch {state.epoch} of {config.epochs}; finish it with the command that "
            f"started it."
        )
    return content


def close_training(folder: Path, config: TrainConfig) -> None:
    """Drops weights and optimizer from the checkpoint of a training that is over.

    What stays says that it is over, so that no later command trains on or again.

    Raises:
        CheckpointError: The training was broken off.
    """
    if (content := check_over(folder, config)) is not None:
        path = folder / STATE
        kept = {name: content.get(name) for name in ("origin", "train")}
        write_state(path, kept, keep_previous=False)
        remove_parts(path.parent)


class SaveTimer:
    """Timer of checkpoints, whose interval grows with the time that writing takes.

    Args:
        fabric: Processes, which must ask together; the clock of the first one decides.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric, self.seconds = fabric, SAVE_SECONDS
        self.last, self.cost = time.monotonic(), 0.0

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is due after a step."""
        if not is_save_point(step):
            return False
        return self._ask(time.monotonic() - self.last >= self.seconds)

    def is_due_after_epoch(self) -> bool:
        """True if a checkpoint is due after an epoch.

        It is after the first one, and later unless writing takes over a twentieth of the time.
        """
        return self._ask(time.monotonic() - self.last >= SAVE_FACTOR * self.cost)

    def _ask(self, due: bool) -> bool:
        return any_of(self.fabric, due and self.fabric.is_global_zero)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Context of the writing of a checkpoint, whose duration is measured."""
        start = time.monotonic()
        yield
        self.last = time.monotonic()
        self.cost = self.last - start
        self.seconds = max(SAVE_SECONDS, SAVE_FACTOR * self.cost)
