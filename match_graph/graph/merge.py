"""Fragments -> the arrays and tables of a built graph, the same as `build_graph` makes.

Work on each fragment, and on each range of strings, is split into tasks that may run in other
processes; this process writes the final arrays block by block. Only the labels' arrays and table
are held in memory as a whole.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import call
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from match_graph.corpus import describe_oddities, describe_texts, hierarchy_frame
from match_graph.corpus_builder import CorpusBuilder, CorpusFault, describe_repeated
from match_graph.corpus_faults import NO_TRAINING
from match_graph.cycles import find_cycle
from match_graph.errors import CorpusError, list_faults
from match_graph.graph.build import CITATION_FIELD, describe_build, number_hierarchy
from match_graph.graph.fragments import Fragment, drop_documents
from match_graph.graph.node_tables import write_documents, write_nodes
from match_graph.graph.renumber import renumber_all, write_lists
from match_graph.graph.store_writer import StoreWriter, table_name
from match_graph.graph.strings import Range, cut_ranges, find_repeated
from match_graph.io.cluster import Run
from match_graph.typing import DOCUMENT, IS_A, LABEL


@dataclass(frozen=True)
class Merged:
    """Metadata of a build besides its arrays and tables.

    Args:
        notes: Counts of what was dropped or contracted.
        warnings: Likely mistakes in the data, a sentence each.
        skipped: Faults of documents that were left out.
    """

    notes: dict[str, Any]
    warnings: list[str]
    skipped: list[str]


def gather(
    fragments: Sequence[Fragment], total: CorpusBuilder, work: Path, run: Run
) -> list[Fragment]:
    """Gathers the notes of fragments, and drops documents whose id an earlier one has.

    Args:
        fragments: Fragments in reading order.
        total: Builder that takes notes, faults, warnings, hierarchy edges and notes of readers.
        work: Folder for fragments without such documents, and for sorted strings.
        run: Runs tasks.

    Returns:
        Fragments without such documents.
    """
    found = _find_all_repeated(fragments, total, work, run)
    kept = list(fragments)
    for number, fragment in enumerate(fragments):
        rows = found.get(number, {})
        total.replay(_order_faults(fragments, number, rows))
        if rows:
            dropped, folder = np.array(sorted(rows)), work / f"fragment.{number}"
            kept[number] = drop_documents(fragment, dropped, [*total.types], folder)
        about = kept[number].about
        for note, count in about["notes"].items():
            total.notes[note] += count
        total.warnings += about["warnings"]
        for child, parent, place in about["edges"]:
            total.edges.setdefault((child, parent), place)
        for kind, values in about["seen"].items():
            total.note_seen(kind, values)
    if found:
        _find_all_repeated(kept, total, work, run)
    return kept


def _find_all_repeated(
    fragments: Sequence[Fragment], total: CorpusBuilder, work: Path, run: Run
) -> dict[int, dict[int, tuple[int, int]]]:
    """Repeated documents: by fragment and row, the fragment and row where the id was first."""
    repeated: dict[int, dict[int, tuple[int, int]]] = {}
    ranges = _cut_documents(fragments, total.fields, work)[0]
    for found in run(find_repeated, ranges):
        for later, row, before, first in found:
            repeated.setdefault(later, {})[row] = before, first
    return repeated


def _cut_documents(
    fragments: Sequence[Fragment], fields: Sequence[str], work: Path
) -> list[list[Range]]:
    """Ranges of documents and, if there are references, of references with the same bounds."""
    return cut_ranges(fragments, [DOCUMENT, *[CITATION_FIELD] * (CITATION_FIELD in fields)], work)


def _order_faults(
    fragments: Sequence[Fragment], number: int, rows: dict[int, tuple[int, int]]
) -> Iterator[CorpusFault]:
    """Faults of a fragment, and of its repeated documents, in the order of a single pass."""
    fragment, faults = fragments[number], fragments[number].faults
    replaceable = {row for row, _ in fragment.about["replaceable"]}
    for row in sorted(rows.keys() - replaceable):
        name, place = _find_document(fragment, row)
        _, before = _find_document(fragments[rows[row][0]], rows[row][1])
        faults.append(CorpusFault(-1 - row, row, True, describe_repeated(name, place, before)))
    yield from sorted(faults, key=lambda fault: (fault.num_documents, fault.row < 0))


def _find_document(fragment: Fragment, row: int) -> tuple[str, str]:
    """Id and place of the document in a row."""
    ids = fragment.strings(DOCUMENT)
    at = int(np.flatnonzero(ids["row"].to_numpy() == row)[0])
    return ids["id"][at].as_py(), os.fsdecode(ids["place"][at].as_py())


def write_merged(
    writer: StoreWriter, fragments: Sequence[Fragment], total: CorpusBuilder, work: Path, run: Run
) -> Merged:
    """Writes the arrays and tables of fragments.

    Args:
        writer: Writer of the build folder, to which nothing was added.
        fragments: Fragments as `gather` gives them, then one that has only names.
        total: Builder as `gather` leaves it, finished by the reader.
        work: Folder for sorted strings.
        run: Runs tasks.

    Raises:
        CorpusError: With all faults noted so far, or with those of the whole.
    """
    num_documents = sum(fragment.num_documents for fragment in fragments)
    total.check(num_documents)
    hierarchy = hierarchy_frame([(*edge, place) for edge, place in total.edges.items()])
    _check_whole(fragments, total.name, hierarchy)
    (writer.folder / "nodes").mkdir()
    tables = {DOCUMENT: write_documents(writer, fragments)}
    types: dict[str, list[Range]] = {}
    documents, *references = _cut_documents(fragments, total.fields, work)
    for name in total.types:
        ranges = references[0] if name == CITATION_FIELD else cut_ranges(fragments, [name], work)[0]
        tables[name] = write_nodes(writer, ranges, run)
        types[name] = ranges
    parts = renumber_all(fragments, types, documents, work, run)
    edge_types = write_lists(writer, parts, total.fields)
    tables.pop(LABEL)()
    labels, num_contracted = _write_hierarchy(writer, hierarchy)
    reversals = [writer.plan_reverse(edge_type) for edge_type in (*edge_types, IS_A)]
    blocks = [block.write for reversal in reversals for block in reversal.begin()]
    run(call, [*tables.values(), *blocks])  # the documents' takes longest
    run(call, [bucket.write for reversal in reversals for bucket in reversal.list_buckets()])
    for reversal in reversals:
        reversal.end()
    empty = [name for name in total.fields if not any(part.num_values[name] for part in parts)]
    num_repeated = sum(count for one in fragments for _, count in one.about["repeated_values"])
    texts = sum((part.texts for part in parts), Counter())
    notes, num_cut = total.count_notes(num_repeated), sum(part.num_cut for part in parts)
    return Merged(
        describe_build(notes, len(hierarchy), num_contracted, num_cut),
        [
            *total.list_warnings(num_documents),
            *describe_oddities(hierarchy, labels, empty),
            *describe_texts(texts, num_documents),
        ],
        list(total.skipped),
    )


def _check_whole(fragments: Sequence[Fragment], name: str, hierarchy: pd.DataFrame) -> None:
    """Checks what `Corpus` checks and no single fragment can: a training split, no cycle."""
    faults = []
    if not any(fragment.about["num_train"] for fragment in fragments):
        faults.append(NO_TRAINING)
    cycle = find_cycle(hierarchy)
    if cycle is not None:
        faults.append(cycle)
    if faults:
        raise CorpusError(list_faults(f"The corpus '{name}' must be consistent", faults))


def _write_hierarchy(writer: StoreWriter, hierarchy: pd.DataFrame) -> tuple[list[str], int]:
    """Writes the hierarchy; returns the labels of documents, and how many nodes were left out."""
    path = writer.folder / table_name(LABEL)
    labels: list[str] = pq.ParquetFile(path).read(["id"])["id"].to_pylist()
    is_a, num_contracted = number_hierarchy(hierarchy, labels)
    writer.add_edges(IS_A, is_a.shape[1])
    with writer.edge_array(IS_A, "ptr") as ptr, writer.edge_array(IS_A, "index") as index:
        ptr.append(np.searchsorted(is_a[0], np.arange(len(labels) + 1)))
        index.append(is_a[1])
    return labels, num_contracted
