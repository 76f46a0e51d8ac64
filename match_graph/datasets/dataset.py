"""`Corpus` -> PyG `InMemoryDataset`: what every data set class shares."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pandas as pd
import platformdirs
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from filelock import FileLock
from torch import Tensor
from torch_geometric.data import HeteroData, InMemoryDataset

from match_graph.config import StrictModel, parse_settings
from match_graph.datasets.corpus import Corpus
from match_graph.datasets.source import Track
from match_graph.datasets.text import Tokenizer
from match_graph.errors import CorpusError
from match_graph.typing import DOCUMENT, LABEL

if TYPE_CHECKING:
    from match_graph.graph import BuiltGraph, LabelDAG, Targets, TokenSpace

FORMAT_VERSION = 1


def default_root() -> Path:
    """Where built data go: $MATCH_GRAPH_HOME, else the user's cache folder."""
    return Path(os.environ.get("MATCH_GRAPH_HOME") or platformdirs.user_cache_dir("match-graph"))


class Card(NamedTuple):
    """What `match-graph datasets` says of a data set; more stands in its card.

    Args:
        name: Its card is ``datasets/NAME.md``.
        licence: Of the documents.
        size: Documents and bytes, as published.
        needs: What it is made from.
    """

    name: str
    licence: str
    size: str
    needs: str


class CorpusDataset(InMemoryDataset):
    """A corpus as one `HeteroData`, built once per content and options, with targets and names.

    A subclass gives `Options`, `read`, `options` and PyG's `raw_file_names`, `raw_dir` and
    `download`. The built files lie in a folder named by the SHA-256 of inputs and options: changed
    inputs build anew. They are built beside and renamed, under a lock, so that two processes can
    build at once.

    Differs from PyG: `_process` and `load` are overridden, because both unpickle.

    Args:
        name: Names the folder of built data.
        root: Holds ``raw`` and ``built``; None takes `default_root`.
        transform: Maps the `HeteroData` at every access.
        pre_transform: Maps the `HeteroData` once, before it is saved; its repr is part of the key.
        force_reload: Builds again even if the built files are there.
        track: Shows the progress of reading, such as ``Reporter().track``; None shows none.

    Raises:
        CorpusError: The inputs break their format, or the built files cannot be read.
    """

    class Options(StrictModel):
        """Arguments of the class that settings may give (``data.options``)."""

    card: ClassVar[Card | None] = None
    #: Published counts by the row of `describe_graph`, for a comparison.
    published: ClassVar[Mapping[str, float]] = {}
    #: Options that are paths; a run keeps them as absolute ones.
    path_options: ClassVar[tuple[str, ...]] = ()
    #: How a text becomes words; a run keeps it, so that new documents are read in the same way.
    tokenizer: Tokenizer = "regex"

    def __init__(
        self,
        name: str,
        root: str | Path | None = None,
        transform: Callable[[HeteroData], HeteroData] | None = None,
        pre_transform: Callable[[HeteroData], HeteroData] | None = None,
        force_reload: bool = False,
        track: Track | None = None,
    ) -> None:
        self.name, self.track = name, track
        path = str(default_root() if root is None else root)
        super().__init__(path, transform, pre_transform, force_reload=force_reload, log=False)
        self.track = None  # so that a data set can go to other processes
        content = self._load_built("data.pt", {DOCUMENT})
        self.data = HeteroData.from_dict(content)

    @classmethod
    def check_options(cls, given: Mapping[str, Any]) -> None:
        """Checks arguments of the class by type and range.

        Args:
            given: Names and values of all but PyG's arguments; those left out are not checked.

        Raises:
            ConfigError: With every argument that `Options` refuses or does not have.
        """
        parse_settings(cls.Options, dict(given), f"The options of {cls.__name__} must be valid")

    @classmethod
    def has_raw(cls, root: Path) -> bool:
        """Whether raw files lie where the data set looks for them without options."""
        return False

    def read(self) -> Corpus:
        """Reads the raw files."""
        raise NotImplementedError

    @property
    def options(self) -> dict[str, Any]:
        """What the corpus depends on besides the raw files; JSON values."""
        raise NotImplementedError

    @property
    def raw_dir(self) -> str:
        return str(Path(self.root) / "raw" / self.name)

    @property
    def processed_dir(self) -> str:
        return str(Path(self.root) / "built" / f"{self.name}-{self.checksum[:16]}")

    @property
    def processed_file_names(self) -> list[str]:
        return ["data.pt", "targets.pt", "corpus.json"]

    @cached_property
    def source(self) -> dict[str, Any]:
        """Class, options, versions, and the SHA-256 of every raw file."""
        return {
            "format": FORMAT_VERSION,
            "class": type(self).__qualname__,
            "options": self.options,
            "pre_transform": repr(self.pre_transform),
            "files": {Path(path).name: hash_file(Path(path)) for path in self.raw_paths},
        }

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of inputs and options, as hexadecimal digits."""
        text = json.dumps(self.source, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _process(self) -> None:
        built = Path(self.processed_dir)
        built.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{built}.lock"):
            for leftover in built.parent.glob(f"{built.name}.*.tmp"):  # of a killed build
                shutil.rmtree(leftover, ignore_errors=True)
            if self.force_reload or not all(Path(path).exists() for path in self.processed_paths):
                self.process()

    def process(self) -> None:
        """Reads the raw files, builds the graph, and writes both beside, then renames."""
        # The one import against the line datasets -> graph: a PyG data set builds its graph.
        from match_graph.graph import build_graph

        built = Path(self.processed_dir)
        beside = built.with_name(f"{built.name}.{os.getpid()}.tmp")
        shutil.rmtree(beside, ignore_errors=True)
        try:
            corpus = self.read()
            graph = build_graph(corpus)
            data = graph.data if self.pre_transform is None else self.pre_transform(graph.data)
            self._write_built(beside, data, graph)
            shutil.rmtree(built, ignore_errors=True)
            beside.rename(built)
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def _write_built(self, folder: Path, data: HeteroData, graph: "BuiltGraph") -> None:
        try:
            (folder / "names").mkdir(parents=True)
            contents = {"data.pt": data.to_dict(), "targets.pt": graph.targets.to_dict()}
            for name, content in contents.items():
                with (folder / name).open("wb") as file:  # so that a full disk is an OSError
                    torch.save(content, file)
            for node_type, table in graph.tables.items():
                table.to_parquet(folder / "names" / f"{node_type}.parquet", compression="zstd")
            notes = {"name": self.name, "source": self.source, "notes": graph.notes}
            (folder / "corpus.json").write_text(json.dumps(notes, indent=2), encoding="utf-8")
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise CorpusError(
                f"A data set must be built whole, but '{self.processed_dir}' could not be written "
                f"({reason}); nothing of it is left. Make room on the disk, or "
                f"choose another --root."
            ) from error

    def _load_built(self, file_name: str, keys: set[str]) -> dict[str, Any]:
        path = Path(self.processed_dir) / file_name
        with _explain_damage(path):
            content: dict[str, Any] = torch.load(path, weights_only=True, mmap=True)
            if not isinstance(content, dict) or not keys <= content.keys():
                raise TypeError
        return content

    @cached_property
    def notes(self) -> dict[str, Any]:
        """What reading and building dropped or contracted, as counts."""
        path = Path(self.processed_dir) / "corpus.json"
        with _explain_damage(path):
            notes: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["notes"]
        return notes

    @cached_property
    def targets(self) -> "Targets":
        """The gold labels of all splits; only loss and metrics may read them."""
        from match_graph.graph import Targets

        return Targets(**self._load_built("targets.pt", {"ptr", "index", "num_labels"}))

    @cached_property
    def label_dag(self) -> "LabelDAG":
        """The label hierarchy after contraction."""
        from match_graph.graph import LabelDAG

        return LabelDAG.from_data(self[0])

    def token_space(self, min_count: int = 2, min_word_count: int = 2) -> "TokenSpace":
        """The tokens that an encoder embeds; arguments as for `TokenSpace.from_data`."""
        from match_graph.graph import TokenSpace

        return TokenSpace.from_data(self[0], min_count, min_word_count)

    def table(self, node_type: str, columns: list[str] | None = None) -> pd.DataFrame:
        """One row per node: ``id``, for labels ``name``, for documents ``split`` and ``text``."""
        path = self._table_path(node_type)
        with _explain_damage(path):
            return pd.read_parquet(path, columns=columns)

    def iter_table(
        self, node_type: str, batch_size: int, with_text: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """The rows of `table` in batches, one at least, for what would not fit into memory."""
        path = self._table_path(node_type)
        with _explain_damage(path), pq.ParquetFile(path) as file:
            columns = [name for name in file.schema_arrow.names if with_text or name != "text"]
            if not file.metadata.num_rows:
                yield pa.RecordBatch.from_pylist([], file.schema_arrow)
            yield from file.iter_batches(batch_size, columns=columns)

    @property
    def keeps_texts(self) -> bool:
        """Whether documents have their raw texts."""
        path = self._table_path(DOCUMENT)
        with _explain_damage(path):
            return "text" in pq.read_schema(path).names

    def _table_path(self, node_type: str) -> Path:
        path = Path(self.processed_dir) / "names" / f"{node_type}.parquet"
        if not path.is_file():
            known = sorted(file.stem for file in path.parent.glob("*.parquet"))
            raise CorpusError(f"A node type must be one of {known}, found '{node_type}'.")
        return path

    def names(self, node_type: str) -> pd.Series:
        """The ids of the nodes of a type, in the order of the graph."""
        return self.table(node_type, ["id"])["id"]

    def documents(self, mask: str) -> Tensor:
        """Indices of the documents of a split's mask, int64."""
        return torch.as_tensor(self[0][DOCUMENT][mask]).nonzero().view(-1)

    @property
    def num_labels(self) -> int:
        return int(self[0][LABEL].num_nodes)


@contextmanager
def _explain_damage(path: Path) -> Iterator[None]:
    """What a damaged or crafted file of a build raises, as one sentence."""
    try:
        yield
    except Exception as error:
        raise CorpusError(
            f"Built data must be what match-graph wrote, but '{path}' cannot be read "
            f"({type(error).__name__}); delete its folder, or build with force_reload."
        ) from error


def hash_file(path: Path) -> str:
    """SHA-256 of a file's content, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
