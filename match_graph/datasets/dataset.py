"""`Corpus` -> PyG `InMemoryDataset`: base of every data set class."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor
from torch_geometric.data import HeteroData, InMemoryDataset

from match_graph.config import StrictModel, parse_settings
from match_graph.corpus import Corpus, Faults, TableLayout, word_pattern
from match_graph.corpus_faults import check_field_names
from match_graph.datasets.assemble import assemble
from match_graph.datasets.built import (
    check_all,
    check_tokenizer,
    default_root,
    hash_options,
    hash_source,
    is_built,
    load_about,
    load_faults,
    lock_build,
    transform_graph,
    write_build,
)
from match_graph.datasets.direction import describe_reversal, measure_closure
from match_graph.datasets.json_documents import list_json
from match_graph.datasets.options import Card
from match_graph.datasets.partitions import PartitionReader
from match_graph.errors import CorpusError, suggest
from match_graph.graph import Hierarchy, MappedGraph, Targets, TokenSpace, build_graph
from match_graph.graph.store import CORPUS
from match_graph.graph.store_writer import table_name
from match_graph.graph.view import GraphView, view_graph
from match_graph.io.build_folder import check_file
from match_graph.io.cluster import Cluster
from match_graph.io.manifest import MANIFEST
from match_graph.io.source import Snapshot, Track, resolve_path
from match_graph.own_code import hash_code
from match_graph.typing import DOCUMENT, LABEL, MASKS, Tokenizer

FORMAT_VERSION = 4


class CorpusDataset(InMemoryDataset):
    """A corpus as one `HeteroData`, built once per content and options, with targets and names.

    A subclass defines `read`, and a `Config` if it has options. Options that are paths of files are
    listed in `path_options`, so that a build depends on the files' content; a subclass that reads
    other files defines PyG's ``raw_file_names`` (relative to ``raw_dir``) and perhaps ``download``.
    A complete one, which is opened by ``file.py:Papers`` or ``module:Papers``, as an encoder is::

        class Papers(CorpusDataset):
            class Config(StrictModel):
                path: str

            path_options = ("path",)

            def read(self):
                what = "The table must hold papers"
                builder = CorpusBuilder("papers", ["author"], what, self.faults_mode)
                for row in builder.documents(pd.read_csv(self.config.path).itertuples()):
                    authors, place = {"author": row.authors.split("; ")}, f"row {row.Index}"
                    labels = row.keywords.split("; ")
                    builder.add(str(row.id), row.split, row.title, authors, labels, place)
                return builder.build(hierarchy=[("graphs", "mathematics", "by hand")])

    The folder of a build is named by the SHA-256 of inputs and options, and of the source files of
    a user's own class and its bases (a notebook has none), so that changed inputs are built anew. A
    build is written atomically under a lock, so that two processes may build at once, and opened
    without a lock or any write. Inputs that change between hashing and the end of reading are
    refused, so that the key of a build is that of its inputs.

    Differs from PyG: `_process` and `load` are overridden, because both unpickle.

    Args:
        root: Root folder with ``raw`` and ``built``; None takes `default_root`.
        transform: PyG transform of the `HeteroData` at every access.
        pre_transform: PyG transform before the `HeteroData` is saved; its repr is part of the key.
        force_reload: Whether to build again where built files exist.
        track: Progress tracker of reading, such as ``Reporter().track``; None shows none.
        faults: Policy for faulty documents: "refuse" lists all faults and builds nothing; "skip"
            leaves them out, warns in `warnings` and lists them in `faults`. Files that cannot be
            read to their end and faults of the hierarchy are refused in any case.
        cluster: Dask cluster that builds; None builds the same bytes in this process.

    Raises:
        CorpusError: The inputs break their format, or the built files cannot be read.
    """

    class Config(StrictModel):
        """Options of the data set, with their defaults, bounds and meaning."""

    config: StrictModel
    card: ClassVar[Card | None] = None
    #: Glob of the raw files in their default folder, for `has_raw`.
    raw_pattern: ClassVar[str] = ""
    #: Published counts by the row of `describe_graph`, for comparison.
    published: ClassVar[Mapping[str, float]] = {}
    #: Options that are paths of files to read; a run stores them as absolute paths.
    path_options: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        root: str | Path | None = None,
        transform: Callable[[HeteroData], HeteroData] | None = None,
        pre_transform: Callable[[HeteroData], HeteroData] | None = None,
        force_reload: bool = False,
        track: Track | None = None,
        faults: Faults = "refuse",
        cluster: Cluster | None = None,
        **options: Any,
    ) -> None:
        what = f"The options of {type(self).__name__} must be valid"
        self.config = parse_settings(self.Config, options, what)
        self.track, self.faults_mode, self.cluster = track, faults, cluster
        self._expanded: HeteroData | None = None
        #: SHA-256 and files of features from outside the build, by node type.
        self.feature_digests: dict[str, str] = {}
        self.feature_files: dict[str, Path] = {}
        path = str(default_root() if root is None else root)
        super().__init__(path, transform, pre_transform, force_reload=force_reload, log=False)
        self.track = self.cluster = None  # so that a data set can be pickled
        self._store = MappedGraph(self.built)

    @property
    def _data(self) -> HeteroData:
        """The graph in memory, for PyG: expanded at the first access, and cached."""
        if self._expanded is None:
            self._expanded = self._store.to_hetero()
        return self._expanded

    @_data.setter
    def _data(self, data: HeteroData | None) -> None:
        self._expanded = data

    @property
    def graph(self) -> GraphView:
        """Memory-mapped view of the graph, without the types that the ``transform`` hides.

        With any other transform it is a view of ``self[0]``, in memory.
        """
        hide = getattr(self.transform, "hide", None)
        if self.transform is None or hide is not None:
            return self._store if hide is None else hide(self._store)
        return view_graph(self[0])

    @property
    def name(self) -> str:
        """Folder name of the built data: the card's, else the class's in lower case."""
        return type(self).__name__.lower() if self.card is None else self.card.name

    @property
    def tokenizer(self) -> Tokenizer:
        """Tokenization; a run stores it, to tokenize new documents alike."""
        return getattr(self.config, "tokenizer", "regex")

    @property
    def layout(self) -> TableLayout | None:
        """Columns of a user's own table, which a run stores likewise; None for other data."""
        return None

    @classmethod
    def has_raw(cls, root: Path) -> bool:
        """True if the data set's raw files are in its default folder below ``root``."""
        if cls.card is None or not cls.raw_pattern:
            return False
        return any((root / "raw" / cls.card.name).glob(cls.raw_pattern))

    def reader(self) -> PartitionReader:
        """Reader of the raw files in partitions."""
        raise NotImplementedError

    def read(self) -> Corpus:
        """Reads the raw files into memory; a subclass overrides this or `reader`."""
        return self.reader().read_corpus(self.track)

    @property
    def options(self) -> dict[str, Any]:
        """Options on which the corpus depends besides the raw files; JSON values."""
        options = self.config.model_dump(mode="json", exclude=set(self.path_options))
        pattern = {"word_pattern": word_pattern(self.tokenizer)}
        return options | (pattern if "tokenizer" in options else {})

    @property
    def raw_dir(self) -> str:
        return str(Path(self.root) / "raw" / self.name)

    @property
    def raw_file_names(self) -> list[str]:
        paths = (getattr(self.config, name) for name in self.path_options)
        return [str(resolve_path(path)) for path in paths if path is not None]

    @property
    def processed_dir(self) -> str:
        return str(Path(self.root) / "built" / f"{self.name}-{self.checksum[:16]}")

    @property
    def processed_file_names(self) -> list[str]:
        return [MANIFEST, CORPUS]

    @property
    def built(self) -> Path:
        """Folder of the built files."""
        return Path(self.processed_dir)

    @cached_property
    def source(self) -> dict[str, Any]:
        """Identity of a build: class, options, versions, and the SHA-256 of every raw file."""
        code = hash_code(type(self), CorpusDataset)
        source = {
            "format": FORMAT_VERSION,
            "class": type(self).__qualname__,
            "options": self.options | ({"faults": "skip"} if self.faults_mode == "skip" else {}),
            "pre_transform": repr(self.pre_transform),
            "files": self._snapshot.name_hashes(),
        }
        is_own = type(self).raw_file_names is CorpusDataset.raw_file_names
        if is_own and len(self.path_options) > 1:  # which option names which file
            paths = {name: getattr(self.config, name) for name in self.path_options}
            source["paths"] = hash_options(paths, self._snapshot.hashes)
        return source | ({"code": code} if code else {})

    @cached_property
    def _snapshot(self) -> Snapshot:
        """State of the raw files by which the build is named."""
        return Snapshot(self.raw_paths)

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of inputs and options, as hexadecimal digits."""
        return hash_source(self.source)

    def _process(self) -> None:
        if is_built(self.built) and not self.force_reload:
            return
        with lock_build(self.built):
            if self.force_reload or not is_built(self.built):
                self.process()

    def process(self) -> None:
        """Reads the raw files, builds the graph, and writes both atomically."""
        source = self.source  # hashed before anything is read
        about = {"name": self.name, "tokenizer": self.tokenizer, "source": source}
        if self.layout is not None:
            about["layout"] = self.layout.model_dump(mode="json")

        def check() -> None:
            self._snapshot.check_unchanged(self.raw_paths)

        if type(self).read is CorpusDataset.read and self.pre_transform is None:
            reader = self.reader()
            if not check_field_names(reader.fields):  # else `read` lists all faults together
                assemble(self.built, reader, about, check, self.track, self.cluster)
                return
        corpus = self.read()
        check()
        check_tokenizer(corpus.tokenizer, self)
        graph = build_graph(corpus)
        if self.pre_transform is not None:
            graph = transform_graph(graph, self.pre_transform)
        about |= {"notes": graph.notes, "warnings": corpus.find_oddities()}
        write_build(self.built, graph, corpus.skipped, about)

    def join_features(self, node_type: str, x: Tensor, digest: str, path: Path) -> None:
        """Sets features from outside the build for the nodes of a type, instead of its own.

        Args:
            node_type: Node type.
            x: Features in the order of the nodes, [num_nodes, F].
            digest: SHA-256 of their source.
            path: The ``.npy`` file of ``x``.
        """
        self._store.put_tensor(x, group_name=node_type, attr_name="x", index=None)
        if self._expanded is not None:
            self._expanded[node_type].x = x
        self.feature_digests[node_type], self.feature_files[node_type] = digest, path

    def verify(self) -> int:
        """Verifies the checksum of every built file, also of large ones; returns their number.

        Raises:
            CorpusError: One is damaged.
        """
        return check_all(self.built)

    @cached_property
    def _about(self) -> dict[str, Any]:
        return load_about(self.built)

    @property
    def notes(self) -> dict[str, Any]:
        """Counts of items that reading and building dropped or contracted."""
        return dict(self._about["notes"])

    @property
    def warnings(self) -> list[str]:
        """Likely mistakes in the data, a sentence each."""
        counts = self._store.node_tensor(LABEL, "train_count")
        about = describe_reversal(self.hierarchy, self._parent_given_child, counts, self.names)
        return [*map(str, self._about["warnings"]), *about]

    @cached_property
    def faults(self) -> pd.DataFrame:
        """Faulty documents that were left out: columns ``place`` and ``reason``."""
        return load_faults(self.built)

    @cached_property
    def targets(self) -> Targets:
        """Gold labels of all splits; only loss and metrics may read them."""
        return self._store.targets()

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """Label hierarchy after contraction."""
        return Hierarchy.from_data(self.graph)

    @cached_property
    def _parent_given_child(self) -> Tensor:
        return self.hierarchy.parent_given_child(self.targets, self.documents(MASKS["train"]))

    @cached_property
    def closed_share(self) -> float:
        """P(parent | child) of training documents, mean over edges of their labels; 1 without."""
        count = self.targets.count(self.documents(MASKS["train"]))
        return measure_closure(self.hierarchy, self._parent_given_child, count)

    def token_space(self, min_count: int = 2, min_word_count: int = 2) -> TokenSpace:
        """Tokens that an encoder embeds; arguments as for `TokenSpace.from_data`."""
        return TokenSpace.from_data(self.graph, min_count, min_word_count)

    def table(self, node_type: str, columns: list[str] | None = None) -> pd.DataFrame:
        """Node table: ``id``, for labels ``name``, for documents ``split``, ``text``, ``time``."""
        with check_file(self.built, self._table_name(node_type)) as path:
            return pd.read_parquet(path, columns=columns)

    def iter_table(
        self, node_type: str, batch_size: int, with_text: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Yields `table` in batches, at least one, for tables larger than memory."""
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
        if node_type not in (known := sorted(self._store.node_types)):
            near = suggest(node_type, known)
            raise CorpusError(f"A node type must be one of {known}, found '{node_type}'; {near}.")
        return table_name(node_type)

    def names(self, node_type: str) -> pd.Series:
        """Ids of the nodes of a type, in the order of the graph."""
        return self.table(node_type, ["id"])["id"]

    def documents(self, mask: str) -> Tensor:
        """Indices of the documents of a split's mask, int64."""
        chosen = self._store.node_tensor(DOCUMENT, mask)
        if chosen is None:
            known = list(MASKS.values())
            raise CorpusError(f"A mask must be one of {known}, found '{mask}' of '{self.name}'.")
        return chosen.nonzero().view(-1)

    @property
    def num_labels(self) -> int:
        return self._store.num_nodes(LABEL)

    num_classes = num_labels  # PyG's word

    def as_json(self, documents: Sequence[int]) -> list[dict[str, Any]]:
        """Documents as JSON objects of the MATCH format.

        Args:
            documents: Document indices in the graph.

        Returns:
            For each document ``paper``, ``text``, ``time`` where it is known, the metadata fields
            as lists, and ``label``. Where no raw texts are kept and texts are split at white space,
            the words joined are the text.

        Raises:
            CorpusError: The data set keeps no raw texts, and words alone do not give them back.
        """
        return list_json(self, documents)
