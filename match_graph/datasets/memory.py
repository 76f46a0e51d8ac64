"""A `Corpus` in memory as a data set, and a built folder as one."""

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow as pa

from match_graph.corpus import Array, Corpus, TableLayout
from match_graph.corpus_faults import ENDS
from match_graph.datasets.built import hash_source, is_built
from match_graph.datasets.dataset import FORMAT_VERSION, CorpusDataset
from match_graph.errors import ConfigError, CorpusError
from match_graph.graph.store import CORPUS
from match_graph.io.build_folder import check_file
from match_graph.io.names import check_file_name
from match_graph.io.source import resolve_path
from match_graph.typing import DOCUMENT, Tokenizer


class CorpusInMemory(CorpusDataset):
    """A corpus in memory, built into a folder that is named by the hash of its content.

    Provenance is no content: warnings and notes are those of the first build with this content.

    Args:
        corpus: Tables of the corpus; they are released after the build.
        **options: Arguments of `CorpusDataset`.

    Raises:
        CorpusError: Its name is no valid name of a folder, or a string is no Unicode text.
    """

    def __init__(self, corpus: Corpus, /, **options: Any) -> None:
        self._name, self._tokenizer, self._layout = corpus.name, corpus.tokenizer, corpus.layout
        try:
            check_file_name(corpus.name)
        except ValueError as error:
            raise CorpusError(f"The name of a corpus {error}, found {corpus.name!r}.") from None
        self._content = hash_corpus(corpus)
        self._corpus: Corpus | None = corpus
        super().__init__(**options)
        self._corpus = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def layout(self) -> TableLayout | None:
        return self._layout

    @property
    def options(self) -> dict[str, Any]:
        layout = {} if self.layout is None else {"layout": self.layout.model_dump(mode="json")}
        return {"content": self._content, "tokenizer": self._tokenizer, **layout}

    def read(self) -> Corpus:
        assert self._corpus is not None, "it is read once, while it is built"
        return self._corpus


class BuiltFolder(CorpusDataset):
    """A folder that match-graph built, opened without its source.

    Args:
        folder: Built folder, such as ``dataset.built``. Nothing is written into it.
        **options: PyG's ``transform``, and ``root``, which is not used.

    Raises:
        CorpusError: It is no built folder or of another format, or an argument needs the source.
        ConfigError: A setting would result in another graph.
    """

    def __init__(self, folder: str | Path, /, **options: Any) -> None:
        self.folder = resolve_path(folder)
        if not is_built(self.folder):
            raise CorpusError(
                f"A built folder must hold what match-graph builds, but '{self.folder}' does not; "
                f"check the path."
            )
        if needed := [key for key in ("pre_transform", "force_reload") if options.get(key)]:
            raise CorpusError(
                f"A built folder is opened as it is, but {needed[0]} would build "
                f"'{self.folder}' again; name its source instead."
            )
        _ = self._origin  # refuses another format first
        other = {
            "fields": options.pop("fields", None) is not None,
            "tokenizer": options.pop("tokenizer", None) not in (None, self.tokenizer),
            "hierarchy": options.pop("hierarchy", None) == "ignore",
        }
        own = {"root", "transform", "pre_transform", "force_reload", "track", "faults", "cluster"}
        other |= {f"options.{key}": True for key in options if key not in own}
        if made := [key for key, is_other in other.items() if is_other]:
            raise ConfigError(
                f"A built folder, as of documents in memory, is opened as it was made, but "
                f"data.{made[0]} would make another graph; leave it out, and give {made[0]} where "
                f"the corpus is made, or name the source."
            )
        super().__init__(**options)

    @property
    def processed_dir(self) -> str:
        return str(self.folder)

    @property
    def name(self) -> str:
        return str(self._origin["name"])

    @property
    def tokenizer(self) -> Tokenizer:
        tokenizer: Tokenizer = self._origin["tokenizer"]
        return tokenizer

    @property
    def layout(self) -> TableLayout | None:
        layout = self._origin.get("layout")
        return None if layout is None else TableLayout.model_validate(layout)

    @property
    def source(self) -> dict[str, Any]:
        source: dict[str, Any] = self._origin["source"]
        return source

    @cached_property
    def checksum(self) -> str:
        return hash_source(self.source)

    @cached_property
    def _origin(self) -> dict[str, Any]:
        with check_file(self.folder, CORPUS) as path:
            about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            found = about["source"].get("format")
            check_file_name(about["name"])
            if about.get("tokenizer", "regex") not in get_args(Tokenizer):
                raise TypeError
            TableLayout.model_validate(about.get("layout") or {"columns": {}})
        if found != FORMAT_VERSION or "tokenizer" not in about:
            raise CorpusError(
                f"This version of match-graph opens built folders of format {FORMAT_VERSION}, but "
                f"'{self.folder}' is of format {found!r:.20}; build it again from its source."
            )
        return about


def hash_corpus(corpus: Corpus) -> str:
    """SHA-256 of the content of a corpus, independent of the integer types of its tables.

    Provenance (``origin``, notes, warnings) does not count.

    Raises:
        CorpusError: A string is no Unicode text.
    """
    digest = hashlib.sha256(json.dumps([corpus.name, corpus.tokenizer]).encode())
    tables: dict[str, pd.DataFrame] = {DOCUMENT: corpus.documents}
    tables |= {f"{name}.nodes": table for name, table in corpus.instances.items()}
    tables |= {f"{name}.edges": table for name, table in corpus.edges.items()}
    tables["hierarchy"] = corpus.hierarchy[["child", "parent"]]
    for name, table in tables.items():
        digest.update(json.dumps([name, len(table), [*map(str, table.columns)]]).encode())
        for column in table.columns:
            for part in _list_parts(name, table[column]):
                digest.update(part)
    for name, values in sorted(corpus.features.items()):
        digest.update(json.dumps([name, str(values.dtype), list(values.shape)]).encode())
        digest.update(_view(values))
    return digest.hexdigest()


def _view(values: Array) -> memoryview:
    """Bytes of an array, without a copy if it is contiguous."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def _list_parts(table: str, column: pd.Series) -> list[bytes | memoryview]:
    """Content of a column as bytes: mask of filled cells, and numbers, or offsets and text."""
    filled = column.notna().to_numpy()
    if pd.api.types.is_integer_dtype(column) or column.name in ENDS:
        values = column.fillna(0).to_numpy(dtype=np.int64)
        return [b"integer", filled.tobytes(), _view(values)]
    if pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(dtype=np.float64, na_value=0.0)
        return [b"number", filled.tobytes(), _view(values)]
    try:
        text = pa.array(column.where(filled, "").to_numpy(dtype=object), pa.large_string())
    except (UnicodeEncodeError, pa.ArrowException, TypeError) as error:
        raise CorpusError(
            f"The tables of a corpus must hold Unicode text and numbers, but the column "
            f"'{column.name}' of '{table}' does not ({error}); mend it."
        ) from error
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int64)[: len(text) + 1]
    return [
        b"text", filled.tobytes(), _view(ends),
        b"" if data is None else memoryview(data)[: ends[-1]],
    ]  # fmt: skip
