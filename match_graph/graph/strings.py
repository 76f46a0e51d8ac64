"""Merges the string dictionaries of fragments out of core, by ranges that each fit in memory.

Bounds of the ranges are quantiles of sampled strings. Each range is reduced to its distinct strings
with their training counts. Nodes are ordered by count, descending, ties by id: the histograms of
counts say at which node index each range's strings of a count begin.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from match_graph.corpus import Array
from match_graph.graph.fragments import Fragment, sort_strings
from match_graph.io.tables import map_arrow, save_array, write_arrow

#: Strings of all dictionaries in a range, about.
RANGE = 2**22
_SAMPLES = 64  # of a range
_BLOCK = 2**20  # rows of a table that are ordered at once


@dataclass(frozen=True)
class Range:
    """Strings of a type between two bounds, in all fragments.

    Args:
        node_type: Node type.
        number: Number of the range.
        folders: Folders of the fragments.
        slices: Rows of each fragment's dictionary that lie in the range, (first, end).
        bounds: First string, and the one after the last; None for the end.
        out: Folder of the results.
    """

    node_type: str
    number: int
    folders: tuple[Path, ...]
    slices: tuple[tuple[int, int], ...]
    bounds: tuple[str | None, str | None]
    out: Path

    def path(self, what: str) -> Path:
        """File of a result."""
        return self.out / f"{self.node_type}.{self.number}.{what}"


@dataclass(frozen=True)
class Counted:
    """Histogram of the training counts of a range's distinct strings.

    Args:
        count: Distinct training counts, ascending.
        number: Number of strings of each.
        has_name: Whether any string has a name.
        has_depth: Whether any string has a depth.
    """

    count: Array
    number: Array
    has_name: bool
    has_depth: bool


def cut_ranges(fragments: Sequence[Fragment], types: Sequence[str], out: Path) -> list[list[Range]]:
    """Splits the strings of types into ranges of about equal size, with equal bounds for each type.

    Args:
        fragments: Fragments in reading order.
        types: Node types that share bounds.
        out: Folder of the results.
    """
    tables = [[fragment.strings(name)["id"] for fragment in fragments] for name in types]
    columns = [ids for of_type in tables for ids in of_type]
    sizes = np.array([len(ids) for ids in columns], dtype=np.int64)
    ends, total = np.cumsum(sizes), int(sizes.sum())
    num_ranges = -(-total // RANGE)
    sampled = np.random.default_rng(0).integers(0, total, _SAMPLES * num_ranges if total else 0)
    which = np.searchsorted(ends, sampled, side="right")
    rows = sampled - (ends - sizes)[which]
    places = zip(which.tolist(), rows.tolist(), strict=True)
    samples = sorted(columns[number][row].as_py() for number, row in places)
    chosen = [samples[len(samples) * k // num_ranges] for k in range(1, num_ranges) if samples]
    bounds = ["", *sorted(set(chosen)), None]
    folders = tuple(fragment.folder for fragment in fragments)
    ranges = []
    for name, of_type in zip(types, tables, strict=True):
        starts = [_find_rows(ids, bounds) for ids in of_type]
        ranges.append(
            [
                Range(name, k, folders, tuple((row[k], row[k + 1]) for row in starts), pair, out)
                for k, pair in enumerate(pairwise(bounds))
            ]
        )
    return ranges


def _find_rows(ids: pa.ChunkedArray, bounds: Sequence[str | None]) -> list[int]:
    """Row of the first string at or after each bound, in ascending strings."""
    rows = range(len(ids))
    return [
        len(ids) if bound is None else bisect_left(rows, bound, key=lambda row: ids[row].as_py())
        for bound in bounds
    ]


def merge_range(span: Range) -> Counted:
    """Writes a range's distinct strings with their counts, and the index of each string in them."""
    table, ids, which = find_distinct(span)
    count = np.bincount(which, weights=table["count"].to_numpy(), minlength=len(ids))
    columns = {"id": ids, "count": count.astype(np.int64)}
    names = _find_names(span, ids)
    write_arrow(span.path("arrow"), pa.table(columns | names))
    save_array(span.path("which.npy"), which)
    counts, number = np.unique(columns["count"], return_counts=True)
    has = {name: name in names and len(ids) > names[name].null_count for name in ("name", "depth")}
    return Counted(counts, number, has["name"], has["depth"])


def find_distinct(span: Range) -> tuple[pa.Table, pa.Array, Array]:
    """Strings of a range, by fragment, and their distinct values.

    Returns:
        Table of the strings, [N]; the distinct ones, ascending; the index of each string among
        them, [N], int32.
    """
    tables = [
        Fragment(folder).strings(span.node_type).slice(first, end - first)
        for folder, (first, end) in zip(span.folders, span.slices, strict=True)
    ]
    table = pa.concat_tables(tables)
    encoded = table["id"].combine_chunks().dictionary_encode()
    ids, which = encoded.dictionary, encoded.indices.to_numpy()
    if len([one for one in tables if len(one)]) > 1:  # one alone is sorted
        ids, which = sort_strings(ids, which)
    return table, ids, which


def _find_names(span: Range, ids: pa.Array) -> dict[str, pa.Array]:
    """Names and depths of distinct strings, the last of each; null where there is none."""
    tables = []
    for folder in span.folders:
        table = Fragment(folder).names(span.node_type)
        if table is not None:
            first, end = _find_rows(table["id"], span.bounds)
            tables.append(table.slice(first, end - first))
    if not tables:
        return {}
    table = pa.concat_tables(tables)
    place = pc.index_in(table["id"], ids).combine_chunks()
    found: dict[str, pa.Array] = {}
    for name in ("name", "depth"):
        given = pc.and_(place.is_valid(), table[name].combine_chunks().is_valid())
        rows = np.flatnonzero(given.to_numpy(zero_copy_only=False))
        last = np.full(len(ids), -1)
        last[place.take(pa.array(rows)).to_numpy()] = rows  # of several the last remains
        index = pa.array(last, mask=last < 0)
        found[name] = table[name].combine_chunks().take(index)
    return found


def place_counts(counted: Sequence[Counted]) -> list[Array]:
    """Node index at which each range's strings of each count begin."""
    if not counted:
        return []
    count = np.concatenate([one.count for one in counted])
    number = np.concatenate([one.number for one in counted])
    order = np.argsort(-count, kind="stable")  # of a count by range
    start = np.empty(len(count), np.int64)
    start[order] = np.cumsum(number[order]) - number[order]
    return np.split(start, np.cumsum([len(one.count) for one in counted])[:-1])


def rank_range(task: tuple[Range, Counted, Array]) -> None:
    """Writes the strings of a range in the order of the graph, and the node index of each string.

    Args:
        task: Range, its histogram from `merge_range`, and where its counts begin.
    """
    span, counted, start = task
    table = map_arrow(span.path("arrow"))
    order = np.argsort(-table["count"].to_numpy(), kind="stable")
    number = counted.number[::-1]  # by count, descending
    within = np.arange(len(table)) - np.repeat(np.cumsum(number) - number, number)
    rank = np.repeat(start[::-1], number) + within
    write_arrow(span.path("ordered.arrow"), table.take(pa.array(order)))
    save_array(span.path("rank.npy"), rank)
    place = np.empty(len(table), np.int64 if len(rank) and rank[-1] >= 2**31 else np.int32)
    place[order] = rank
    save_array(span.path("place.npy"), place[np.load(span.path("which.npy"), mmap_mode="r")])


def iter_ordered(ranges: Sequence[Range]) -> Iterator[pa.Table]:
    """Strings of all ranges in the order of the graph, in tables."""
    ranks = [np.load(span.path("rank.npy"), mmap_mode="r") for span in ranges]
    total = sum(map(len, ranks))
    tables = [map_arrow(span.path("ordered.arrow")) for span in ranges]
    if len(tables) == 1:
        yield from tables
        return
    for first in range(0, total, _BLOCK):
        rows = [np.searchsorted(rank, [first, first + _BLOCK]) for rank in ranks]
        table = pa.concat_tables(
            [one.slice(low, high - low) for one, (low, high) in zip(tables, rows, strict=True)]
        )
        rank = np.concatenate([one[low:high] for one, (low, high) in zip(ranks, rows, strict=True)])
        yield table.take(pa.array(np.argsort(rank)))


def find_repeated(span: Range) -> list[tuple[int, int, int, int]]:
    """Documents whose id an earlier one has: (fragment, row, earlier fragment, earlier row).

    Writes the distinct ids, and the fragment and row of each.
    """
    table, ids, which = find_distinct(span)
    fragment = np.repeat(np.arange(len(span.slices)), np.diff(span.slices).ravel())
    row = table["row"].to_numpy()
    earliest = np.empty(len(ids), np.int64)
    earliest[which[::-1]] = np.arange(len(which))[::-1]  # of several the first remains
    write_arrow(
        span.path("arrow"),
        pa.table({"id": ids, "fragment": fragment[earliest], "row": row[earliest]}),
    )
    later = np.flatnonzero(earliest[which] != np.arange(len(which)))
    before = earliest[which[later]]
    return [
        (int(fragment[a]), int(row[a]), int(fragment[b]), int(row[b]))
        for a, b in zip(later, before, strict=True)
    ]


def resolve_range(task: tuple[Range, Range, Array]) -> None:
    """Writes the document that each string of a range names, -1 for none.

    Args:
        task: Range of strings, the range of document ids with the same bounds, and the number of
            documents before each fragment.
    """
    span, documents, offset = task
    known = map_arrow(documents.path("arrow"))
    place = pc.index_in(map_arrow(span.path("arrow"))["id"], known["id"].combine_chunks())
    index = pc.fill_null(place, -1).to_numpy()
    row = offset[known["fragment"].to_numpy()] + known["row"].to_numpy()
    dtype = np.int64 if len(row) and row.max() >= 2**31 else np.int32
    cited = np.append(row, -1).astype(dtype)[index]
    save_array(span.path("cited.npy"), cited[np.load(span.path("which.npy"), mmap_mode="r")])
