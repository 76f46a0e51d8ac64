"""Built folder: written atomically, verified when it is opened.

``manifest.json`` lists the files of a build with size and SHA-256. Before a file is read, it is
compared with the manifest: below 256 MiB by its content, from there on by its size, as hashing
would cost more than reading; `check_all` hashes all files. `MappedGraph` reads the arrays.
"""

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import platformdirs
import torch
from filelock import FileLock
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.errors import CorpusError, GraphError
from match_graph.graph import BuiltGraph
from match_graph.graph.store import CORPUS
from match_graph.graph.store_writer import StoreWriter, table_name, write_graph
from match_graph.graph.view import count_nodes
from match_graph.io.beside import beside, finish
from match_graph.io.build_folder import check_file, damaged_build
from match_graph.io.manifest import MANIFEST, find_damage, read_manifest, write_manifest
from match_graph.io.source import is_there, resolve_path
from match_graph.io.tables import write_frame
from match_graph.typing import DOCUMENT, MASKS, Tokenizer

FAULTS = "faults.parquet"


def default_root() -> Path:
    """Default root of built data: $MATCH_GRAPH_HOME, else the user's cache folder."""
    return Path(os.environ.get("MATCH_GRAPH_HOME") or platformdirs.user_cache_dir("match-graph"))


def hash_source(source: Mapping[str, Any]) -> str:
    """SHA-256 of a description of inputs, written as sorted JSON, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()


def write_built(built: Path, write: Callable[[Path], None]) -> None:
    """Writes a new built folder through ``write``, with a manifest, and moves it into place.

    Raises:
        CorpusError: The disk refuses.
    """
    try:
        with beside(built) as place:
            place.mkdir()
            write(place)
            for path in place.rglob(".*.tmp"):  # of a lost worker, whose task was repeated
                path.unlink(missing_ok=True)
            finish(place)
            write_manifest(place)
            if built.exists():
                built.replace(place.with_name("before"))  # deleted with the temporary folder
            place.replace(built)
    except OSError as error:
        raise cannot_write(built, error) from error


def write_build(
    built: Path, graph: BuiltGraph, skipped: pd.DataFrame, about: Mapping[str, Any]
) -> None:
    """Writes a built graph as a built folder.

    Args:
        built: Final path of the folder.
        graph: Graph in memory.
        skipped: Faulty documents that were left out: columns ``place`` and ``reason``.
        about: Further content of ``corpus.json``: name, tokenizer, source, notes and warnings.

    Raises:
        CorpusError: The disk refuses.
    """

    def write(folder: Path) -> None:
        writer = StoreWriter(folder)
        write_graph(writer, graph.data, graph.targets)
        (folder / "nodes").mkdir(exist_ok=True)
        for node_type, table in graph.tables.items():
            write_frame(folder / table_name(node_type), table)
        write_rest(writer, skipped, about)

    write_built(built, write)


def transform_graph(graph: BuiltGraph, transform: Callable[[HeteroData], HeteroData]) -> BuiltGraph:
    """Applies a pre_transform, which must keep nodes and splits; it is given edges in int64.

    Nodes of types that it adds are named by their indices.

    Raises:
        GraphError: It has changed a mask, although gold labels and training counts of the graph are
            those of the old split, or the number of nodes of a type with a table of names.
    """
    masks = {mask: graph.data[DOCUMENT][mask].clone() for mask in MASKS.values()}
    data = copy.copy(graph.data)
    for edge_type in data.edge_types:
        data[edge_type].edge_index = data[edge_type].edge_index.long()
    data = transform(data)
    for name, table in graph.tables.items():
        found = count_nodes(data, name) if name in data.node_types else len(table)
        if found != len(table):
            raise GraphError(
                f"The nodes of a built graph must be those of its tables of names, but "
                f"pre_transform left {found:,} of {len(table):,} of the type '{name}'; leave "
                f"nodes out where the documents are read."
            )
    documents = data[DOCUMENT] if DOCUMENT in data.node_types else {}
    kept = {name for name, mask in masks.items() if _is_equal(documents.get(name), mask)}
    if changed := [name for name in masks if name not in kept]:
        raise GraphError(
            f"The splits of a built graph must be those of its documents, whose gold labels and "
            f"counts of training it holds, but pre_transform changed {', '.join(changed)}; give "
            f"the splits where the documents are read."
        )
    added = {name: count_nodes(data, name) for name in data.node_types if name not in graph.tables}
    numbers = {name: pd.DataFrame({"id": range(n)}, dtype=str) for name, n in added.items()}
    return replace(graph, data=data, tables={**graph.tables, **numbers})


def _is_equal(value: object, mask: Tensor) -> bool:
    return isinstance(value, Tensor) and torch.equal(value, mask)


def write_rest(writer: StoreWriter, skipped: pd.DataFrame, about: Mapping[str, Any]) -> None:
    """Writes ``corpus.json`` and left-out documents; arguments as for `write_build`."""
    if len(skipped):
        write_frame(writer.folder / FAULTS, skipped)
    content = json.dumps({**about, "schema": writer.schema()}, indent=2)
    (writer.folder / CORPUS).write_text(content, encoding="utf-8")


def cannot_write(built: Path, error: OSError | ValueError) -> CorpusError:
    """Error for a disk that is full or read-only, or for an impossible name."""
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
    return CorpusError(
        f"A data set must be built whole, but {str(built)!r} could not be written ({reason}); "
        f"nothing of it is left. Make room on the disk, or choose another root (--root)."
    )


@contextmanager
def lock_build(built: Path) -> Iterator[None]:
    """Holds the lock beside the folder of a build.

    Raises:
        CorpusError: It cannot be written.
    """
    try:
        built.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(f"{built}.lock")
        lock.acquire()
    except (OSError, ValueError) as error:  # a NUL in --root too
        raise cannot_write(built, error) from error
    try:
        yield
    finally:
        lock.release()


def is_built(built: Path) -> bool:
    """True if a folder holds a complete build.

    Needs no lock, because a build is moved into place when it is complete.
    """
    return all(is_there(built / name) for name in (MANIFEST, CORPUS))


def check_all(built: Path) -> int:
    """Verifies every file that a build's manifest lists; returns their number.

    Raises:
        CorpusError: One is damaged or missing.
    """
    with check_file(built, CORPUS):
        names = sorted(read_manifest(built))
    for name in names:
        damage = find_damage(built, name, whole=True)
        if damage:
            raise damaged_build(built / name, damage)
    return len(names)


def hash_options(paths: Mapping[str, str | None], hashes: Mapping[str, str]) -> dict[str, Any]:
    """SHA-256 of the file that each path option names; None where it names none.

    Args:
        paths: Path by option; None where it is not given.
        hashes: SHA-256 by resolved path.
    """
    return {key: path and hashes[str(resolve_path(path))] for key, path in paths.items()}


def check_tokenizer(tokenizer: Tokenizer, dataset: Any) -> None:
    """Checks that a corpus of a class of one's own is tokenized as its new documents will be.

    Raises:
        CorpusError: It is not.
    """
    if tokenizer != dataset.tokenizer:
        raise CorpusError(
            f"The documents of '{dataset.name}' must be tokenized as new ones will be, by "
            f"'{dataset.tokenizer}', but its corpus is by '{tokenizer}'; let "
            f"{type(dataset).__name__}.tokenizer return '{tokenizer}'."
        )


def load_about(built: Path) -> dict[str, Any]:
    """Reads ``corpus.json`` of a built data set: its name, notes, warnings and source."""
    with check_file(built, CORPUS) as path:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(about["notes"], dict) or not isinstance(about["warnings"], list):
            raise TypeError
    return about


def load_faults(built: Path) -> pd.DataFrame:
    """Documents that ``faults="skip"`` left out: columns ``place`` and ``reason``."""
    if not (built / FAULTS).exists():
        return pd.DataFrame({"place": [], "reason": []}, dtype=str)
    with check_file(built, FAULTS) as path:
        return pd.read_parquet(path)
