"""Vectors of texts: computed once, kept by model and text."""

import os
import signal
import sqlite3
import warnings
from pathlib import Path

import numpy as np
import pytest

from match_graph.errors import ConfigError, CorpusError
from match_graph.features import TextEmbedder, text_embedder
from match_graph.io import Reporter

TEXTS = ["graphs of documents", "deep kernels", "", "graphs of documents", "kernels and nets"]


@pytest.fixture(scope="module")
def vectors(sentence_model: Path, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return TextEmbedder(str(sentence_model), tmp_path_factory.mktemp("cache")).embed(TEXTS)


def test_text_embedder_equals_sentence_transformers(minilm: Path, tmp_path: Path) -> None:
    """Within bfloat16, where it is used, whatever the order of batches; equal texts are equal."""
    package = pytest.importorskip("sentence_transformers")
    expected = package.SentenceTransformer(str(minilm), device="cpu").encode(TEXTS)
    vectors = TextEmbedder(str(minilm), tmp_path).embed(TEXTS)
    assert vectors.shape == expected.shape == (5, 384)
    assert np.allclose(vectors, expected, atol=1e-2)
    cosines = (vectors * expected).sum(axis=1) / np.linalg.norm(vectors.astype(float), axis=1)
    assert (cosines > 0.999).all()
    assert np.array_equal(vectors[0], vectors[3])


def count_texts(embedder: TextEmbedder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts that an embedder computes from now on."""
    seen: list[str] = []
    compute = embedder._compute
    monkeypatch.setattr(embedder, "_compute", lambda texts: seen.extend(texts) or compute(texts))
    return seen


def test_text_embedder_reads_its_cache(
    sentence_model: Path, tmp_path: Path, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What is there is not computed again, and the model is not even read."""
    first = TextEmbedder(str(sentence_model), tmp_path, reporter=Reporter(seconds=0))
    first.embed(TEXTS[:2])
    assert "embed: 2 of 2 texts by" in capsys.readouterr().err
    seen = count_texts(first, monkeypatch)
    assert np.array_equal(first.embed(TEXTS), vectors)
    assert sorted(seen) == ["", "kernels and nets"]
    assert "embed: 2 of 2 texts (" in capsys.readouterr().err  # of those that are missing
    third = TextEmbedder(str(sentence_model), tmp_path)
    assert np.array_equal(third.embed(TEXTS), vectors)
    assert third.embed([]).shape == (0, 8)
    monkeypatch.setattr(text_embedder, "_KEYS", 2)  # two queries for four texts
    assert third.find_missing([*TEXTS, "new"]) == ["new"]
    assert np.array_equal(third.embed(TEXTS), vectors)
    assert "_network" not in vars(third)


def test_text_embedder_goes_on_after_a_kill(
    sentence_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second process embeds only what the killed one had not written."""
    texts = [f"w{number}" for number in range(95)]
    done: list[int] = []

    def compute(chunk: list[str]) -> np.ndarray:
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(len(chunk))
        return np.ones((len(chunk), 8), np.float16)

    monkeypatch.setattr(text_embedder, "_CHUNK", 10)
    embedder = TextEmbedder(str(sentence_model), tmp_path)
    with warnings.catch_warnings(), monkeypatch.context() as patch:
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        patch.setattr(embedder, "_compute", compute)
        if not (process := os.fork()):
            try:
                embedder.prepare(texts)
            finally:
                os._exit(1)
    assert os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGKILL
    seen = count_texts(embedder, monkeypatch)
    found = embedder.embed(texts)
    assert len(seen) == 95 - int((found == 1).all(axis=1).sum())
    assert len(seen) in (75, 80)  # the last of ten has five


def test_text_embedder_shares_work(
    sentence_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process has written in the meantime is not computed again."""
    monkeypatch.setattr(text_embedder, "_CHUNK", 2)
    texts = [f"w{number}" for number in range(10)]
    first, second = (TextEmbedder(str(sentence_model), tmp_path) for _ in range(2))
    compute, theirs = first._compute, count_texts(second, monkeypatch)
    ours: list[str] = []

    def pause(chunk: list[str]) -> np.ndarray:
        ours.extend(chunk)
        second.prepare(texts[:8])
        return compute(chunk)

    monkeypatch.setattr(first, "_compute", pause)
    first.prepare(texts)
    assert set(ours) | set(theirs) == set(texts)
    assert len(theirs) == 8
    assert len(ours) <= 4


def test_text_embedder_refuses_a_damaged_cache(sentence_model: Path, tmp_path: Path) -> None:
    """A flipped bit, a file of another kind, a folder that is none."""
    embedder = TextEmbedder(str(sentence_model), tmp_path)
    embedder.embed(TEXTS[:1])
    with sqlite3.connect(embedder.path) as database:
        database.execute("UPDATE vectors SET crc = crc + 1")
    database.close()
    with pytest.raises(CorpusError) as caught:
        embedder.embed(TEXTS[:1])
    assert str(caught.value) == (
        f"Vectors of texts must be as they were written, but '{embedder.path}' is damaged; "
        f"delete it to embed the texts again."
    )
    embedder.path.write_bytes(b"no database, but many bytes" * 100)
    with pytest.raises(CorpusError, match=r"cannot be used \(file is not a database\); make room"):
        embedder.embed(TEXTS[:1])
    (tmp_path / "file").touch()
    with pytest.raises(CorpusError, match=r"cannot be used \(.*Not a directory"):
        TextEmbedder(str(sentence_model), tmp_path / "file" / "cache").embed(TEXTS)


def test_text_embedder_refuses_vectors_that_float16_cannot_hold(
    sentence_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too large, if only in one place, NaN, or no vectors; nothing is kept."""
    embedder = TextEmbedder(str(sentence_model), tmp_path)
    network = embedder._network
    for values in (np.full((1, 8), 1e6), np.eye(1, 8) * 1e6, np.full((1, 8), np.nan)):
        monkeypatch.setattr(network, "encode", lambda *_, values=values, **__: values)
        with pytest.raises(CorpusError, match="must be finite in float16, but those of"):
            embedder.embed(["deep"])
    monkeypatch.setattr(network, "encode", lambda *_, **__: np.ones((1, 2, 3)))
    with pytest.raises(ConfigError, match=r"must give one vector a text, but .* gives \[1, 2, 3\]"):
        embedder.embed(["deep"])
    monkeypatch.undo()
    assert np.isfinite(embedder.embed(["deep"])).all()


def test_text_embedder_digest_covers_what_is_cut(sentence_model: Path, tmp_path: Path) -> None:
    """Another maximum number of pieces has another cache."""
    short = TextEmbedder(str(sentence_model), tmp_path, max_pieces=8)
    assert short.path != TextEmbedder(str(sentence_model), tmp_path).path
