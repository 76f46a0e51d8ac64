"""The planted corpus at the sizes of the paper: counts met exactly, learnable, nothing twice."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from match_graph.corpus import Corpus
from match_graph.datasets import Synthetic, open_dataset
from match_graph.datasets.paper_size import (
    draw_dag,
    draw_paper,
    settle_counts,
)
from match_graph.datasets.planted import PlantedReader
from match_graph.datasets.table_one import PAPER_SIZES, PaperSize
from match_graph.errors import ConfigError
from match_graph.graph import build_graph, describe_graph


def draw_corpus(name: str, size: PaperSize, seed: int) -> Corpus:
    return PlantedReader(name, size.documents, partial(draw_paper, size, seed)).read_corpus()


@pytest.mark.parametrize("name", sorted(PAPER_SIZES))
def test_draw_paper_every_count_is_met_exactly(name: str, tmp_path: Path) -> None:
    """Counts of Table 1 are met, at a hundredth of documents and labels."""
    size = PAPER_SIZES[name].scale(0.01, 0.01)
    graph = build_graph(draw_corpus(name, size, seed=0))
    rows = describe_graph(graph.data, graph.targets)
    found = {
        "train": rows["train documents"],
        "valid": rows["valid documents"],
        "test": rows["test documents"],
        "labels": rows["labels"],
        "label_pairs": len(graph.targets.index),
        "words": rows["vocabulary"],
        "tokens": graph.data["document", "contains", "word"].edge_index.size(1),
        "authors": rows["author nodes"],
        "author_edges": rows["document-author edges"],
        "venues": rows["venue nodes"],
        "citations": rows["document cites document edges"],
        "hierarchy_edges": rows["hierarchy edges"],
        "layers": rows["hierarchy layers"],
    }
    assert found == asdict(size)
    assert rows["document-venue edges"] == size.documents
    assert rows["document-reference edges"] == size.citations


def test_draw_paper_nothing_is_twice_and_first_parents_are_gold() -> None:
    """Labels, authors and references are distinct; a gold label has a gold parent."""
    corpus = draw_corpus("x", PAPER_SIZES["mag-cs"].scale(0.02, 0.02), seed=1)
    for name in ("label", "author", "reference", "venue"):
        assert not corpus.edges[name].duplicated().any(), name
    cited = corpus.instances["reference"]["id"].to_numpy()[corpus.edges["reference"]["instance"]]
    citing = corpus.documents["id"].to_numpy()[corpus.edges["reference"]["document"]]
    assert not (cited == citing).any()
    gold = corpus.edges["label"].merge(
        corpus.instances["label"], left_on="instance", right_index=True
    )
    parents = gold.merge(corpus.hierarchy, left_on="id", right_on="child")
    pairs = set(zip(gold["document"], gold["id"], strict=True))
    parents["is_gold"] = [
        pair in pairs for pair in zip(parents["document"], parents["parent"], strict=True)
    ]
    assert parents.groupby(["document", "child"])["is_gold"].any().all()
    assert not parents["is_gold"].all()


def test_draw_paper_same_seed_gives_the_same_corpus() -> None:
    """The corpus depends on the seed alone."""
    size = PAPER_SIZES["mag-cs"].scale(0.01, 0.01)
    one, two, other = (draw_corpus("x", size, seed) for seed in (3, 3, 4))
    for name in one.edges:
        assert one.edges[name].equals(two.edges[name])
        assert one.instances[name].equals(two.instances[name])
    assert one.documents.equals(two.documents)
    assert one.hierarchy.equals(two.hierarchy)
    assert not one.edges["word"].equals(other.edges["word"])


@pytest.mark.parametrize("field", ["text", "venue"])
def test_Synthetic_words_and_venues_predict_labels(field: str) -> None:
    """Naive Bayes predicts a frequent label of unseen documents far above chance."""
    dataset = Synthetic(like="mag-cs", scale=0.005, label_scale=0.005)
    corpus = dataset.read()
    texts = corpus.documents["text"]
    if field == "venue":
        texts = corpus.edges["venue"]["instance"].astype(str)
    count = np.bincount(corpus.edges["label"]["instance"])
    label = int(np.abs(count - 0.2 * corpus.num_documents).argmin())
    truth = np.zeros(corpus.num_documents, dtype=bool)
    truth[corpus.edges["label"]["document"][corpus.edges["label"]["instance"] == label]] = True
    train = (corpus.documents["split"] == "train").to_numpy()
    counts = CountVectorizer(token_pattern=r"\S+").fit_transform(texts)
    found = MultinomialNB(fit_prior=False).fit(counts[train], truth[train]).predict(counts[~train])
    hits = [(found[truth[~train] == value] == value).mean() for value in (False, True)]
    assert np.mean(hits) > 0.7


@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_settle_counts_settled_counts_keep_sum_and_bounds(number: int, seed: int) -> None:
    """Any counts are adjusted to the sum within the bounds."""
    rng = np.random.default_rng(seed)
    low, high = rng.integers(0, 4, number), rng.integers(4, 9, number)
    total = int(rng.integers(low.sum(), high.sum() + 1))
    counts = settle_counts(rng, 12 * rng.random(number) - 3, total, low, high)
    assert counts.sum() == total
    assert ((low <= counts) & (counts <= high)).all()


@pytest.mark.parametrize(
    ("labels", "edges", "layers"), [(60, 90, 6), (200, 250, 15), (400, 800, 4)]
)
def test_draw_dag_has_its_counts(labels: int, edges: int, layers: int) -> None:
    """Edges are distinct and between adjacent layers; every label has a chain."""
    child, parent, chain = draw_dag(np.random.default_rng(0), labels, edges, layers)
    depth = (chain >= 0).sum(axis=1)
    assert len(set(zip(child.tolist(), parent.tolist(), strict=True))) == len(child) == edges
    assert (depth[child] == depth[parent] + 1).all()
    assert sorted(set(depth.tolist())) == list(range(1, layers + 1))
    assert (chain[np.arange(labels), depth - 1] == np.arange(labels)).all()
    known = set(zip(child.tolist(), parent.tolist(), strict=True))
    for row, length in zip(chain.tolist(), depth.tolist(), strict=True):
        assert all((row[k], row[k - 1]) in known for k in range(1, length))
    assert set(np.flatnonzero(depth == 1)) <= set(parent.tolist())


def test_open_dataset_options_open_it(tmp_path: Path) -> None:
    """The option like opens it, with raw texts if it is small."""
    options = {"like": "mag-cs", "scale": 0.005, "label_scale": 0.005}
    dataset = open_dataset("synthetic", root=tmp_path, **options)
    assert dataset.name == "synthetic-mag-cs"
    assert dataset[0]["document"].num_nodes == dataset.num_documents == 2822 + 353 + 353
    first = dataset.table("document")["text"].iloc[0].split()
    words = dataset.names("word")
    row, col = dataset[0]["document", "contains", "word"].edge_index
    assert first == [words[index] for index in col[row == 0].tolist()]
    again = Synthetic(root=tmp_path, **options)
    assert again.checksum == dataset.checksum
    assert again.checksum != Synthetic(root=tmp_path, **options, seed=1).checksum


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            {"like": "mag-cs", "num_documents": 500, "num_words": 300},
            "like takes all sizes from the paper, found num_documents, num_words beside "
            "like=mag-cs; use scale and label_scale.",
        ),
        (
            {"scale": 0.5},
            "scale and label_scale are factors of a size of the paper, found like=None; set like "
            "to one of ['mag-cs', 'pubmed'].",
        ),
        (
            {"like": "mag-cs", "label_scale": 0.001},
            "a hierarchy of 6 layers needs 60 labels, found 16; raise label_scale.",
        ),
        (
            {"like": "pubmed", "scale": 0.01},
            "17963 labels and 150 venues need twice as many documents, found 8986; raise scale or "
            "lower label_scale.",
        ),
    ],
)
def test_Synthetic_sizes_that_cannot_be_are_refused(options: dict, fault: str) -> None:
    """Impossible sizes are refused in one sentence, before anything is drawn."""
    with pytest.raises(ConfigError) as caught:
        Synthetic(**options)
    assert str(caught.value) == f"The options of Synthetic must be valid: {fault}"
