"""Neighbour lists by target from those by source, on files larger than memory."""

import math
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[Any]

#: Edges that are read, and sorted, at once; 40 bytes of memory each.
_BLOCK = 2**23
#: Files that edges are spread over at most.
_MAX_BUCKETS = 256


def reverse_lists(
    folder: Path,
    num_targets: int,
    train: NDArray[np.bool_] | None,
    time: Ints | None,
    write_source: Callable[[Ints], None],
    write_edge: Callable[[Ints], None],
) -> tuple[Ints, Ints | None]:
    """Turns CSR lists by source into lists by target.

    A list has the sources of training first, of these and of the others the earlier ones first,
    then ascending; the edges of one source keep their order. Edges are spread over files by ranges
    of targets with about as many edges each, and each file is sorted by counting: linear in time,
    and in memory a block of edges (or the longest list), and 16 bytes a node.

    Args:
        folder: Folder of ``ptr.npy`` and ``index.npy``; temporary files are made in it.
        num_targets: Number of targets.
        train: Mask of the sources that are of training, [num_sources]; None has no such.
        time: Time of each source, [num_sources]; None has none.
        write_source: Gets the sources in the order of the new lists, in blocks.
        write_edge: Gets the places of the edges in the old lists, in blocks.

    Returns:
        Offsets of the new lists, [num_targets + 1], and the end of the training part of each,
        [num_targets], int64; None without ``train``.
    """
    ptr = np.load(folder / "ptr.npy", mmap_mode="r")
    index = np.load(folder / "index.npy", mmap_mode="r")
    rank = _rank_sources(len(ptr) - 1, train, time)
    count, num_train = np.zeros((2, num_targets), np.int64)
    for edges in _parts(ptr, index):
        count += np.bincount(edges.target, minlength=num_targets)
        if train is not None:
            chosen = edges.target[train[edges.source]]
            num_train += np.bincount(chosen, minlength=num_targets)
    new_ptr = np.zeros(num_targets + 1, np.int64)
    np.cumsum(count, out=new_ptr[1:])
    for first, last, edges in _spread(folder, ptr, index, new_ptr):
        if rank is not None:
            order = _sort_by_counting(rank[edges.source], len(rank))
            order = order[_sort_by_counting(edges.target[order] - first, last - first)]
        else:
            order = _sort_by_counting(edges.target - first, last - first)
        write_source(edges.source[order])
        write_edge(edges.edge[order])
    return new_ptr, None if train is None else new_ptr[:-1] + num_train


class _Edges(NamedTuple):
    """Targets, sources and places of edges, [E] each."""

    target: Ints
    source: Ints
    edge: Ints


def _rank_sources(
    num_sources: int, train: NDArray[np.bool_] | None, time: Ints | None
) -> Ints | None:
    """Place of each source in the order of the lists; None if they are in it."""
    keys = [key for key in (time, None if train is None else ~train) if key is not None]
    if not keys:
        return None
    order = np.lexsort(keys)  # the last key counts most
    if (order[1:] > order[:-1]).all():
        return None
    rank = np.empty(num_sources, np.int32 if num_sources < 2**31 else np.int64)
    rank[order] = np.arange(num_sources, dtype=rank.dtype)
    return rank


def _parts(ptr: Ints, index: Ints) -> Iterator[_Edges]:
    """Edges in blocks, in their order."""
    source_type = np.int32 if len(ptr) <= 2**31 else np.int64
    edge_type = np.int32 if len(index) < 2**31 else np.int64
    for start in range(0, len(index), _BLOCK):
        stop = min(start + _BLOCK, len(index))
        first, last = np.searchsorted(ptr, [start, stop - 1], side="right") - 1
        lengths = np.diff(np.clip(ptr[first : last + 2], start, stop))
        source = np.repeat(np.arange(first, last + 1, dtype=source_type), lengths)
        yield _Edges(index[start:stop], source, np.arange(start, stop, dtype=edge_type))


def _spread(
    folder: Path, ptr: Ints, index: Ints, new_ptr: Ints
) -> Iterator[tuple[int, int, _Edges]]:
    """Edges of ranges of targets (first, end), each about a block, in the order of the sources."""
    num_targets, num_buckets = len(new_ptr) - 1, math.ceil(len(index) / _BLOCK)
    if num_buckets <= 1:
        yield from ((0, num_targets, edges) for edges in _parts(ptr, index))
        return
    ends = np.arange(1, num_buckets := min(num_buckets, _MAX_BUCKETS)) * len(index) // num_buckets
    bounds = np.unique([0, *np.searchsorted(new_ptr, ends), num_targets])
    with tempfile.TemporaryDirectory(dir=folder) as place:
        dtypes = _fill_buckets(Path(place), ptr, index, bounds)
        for number, (first, last) in enumerate(pairwise(bounds.tolist())):
            files = [Path(place) / f"{number}.{name}" for name in _Edges._fields]
            if files[0].exists():
                pieces = map(np.fromfile, files, dtypes)
                yield first, last, _Edges(*pieces)
                for file in files:
                    file.unlink()


def _fill_buckets(folder: Path, ptr: Ints, index: Ints, bounds: Ints) -> list[np.dtype[Any]]:
    """Writes ``NUMBER.FIELD`` for each range of targets; types of the fields."""
    dtypes: list[np.dtype[Any]] = []
    for edges in _parts(ptr, index):
        dtypes = [values.dtype for values in edges]
        bucket = np.searchsorted(bounds, edges.target, side="right") - 1
        order = _sort_by_counting(bucket, len(bounds) - 1)
        cuts = np.cumsum(np.bincount(bucket, minlength=len(bounds) - 1))[:-1]
        for number, chosen in enumerate(np.split(order, cuts)):
            for name, values in zip(_Edges._fields, edges, strict=True):
                if len(chosen):
                    with (folder / f"{number}.{name}").open("ab") as file:
                        file.write(values[chosen].data)
    return dtypes


def _sort_by_counting(key: Ints, num_keys: int) -> Ints:
    """Stable order of small numbers, [E]: the transposition of a sparse matrix with E rows."""
    rows = np.arange(len(key) + 1, dtype=np.int32 if len(key) < 2**31 - 1 else np.int64)
    ones = np.ones(len(key), np.float32)
    matrix = sp.csr_array((ones, key, rows), shape=(len(key), num_keys))
    order: Ints = matrix.tocsc().indices
    return order
