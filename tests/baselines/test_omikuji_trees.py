"""omikuji: the file written for it, its discarded output, and a missing package."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from match_graph.baselines import OmikujiTrees, omikuji_trees
from match_graph.baselines.omikuji_trees import TREES, write_documents
from match_graph.baselines.tfidf import stack_labels
from match_graph.datasets import Synthetic
from match_graph.errors import CheckpointError, ConfigError
from match_graph.graph import TokenSpace


def test_OmikujiTrees_needs_omikuji(monkeypatch) -> None:
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "omikuji", None)
    with pytest.raises(ConfigError) as caught:
        OmikujiTrees(TokenSpace(("word",), (3,)), 2, OmikujiTrees.Config())
    assert str(caught.value) == (
        "The baseline 'omikuji' needs the package omikuji, which is not installed; "
        "run: pip install 'match-graph[peers]'"
    )


def test_write_documents_file_has_a_header_and_every_document(tmp_path: Path) -> None:
    """Sizes first; a document without labels or features keeps its line."""
    rows = sparse.csr_matrix(np.array([[0, 0.5, 0.25], [0, 0, 0], [1, 0, 0]], dtype=np.float32))
    gold = sparse.csr_matrix(np.array([[1, 1], [0, 1], [0, 0]], dtype=np.float32))
    path = tmp_path / "x.txt"
    write_documents(path, rows, gold)
    header, *lines = path.read_text().splitlines()
    assert header == "3 3 2"
    assert len(lines) == 3
    (tmp_path / "y.txt").write_text("\n".join(lines) + "\n")
    found, labels = load_svmlight_file(
        str(tmp_path / "y.txt"), n_features=3, multilabel=True, zero_based=True
    )
    np.testing.assert_array_equal(found.toarray(), rows.toarray())
    assert [sorted(map(int, some)) for some in labels] == [[0, 1], [1], []]


@pytest.fixture
def fitted(synthetic: Synthetic, batches) -> OmikujiTrees:
    pytest.importorskip("omikuji", reason="omikuji is not installed (extra: peers)")
    config = OmikujiTrees.Config(num_threads=1)
    trees = OmikujiTrees(synthetic.token_space(), synthetic.num_labels, config)
    trees.fit(batches("train"))
    return trees


def test_OmikujiTrees_nothing_is_printed(
    fitted: OmikujiTrees, synthetic, batches, tmp_path, capfd
) -> None:
    """omikuji logs to the standard output, which belongs to predictions."""
    capfd.readouterr()
    fitted.fit(batches("train"))
    fitted.save(tmp_path)
    other = OmikujiTrees(fitted.space, fitted.num_labels, fitted.config)
    other.load(tmp_path)
    other.predict(batches("test")[0])
    print("seen")  # noqa: T201
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("seen\n", "")


def test_OmikujiTrees_cost_fits_closer(fitted: OmikujiTrees, batches) -> None:
    """At a cost near 0 every weight is pruned, and all documents score alike."""
    batch, config = batches("test")[0], OmikujiTrees.Config(num_threads=1, cost=1e-6)
    trees = OmikujiTrees(fitted.space, fitted.num_labels, config)
    trees.fit(batches("train"))
    for one, is_alike in ((trees, True), (fitted, False)):
        logits = one.predict(batch)
        assert torch.equal(logits, logits[:1].expand_as(logits)) == is_alike


def test_OmikujiTrees_documents_without_tokens(
    synthetic: Synthetic, batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They teach nothing; where no other is left, one sentence says so."""
    pytest.importorskip("omikuji", reason="omikuji is not installed (extra: peers)")
    trees = OmikujiTrees(synthetic.token_space(), synthetic.num_labels, OmikujiTrees.Config())
    first, *others = batches("train")
    bare = first.select_tokens(torch.zeros_like(first.token_id, dtype=torch.bool))
    written = []

    def record(path, rows, gold) -> None:
        written.append(gold)
        write_documents(path, rows, gold)

    monkeypatch.setattr(omikuji_trees, "write_documents", record)
    trees.fit([bare, *others])
    assert (written[0] != stack_labels(others, synthetic.num_labels)).nnz == 0
    assert trees.predict(bare).shape == (bare.num_documents, synthetic.num_labels)
    with pytest.raises(ConfigError, match=rf"none of {bare.num_documents} training documents"):
        trees.fit([bare])


def test_OmikujiTrees_probabilities_are_those_of_omikuji(fitted: OmikujiTrees, batches) -> None:
    """The sigmoid of the scores gives them back; the labels off the beam are near 0."""
    batch = batches("test", batch_size=1)[0]
    rows = fitted.features.transform([batch])
    pairs = list(zip(rows.indices.tolist(), rows.data.tolist(), strict=True))
    expected = torch.full((fitted.num_labels,), 1e-6)
    for label, value in fitted.trees.predict(pairs, 10, fitted.num_labels):
        expected[label] = value
    found = torch.sigmoid(fitted.predict(batch))[0]
    assert torch.allclose(found, expected.clamp(1e-6, 1 - 1e-6), atol=1e-6)


def test_OmikujiTrees_reads_features_of_documents(
    fitted: OmikujiTrees, batches, tmp_path: Path, capfd
) -> None:
    """They are columns behind the tokens; trees of another number of columns are refused."""
    train = batches("train", width=3)
    trees = OmikujiTrees(fitted.space, fitted.num_labels, fitted.config, width=3)
    trees.fit(train)
    trees.save(tmp_path)
    other = OmikujiTrees(fitted.space, fitted.num_labels, fitted.config, width=3)
    other.load(tmp_path)
    expected = torch.sigmoid(trees.predict(train[0]))
    assert torch.allclose(torch.sigmoid(other.predict(train[0])), expected, atol=1e-4)
    changed = replace(train[0], x=-train[0].x)
    assert not torch.allclose(torch.sigmoid(other.predict(changed)), expected, atol=1e-2)
    with pytest.raises(CheckpointError, match="Fitted trees must be those of this run"):
        fitted.load(tmp_path)


def test_OmikujiTrees_missing_trees_are_one_sentence(
    fitted: OmikujiTrees, tmp_path: Path, capfd
) -> None:
    """The folder is named."""
    fitted.save(tmp_path)
    (tmp_path / TREES / "settings.json").write_text("{")
    with pytest.raises(CheckpointError) as caught:
        fitted.load(tmp_path)
    assert str(caught.value) == (
        f"Fitted trees must be a folder that omikuji wrote, but '{tmp_path / TREES}' cannot be "
        f"read; fit the baseline again."
    )


def test_OmikujiTrees_load_refuses_trees_of_another_run(
    fitted: OmikujiTrees, tmp_path: Path, capfd
) -> None:
    """With one tree fewer, probabilities would be others without a word."""
    fitted.save(tmp_path)
    (tmp_path / TREES / "tree1.cbor").unlink()
    with pytest.raises(CheckpointError) as caught:
        fitted.load(tmp_path)
    size, trees = fitted.features.num_features, fitted.config.num_trees
    assert str(caught.value) == (
        f"Fitted trees must be those of this run, with {{'trees': {trees}, 'features': {size}}}, "
        f"but '{tmp_path / TREES}' holds {{'trees': {trees - 1}, 'features': {size}}}; fit the "
        f"baseline again."
    )
    assert not any(capfd.readouterr())


def test_OmikujiTrees_predict_refuses_unknown_labels(fitted: OmikujiTrees, batches) -> None:
    """As crafted trees may give."""

    class Crafted:
        def predict(self, *_: object) -> list[tuple[int, float]]:
            return [(fitted.num_labels, 0.5)]

    fitted.trees = Crafted()
    with pytest.raises(CheckpointError, match="must give probabilities of"):
        fitted.predict(batches("test")[0])
