"""Roles of the node and edge types of a `HeteroData` in a corpus."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.corpus import Array
from match_graph.datasets.hetero_parts import read_names, to_array
from match_graph.errors import CorpusError, list_faults
from match_graph.typing import DOCUMENT, LABEL, MASKS, EdgeType

SUMMARY = "A HeteroData must be readable as a corpus"


@dataclass
class Roles:
    """Roles of the types of a graph.

    Args:
        document: Node type of the documents.
        labels: Node type of the labels, or attribute of the documents.
        names: Given ids of nodes by node type, and of classes by their attribute.
        sizes: Number of nodes by node type, in the graph's order; without dropped types.
        edge_types: Edge types that are not dropped.
        of_type: Edge types between documents and another type, by that type, labels among them.
        citations: Edge types between documents.
        is_a: Edge type of the hierarchy; None without one.
    """

    document: str
    labels: str
    names: dict[str, list[Any]]
    sizes: dict[str, int]
    edge_types: list[EdgeType]
    of_type: dict[str, list[EdgeType]]
    citations: list[EdgeType] = field(default_factory=list)
    is_a: EdgeType | None = None

    @property
    def has_label_nodes(self) -> bool:
        """Whether labels are nodes, not an attribute of the documents."""
        return self.labels in self.sizes


def find_roles(
    data: HeteroData,
    document: str | None,
    labels: str | None,
    hierarchy: EdgeType | Tensor | Array | None,
    names: Mapping[str, Sequence[str | int]],
    drop: Collection[str | EdgeType],
) -> Roles:
    """Finds the roles of a graph's types; arguments as for `from_hetero`.

    Raises:
        CorpusError: A type has no role in a corpus, or a name is not in the graph.
    """
    if isinstance(drop, str) or not isinstance(drop, Collection):
        raise CorpusError(f"{SUMMARY}: drop must be a list of types, found {drop!r:.60}.")
    faults: list[str] = []
    if unknown := [one for one in drop if one not in (*data.node_types, *data.edge_types)]:
        faults.append(
            f"drop must name node and edge types of the graph, found {unknown}; it has "
            f"{data.node_types} and {data.edge_types}."
        )
    drop = [*drop, *_list_reverses(data, drop, hierarchy)]
    types = [one for one in data.node_types if one not in drop]
    edge_types = [one for one in data.edge_types if one not in drop]
    edge_types = [one for one in edge_types if {one[0], one[2]} <= {*types}]
    document = _find_document(data, types, document)
    labels = _find_labels(data, types, document, labels)
    ids = read_names(names, dict.fromkeys([*data.node_types, labels]), faults)
    sizes = {one: _count_nodes(data, one, ids, labels) for one in types}
    of_type: dict[str, list[EdgeType]] = {one: [] for one in types if one != document}
    roles = Roles(document, labels, ids, sizes, edge_types, of_type)
    faults += _assign_edge_types(data, roles, hierarchy)
    if not roles.has_label_nodes and of_type.get(LABEL):
        faults.append(
            f"labels must be '{labels}' or the nodes '{LABEL}', found both, and beside '{labels}' "
            f"the nodes would be metadata that name labels; call from_hetero(data, "
            f"labels='{LABEL}'), or drop=['{LABEL}']."
        )
    if faults:
        raise CorpusError(list_faults(SUMMARY, faults))
    return roles


def _find_document(data: HeteroData, types: Sequence[str], document: str | None) -> str:
    if document is None:
        found = [one for one in types if one == DOCUMENT or "y" in data[one]]
        if DOCUMENT not in found and len(found) != 1:
            raise CorpusError(
                f"A HeteroData must show which nodes are documents, by the type 'document' or by "
                f"'y' of one type, found 'y' of {found}; call from_hetero(data, document=...)."
            )
        return DOCUMENT if DOCUMENT in found else found[0]
    if document not in types:
        raise CorpusError(
            f"{SUMMARY}: document must name a node type, one of {types}, found '{document}'."
        )
    return document


def _find_labels(data: HeteroData, types: Sequence[str], document: str, labels: str | None) -> str:
    others = [one for one in types if one != document]
    if labels is None:
        if "y" in data[document]:
            return "y"
        if LABEL in others:
            return LABEL
        raise CorpusError(
            f"A HeteroData must show its labels, by 'y' of '{document}' or by a node type "
            f"'label', found neither; call from_hetero(data, document=..., labels=...)."
        )
    if labels not in others and labels not in data[document]:
        raise CorpusError(
            f"{SUMMARY}: labels must name a node type or an attribute of '{document}', one of "
            f"{[*others, *data[document]]}, found '{labels}'."
        )
    return labels


def _count_nodes(
    data: HeteroData, node_type: str, names: Mapping[str, Sequence[str]], labels: str
) -> int:
    """Number of nodes, inferred from names, attributes or edges if the graph does not give it."""
    store = data[node_type]
    if {"x", "num_nodes"} & {*store}:
        return int(store.num_nodes or 0)
    if node_type in names:
        return len(names[node_type])
    for key in (*MASKS.values(), labels, "text", "time", "name", "definition"):
        values = store.get(key)
        is_list = isinstance(values, Sequence) or getattr(values, "ndim", 0) > 0
        if is_list and f"{key}_index" not in store:
            return len(values)
    largest = [
        int(index[row].max()) + 1
        for edge_type in data.edge_types
        for row, end in enumerate((edge_type[0], edge_type[2]))
        if end == node_type
        and isinstance(index := data[edge_type].get("edge_index"), Tensor)
        and index.numel()
    ]
    return max(largest, default=0)


def _assign_edge_types(
    data: HeteroData, roles: Roles, hierarchy: EdgeType | Tensor | Array | None
) -> list[str]:
    """Assigns the edge types to their roles; returns faults of those without one."""
    unassigned, of_labels = list[Any](), list[EdgeType]()
    reverses, faults = _find_reverses(data, roles.edge_types, hierarchy)
    for edge_type in [one for one in roles.edge_types if one not in reverses]:
        head, _, tail = edge_type
        if head == tail == roles.document:
            roles.citations.append(edge_type)
        elif head == tail == roles.labels:
            of_labels.append(edge_type)
        elif roles.document in (head, tail):
            roles.of_type[tail if head == roles.document else head].append(edge_type)
        else:
            unassigned.append(edge_type)
    if isinstance(hierarchy, tuple):
        roles.is_a = hierarchy
    elif hierarchy is None and len(of_labels) == 1:
        roles.is_a = of_labels[0]
    if not isinstance(hierarchy, tuple | Tensor | np.ndarray | None):
        faults.append(
            f"hierarchy must be an edge type between labels, or class indices [2, E] as a tensor "
            f"or an array, found {type(hierarchy).__name__}."
        )
    if roles.is_a is not None and roles.is_a not in of_labels:
        faults.append(
            f"hierarchy must name an edge type between labels, one of {of_labels}, found "
            f"{roles.is_a}."
        )
    unassigned += [one for one in of_labels if one != roles.is_a]
    unassigned += [one for one, edge_types in roles.of_type.items() if not edge_types]
    if unassigned:
        shown = ", ".join(map(repr, unassigned[:10]))
        more = f" and {len(unassigned) - 10} more" if len(unassigned) > 10 else ""
        faults.append(
            f"every type must be joined to '{roles.document}', or be the hierarchy of the labels, "
            f"but {shown}{more} have no place in a corpus; leave them out by drop=[...]."
        )
    return faults


def _list_reverses(
    data: HeteroData, edge_types: Collection[str | EdgeType], hierarchy: Any
) -> list[EdgeType]:
    """Reverses of some edge types, as PyG's `ToUndirected` adds them; never the hierarchy."""
    return [
        one
        for one in data.edge_types
        if (forward := _find_forward(one)) in edge_types and forward != one
        if not _is_type(hierarchy, one) and _are_reversed(data, forward, one)
    ]


def _find_reverses(
    data: HeteroData, edge_types: Collection[EdgeType], hierarchy: Any
) -> tuple[set[EdgeType], list[str]]:
    """Reverse edge types within one node type, as PyG's `ToUndirected` adds them, and faults.

    A fault is an edge type that is named like a reverse but has other edges. If the hierarchy is
    given as a reverse, the forward edge type is the redundant one instead.
    """
    reverses, faults = set[EdgeType](), list[str]()
    for edge_type in edge_types:
        forward = _find_forward(edge_type)
        if edge_type[0] != edge_type[2] or forward == edge_type or forward not in edge_types:
            continue
        reverses.add(forward if _is_type(hierarchy, edge_type) else edge_type)
        if not _are_reversed(data, forward, edge_type):
            faults.append(
                f"{edge_type} must be the edges {forward} turned round, as by "
                f"T.ToUndirected(merge=False), but they are others; rename it, or drop one of both."
            )
    return reverses, faults


def _is_type(hierarchy: Any, edge_type: EdgeType) -> bool:
    """True if the hierarchy is given as this edge type rather than as an edge index."""
    return isinstance(hierarchy, tuple) and hierarchy == edge_type


def _find_forward(edge_type: EdgeType) -> EdgeType:
    """Forward edge type of one that is named as a reverse; the edge type itself otherwise."""
    head, relation, tail = edge_type
    forward = (tail, relation.removeprefix("rev_"), head)
    return forward if relation.startswith("rev_") else edge_type


def _are_reversed(data: HeteroData, forward: EdgeType, reverse: EdgeType) -> bool:
    """True if two edge types hold the same edges in opposite directions.

    Malformed edges count as the same; they are refused later.
    """
    arrays = [to_array(data[one].get("edge_index")) for one in (forward, reverse)]
    ends = [one.astype(np.int64) for one in arrays if one is not None and one.shape[:-1] == (2,)]
    if len(ends) < 2:
        return True
    (head, tail), (last, first) = ends
    size = max(int(one.max(initial=0)) for one in ends) + 1
    return np.array_equal(np.unique(head * size + tail), np.unique(first * size + last))
