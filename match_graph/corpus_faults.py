"""Checks of a corpus's tables; each fault is a sentence."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from match_graph.typing import CONTEXT, LABEL, RESERVED_TYPES, SPLITS

#: Keys of a document in the MATCH format that are not metadata.
RECORD_KEYS = frozenset({"paper", "text"})
NO_TRAINING = "the training split must hold a document, found none."
#: Columns of an edge's ends; all others are its attributes.
ENDS = ("document", "instance")


def check_field_names(fields: Sequence[str]) -> list[str]:
    """Faults of a list of metadata field names; empty if all can be node types."""
    faults = [f"the metadata field '{name}' is listed twice." for name in _repeated(fields)]
    for name in fields:
        if not isinstance(name, str):
            faults.append(f"a metadata field must be named by a string, found {name!r:.60}.")
        elif name in RECORD_KEYS:
            faults.append(
                f"a metadata field cannot be named '{name}': documents have their id under 'paper' "
                f"and their text under 'text' where they are shown or predicted; rename it."
            )
        elif name in RESERVED_TYPES:
            faults.append(f"a metadata field cannot be named '{name}': that node type is taken.")
        elif name == CONTEXT:
            faults.append(
                f"a metadata field cannot be named '{name}': pre-training keeps the context "
                f"vectors of words under that name; rename it."
            )
        elif not name.isidentifier() or "__" in name:
            faults.append(
                f"a metadata field must be named by letters, digits and single underscores, "
                f"found '{name}'."
            )
    return faults


def _repeated(names: Iterable[str]) -> list[str]:
    series = pd.Series(list(names), dtype=object)
    return [str(name) for name in series[series.duplicated()].unique()]


def find_document_faults(documents: pd.DataFrame) -> list[str]:
    """Faults of the table of documents, sentences."""
    missing = {"id", "split"} - set(documents.columns)
    if missing:
        return [f"the documents lack the columns {sorted(missing)}."]
    faults = [f"the document '{name}' is given twice." for name in _repeated(documents["id"])]
    unknown = set(documents["split"].unique()) - set(SPLITS)
    if unknown:
        faults.append(f"a split must be one of {SPLITS}, found {sorted(map(str, unknown))}.")
    if not (documents["split"] == "train").any():
        faults.append(NO_TRAINING)
    if "time" in documents and documents["time"].dtype != np.int64:
        faults.append(
            f"the time of documents must be int64, found {documents['time'].dtype}; give every "
            f"document one, or leave the column out."
        )
    return faults


def find_type_faults(
    name: str, ids: pd.DataFrame, edges: pd.DataFrame, num_documents: int
) -> list[str]:
    """Faults of the instances of a type and of its edges, sentences."""
    if "id" not in ids or not set(ENDS) <= set(edges.columns):
        return [f"the type '{name}' needs a column id, its edges need document and instance."]
    faults = [f"the {name} '{value}' is given twice." for value in _repeated(ids["id"])]
    for column, limit in (("document", num_documents), ("instance", len(ids))):
        values = edges[column].to_numpy()
        if len(values) and values.dtype.kind not in "iu":
            return [
                *faults,
                f"the {name} edges must name {column}s by integers, found {values.dtype}.",
            ]
        if len(values) and (values.min() < 0 or values.max() >= limit):
            faults.append(
                f"the {name} edges must name {column}s in [0, {limit}), "
                f"found {values.min()} to {values.max()}."
            )
    if not edges["document"].is_monotonic_increasing:
        faults.append(f"the {name} edges must be sorted by document.")
    elif name == LABEL and (twice := edges.duplicated([*ENDS])).any():
        first = edges[[*ENDS]][twice].iloc[0]
        faults.append(
            f"a document must have a gold label once, but the document {first['document']} has the "
            f"label {first['instance']} twice."
        )
    for column in edges.columns.difference([*ENDS], sort=False):
        if not pd.api.types.is_numeric_dtype(edges[column]):
            faults.append(
                f"the attribute '{column}' of the {name} edges must be numbers, found "
                f"{edges[column].dtype}; leave it out."
            )
        elif not np.isfinite(edges[column].to_numpy(dtype=np.float32, na_value=np.nan)).all():
            faults.append(f"the attribute '{column}' of the {name} edges must be finite.")
    return faults


def find_feature_faults(features: Mapping[str, Any], rows: Mapping[str, int]) -> list[str]:
    """Faults of node features, sentences.

    Args:
        features: Features by node type.
        rows: Number of rows that the features of each type must have.
    """
    faults = []
    for name, values in features.items():
        if name not in rows:
            faults.append(f"features must be of the types {list(rows)}, found '{name}'.")
            continue
        try:
            array = np.asarray(values)
            is_number = array.dtype.kind in "fiub"
        except (TypeError, ValueError, RuntimeError):  # rows of two widths, a tensor on a device
            array, is_number = np.empty(0), False
        if not is_number or array.ndim != 2 or len(array) != rows[name] or not array.shape[1]:
            found = f"{array.dtype} {list(array.shape)}" if is_number else type(values).__name__
            faults.append(
                f"the features of '{name}' must be numbers [{rows[name]}, F], a row per node, "
                f"found {found}."
            )
        elif len(wrong := np.flatnonzero(~_finite_rows(array))):
            faults.append(
                f"the features of '{name}' must be finite, but {len(wrong):,} rows are not, the "
                f"first is {wrong[0]}."
            )
    return faults


def _finite_rows(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the rows that are finite as float32, or as float16."""
    with np.errstate(over="ignore"):
        return np.asarray(np.isfinite(as_features(array)).all(axis=1))


def as_features(values: Any) -> NDArray[Any]:
    """Features as an array: float16 stays, other numbers become float32."""
    array = np.asarray(values)
    return array if array.dtype == np.float16 else array.astype(np.float32, copy=False)
