"""Vectors of texts by frozen language models, cached on disk by model and text."""

import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from match_graph.errors import ConfigError, CorpusError
from match_graph.features.sentence_model import compute_model_digest, find_model, load_model
from match_graph.io.progress import Reporter

#: Texts whose vectors are written together.
_CHUNK = 128
#: Keys of one query; SQLite allows at least 999.
_KEYS = 900
_LARGEST = float(np.finfo(np.float16).max)


class TextEmbedder:
    """Vectors of texts by a frozen model of sentence-transformers.

    A text is embedded once per model: vectors are cached as float16 in an SQLite file, which runs
    and processes share. They are written every hundred texts or so, so that a killed call resumes
    where it stopped, and concurrent ones share the work. A model is identified by the content of
    its files. It computes in bfloat16 on a GPU and on a CPU with instructions for it, where two
    cores embed 42 texts of 200 word pieces a second by MiniLM against 22 in float32; without them a
    core does 18 of shorter ones in float32 and 3 in bfloat16. Cosines between the two are above
    .999.

    Source: Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084; as features of nodes: Duan
    et al. 2023 (SimTeG), https://arxiv.org/abs/2308.02565, who fine-tune the model first.

    Args:
        model: Folder of a model, or its name on the hub.
        cache: Folder of the caches.
        max_pieces: Maximum number of word pieces of a text; None for the model's own.
        reporter: Reporter of progress; None prints nothing.

    Raises:
        ConfigError: There is no such model, it holds no safetensors, or it asks for code.
    """

    def __init__(
        self,
        model: str,
        cache: Path,
        max_pieces: int | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self.model, self.max_pieces = model, max_pieces
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.reporter = reporter or Reporter(quiet=True)
        self.folder = find_model(model)
        text = f"{compute_model_digest(self.folder)} {max_pieces}"
        #: SHA-256 of the model's files and of what is read of a text.
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        #: The cache of the model.
        self.path = cache / f"{self.digest[:32]}.sqlite"

    @cached_property
    def _network(self) -> Any:
        return load_model(self.model, self.folder, self.device, self.max_pieces)

    @cached_property
    def width(self) -> int:
        """Number of features F."""
        with self._open() as database:
            row = database.execute("SELECT length(vector) FROM vectors LIMIT 1").fetchone()
        if row is not None:
            return int(row[0]) // np.dtype(np.float16).itemsize
        return int(self._network.get_embedding_dimension())

    def embed(self, texts: Sequence[str]) -> NDArray[np.float16]:
        """Vectors of texts, [T, F].

        Raises:
            ConfigError: sentence-transformers is not installed, or cannot read the model.
            CorpusError: The cache cannot be read or written; a vector is not finite in float16.
        """
        self.prepare(texts)
        vectors = np.empty((len(texts), self.width), np.float16)
        rows: dict[bytes, list[int]] = {}
        for row, text in enumerate(texts):
            rows.setdefault(_hash(text), []).append(row)
        with self._open() as database:
            for key, vector, crc in _select(database, "text, vector, crc", rows):
                if zlib.crc32(vector) != crc or len(vector) != vectors[:1].nbytes:
                    raise CorpusError(
                        f"Vectors of texts must be as they were written, but '{self.path}' is "
                        f"damaged; delete it to embed the texts again."
                    )
                vectors[rows[key]] = np.frombuffer(vector, np.float16)
        return vectors

    def find_missing(self, texts: Iterable[str]) -> list[str]:
        """Texts that the cache lacks, each once; raises as `embed`."""
        unique = {_hash(text): text for text in texts}
        with self._open() as database:
            return [unique[key] for key in _find_missing(database, unique)]

    def prepare(self, texts: Iterable[str]) -> None:
        """Embeds the texts that the cache lacks, without returning any; raises as `embed`."""
        unique = {_hash(text): text for text in texts}
        with self._open() as database:
            missing = _find_missing(database, unique)
            if not missing:
                return
            missing.sort(key=lambda key: -len(unique[key]))  # batches of one length
            self.reporter.line(
                f"embed: {len(missing):,} of {len(unique):,} texts by '{self.model}' on "
                f"{self.device.type}, kept in '{self.path}'"
            )
            chunks = [missing[start : start + _CHUNK] for start in range(0, len(missing), _CHUNK)]
            done = 0
            with self.reporter.track("embed", len(missing), "texts") as advance:
                # In another order in each process, so that several do not embed the same texts.
                for place in np.random.default_rng(os.getpid()).permutation(len(chunks)):
                    keys = _find_missing(database, chunks[place])
                    if keys:
                        _write(database, keys, self._compute([unique[key] for key in keys]))
                    done += len(chunks[place])
                    advance(done, "")

    def _compute(self, texts: list[str]) -> NDArray[np.float16]:
        vectors = self._network.encode(texts, show_progress_bar=False, convert_to_numpy=True)
        vectors = np.asarray(vectors, dtype=np.float32)
        if vectors.ndim != 2:
            raise ConfigError(
                f"A language model must give one vector a text, but '{self.model}' gives "
                f"{list(vectors.shape)}; choose another."
            )
        if not (np.abs(vectors) <= _LARGEST).all():  # false for NaN
            raise CorpusError(
                f"Vectors of texts must be finite in float16, but those of '{self.model}' are not; "
                f"choose another model."
            )
        return vectors.astype(np.float16)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=600)) as database:
                database.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, "
                    "vector BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID"
                )
                yield database
        except (OSError, sqlite3.Error) as error:
            raise CorpusError(
                f"Vectors of texts are kept in '{self.path}', but it cannot be used ({error}); "
                f"make room on the disk or choose another root (--root), or delete it if it is "
                f"damaged."
            ) from error


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _select(
    database: sqlite3.Connection, columns: str, keys: Iterable[bytes]
) -> Iterator[tuple[Any, ...]]:
    """Columns of the rows of keys."""
    listed = list(keys)
    for start in range(0, len(listed), _KEYS):
        chunk = listed[start : start + _KEYS]
        marks = ",".join("?" * len(chunk))
        query = f"SELECT {columns} FROM vectors WHERE text IN ({marks})"  # noqa: S608 (constants)
        yield from database.execute(query, chunk).fetchall()


def _find_missing(database: sqlite3.Connection, keys: Iterable[bytes]) -> list[bytes]:
    listed = list(keys)
    found = {key for (key,) in _select(database, "text", listed)}
    return [key for key in listed if key not in found]


def _write(database: sqlite3.Connection, keys: list[bytes], vectors: NDArray[np.float16]) -> None:
    rows = ((key, row.tobytes()) for key, row in zip(keys, vectors, strict=True))
    with database:
        database.executemany(
            "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)",
            ((key, vector, zlib.crc32(vector)) for key, vector in rows),
        )
