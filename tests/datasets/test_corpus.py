"""The tables and their checks."""

import itertools
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.datasets import Corpus
from match_graph.datasets.corpus import find_cycle, hierarchy_frame
from match_graph.errors import CorpusError


def edge_frame(pairs: list[tuple[int, int]]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["document", "instance"], dtype="int32")


def tables() -> dict[str, Any]:
    """A correct corpus of two documents."""
    return {
        "name": "little",
        "documents": pd.DataFrame({"id": ["a", "b"], "split": ["train", "test"]}),
        "instances": {
            "author": pd.DataFrame({"id": ["x"]}),
            "word": pd.DataFrame({"id": ["w"]}),
            "label": pd.DataFrame({"id": ["l", "m"]}),
        },
        "edges": {
            "author": edge_frame([(0, 0), (1, 0)]),
            "word": edge_frame([(0, 0)]),
            "label": edge_frame([(0, 1), (1, 0)]),
        },
        "hierarchy": hierarchy_frame([("l", "m", "f:1")]),
    }


def test_a_correct_corpus_gives_its_fields_and_size() -> None:
    """Words and labels are not metadata fields."""
    corpus = Corpus(**tables())
    assert corpus.fields == ["author"]
    assert corpus.num_documents == 2


def test_fields_keep_the_given_order(toy: Corpus) -> None:
    """The order of the metadata file is kept, not the alphabet's."""
    assert toy.fields == ["venue", "author", "reference"]


def _repeat_document(given: dict[str, Any]) -> None:
    given["documents"]["id"] = ["a", "a"]


def _name_split_dev(given: dict[str, Any]) -> None:
    given["documents"]["split"] = ["train", "dev"]


def _leave_out_training(given: dict[str, Any]) -> None:
    given["documents"]["split"] = ["valid", "test"]


def _drop_column(given: dict[str, Any]) -> None:
    del given["documents"]["split"]


def _drop_words(given: dict[str, Any]) -> None:
    del given["instances"]["word"], given["edges"]["word"]


def _drop_edges(given: dict[str, Any]) -> None:
    del given["edges"]["author"]


def _repeat_instance(given: dict[str, Any]) -> None:
    given["instances"]["label"] = pd.DataFrame({"id": ["l", "l"]})


def _name_unknown_instance(given: dict[str, Any]) -> None:
    given["edges"]["author"] = edge_frame([(0, 0), (1, 3)])


def _name_unknown_document(given: dict[str, Any]) -> None:
    given["edges"]["author"] = edge_frame([(-1, 0), (1, 0)])


def _unsort(given: dict[str, Any]) -> None:
    given["edges"]["author"] = edge_frame([(1, 0), (0, 0)])


def _rename_column(given: dict[str, Any]) -> None:
    given["instances"]["author"] = pd.DataFrame({"name": ["x"]})


def _close_cycle(given: dict[str, Any]) -> None:
    given["hierarchy"] = hierarchy_frame([("l", "m", "f:1"), ("m", "l", "f:2")])


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (_repeat_document, "the document 'a' is given twice."),
        (
            _name_split_dev,
            "a split must be one of ('train', 'valid', 'test'), found ['dev'].",
        ),
        (_leave_out_training, "the training split must hold a document, found none."),
        (_drop_column, "the documents lack the columns ['split']."),
        (_drop_words, "the type 'word' is missing."),
        (
            _drop_edges,
            "instances are given for ['author', 'label', 'word'], edges for ['label', 'word'].",
        ),
        (_repeat_instance, "the label 'l' is given twice."),
        (
            _name_unknown_instance,
            "the author edges must name instances in [0, 1), found 0 to 3.",
        ),
        (
            _name_unknown_document,
            "the author edges must name documents in [0, 2), found -1 to 1.",
        ),
        (_unsort, "the author edges must be sorted by document."),
        (
            _rename_column,
            "the type 'author' needs a column id, its edges need document and instance.",
        ),
        (
            _close_cycle,
            "the label hierarchy must be acyclic, but l -> m -> l is a cycle (f:2); "
            "remove one of these edges, or set data.hierarchy=ignore.",
        ),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_every_fault_of_the_tables_has_its_sentence(spoil: Any, fault: str) -> None:
    """One spoilt table gives exactly one fault."""
    given = tables()
    spoil(given)
    with pytest.raises(CorpusError) as caught:
        Corpus(**given)
    assert str(caught.value) == f"The corpus 'little' must be consistent: {fault}"


def test_all_faults_are_listed_at_once() -> None:
    """Two spoilt tables give two lines."""
    given = tables()
    _repeat_document(given)
    _unsort(given)
    with pytest.raises(CorpusError) as caught:
        Corpus(**given)
    assert str(caught.value).splitlines() == [
        "The corpus 'little' must be consistent, but 2 faults were found:",
        "  the document 'a' is given twice.",
        "  the author edges must be sorted by document.",
    ]


def test_equal_hierarchy_edges_are_kept_once() -> None:
    """Of an edge on two lines the first is kept, so that messages name it."""
    frame = hierarchy_frame([("c", "p", "f:1"), ("c", "p", "f:2"), ("c", "q", "f:3")])
    assert frame.to_dict("list") == {
        "child": ["c", "c"],
        "parent": ["p", "q"],
        "origin": ["f:1", "f:3"],
    }


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=9))
def test_find_cycle_agrees_with_networkx(pairs: list[tuple[int, int]]) -> None:
    """A cycle is named where there is one, its steps are edges, and its origin is the last."""
    edges = [(f"n{child}", f"n{parent}", f"f:{line}") for line, (child, parent) in enumerate(pairs)]
    sentence = find_cycle(hierarchy_frame(edges))
    graph = nx.DiGraph([edge[:2] for edge in edges])
    if nx.is_directed_acyclic_graph(graph):
        assert sentence is None
        return
    assert sentence is not None
    path = sentence.split(", but ")[1].split(" is a cycle")[0].split(" -> ")
    assert path[0] == path[-1]
    assert all(graph.has_edge(*step) for step in itertools.pairwise(path))
    first = next(edge[2] for edge in edges if edge[:2] == (path[-2], path[-1]))
    assert f"({first})" in sentence


def test_find_cycle_of_a_long_cycle_shows_both_ends() -> None:
    """5,000 labels in a ring, with a shortcut that is taken: the sentence stays short."""
    ring = [(f"n{label}", f"n{(label + 1) % 5000}", f"f:{label}") for label in range(5000)]
    assert find_cycle(hierarchy_frame([*ring, ("n2", "n4990", "f:x")])) == (
        "the label hierarchy must be acyclic, but n0 -> n1 -> n2 -> n4990 -> n4991 -> "
        "... (4 more) ... -> n4996 -> n4997 -> n4998 -> n4999 -> n0 is a cycle (f:4999); "
        "remove one of these edges, or set data.hierarchy=ignore."
    )


def test_find_cycle_of_a_good_hierarchy_is_linear() -> None:
    """20,000 labels in 12 layers with 2 parents each, and a chain of 20,000: no cycle, at once.

    A search that gives up a label whenever one of its edges leads nowhere took 30 s for the first.
    """
    size, draw = 20_000 // 12, np.random.default_rng(0)
    child = np.repeat(np.arange(size, size * 12), 2)
    parent = (child // size - 1) * size + draw.integers(0, size, len(child))
    for frame in (
        pd.DataFrame({"child": child, "parent": parent}),
        pd.DataFrame({"child": np.arange(1, 20_000), "parent": np.arange(19_999)}),
    ):
        assert find_cycle(frame) is None


def test_find_oddities_of_a_hierarchy_of_something_else_and_an_empty_field() -> None:
    """Both can be read, and are hardly what was meant."""
    given = tables()
    given["hierarchy"] = hierarchy_frame([("x", "y", "f:1")])
    given["edges"]["author"] = edge_frame([])
    assert Corpus(**given).find_oddities() == [
        "no label of the hierarchy is on any document, so that none has a parent: the hierarchy "
        "has labels such as 'x', documents such as 'l'; check that both are of one data set",
        "no document has the metadata fields ['author'], which are read as empty ones; check their "
        "names",
    ]
    assert Corpus(**tables()).find_oddities() == []
