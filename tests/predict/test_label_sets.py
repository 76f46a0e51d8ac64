"""Labels in all the forms of scikit-learn, and hierarchies in all those of Python."""

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import MultiLabelBinarizer

from match_graph.errors import CorpusError
from match_graph.predict.label_sets import encode_labels, find_classes, list_edges

LISTS = [["b", "a"], [], ["c", "a", "a"]]


@given(st.lists(st.lists(st.text(min_size=1)), min_size=1).filter(any))
def test_encode_labels_equals_multi_label_binarizer(lists: list[list[str]]) -> None:
    """Classes and columns equal MultiLabelBinarizer's, for lists and for its matrix."""
    binarizer = MultiLabelBinarizer()
    matrix = binarizer.fit_transform(lists)
    classes = find_classes(lists)
    assert classes.tolist() == binarizer.classes_.tolist()
    assert classes.dtype == binarizer.classes_.dtype
    rows = encode_labels(lists, classes)
    for row, wanted in zip(rows, matrix, strict=True):
        assert sorted(row) == wanted.nonzero()[0].tolist()
    from_matrix = encode_labels(sparse.csr_matrix(matrix), find_classes(matrix))
    assert list(map(sorted, rows)) == list(map(sorted, from_matrix))


@pytest.mark.parametrize(
    "y",
    [
        LISTS, tuple(map(set, LISTS)), map(tuple, LISTS), pd.Series(LISTS),
        np.array([np.array(one, dtype=object) for one in LISTS], dtype=object),
    ],
    ids=["lists", "sets", "iterator", "series", "arrays"],
)  # fmt: skip
def test_encode_labels_of_any_iterable(y: Any) -> None:
    """Labels of a document may be any iterable; repeats and order do not count."""
    classes = find_classes(LISTS)
    assert list(map(sorted, encode_labels(y, classes))) == [[0, 1], [], [0, 2]]


@pytest.mark.parametrize(
    "make", [np.array, sparse.csr_array, sparse.coo_matrix, pd.DataFrame, np.matrix]
)
@pytest.mark.parametrize("dtype", ["bool", "int8", "float64"])
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_encode_labels_of_a_matrix(make: Any, dtype: str) -> None:
    """Columns of a matrix are numbered, or named by the classes given."""
    y = make(np.array([[1, 1, 0], [0, 0, 0], [1, 0, 1]], dtype=dtype))
    assert find_classes(y).tolist() == [0, 1, 2]
    classes = find_classes(y, np.array(["z", "x", "y"], dtype=object))
    assert classes.tolist() == ["z", "x", "y"]
    assert encode_labels(y, classes) == [[0, 1], [], [0, 2]]


def test_find_classes_of_a_frame_are_its_columns() -> None:
    """Classes of a DataFrame are its columns, unless others are given."""
    y = pd.DataFrame([[1, 0], [1, 1]], columns=["web", "graphs"])
    assert find_classes(y).tolist() == ["web", "graphs"]
    assert encode_labels(y, find_classes(y)) == [[0], [0, 1]]
    assert find_classes(y, ["a", "b"]).tolist() == ["a", "b"]
    for odd in ([0.5, 1.5], [True, False]):
        assert find_classes(y.set_axis(odd, axis=1)).tolist() == [0, 1]


def test_encode_labels_of_a_frame_go_by_its_columns() -> None:
    """Columns of a DataFrame are found by name, or by place where they have no names."""
    y = pd.DataFrame([[1, 0], [1, 1]], columns=["web", "graphs"])
    classes = find_classes(y, ["graphs", "web"])
    assert encode_labels(y, classes) == [[1], [0, 1]]
    assert encode_labels(y.set_axis([0, 1], axis=1), classes) == [[0], [0, 1]]
    for names in (["web", "trees"], ["web", "web"]):
        with pytest.raises(CorpusError) as caught:
            encode_labels(y.set_axis(names, axis=1), classes)
        assert str(caught.value) == (
            "The columns of y must be the classes, but 'graphs' is none of them; name them as the "
            "classes, or give an array with its columns in their order."
        )


def test_encode_labels_unknown() -> None:
    """Unknown labels are numbered from L on where allowed, and refused elsewhere."""
    classes = find_classes(LISTS, ["a", "b"])
    assert encode_labels(LISTS, classes, allow_unknown=True) == [[1, 0], [], [2, 0]]
    with pytest.raises(CorpusError) as caught:
        encode_labels(LISTS, classes)
    assert str(caught.value) == (
        "Labels must be among the given classes, found 'c' of document 3; add it to classes."
    )


def test_find_classes_of_numbers() -> None:
    """Whole numbers stay numbers, also those of NumPy."""
    found = find_classes([[np.int64(7), 3], np.array([10])])
    assert (found.tolist(), found.dtype) == ([3, 7, 10], np.dtype(int))


@pytest.mark.parametrize(
    ("y", "classes", "message"),
    [
        (None, None, "y must hold the labels of each document, found None; give a list of lists"),
        ("abc", None, "y must hold the labels of each document, found 'abc'"),
        (["a", "b"], None, r"found 'a' for document 1; write \['a'\] for a single label"),
        (np.array([0, 1]), None, "y must hold a list of labels for each document, found 0 for"),
        ([["a"], [1.5]], None, "Labels must be strings or whole numbers, found 1.5 of document 2"),
        ([["a", 1]], None, "The labels in y must be of one type that sorts"),
        ([[], []], None, r"names that differ and are not empty, found \[\];"),
        ([["", "a"]], None, "names that differ and are not empty"),
        ([[1, 0, 0], np.array([0, 0, 1])], None, "found lists of 0 and 1 alone, as in rows of"),
        (LISTS, ["a", "a"], "names that differ"),
        (np.eye(2), ["a"], "a column per class, found 2 columns and 1 classes"),
        (np.array([[0, 2]]), None, "An indicator matrix must hold 0 and 1, found 2;"),
        (np.array([[0, np.nan]]), None, "An indicator matrix must hold 0 and 1, found nan;"),
    ],
)
def test_find_classes_names_faults(y: Any, classes: Any, message: str) -> None:
    """Each fault is named in one sentence."""
    with pytest.raises(CorpusError, match=message):
        find_classes(y, classes)


@pytest.mark.parametrize(
    "hierarchy",
    [
        [("a", "b"), ("a", 1)], iter([["a", "b"], ("a", np.int64(1))]),
        {"a": ["b", 1], "b": None}, nx.DiGraph([("a", "b"), ("a", 1)]),
    ],
    ids=["pairs", "iterator", "dict", "networkx"],
)  # fmt: skip
def test_list_edges(hierarchy: Any) -> None:
    """Edges have child and parent as strings, and a place for messages."""
    assert list_edges(hierarchy) == [
        ("a", "b", "hierarchy, edge 1"), ("a", "1", "hierarchy, edge 2")
    ]  # fmt: skip


def test_list_edges_none_and_single_parents() -> None:
    """No hierarchy has no edge; a dict may map a label to one parent."""
    assert list_edges(None) == list_edges({}) == []
    assert [edge[:2] for edge in list_edges({"a": "root", 2: 1})] == [("a", "root"), ("2", "1")]


@pytest.mark.parametrize(
    ("hierarchy", "message"),
    [
        (["ab"], r"An edge of the hierarchy must be \(child, parent\), found 'ab' as edge 1"),
        ([("a", "b", "c")], "as edge 1; give pairs of labels"),
        ([("a", None)], "found .'a', None. as edge 1"),
        (nx.Graph([("a", "b")]), "must be a DiGraph with edges from child to parent"),
    ],
)
def test_list_edges_names_faults(hierarchy: Any, message: str) -> None:
    """Each fault is named in one sentence."""
    with pytest.raises(CorpusError, match=message):
        list_edges(hierarchy)
