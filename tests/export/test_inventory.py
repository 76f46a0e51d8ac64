"""Counts and fingerprints: equal for equal graphs in any order, different for every change."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.export import Inventory, find_differences

KIND = ("document", "contains", "word")
ENDS, AT = "document contains word.ends", "document contains word.position"
DOCUMENTS = ["d1", "d2", "naïve\x00"]
WORDS = ["a", "b", "007", " "]
SPLITS = ["train", "train", "test"]
EDGES = [(0, 0, 0), (0, 0, 1), (0, 3, 2), (2, 1, 0)]
X = [[0.5, -1.0], [0.0, 0.25], [1e-9, 3.0]]


def take(documents=DOCUMENTS, words=WORDS, splits=SPLITS, edges=EDGES, x=X, batch=100) -> Inventory:
    """Inventory of a tiny graph that is added in batches."""
    inventory = Inventory()
    for start in range(0, len(documents), batch):
        rows = slice(start, start + batch)
        columns = {"split": np.array(splits[rows], dtype=object), "x": np.float32(x[rows])}
        inventory.add_nodes("document", documents[rows], columns)
    for start in range(0, len(words), batch):
        inventory.add_nodes("word", words[start : start + batch], {})
    for start in range(0, len(edges), batch):
        source, target, position = np.array(edges[start : start + batch]).T
        inventory.add_edges(KIND, (source, target), {"position": position})
    return inventory


def test_find_differences_order_and_batches_do_not_matter() -> None:
    """The order of nodes and edges and the batches do not matter."""
    draw = random.Random(0)
    documents, words = [2, 0, 1], [3, 1, 0, 2]
    edges = [(documents.index(a), words.index(b), p) for a, b, p in EDGES]
    draw.shuffle(edges)
    other = take(
        [DOCUMENTS[i] for i in documents],
        [WORDS[i] for i in words],
        [SPLITS[i] for i in documents],
        edges,
        [X[i] for i in documents],
        batch=1,
    )
    assert find_differences(take(), other) == {}


@pytest.mark.parametrize("number", [1, 3, 4])
def test_Inventory_edges_are_hashed_in_parts(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges are hashed in blocks, which bounds the memory."""
    whole = take()
    monkeypatch.setattr("match_graph.export.inventory._AT_ONCE", number)
    assert (take().counts, take().prints) == (whole.counts, whole.prints)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"documents": ["d1", "d2", "naïve"]},
         {"document.id", "document.split", "document.x", ENDS, AT}),
        ({"splits": ["test", "train", "train"]}, {"document.split"}),
        ({"splits": ["train", "test", "train"]}, {"document.split"}),
        ({"x": [[0.5, -1.0], [0.0, 0.25], [3.0, 1e-9]]}, {"document.x"}),
        ({"x": [[0.0, 0.25], [0.5, -1.0], [1e-9, 3.0]]}, {"document.x"}),
        ({"edges": EDGES[:3]}, {" ".join(KIND)}),
        ({"edges": [*EDGES[:3], (1, 2, 0)]}, {ENDS, AT}),
        ({"edges": [(0, 0, 1), (0, 0, 0), (0, 3, 2), (2, 1, 1)]}, {AT}),
        ({"edges": [*EDGES, EDGES[0]]}, {" ".join(KIND)}),
        ({"words": [*WORDS, "c"]}, {"word"}),
    ],
)  # fmt: skip
def test_find_differences_every_change_is_found(change, expected: set[str]) -> None:
    """Changes of names, attributes, ends and counts are found."""
    assert set(find_differences(take(), take(**change))) == expected


def test_Inventory_sentences() -> None:
    """Differences are named with both counts or the attribute; additions are ignored."""
    expected, found = take(), Inventory()
    found.add_nodes(
        "document", DOCUMENTS, {"split": np.array(SPLITS, dtype=object), "more": [1, 2, 3]}
    )
    assert find_differences(expected, found) == {
        "word": "word: 4 expected, found 0.",
        "word.id": "word: 'id' is missing.",
        " ".join(KIND): "document contains word: 4 expected, found 0.",
        "document.x": "document: 'x' is missing.",
        ENDS: "document contains word: 'ends' is missing.",
        AT: "document contains word: 'position' is missing.",
    }


@given(st.lists(st.text(max_size=4), min_size=2, max_size=8, unique=True), st.randoms(), st.data())
def test_Inventory_swapping_the_values_of_two_nodes_is_found(names, draw, data) -> None:
    """Swapped values of two nodes are found, although a sum ignores order."""
    values = list(range(len(names)))
    one, two = data.draw(st.permutations(range(len(names))))[:2]
    first, second = Inventory(), Inventory()
    first.add_nodes("author", names, {"count": np.array(values)})
    values[one], values[two] = values[two], values[one]
    second.add_nodes("author", names, {"count": np.array(values)})
    assert set(find_differences(first, second)) == {"author.count"}


def test_Inventory_types_of_numbers_do_not_matter() -> None:
    """Integers and floats may be widened."""
    narrow, wide = Inventory(), Inventory()
    narrow.add_nodes("n", ["a"], {"i": np.int16([-3]), "x": np.float32([[0.1]]), "b": [True]})
    wide.add_nodes(
        "n", ["a"], {"i": np.int64([-3]), "x": np.float64(np.float32([[0.1]])), "b": [1]}
    )
    assert narrow.prints == wide.prints
