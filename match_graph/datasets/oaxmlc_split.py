"""Label pruning and split of OAXMLC-Bench, stratified by labels from rare to frequent.

Source: https://github.com/eXascaleInfolab/oaxmlc-bench, ``datahandler/utils.py``, whose steps
`choose_labels` and `split_documents` follow. There the order of documents depends on when processes
end, and that of equally frequent labels on Python's hashes, so that the published split cannot be
reproduced. Here documents are in the order of the file, and equally frequent labels in that of
their ids.
"""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from match_graph.typing import SPLITS, Split

Numbers = npt.NDArray[np.int64]

#: Cumulative shares of train and valid.
_CUTS = (0.70, 0.85)


@dataclass
class LabelTree:
    """Label hierarchy as published, below a root that is no label.

    Args:
        parents: Parents of each label, nearest only, without the root.
    """

    parents: dict[str, list[str]]
    _closed: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def close(self, labels: Sequence[str]) -> list[str]:
        """Distinct labels and ancestors; a label that is not in the tree has none."""
        found: dict[str, None] = {}
        for label in labels:
            if label not in self._closed:
                self._closed[label] = tuple(_walk(label, self.parents))
            found.update(dict.fromkeys(self._closed[label]))
        return list(found)

    @property
    def tops(self) -> list[str]:
        """Labels directly below the root, sorted."""
        return sorted(label for label, parents in self.parents.items() if not parents)

    def children(self) -> dict[str, list[str]]:
        """Children of each label."""
        children: dict[str, list[str]] = {label: [] for label in self.parents}
        for label, parents in self.parents.items():
            for parent in parents:
                children[parent].append(label)
        return children


def _walk(label: str, neighbors: Mapping[str, Sequence[str]]) -> list[str]:
    """A label and all that is reachable from it, each once; terminates on cycles, too."""
    found, waiting = {label: None}, [label]
    while waiting:
        for other in neighbors.get(waiting.pop(), ()):
            if other not in found:
                found[other] = None
                waiting.append(other)
    return list(found)


def choose_labels(tree: LabelTree, count: Mapping[str, int], min_documents: int) -> set[str]:
    """Labels of the tree after leaves with few documents are pruned, repeatedly.

    At last, labels of the first level without a child left are pruned, too.

    Args:
        tree: Label hierarchy.
        count: Number of documents of each label.
        min_documents: Least number of documents of a leaf; one without any is always pruned.
    """
    children, least = tree.children(), max(min_documents, 1)
    left = Counter({label: len(below) for label, below in children.items()})
    kept, waiting = set(children), [label for label in children if not left[label]]
    while waiting:
        leaf = waiting.pop()
        if count.get(leaf, 0) >= least:
            continue
        kept.discard(leaf)
        for parent in tree.parents[leaf]:
            left[parent] -= 1
            if not left[parent]:
                waiting.append(parent)
    return kept - {label for label in tree.tops if not left[label]}


def split_documents(
    documents: Mapping[str, Numbers],
    tree: LabelTree,
    num_documents: int,
    seed: int,
    rare_share: float = 0.1,
    held_share: float = 0.1,
) -> npt.NDArray[np.int8]:
    """Split of each document: 70 : 15 : 15 within each label, the rarest first.

    A share of the documents of the rarest labels is held back. For each label of the first level,
    the documents of each label below it that have no split yet are shuffled and split. Then each
    split that lacks a label gets a held-back document of it, and the rest of these is split alike.

    Args:
        documents: Indices of the documents of each label, ascending; labels closed upwards.
        tree: Label hierarchy; labels without documents do not count.
        num_documents: Number of documents D.
        seed: Seed; every shuffle starts from it.
        rare_share: Share of the labels that count as rare, at least one label; 0 holds none back.
        held_share: Share of a rare label's documents that is held back, at least one document.

    Returns:
        Index into `SPLITS`, [D]; -1 for a document without a label below the first level.
    """
    order = sorted(documents, key=lambda label: (len(documents[label]), label))
    num_rare = max(1, round(rare_share * len(order))) if rare_share else 0
    held = _hold_back(documents, order[:num_rare], seed, held_share)
    rest = {
        label: found[~np.isin(found, held[label])] if label in held else found
        for label, found in documents.items()
    }
    split, children = np.full(num_documents, -1, np.int8), tree.children()
    for top in tree.tops:
        below = {*_walk(top, children)} - {top}
        for label in order if below & rest.keys() else ():
            if label in below:
                _cut(split, rest[label][split[rest[label]] < 0], seed)
    _cover(split, rest, held, [label for label in order if tree.parents[label]])
    leftovers = sorted({one for found in held.values() for one in found if split[one] < 0})
    _cut(split, np.array(leftovers, np.int64), seed)
    return split


def _hold_back(
    documents: Mapping[str, Numbers], rare: Collection[str], seed: int, share: float
) -> dict[str, list[int]]:
    """Samples the held-back documents of each rare label, ascending."""
    draw, held = random.Random(seed), {}  # noqa: S311
    for label in rare:
        numbers = documents[label].tolist()
        draw.shuffle(numbers)
        held[label] = sorted(numbers[: max(1, round(share * len(numbers)))])
    return held


def _cut(split: npt.NDArray[np.int8], documents: Numbers, seed: int) -> None:
    """Shuffles documents and assigns them to splits."""
    numbers = documents.tolist()
    random.Random(seed).shuffle(numbers)  # noqa: S311
    first, second = (int(share * len(numbers)) for share in _CUTS)
    for place, part in enumerate((numbers[:first], numbers[first:second], numbers[second:])):
        split[part] = place


def _cover(
    split: npt.NDArray[np.int8],
    rest: Mapping[str, Numbers],
    held: Mapping[str, list[int]],
    labels: Sequence[str],
) -> None:
    """Assigns held-back documents, if any are free, to splits that lack a label."""
    missing = [
        (label, place)
        for label in labels
        if label in held
        for place, count in enumerate(np.bincount(split[rest[label]] + 1, minlength=4)[1:])
        if not count
    ]
    for label, place in missing:
        free = [one for one in held[label] if split[one] < 0]
        split[free[:1]] = place


@dataclass(frozen=True)
class Plan:
    """Labels and splits of documents after pruning.

    Args:
        labels: Labels that are kept.
        split: Index into `SPLITS` by line of the file; -1 for a document that is left out.
    """

    labels: Collection[str]
    split: npt.NDArray[np.int8]

    def find_split(self, line: int) -> Split | None:
        """Split of the document on a line; None if it is left out."""
        place = int(self.split[line]) if line < len(self.split) else -1
        return None if place < 0 else SPLITS[place]


def make_plan(
    lines: Numbers,
    lengths: Numbers,
    index: Numbers,
    labels: Sequence[str],
    tree: LabelTree,
    min_documents: int,
    seed: int,
    rare_share: float,
    held_share: float,
) -> Plan:
    """Prunes the tree, and splits the documents with a label of it below its first level.

    Other documents are left out.

    Args:
        lines: Line of each document, ascending, [D].
        lengths: Number of labels of each document, [D].
        index: Index into ``labels``, packed by document, [E], distinct within a document.
        labels: Label ids.
        tree: Label hierarchy.
        min_documents: As for `choose_labels`.
        seed: As for `split_documents`.
        rare_share: As for `split_documents`.
        held_share: As for `split_documents`.
    """
    row = np.repeat(np.arange(len(lines)), lengths)
    number = np.bincount(index, minlength=len(labels)).tolist()
    kept = choose_labels(tree, dict(zip(labels, number, strict=True)), min_documents)
    is_kept = np.array([label in kept for label in labels], bool)
    is_deep = is_kept & np.array([bool(tree.parents.get(label)) for label in labels], bool)
    has_deep = np.bincount(row[is_deep[index]], minlength=len(lines)) > 0
    used = is_kept[index] & has_deep[row]
    renumbered = np.cumsum(has_deep) - 1  # documents that are left out do not count
    row, index = renumbered[row[used]], index[used]
    order = np.argsort(index, kind="stable")
    found, start = np.unique(index[order], return_index=True)
    parts = np.split(row[order], start[1:]) if len(found) else []
    documents = {labels[int(one)]: part for one, part in zip(found, parts, strict=True)}
    split = np.full(int(lines[-1]) + 1 if len(lines) else 0, -1, np.int8)
    # a parent of a kept label is kept
    pruned = LabelTree({label: above for label, above in tree.parents.items() if label in kept})
    split[lines[has_deep]] = split_documents(
        documents, pruned, int(has_deep.sum()), seed, rare_share, held_share
    )
    return Plan(frozenset(kept), split)
