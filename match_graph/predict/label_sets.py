"""Labels of documents as scikit-learn has them: lists of labels, or a binary indicator matrix."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import networkx as nx
import numpy as np
import pandas as pd
from scipy import sparse

from match_graph.errors import CorpusError

#: Labels with their parents: (child, parent) pairs, {child: parent or parents}, or a networkx
#: DiGraph, which is iterable too, with edges from child to parent.
HierarchyLike: TypeAlias = Iterable[Any] | Mapping[Any, Any]
Classes: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def find_classes(y: Any, classes: Sequence[Any] | None = None) -> Classes:
    """Classes in the order of their columns, [L], as MultiLabelBinarizer has them.

    Args:
        y: Labels of documents: an iterable of labels each, or an indicator matrix [n, L].
        classes: Order of the classes; None sorts the labels, takes the columns of a DataFrame, if
            these are strings or whole numbers, or numbers those of a matrix.

    Raises:
        CorpusError: There is none, two have one name, they cannot be sorted, or do not fit y.
    """
    matrix = as_indicator(y)
    if isinstance(classes, str) or not isinstance(classes, Iterable | None):
        raise CorpusError(f"Classes must be a list of labels, found {classes!r:.60}.")
    classes = _list_columns(y) if classes is None else classes
    if classes is not None:
        found = list(classes)
        if odd := [one for one in found if not isinstance(one, str | int | np.integer)]:
            raise CorpusError(
                f"Classes must be strings or whole numbers, found {odd[0]!r:.60}; make a string "
                f"of it."
            )
    elif matrix is not None:
        found = list(range(matrix.shape[1]))
    else:
        lists = [given for _, given in iter_label_lists(y)]
        if _is_multi_hot(lists):
            raise CorpusError(
                "y must be an indicator matrix or lists of labels, found lists of 0 and 1 alone, "
                "as in rows of such a matrix; give it as an array, or the labels' names."
            )
        labels = {label for given in lists for label in given}
        try:
            found = sorted(labels)
        except TypeError as error:
            raise CorpusError(
                f"The labels in y must be of one type that sorts, but they are not ({error}); "
                f"make strings of them, or give classes."
            ) from None
    if len(set(map(str, found))) < len(found) or not found or "" in map(str, found):
        raise CorpusError(
            f"Classes must have names that differ and are not empty, found {found!r:.200}; "
            f"give every class one."
        )
    if matrix is not None and matrix.shape[1] != len(found):
        raise CorpusError(
            f"An indicator matrix must have a column per class, found {matrix.shape[1]} columns "
            f"and {len(found)} classes; change one of them."
        )
    whole = all(isinstance(one, int | np.integer) for one in found)
    array = np.empty(len(found), dtype=int if whole else object)
    array[:] = found
    return array


def encode_labels(y: Any, classes: Classes, allow_unknown: bool = False) -> list[list[int]]:
    """Columns of each document's labels, each once.

    Args:
        y: As for `find_classes`; the columns of a DataFrame may be in another order.
        classes: Classes by column, [L].
        allow_unknown: Whether labels may be no class; such a one gets a number from L on.

    Raises:
        CorpusError: y is of something else, or has a label that is no class.
    """
    matrix = as_indicator(_sort_columns(y, classes))
    if matrix is not None:
        if matrix.shape[1] != len(classes):
            raise CorpusError(
                f"An indicator matrix must have a column per class, found {matrix.shape[1]} "
                f"columns and {len(classes)} classes; give the columns of fit."
            )
        ends = matrix.indptr.tolist()
        columns = matrix.indices.tolist()
        return [columns[a:b] for a, b in pairwise(ends)]
    column = {label: number for number, label in enumerate(classes.tolist())}
    rows = []
    for number, labels in iter_label_lists(y):
        row: dict[int, None] = {}
        for label in labels:
            if label not in column:
                if not allow_unknown:
                    raise CorpusError(
                        f"Labels must be among the given classes, found {label!r:.60} of document "
                        f"{number}; add it to classes."
                    )
                column[label] = len(column)
            row[column[label]] = None
        rows.append(list(row))
    return rows


def _list_columns(y: Any) -> list[Any] | None:
    """Columns of a DataFrame that are names, strings or whole numbers; None of anything else."""
    names = y.columns.tolist() if isinstance(y, pd.DataFrame) else None
    if names is None or any(
        isinstance(one, bool) or not isinstance(one, str | int) for one in names
    ):
        return None
    return names


def _sort_columns(y: Any, classes: Classes) -> Any:
    """A DataFrame with its columns in the order of the classes, numbered ones and others as given.

    Raises:
        CorpusError: A class has no column.
    """
    columns = _list_columns(y)
    if columns is None or columns == [*range(len(columns))] or len(columns) != len(classes):
        return y
    names, wanted = [*map(str, columns)], [*map(str, classes)]
    if missing := [one for one in wanted if one not in names]:
        raise CorpusError(
            f"The columns of y must be the classes, but {missing[0]!r:.60} is none of them; name "
            f"them as the classes, or give an array with its columns in their order."
        )
    return y if names == wanted else y.iloc[:, [names.index(one) for one in wanted]]


def as_indicator(y: Any) -> sparse.csr_array | None:
    """Binary indicator matrix [n, L]; None of lists of labels.

    Raises:
        CorpusError: The matrix holds something else than 0 and 1.
    """
    if not sparse.issparse(y):
        if not hasattr(y, "__array__"):
            return None
        y = np.asarray(y)
        if y.ndim != 2 or y.dtype.kind not in "biuf":
            return None
    matrix = sparse.csr_array(y)
    matrix.sum_duplicates()
    if not np.isin(matrix.data, (0, 1)).all():
        odd = matrix.data[~np.isin(matrix.data, (0, 1))][0]
        raise CorpusError(
            f"An indicator matrix must hold 0 and 1, found {odd}; give 1 for each label of a "
            f"document."
        )
    matrix.eliminate_zeros()
    return matrix


def iter_label_lists(y: Any) -> Iterator[tuple[int, list[Any]]]:
    """(number of the document, its labels), documents numbered from 1.

    Raises:
        CorpusError: y is no sequence, or the labels of a document are no list of names.
    """
    if y is None or isinstance(y, str | bytes) or not isinstance(y, Iterable):
        raise CorpusError(
            f"y must hold the labels of each document, found {y!r:.60}; give a list of lists of "
            f"labels, or an indicator matrix."
        )
    for number, given in enumerate(y, start=1):
        labels = given.item() if isinstance(given, np.generic) else given
        if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
            raise CorpusError(
                f"y must hold a list of labels for each document, found {labels!r:.60} for "
                f"document {number}; write [{labels!r:.60}] for a single label."
            )
        found = [one.item() if isinstance(one, np.generic) else one for one in labels]
        if odd := [one for one in found if not isinstance(one, str | int)]:
            raise CorpusError(
                f"Labels must be strings or whole numbers, found {odd[0]!r:.60} of document "
                f"{number}; make a string of it."
            )
        yield number, found


def list_edges(hierarchy: HierarchyLike | None) -> list[tuple[str, str, str]]:
    """(child, parent, place) of each edge of a hierarchy, the names as strings.

    Raises:
        CorpusError: It is no hierarchy; whether it is acyclic is not checked.
    """
    pairs: Any = hierarchy
    if isinstance(hierarchy, nx.Graph):
        if not hierarchy.is_directed():
            raise CorpusError(
                "A hierarchy as a networkx graph must be a DiGraph with edges from child to "
                "parent, found a Graph without directions; make a DiGraph."
            )
        pairs = hierarchy.edges()
    elif isinstance(hierarchy, Mapping):
        pairs = [
            (child, parent) for child, above in hierarchy.items() for parent in _list_parents(above)
        ]
    if not isinstance(pairs, Iterable | None) or isinstance(pairs, str):
        raise CorpusError(
            f"A hierarchy must be (child, parent) pairs, a dict or a DiGraph, found {pairs!r:.60}."
        )
    edges = []
    for number, pair in enumerate(() if pairs is None else pairs, start=1):
        ends = list(pair) if isinstance(pair, tuple | list) else []
        if len(ends) != 2 or not all(isinstance(one, str | int | np.integer) for one in ends):
            raise CorpusError(
                f"An edge of the hierarchy must be (child, parent), found {pair!r:.60} as edge "
                f"{number}; give pairs of labels."
            )
        edges.append((str(ends[0]), str(ends[1]), f"hierarchy, edge {number}"))
    return edges


def _list_parents(above: Any) -> Iterable[Any]:
    """Parents of a label, of which there may be none, one or many."""
    if above is None:
        return ()
    return above if isinstance(above, list | tuple | set | frozenset) else (above,)


def _is_multi_hot(lists: Sequence[Sequence[Any]]) -> bool:
    """True if label lists are rows of a multi-hot matrix, not lists of label ids.

    They are if all hold 0 and 1 alone and one holds a value twice, which a list of ids does not.
    """
    is_binary = all(one in (0, 1) for labels in lists for one in labels)
    return is_binary and any(len(labels) > len({*labels}) for labels in lists)
