"""Predicted neighbours against slow versions in float64."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from torch.nn.functional import normalize

from match_graph.config import FeatureSource
from match_graph.datasets import from_frames, open_dataset
from match_graph.features import NeighborPredictor, open_features
from match_graph.features import neighbors as neighbors_module
from match_graph.features.neighbors import link_documents
from match_graph.typing import MASKS


def draw_case(seed: int, n: int = 12, width: int = 3, num_labels: int = 3, num_documents: int = 4):
    """Documents of unit length, their neighbours, and vectors of the candidates among documents."""
    generator = np.random.default_rng(seed)
    x = normalize(torch.from_numpy(generator.normal(size=(n, width))).float(), dim=1)
    shape = (n, num_labels + num_documents)
    links = sparse.csr_matrix((generator.random(shape) < 0.3).astype(float))
    return x, links, x[:num_documents]


def naive_vectors(x: np.ndarray, links: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Vectors of the candidates: the mean direction of each label's documents, and documents."""
    total = links[:, : links.shape[1] - len(documents)].T @ x
    length = np.linalg.norm(total, axis=1, keepdims=True)
    return np.vstack([total / np.maximum(length, 1e-12), documents])


def naive_scores(x: np.ndarray, links: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Ridge regression with a small constant, solved for every candidate alone."""
    rows = np.hstack([x, np.full((len(x), 1), 0.1)]).astype(np.float64)
    gram = rows.T @ rows + np.eye(rows.shape[1])
    weight = [np.linalg.solve(gram, rows.T @ column) for column in links.T]
    return np.hstack([new, np.full((len(new), 1), 0.1)]) @ np.array(weight).T


def naive_mean(scores: np.ndarray, vectors: np.ndarray, number: int) -> np.ndarray:
    found = np.zeros((len(scores), vectors.shape[1]))
    for row, values in enumerate(scores):
        for node in sorted(range(len(values)), key=lambda node: -values[node])[:number]:
            found[row] += (values[node] if values[node] > 1e-5 else 0.0) * vectors[node]
        found[row] /= max(np.linalg.norm(found[row]), 1e-12)
    return found


@given(st.integers(0, 10**6), st.integers(1, 9))
def test_NeighborPredictor_of_new_documents_equals_a_naive_loop(seed: int, number: int) -> None:
    """Scores by one system of equations per candidate; mean of the best with positive scores."""
    x, links, documents = draw_case(seed)
    links.data[:] = np.random.default_rng(seed).random(links.nnz)  # no two candidates are equal
    new = draw_case(seed + 1, n=4)[0]
    [predictor] = NeighborPredictor.fit(x, links, documents, number)
    known, dense = x.double().numpy(), links.toarray()
    scores = naive_scores(known, dense, new.double().numpy())
    expected = naive_mean(scores, naive_vectors(known, dense, documents.numpy()), number)
    torch.testing.assert_close(
        predictor.aggregate(new).double(), torch.from_numpy(expected), atol=2e-4, rtol=0
    )


@given(st.integers(0, 10**6), st.booleans())
def test_NeighborPredictor_fit_leaves_each_fold_out(seed: int, alone: bool) -> None:
    """A training document gets what it would as a new one, had its fold not been there; it is no
    neighbour of itself. A label whose documents are all in its fold is none either."""
    n, num_labels = 8, 3
    x, links, _ = draw_case(seed, n, num_labels=num_labels, num_documents=n)
    dense = links.toarray()
    if alone:
        dense[:, 0] = np.arange(n) == 2
    fold, number = torch.arange(n) % 3, num_labels + n  # all of them, so that no tie decides
    _, *folds = NeighborPredictor.fit(x, sparse.csr_matrix(dense), x, number, fold=fold)
    assert len(folds) == 3
    for document in range(n):
        one = slice(document, document + 1)
        found = folds[document % 3].aggregate(x[one], None, torch.tensor([document + num_labels]))
        rest = (fold != document % 3).numpy()
        others, known = x.double().numpy()[rest], dense[rest]
        scores = naive_scores(others, known, x[one].double().numpy())
        scores[0, document + num_labels] = 0
        vectors = naive_vectors(others, known, x.double().numpy())
        np.testing.assert_allclose(found, naive_mean(scores, vectors, number), atol=2e-3)


def probe(features: np.ndarray, labels: np.ndarray) -> float:
    """Mean AUC over labels of a linear probe, two-fold cross-validated."""
    rows = np.hstack([features, np.ones((len(features), 1))])
    half, found = np.arange(len(rows)) % 2 == 0, []
    for chosen in (half, ~half):
        known = rows[chosen]
        gram = known.T @ known + 1e-3 * np.eye(rows.shape[1])
        scores = rows[~chosen] @ np.linalg.solve(gram, known.T @ labels[chosen])
        for column, gold in zip(scores.T, labels[~chosen].T, strict=True):
            higher = column[gold > 0][:, None] > column[gold == 0][None, :]
            found.append(higher.mean())
    return float(np.mean(found))


def test_make_text_vectors_training_features_hide_own_labels(tmp_path: Path) -> None:
    """A linear probe finds random labels in leave-one-out features, and hardly in ours by folds.

    Each document's labels are what its leave-one-out features lack of all others'.
    """
    generator = np.random.default_rng(0)
    n, num_labels, width = 1000, 10, 32
    gold = generator.random((n, num_labels)) < 0.2
    words = [f"w{number}" for number in range(100)]
    rows = [
        (f"d{number}", "train", " ".join(generator.choice(words, 12)),
         [f"l{label}" for label in np.flatnonzero(gold[number])])
        for number in range(n)
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["id", "split", "text", "label"])
    dataset = open_dataset(from_frames(frame, columns={"split": "split"}), root=tmp_path)
    source = FeatureSource(latent=width, neighbors=5)
    x = open_features(source, dataset, "document", tmp_path).x.double().numpy()
    labels = np.array(dataset.targets.to_sparse(torch.arange(n)).todense(), dtype=float)
    folded = probe(x, labels)
    own = x[:, :width] / np.linalg.norm(x[:, :width], axis=1, keepdims=True)
    left_out = np.vstack([
        naive_mean(
            naive_scores(np.delete(own, one, 0), np.delete(labels, one, 0), own[one : one + 1]),
            naive_vectors(own, labels, np.zeros((0, width))), 5,
        )
        for one in range(n)
    ])  # fmt: skip
    assert 0.4 < folded < 0.57 < 0.62 < probe(np.hstack([own, left_out]), labels)


def test_NeighborPredictor_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of rows in the fit, and of scores, give the same predictions."""
    x, links, documents = draw_case(0)
    fold, itself = torch.arange(12) % 2, torch.arange(12) % 7
    whole = NeighborPredictor.fit(x, links, documents, 3, fold=fold)
    expected = [one.aggregate(x, None, itself) for one in whole]
    monkeypatch.setattr(neighbors_module, "_BLOCK_ROWS", 5)
    monkeypatch.setattr(neighbors_module, "_BLOCK_SCORES", 20)
    blocked = NeighborPredictor.fit(x, links, documents, 3, fold=fold)
    torch.testing.assert_close([one.aggregate(x, None, itself) for one in blocked], expected)
    assert whole[0].aggregate(x[:0]).shape == (0, 3)


def test_NeighborPredictor_neighbours_are_no_later() -> None:
    """A document of time 1 has one of time 2 for a neighbour only where no time is asked."""
    x = torch.eye(3)
    links = sparse.csr_matrix(np.array([[1.0, 0], [1, 1], [0, 1]]))
    time = torch.tensor([0, 2])
    [predictor] = NeighborPredictor.fit(x, links, torch.eye(2, 3), 2, time)
    early, late = predictor.aggregate(x[1:2].expand(2, -1), torch.tensor([1, 2]))
    assert early.tolist() == [1.0, 0.0, 0.0]
    assert (late[:2] > 0.5).all()
    torch.testing.assert_close(predictor.aggregate(x[1:2])[0], late)


def test_NeighborPredictor_round_trip() -> None:
    x, links, documents = draw_case(3)
    [predictor] = NeighborPredictor.fit(x, links, documents, 3, torch.arange(7))
    again = NeighborPredictor.from_tensors(predictor.to_tensors())
    assert torch.equal(
        again.aggregate(x, torch.arange(12)), predictor.aggregate(x, torch.arange(12))
    )
    tensors = predictor.to_tensors()
    with pytest.raises(ValueError, match="not of its candidates"):
        NeighborPredictor.from_tensors({**tensors, "labels": tensors["labels"][1:]})


def test_link_documents_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gold labels, itself, and those cited or citing; other splits' documents are no neighbours."""
    rows = [
        ("a", "train", ["c", "x"], ["l1"]), ("b", "train", ["c"], ["l1", "l2"]),
        ("c", "train", ["a"], ["l2"]), ("x", "test", ["a"], ["l2"]), ("v", "valid", [], ["l1"]),
    ]  # fmt: skip
    documents = pd.DataFrame(rows, columns=["id", "split", "reference", "label"])
    documents["text"] = "some words"
    corpus = from_frames(documents, columns={"split": "split"}, fields=["reference"])
    dataset = open_dataset(corpus, root=tmp_path)
    train = dataset.documents(MASKS["train"])
    names = dataset.names("document")
    assert names[train.numpy()].tolist() == ["a", "b", "c"]
    labels = [dataset.names("label").tolist().index(name) for name in ("l1", "l2")]
    links, candidates = link_documents(dataset, train)
    assert candidates.tolist() == train.tolist()
    order = [*labels, 2, 3, 4]
    assert links.toarray()[:, order].tolist() == [
        [1, 0, 1, 0, 1], [1, 1, 0, 1, 1], [0, 1, 1, 1, 1],
    ]  # fmt: skip
    monkeypatch.setattr(neighbors_module, "MAX_CANDIDATES", 2)
    links, candidates = link_documents(dataset, train)
    assert names[candidates.numpy()].tolist() == ["a", "c"]
    assert links.toarray()[:, 2:].tolist() == [[1, 1], [0, 1], [1, 1]]
