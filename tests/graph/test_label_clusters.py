"""Label features against scikit-learn, clusters by their promises, sizes and numbers of nodes."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfTransformer

from match_graph.errors import GraphError
from match_graph.graph import BuiltGraph
from match_graph.graph.label_clusters import (
    cluster_labels,
    find_parents,
    label_features,
    tree_sizes,
)


def make_features(num_labels: int, num_columns: int = 12, seed: int = 0) -> sp.csr_array:
    """Sparse rows of length 1; some are zero."""
    random = np.random.default_rng(seed)
    dense = random.random((num_labels, num_columns)) * (random.random((num_labels, 1)) < 0.9)
    dense *= random.random(dense.shape) < 0.3
    dense /= np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-12)
    return sp.csr_array(dense.astype(np.float32))


def test_tree_sizes_are_those_of_the_paper() -> None:
    """Wiki-500K has 8,192 clusters of up to 64 labels; MAG-CS 256; few labels have no tree."""
    assert tree_sizes(501_070, 10_000, 64) == (8_192, 501_070)
    assert tree_sizes(15_809, 10_000, 64) == (256, 15_809)
    assert tree_sizes(670_091, 10_000, 64) == (256, 16_384, 670_091)
    assert tree_sizes(10_000, 10_000, 64) == (10_000,)


@given(st.integers(1, 5_000), st.integers(1, 300), st.integers(2, 70))
def test_tree_sizes_every_level_is_small_enough_for_that_above(
    num_labels: int, flat_labels: int, cluster_size: int
) -> None:
    """The top within its limit, at most cluster_size below a node, powers of 2 but the labels."""
    sizes = tree_sizes(num_labels, flat_labels, cluster_size)
    assert sizes[-1] == num_labels
    assert sizes[0] <= flat_labels
    for above, below in pairwise(sizes):
        assert above & (above - 1) == 0
        assert above < below <= above * cluster_size


@given(st.integers(1, 60), st.integers(0, 5), st.integers(0, 3))
def test_cluster_labels_clusters_are_balanced_and_whole(
    num_labels: int, power: int, seed: int
) -> None:
    """Every label is in one cluster, sizes differ by at most 1, and a seed gives one result."""
    num_clusters = min(2**power, 1 << (num_labels.bit_length() - 1))
    features = make_features(num_labels, seed=seed)
    cluster = cluster_labels(features, num_clusters, seed)
    assert cluster.shape == (num_labels,)
    sizes = Counter(cluster.tolist())
    assert set(sizes) == set(range(num_clusters))
    assert max(sizes.values()) - min(sizes.values()) <= 1
    assert torch.equal(cluster_labels(features, num_clusters, seed), cluster)


def test_cluster_labels_of_one_topic_are_in_one_cluster() -> None:
    """Eight topics of 16 labels with words of their own are found, whatever the first centres."""
    random = np.random.default_rng(0)
    topic = random.permutation(np.repeat(np.arange(8), 16))
    dense = np.zeros((128, 8 * 30), np.float32)
    for label, own in enumerate(topic):
        words = 30 * own + random.choice(30, 20, replace=False)
        dense[label, words] = 1 / np.sqrt(20)
    purity = []
    for seed in range(5):
        cluster = cluster_labels(sp.csr_array(dense), 8, seed).numpy()
        counts = [Counter(topic[cluster == number]).most_common(1)[0][1] for number in range(8)]
        purity.append(sum(counts) / 128)
    assert np.mean(purity) > 0.8  # 0.26 by chance


def test_cluster_labels_one_halving_equals_dense_implementation() -> None:
    """2-means of one cluster in float64 from the same two labels."""
    features = make_features(31, seed=3)
    dense = features.toarray().astype(float)
    first, second = np.argsort(np.random.default_rng(7).random(31))[:2]
    centres = [dense[first], dense[second]]
    half, best = None, -np.inf
    while True:
        unit = [centre / max(np.linalg.norm(centre), 1e-12) for centre in centres]
        score = dense @ (unit[1] - unit[0])
        found = np.zeros(31, int)
        found[np.argsort(score, kind="stable")[16:]] = 1
        gain = np.where(found == 1, score, -score).mean()
        if gain <= best + 1e-4:
            break
        half, best = found, gain
        centres = [dense[half == 0].sum(axis=0), dense[half == 1].sum(axis=0)]
    assert cluster_labels(features, 2, seed=7).tolist() == half.tolist()


def test_find_parents_are_prefixes() -> None:
    """Clusters of one half lie side by side; the labels' parents are their leaves."""
    leaf = torch.tensor([3, 0, 7, 5])
    assert find_parents(leaf, (4,)) == []
    (only,) = find_parents(leaf, (8, 4))
    assert only is leaf
    upper, last = find_parents(leaf, (2, 8, 4))
    assert upper.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert last is leaf


def test_label_features_are_means_tfidf_as_scikit_learn_has_it(toy_graph: BuiltGraph) -> None:
    """Of the training documents alone; zero rows for labels that none of them carries."""
    data, targets = toy_graph.data, toy_graph.targets
    documents = data["document"].train_mask.nonzero().view(-1)
    features = label_features(data, targets, documents)
    counts = np.zeros((int(data["document"].num_nodes), int(data["word"].num_nodes)))
    document, word = data["document", "contains", "word"].edge_index.numpy()
    np.add.at(counts, (document, word), 1)
    tfidf = TfidfTransformer().fit_transform(counts[documents.numpy()]).toarray()
    ptr, index = targets.select(documents)
    expected = np.zeros((targets.num_labels, counts.shape[1]))
    for row in range(len(documents)):
        for label in index[ptr[row] : ptr[row + 1]].tolist():
            expected[label] += tfidf[row]
    norm = np.linalg.norm(expected, axis=1, keepdims=True)
    assert features.toarray() == pytest.approx(expected / np.maximum(norm, 1e-12), abs=1e-6)
    assert set((norm == 0).ravel().tolist()) == {True, False}


@pytest.mark.parametrize("num_clusters", [0, 3, 8])
def test_cluster_labels_impossible_numbers_clusters_one_sentence(num_clusters: int) -> None:
    """No power of 2, or more than labels."""
    with pytest.raises(GraphError) as caught:
        cluster_labels(make_features(5), num_clusters)
    assert str(caught.value) == (
        f"Labels are clustered into a power of 2 that is at most their number, found "
        f"{num_clusters} clusters for 5 labels; change cluster_size."
    )
