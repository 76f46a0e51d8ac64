"""Cycles of label hierarchies: found in linear time, and described."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, connected_components

_SHOWN_CYCLE = 10  # labels of a cycle that a message names


def find_cycle(hierarchy: pd.DataFrame) -> str | None:
    """One sentence that names a cycle of the label hierarchy, or None if it is acyclic.

    Args:
        hierarchy: Label edges: columns ``child``, ``parent`` and optionally ``origin``.
    """
    ends = pd.concat([hierarchy["child"], hierarchy["parent"]])
    codes, names = pd.factorize(ends)
    child, parent = codes.reshape(2, -1)
    edges = find_cycle_edges(child, parent, len(names))
    if not len(edges):
        return None
    origin = f" ({hierarchy['origin'].iloc[edges[-1]]})" if "origin" in hierarchy else ""
    return describe_cycle([str(names[node]) for node in child[edges]], origin)


def find_cycle_edges(child: NDArray[Any], parent: NDArray[Any], num_nodes: int) -> NDArray[Any]:
    """Edge indices of a shortest cycle through some node, in order; empty if acyclic.

    Linear in nodes and edges: a node lies on a cycle if its strongly connected component holds
    another one, or it has an edge to itself. From the first such node a breadth-first search
    within its component leads back to it.

    Args:
        child: Child node of each edge, [E].
        parent: Parent node of each edge, [E].
        num_nodes: Number of nodes; every index is below it.
    """
    loops = np.flatnonzero(child == parent)
    if len(loops):
        return loops[:1]
    shape = (num_nodes, num_nodes)
    graph = sp.csr_array((np.ones(len(child), np.int8), (child, parent)), shape=shape)
    _, component = connected_components(graph, connection="strong")
    inside = np.flatnonzero(component[child] == component[parent])
    if not len(inside):
        return inside
    start = child[inside[0]]
    inside = inside[component[child[inside]] == component[start]]
    graph = sp.csr_array((np.ones(len(inside), np.int8), (child[inside], parent[inside])), shape)
    order, before = breadth_first_order(graph, start)
    last = order[np.isin(order, child[inside[parent[inside] == start]])][0]  # the nearest
    nodes = [start, last]
    while nodes[-1] != start:
        nodes.append(before[nodes[-1]])
    steps = zip(nodes[:0:-1], nodes[-2::-1], strict=True)
    return np.array([inside[(child[inside] == a) & (parent[inside] == b)][0] for a, b in steps])


def describe_cycle(nodes: Sequence[str], origin: str = "") -> str:
    """Message for a cycle; a long one is shortened to both ends.

    Args:
        nodes: Node names of the cycle, each once, in order.
        origin: Place of the cycle's last edge in its file, with a blank before.
    """
    path = [*nodes, nodes[0]]
    if len(path) > _SHOWN_CYCLE:
        half = _SHOWN_CYCLE // 2
        path = [*path[:half], f"... ({len(path) - 2 * half:,} more) ...", *path[-half:]]
    return (
        f"the label hierarchy must be acyclic, but {' -> '.join(path)} is a cycle{origin}; "
        f"remove one of these edges, or leave the hierarchy out (of files: data.hierarchy=ignore)."
    )
