"""Tables in memory as a `Corpus`: pandas frames of documents, labels and their hierarchy."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from torch import Tensor

from match_graph.config import parse_settings
from match_graph.corpus import Corpus
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.hetero_parts import to_array
from match_graph.datasets.table_rows import TableConfig, TableReader
from match_graph.errors import CorpusError, list_faults
from match_graph.io.json_lines import as_whole, read_values
from match_graph.typing import DOCUMENT, LABEL

#: (child, parent) pairs, as a frame of these columns or as tuples.
Hierarchy: TypeAlias = pd.DataFrame | Iterable[tuple[str, str]]

_LABEL_COLUMNS = {"id", "name", "definition", "parent"}
_SUMMARY = "The frames must hold documents"


def from_frames(
    documents: pd.DataFrame,
    labels: pd.DataFrame | None = None,
    hierarchy: Hierarchy | None = None,
    *,
    features: Mapping[str, Any] | None = None,
    name: str = "frames",
    **options: Any,
) -> Corpus:
    """The corpus of pandas frames.

    Args:
        documents: A row per document: ``id`` (strings or whole numbers), ``text``, ``label`` and a
            column per metadata field of ``fields``, each cell a string or a list of strings; what
            is missing (None, NaN) is an empty list or text. A string is one value as it stands, "a;
            b" too, which `Custom` would split in CSV. Other names of columns stand in ``columns``;
            `Corpus.warnings` names those that are not read, and those that hold such strings.
        labels: A row per label: ``id`` and, where known, ``name``, ``definition`` and ``parent``
            (an id or a list of them); also of labels that no document has.
        hierarchy: Further edges of the hierarchy, (child, parent); it must be acyclic.
        features: Node features by type, "document", "label" or a field: a frame with the ids in its
            column ``id`` or its index, and columns of numbers or one of lists, or, of documents and
            labels, an array with a row per row of their frame.
        name: Name of the corpus.
        **options: Those of the data set `Custom` that are about columns and splits: ``fields``,
            ``columns`` ({"text": ["title", "abstract"], "split": "fold", "date": "year"}),
            ``tokenizer``, ``train_until``, ``valid_until``, ``seed``. Without a column of splits,
            or one of dates and ``train_until``, documents are split at random by text, 8 : 1 : 1.

    Raises:
        CorpusError: With every fault of the frames.
        ConfigError: An option is unknown or impossible.
    """
    config = parse_settings(TableConfig, options, "The options of from_frames must be valid")
    builder = CorpusBuilder(name, config.fields, _SUMMARY, tokenizer=config.tokenizer)
    reader = TableReader(builder, config, "columns={...}")
    documents = _check_frame("documents", documents)
    labels = None if labels is None else _check_frame("labels", labels)
    try:
        corpus = _build(builder, reader, documents, labels, hierarchy)
    except UnicodeEncodeError as error:
        raise CorpusError(f"{_SUMMARY}: all strings must be Unicode text ({error}).") from error
    return corpus if features is None else _add_features(corpus, labels, features)


def _build(
    builder: CorpusBuilder,
    reader: TableReader,
    documents: pd.DataFrame,
    labels: pd.DataFrame | None,
    hierarchy: Hierarchy | None,
) -> Corpus:
    """The corpus of frames, without features."""
    used = {column for columns in reader.columns.values() for column in columns}
    reader.seen.update(documents.columns)
    reader.note_columns()
    reader.check_columns()
    rows = () if builder.faults else iter_rows(documents, used)
    for number, row in enumerate(builder.documents(rows)):
        reader.add(row, f"documents, row {number}")
    reader.note_columns()
    reader.check_lists()
    edges = [*_read_pairs(hierarchy, builder)]
    names: dict[str, str] = {}
    if labels is not None:
        if others := sorted({*labels.columns} - _LABEL_COLUMNS):
            builder.warnings.append(f"the columns {others} of labels are not read")
        edges += _read_labels(labels, builder, names)
    corpus = replace(builder.build(edges, names), layout=reader.layout)
    return corpus if labels is None else _define_labels(corpus, labels)


def _check_frame(key: str, frame: Any) -> pd.DataFrame:
    """Validates a frame; gives it with strings as names of its columns.

    Raises:
        CorpusError: It is no frame, or malformed.
    """
    if not isinstance(frame, pd.DataFrame):
        kind = type(frame).__name__
        raise CorpusError(f"{_SUMMARY}: {key} must be a DataFrame, found {kind}.")
    frame = frame.set_axis([*map(str, frame.columns)], axis=1)
    if fault := _find_frame_fault(key, frame):
        raise CorpusError(f"{_SUMMARY}: {fault}")
    return frame


def _find_frame_fault(key: str, frame: pd.DataFrame) -> str:
    """Fault of a frame as a sentence; empty if it has none."""
    if not len(frame):
        return f"{key} must have rows, found none."
    if repeated := frame.columns[frame.columns.duplicated()].tolist():
        return f"{key} must name every column once, found {repeated} twice."
    if key == "labels" and "id" not in frame:
        return f"labels must have a column id, found {[*frame.columns]}."
    return ""


def iter_rows(frame: pd.DataFrame, used: Container[str]) -> Iterator[dict[str, Any]]:
    """Rows of a frame's used columns as of JSON objects; a missing cell is None."""
    names = [str(name) for name in frame.columns if name in used]
    columns = {name: [*map(simplify_cell, frame[name].tolist())] for name in names}
    for cells in zip(*columns.values(), strict=True):
        yield dict(zip(columns, cells, strict=True))


def simplify_cell(value: Any) -> Any:
    """A cell as strings, whole numbers and lists of them; None where it is missing."""
    if isinstance(value, set | frozenset):
        return sorted(map(simplify_cell, value), key=str)
    if isinstance(value, list | tuple | np.ndarray | pd.Series):
        return [simplify_cell(one) for one in value]
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, float):  # in pandas whole numbers too, where some are missing
        return None if np.isnan(value) else as_whole(value)
    if isinstance(value, date):
        return value.isoformat()[:10]
    return value.item() if isinstance(value, np.generic) else value


def _index(values: Iterable[Any]) -> pd.Index:
    """Ids as strings."""
    return pd.Index([str(simplify_cell(one)) for one in values], dtype=object)


def _read_pairs(
    hierarchy: Hierarchy | None, builder: CorpusBuilder
) -> Iterator[tuple[str, str, str]]:
    """Edges of a hierarchy with their places."""
    if isinstance(hierarchy, pd.DataFrame):
        if not {"child", "parent"} <= {*hierarchy.columns}:
            builder.fail(
                f"hierarchy must have the columns child and parent, found "
                f"{[*map(str, hierarchy.columns)]}."
            )
            return
        hierarchy = zip(hierarchy["child"].tolist(), hierarchy["parent"].tolist(), strict=True)
    if not isinstance(hierarchy, Iterable | None) or isinstance(hierarchy, str):
        kind = type(hierarchy).__name__
        builder.fail(f"hierarchy must be a DataFrame or (child, parent) pairs, found {kind}.")
        return
    pairs: Iterable[Any] = () if hierarchy is None else hierarchy
    for number, pair in enumerate(pairs):
        is_list = isinstance(pair, tuple | list | np.ndarray)
        ends = [simplify_cell(one) for one in pair] if is_list else []
        if len(ends) != 2 or not all(isinstance(one, str | int) for one in ends):
            builder.fail(
                f"hierarchy, row {number}: an edge must be the ids of a child and a parent, found "
                f"{pair!r:.60}."
            )
        else:
            yield str(ends[0]), str(ends[1]), f"hierarchy, row {number}"


def _read_labels(
    labels: pd.DataFrame, builder: CorpusBuilder, names: dict[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yields the edges of the column ``parent``; adds names of labels to ``names``."""
    ids = [*map(simplify_cell, labels["id"].tolist())]
    for number, one in enumerate(ids):
        if not isinstance(one, str | int) or isinstance(one, bool):
            builder.fail(f"labels, row {number}: id must be a string, found {one!r:.60}.")
    repeated = pd.Series(ids, dtype=object)
    for one in repeated[repeated.duplicated()].unique():
        builder.fail(f"labels must name every label once, found '{one}' twice.")
    if "name" in labels:
        given = map(simplify_cell, labels["name"].tolist())
        names |= {str(one): str(name) for one, name in zip(ids, given, strict=True) if name}
    parents = map(simplify_cell, labels["parent"].tolist() if "parent" in labels else ())
    for number, (one, above) in enumerate(zip(ids, parents, strict=False)):
        values = read_values(above)
        if values is None:
            builder.fail(
                f"labels, row {number}: parent must be an id or a list of ids, found {above!r:.60}."
            )
        yield from ((str(one), value, f"labels, row {number}") for value in values or ())


def _define_labels(corpus: Corpus, labels: pd.DataFrame) -> Corpus:
    """Adds definitions of labels; warns of labels of documents that are not listed."""
    ids = _index(labels["id"].tolist())
    table = corpus.instances[LABEL]
    row = ids.get_indexer(pd.Index(table["id"]))
    warnings = [*corpus.warnings]
    if (row < 0).any():
        warnings.append(
            f"{int((row < 0).sum()):,} labels of documents are not in labels, such as "
            f"'{table['id'][row < 0].iloc[0]}'"
        )
    if "definition" in labels:
        given = [str(simplify_cell(one) or "") for one in labels["definition"]]
        texts = np.array(given, dtype=object)
        found = np.where(row < 0, "", texts[row])
        table = table.assign(definition=pd.Series(found, index=table.index, dtype=str))
    return replace(corpus, instances={**corpus.instances, LABEL: table}, warnings=warnings)


def _add_features(
    corpus: Corpus, labels: pd.DataFrame | None, features: Mapping[str, Any]
) -> Corpus:
    """Adds features, each row to the node of its id."""
    if not isinstance(features, Mapping):
        kind = type(features).__name__
        raise CorpusError(f"The features must be arrays by node type, found {kind}.")
    faults: list[str] = []
    aligned: dict[str, Any] = {}
    for name, given in features.items():
        table = corpus.documents if name == DOCUMENT else corpus.instances.get(name)
        if isinstance(given, pd.DataFrame):
            ids, values = _read_frame(given)
        else:
            ids, values = None, _read_rows(given)
        if table is None or (name == DOCUMENT and ids is None):
            aligned[name] = values  # in the documents' order; `Corpus` refuses unknown node types
            continue
        if ids is not None:
            rows = _index(ids)
        elif name == LABEL and labels is not None and _is_matrix(values):
            rows = _index(labels["id"].tolist())
        else:
            faults.append(
                f"the features of '{name}' must be a DataFrame with the ids in its index"
                f"{' or an array with a row per row of labels' if name == LABEL else ''}, found "
                f"{type(given).__name__}."
            )
            continue
        if fault := _find_row_fault(name, rows, table["id"], len(values)):
            faults.append(fault)
        else:
            aligned[name] = np.asarray(values)[rows.get_indexer(pd.Index(table["id"]))]
    if faults:
        raise CorpusError(list_faults("The features must fit the frames", faults))
    return replace(corpus, features=aligned)


def _read_frame(frame: pd.DataFrame) -> tuple[pd.Index, Any]:
    """Ids of a frame of features (its column ``id`` or its index), and its values as `_read_rows`.

    The values are its other columns, or the lists of a single one.
    """
    frame = frame.set_index("id") if "id" in frame else frame
    if frame.shape[1] == 1 and pd.api.types.is_object_dtype(frame.iloc[:, 0]):
        lists = _read_rows(frame.iloc[:, 0].tolist())
        return frame.index, lists if _is_matrix(lists) else frame
    return frame.index, _read_rows(frame)


def _read_rows(values: Any) -> Any:
    """Numeric array of a tensor or of lists; anything else unchanged."""
    if isinstance(values, Tensor):
        return to_array(values)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):  # a sparse matrix; rows of two widths
        return values
    return array if array.dtype.kind in "fiub" else values


def _is_matrix(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 2


def _find_row_fault(name: str, rows: pd.Index, ids: pd.Series, number: int) -> str:
    """Fault of the ids of features as a sentence; empty if each node has one row."""
    if len(rows) != number:
        return f"the features of '{name}' must have {len(rows):,} rows, found {number:,}."
    if rows.has_duplicates:
        repeated = rows[rows.duplicated()][0]
        return f"the features of '{name}' must name every id once, found '{repeated}' twice."
    missing = ids[~ids.isin(rows)]
    if len(missing):
        return (
            f"the features of '{name}' must have a row for each id, but {len(missing):,} have "
            f"none, such as '{missing.iloc[0]}'."
        )
    return ""
