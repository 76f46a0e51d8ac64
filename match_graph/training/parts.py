"""Sharded state on disk: each process writes its part, any number of processes can read it.

Written by `torch.distributed.checkpoint` as safetensors, a file per process and tensor: its default
format keeps metadata in a pickle, and nothing here is unpickled.
"""

import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, distributed

from match_graph.errors import CheckpointError
from match_graph.io.beside import find_errno
from match_graph.io.exchange import RowRoute, RowShard
from match_graph.io.files import check_whole, list_files, remove_files, write_beside
from match_graph.io.manifest import compute_digest
from match_graph.io.weights import Layout, order_tensors, write_blocks
from match_graph.nn.loss import whole
from match_graph.training.processes import gather_objects, lead, sum_up
from match_graph.training.shards import find_shard, is_sharded, spread

#: Key of a reference to a tensor in a file of parts, and of what a checkpoint says of its parts.
PART, PARTS = "part", "parts"
#: Bytes of a tensor that are in memory at once where it is written in blocks.
_BLOCK_BYTES = 2**26


@dataclass(frozen=True)
class Share:
    """A process's share of a tensor with a row per token.

    Args:
        values: Its rows, [size, ...].
        shard: Which rows they are.
    """

    values: Tensor
    shard: RowShard

    def clone(self) -> "Share":
        """Copy of the share."""
        return Share(self.values.clone(), self.shard)

    @property
    def layout(self) -> Layout:
        """Type and shape of the whole tensor."""
        return Layout(self.values.dtype, (self.shard.num_rows, *self.values.shape[1:]))

    def place(self) -> Tensor:
        """The shares of all processes as one DTensor, in bucket order (see `RowShard`)."""
        from torch.distributed.tensor import DTensor, Shard

        shape = torch.Size(self.layout.shape)
        stride = torch.empty(shape, device="meta").stride()
        mesh = _find_mesh(self.values.device.type)
        placed: Tensor = DTensor.from_local(
            self.values, mesh, [Shard(0)], run_check=False, shape=shape, stride=stride
        )
        return placed


@cache
def _find_mesh(device: str) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device, (distributed.get_world_size(),))


# Writing --------------------------------------------------------------------------------------


def write_parts(fabric: Fabric, folder: Path, content: Any) -> tuple[Any, dict[str, Any] | None]:
    """Writes the sharded tensors of a state into a new folder; every process must call this.

    Args:
        fabric: Processes.
        folder: Folder of checkpoints; the new one lies in it.
        content: Mappings and lists of tensors and plain values.

    Returns:
        The content with a reference in place of each tensor that was written, for `PartsReader`;
        and the new folder's name with its files, None if nothing is sharded.

    Raises:
        OSError: A process cannot write its part.
    """
    placed: dict[str, Tensor] = {}
    content = _take_out(content, PARTS, placed)
    if not placed:
        return content, None
    number = 1 + max((int(path.name.split("-")[1]) for path in _list_folders(folder)), default=0)
    number = int(sum_up(fabric, torch.tensor(number if fabric.is_global_zero else 0)))
    target = folder / f"{PARTS}-{number}"
    _save(placed, target)
    mine = target.glob(f"shard-{fabric.global_rank + 1:05d}-*")
    written = {path.name: compute_digest(path) for path in mine}
    digests = {
        target / name: digest
        for part in gather_objects(fabric, written)
        for name, digest in part.items()
    }
    lead(fabric, lambda: list_files(digests))
    return content, {"folder": target.name, "files": sorted(path.name for path in digests)}


def _take_out(value: Any, name: str, placed: dict[str, Tensor]) -> Any:
    if isinstance(value, Mapping):
        return {key: _take_out(one, f"{name}/{key}", placed) for key, one in value.items()}
    if isinstance(value, list):
        return [_take_out(one, f"{name}/{key}", placed) for key, one in enumerate(value)]
    if isinstance(value, Share):
        placed[name] = value.place()
    elif is_sharded(value):
        placed[name] = value
    else:
        return value
    return {PART: name, "shape": list(placed[name].shape), "stacked": isinstance(value, Share)}


def _save(placed: dict[str, Tensor], folder: Path) -> None:
    from torch.distributed.checkpoint import HuggingFaceStorageWriter, save
    from torch.distributed.checkpoint.api import CheckpointException

    files = {name: number for number, name in enumerate(placed, start=1)}
    writer = HuggingFaceStorageWriter(str(folder), files, save_distributed=True)
    try:
        save(placed, storage_writer=writer)
    except CheckpointException as error:
        failures = {rank: failure for rank, (failure, _) in error.failures.items()}
        failure = failures.get(distributed.get_rank())
        if failure is None:  # of another process, which says why
            raise SystemExit(1) from error
        number = find_errno(failure)
        if number is None:
            raise failure from error
        raise OSError(number, os.strerror(number), str(folder)) from error


def _list_folders(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{PARTS}-*") if path.name.split("-")[1].isdecimal()]


def remove_parts(folder: Path, kept: Iterable[Mapping[str, Any] | None] = ()) -> None:
    """Deletes the folders of parts that no checkpoint names.

    Args:
        folder: Folder of checkpoints.
        kept: Parts of the checkpoints that stay, as `write_parts` returns them.
    """
    names = {parts["folder"] for parts in kept if parts}
    for path in _list_folders(folder):
        if path.name not in names:
            remove_files(*path.iterdir())
            shutil.rmtree(path, ignore_errors=True)


# Reading --------------------------------------------------------------------------------------


def check_parts(folder: Path, state: Mapping[str, Any]) -> None:
    """Checks that the files of a checkpoint's parts are whole.

    Raises:
        OSError: One cannot be read.
        DamagedError: One is not what was written.
    """
    parts: Mapping[str, Any] = state.get(PARTS) or {"files": []}
    for name in parts["files"]:
        check_whole(folder / parts["folder"] / name)


class PartsReader:
    """Reads tensors of a checkpoint, all at once, each placed as a tensor of this process.

    Args:
        fabric: Processes, which need not be those that wrote.
        folder: Folder of checkpoints.
        parts: Name and files of the folder of parts; None where nothing was sharded.
    """

    def __init__(self, fabric: Fabric, folder: Path, parts: Mapping[str, Any] | None) -> None:
        self.fabric = fabric
        self.folder = None if parts is None else folder / parts["folder"]
        self._targets: dict[str, Tensor] = {}

    def ask(self, value: Any, like: Tensor, shard: RowShard | None) -> None:
        """Requests a tensor, if it is in the parts.

        Args:
            value: Tensor, or a reference to one.
            like: Tensor or share that it is to be placed as.
            shard: Rows of ``like``; None if it is no share.
        """
        if not isinstance(value, Mapping):
            return
        shape = tuple(value["shape"])
        if value["stacked"] and shard is not None:
            own = torch.empty(shard.size, *shape[1:], dtype=like.dtype, device=like.device)
            target = Share(own, shard).place()
        elif not value["stacked"] and is_sharded(like):
            target = torch.empty_like(like)
        else:
            target = torch.empty(shape, dtype=like.dtype)
        if tuple(target.shape) != shape:
            raise ValueError(f"'{value[PART]}' has another shape")
        self._targets[value[PART]] = target

    def read(self) -> None:
        """Reads all requested tensors; every process must call this."""
        if not self._targets:
            return
        from torch.distributed.checkpoint import HuggingFaceStorageReader, load
        from torch.distributed.checkpoint.api import CheckpointException

        reader = HuggingFaceStorageReader(str(self.folder))
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")
                load(self._targets, storage_reader=reader, no_dist=self.fabric.world_size == 1)
        except CheckpointException as error:
            raise CheckpointError(
                f"The parts of a checkpoint in '{self.folder}' must hold what it names, but they "
                f"do not; delete the folder '{self.folder.parent if self.folder else ''}' to train "
                f"again."
            ) from error

    def take(self, value: Any, like: Tensor, shard: RowShard | None) -> Tensor:
        """A tensor of the checkpoint, placed as ``like``; arguments as for `ask`."""
        if isinstance(value, Mapping):
            found, stacked = self._targets.pop(value[PART]), value["stacked"]
            if is_sharded(found):
                return find_shard(found) if shard is not None else found
            value = _unstack(found) if stacked else found
        return spread(value, like, shard)


def _unstack(values: Tensor) -> Tensor:
    """Rows in the order of their numbers."""
    return values[RowShard(len(values), 0, 1).place(torch.arange(len(values)))]


# Weights --------------------------------------------------------------------------------------


def write_weights(fabric: Fabric, path: Path, values: Mapping[str, Tensor | Share]) -> None:
    """Writes weights, sharded or not, as one safetensors file; every process must call this.

    Shares are gathered in blocks, other shards tensor by tensor.

    Raises:
        OSError: They cannot be written; raised on the first process, the others end.
    """
    layouts = {
        name: value.layout if isinstance(value, Share) else Layout(value.dtype, (*value.shape,))
        for name, value in values.items()
    }
    blocks = _gather_blocks(fabric, [values[name] for name in order_tensors(layouts)])
    failure: Exception | None = None
    try:
        if fabric.is_global_zero:
            write_beside(path, lambda place: write_blocks(place, layouts, blocks))
    except Exception as error:
        failure = error
    for _ in blocks:  # collectives that the others still wait in
        pass

    def finish() -> None:
        if failure is not None:
            raise failure

    lead(fabric, finish)


def _gather_blocks(fabric: Fabric, values: Iterable[Tensor | Share]) -> Iterator[Tensor]:
    """Consecutive rows of tensors, on the CPU of the first process; none on the others."""
    for value in values:
        if isinstance(value, Share):
            blocks = _gather_rows(value, fabric.is_global_zero)
        else:
            blocks = iter([whole(value)])
        for block in blocks:
            if fabric.is_global_zero:
                yield block.detach().cpu()


def _gather_rows(share: Share, leads: bool) -> Iterator[Tensor]:
    shape, device = share.layout.shape, share.values.device
    step = max(1, _BLOCK_BYTES // max(1, share.layout.num_bytes // max(1, shape[0])))
    for first in range(0, shape[0], step):
        stop = min(first + step, shape[0]) if leads else first
        route = RowRoute(share.shard, torch.arange(first, stop, device=device))
        yield route.fetch(share.values.detach())
