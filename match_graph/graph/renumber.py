"""Edges of fragments: strings mapped to node indices, and written as neighbour lists."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from match_graph.corpus import Array, count_texts
from match_graph.graph.build import CITATION_FIELD, MAX_POSITIONS
from match_graph.graph.fragments import Fragment, mask_training
from match_graph.graph.store_writer import ArrayFile, StoreWriter
from match_graph.graph.strings import Range, resolve_range
from match_graph.io.cluster import Run
from match_graph.io.tables import save_array
from match_graph.typing import CITES, CONTAINS, LABEL, TAGGED, WORD, EdgeType, token_edge

#: Names of lists that belong to no field; names of fields have no dot.
_TARGETS, _CITED = "label.gold", "reference.cited"


@dataclass(frozen=True)
class Task:
    """Task: map the strings of a fragment to node indices.

    Args:
        fragment: Folder of the fragment.
        offset: Number of documents before it.
        places: Files of the node indices of strings by type, each with this fragment's rows.
        out: Folder of the results.
    """

    fragment: Path
    offset: int
    places: Mapping[str, Sequence[tuple[Path, int, int]]]
    out: Path


@dataclass(frozen=True)
class Part:
    """Lists of node indices of a fragment.

    Args:
        folder: Folder of ``NAME.index.npy`` and ``NAME.lengths.npy``.
        num_values: Number of values by name.
        num_cut: Number of words beyond the last position.
        texts: Counts of its texts, as of `count_texts`.
    """

    folder: Path
    num_values: Mapping[str, int]
    num_cut: int
    texts: Counter[str]

    def load(self, name: str, what: str) -> Array:
        """``index`` or ``lengths`` of some lists."""
        return np.load(self.folder / f"{name}.{what}.npy", mmap_mode="r")


def renumber_all(
    fragments: Sequence[Fragment],
    types: Mapping[str, Sequence[Range]],
    documents: Sequence[Range],
    work: Path,
    run: Run,
) -> list[Part]:
    """Maps the strings of all fragments to node indices.

    Args:
        fragments: Fragments in reading order.
        types: Ranges of each type, ranked.
        documents: Ranges of documents, with the bounds of the references' ranges.
        work: Folder of the results.
        run: Runs tasks.
    """
    sizes = [fragment.num_documents for fragment in fragments]
    offset = np.cumsum([0, *sizes])[:-1]
    places = {name: _list_places(ranges, "place.npy") for name, ranges in types.items()}
    if CITATION_FIELD in types:
        references = types[CITATION_FIELD]
        run(resolve_range, [(*pair, offset) for pair in zip(references, documents, strict=True)])
        places[_CITED] = _list_places(references, "cited.npy")
    tasks = [
        Task(
            fragment.folder,
            int(offset[number]),
            {name: of_type[number] for name, of_type in places.items()},
            work / f"part.{number}",
        )
        for number, fragment in enumerate(fragments)
    ]
    return run(renumber, tasks)


def _list_places(ranges: Sequence[Range], what: str) -> list[Sequence[tuple[Path, int, int]]]:
    """Files of the node indices of each fragment's strings, with the fragment's rows in each."""
    by_range = []
    for span in ranges:
        ends = np.cumsum([0, *(end - first for first, end in span.slices)]).tolist()
        by_range.append([(span.path(what), *rows) for rows in pairwise(ends)])
    return list(zip(*by_range, strict=True))


def renumber(task: Task) -> Part:
    """Writes the lists of a fragment as node indices."""
    fragment = Fragment(task.fragment)
    task.out.mkdir(exist_ok=True)
    num_values: dict[str, int] = {}
    num_cut = 0

    def save(name: str, index: Array, lengths: Array) -> None:
        save_array(task.out / f"{name}.index.npy", index)
        save_array(task.out / f"{name}.lengths.npy", lengths)
        num_values[name] = len(index)

    in_train = mask_training(fragment.documents(["split"]))
    for name in task.places:
        if name == _CITED:
            continue
        codes, lengths = fragment.codes(name), fragment.lengths(name)
        index = _load(task.places[name])[codes]
        if name == WORD and lengths.max(initial=0) > MAX_POSITIONS:
            start = np.cumsum(lengths) - lengths
            kept = np.arange(len(codes)) - np.repeat(start, lengths) < MAX_POSITIONS
            index, num_cut = index[kept], int((~kept).sum())
            lengths = np.minimum(lengths, MAX_POSITIONS)
        elif name == LABEL:
            row = np.repeat(np.arange(len(lengths)), lengths)
            save(_TARGETS, index[np.lexsort((index, row))], lengths)
            index, lengths = index[in_train[row]], np.where(in_train, lengths, 0)
        save(name, index, lengths)
    if _CITED in task.places:
        save(_CITED, *_find_cited(task, fragment))
    return Part(task.out, num_values, num_cut, _count_texts(fragment))


def _count_texts(fragment: Fragment) -> Counter[str]:
    tokenizer = fragment.about["tokenizer"]
    if tokenizer != "regex" or not fragment.about["has_text"]:
        return Counter()
    texts = fragment.documents(["text"])["text"].to_pylist()
    return count_texts(texts, fragment.lengths(WORD), tokenizer)


def _load(files: Sequence[tuple[Path, int, int]]) -> Array:
    """Node indices of a fragment's strings, in the order of its dictionary."""
    pieces = [np.load(path, mmap_mode="r")[first:end] for path, first, end in files]
    return np.concatenate(pieces)


def _find_cited(task: Task, fragment: Fragment) -> tuple[Array, Array]:
    """Cited documents, without self-citations, packed, and the number of each document's."""
    codes, lengths = fragment.codes(CITATION_FIELD), fragment.lengths(CITATION_FIELD)
    cited, row = _load(task.places[_CITED])[codes], np.repeat(np.arange(len(lengths)), lengths)
    kept = (cited >= 0) & (cited != row + task.offset)
    return cited[kept], np.bincount(row[kept], minlength=len(lengths))


def write_lists(
    writer: StoreWriter, parts: Sequence[Part], fields: Sequence[str]
) -> list[EdgeType]:
    """Writes the edges of documents by source, and the gold labels; returns the edge types."""
    names = {token_edge(name): name for name in (*fields, WORD)}
    names |= {CITES: _CITED} if CITATION_FIELD in fields else {}
    names |= {TAGGED: LABEL}
    for edge_type, name in names.items():
        writer.add_edges(edge_type, _count(parts, name), edge_type == CONTAINS)
        with (
            writer.edge_array(edge_type, "ptr") as ptr,
            writer.edge_array(edge_type, "index") as index,
        ):
            _append(parts, name, ptr, index)
    num_documents = sum(len(part.load(_TARGETS, "lengths")) for part in parts)
    with (
        writer.target_array("ptr", num_documents + 1) as ptr,
        writer.target_array("index", _count(parts, _TARGETS)) as index,
    ):
        _append(parts, _TARGETS, ptr, index)
    return list(names)


def _count(parts: Sequence[Part], name: str) -> int:
    return sum(part.num_values[name] for part in parts)


def _append(parts: Sequence[Part], name: str, ptr: ArrayFile, index: ArrayFile) -> None:
    """Writes the lists of all parts, one after another."""
    ptr.append(np.zeros(1, np.int64))
    total = 0
    for part in parts:
        ptr.append(total + np.cumsum(part.load(name, "lengths"), dtype=np.int64))
        index.append(part.load(name, "index"))
        total += part.num_values[name]
