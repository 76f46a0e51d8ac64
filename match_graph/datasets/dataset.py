"""`Corpus` -> PyG `InMemoryDataset`: what every data set class shares."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pandas as pd
import platformdirs
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from filelock import FileLock
from torch import Tensor
from torch_geometric.data import HeteroData, InMemoryDataset

from match_graph.config import StrictModel, parse_settings
from match_graph.corpus import WORD_PATTERN, Corpus, Faults, Tokenizer
from match_graph.datasets.built import (
    CORPUS,
    DATA,
    FAULTS,
    TARGETS,
    cannot_write,
    check_all,
    check_file,
    is_built,
    load_data,
    load_faults,
    load_targets,
    save_tensors,
    write_built,
)
from match_graph.errors import CorpusError
from match_graph.graph import Hierarchy, Targets, TokenSpace, build_graph
from match_graph.io.source import Snapshot, Track
from match_graph.typing import CONTAINS, DOCUMENT, LABEL, EdgeType

FORMAT_VERSION = 2


def default_root() -> Path:
    """Default root of built data: $MATCH_GRAPH_HOME, else the user's cache folder."""
    return Path(os.environ.get("MATCH_GRAPH_HOME") or platformdirs.user_cache_dir("match-graph"))


class Card(NamedTuple):
    """Summary of a data set for `match-graph datasets`; more stands in its card.

    Args:
        name: Registered name; its card is ``datasets/NAME.md``.
        licence: Licence of the documents.
        size: Size as published: documents and bytes.
        needs: Requirements for building: files, programs or a download.
    """

    name: str
    licence: str
    size: str
    needs: str


class CorpusDataset(InMemoryDataset):
    """A corpus as one `HeteroData`, built once per content and options, with targets and names.

    A subclass gives `Config`, `name` (or a `card` that has it), `read`, and PyG's `raw_file_names`,
    `raw_dir` and `download`. The built files lie in a folder named by the SHA-256 of inputs and
    options: changed inputs build anew. They are built beside and renamed, under a lock, so that two
    processes can build at once; what is built is opened without a lock and without writing
    anything. Inputs that change between hashing and the end of reading are refused, so that no
    build has another's key.

    Differs from PyG: `_process` and `load` are overridden, because both unpickle.

    Args:
        root: Root folder with ``raw`` and ``built``; None takes `default_root`.
        transform: PyG transform of the `HeteroData` at every access.
        pre_transform: PyG transform before the `HeteroData` is saved; its repr is part of the key.
        force_reload: Whether to build again where built files exist.
        track: Progress tracker of reading, such as ``Reporter().track``; None shows none.
        faults: Policy for faulty documents: "refuse" lists all faults and builds nothing; "skip"
            leaves them out, says so in `warnings` and lists them in `faults`. Files that cannot be
            read to their end and faults of the hierarchy are refused in any case.

    Raises:
        CorpusError: The inputs break their format, or the built files cannot be read.
    """

    class Config(StrictModel):
        """Options of the data set, with their defaults, bounds and meaning."""

    config: StrictModel
    card: ClassVar[Card | None] = None
    #: Published counts by the row of `describe_graph`, for a comparison.
    published: ClassVar[Mapping[str, float]] = {}
    #: Options that are paths; a run keeps them as absolute ones.
    path_options: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        root: str | Path | None = None,
        transform: Callable[[HeteroData], HeteroData] | None = None,
        pre_transform: Callable[[HeteroData], HeteroData] | None = None,
        force_reload: bool = False,
        track: Track | None = None,
        faults: Faults = "refuse",
        **options: Any,
    ) -> None:
        what = f"The options of {type(self).__name__} must be valid"
        self.config = parse_settings(self.Config, options, what)
        self.track, self.faults_mode = track, faults
        path = str(default_root() if root is None else root)
        super().__init__(path, transform, pre_transform, force_reload=force_reload, log=False)
        self.track = None  # so that a data set can go to other processes
        self.data = load_data(self.built)

    @property
    def name(self) -> str:
        """Folder name of the built data."""
        if self.card is None:
            raise NotImplementedError
        return self.card.name

    @property
    def tokenizer(self) -> Tokenizer:
        """How a text becomes words; a run keeps it, to read new documents in the same way."""
        return getattr(self.config, "tokenizer", "regex")

    @classmethod
    def has_raw(cls, root: Path) -> bool:
        """Whether raw files lie where the data set looks for them without options."""
        return False

    def read(self) -> Corpus:
        """Reads the raw files."""
        raise NotImplementedError

    @property
    def options(self) -> dict[str, Any]:
        """Options that the corpus depends on besides the raw files; JSON values."""
        options = self.config.model_dump(mode="json", exclude=set(self.path_options))
        return options | ({"word_pattern": WORD_PATTERN} if "tokenizer" in options else {})

    @property
    def raw_dir(self) -> str:
        return str(Path(self.root) / "raw" / self.name)

    @property
    def processed_dir(self) -> str:
        return str(Path(self.root) / "built" / f"{self.name}-{self.checksum[:16]}")

    @property
    def processed_file_names(self) -> list[str]:
        return [DATA, TARGETS, CORPUS]

    @property
    def built(self) -> Path:
        """Folder of the built files."""
        return Path(self.processed_dir)

    @cached_property
    def source(self) -> dict[str, Any]:
        """Identity of a build: class, options, versions, and the SHA-256 of every raw file."""
        return {
            "format": FORMAT_VERSION,
            "class": type(self).__qualname__,
            "options": self.options | ({"faults": "skip"} if self.faults_mode == "skip" else {}),
            "pre_transform": repr(self.pre_transform),
            "files": self._snapshot.name_hashes(),
        }

    @cached_property
    def _snapshot(self) -> Snapshot:
        """Raw files as they were when the build was named by them."""
        return Snapshot(self.raw_paths)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of inputs and options, as hexadecimal digits."""
        text = json.dumps(self.source, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _process(self) -> None:
        built = self.built
        if is_built(built) and not self.force_reload:
            return
        try:
            built.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(f"{built}.lock")
            lock.acquire()
        except (OSError, ValueError) as error:  # a NUL in --root too
            raise cannot_write(built, error) from error
        try:
            if self.force_reload or not is_built(built):
                self.process()
        finally:
            lock.release()

    def process(self) -> None:
        """Reads the raw files, builds the graph, and writes both atomically."""
        source = self.source  # hashed before anything is read
        corpus = self.read()
        self._snapshot.check_unchanged(self.raw_paths)
        graph = build_graph(corpus)
        data = graph.data if self.pre_transform is None else self.pre_transform(graph.data)
        about = {"name": self.name, "source": source, "notes": graph.notes}

        def write(folder: Path) -> None:
            save_tensors(folder / DATA, data.to_dict())
            save_tensors(folder / TARGETS, graph.targets.to_dict())
            (folder / "names").mkdir()
            for node_type, table in graph.tables.items():
                table.to_parquet(folder / "names" / f"{node_type}.parquet", compression="zstd")
            if len(corpus.skipped):
                corpus.skipped.to_parquet(folder / FAULTS, compression="zstd")
            text = json.dumps({**about, "warnings": corpus.find_oddities()}, indent=2)
            (folder / CORPUS).write_text(text, encoding="utf-8")

        write_built(self.built, write)

    def verify(self) -> int:
        """Compares every built file with its checksum, large ones too; returns their number.

        Raises:
            CorpusError: One is damaged.
        """
        return check_all(self.built)

    @cached_property
    def _about(self) -> dict[str, Any]:
        with check_file(self.built, CORPUS) as path:
            about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(about["notes"], dict) or not isinstance(about["warnings"], list):
                raise TypeError
        return about

    @property
    def notes(self) -> dict[str, Any]:
        """Counts of what reading and building dropped or contracted."""
        notes: dict[str, Any] = self._about["notes"]
        return notes

    @property
    def warnings(self) -> list[str]:
        """Likely mistakes in the data, a sentence each."""
        return [str(line) for line in self._about["warnings"]]

    @cached_property
    def faults(self) -> pd.DataFrame:
        """Faulty documents that were left out: columns ``place`` and ``reason``."""
        return load_faults(self.built)

    @cached_property
    def targets(self) -> Targets:
        """Gold labels of all splits; only loss and metrics may read them."""
        num_documents = int(self._data[DOCUMENT].num_nodes)
        return Targets(**load_targets(self.built, num_documents, int(self._data[LABEL].num_nodes)))

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """Label hierarchy after contraction."""
        return Hierarchy.from_data(self[0])

    def token_space(self, min_count: int = 2, min_word_count: int = 2) -> TokenSpace:
        """Tokens that an encoder embeds; arguments as for `TokenSpace.from_data`."""
        return TokenSpace.from_data(self[0], min_count, min_word_count)

    def table(self, node_type: str, columns: list[str] | None = None) -> pd.DataFrame:
        """Node table: ``id``, for labels ``name``, for documents ``split`` and ``text``."""
        with check_file(self.built, self._table_name(node_type)) as path:
            return pd.read_parquet(path, columns=columns)

    def iter_table(
        self, node_type: str, batch_size: int, with_text: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Rows of `table` in batches, at least one, for tables larger than memory."""
        name = self._table_name(node_type)
        with check_file(self.built, name) as path, pq.ParquetFile(path) as file:
            columns = [name for name in file.schema_arrow.names if with_text or name != "text"]
            if not file.metadata.num_rows:
                yield pa.RecordBatch.from_pylist([], file.schema_arrow)
            yield from file.iter_batches(batch_size, columns=columns)

    @property
    def keeps_texts(self) -> bool:
        """Whether the data set keeps raw texts."""
        with check_file(self.built, self._table_name(DOCUMENT)) as path:
            return "text" in pq.read_schema(path).names

    def _table_name(self, node_type: str) -> str:
        if node_type not in self._data.node_types:
            known = sorted(self._data.node_types)
            raise CorpusError(f"A node type must be one of {known}, found '{node_type}'.")
        return f"names/{node_type}.parquet"

    def names(self, node_type: str) -> pd.Series:
        """Ids of the nodes of a type, in the order of the graph."""
        return self.table(node_type, ["id"])["id"]

    def documents(self, mask: str) -> Tensor:
        """Indices of the documents of a split's mask, int64."""
        return torch.as_tensor(self[0][DOCUMENT][mask]).nonzero().view(-1)

    @property
    def num_labels(self) -> int:
        return int(self[0][LABEL].num_nodes)

    def as_json(self, documents: Sequence[int]) -> list[dict[str, Any]]:
        """Documents as JSON objects of the MATCH format.

        Args:
            documents: Document indices in the graph.

        Returns:
            For each document ``paper``, ``text``, the metadata fields as lists, and ``label``.
            Where no raw texts are kept and texts are split at white space, the words joined are
            the text.

        Raises:
            CorpusError: The data set keeps no raw texts, and words alone do not give them back.
        """
        table, data = self.table(DOCUMENT), self[0]
        if "text" not in table and self.tokenizer != "whitespace":
            raise CorpusError(
                f"Documents can be shown where raw texts are kept, but '{self.name}' has none; "
                f"build a smaller one."
            )
        ids = table["id"].iloc[[*documents]].astype(str)
        if "text" in table:
            texts = table["text"].iloc[[*documents]].astype(str).tolist()
        else:
            texts = [" ".join(words) for words in self._list_names(CONTAINS, documents)]
        objects: list[dict[str, Any]] = [
            {"paper": name, "text": text} for name, text in zip(ids, texts, strict=True)
        ]
        for _, relation, field in data.edge_types:
            if relation != "has":
                continue
            values = self._list_names((DOCUMENT, relation, field), documents)
            for content, named in zip(objects, values, strict=True):
                content[field] = named
        labels = self.names(LABEL)
        ptr, index = self.targets.select(torch.tensor([*documents], dtype=torch.int64))
        for content, gold in zip(objects, index.split(ptr.diff().tolist()), strict=True):
            content["label"] = [str(labels.iloc[label]) for label in gold.tolist()]
        return objects

    def _list_names(self, edge_type: EdgeType, documents: Sequence[int]) -> list[list[str]]:
        """Names of each document's neighbours, in the document's order."""
        names = self.names(edge_type[2])
        row, col = self[0][edge_type].edge_index
        first = torch.tensor([*documents], dtype=torch.int32)
        start, end = torch.searchsorted(row, torch.stack([first, first + 1])).tolist()
        return [
            names.iloc[col[begin:stop].numpy()].astype(str).tolist()
            for begin, stop in zip(start, end, strict=True)
        ]
