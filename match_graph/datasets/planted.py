"""Synthetic documents as arrays of indices, and their reader in blocks of documents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from match_graph.corpus import Array
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.partitions import PartitionReader
from match_graph.io.partition import Partition
from match_graph.io.source import Sources
from match_graph.typing import LABEL, SPLITS, WORD

PIECE = 20_000  # documents
#: Number of documents above which no raw texts are kept beside the word sequences.
_MAX_TEXTS = 100_000
_SPLITS = np.array(SPLITS, dtype=object)
_PREFIXES = {"venue": "venue", "author": "autor_\u00fc", "reference": "d", WORD: "w", LABEL: "l"}


@dataclass(frozen=True)
class Planted:
    """Generated documents.

    Args:
        split: Index into `SPLITS`, [D].
        lists: By field, and for labels: offsets [D + 1] and indices, packed by document.
        words: Callback that gives lengths and words of the documents from a first one to an
            exclusive last one; blocks are independent.
        edges: (child, parent) of the hierarchy, each an index or a name.
    """

    split: Array
    lists: dict[str, tuple[Array, Array]]
    words: Callable[[int, int], tuple[Array, Array]]
    edges: Sequence[tuple[int | str, int | str]]


def pack(document: Array, values: Array, num_documents: int) -> tuple[Array, Array]:
    """Offsets [D + 1] and values of pairs [E] that are sorted by document."""
    return np.searchsorted(document, np.arange(num_documents + 1)), values


class PlantedReader(PartitionReader):
    """Reader of generated documents, which each process draws once.

    Args:
        name: Name of the corpus.
        num_documents: Number of documents.
        draw: Function that draws the documents.
    """

    def __init__(self, name: str, num_documents: int, draw: Callable[[], Planted]) -> None:
        fields = [field for field in _PREFIXES if field not in (WORD, LABEL)]
        super().__init__(name, fields, "A planted corpus is valid", "refuse", "whitespace", [])
        self.num_documents, self.draw = num_documents, draw
        self._planted: Planted | None = None

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        starts = range(0, self.num_documents, PIECE)
        last = self.num_documents
        return [
            Partition(Path(self.name), start=first, end=min(first + PIECE, last))
            for first in starts
        ]

    def prepare(self, builder: CorpusBuilder, sources: Sources) -> None:
        self._planted = self.draw()

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        assert self._planted is not None
        assert partition.end is not None
        first, last, planted = partition.start, partition.end, self._planted
        values = {}
        for field, (ptr, numbers) in planted.lists.items():
            part = numbers[ptr[first] : ptr[last]]
            values[field] = (*_name(field, part), np.diff(ptr[first : last + 1]))
        lengths, words = planted.words(first, last)
        strings, codes = _name(WORD, words)
        values[WORD] = strings, codes, lengths
        texts = None
        if self.num_documents <= _MAX_TEXTS:
            parts = np.split(np.array(strings, dtype=object)[codes], np.cumsum(lengths)[:-1])
            texts = [" ".join(part) for part in parts]
        ids = [f"d{number}" for number in range(first, last)]
        builder.extend(ids, _SPLITS[planted.split[first:last]].tolist(), texts, values, self.name)

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        assert self._planted is not None
        for child, parent in self._planted.edges:
            edge = _name_label(child), _name_label(parent)
            builder.edges.setdefault(edge, "synthetic")


def _name(field: str, numbers: Array) -> tuple[list[str], Array]:
    """Distinct names of indices, and the position of each index among them."""
    if (size := numbers.max(initial=0) + 1) > 8 * len(numbers):  # a mask would take more memory
        distinct, codes = np.unique(numbers, return_inverse=True)
    else:
        occurs = np.zeros(size, bool)
        occurs[numbers] = True
        distinct, codes = np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[numbers]
    return [f"{_PREFIXES[field]}{number}" for number in distinct.tolist()], codes


def _name_label(label: int | str) -> str:
    return label if isinstance(label, str) else f"{_PREFIXES[LABEL]}{label}"
