"""Edges, masks, classes and features of a `HeteroData` as validated arrays; faults are listed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.data.storage import NodeStorage

from match_graph.corpus import Array
from match_graph.corpus_faults import ENDS
from match_graph.typing import MASKS, EdgeType


@dataclass(frozen=True)
class Edges:
    """Edges with attributes.

    Args:
        head: Start of each edge, [E], int64.
        tail: End of each edge, [E], int64.
        attr: Attributes, [E, K]; None without any.
    """

    head: Array
    tail: Array
    attr: Array | None

    def reverse(self) -> "Edges":
        """The same edges the other way round."""
        return Edges(self.tail, self.head, self.attr)

    def take(self, rows: Array) -> "Edges":
        """Some of the edges, by mask or index."""
        attr = None if self.attr is None else self.attr[rows]
        return Edges(self.head[rows], self.tail[rows], attr)

    def renumber_head(self, number: Array) -> "Edges":
        """Edges whose heads are mapped by an array of new indices."""
        return replace(self, head=number[self.head])

    def renumber_tail(self, number: Array) -> "Edges":
        """Edges whose tails are mapped by an array of new indices."""
        return replace(self, tail=number[self.tail])

    def to_frame(self) -> pd.DataFrame:
        """Table of edges as in a `Corpus`, with columns ``attr0``, ``attr1``, ... of attributes."""
        table = pd.DataFrame(dict(zip(ENDS, (self.head, self.tail), strict=True)), dtype=np.int32)
        attr = np.empty((len(table), 0)) if self.attr is None else self.attr
        return table.assign(**{f"attr{k}": attr[:, k] for k in range(attr.shape[1])})

    @classmethod
    def from_frame(cls, table: pd.DataFrame) -> "Edges":
        """Inverse of `to_frame`."""
        head, tail = (table[end].to_numpy(dtype=np.int64) for end in ENDS)
        others = table.drop(columns=[*ENDS])
        return cls(head, tail, others.to_numpy() if others.shape[1] else None)

    def count_repeated(self) -> int:
        """Number of edges that repeat an earlier one."""
        key = self.head * (self.tail.max(initial=0) + 1) + self.tail
        return len(key) - len(np.unique(key))


def number_edges(index: Any, sizes: tuple[int, int], what: str, faults: list[str]) -> Array:
    """Edge index as an array [2, E], int64; empty and a fault if malformed or out of range."""
    array = to_array(index)
    if array is None or array.shape[:-1] != (2,) or array.dtype.kind not in "iu":
        kind = type(index).__name__
        found = kind if array is None else f"{array.dtype} {list(array.shape)}"
        faults.append(f"the edge_index of {what} must be [2, E] of integers, found {found}.")
        return np.empty((2, 0), dtype=np.int64)
    edges: Array = array.astype(np.int64)
    for row, size in zip(edges, sizes, strict=True):
        if len(row) and (row.min() < 0 or row.max() >= size):
            faults.append(
                f"the edge_index of {what} must be in [0, {size}), found {row.min()} to "
                f"{row.max()}."
            )
            return np.empty((2, 0), dtype=np.int64)
    return edges


def read_edges(
    data: HeteroData, edge_type: EdgeType, sizes: tuple[int, int], faults: list[str]
) -> Edges:
    """Edges of a type, sorted by ``position`` if they have it."""
    store, before = data[edge_type], len(faults)
    head, tail = number_edges(store.get("edge_index"), sizes, str(edge_type), faults)
    attr = None
    if len(faults) > before:  # further faults would only follow from this one
        return Edges(head, tail, attr)
    if "edge_attr" in store:
        attr = to_array(store.edge_attr)
        attr = attr[:, None] if attr is not None and attr.ndim == 1 else attr
        if attr is None or attr.ndim != 2 or len(attr) != len(head):
            found = type(store.edge_attr).__name__ if attr is None else list(attr.shape)
            faults.append(f"the edge_attr of {edge_type} must be [{len(head)}, K], found {found}.")
            attr = None
    edges = Edges(head, tail, attr)
    if "position" not in store:
        return edges
    position = to_array(store.position)
    if position is None or position.size != len(head) or position.shape[:1] != head.shape:
        found = type(store.position).__name__ if position is None else list(position.shape)
        faults.append(f"the position of {edge_type} must be [{len(head)}], found {found}.")
        return edges
    return edges.take(position.reshape(-1).argsort(kind="stable"))


def join_edges(
    found: Sequence[Edges], what: str, is_set: bool, faults: list[str]
) -> tuple[Edges, bool]:
    """Concatenates lists of edges, sorted by head; also whether all hold the same set of edges.

    With ``is_set`` only the first of equal edges is kept.
    """
    head, tail = (np.concatenate([getattr(one, end) for one in found]) for end in ("head", "tail"))
    attributes = [one.attr for one in found if one.attr is not None]
    attr = None
    if attributes:
        widths = {one.shape[1] for one in attributes}
        if len(attributes) < len(found) or len(widths) > 1:
            faults.append(
                f"the edges of {what} become one and must have edge_attr of one width, "
                f"found {[0 if one.attr is None else one.attr.shape[1] for one in found]} (0: "
                f"none); drop one of them, or give all the same attributes."
            )
        else:
            attr = np.concatenate(attributes)
    joined, is_same = Edges(head, tail, attr), True
    if is_set and len(head):
        key = head * (tail.max() + 1) + tail
        first = np.sort(np.unique(key, return_index=True)[1])
        parts = np.split(key, np.cumsum([len(one.head) for one in found])[:-1])
        is_same = all(len(np.unique(part)) == len(first) for part in parts)
        joined = joined.take(first)
    return _sort_edges(joined), is_same


def _sort_edges(edges: Edges) -> Edges:
    """Edges in stable order by head."""
    return edges.take(np.argsort(edges.head, kind="stable"))


def read_splits(store: NodeStorage, number: int, faults: list[str]) -> Array | None:
    """Split of each document by PyG's masks, "" if it is in none, [N]; None without masks."""
    there = {split: store[mask] for split, mask in MASKS.items() if mask in store}
    if not there:
        return None
    splits: Array = np.full(number, "", dtype=object)
    if "train" not in there:
        faults.append(f"masks must name training documents, found {[*there]}; add train_mask.")
    for split, mask in there.items():
        array = to_array(mask)
        if array is None or array.dtype != bool or array.shape != (number,):
            found = type(mask).__name__ if array is None else f"{array.dtype} {list(array.shape)}"
            faults.append(f"{MASKS[split]} must be [{number}] of bool, found {found}.")
            continue
        if len(twice := np.flatnonzero(array & (splits != ""))):
            faults.append(
                f"a document must be in one mask, but {len(twice):,} are in two, the first is "
                f"{twice[0]}, in {MASKS[splits[twice[0]]]} and {MASKS[split]}."
            )
        splits[array] = split
    return splits


def read_classes(store: NodeStorage, key: str, number: int, faults: list[str]) -> tuple[Edges, int]:
    """Edges from documents to classes, and the number of classes.

    Class indices or a multi-hot matrix; ``KEY_index`` names the documents of its rows, if not all.
    """
    empty = np.empty(0, dtype=np.int64)
    nothing = Edges(empty, empty, None), 0
    values, index = to_array(store[key]), to_array(store.get(f"{key}_index"))
    rows = np.arange(number) if index is None else index
    if fault := _find_index_fault(rows, number):
        faults.append(f"'{key}_index' must {fault}.")
        return nothing
    rows = rows.astype(np.int64)
    if values is None or not 1 <= values.ndim <= 2 or len(values) != len(rows):
        found = "none" if values is None else list(values.shape)
        faults.append(
            f"labels '{key}' must be [{len(rows)}] or [{len(rows)}, L], a row per document, found "
            f"{found}."
        )
        return nothing
    is_column = values.ndim == 2 and values.shape[1] == 1 and values.dtype.kind in "iu"
    values = values[:, 0] if is_column else values  # as OGB has class indices
    if values.ndim == 2:
        if not np.isin(values, (0, 1)).all():
            faults.append(f"multi-hot labels '{key}' must be 0 or 1, found other numbers.")
        document, classes = np.nonzero(values == 1)
        return _sort_edges(Edges(rows[document], classes, None)), values.shape[1]
    if values.dtype.kind not in "iu":
        faults.append(f"class indices '{key}' must be integers, found {values.dtype}.")
        return nothing
    edges = Edges(rows, values.astype(np.int64), None).take(values >= 0)
    return _sort_edges(edges), int(edges.tail.max(initial=-1)) + 1


def _find_index_fault(rows: Array, number: int) -> str:
    """Fault of indices of documents as a clause; empty if there is none."""
    if rows.dtype.kind not in "iu":
        return f"be indices of documents, found {rows.dtype}"
    if len(rows) and (rows.min() < 0 or rows.max() >= number):
        return f"be in [0, {number}), found {rows.min()} to {rows.max()}"
    if len(np.unique(rows)) < len(rows):
        return "name every document once, but some are repeated"
    return ""


def read_features(x: Any, node_type: str, number: int, faults: list[str]) -> Array | None:
    """Features of a type, [N, F]; their values are checked by `Corpus`."""
    array = to_array(x)
    if array is None or array.ndim != 2 or len(array) != number:
        found = type(x).__name__ if array is None else list(array.shape)
        faults.append(f"x of '{node_type}' must be [{number}, F], found {found}.")
        return None
    return array


def read_times(time: Any, number: int, faults: list[str]) -> Array:
    """Times of documents, [N], int64."""
    array = to_array(time)
    array = array[:, 0] if array is not None and array.shape == (number, 1) else array
    if array is None or array.dtype.kind not in "iu" or array.shape != (number,):
        found = type(time).__name__ if array is None else f"{array.dtype} {list(array.shape)}"
        faults.append(f"time must be [{number}] of integers, found {found}.")
        return np.zeros(number, dtype=np.int64)
    return array.astype(np.int64)


def read_names(given: Any, known: Collection[str], faults: list[str]) -> dict[str, list[Any]]:
    """Validates the argument ``names`` of `from_hetero`: ids of nodes by node type.

    Args:
        given: The user's argument.
        known: Node types, and the attribute of the labels.
        faults: List to which faults are added.
    """
    if not isinstance(given, Mapping):
        faults.append(f"names must be lists of ids by node type, found {type(given).__name__}.")
        return {}
    names = dict[str, list[Any]]()
    for key, ids in given.items():
        is_array = isinstance(ids, Tensor | np.ndarray | pd.Series | pd.Index)
        values = ids.tolist() if is_array else ids
        if key not in known:
            faults.append(f"names must be of the types {[*known]}, found '{key}'.")
        elif not isinstance(values, Sequence) or isinstance(values, str):
            kind = type(values).__name__
            faults.append(f"the names of '{key}' must be a list of ids, found {kind}.")
        else:
            names[key] = [str(one) if _is_number(one) else one for one in values]
    return names


def _is_number(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def describe_left_out(attributes: Collection[str]) -> list[str]:
    """Warning that names attributes which are not read; empty without any."""
    if not attributes:
        return []
    return [f"left out attributes that have no place in a corpus: {[*attributes]}"]


def read_strings(values: Any, number: int, what: str, faults: list[str]) -> list[str] | None:
    """A string per node; None and a fault if malformed."""
    is_list = isinstance(values, Sequence | np.ndarray | pd.Series) and not isinstance(values, str)
    if not is_list or len(values) != number or not all(isinstance(one, str) for one in values):
        found = f"{len(values):,} items" if is_list else type(values).__name__
        if is_list and len(values) == number:
            found = f"{next(one for one in values if not isinstance(one, str))!r:.60} among them"
        faults.append(f"{what} must be {number:,} strings, one per node, found {found}.")
        return None
    try:
        "".join(values).encode()
    except UnicodeEncodeError as error:
        faults.append(f"{what} must be Unicode text ({error}).")
        return None
    return [*values]


def to_array(values: Any) -> Array | None:
    """Numeric array of a dense or sparse tensor or an array; None for anything else."""
    if isinstance(values, Tensor):
        try:
            dense = values.detach().to_dense().cpu()
            dense = dense.float() if dense.dtype == torch.bfloat16 else dense
            return np.asarray(dense.numpy())
        except (RuntimeError, TypeError):  # on the device meta, or quantized
            return None
    return values if _is_numeric(values) else None


def _is_numeric(values: Any) -> TypeGuard[Array]:
    return isinstance(values, np.ndarray) and values.dtype.kind in "fiub"
