"""Features of a node type in the order of its nodes: aligned once, then memory-mapped."""

import filecmp
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from match_graph.config import FeatureSource
from match_graph.datasets import CorpusDataset, default_root
from match_graph.datasets.built import hash_source, lock_build, write_built
from match_graph.errors import CorpusError
from match_graph.features.table import FeatureTable, make_table, open_table
from match_graph.features.text_embedder import TextEmbedder
from match_graph.features.texts import choose_columns, list_texts
from match_graph.features.vectors import make_text_vectors
from match_graph.io.build_folder import check_file
from match_graph.io.files import link_file
from match_graph.io.manifest import MANIFEST
from match_graph.io.progress import Reporter
from match_graph.io.source import Snapshot, is_there

#: Folder of features below a root, and within it the cache of text vectors, shared by data sets.
FEATURES, TEXTS = "features", "texts"
#: Remedy for damaged features, as a clause.
_REMEDY = "delete this folder, and give the features again where they were in memory"
#: File beside features of texts with what computes those of new texts.
VECTORS = "vectors.safetensors"
_FORMAT_VERSION, _X, _SHOWN = 1, "x.npy", 3


@dataclass(frozen=True)
class Features:
    """Features of all nodes of a type.

    Args:
        x: Vectors in the order of the nodes, [num_nodes, F], float16 or float32, memory-mapped.
        digest: SHA-256 of what they were made from, including the data set.
        path: The ``.npy`` file of ``x``, which is never changed.
    """

    x: Tensor
    digest: str
    path: Path


def open_features(
    source: FeatureSource,
    dataset: CorpusDataset,
    node_type: str,
    root: str | Path | None = None,
    reporter: Reporter | None = None,
) -> Features:
    """Opens features; on first use they are computed and put into the order of the nodes.

    Args:
        source: File, or model of texts.
        dataset: Built data set.
        node_type: Node type.
        root: Root folder, under which they are kept; None takes the default.
        reporter: Progress reporter; None prints nothing but warnings.

    Raises:
        CorpusError: The data set has no such type or column; a file cannot be read; rows, ids or
            values are not as they must be; the disk refuses.
        ConfigError: The language model cannot be used.
    """
    node_ids = _list_nodes(dataset, node_type)
    embedder = None if source.model is None else open_embedder(source, root, reporter)
    snapshot = _open_files(source)
    made_of = _describe_source(source, node_type, snapshot, embedder)
    store = _Store(dataset, node_type, node_ids, made_of, root, reporter)
    if store.is_there:
        return store.open()
    if source.path is None:
        texts = list_texts(dataset, node_type, choose_columns(node_type, source.column))
        table, vectors = make_text_vectors(source, dataset, node_type, texts, embedder)
        if source.latent is not None and vectors.own.width < source.latent:
            store.reporter.warn(
                f"data.features.{node_type}.latent asks for {source.latent:,} components, but the "
                f"texts allow {vectors.own.width:,}"
            )
        store.make(table, lambda folder: vectors.save(folder / VECTORS))
        return store.open()

    def complete(folder: Path) -> None:
        snapshot.check_unchanged(snapshot.hashes)
        _share_content(Path(str(source.path)), folder / _X)

    store.make(open_table(source), complete)
    return store.open()


def _share_content(source: Path, made: Path) -> None:
    """Replaces a copy of features that another store keeps by a hard link to them."""
    is_kept = source.name == _X and is_there(source.with_name(MANIFEST))
    if is_kept and filecmp.cmp(source, made, shallow=False):
        made.unlink()
        link_file(source, made)


def identify_features(
    source: FeatureSource,
    node_type: str,
    data_checksum: str,
    embedder: TextEmbedder | None = None,
) -> str:
    """Digest of the features that `open_features` would give, without computing them.

    Args:
        source: File, or model of texts.
        node_type: Node type.
        data_checksum: Checksum of the data set.
        embedder: Language model of the source, where it is open.

    Raises:
        CorpusError: A file cannot be read.
        ConfigError: There is no such language model.
    """
    if embedder is None and source.model is not None:
        embedder = open_embedder(source)
    made_of = _describe_source(source, node_type, _open_files(source), embedder)
    return _compute_digest(data_checksum, node_type, made_of)


def _open_files(source: FeatureSource) -> Snapshot:
    return Snapshot(path for path in (source.path, source.ids) if path is not None)


def _describe_source(
    source: FeatureSource, node_type: str, snapshot: Snapshot, embedder: TextEmbedder | None
) -> dict[str, Any]:
    """Identity of a source for its digest: content of files, or settings of a model, as JSON."""
    if source.path is not None:
        files = {"path": source.path, "ids": source.ids}
        named = {name: snapshot.hashes[path] for name, path in files.items() if path is not None}
        return {**named, "key": source.key}
    model = {"latent": source.latent} if embedder is None else {"model": embedder.digest}
    near = {"neighbors": source.neighbors, "earlier": bool(source.earlier)}
    near["version"] = 4  # raised where the same source gives other vectors
    columns = choose_columns(node_type, source.column)
    return {**model, "columns": columns, **(near if source.neighbors else {})}


def _compute_digest(data_checksum: str, node_type: str, made_of: dict[str, Any]) -> str:
    about = {"format": _FORMAT_VERSION, "data": data_checksum, "node_type": node_type}
    return hash_source({**about, "source": made_of})


def open_embedder(
    source: FeatureSource,
    root: str | Path | None = None,
    reporter: Reporter | None = None,
) -> TextEmbedder:
    """The language model of a source; arguments and errors as for `open_features`."""
    assert source.model is not None
    place = (default_root() if root is None else Path(root)) / FEATURES / TEXTS
    return TextEmbedder(source.model, place, source.max_pieces, reporter)


def make_features(
    values: Any,
    dataset: CorpusDataset,
    node_type: str,
    root: str | Path | None = None,
    reporter: Reporter | None = None,
) -> Features:
    """Stores features given in memory, as `open_features` does those of a file.

    Args:
        values: Array or tensor in the order of the nodes, [num_nodes, F]; or a data frame with the
            ids of the nodes as its index or its column ``id``.
        dataset: Built data set.
        node_type: Node type.
        root: Root folder, under which they are kept; None takes the default.
        reporter: Progress reporter; None prints nothing.

    Raises:
        CorpusError: As `open_features`.
    """
    node_ids, table = _list_nodes(dataset, node_type), make_table(values)
    store = _Store(dataset, node_type, node_ids, {"values": table.compute_digest()}, root, reporter)
    if not store.is_there:
        store.make(table)
    return store.open()


def _list_nodes(dataset: CorpusDataset, node_type: str) -> pa.Array:
    """Ids of the nodes, strings, [num_nodes]."""
    return pa.array(dataset.names(node_type).astype(str), pa.large_string())


class _Store:
    """The folder of one node type's features below a root."""

    def __init__(
        self,
        dataset: CorpusDataset,
        node_type: str,
        node_ids: pa.Array,
        source: dict[str, Any],
        root: str | Path | None,
        reporter: Reporter | None,
    ) -> None:
        self.digest = _compute_digest(dataset.checksum, node_type, source)
        self.node_type, self.node_ids = node_type, node_ids
        self.reporter = reporter or Reporter(quiet=True)
        place = default_root() if root is None else Path(root)
        self.folder = place / FEATURES / f"{node_type}-{self.digest[:16]}"

    @property
    def is_there(self) -> bool:
        return is_there(self.folder / MANIFEST)

    def make(
        self, table: FeatureTable, complete: Callable[[Path], None] = lambda _folder: None
    ) -> None:
        """Writes the folder, unless another process has in the meantime.

        Args:
            table: Rows of features.
            complete: Called with the temporary folder after the features are written.
        """
        with lock_build(self.folder):
            if not self.is_there:
                node = find_nodes(table, self.node_ids, self.node_type)
                self._warn(node)

                def write(folder: Path) -> None:
                    self._write(folder / _X, table, node)
                    complete(folder)

                write_built(self.folder, write)

    def _warn(self, node: NDArray[np.int64]) -> None:
        if others := int((node < 0).sum()):
            self.reporter.line(
                f"features: {others:,} of {len(node):,} rows are of no {self.node_type} in the "
                f"graph and are left out"
            )

    def _write(self, path: Path, table: FeatureTable, node: NDArray[np.int64]) -> None:
        shape = (len(self.node_ids), table.width)
        x = _make_array(path, shape, table.dtype)
        done = 0
        with self.reporter.track(f"features {self.node_type}", table.num_rows, "rows") as advance:
            for block in table.read():
                place = node[done : done + len(block)]
                kept = place >= 0
                block = block if kept.all() else block[kept]  # noqa: PLW2901
                self._check_finite(block, place[kept], table.origin)
                x[place[kept]] = block
                done += len(kept)
                advance(done, "")
        if done != table.num_rows:
            raise CorpusError(
                f"Features must have as many rows as at their opening, but {table.origin} had "
                f"{table.num_rows:,} and has {done:,}; try again when nothing writes there."
            )
        x.flush()

    def _check_finite(self, block: NDArray[Any], node: NDArray[np.int64], origin: str) -> None:
        finite = np.isfinite(block).all(axis=1)
        if not finite.all():
            first = self.node_ids[int(node[int(finite.argmin())])].as_py()
            raise CorpusError(
                f"Features must be finite in {block.dtype}, but {origin} has a value that is not "
                f"for the {self.node_type} '{first}'; replace it."
            )

    def open(self) -> Features:
        """The features of the folder.

        Raises:
            CorpusError: It is damaged.
        """
        with check_file(self.folder, _X, _REMEDY) as path:
            x = np.lib.format.open_memmap(path, mode="c")  # torch warns of what is read-only
            num_nodes = len(self.node_ids)
            if x.ndim != 2 or len(x) != num_nodes or x.dtype not in (np.float16, np.float32):
                raise TypeError
        return Features(torch.from_numpy(x), self.digest, self.folder / _X)


def find_nodes(table: FeatureTable, node_ids: pa.Array, node_type: str) -> NDArray[np.int64]:
    """Node of every row, -1 where the row is of no node, [R], int64.

    Args:
        table: Rows of features.
        node_ids: Ids of the nodes of a type, in the order of the graph, [num_nodes].
        node_type: Node type, for messages.

    Raises:
        CorpusError: Rows are not those of the nodes: another number without ids; a node has none,
            or several.
    """
    num_nodes, origin = len(node_ids), table.origin
    if table.ids is None:
        if num_nodes != table.num_rows:
            raise CorpusError(
                f"Features without ids must have a row per node, but {origin} has "
                f"{table.num_rows:,} rows and the graph {num_nodes:,} nodes of type '{node_type}'; "
                f"give ids beside them."
            )
        return np.arange(num_nodes)
    found = pc.index_in(table.ids, value_set=node_ids)
    node: NDArray[np.int64] = pc.fill_null(found, -1).to_numpy().astype(np.int64)
    count = np.bincount(node[node >= 0], minlength=num_nodes)
    if (count > 1).any():
        raise CorpusError(
            f"Features must have each id once, but {origin} has "
            f"'{node_ids[int(count.argmax())]}' {int(count.max())} times; keep one of its rows."
        )
    missing = np.flatnonzero(count == 0)
    if len(missing):
        shown = ", ".join(f"'{node_ids[int(one)]}'" for one in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
        theirs = ", ".join(f"'{name}'" for name in table.ids[:_SHOWN].to_pylist())
        raise CorpusError(
            f"Every node of type '{node_type}' must have features, but {origin} has none of "
            f"{shown}{more}; add rows for these ids (its first are {theirs or 'none'})."
        )
    return node


def _make_array(path: Path, shape: tuple[int, int], dtype: np.dtype[Any]) -> Any:
    """Memory-mapped array with allocated disk space: a full disk is an error here, not a crash."""
    x = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return x
