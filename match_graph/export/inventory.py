"""Counts and order-independent fingerprints of a graph, to compare an export with its source."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from match_graph.corpus import Array
from match_graph.graph.hashing import mix_keys
from match_graph.typing import EdgeType

_AT_ONCE = 1_000_000  # edges that are hashed at a time
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))


class Inventory:
    """Counts per node and edge type, and a 64-bit fingerprint of each of their attributes.

    Nodes are identified by type and id, not by index, so that graphs that differ only in the order
    of nodes and edges are equal. A fingerprint is the sum of hashes of (id, value) or (source id,
    target id, value) modulo 2^64, so that it is independent of order and batches.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.prints: dict[str, int] = {}
        self._ids: dict[str, Array] = {}

    def add_nodes(self, node_type: str, ids: Any, columns: Mapping[str, Any]) -> None:
        """Adds nodes, whose indices continue those of the type so far.

        Args:
            node_type: Node type.
            ids: Ids of the nodes, strings, [N].
            columns: Node attributes by name, [N] or, for vectors, [N, C].
        """
        keys = _hash_values(ids)
        self._ids[node_type] = np.concatenate([self._ids.get(node_type, keys[:0]), keys])
        self._add(node_type, keys, {"id": keys, **columns})

    def add_edges(
        self,
        edge_type: EdgeType,
        ends: Sequence[Any] | Array,
        columns: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds edges between nodes that were added before.

        Args:
            edge_type: Edge type.
            ends: Indices of source and target within their types, [2, E].
            columns: Edge attributes by name, [E].
        """
        source, target = map(np.asarray, ends)
        heads, tails = self._ids[edge_type[0]], self._ids[edge_type[2]]
        for start in range(0, max(len(source), 1), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            keys = mix_keys(heads[source[part]]) * _ODD[0] + tails[target[part]]
            more = {name: values[part] for name, values in (columns or {}).items()}
            self._add(" ".join(edge_type), keys, {"ends": keys, **more})

    def _add(self, name: str, keys: Array, columns: Mapping[str, Any]) -> None:
        self.counts[name] = self.counts.get(name, 0) + len(keys)
        for column, values in columns.items():
            hashes = mix_keys(mix_keys(keys) * _ODD[1] + _hash_values(values))
            key = f"{name}.{column}"
            total = self.prints.get(key, 0) + int(hashes.sum(dtype=np.uint64))
            self.prints[key] = total % 2**64


def _hash_values(values: Any) -> Array:
    """Hashes of values [N], or of rows [N, C], independent of the width of numeric types."""
    array = np.asarray(values)
    if array.ndim == 2:  # the order of channels counts
        hashes = np.zeros(len(array), dtype=np.uint64)
        for channel in range(array.shape[1]):
            hashes = mix_keys(hashes * _ODD[2] + _hash_values(array[:, channel]))
        return hashes
    if array.dtype.kind in "OUST":
        array = np.asarray(values, dtype=object)  # NumPy's own strings lose a NUL at the end
    else:
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
    return pd.util.hash_array(array)


def find_differences(expected: Inventory, found: Inventory) -> dict[str, str]:
    """Differences in counts and fingerprints; those that were not expected are ignored.

    Returns:
        Sentences by key of the inventory.
    """
    faults = {}
    for name, count in expected.counts.items():
        there = found.counts.get(name, 0)
        if there != count:
            faults[name] = f"{name}: {count:,} expected, found {there:,}."
    for key, value in expected.prints.items():
        name, _, column = key.rpartition(".")
        if expected.counts[name] and key not in found.prints:
            faults[key] = f"{name}: '{column}' is missing."
        elif found.prints.get(key, 0) != value and name not in faults:
            faults[key] = f"{name}: '{column}' has other values."
    return faults
