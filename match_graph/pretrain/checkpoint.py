"""Checkpoints of pre-training: a common state and a shard per process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from match_graph.errors import CheckpointError
from match_graph.io.beside import beside, finish
from match_graph.io.files import (
    DamagedError,
    has_state,
    previous_state,
    read_state,
    remove_state,
    save_torch,
    write_state,
)
from match_graph.io.manifest import LARGE_BYTES, check_regular, compute_digest
from match_graph.pretrain.shards import Share
from match_graph.pretrain.trainer import SphericalTrainer

#: State that all processes share; the rest is per process.
_COMMON = ("chooser", "num_seen", "num_chunks")
#: Rows of a shard that are read at once.
_BLOCK_ROWS = 1 << 16


class _Shard(NamedTuple):
    """File of one process; its name holds the beginning of its SHA-256 and so tells its content."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class PretrainCheckpoint:
    """Checkpoint of a pre-training over any number of processes.

    Each process writes its rows and feeds as a file beside ``path``; when all are on the disk, the
    first process writes the common state, which names them, at ``path``. So a complete state exists
    whenever a process is killed. The previous state and its files are kept.

    Args:
        path: Path of the common state, on a disk that all processes see.
        origin: Checksum of data and settings; a checkpoint of others is refused.
    """

    path: Path
    origin: str

    def is_there(self) -> bool:
        """Whether the folder has a checkpoint of pre-training."""
        return has_state(self.path)

    def write(self, trainer: SphericalTrainer) -> None:
        """Writes the state of a trainer; all processes together."""
        state = trainer.state_dict()
        shard = self._write_shard({k: v for k, v in state.items() if k not in _COMMON}, trainer)
        shards = self._gather_shards(shard, trainer)
        if not trainer.share.rank:
            common = {name: state[name] for name in _COMMON}
            listed = [one._asdict() for one in shards]
            write_state(
                self.path,
                {"origin": self.origin, "sizes": trainer.sizes, "shards": listed, **common},
            )
            self._remove_unnamed()
        trainer.sum_up(torch.zeros(1, device=trainer.device))  # all wait until it is written

    def _write_shard(self, state: Mapping[str, Any], trainer: SphericalTrainer) -> _Shard:
        with beside(self.path.with_name(f"{self.path.stem}-{trainer.share.rank}.pt")) as place:
            save_torch(place, state)
            finish(place)
            shard = _name_shard(self.path, trainer.share, *compute_digest(place))
            place.replace(self.path.with_name(shard.name))
        return shard

    def _gather_shards(self, shard: _Shard, trainer: SphericalTrainer) -> list[_Shard]:
        """The files of all processes by rank, from their gathered sizes and SHA-256."""
        number, device = trainer.share.number, trainer.device
        told = torch.zeros(number, 33, dtype=torch.int64, device=device)
        own = [shard.bytes, *bytes.fromhex(shard.sha256)]
        told[trainer.share.rank] = torch.tensor(own, device=device)
        return [
            _name_shard(self.path, Share(rank, number), size, bytes(digits).hex())
            for rank, (size, *digits) in enumerate(trainer.sum_up(told).tolist())
        ]

    def _remove_unnamed(self) -> None:
        """Deletes shards that neither the current nor the previous state names."""
        named: set[str] = set()
        for place in (self.path, previous_state(self.path)):
            if place.is_file():
                named.update(shard.name for shard in _list_named(place))
        for file in self.path.parent.glob(f"{self.path.stem}-*-of-*.pt"):
            if file.name not in named:
                file.unlink(missing_ok=True)

    def read(self, trainer: SphericalTrainer, warn: Callable[[str], None] | None = None) -> None:
        """Resumes from the saved state; all processes together.

        If it was written by another number of processes, the rows are sharded anew and other pairs
        are sampled from there on.

        Args:
            trainer: Trainer of the same data and settings.
            warn: Called with a sentence if the previous state is read instead.

        Raises:
            CheckpointError: It is of other data or settings, or damaged.
        """
        state = read_state(self.path, warn, self._check)
        if state.get("origin") != self.origin:
            raise CheckpointError(
                f"The checkpoint '{self.path}' must be of the data and settings of this run, but "
                f"it was made with others; delete the folder '{self.path.parent}' to start again."
            )
        try:
            self._load(trainer, state)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise CheckpointError(
                f"A pre-training checkpoint must hold tables, feeds and counters of this run, but "
                f"'{self.path}' does not ({' '.join(str(error).split())}); delete the folder "
                f"'{self.path.parent}' to start again."
            ) from error
        seen = torch.tensor(float(trainer.num_seen), device=trainer.device, dtype=torch.float64)
        if float(trainer.sum_up(seen)) != trainer.num_seen * trainer.share.number:
            raise CheckpointError(
                f"All processes must go on from the same checkpoint, but they see different ones "
                f"at '{self.path}'; put it on a disk that they share."
            )

    def _check(self, state: dict[str, Any]) -> None:
        """Raises a `DamagedError` if a shard of a state of this run is not what was written."""
        if state.get("origin") != self.origin:
            return
        for shard in _parse_shards(state):
            file = self.path.with_name(shard.name)
            if check_regular(file) != shard.bytes:
                raise DamagedError(f"'{shard.name}' has not the {shard.bytes:,} bytes written")
            if shard.bytes < LARGE_BYTES and compute_digest(file).sha256 != shard.sha256:
                raise DamagedError(f"the content of '{shard.name}' is not what was written")

    def _load(self, trainer: SphericalTrainer, state: Mapping[str, Any]) -> None:
        if state["sizes"] != trainer.sizes:
            raise ValueError(f"its tables are {state['sizes']}, not {trainer.sizes}")
        shards, own = _parse_shards(state), trainer.share
        feeds: dict[str, Any] = {}
        for rank, shard in enumerate(shards):
            if len(shards) == own.number and rank != own.rank:
                continue
            content = torch.load(
                self.path.with_name(shard.name), map_location="cpu", weights_only=True, mmap=True
            )
            there = Share(rank, len(shards))
            for name, table in trainer.tables.items():
                _copy_rows(content["tables"][name], there, table, own, trainer.sizes[name])
            if there == own:
                feeds = {name: content[name] for name in ("feeds", "generator")}
        trainer.load_progress({**{name: state[name] for name in _COMMON}, **feeds})

    def remove(self) -> None:
        """Deletes the checkpoint; one process does it, when none reads or writes it."""
        remove_state(self.path)
        self._remove_unnamed()


def _name_shard(path: Path, share: Share, size: int, sha256: str) -> _Shard:
    name = f"{path.stem}-{share.rank}-of-{share.number}-{sha256[:16]}.pt"
    return _Shard(name, size, sha256)


def _list_named(place: Path) -> list[_Shard]:
    """Files that a common state names; none where it cannot be read."""
    try:
        return _parse_shards(torch.load(place, map_location="cpu", weights_only=True))
    except Exception:  # as in `read_state`: whatever a damaged file raises
        return []


def _parse_shards(state: Mapping[str, Any]) -> list[_Shard]:
    """Files that a common state names.

    Raises:
        DamagedError: It names none, or files that are not beside it.
    """
    try:
        shards = [_Shard(**one) for one in state["shards"]]
        whole = all(
            type(one.bytes) is int and len(one.sha256) == 64 and Path(one.name).name == one.name
            for one in shards
        )
    except (KeyError, TypeError):
        shards, whole = [], False
    if not shards or not whole:
        raise DamagedError("it does not name the files of the processes")
    return shards


def _copy_rows(source: Tensor, there: Share, target: Tensor, here: Share, size: int) -> None:
    """Copies the rows of a table that are in both a saved shard and this process's shard.

    Raises:
        ValueError: The saved shard has another shape, or a value is not finite.
    """
    if source.shape != (there.count(size), target.size(1)):
        raise ValueError(f"a table of {size} rows is {tuple(source.shape)} in shard {there.rank}")
    for start in range(0, len(source), _BLOCK_ROWS):
        rows = source[start : start + _BLOCK_ROWS]
        number = there.rank + there.number * torch.arange(start, start + len(rows))
        shared = (number % here.number == here.rank).nonzero().view(-1)
        rows = rows.index_select(0, shared)
        if not bool(rows.isfinite().all()):
            raise ValueError("a vector is not finite")
        place = number.index_select(0, shared) // here.number
        target.index_copy_(0, place.to(target.device), rows.to(target.device))
