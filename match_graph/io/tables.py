"""Tables as files: Parquet in row groups of equal size, and Arrow files for memory mapping."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from match_graph.io.beside import renamed

#: Rows of a row group, fixed so that equal tables have equal bytes.
ROW_GROUP = 2**16


def text_schema(frame: pd.DataFrame) -> pa.Schema:
    """Arrow schema of a frame without its index, with 64-bit offsets of strings."""
    schema = pa.Schema.from_pandas(frame.iloc[:0], preserve_index=False)
    for number, field in enumerate(schema):
        if pa.types.is_string(field.type):
            schema = schema.set(number, field.with_type(pa.large_string()))
    return schema


def write_table(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Writes the rows of tables as one Parquet file, whose bytes depend on the rows alone."""
    with renamed(path) as place, pq.ParquetWriter(place, schema, compression="zstd") as writer:
        for table in _regroup(schema, tables):
            writer.write_table(table, row_group_size=ROW_GROUP)


def write_frame(path: Path, frame: pd.DataFrame) -> None:
    """Writes a frame as Parquet, without its index."""
    schema = text_schema(frame)
    write_table(path, schema, [pa.Table.from_pandas(frame, schema, preserve_index=False)])


def _regroup(schema: pa.Schema, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yields the rows in tables of one row group each, of a single chunk."""
    held = schema.empty_table()
    for table in tables:
        held = pa.concat_tables([held, table.select(schema.names).cast(schema)])
        while len(held) >= ROW_GROUP:
            yield held.slice(0, ROW_GROUP).combine_chunks()
            held = held.slice(ROW_GROUP)
    if len(held):
        yield held.combine_chunks()


def write_arrow(path: Path, table: pa.Table) -> None:
    """Writes a table as one uncompressed record batch, for `map_arrow`."""
    with (
        renamed(path) as place,
        pa.OSFile(str(place), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table.combine_chunks())


def map_arrow(path: Path) -> pa.Table:
    """Memory-maps a table that `write_arrow` wrote, without a copy."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


def save_array(path: Path, array: np.ndarray[Any, np.dtype[Any]]) -> None:
    """Writes an array as ``.npy``."""
    with renamed(path) as place, place.open("wb") as file:
        np.save(file, array)
