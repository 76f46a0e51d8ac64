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

from match_graph.datasets import from_frames, open_dataset
from match_graph.features import NeighborPredictor
from match_graph.features import neighbors as neighbors_module
from match_graph.features.neighbors import FittedDocuments, leave_out, link_documents
from match_graph.typing import MASKS


def draw_case(seed: int, n: int = 12, width: int = 3, num_nodes: int = 7):
    """Documents of unit length, their neighbours, and vectors of the candidates."""
    generator = np.random.default_rng(seed)
    x = normalize(torch.from_numpy(generator.normal(size=(n, width))).float(), dim=1)
    links = sparse.csr_matrix((generator.random((n, num_nodes)) < 0.3).astype(float))
    vectors = normalize(torch.from_numpy(generator.normal(size=(num_nodes, width))).float(), dim=1)
    return x, links, vectors


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
    x, links, vectors = draw_case(seed)
    links.data[:] = np.random.default_rng(seed).random(links.nnz)  # no two candidates are equal
    new = draw_case(seed + 1, n=4)[0]
    predictor, _ = NeighborPredictor.fit(x, links, vectors, number)
    scores = naive_scores(x.numpy(), links.toarray(), new.double().numpy())
    expected = naive_mean(scores, vectors.double().numpy(), number)
    torch.testing.assert_close(
        predictor.aggregate(new).double(), torch.from_numpy(expected), atol=2e-4, rtol=0
    )


@given(st.integers(0, 10**6))
def test_leave_out_equals_fitting_without_the_document(seed: int) -> None:
    """Each training document is scored by a model of the other ones."""
    x, links, vectors = draw_case(seed)
    predictor, leverage = NeighborPredictor.fit(x, links, vectors, 3)
    rows = torch.cat([x, torch.full((len(x), 1), 0.1)], dim=1)
    found = leave_out(rows @ predictor.weight, links, leverage)
    for document in range(len(x)):
        rest = np.arange(len(x)) != document
        one = x[document : document + 1].double().numpy()
        expected = naive_scores(x.numpy()[rest], links.toarray()[rest], one)
        np.testing.assert_allclose(found[document : document + 1], expected, atol=2e-4)


@given(st.integers(0, 10**6), st.booleans())
def test_NeighborPredictor_of_fitted_documents_leaves_each_out(seed: int, alone: bool) -> None:
    """Each training document gets what it would as a new one: it is no candidate, and its vector is
    in none of its labels', also where a label has no other document."""
    n, num_labels = 8, 3
    x, links, _ = draw_case(seed, n, width=3, num_nodes=num_labels + n)
    dense = links.toarray()
    if alone:
        dense[:, 0] = np.arange(n) == 2
    total = dense[:, :num_labels].T @ x.double().numpy()
    vectors = torch.from_numpy(np.vstack([total, x])).float()
    number = num_labels + n  # all with a positive score, so that no tie decides
    predictor, leverage = NeighborPredictor.fit(
        x, sparse.csr_matrix(dense), normalize(vectors, dim=1), number
    )
    fitted = FittedDocuments(
        sparse.csr_matrix(dense), leverage, torch.arange(n) + num_labels,
        torch.from_numpy(np.linalg.norm(total, axis=1)).float(),
    )  # fmt: skip
    found = predictor.aggregate(x, None, fitted)
    for document in range(n):
        rest = np.arange(n) != document
        known = dense[rest][:, np.concatenate([np.ones(num_labels, bool), rest])]
        others = x[torch.from_numpy(rest)].double().numpy()
        nodes = np.vstack([known[:, :num_labels].T @ others, others])
        nodes /= np.maximum(np.linalg.norm(nodes, axis=1, keepdims=True), 1e-12)
        scores = naive_scores(others, known, x[document : document + 1].double().numpy())
        expected = naive_mean(scores, nodes, number)
        np.testing.assert_allclose(found[document : document + 1], expected, atol=2e-3)


def test_NeighborPredictor_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows in the fit, and of scores."""
    x, links, vectors = draw_case(0)
    whole, leverage = NeighborPredictor.fit(x, links, vectors, 3)
    itself, length = torch.full((12,), -1), torch.rand(4) + 1
    expected = whole.aggregate(x, None, FittedDocuments(links, leverage, itself, length))
    monkeypatch.setattr(neighbors_module, "_BLOCK_ROWS", 5)
    monkeypatch.setattr(neighbors_module, "_BLOCK_SCORES", 20)
    blocked, other = NeighborPredictor.fit(x, links, vectors, 3)
    torch.testing.assert_close(other, leverage)
    fitted = FittedDocuments(links, other, itself, length)
    torch.testing.assert_close(blocked.aggregate(x, None, fitted), expected)
    assert whole.aggregate(x[:0]).shape == (0, 3)


def test_NeighborPredictor_neighbours_are_no_later() -> None:
    """A document of time 1 has one of time 2 for a neighbour only where no time is asked."""
    x = torch.eye(3)
    links = sparse.csr_matrix(np.array([[1.0, 0], [1, 1], [0, 1]]))
    time = torch.tensor([0, 2])
    predictor, _ = NeighborPredictor.fit(x, links, torch.eye(2, 3), 2, time)
    early, late = predictor.aggregate(x[1:2].expand(2, -1), torch.tensor([1, 2]))
    assert early.tolist() == [1.0, 0.0, 0.0]
    assert (late[:2] > 0.5).all()
    torch.testing.assert_close(predictor.aggregate(x[1:2])[0], late)


def test_NeighborPredictor_round_trip() -> None:
    x, links, vectors = draw_case(3)
    predictor, _ = NeighborPredictor.fit(x, links, vectors, 3, torch.arange(7))
    again = NeighborPredictor.from_tensors(predictor.to_tensors())
    assert torch.equal(
        again.aggregate(x, torch.arange(12)), predictor.aggregate(x, torch.arange(12))
    )
    tensors = predictor.to_tensors()
    with pytest.raises(ValueError, match="not of its candidates"):
        NeighborPredictor.from_tensors({**tensors, "vectors": tensors["vectors"][1:]})


def test_link_documents_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gold labels, itself, and cited both ways; other splits' documents are no neighbours."""
    rows = [
        ("a", "train", ["c", "x"], ["l1"]), ("b", "train", [], ["l1", "l2"]),
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
        [1, 0, 1, 0, 1], [1, 1, 0, 1, 0], [0, 1, 1, 0, 1],
    ]  # fmt: skip
    monkeypatch.setattr(neighbors_module, "MAX_CANDIDATES", 2)
    links, candidates = link_documents(dataset, train)
    assert names[candidates.numpy()].tolist() == ["a", "c"]
    assert links.toarray()[:, 2:].tolist() == [[1, 1], [0, 0], [1, 1]]
