"""Synthetic corpus: labels generate words, venues, authors and references; dirty on purpose."""

from functools import partial
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from match_graph.config import StrictModel
from match_graph.corpus import Array
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.options import Card
from match_graph.datasets.paper_size import (
    ByTopic,
    check_memory,
    draw_paper,
    draw_words,
)
from match_graph.datasets.planted import Planted, PlantedReader, pack
from match_graph.datasets.table_one import PAPER_SIZES, PaperSize
from match_graph.typing import LABEL, WORD, Tokenizer

_GENERATOR = 3  # version of the generated corpus, part of the key of a build
# Peak memory of a word, of a document of the paper's sizes, and of a label in a layer.
_WORD_BYTES, _PAPER_BYTES, _PAIR_BYTES = 45, 600, 60
_ROOTS = 3  # if there are enough labels


class Synthetic(CorpusDataset):
    """Seeded synthetic corpus whose labels are learnable and follow the hierarchy.

    Topics are drawn by a power law and closed upwards over a label DAG with diamonds. Words come
    from the topics and their ancestors or from a Zipfian background; venues, authors and
    references come from the first topic. A few documents have no text, no venue, no author or no
    label; one label stands outside the hierarchy, one hierarchy node is on no document, one
    document has very many authors, and some instances are in training never or once.

    Raises:
        ConfigError: A size is too small or too large, there are more layers than labels, or a size
            is given beside ``like``.
        CorpusError: This machine cannot hold so much.
    """

    class Config(StrictModel):
        """Sizes and shares of the synthetic corpus."""

        num_documents: int = Field(
            2000, ge=200, le=100_000_000, description="documents, split 8 : 1 : 1"
        )
        num_labels: int = Field(60, ge=10, le=10_000_000, description="labels in the hierarchy")
        num_layers: int = Field(4, ge=2, le=10_000_000, description="layers of the hierarchy")
        num_words: int = Field(5000, ge=100, le=1_000_000_000, description="vocabulary")
        words_per_document: float = Field(
            40.0, gt=0, le=10_000, description="mean length of a text in words"
        )
        topic_share: float = Field(
            0.35, ge=0, le=1, description="share of words from topics; the rest is background"
        )
        random_labels: bool = Field(
            False,
            description="labels independent of everything else, so that nothing but a leak can "
            "predict them",
        )
        like: Literal["mag-cs", "pubmed"] | None = Field(
            None,
            description="data set of the paper's Table 1 whose counts are met exactly, instead of "
            "the sizes above; such a corpus is not dirty",
        )
        scale: float = Field(
            1.0, gt=0, le=64, description="factor of documents and what grows with them, with like"
        )
        label_scale: float = Field(
            1.0, gt=0, le=64, description="factor of labels and hierarchy edges, with like"
        )
        seed: int = Field(0, ge=0, lt=2**32, description="the same seed gives the same corpus")

        @model_validator(mode="after")
        def _check_size(self) -> Self:
            sizes = self.model_fields_set - {"like", "scale", "label_scale", "seed"}
            fields = type(self).model_fields
            given = sorted(name for name in sizes if getattr(self, name) != fields[name].default)
            if self.like is not None and given:
                raise ValueError(
                    f"like takes all sizes from the paper, found {', '.join(given)} beside "
                    f"like={self.like}; use scale and label_scale."
                )
            if self.like is None and (self.scale, self.label_scale) != (1.0, 1.0):
                raise ValueError(
                    "scale and label_scale are factors of a size of the paper, found like=None; "
                    f"set like to one of {sorted(PAPER_SIZES)}."
                )
            fault = None if self.like is None else self.size().find_fault()
            if fault is not None:
                raise ValueError(fault)
            return self

        def size(self) -> PaperSize:
            """Counts that ``like`` and the factors ask for."""
            assert self.like is not None
            return PAPER_SIZES[self.like].scale(self.scale, self.label_scale)

        @model_validator(mode="after")
        def _check_layers(self) -> Self:
            if self.num_layers > self.num_labels:
                raise ValueError(
                    f"each layer needs a label, found num_labels={self.num_labels} and "
                    f"num_layers={self.num_layers}; ask for fewer layers."
                )
            return self

    config: Config
    card = Card("synthetic", "match-graph's own", "2,000 documents, or as many as asked", "nothing")
    tokenizer: Tokenizer = "whitespace"

    @property
    def name(self) -> str:
        return "synthetic" if self.config.like is None else f"synthetic-{self.config.like}"

    @property
    def num_documents(self) -> int:
        """Number of documents, of all splits."""
        return (
            self.config.num_documents if self.config.like is None else self.config.size().documents
        )

    @property
    def raw_file_names(self) -> list[str]:
        return []

    @property
    def options(self) -> dict[str, Any]:
        return {"generator": _GENERATOR, **super().options}

    def reader(self) -> PlantedReader:
        return make_reader(self.config)


def make_reader(config: Synthetic.Config) -> PlantedReader:
    """Reader that draws the documents.

    Raises:
        CorpusError: The documents do not fit into this machine's memory.
    """
    if config.like is not None:
        size = config.size()
        check_memory(size.documents * _PAPER_BYTES)
        draw = partial(draw_paper, size, config.seed)
        return PlantedReader(f"synthetic-{config.like}", size.documents, draw)
    words = config.num_documents * (config.words_per_document + 8)
    check_memory(words * _WORD_BYTES + config.num_labels * config.num_layers * _PAIR_BYTES)
    return PlantedReader("synthetic", config.num_documents, partial(draw_planted, config))


def draw_planted(config: Synthetic.Config) -> Planted:
    """Draws the documents of a corpus of these sizes, dirty on purpose."""
    num_documents, num_labels = config.num_documents, config.num_labels
    rng = np.random.default_rng(config.seed)
    child, parent, layer = draw_hierarchy(rng, num_labels, config.num_layers)
    closure = close_upwards(child, parent, num_labels)
    topics = _draw_topics(rng, num_documents, layer)  # [D, 2]; -1 where none
    gold = _close_labels(topics, closure)
    shown = gold
    if config.random_labels:
        shown = _take_lists(gold, rng.permutation(num_documents), num_documents)
    outside = np.flatnonzero(rng.random(num_documents) < 0.03)
    labelled = np.flatnonzero(rng.random(num_documents) >= 0.005)
    labels = _append(_keep_rows(shown, labelled), outside, num_labels)

    primary = topics[:, 0]
    num_authors = max(40, num_documents // 2)
    edges = {
        "venue": _draw_venues(rng, primary, closure, max(8, num_labels // 4)),
        "author": _draw_authors(rng, primary, num_labels, num_authors),
        "reference": _draw_references(rng, primary),
        WORD: _draw_words(rng, gold, config),
        LABEL: labels,
    }
    lists = {name: pack(*pairs, num_documents) for name, pairs in edges.items()}
    word_ptr, word = lists.pop(WORD)

    def words(first: int, last: int) -> tuple[Array, Array]:
        return np.diff(word_ptr[first : last + 1]), word[word_ptr[first] : word_ptr[last]]

    return Planted(_draw_splits(rng, num_documents), lists, words, _with_unused(child, parent))


def _draw_words(
    rng: np.random.Generator, gold: tuple[Array, Array], config: Synthetic.Config
) -> tuple[Array, Array]:
    num_documents = config.num_documents
    length = rng.poisson(rng.gamma(4.0, config.words_per_document / 4.0, num_documents))
    length[rng.random(num_documents) < 0.01] = 0
    document = np.repeat(np.arange(num_documents, dtype=np.int32), length)
    labels = pack(*gold, num_documents)
    return document, draw_words(rng, config.num_words, config.topic_share, document, labels)


def _draw_splits(rng: np.random.Generator, num_documents: int) -> Array:
    split = np.zeros(num_documents, dtype=np.int8)
    order = rng.permutation(num_documents)
    split[order[: num_documents // 10]] = 1
    split[order[-(num_documents // 10) :]] = 2
    return split


def draw_hierarchy(
    rng: np.random.Generator, num_labels: int, num_layers: int
) -> tuple[Array, Array, Array]:
    """A label DAG with diamonds: child [E], parent [E], layer [L]; parents one layer above."""
    growth = num_labels ** (1 / num_layers) if num_layers > 1 else num_labels
    sizes = np.maximum(1, growth ** np.arange(1, num_layers + 1)).astype(int)
    sizes = np.maximum(1, sizes * num_labels // sizes.sum())
    while sizes.sum() > num_labels:  # many layers of a label each: the largest ones shrink
        sizes[sizes.argmax()] -= 1
    sizes[-1] += num_labels - sizes.sum()
    more = min(_ROOTS - sizes[0], sizes[-1] - 1)  # one root alone would be on every document
    sizes[[0, -1]] += max(0, more) * np.array([1, -1])
    layer = np.repeat(np.arange(num_layers), sizes)
    start = np.concatenate([[0], np.cumsum(sizes)])
    label = np.arange(start[1], num_labels)
    above = layer[label] - 1
    parent = start[above] + (rng.random(len(label)) * sizes[above]).astype(int)
    parent[: sizes[1]] = start[0] + np.arange(sizes[1]) % sizes[0]
    other = start[above] + (parent - start[above] + 1) % sizes[above]
    second = (rng.random(len(label)) < 0.15) & (other != parent)
    return (
        np.concatenate([label, label[second]]),
        np.concatenate([parent, other[second]]),
        layer,
    )


def close_upwards(child: Array, parent: Array, num_labels: int) -> Array:
    """Each label and its ancestors, ascending, padded with -1, [L, longest].

    Args:
        child: Child of each edge, [E]; the index of a parent is below those of its children.
        parent: Parent of each edge, [E].
        num_labels: Number of labels, L.
    """
    above: list[set[int]] = [{label} for label in range(num_labels)]
    for lower, upper in sorted(zip(child.tolist(), parent.tolist(), strict=True)):
        above[lower] |= above[upper]
    closure = np.full((num_labels, max(map(len, above))), -1)
    for label, members in enumerate(above):
        closure[label, : len(members)] = sorted(members)
    return closure


def _draw_topics(rng: np.random.Generator, num_documents: int, layer: Array) -> Array:
    """One or two labels below the roots per document, by a power law, [D, 2]; -1 where none."""
    candidates = rng.permutation(np.flatnonzero(layer > 0))
    weight = 1 / np.arange(1, len(candidates) + 1) ** 0.6
    topics = rng.choice(candidates, (num_documents, 2), p=weight / weight.sum())
    topics[rng.random(num_documents) < 0.4, 1] = -1
    # every label below the roots is on some document, so that small corpora have them all
    number = min(len(candidates), num_documents)
    topics[:number, 0] = candidates[:number]
    return topics


def _close_labels(topics: Array, closure: Array) -> tuple[Array, Array]:
    """(document, label) of the topics and all their ancestors, sorted, without repetition."""
    document, column = np.nonzero(topics >= 0)
    closed = closure[topics[document, column]]  # [topics, longest]
    row, place = np.nonzero(closed >= 0)
    pairs = np.unique(np.stack([document[row], closed[row, place]], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _draw_venues(
    rng: np.random.Generator, primary: Array, closure: Array, num_venues: int
) -> tuple[Array, Array]:
    """Venues belong to the first topic's root; some documents have none or another's."""
    root = closure[primary, 0]
    venue = (root * 3 + (rng.random(len(primary)) * 3).astype(int)) % num_venues
    stray = rng.random(len(primary)) < 0.15
    venue[stray] = rng.integers(0, num_venues, stray.sum())
    document = np.flatnonzero(rng.random(len(primary)) >= 0.02)
    return document, venue[document]


def _draw_authors(
    rng: np.random.Generator, primary: Array, num_topics: int, num_authors: int
) -> tuple[Array, Array]:
    """Authors mostly write on one topic, by a power law; the first document has very many."""
    count = rng.poisson(2.5, len(primary))
    count[0] = num_authors // 2
    document = np.repeat(np.arange(len(primary)), count)
    per_topic = max(2, num_authors // num_topics)
    rank = (per_topic * rng.random(len(document)) ** 2).astype(int)
    author = primary[document] * per_topic + rank
    stray = rng.random(len(document)) < 0.25
    stray |= document == 0
    author[stray] = rng.integers(0, num_topics * per_topic, stray.sum())
    return _distinct(document, author)


def _draw_references(rng: np.random.Generator, primary: Array) -> tuple[Array, Array]:
    """References: half to documents of the same first topic, half to unknown ones."""
    num_documents = len(primary)
    document = np.repeat(np.arange(num_documents), rng.poisson(3.0, num_documents))
    known = ByTopic(primary, int(primary.max()) + 1)
    inside = known.draw(primary[document], rng.random(len(document)))
    outside = num_documents + rng.integers(0, 2 * num_documents, len(document))
    return _distinct(document, np.where(rng.random(len(document)) < 0.5, inside, outside))


def _distinct(document: Array, instance: Array) -> tuple[Array, Array]:
    """Distinct pairs in order."""
    pairs = pd.DataFrame({"document": document, "instance": instance}).drop_duplicates()
    return pairs["document"].to_numpy(), pairs["instance"].to_numpy()


def _take_lists(
    pairs: tuple[Array, Array], order: Array, num_documents: int
) -> tuple[Array, Array]:
    """Reorders ragged lists: document i gets the list of document order[i]."""
    place = np.empty(num_documents, dtype=np.int64)
    place[order] = np.arange(num_documents)
    moved = place[pairs[0]]
    by_document = np.argsort(moved, kind="stable")
    return moved[by_document], pairs[1][by_document]


def _keep_rows(pairs: tuple[Array, Array], documents: Array) -> tuple[Array, Array]:
    kept = np.isin(pairs[0], documents)
    return pairs[0][kept], pairs[1][kept]


def _append(pairs: tuple[Array, Array], documents: Array, label: int) -> tuple[Array, Array]:
    """Adds a label to some documents; pairs stay sorted by document."""
    document = np.concatenate([pairs[0], documents])
    order = np.argsort(document, kind="stable")
    return document[order], np.concatenate([pairs[1], np.full(len(documents), label)])[order]


def _with_unused(child: Array, parent: Array) -> list[tuple[int | str, int | str]]:
    """Edges of which one is routed through a node that no document carries."""
    edges: list[tuple[int | str, int | str]] = [*zip(child.tolist(), parent.tolist(), strict=True)]
    first = edges.pop(0)
    return [*edges, (first[0], "unused"), ("unused", first[1])]
