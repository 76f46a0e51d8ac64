"""Features of a run's nodes: joined to its data set, kept in its folder, found for documents."""

import shutil
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from match_graph.config import Config, FeatureSource
from match_graph.datasets import CorpusDataset, default_root
from match_graph.errors import CheckpointError, CorpusError
from match_graph.features import (
    VECTORS,
    TextEmbedder,
    TextVectors,
    choose_columns,
    identify_features,
    join_texts,
    make_features,
    open_embedder,
    open_features,
    read_text_vectors,
)
from match_graph.graph import NodeFeatures
from match_graph.io.files import DamagedError, has_file, link_file, reading, write_beside
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import DOCUMENT_NAMES, FEATURES, RECORD, TOKENS
from match_graph.runs.readers import read_record
from match_graph.runs.vocabulary import (
    WRITE_AGAIN,
    ReadDocument,
    list_times,
    read_rows,
    write_names,
)
from match_graph.typing import DOCUMENT, LABEL

#: Columns of a new document from which features of its text can be made.
_TEXT, _ID = "text", "id"


def join_features(
    dataset: CorpusDataset,
    sources: Mapping[str, FeatureSource],
    root: str | Path | None,
    reporter: Reporter,
) -> None:
    """Joins the features of ``data.features`` to a data set, in place of its own.

    Raises:
        CorpusError: As `open_features`.
    """
    for node_type, source in sources.items():
        found = open_features(source, dataset, node_type, root, reporter)
        dataset.join_features(node_type, found.x, found.digest, found.path)


def keep_features(
    dataset: CorpusDataset, features: Mapping[str, Any], root: str | Path | None, reporter: Reporter
) -> dict[str, FeatureSource]:
    """Writes features given in memory to files below the root; their sources by node type.

    Raises:
        CorpusError: As `make_features`, or they are not given by node type.
    """
    if not isinstance(features, Mapping):
        kind = type(features).__name__
        raise CorpusError(
            f"Features must be given by node type, found {kind}; write "
            f"features={{'document': ...}}."
        )
    kept = (
        (node_type, make_features(values, dataset, node_type, root, reporter))
        for node_type, values in features.items()
    )
    return {node_type: FeatureSource(path=str(found.path)) for node_type, found in kept}


def write_features(folder: Path, dataset: CorpusDataset) -> None:
    """Writes ``features/`` of a run folder, leaving what is there.

    One ``TYPE.npy`` for each node type that has features, in the order of the graph, a hard link
    where the disk has them. For documents also the model that makes features of new texts, if there
    is one, and their ids.
    """
    graph = dataset.graph
    for node_type in graph.node_types:
        path, x = folder / FEATURES / f"{node_type}.npy", graph.node_tensor(node_type, "x")
        if x is None or path.is_file():
            continue
        source = dataset.feature_files.get(node_type)
        if source is None:
            write_beside(path, partial(np.save, arr=x.numpy(), allow_pickle=False))
            continue
        vectors = source.with_name(VECTORS)
        if node_type == DOCUMENT and vectors.is_file():
            write_beside(path.with_suffix(vectors.suffix), partial(link_file, vectors))
        write_beside(path, partial(link_file, source))
    if graph.node_tensor(DOCUMENT, "x") is not None:
        write_names(folder / TOKENS, {DOCUMENT: pd.DataFrame({"id": dataset.names(DOCUMENT)})})


@dataclass(frozen=True)
class KnownFeatures:
    """Features that a run folder keeps; those of a document are found by its id, never by row.

    Args:
        folder: Run folder.
        x: Features by node type, [num_nodes, F], memory-mapped.
        source: Source of the documents' features; None where the data set has them itself.
    """

    folder: Path
    x: Mapping[str, Tensor]
    source: FeatureSource | None

    @cached_property
    def nodes(self) -> NodeFeatures:
        """Width of documents' features, and rows of the other types, as models take them."""
        rows = {name: x for name, x in self.x.items() if name != DOCUMENT}
        return NodeFeatures(self.width, rows)

    @property
    def width(self) -> int:
        """Number of features F of a document; 0 without."""
        return self.x[DOCUMENT].size(1) if DOCUMENT in self.x else 0

    @property
    def has_time(self) -> bool:
        """True if features of a document depend on its time."""
        return self.source is not None and bool(self.source.neighbors and self.source.earlier)

    @cached_property
    def _rows(self) -> dict[str, int]:
        """Row of each document that the run knows, by id."""
        rows = read_rows(self.folder / DOCUMENT_NAMES)
        if len(rows) != len(self.x[DOCUMENT]):
            raise CheckpointError(
                f"A run must name the documents whose features it keeps, but '{self.folder}' has "
                f"{len(rows):,} names and {len(self.x[DOCUMENT]):,} rows; {WRITE_AGAIN}."
            )
        return rows

    @cached_property
    def _columns(self) -> list[str]:
        """Columns of a document that its features are made of; none where they are given."""
        if self.source is None or self.source.path is not None:
            return []
        return choose_columns(DOCUMENT, self.source.column)

    @cached_property
    def _vectors(self) -> TextVectors | None:
        """Model that makes features of new texts; None where it needs columns they do not have.

        A language model's vectors are kept below the default root, or where nothing can be written
        there, in a temporary folder that is removed with this object.
        """
        if self.source is None or not self._columns or not {*self._columns} <= {_TEXT, _ID}:
            return None
        embedder = None
        if self.source.model is not None:
            embedder = open_embedder(self.source, self._find_root())
            self._check_unchanged(self.source, embedder)
            if not self.source.neighbors:
                return TextVectors(embedder)
        path = (self.folder / FEATURES / DOCUMENT).with_suffix(Path(VECTORS).suffix)
        vectors = read_text_vectors(path, embedder)
        if vectors.width != self.width:
            raise CheckpointError(
                f"A run must keep what its features were made with, but '{path}' makes "
                f"{vectors.width} features and the run has {self.width}; {WRITE_AGAIN}."
            )
        return vectors

    def _check_unchanged(self, source: FeatureSource, embedder: TextEmbedder) -> None:
        """Checks that the language model is the run's; a shared folder has no record of it."""
        if not has_file(self.folder / RECORD):
            return
        record = read_record(self.folder)
        there = record.get("feature_checksums", {}).get(DOCUMENT)
        here = identify_features(source, DOCUMENT, record["data_checksum"], embedder)
        if there is not None and there != here:
            raise CheckpointError(
                f"A run must predict with the language model that made its features, but "
                f"'{source.model}' has another content than when '{self.folder}' was trained; "
                f"restore it, or give 'x' with every document."
            )

    def _find_root(self) -> Path:
        root = default_root()
        if not _can_write(root):
            root = Path(mkdtemp(prefix="match-graph-"))
            weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        return root

    def check(self, document: ReadDocument, place: str) -> None:
        """Checks that the features of a document can be found.

        Args:
            document: Document.
            place: Place of the document, for the message.

        Raises:
            CorpusError: It has no vector, and its id is none that the run knows.
            ConfigError: The language model cannot be used.
            CheckpointError: It has changed since the training.
        """
        if not self.width or document.x is not None or self._vectors is not None:
            return
        if document.id not in self._rows:
            found = "no id" if document.id is None else f"the unknown id '{document.id}'"
            raise CorpusError(
                f"Each document must have the features that the run was trained with, but {place} "
                f"has {found} and no vector; give it 'x', a list of {self.width} numbers."
            )

    def find(self, documents: Sequence[ReadDocument]) -> Tensor | None:
        """Features of documents, [B, F], float32: given, of their text, or by id; None without.

        Raises:
            CorpusError: As `check`.
        """
        if not self.width:
            return None
        for number, document in enumerate(documents, start=1):
            self.check(document, f"document {number}")
        x = torch.empty(len(documents), self.width)
        rest = [row for row, document in enumerate(documents) if document.x is None]
        for row, document in enumerate(documents):
            if document.x is not None:
                x[row] = torch.as_tensor(document.x, dtype=torch.float32)
        if rest and self._vectors is not None:
            texts = join_texts(
                {
                    _TEXT: [documents[row].text for row in rest],
                    _ID: [documents[row].id or "" for row in rest],
                },
                self._columns,
            )
            time = list_times([documents[row] for row in rest], torch.iinfo(torch.int64).max)
            x[rest] = torch.from_numpy(self._vectors.embed(texts, time)).float()
        elif rest:
            rows = [self._rows[documents[row].id or ""] for row in rest]
            x[rest] = self.x[DOCUMENT][torch.tensor(rows)].float()
        return x


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def read_features(folder: Path, config: Config, types: Sequence[str]) -> KnownFeatures:
    """Reads ``features/`` of a run folder.

    Args:
        folder: Run folder.
        config: Configuration of the run.
        types: Node types that tokens have.

    Raises:
        CheckpointError: A file is broken or missing.
    """
    must, found = "A run keeps the features of its nodes", f"'{folder / FEATURES}' cannot be used"
    x = {}
    for node_type in (DOCUMENT, LABEL, *types):
        path = folder / FEATURES / f"{node_type}.npy"
        if not has_file(path):
            continue
        with reading(path, must, WRITE_AGAIN, found):
            values = np.lib.format.open_memmap(path, mode="c")
            if values.ndim != 2 or values.dtype not in (np.float16, np.float32):
                raise DamagedError(f"'{path.name}' is no matrix of float16 or float32")
            x[node_type] = torch.from_numpy(values)
    return KnownFeatures(folder, x, config.data.features.get(DOCUMENT))
