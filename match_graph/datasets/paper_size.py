"""Planted corpus with the exact counts of the paper's Table 1."""

import os
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from match_graph.corpus import Array
from match_graph.datasets.planted import PIECE, Planted, pack
from match_graph.datasets.table_one import PaperSize
from match_graph.errors import CorpusError

#: Ragged lists: offsets [D + 1] and values.
Lists: TypeAlias = tuple[Array, Array]
#: Draws instances for entries of documents [N]; among all instances if the second argument is true.
Draw: TypeAlias = Callable[[Array, bool], Array]

_ROOTS = 3
_TOPICS = 5  # topics that a document can have; their labels are cut at the document's own number
_TOPIC_WORDS = 40  # words of a label's own
_SHARE = 0.35  # of the words, from the document's labels
_TRIES = 4  # attempts by topic, after which a repeated edge is drawn from all instances


def check_memory(need: float) -> None:
    """Refuses more bytes than this machine has, before anything is drawn."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if need > there:
        raise CorpusError(
            f"A synthetic corpus is drawn in memory, but this one needs about "
            f"{need / 2**30:,.0f} GiB of {there / 2**30:,.0f}; ask for a smaller one."
        )


def draw_paper(size: PaperSize, seed: int) -> Planted:
    """A learnable corpus of exactly these counts; its words are drawn in blocks of documents.

    Topics of documents follow a power law; labels are the topics and the chains of their first
    parents, truncated from below at the document's number of labels. So the first parent of a gold
    label is gold, and a further parent only by chance. Words, venue, authors and cited documents
    depend in part on the labels and the first topic, as in `Synthetic`.

    Args:
        size: Counts of the corpus, whose `PaperSize.find_fault` is None.
        seed: Random seed; the same seed gives the same corpus.
    """
    rng = np.random.default_rng(seed)
    child, parent, chain = draw_dag(rng, size.labels, size.hierarchy_edges, size.layers)
    primary, label_ptr, label_index = _draw_labels(rng, size, chain)
    citations = pack(*_draw_citations(rng, size, primary), size.documents)
    return Planted(
        split=rng.permutation(np.repeat([0, 1, 2], [size.train, size.valid, size.test])),
        lists={
            "venue": (np.arange(size.documents + 1), _draw_venues(rng, size, chain[primary, 1])),
            "author": pack(*_draw_authors(rng, size, primary), size.documents),
            "reference": citations,
            "label": (label_ptr, label_index),
        },
        words=_PaperWords(rng, size, label_ptr, label_index, seed),
        edges=[*zip(child.tolist(), parent.tolist(), strict=True)],
    )


def draw_dag(
    rng: np.random.Generator, num_labels: int, num_edges: int, num_layers: int
) -> tuple[Array, Array, Array]:
    """A label DAG of exactly these counts; most labels are in the middle layers.

    Returns:
        Child and parent [E], parents one layer above; and the chain of first parents from the root
        to each label, -1 below it, [L, layers].
    """
    layer = np.arange(num_layers)
    weight = np.exp(-0.5 * ((layer - num_layers / 2) / (num_layers / 5)) ** 2)
    least = np.where(layer < 2, _ROOTS, 2)
    sizes = settle_counts(rng, weight / weight.sum() * num_labels, num_labels, least, num_labels)
    start = np.concatenate([[0], np.cumsum(sizes)])
    layer = np.repeat(layer, sizes)
    child = np.arange(sizes[0], num_labels)
    above = layer[child] - 1
    parent = start[above] + (rng.random(len(child)) * sizes[above]).astype(np.int64)
    parent[: sizes[1]] = np.arange(sizes[1]) % sizes[0]  # every root has a child

    edges = np.unique(child * num_labels + parent)
    while (missing := num_edges - len(edges)) > 0:
        lower = rng.integers(sizes[0], num_labels, missing)
        above = layer[lower] - 1
        upper = start[above] + (rng.random(missing) * sizes[above]).astype(np.int64)
        edges = np.unique(np.concatenate([edges, lower * num_labels + upper]))
    chain = np.full((num_labels, num_layers), -1, dtype=np.int64)
    chain[: sizes[0], 0] = np.arange(sizes[0])
    for number in range(1, num_layers):
        labels = np.arange(start[number], start[number + 1])
        chain[labels] = chain[parent[labels - sizes[0]]]
        chain[labels, number] = labels
    return edges // num_labels, edges % num_labels, chain


def settle_counts(
    rng: np.random.Generator, counts: Array, total: int, low: Array | int, high: Array | int
) -> Array:
    """Rounds counts, clips them to bounds, and adjusts them by ones until they sum to ``total``.

    Args:
        rng: Random generator that chooses the counts to adjust.
        counts: Counts before rounding, [N].
        total: Target sum, between the sums of the bounds.
        low: Lower bound of each count.
        high: Upper bound of each count.
    """
    settled = np.clip(np.rint(counts), low, high).astype(np.int64)
    while missing := total - int(settled.sum()):
        places = np.flatnonzero(settled < high if missing > 0 else settled > low)
        chosen = rng.choice(places, min(abs(missing), len(places)), replace=False)
        settled[chosen] += np.sign(missing)
    return settled


def _draw_labels(
    rng: np.random.Generator, size: PaperSize, chain: Array
) -> tuple[Array, Array, Array]:
    """First topic [D], and ragged lists of labels by document, root first: offsets and labels."""
    depth = (chain >= 0).sum(axis=1)  # labels on the chain
    candidates = rng.permutation(np.flatnonzero(depth > 1))
    weight = 1 / np.arange(1, len(candidates) + 1) ** 0.6
    topics = rng.choice(candidates, (size.documents, _TOPICS), p=weight / weight.sum())
    topics[: len(candidates), 0] = candidates  # every label is on some document
    parts = np.array_split(np.arange(size.documents), -(-size.documents // PIECE))
    available = np.concatenate(
        [(_distinct_labels(chain[topics[part]]) >= 0).sum(axis=1) for part in parts]
    )
    least = np.ones(size.documents, dtype=np.int64)
    least[: len(candidates)] = depth[candidates]
    wanted = rng.poisson(size.label_pairs / size.documents, size.documents)
    number = settle_counts(rng, wanted, size.label_pairs, least, available)
    labels = []
    for part in parts:
        distinct = _distinct_labels(chain[topics[part]])
        rank = np.cumsum(distinct >= 0, axis=1)
        labels.append(distinct[(distinct >= 0) & (rank <= number[part, None])])
    return topics[:, 0], np.concatenate([[0], np.cumsum(number)]), np.concatenate(labels)


def _distinct_labels(chains: Array) -> Array:
    """Distinct labels of each document's chains [D, topics, layers], [D, topics * layers].

    They are in order, with -1 in the place of repeated ones and where a chain ends.
    """
    distinct = chains.copy()
    for number in range(1, chains.shape[1]):
        again = (chains[:, :number] == chains[:, number : number + 1]).any(axis=1)
        distinct[:, number][again] = -1
    return distinct.reshape(len(chains), -1)


def _draw_venues(rng: np.random.Generator, size: PaperSize, topic: Array) -> Array:
    """A venue per document by its label of the second layer [D], 15 % at random; all occur."""
    venue = (topic * 7919 + (rng.random(size.documents) * 3).astype(np.int64)) % size.venues
    stray = rng.random(size.documents) < 0.15
    venue[stray] = rng.integers(0, size.venues, stray.sum())
    venue[rng.choice(size.documents, size.venues, replace=False)] = np.arange(size.venues)
    return venue


def _draw_authors(rng: np.random.Generator, size: PaperSize, primary: Array) -> tuple[Array, Array]:
    """(document, author) edges; authors stay with the first topic of their first document."""
    mean = size.author_edges / size.documents
    counts = rng.poisson(mean, size.documents)
    counts = settle_counts(rng, counts, size.author_edges, 0, max(10, round(8 * mean)))
    document = _spread(counts)
    begins = np.zeros(size.author_edges, dtype=bool)
    begins[rng.choice(size.author_edges, size.authors, replace=False)] = True
    author = np.zeros(size.author_edges, dtype=np.int64)
    author[begins] = np.arange(size.authors)
    known = ByTopic(primary[document[begins]], int(primary.max()) + 1)

    def draw(documents: Array, anywhere: bool) -> Array:
        if anywhere:
            return rng.integers(0, size.authors, len(documents))
        return known.draw(primary[documents], rng.random(len(documents)) ** 2)

    _draw_distinct(document, author, ~begins, draw, size.authors)
    return document, author


def _draw_citations(
    rng: np.random.Generator, size: PaperSize, primary: Array
) -> tuple[Array, Array]:
    """(document, cited document) edges, half within a first topic; no document cites itself."""
    mean = size.citations / size.documents
    counts = rng.poisson(mean, size.documents)
    counts = settle_counts(rng, counts, size.citations, 0, max(10, round(8 * mean)))
    document = _spread(counts)
    known = ByTopic(primary, int(primary.max()) + 1)

    def draw(documents: Array, anywhere: bool) -> Array:
        cited = rng.integers(0, size.documents, len(documents))
        if not anywhere:
            near = known.draw(primary[documents], rng.random(len(documents)))
            cited = np.where(rng.random(len(documents)) < 0.5, near, cited)
        return np.where(cited == documents, (cited + 1) % size.documents, cited)

    cited = np.zeros(size.citations, dtype=np.int64)
    everywhere = np.ones(size.citations, dtype=bool)
    _draw_distinct(document, cited, everywhere, draw, size.documents)
    return document, cited


class ByTopic:
    """Index of items by topic, to sample within a topic.

    Args:
        topic: Topic of each item, [N].
        num_topics: Number of topics, T.
    """

    def __init__(self, topic: Array, num_topics: int) -> None:
        self.order = np.argsort(topic, kind="stable")
        self.ptr = np.concatenate([[0], np.cumsum(np.bincount(topic, minlength=num_topics))])

    def draw(self, topic: Array, uniform: Array) -> Array:
        """Items of topics by uniform numbers in [0, 1); any item for a topic without one."""
        start, number = self.ptr[topic], np.diff(self.ptr)[topic]
        start, number = np.where(number, start, 0), np.where(number, number, len(self.order))
        return self.order[start + (uniform * number).astype(np.int64)]


def _draw_distinct(
    document: Array, instance: Array, movable: Array, draw: Draw, num_instances: int
) -> None:
    """Draws ``instance`` in place where ``movable``, until no document has one twice."""
    again, tries = np.flatnonzero(movable), 0
    while len(again):
        instance[again] = draw(document[again], tries >= _TRIES)
        key = document * num_instances + instance
        order = np.lexsort((movable, key))
        again, tries = order[1:][key[order[1:]] == key[order[:-1]]], tries + 1


class _PaperWords:
    """Words of the texts, drawn in blocks of documents; all words occur.

    Args:
        rng: Random generator of the lengths, and of one fixed position of each word.
        size: Counts of the corpus.
        label_ptr: Offsets of the documents' labels, [D + 1].
        label_index: Labels, packed by document.
        seed: Random seed of the blocks.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        size: PaperSize,
        label_ptr: Array,
        label_index: Array,
        seed: int,
    ) -> None:
        mean = size.tokens / size.documents
        lengths = rng.poisson(rng.gamma(4.0, mean / 4.0, size.documents))
        self.lengths = settle_counts(rng, lengths, size.tokens, 1, round(20 * mean))
        self._ptr = np.concatenate([[0], np.cumsum(self.lengths)])
        self._place = np.sort(rng.choice(size.tokens, size.words, replace=False))
        self._certain = rng.permutation(size.words)
        self._labels = label_ptr, label_index
        self._num_words, self._seed = size.words, seed

    def __call__(self, first: int, last: int) -> tuple[Array, Array]:
        """Lengths and words of a block of documents, as `Planted.words`."""
        rng = np.random.default_rng((self._seed, first))
        lengths, (start, stop) = self.lengths[first:last], self._ptr[[first, last]]
        word = draw_words(rng, self._num_words, _SHARE, _spread(lengths) + first, self._labels)
        low, high = np.searchsorted(self._place, (start, stop))
        word[self._place[low:high] - start] = self._certain[low:high]
        return lengths, word


def draw_words(
    rng: np.random.Generator, num_words: int, share: float, document: Array, labels: Lists
) -> Array:
    """A word for each entry: of one of the document's labels, or P(rank) ~ 1 / rank.

    Args:
        rng: Random generator.
        num_words: Number of words.
        share: Share of the words of labels, in documents that have one.
        document: Document of each entry, [N].
        labels: Labels by document.
    """
    # background by inverse transform sampling
    word = np.exp(rng.random(len(document)) * np.log(num_words)).astype(np.int64) - 1
    ptr, label = labels
    number = ptr[document + 1] - ptr[document]
    topical = np.flatnonzero((rng.random(len(document)) < share) & (number > 0))
    pick = (rng.random(len(topical)) * number[topical]).astype(np.int64)
    topic = label[ptr[document[topical]] + pick]
    rank = np.exp(rng.random(len(topical)) * np.log(_TOPIC_WORDS)).astype(np.int64)
    word[topical] = (topic * 7919 + rank * 104729) % num_words
    return word


def _spread(counts: Array) -> Array:
    """Row of every entry of a ragged list with these counts, int64."""
    return np.repeat(np.arange(len(counts)), counts)
