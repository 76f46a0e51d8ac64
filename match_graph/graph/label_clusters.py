"""A shallow and wide tree of label clusters, by balanced 2-means over TF-IDF label features."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.adjacency import Adjacency
from match_graph.graph.csr import select_rows
from match_graph.graph.labels import Targets
from match_graph.graph.view import Graph, view_graph
from match_graph.typing import CONTAINS, WORD

#: Documents whose words are in memory at once.
_DOCUMENTS = 100_000
#: Maximum number of 2-means rounds, and the gain in mean cosine below which they end.
_MAX_ROUNDS, _LEAST_GAIN = 100, 1e-4


def tree_sizes(num_labels: int, flat_labels: int, cluster_size: int) -> tuple[int, ...]:
    """Number of nodes on each level of the tree, from the top to the labels.

    Args:
        num_labels: Number of labels L.
        flat_labels: Maximum size of the topmost level; levels are added until it holds.
        cluster_size: Maximum number of children of a node, at least 2.
    """
    sizes = [num_labels]
    while sizes[0] > max(flat_labels, 1):
        sizes.insert(0, count_clusters(sizes[0], cluster_size))
    return tuple(sizes)


def count_clusters(num_labels: int, cluster_size: int) -> int:
    """Number of clusters of at most ``cluster_size`` labels, a power of 2, by halving."""
    return 1 << (math.ceil(num_labels / cluster_size) - 1).bit_length()


def find_parents(leaf: Tensor, sizes: tuple[int, ...]) -> list[Tensor]:
    """The node above each node, for every level but the topmost.

    Args:
        leaf: Lowest cluster of each label, [L], int64.
        sizes: Number of nodes on each level, from `tree_sizes`.

    Returns:
        For each level from the second on [nodes of it], int64. The halves of a cluster have
        consecutive numbers, so that a parent's number is a prefix of its children's in bits.
    """
    clusters = [torch.arange(below) // (below // above) for above, below in pairwise(sizes[:-1])]
    return [*clusters, leaf] if len(sizes) > 1 else []


def label_features(data: Graph, targets: Targets, documents: Tensor) -> sp.csr_array:
    """Label features: mean TF-IDF of their training documents' words, unit vectors.

    Source: section 3.4 of AttentionXML (You et al., NeurIPS 2019),
    https://arxiv.org/abs/1811.01727.

    Args:
        data: A built graph.
        targets: Gold labels.
        documents: Training documents, [B], int64.

    Returns:
        [L, words], float32; a row of zeros for a label that no such document carries.
    """
    from sklearn.preprocessing import normalize

    graph = view_graph(data)
    lists, num_words = graph.adjacency(CONTAINS), graph.num_nodes(WORD)
    parts = documents.split(_DOCUMENTS)
    frequency = np.zeros(num_words, np.int64)
    for part in parts:
        frequency += np.bincount(_count_words(lists, part, num_words).indices, minlength=num_words)
    idf = np.log((1 + len(documents)) / (1 + frequency)) + 1
    total: Any = sp.csr_array((targets.num_labels, num_words), dtype=np.float32)
    for part in parts:
        counts = _count_words(lists, part, num_words)
        counts.data *= idf[counts.indices].astype(np.float32)
        total = total + (targets.to_sparse(part).T @ normalize(counts)).tocsr()
    return normalize(total)


def _count_words(lists: Adjacency, documents: Tensor, num_words: int) -> sp.csr_array:
    """Word counts of some documents, [B, words], float32."""
    ptr, word = select_rows(lists.ptr, lists.node, documents)
    entries = np.ones(len(word), np.float32), word.numpy(), ptr.numpy()
    counts = sp.csr_array(entries, shape=(len(documents), num_words))
    counts.sum_duplicates()
    return counts


def cluster_labels(features: sp.csr_array, num_clusters: int, seed: int = 0) -> Tensor:
    """Clusters of equal size, by halving: each step splits all clusters at once.

    Spherical 2-means with balance: labels are ordered by how much nearer they are to one centre
    than to the other, and cut in the middle; rounds go on until no cluster gains. All clusters of
    a step share each operation, whose cost is that of the features' nonzero values.

    Source: section 3.4 of AttentionXML, https://arxiv.org/abs/1811.01727, after Parabel (Prabhu et
    al., WWW 2018, https://doi.org/10.1145/3178876.3185998).

    Args:
        features: Label features, rows of length 1 or 0, [L, F].
        num_clusters: Number of clusters, a power of 2, at most L.
        seed: Random seed of the initial centres.

    Returns:
        The cluster of each label, [L], int64; sizes differ by at most 1 at every step.

    Raises:
        GraphError: ``num_clusters`` is not a power of 2, or there are fewer labels.
    """
    num_labels = features.shape[0]
    if num_clusters < 1 or num_clusters & (num_clusters - 1) or num_clusters > num_labels:
        raise GraphError(
            f"Labels are clustered into a power of 2 that is at most their number, found "
            f"{num_clusters} clusters for {num_labels} labels; change cluster_size."
        )
    random = np.random.default_rng(seed)
    cluster = np.zeros(num_labels, np.int64)
    for _ in range(num_clusters.bit_length() - 1):
        cluster = 2 * cluster + _halve(features, cluster, random)
    return torch.from_numpy(cluster)


def _halve(
    features: sp.csr_array, cluster: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """Half of its cluster to which each label is assigned, [L], 0 or 1."""
    num_clusters = int(cluster.max()) + 1
    row = np.repeat(np.arange(len(cluster)), np.diff(features.indptr))
    # one slot for each (cluster, column) that has a value: centres are as sparse as the features
    key = cluster[row] * features.shape[1] + features.indices
    columns, slot = np.unique(key, return_inverse=True)
    slot_cluster = columns // features.shape[1]
    size = np.bincount(cluster, minlength=num_clusters)

    def centre(members: NDArray[np.bool_]) -> NDArray[np.float64]:
        weights = features.data * members[row]
        total = np.bincount(slot, weights=weights, minlength=len(columns))
        square = np.bincount(slot_cluster, weights=total**2, minlength=num_clusters)
        unit: NDArray[np.float64] = total / np.sqrt(np.maximum(square, 1e-24))[slot_cluster]
        return unit

    # the first centres are two labels of each cluster: those first and second in a random order
    place = _places(cluster, random.random(len(cluster)))
    one, other = place == 0, place == 1
    half, best = np.zeros(len(cluster), np.int64), -np.inf
    for _ in range(_MAX_ROUNDS):
        nearer = features.data * (centre(other) - centre(one))[slot]
        score = np.bincount(row, weights=nearer, minlength=len(cluster))
        cut = (size[cluster] + 1) // 2
        found = (_places(cluster, score) >= cut).astype(np.int64)
        gain = float((score * (2 * found - 1)).mean())
        if gain <= best + _LEAST_GAIN:
            break
        half, best = found, gain
        one, other = half == 0, half == 1
    return half


def _places(cluster: NDArray[np.int64], score: NDArray[Any]) -> NDArray[np.int64]:
    """Rank of each label in its cluster by ascending score; equal scores keep their order."""
    order = np.lexsort((score, cluster))
    start = np.concatenate([[0], np.bincount(cluster).cumsum()[:-1]])
    place = np.empty(len(cluster), np.int64)
    place[order] = np.arange(len(cluster)) - start[cluster[order]]
    return place
