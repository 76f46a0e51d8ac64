"""Vectors of nodes from texts: latent ones, and those of predicted neighbours, in a store."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from match_graph.config import FeatureSource
from match_graph.datasets import CorpusDataset, Synthetic, from_frames, open_dataset
from match_graph.errors import CheckpointError, CorpusError
from match_graph.features import (
    VECTORS,
    LatentTexts,
    TextEmbedder,
    open_features,
    read_text_vectors,
)
from match_graph.features import table as table_module
from match_graph.features.neighbors import link_documents
from match_graph.features.texts import list_texts
from match_graph.features.vectors import assign_runs, make_text_vectors
from match_graph.io import Reporter
from match_graph.typing import DOCUMENT, MASKS

PINA = FeatureSource(latent=8, neighbors=3)


def test_open_features_of_neighbours_as_of_new_documents(
    synthetic: Synthetic, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Valid and test documents have what their texts get anew; of training documents the half of
    neighbours is predicted without them, so that it differs."""
    monkeypatch.setattr(table_module, "_BLOCK_BYTES", 4 * 16 * 70)  # 70 documents
    found = open_features(PINA, synthetic, DOCUMENT)
    assert found.x.dtype == torch.float16
    assert found.x.shape == (synthetic.graph.num_nodes(DOCUMENT), 16)
    vectors = read_text_vectors(found.path.with_name(VECTORS), None)
    assert vectors.width == 16
    texts = list_texts(synthetic, DOCUMENT, ["text"])
    new = torch.from_numpy(vectors.embed(texts))
    is_train = synthetic.graph.node_tensor(DOCUMENT, MASKS["train"])
    torch.testing.assert_close(new[~is_train], found.x[~is_train], atol=2e-3, rtol=0)
    torch.testing.assert_close(new[:, :8], found.x[:, :8], atol=2e-3, rtol=0)
    assert not torch.allclose(new[is_train, 8:], found.x[is_train, 8:], atol=1e-2)
    has_words = torch.tensor([bool(text) for text in texts])
    length = found.x[has_words].float().norm(dim=1).square()
    torch.testing.assert_close(length, torch.full_like(length, 2.0), atol=1e-2, rtol=0)


def test_open_features_latent_space_is_of_training_documents(
    synthetic: Synthetic, home: Path
) -> None:
    """Words and their frequencies are those of the training documents alone."""
    path = open_features(FeatureSource(latent=8), synthetic, DOCUMENT).path
    own = read_text_vectors(path.with_name(VECTORS), None).own
    texts = list_texts(synthetic, DOCUMENT, ["text"])
    train = [texts[one] for one in synthetic.documents(MASKS["train"]).tolist()]
    expected = LatentTexts.fit(train, 8, synthetic.tokenizer)
    assert isinstance(own, LatentTexts)
    assert own.words == expected.words
    assert np.array_equal(own.idf, expected.idf)


def test_open_features_of_neighbours_by_a_slow_version(synthetic: Synthetic, home: Path) -> None:
    """Test documents: dense regression in float64 over latent vectors, mean of the best three."""
    x = normalize(open_features(FeatureSource(latent=8), synthetic, DOCUMENT).x.double(), dim=1)
    train, test = (synthetic.documents(MASKS[name]) for name in ("train", "test"))
    links, candidates = link_documents(synthetic, train)
    dense = torch.from_numpy(links.toarray())
    of_labels = normalize(dense[:, : synthetic.num_labels].T @ x[train], dim=1)
    nodes = torch.cat([of_labels, x[candidates]])
    rows, new = (torch.cat([x[one], torch.full((len(one), 1), 0.1)], 1) for one in (train, test))
    gram = rows.T @ rows + torch.eye(9, dtype=torch.float64)
    value, place = (new @ torch.linalg.solve(gram, rows.T @ dense)).topk(3, dim=1)
    expected = normalize((value.clamp(min=0).unsqueeze(1) @ nodes[place]).squeeze(1), dim=1)
    found = open_features(PINA, synthetic, DOCUMENT).x[test, 8:].double()
    close = torch.nn.functional.cosine_similarity(found, expected) > 0.999
    assert close.float().mean() > 0.98  # float16 of the latent vectors may change a tie


def test_open_features_of_neighbours_without_the_fold(home: Path) -> None:
    """Few documents of each label: the slow version anew for each training document, by those of
    the other folds alone. Every candidate with a positive score counts, so that no tie decides."""
    generator = np.random.default_rng(0)
    words = [f"word{number}" for number in range(12)]
    documents = pd.DataFrame(
        {
            "id": [f"d{number}" for number in range(30)],
            "split": ["train"] * 26 + ["valid"] * 2 + ["test"] * 2,
            "text": [" ".join(generator.choice(words, 5)) for _ in range(30)],
            "label": [[f"l{number}" for number in generator.choice(9, 2)] for _ in range(30)],
            "reference": [[f"d{number}" for number in generator.choice(26, 2)] for _ in range(30)],
        }
    )
    corpus = from_frames(documents, columns={"split": "split"}, fields=["reference"])
    dataset = open_dataset(corpus)
    every = FeatureSource(latent=4, neighbors=dataset.num_labels + 26)
    found = open_features(every, dataset, DOCUMENT).x.double()
    train, num_labels = dataset.documents(MASKS["train"]), dataset.num_labels
    x = normalize(found[train, :4], dim=1)
    dense = torch.from_numpy(link_documents(dataset, train)[0].toarray())
    for one in range(len(train)):
        rest = torch.arange(len(train)) % 5 != one % 5
        known = dense[rest]
        nodes = torch.cat([normalize(known[:, :num_labels].T @ x[rest], dim=1), x])
        rows = torch.cat([x[rest], torch.full((len(known), 1), 0.1)], 1)
        gram = rows.T @ rows + torch.eye(5, dtype=torch.float64)
        new = torch.cat([x[one], x.new_tensor([0.1])])
        scores = new @ torch.linalg.solve(gram, rows.T @ known)
        scores[num_labels + one] = 0
        expected = scores.clamp(min=0) @ nodes
        near = normalize(found[train[one], 4:], dim=0)
        torch.testing.assert_close(near, normalize(expected, dim=0), atol=4e-3, rtol=0)


@pytest.mark.parametrize("number", [0, 1, 4, 26, 700, 3001])
def test_assign_runs_keeps_documents_that_follow_each_other(number: int) -> None:
    """Five folds of nearly one size wherever there are five documents; few runs are cut."""
    fold = assign_runs(number)
    assert len(fold) == number
    sizes = torch.bincount(fold, minlength=5)
    assert len(sizes) == 5
    assert int(sizes.max() - sizes.min()) <= max(1, min(32, number // 20))
    if number >= 700:
        assert float((fold[1:] != fold[:-1]).float().mean()) < 1 / 30


def test_open_features_of_neighbours_by_a_language_model(
    synthetic: Synthetic, sentence_model: Path, home: Path
) -> None:
    """The model's vector, then that of the neighbours, as long; new texts alike."""
    source = FeatureSource(model=str(sentence_model), neighbors=2)
    alone = open_features(FeatureSource(model=str(sentence_model)), synthetic, DOCUMENT).x
    found = open_features(source, synthetic, DOCUMENT)
    own, near = found.x.chunk(2, dim=1)
    assert torch.equal(own, alone)
    torch.testing.assert_close(
        own.float().norm(dim=1), near.float().norm(dim=1), atol=0.01, rtol=0.01
    )
    embedder = TextEmbedder(str(sentence_model), home / "texts")
    vectors = read_text_vectors(found.path.with_name(VECTORS), embedder)
    test = synthetic.documents(MASKS["test"])
    texts = list_texts(synthetic, DOCUMENT, ["text"])
    new = vectors.embed([texts[one] for one in test.tolist()])
    np.testing.assert_allclose(new, found.x[test], atol=2e-3)


@pytest.mark.parametrize("chosen", [{"latent": 9}, {"neighbors": 4}, {"column": ["id", "text"]}])
def test_open_features_of_texts_depend_on_every_option(
    synthetic: Synthetic, home: Path, chosen: dict
) -> None:
    first = open_features(PINA, synthetic, DOCUMENT)
    other = open_features(PINA.model_copy(update=chosen), synthetic, DOCUMENT)
    assert first.digest == open_features(PINA, synthetic, DOCUMENT).digest != other.digest


class Dated(CorpusDataset):
    """Twenty documents of two topics, one a day."""

    def read(self):
        from match_graph.corpus_builder import CorpusBuilder

        builder = CorpusBuilder("dated", [], "documents")
        for day in range(20):
            topic = ("graphs", "cakes")[day % 2]
            split = "train" if day < 14 else "valid" if day < 16 else "test"
            text = f"{topic} {topic} about day{day % 3}"
            builder.add(f"d{day}", split, text, {}, [topic], f"row {day}", day)
            builder.set_name("label", topic, f"All about {topic}")
        return builder.build()


def test_make_text_vectors_of_some_candidates(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three candidates, drawn evenly from fourteen documents, has its own vector."""
    monkeypatch.setattr("match_graph.features.neighbors.MAX_CANDIDATES", 3)
    dataset = Dated(root=tmp_path)
    texts = list_texts(dataset, DOCUMENT, ["text"])
    source = FeatureSource(latent=4, neighbors=2)
    _, made = make_text_vectors(source, dataset, DOCUMENT, texts, None)
    assert made.predictor is not None
    chosen = dataset.documents(MASKS["train"])[[0, 6, 13]]
    own = torch.from_numpy(made.own.embed([texts[one] for one in chosen.tolist()]))
    torch.testing.assert_close(made.predictor.documents, normalize(own.float(), dim=1))


def test_open_features_of_names(tmp_path: Path, home: Path, capsys) -> None:
    """Latent vectors of labels, of all their names; fewer than asked for are warned of."""
    dataset, reporter = Dated(root=tmp_path), Reporter(quiet=True)
    x = open_features(FeatureSource(latent=4), dataset, "label", reporter=reporter).x
    assert x.abs().tolist() == [[1.0], [1.0]]
    assert capsys.readouterr().err == (
        "warning: data.features.label.latent asks for 4 components, but the texts allow 1\n"
    )
    open_features(FeatureSource(latent=1), dataset, "label", reporter=reporter)
    assert capsys.readouterr().err == ""


def test_open_features_of_names_of_all_labels(tmp_path: Path, home: Path) -> None:
    """Names of labels without training documents are in the latent space too."""
    labels = {"train": ["red box", "red cup", "box cup"], "test": ["old box", "old cup"]}
    rows = [(split, split, "some words", names) for split, names in labels.items()]
    frame = pd.DataFrame(rows, columns=["id", "split", "text", "label"])
    dataset = open_dataset(from_frames(frame, columns={"split": "split"}), root=tmp_path)
    x = open_features(FeatureSource(latent=4), dataset, "label").x
    assert len(x.unique(dim=0)) == 5  # "old box" is not "box" alone


def test_open_features_of_names_of_training(tmp_path: Path, home: Path) -> None:
    """Metadata of test documents change no vector of those of training."""

    def embed(of_test: list[str]) -> Tensor:
        rows = [(f"d{n}", "train", f"ann b{n % 3} c{n % 2}") for n in range(8)]
        rows += [(f"e{n}", "test", one) for n, one in enumerate(of_test)]
        frame = pd.DataFrame(rows, columns=["id", "split", "author"]).assign(text="", label="l")
        corpus = from_frames(frame, fields=["author"], columns={"split": "split"})
        dataset = open_dataset(corpus, root=tmp_path)
        x = open_features(FeatureSource(latent=2), dataset, "author").x
        return x[dataset.graph.node_tensor("author", "train_count") > 0]

    assert torch.equal(embed(["ann c1"]), embed(["b0 d", "b1 d", "c0 d"]))


def test_open_features_of_earlier_neighbours(tmp_path: Path, home: Path) -> None:
    """The first document of a topic has no earlier one; those of test have what they had."""
    dataset = Dated(root=tmp_path)
    source = FeatureSource(latent=4, neighbors=5)
    free = open_features(source, dataset, DOCUMENT).x[:, 4:]
    bound = open_features(source.model_copy(update={"earlier": True}), dataset, DOCUMENT).x[:, 4:]
    test = dataset.documents(MASKS["test"])
    torch.testing.assert_close(bound[test], free[test], atol=2e-3, rtol=0)
    assert not torch.allclose(bound[:2], free[:2], atol=1e-2)


def test_open_features_refuses_neighbours_that_cannot_be(synthetic: Synthetic, home: Path) -> None:
    """Neighbours of labels, and earlier ones without times, are refused."""
    with pytest.raises(CorpusError) as error:
        open_features(FeatureSource(latent=2, neighbors=1, column=["id"]), synthetic, "label")
    assert str(error.value) == (
        "Neighbours can be predicted for documents, found data.features.label.neighbors; leave it "
        "out."
    )
    timeless = FeatureSource(latent=2, neighbors=1, earlier=True)
    with pytest.raises(CorpusError) as error:
        open_features(timeless, synthetic, DOCUMENT)
    assert str(error.value) == (
        "Neighbours no later than a document need a time for every document, but 'synthetic' has "
        "none; leave out data.features.document.earlier."
    )


def test_read_text_vectors_refuses_another_file(
    synthetic: Synthetic, home: Path, tmp_path: Path
) -> None:
    """One that lacks a tensor, one whose sizes differ, one that is damaged."""
    from safetensors.torch import load_file, save_file

    found = open_features(PINA, synthetic, DOCUMENT)
    tensors = load_file(found.path.with_name(VECTORS))
    path = tmp_path / "other.safetensors"
    short = {**tensors, "neighbors.labels": tensors["neighbors.labels"][1:].clone()}
    for broken in ({**tensors, "latent.words": torch.zeros(3, dtype=torch.uint8)}, short, {}):
        save_file(broken, path)
        with pytest.raises(CheckpointError, match="must hold what makes features of texts"):
            read_text_vectors(path, None)
    path.write_bytes(b"no tensors")
    with pytest.raises(CheckpointError, match="safetensors"):
        read_text_vectors(path, None)
