"""The planted corpus: seeded, learnable, closed upwards, dirty on purpose."""

import itertools
import tracemalloc
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from match_graph.datasets import Synthetic, planted
from match_graph.datasets.synthetic import close_upwards, draw_hierarchy
from match_graph.errors import ConfigError, CorpusError
from match_graph.graph import describe_graph


def gold_sets(dataset: Synthetic) -> list[set[int]]:
    ptr, index = dataset.targets.ptr.tolist(), dataset.targets.index.tolist()
    return [set(index[start:stop]) for start, stop in itertools.pairwise(ptr)]


@pytest.fixture(scope="module")
def default(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    """The data set with its defaults."""
    return Synthetic(root=tmp_path_factory.mktemp("default"))


def test_Synthetic_same_seed_gives_the_same_corpus(tmp_path: Path) -> None:
    """One seed gives equal tables and keys."""
    left, right = (Synthetic(num_documents=200, seed=3, root=tmp_path / name) for name in "ab")
    assert left.checksum == right.checksum
    one, two = left.read(), right.read()
    assert one.documents.equals(two.documents)
    assert one.hierarchy.equals(two.hierarchy)
    for name in one.edges:
        assert one.edges[name].equals(two.edges[name])
        assert one.instances[name].equals(two.instances[name])
    for node_type in left[0].node_types:
        assert left.table(node_type).equals(right.table(node_type))
    for edge_type in left[0].edge_types:
        assert torch.equal(left[0][edge_type].edge_index, right[0][edge_type].edge_index)


def test_Synthetic_another_seed_gives_another_corpus(tmp_path: Path) -> None:
    """Another seed gives another key, other words and labels."""
    left, right = (Synthetic(num_documents=200, seed=seed, root=tmp_path) for seed in (0, 1))
    assert left.checksum != right.checksum
    assert left.table("document")["text"].tolist() != right.table("document")["text"].tolist()
    assert gold_sets(left) != gold_sets(right)


@pytest.mark.parametrize(
    "changed", [{"num_labels": 30}, {"num_layers": 3}, {"num_words": 300}, {"topic_share": 0.5}]
)
def test_Synthetic_every_option_changes_the_key(changed: dict[str, Any]) -> None:
    """Options are part of the checksum."""
    base = {"num_documents": 200, "num_labels": 20, "num_layers": 2, "num_words": 200}
    assert Synthetic(**base).checksum != Synthetic(**{**base, **changed}).checksum


def test_Synthetic_labels_are_closed_upwards(default: Synthetic) -> None:
    """P(parent | child) is 1 on every edge."""
    edges = default.hierarchy.edge_index.T.tolist()
    assert edges
    for labels in gold_sets(default):
        assert all(parent in labels for child, parent in edges if child in labels)
    probability = default.hierarchy.parent_given_child(
        default.targets, torch.arange(default.num_documents)
    )
    assert set(probability.tolist()) == {1.0}


@pytest.mark.parametrize("seed", range(5))
def test_the_default_hierarchy_has_a_diamond(seed: int) -> None:
    """Some label has two parents with a common ancestor."""
    child, parent, _ = draw_hierarchy(np.random.default_rng(seed), 60, 4)
    graph = nx.DiGraph(list(zip(child.tolist(), parent.tolist(), strict=True)))
    pairs = [list(graph.successors(node)) for node in graph if graph.out_degree(node) > 1]
    assert any(nx.descendants(graph, one) & nx.descendants(graph, two) for one, two in pairs)


def test_Synthetic_diamond_is_in_the_built_graph(default: Synthetic) -> None:
    """The diamond survives contraction and sorting by frequency."""
    parents: dict[int, list[int]] = {}
    for child, parent in default.hierarchy.edge_index.T.tolist():
        parents.setdefault(child, []).append(parent)
    above = default.hierarchy.closure
    pairs = [pair for pair in parents.values() if len(pair) == 2]
    assert any((above[[one]] * above[[two]]).count_nonzero() for one, two in pairs)


@pytest.mark.parametrize(
    ("num_labels", "num_layers"), [(10, 2), (10, 9), (10, 10), (16, 16), (17, 16), (60, 4), (97, 3)]
)
def test_draw_hierarchy_links_each_layer_to_the_one_above(num_labels: int, num_layers: int) -> None:
    """All but roots have one or two distinct parents one layer above."""
    child, parent, layer = draw_hierarchy(np.random.default_rng(0), num_labels, num_layers)
    assert len(layer) == num_labels
    assert sorted(set(layer.tolist())) == list(range(num_layers))
    assert (layer[child] == layer[parent] + 1).all()
    assert len(set(zip(child.tolist(), parent.tolist(), strict=True))) == len(child)
    assert set(child.tolist()) == set(np.flatnonzero(layer > 0).tolist())
    assert np.bincount(child).max() <= 2


def test_close_upwards_equals_networkx() -> None:
    """Each row holds the label and its ancestors, as networkx finds them."""
    child, parent, _ = draw_hierarchy(np.random.default_rng(1), 40, 4)
    graph = nx.DiGraph(list(zip(child.tolist(), parent.tolist(), strict=True)))
    for label, row in enumerate(close_upwards(child, parent, 40)):
        assert [member for member in row if member >= 0] == sorted(
            {label, *nx.descendants(graph, label)}
        )


def test_Synthetic_it_is_dirty_on_purpose(default: Synthetic) -> None:
    """Texts, venues, authors and labels may be missing; some lists are extreme."""
    corpus = default.read()
    num_documents = corpus.num_documents
    sizes = {
        name: np.bincount(edges["document"], minlength=num_documents)
        for name, edges in corpus.edges.items()
    }
    for name in ("word", "venue", "author", "reference", "label"):
        assert 0 < (sizes[name] == 0).mean() < 0.15, name
    assert (corpus.documents["text"] == "").sum() == (sizes["word"] == 0).sum()
    assert sizes["author"][0] > 20 * np.median(sizes["author"])
    in_hierarchy = set(corpus.hierarchy["child"]) | set(corpus.hierarchy["parent"])
    labels = set(corpus.instances["label"]["id"])
    assert labels - in_hierarchy == {"l60"}
    assert "unused" in in_hierarchy - labels
    train_count = default[0]["author"].train_count
    assert (train_count == 0).any()
    assert (train_count == 1).any()
    assert default[0]["document", "cites", "document"].edge_index.size(1) > 0
    inside = corpus.instances["reference"]["id"].isin(corpus.documents["id"])
    assert inside.any()
    assert not inside.all()
    assert not all(name.isascii() for name in corpus.instances["author"]["id"])


def test_Synthetic_splits_are_eight_one_one(default: Synthetic) -> None:
    """The splits are 8 : 1 : 1."""
    assert default.table("document")["split"].value_counts().to_dict() == {
        "train": 1600,
        "valid": 200,
        "test": 200,
    }


def test_Synthetic_words_follow_zipf(tmp_path: Path) -> None:
    """Without topics, the frequency of the word of rank r is proportional to 1 / r."""
    dataset = Synthetic(num_words=1000, topic_share=0.0, root=tmp_path)
    counts = dataset.read().edges["word"]["instance"].value_counts().to_numpy()[:200]
    slope = np.polyfit(np.log(np.arange(1, 201)), np.log(counts), 1)[0]
    assert -1.15 < slope < -0.85


def test_Synthetic_text_is_its_word_sequence(synthetic: Synthetic) -> None:
    """Raw texts equal the sequences of `contains` edges."""
    data, words = synthetic[0], synthetic.names("word").tolist()
    texts: list[list[str]] = [[] for _ in range(400)]
    for document, word in data["document", "contains", "word"].edge_index.T.tolist():
        texts[document].append(words[word])
    assert synthetic.table("document")["text"].tolist() == [" ".join(text) for text in texts]


def balanced_accuracy(dataset: Synthetic) -> float:
    """Balanced accuracy of naive Bayes for one frequent label on unseen documents."""
    table, gold = dataset.table("document"), gold_sets(dataset)
    share = np.bincount([label for labels in gold for label in labels]) / len(gold)
    label = int(np.abs(share - 0.35).argmin())
    truth = np.array([label in labels for labels in gold])
    train = (table["split"] == "train").to_numpy()
    words = CountVectorizer(token_pattern=r"\S+").fit_transform(table["text"])
    model = MultinomialNB(fit_prior=False).fit(words[train], truth[train])
    found = model.predict(words[~train])
    hits = [(found[truth[~train] == value] == value).mean() for value in (False, True)]
    return float(np.mean(hits))


def test_Synthetic_words_predict_labels(default: Synthetic) -> None:
    """Naive Bayes is far above chance."""
    assert balanced_accuracy(default) > 0.7


def test_Synthetic_random_labels_are_not_predictable(tmp_path: Path) -> None:
    """With random labels naive Bayes is at chance, within three standard errors."""
    accuracy = balanced_accuracy(Synthetic(random_labels=True, root=tmp_path))
    assert abs(accuracy - 0.5) < 0.09


def test_Synthetic_random_labels_keep_the_marginals(default: Synthetic, tmp_path: Path) -> None:
    """Random labels are label sets that are moved to other documents."""
    shuffled = Synthetic(random_labels=True, root=tmp_path).read()
    plain = default.read()
    frequency = [
        corpus.edges["label"]["instance"].map(corpus.instances["label"]["id"]).value_counts()
        for corpus in (plain, shuffled)
    ]
    labels = [label for label in frequency[0].index if label != "l60"]
    # 0.5 % of the documents lose their labels, others in either corpus
    assert (frequency[0][labels] - frequency[1][labels]).abs().max() <= 20


def test_Synthetic_two_hundred_documents_are_enough(tmp_path: Path) -> None:
    """The smallest size builds and validates."""
    assert Synthetic(num_documents=200, root=tmp_path)[0].validate()


@pytest.mark.parametrize(
    ("name", "bound"),
    [("num_documents", 200), ("num_labels", 10), ("num_layers", 2), ("num_words", 100)],
)
def test_Synthetic_too_small_is_refused(name: str, bound: int) -> None:
    """A size below its bound is refused with bound and value."""
    with pytest.raises(ConfigError) as caught:
        Synthetic(**{name: bound - 1})
    assert str(caught.value) == (
        f"The options of Synthetic must be valid: '{name}': Input should be greater than or equal "
        f"to {bound}, found {bound - 1}."
    )


@pytest.mark.parametrize(
    "given",
    [
        {"num_documents": 200.0},
        {"words_per_document": 0},
        {"words_per_document": float("inf")},
        {"topic_share": float("nan")},
        {"topic_share": -0.1},
        {"random_labels": "yes"},
        {"seed": -1},
    ],
)
def test_Synthetic_impossible_values_are_refused(given: dict[str, Any]) -> None:
    """Values that NumPy could not handle are one sentence."""
    with pytest.raises(
        ConfigError, match=f"^The options of Synthetic must be valid: '{next(iter(given))}'"
    ):
        Synthetic(**given)


def test_Synthetic_more_layers_than_labels_are_refused() -> None:
    """More layers than labels are refused."""
    with pytest.raises(ConfigError) as caught:
        Synthetic(num_labels=10, num_layers=11)
    assert str(caught.value) == (
        "The options of Synthetic must be valid: each layer needs a label, found num_labels=10 and "
        "num_layers=11; ask for fewer layers."
    )


def test_Synthetic_card_has_the_counts(default: Synthetic) -> None:
    """The counts of the card are those of the defaults."""
    card = (Path(__file__).parents[2] / "datasets" / "synthetic.md").read_text(encoding="utf-8")
    rows = describe_graph(default[0], default.targets)

    def show(*names: str) -> str:
        return ", ".join(f"{rows[name]:,}" for name in names)

    fields = ("venue", "author", "reference")
    assert f"| {rows['words / document']:.1f}, {show('vocabulary')} |" in card
    assert f"| {show(*(f'{name} nodes' for name in fields))} |" in card
    assert f"| {show(*(f'document-{name} edges' for name in fields))} |" in card
    assert f"| {show('document cites document edges')} |" in card
    labels = f"{rows['labels']} ({rows['labels / document']:.2f})"
    assert f"| {labels}, {show('hierarchy edges')} |" in card


def test_Synthetic_sizes_that_no_memory_holds_are_refused(tmp_path: Path) -> None:
    """Sizes beyond memory or int64 are refused before anything is drawn."""
    with pytest.raises(CorpusError, match="is drawn in memory, but this one needs about"):
        Synthetic(num_documents=100_000_000, words_per_document=9_000.0, root=tmp_path)
    with pytest.raises(CorpusError, match="is drawn in memory, but this one needs about"):
        Synthetic(num_labels=9_000_000, num_layers=9_000_000, root=tmp_path)
    with pytest.raises(ConfigError, match="less than or equal to 100000000"):
        Synthetic(num_documents=10**30, root=tmp_path)


def test_Synthetic_vocabulary_is_not_marked_word_by_word() -> None:
    """A large vocabulary, for which no mask is made, gives the same corpus."""
    numbers = np.random.default_rng(0).integers(0, 1000, 500)
    marked = planted._name("word", numbers)
    sorted_ = planted._name("word", numbers[:50])
    assert [sorted_[0][code] for code in sorted_[1]] == [marked[0][code] for code in marked[1][:50]]
    assert sorted_[0] == sorted(sorted_[0], key=lambda word: int(word[1:]))
    tracemalloc.start()
    words, codes = planted._name("word", np.array([10**9, 3]))
    assert (words, codes.tolist()) == (["w3", "w1000000000"], [1, 0])
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
