"""Nodes of merged fragments: their tables and attribute arrays."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from match_graph.graph.fragments import Fragment
from match_graph.graph.store_writer import StoreWriter, table_name
from match_graph.graph.strings import (
    Range,
    iter_ordered,
    merge_range,
    place_counts,
    rank_range,
)
from match_graph.io.cluster import Run
from match_graph.io.tables import text_schema, write_table
from match_graph.typing import DOCUMENT, MASKS


def write_document_table(
    path: Path, folders: Sequence[Path], has_time: bool, has_text: bool
) -> None:
    """Writes the table of all documents.

    Args:
        path: File of the table.
        folders: Folders of the fragments, in reading order.
        has_time: Whether every document has a time.
        has_text: Whether texts are kept.
    """
    frame = pd.DataFrame({name: [] for name in ["id", "split", *["text"] * has_text]}, dtype=str)
    if has_time:
        frame["time"] = np.empty(0, np.int64)
    schema = text_schema(frame)
    write_table(path, schema, (Fragment(folder).documents(schema.names) for folder in folders))


def write_node_table(path: Path, ranges: Sequence[Range], has_name: bool, has_depth: bool) -> None:
    """Writes the table of the nodes of a type; a node without a name is named by its id.

    Args:
        path: File of the table.
        ranges: Ranges of the type, ranked.
        has_name: Whether any node has a name.
        has_depth: Whether any node has a depth.
    """

    def complete(table: pa.Table) -> pa.Table:
        columns, given = {"id": table["id"]}, {*table.column_names}
        if has_name:
            is_named = "name" in given
            columns["name"] = pc.coalesce(table["name"], table["id"]) if is_named else table["id"]
        if has_depth:
            unknown = pa.nulls(len(table), pa.int16())
            columns["depth"] = table["depth"] if "depth" in given else unknown
        return pa.table(columns)

    frame = pd.DataFrame({name: [] for name in ["id", *["name"] * has_name]}, dtype=str)
    if has_depth:
        frame["depth"] = pd.array([], dtype="Int16")
    write_table(path, text_schema(frame), map(complete, iter_ordered(ranges)))


def write_documents(writer: StoreWriter, fragments: Sequence[Fragment]) -> Callable[[], None]:
    """Adds the documents with masks and times; returns a task that writes their table."""
    num_documents = sum(fragment.num_documents for fragment in fragments)
    has_time, has_text = (
        all(fragment.about[column] for fragment in fragments) for column in ("has_time", "has_text")
    )
    writer.add_nodes(DOCUMENT, num_documents)
    for split, mask in MASKS.items():
        with writer.node_array(DOCUMENT, mask, np.bool_, (num_documents,)) as array:
            for fragment in fragments:
                chosen = pc.equal(fragment.documents(["split"])["split"], split)
                array.append(chosen.to_numpy())
    if has_time:
        with writer.node_array(DOCUMENT, "time", np.int64, (num_documents,)) as array:
            for fragment in fragments:
                array.append(fragment.documents(["time"])["time"].to_numpy())
    path = writer.folder / table_name(DOCUMENT)
    folders = [fragment.folder for fragment in fragments]
    return partial(write_document_table, path, folders, has_time, has_text)


def write_nodes(writer: StoreWriter, ranges: Sequence[Range], run: Run) -> Callable[[], None]:
    """Adds the strings of a type as nodes; returns a task that writes their table."""
    name = ranges[0].node_type
    counted = run(merge_range, ranges)
    run(rank_range, [*zip(ranges, counted, place_counts(counted), strict=True)])
    num_nodes = sum(int(one.number.sum()) for one in counted)
    writer.add_nodes(name, num_nodes)
    with writer.node_array(name, "train_count", np.int32, (num_nodes,)) as array:
        for table in iter_ordered(ranges):
            array.append(table["count"].to_numpy())
    has_name, has_depth = (
        any(getattr(one, key) for one in counted) for key in ("has_name", "has_depth")
    )
    return partial(write_node_table, writer.folder / table_name(name), ranges, has_name, has_depth)
