"""Transposition of CSR files larger than memory: neighbour lists by target from those by source."""

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

#: Edges that are read and sorted at once; 40 bytes of memory each.
_BLOCK = 2**23
#: Maximum number of ranges of targets: the task of a range takes 8 bytes for every source.
_MAX_BUCKETS = 1024


class Edges(NamedTuple):
    """Targets, sources and places of edges, [E] each."""

    target: NDArray[Any]
    source: NDArray[Any]
    edge: NDArray[Any]


@dataclass(frozen=True)
class Reversal:
    """External transposition of CSR lists, by tasks that may run in other processes.

    A list by target holds training sources first; these and the others are sorted by time, then by
    index; the edges of one source keep their order. `begin` counts edges and returns tasks that
    read a block of edges each and order it by buckets, ranges of targets with about as many edges
    each. Then the tasks of `list_buckets` counting-sort a bucket each and write it to its place in
    the result. `end` cleans up. Linear in time; memory holds a block of edges (or the longest list)
    and 24 bytes a node.

    Args:
        folder: Folder of ``ptr.npy`` and ``index.npy``; ``back`` is written in it: ``ptr.npy``
            [num_targets + 1]; ``index.npy``, the sources, and ``edge.npy``, the places of the edges
            in the lists by source, [E] each; ``stop.npy``, the end of the training part of each
            list, [num_targets], if there is a training mask.
        num_targets: Number of targets.
        dtypes: Types of sources and of places of edges.
        train: File of the mask of training sources; None without.
        time: File of the time of each source; None without.
    """

    folder: Path
    num_targets: int
    dtypes: tuple[np.dtype[Any], np.dtype[Any]]
    train: Path | None
    time: Path | None

    @property
    def work(self) -> Path:
        """Folder of intermediate results."""
        return self.folder / "work"

    @property
    def outputs(self) -> tuple[Path, Path]:
        """Files of sources and of places of edges."""
        return self.folder / "back" / "index.npy", self.folder / "back" / "edge.npy"

    def begin(self) -> list["Block"]:
        """Counts the edges of each target; returns the tasks that must precede the buckets."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        self.outputs[0].parent.mkdir(exist_ok=True)
        num_edges, train = int(self.ptr()[-1]), None if self.train is None else np.load(self.train)
        blocks = [Block(self, number) for number in range(math.ceil(num_edges / _BLOCK))]
        count, num_train = np.zeros((2, self.num_targets), np.int64)
        for block in blocks:
            edges = block.read()
            count += np.bincount(edges.target, minlength=self.num_targets)
            if train is not None:
                chosen = edges.target[train[edges.source]]
                num_train += np.bincount(chosen, minlength=self.num_targets)
        ptr = np.zeros(self.num_targets + 1, np.int64)
        np.cumsum(count, out=ptr[1:])
        np.save(self.folder / "back" / "ptr.npy", ptr)
        if train is not None:
            np.save(self.folder / "back" / "stop.npy", ptr[:-1] + num_train)
        num_buckets = min(max(1, len(blocks)), _MAX_BUCKETS)
        ends = np.arange(1, num_buckets) * num_edges // num_buckets
        bounds = np.unique([0, *np.searchsorted(ptr, ends), self.num_targets])
        np.save(self.work / "bounds.npy", bounds)
        rank = _rank_sources(len(self.ptr()) - 1, train, self.time)
        if rank is not None:
            np.save(self.work / "rank.npy", rank)
        for path, dtype in zip(self.outputs, self.dtypes, strict=True):
            np.lib.format.open_memmap(path, "w+", dtype, (num_edges,))
        return blocks

    def list_buckets(self) -> list["Bucket"]:
        """Tasks that write the lists, each those of some targets."""
        bounds = np.load(self.work / "bounds.npy")
        return [Bucket(self, number) for number in range(len(bounds) - 1)]

    def end(self) -> None:
        """Removes the intermediate results."""
        shutil.rmtree(self.work)

    def ptr(self) -> NDArray[Any]:
        """Offsets of the lists by source, mapped."""
        return np.load(self.folder / "ptr.npy", mmap_mode="r")


@dataclass(frozen=True)
class Block:
    """Task: a block of edges, ordered by the bucket of the target.

    Args:
        reversal: What it is a part of.
        number: Number of the block.
    """

    reversal: Reversal
    number: int

    def path(self, name: str) -> Path:
        """File of the block."""
        return self.reversal.work / f"{self.number}.{name}.npy"

    def read(self) -> Edges:
        """Edges in their order; read, not mapped: Dask counts mapped pages as a worker's memory."""
        ptr = self.reversal.ptr()
        start, num_edges = self.number * _BLOCK, int(ptr[-1])
        stop = min(start + _BLOCK, num_edges)
        first, last = np.searchsorted(ptr, [start, stop - 1], side="right") - 1
        lengths = np.diff(np.clip(ptr[first : last + 2], start, stop))
        source = np.repeat(np.arange(first, last + 1, dtype=self.reversal.dtypes[0]), lengths)
        place = np.arange(start, stop, dtype=self.reversal.dtypes[1])
        return Edges(_read(self.reversal.folder / "index.npy", start, stop), source, place)

    def write(self) -> None:
        """Does the task."""
        bounds, edges = np.load(self.reversal.work / "bounds.npy"), self.read()
        bucket = np.searchsorted(bounds, edges.target, side="right") - 1
        order = _sort_by_counting(bucket, len(bounds) - 1)
        count = np.bincount(bucket, minlength=len(bounds) - 1)
        np.save(self.path("cuts"), np.concatenate([[0], np.cumsum(count)]))
        for name, values in zip(Edges._fields, edges, strict=True):
            np.save(self.path(name), values[order])


@dataclass(frozen=True)
class Bucket:
    """Task: the lists of a range of targets.

    Args:
        reversal: What it is a part of.
        number: Number of the bucket.
    """

    reversal: Reversal
    number: int

    def read(self) -> Edges:
        """Edges of the targets in the order of the sources."""
        pieces = []
        for number in range(math.ceil(int(self.reversal.ptr()[-1]) / _BLOCK)):
            block = Block(self.reversal, number)
            start, stop = np.load(block.path("cuts"))[self.number : self.number + 2]
            pieces.append([_read(block.path(name), start, stop) for name in Edges._fields])
        return Edges(*map(np.concatenate, zip(*pieces, strict=True)))

    def write(self) -> None:
        """Does the task."""
        work = self.reversal.work
        ptr = np.load(self.reversal.folder / "back" / "ptr.npy", mmap_mode="r")
        if not ptr[-1]:
            return
        first, last = np.load(work / "bounds.npy")[self.number : self.number + 2]
        edges = self.read()
        if (work / "rank.npy").exists():
            rank = np.load(work / "rank.npy", mmap_mode="r")
            order = _sort_by_counting(rank[edges.source], len(rank))
            order = order[_sort_by_counting(edges.target[order] - first, last - first)]
        else:
            order = _sort_by_counting(edges.target - first, last - first)
        for path, values in zip(self.reversal.outputs, (edges.source, edges.edge), strict=True):
            with path.open("r+b") as file:
                file.seek(_find_values(path)[1] + int(ptr[first]) * values.itemsize)
                file.write(values[order].data)


def _find_values(path: Path) -> tuple[np.dtype[Any], int]:
    """Type of the values of a ``.npy`` file, and the byte at which they begin."""
    values: Any = np.load(path, mmap_mode="r")
    return values.dtype, values.offset


def _read(path: Path, start: int, stop: int) -> NDArray[Any]:
    """Values ``start:stop`` of a file."""
    dtype, offset = _find_values(path)
    return np.fromfile(path, dtype, stop - start, offset=offset + int(start) * dtype.itemsize)


def _rank_sources(
    num_sources: int, train: NDArray[np.bool_] | None, time: Path | None
) -> NDArray[Any] | None:
    """Rank of each source in the order of the lists; None if it is the order of indices."""
    times = None if time is None else np.load(time)
    keys = [key for key in (times, None if train is None else ~train) if key is not None]
    if not keys:
        return None
    order = np.lexsort(keys)  # the last key counts most
    if (order[1:] > order[:-1]).all():
        return None
    rank = np.empty(num_sources, np.int32 if num_sources < 2**31 else np.int64)
    rank[order] = np.arange(num_sources, dtype=rank.dtype)
    return rank


def _sort_by_counting(key: NDArray[Any], num_keys: int) -> NDArray[Any]:
    """Stable counting sort of small keys, [E], as the transposition of a sparse matrix [E, K]."""
    rows = np.arange(len(key) + 1, dtype=np.int32 if len(key) < 2**31 - 1 else np.int64)
    ones = np.ones(len(key), np.float32)
    matrix = sp.csr_array((ones, key, rows), shape=(len(key), num_keys))
    return matrix.tocsc().indices
