"""Rows of features in files or in memory, read in blocks; with ids or in the order of nodes."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from match_graph.config import FeatureSource
from match_graph.errors import CorpusError

#: float16 or float32, [rows, F].
Block: TypeAlias = NDArray[np.float16] | NDArray[np.float32]

ID = "id"
#: Bytes of a block of rows.
_BLOCK_BYTES = 2**24


@dataclass(frozen=True)
class FeatureTable:
    """Vectors of R rows, read in blocks.

    Args:
        num_rows: Number of rows R.
        width: Number of features F.
        dtype: float16 or float32, of the blocks.
        ids: Node ids of the rows, strings, [R]; None if the rows are in the order of nodes.
        read: Iterates over blocks [rows, F], R rows in all; may be called several times.
        origin: Where they come from, for messages.
    """

    num_rows: int
    width: int
    dtype: np.dtype[Any]
    ids: pa.ChunkedArray | None
    read: Callable[[], Iterator[Block]]
    origin: str

    def __post_init__(self) -> None:
        if self.ids is not None and len(self.ids) != self.num_rows:
            raise CorpusError(
                f"Features must have an id for every row, but {self.origin} has {len(self.ids):,} "
                f"ids and {self.num_rows:,} rows; write both from one table."
            )

    def compute_digest(self) -> str:
        """SHA-256 of values and ids, as hexadecimal digits."""
        digest = hashlib.sha256(f"{self.num_rows} {self.width} {self.dtype}".encode())
        for block in self.read():
            digest.update(np.ascontiguousarray(block).data)
        for name in [] if self.ids is None else self.ids.to_pylist():
            digest.update(f"{len(name)} {name}".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def open_table(source: FeatureSource) -> FeatureTable:
    """Features of a file; nothing is unpickled.

    ==============  =====================================  =========================================
    file            values                                 ids
    ==============  =====================================  =========================================
    .npy            the array, [R, F]                      ``ids``, a text file with a line per row
    .safetensors    the tensor ``key``, or the only one    likewise
    .parquet        the column of lists ``key``, or the    the column ``id``
                    only one, or all columns of numbers
    ==============  =====================================  =========================================

    Raises:
        CorpusError: A file is missing, damaged or of another form.
    """
    path = Path(source.path or "")
    openers = {".npy": _open_npy, ".safetensors": _open_safetensors, ".parquet": _open_parquet}
    if path.suffix not in openers:
        raise CorpusError(
            f"Features must be in a file that ends with one of {', '.join(openers)}, found "
            f"'{path}'; write its array by numpy.save, its rows in the order of the nodes or with "
            f"ids beside."
        )
    if path.suffix == ".parquet" and source.ids is not None:
        raise CorpusError(
            f"The ids of a Parquet file must be its column '{ID}', but ids are given for '{path}' "
            f"too; leave them out."
        )
    if path.suffix == ".npy" and source.key is not None:
        raise CorpusError(
            f"An .npy file holds one array without a name, but a key is given for '{path}'; leave "
            f"it out."
        )
    row_ids = None if source.ids is None else _read_ids(Path(source.ids))
    with _reading(f"'{path}'"):
        return openers[path.suffix](path, source.key, row_ids)


def make_table(values: Any) -> FeatureTable:
    """Features in memory.

    Args:
        values: Array or tensor [R, F] in the order of the nodes; or a data frame with the nodes'
            ids as its column ``id`` or as its index, and a column of lists or columns of numbers.

    Raises:
        CorpusError: They are not a matrix of numbers.
    """
    origin = "the given array"
    if isinstance(values, pd.DataFrame):
        origin = "the given data frame"
        if ID not in values.columns:
            values = values.assign(**{ID: values.index})
        with _reading(origin):
            return _make_frame_table(values.rename(columns=str), origin)
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
        values = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # of several widths; sparse; no data
        raise CorpusError(
            f"Features must be a matrix of numbers, a row per node, but {origin} is none "
            f"({' '.join(str(error).split())}); convert it."
        ) from error
    return _make_array_table(values, None, origin)


def find_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type in which features of a type are stored: float16 stays, others become float32."""
    return np.dtype(np.float16 if dtype == np.float16 else np.float32)


def _make_frame_table(values: pd.DataFrame, origin: str) -> FeatureTable:
    table = pa.Table.from_pandas(values, preserve_index=False)
    form, ids = _find_columns(table.schema, None), _as_ids(table.column(ID), origin)
    width = _find_width(form, table.to_batches(1))

    def read() -> Iterator[Block]:
        with _reading(origin):
            for batch in table.to_batches(count_rows(table.num_rows, width)):
                yield _convert_batch(form, batch, width)

    return FeatureTable(table.num_rows, width, form.dtype, ids, read, origin)


def _make_array_table(
    values: NDArray[Any], ids: pa.ChunkedArray | None, origin: str
) -> FeatureTable:
    _check_shape(values.shape, str(values.dtype), values.dtype.kind in "fiub", origin)
    dtype = find_dtype(values.dtype)

    def read() -> Iterator[Block]:
        step = count_rows(len(values), values.shape[1])
        for start in range(0, len(values), step):
            yield _convert(values[start : start + step], dtype)

    return FeatureTable(len(values), values.shape[1], dtype, ids, read, origin)


def _check_shape(shape: tuple[int, ...], kind: str, are_numbers: bool, origin: str) -> None:
    if len(shape) != 2 or shape[1] < 1 or not are_numbers:
        raise CorpusError(
            f"Features must be a matrix of numbers, a row per node, but {origin} is "
            f"{list(shape)} of {kind}; reshape or convert it."
        )


def _convert(values: NDArray[Any], dtype: np.dtype[Any]) -> Block:
    """Converts values; those too large for the type become infinite, which is refused later."""
    with np.errstate(over="ignore"):
        converted: Block = values.astype(dtype, copy=False)
    return converted


def count_rows(num_rows: int, width: int) -> int:
    """Number of rows of a block."""
    return max(1, min(num_rows, _BLOCK_BYTES // (4 * width)))


def _open_npy(path: Path, _key: str | None, ids: pa.ChunkedArray | None) -> FeatureTable:
    return _make_array_table(np.lib.format.open_memmap(path, mode="r"), ids, f"'{path}'")


def _open_safetensors(path: Path, key: str | None, ids: pa.ChunkedArray | None) -> FeatureTable:
    with safe_open(path, framework="pt") as file:
        names = sorted(file.keys())
        name = names[0] if key is None and len(names) == 1 else key
        if name not in names:
            raise ValueError(f"key must name one of its tensors {names}, found {key}")
        rows = file.get_slice(name)
        shape, kind = tuple(rows.get_shape()), rows.get_dtype()
    _check_shape(shape, kind, kind[0] in "FBIU", f"'{path}'")  # floating point, integers, bool
    num_rows, width = shape
    dtype = find_dtype(np.dtype(np.float16 if kind == "F16" else np.float32))

    def read() -> Iterator[Block]:
        step = count_rows(num_rows, width)
        with _reading(f"'{path}'"), safe_open(path, framework="pt") as file:
            rows = file.get_slice(name)
            for start in range(0, num_rows, step):
                block = rows[start : start + step]
                block = block if block.dtype == torch.float16 else block.float()
                yield _convert(block.numpy(), dtype)

    return FeatureTable(num_rows, width, dtype, ids, read, f"'{path}'")


def _open_parquet(path: Path, key: str | None, _ids: pa.ChunkedArray | None) -> FeatureTable:
    with pq.ParquetFile(path) as file:
        form = _find_columns(file.schema_arrow, key)
        ids = _as_ids(file.read(columns=[ID]).column(ID), f"'{path}'")
        width = _find_width(form, file.iter_batches(1, columns=list(form.columns)))

    def read() -> Iterator[Block]:
        step = count_rows(len(ids), width)
        with _reading(f"'{path}'"), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(step, columns=list(form.columns)):
                yield _convert_batch(form, batch, width)

    return FeatureTable(len(ids), width, form.dtype, ids, read, f"'{path}'")


@dataclass(frozen=True)
class _Form:
    """Columns of a table that are features: one of lists, or some of numbers."""

    columns: tuple[str, ...]
    are_lists: bool
    dtype: np.dtype[Any]


def _find_columns(schema: pa.Schema, key: str | None) -> _Form:
    if ID not in schema.names:
        raise ValueError(f"it has the columns {schema.names} and no '{ID}'")
    index = (schema.pandas_metadata or {}).get("index_columns", [])  # names, or a range's bounds
    fields = [field for field in schema if field.name != ID and field.name not in index]
    lists = {
        field.name: field.type.value_type
        for field in fields
        if pa.types.is_list(field.type)
        or pa.types.is_large_list(field.type)
        or pa.types.is_fixed_size_list(field.type)
    }
    if key is None and len(lists) == 1:
        key = next(iter(lists))
    if key is None and not lists:
        kinds = {field.name: field.type for field in fields}
        if foreign := [name for name, kind in kinds.items() if not _is_number(kind)]:
            raise ValueError(f"the columns {foreign} are neither numbers nor lists of numbers")
        if not kinds:
            raise ValueError(f"it has no column but '{ID}'")
    elif key not in lists:
        raise ValueError(
            f"key (data.features.TYPE.key) must name one of its columns of lists {list(lists)}, "
            f"found {key}"
        )
    else:
        kinds = {key: lists[key]}
        if not _is_number(lists[key]):
            raise ValueError(f"'{key}' has lists of {lists[key]}, not of numbers")
    is_half = all(pa.types.is_float16(kind) for kind in kinds.values())
    return _Form(tuple(kinds), bool(lists), np.dtype(np.float16 if is_half else np.float32))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)


def _find_width(form: _Form, batches: Any) -> int:
    """Number of features; of lists the length of the first."""
    if not form.are_lists:
        return len(form.columns)
    lengths = [
        pc.list_value_length(batch.column(form.columns[0]))[0].as_py()
        for batch in batches
        if batch.num_rows
    ][:1]
    if not lengths or not lengths[0]:
        raise ValueError(f"'{form.columns[0]}' has no list of numbers in its first row")
    return int(lengths[0])


def _convert_batch(form: _Form, batch: pa.RecordBatch, width: int) -> Block:
    if not form.are_lists:
        columns = [_to_numpy(batch.column(name)) for name in form.columns]
        return _convert(np.stack(columns, axis=1), form.dtype)
    column = batch.column(form.columns[0])
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    if (lengths != width).any():
        other = int(lengths[lengths != width][0])
        raise ValueError(
            f"the lists of '{form.columns[0]}' must have one length, found {width} and {other}"
        )
    return _convert(_to_numpy(column.flatten()), form.dtype).reshape(len(column), width)


def _to_numpy(column: pa.Array) -> NDArray[Any]:
    """Numbers of a column, NaN where there is none."""
    column = column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _as_ids(column: pa.ChunkedArray, origin: str) -> pa.ChunkedArray:
    try:
        ids = column.cast(pa.large_string())
    except pa.ArrowException as error:
        raise CorpusError(
            f"Ids of features must be text or whole numbers, but those of {origin} are "
            f"{column.type}; convert them."
        ) from error
    if ids.null_count:
        raise CorpusError(
            f"Features must have an id for every row, but {origin} has {ids.null_count:,} rows "
            f"without; leave them out."
        )
    return ids


def _read_ids(path: Path) -> pa.ChunkedArray:
    with _reading(f"'{path}'"), path.open(encoding="utf-8-sig", newline="\n") as file:
        return pa.chunked_array(
            [pa.array((line.rstrip("\r\n") for line in file), pa.large_string())]
        )


@contextmanager
def _reading(origin: str) -> Iterator[None]:
    """Turns failures of reading features within the block into one sentence."""
    try:
        yield
    except (OSError, ValueError, EOFError, SafetensorError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CorpusError(
            f"Features must be readable, but {origin} is not ({reason}); check what it holds, and "
            f"that it is whole."
        ) from error
