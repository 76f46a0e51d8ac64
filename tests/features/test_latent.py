"""Latent semantic vectors of texts against a dense decomposition in float64."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from match_graph.errors import CorpusError
from match_graph.features import LatentTexts
from match_graph.features import latent as latent_module

TEXTS = [
    "a graph of trees",
    "a tree",
    "graph graph trees",
    "edges of a graph",
    "trees and edges",
    "",
]


def fit(texts: list[str], number: int) -> LatentTexts:
    return LatentTexts.fit(texts, number, "regex")


def naive_vectors(texts: list[str], number: int) -> np.ndarray:
    """1 + ln tf, smoothed idf, rows of unit length, projected on right singular vectors."""
    split = [text.lower().split() for text in texts]
    words = sorted({word for text in split for word in text})
    shared = [word for word in words if sum(word in text for text in split) >= 2]
    rows = np.zeros((len(texts), len(shared)))
    for row, text in enumerate(split):
        for column, word in enumerate(shared):
            if word in text:
                found = sum(word in other for other in split)
                factor = 1 + np.log((1 + len(texts)) / (1 + found))
                rows[row, column] = (1 + np.log(text.count(word))) * factor
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    projected = rows @ np.linalg.svd(rows)[2][:number].T
    length = np.linalg.norm(projected, axis=1, keepdims=True)
    return projected / np.maximum(length, 1e-300)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_LatentTexts_equal_a_dense_decomposition(number: int) -> None:
    """Cosines of all pairs: components have no sign; the empty text has the vector 0."""
    found, expected = fit(TEXTS, number).embed(TEXTS), naive_vectors(TEXTS, number)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-5)
    assert not found[-1].any()


def test_LatentTexts_has_no_more_components_than_words() -> None:
    model = fit(TEXTS, 100)
    assert model.width == model.embed(["graph"]).shape[1] == 4  # a, edges, graph, of, trees


@given(st.lists(st.text(max_size=20), max_size=6))
def test_LatentTexts_round_trip(texts: list[str]) -> None:
    """Read from its tensors it gives the same vectors, also of unknown words."""
    model = fit(TEXTS, 2)
    again = LatentTexts.from_tensors(model.to_tensors())
    np.testing.assert_array_equal(again.embed(texts), model.embed(texts))


def test_LatentTexts_vectors_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that are embedded in blocks of two get the vectors that they get together."""
    model = fit(TEXTS, 2)
    expected = model.embed(TEXTS)
    monkeypatch.setattr(latent_module, "_BLOCK", 2)
    np.testing.assert_allclose(model.embed(TEXTS), expected, atol=1e-6)


def test_LatentTexts_same_texts_same_components() -> None:
    """The randomized decomposition does not depend on the global generator."""
    words = np.random.default_rng(0).integers(0, 90, (200, 8)).tolist()
    texts = [" ".join(f"w{one}" for one in row) for row in words]
    first, second = fit(texts, 5), fit(texts, 5)
    np.testing.assert_array_equal(first.components, second.components)


def test_LatentTexts_fits_a_sample_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn evenly: the first, the last, and between."""
    monkeypatch.setattr(latent_module, "MAX_TEXTS", 3)
    texts = ["first word word", "x", "word between", "x", "first between last word"]
    assert fit(texts, 5).words == ["between", "first", "word"]


@pytest.mark.parametrize("texts", [["a b", "c d"], ["", ""], ["same", "same"], []])
def test_LatentTexts_needs_shared_words(texts: list[str]) -> None:
    with pytest.raises(CorpusError) as error:
        fit(texts, 2)
    assert str(error.value) == (
        f"Latent features need words that several texts share, but these {len(texts)} texts share "
        f"less than two; take a language model or a file instead."
    )


def test_LatentTexts_from_tensors_checks_their_sizes() -> None:
    tensors = fit(TEXTS, 2).to_tensors()
    with pytest.raises(ValueError, match="not of one number"):
        LatentTexts.from_tensors({**tensors, "idf": tensors["idf"][:-1]})


@pytest.mark.parametrize("key", ["pattern", "tokenizer"])
def test_LatentTexts_from_tensors_takes_no_other_pattern(key: str) -> None:
    """A pattern from a file could backtrack without end, as "(a+)+b" does."""
    tensors = fit(TEXTS, 2).to_tensors()
    about = json.loads(tensors["words"].numpy().tobytes()) | {key: "(a+)+b"}
    changed = torch.from_numpy(np.frombuffer(json.dumps(about).encode(), np.uint8).copy())
    with pytest.raises(ValueError, match="another"):
        LatentTexts.from_tensors({**tensors, "words": changed})
