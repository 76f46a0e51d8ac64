"""Documents, metadata, words, labels and their hierarchy as pandas tables: no torch here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, connected_components

from match_graph.errors import CorpusError, list_faults
from match_graph.typing import CONTEXT, RESERVED_TYPES, SPLITS

Indices: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Keys of a document in the MATCH format that are no metadata.
RECORD_KEYS = frozenset({"paper", "text"})

_SHOWN_CYCLE = 10  # labels of a cycle that a message names


@dataclass(frozen=True)
class Corpus:
    """A data set as tables, validated when it is made.

    ``documents``: one row per document, columns ``id`` (unique, str), ``split`` (train, valid or
    test) and, where there is raw text, ``text``. Documents are numbered by row, everything below
    refers to them by that number.

    ``instances[type]``: one row per instance of a type, column ``id`` (unique, str), optionally
    ``name`` for people, for labels optionally ``depth`` as their source gives it. The types are
    the metadata fields, ``word`` and ``label``.

    ``edges[type]``: integer columns ``document`` and ``instance``, sorted by document, then in
    the document's own order: its authors as listed, its words as written.

    ``hierarchy``: columns ``child``, ``parent`` (label ids, str) and ``origin`` (file:line, for
    messages). Nodes that no document carries may stand in it; `graph.LabelDAG` contracts them.

    ``warnings``: what looked like a mistake while reading, a sentence each. ``skipped``: documents
    that were left out for their faults, columns ``place`` and ``reason``.

    Raises:
        CorpusError: With every fault of the tables, not only the first.
    """

    name: str
    documents: pd.DataFrame
    instances: dict[str, pd.DataFrame]
    edges: dict[str, pd.DataFrame]
    hierarchy: pd.DataFrame
    notes: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    skipped: pd.DataFrame = field(default_factory=pd.DataFrame)

    def __post_init__(self) -> None:
        faults = _document_faults(self.documents)
        if set(self.instances) != set(self.edges):
            faults.append(
                f"instances are given for {sorted(self.instances)}, edges for {sorted(self.edges)}."
            )
        for name in ("word", "label"):
            if name not in self.instances:
                faults.append(f"the type '{name}' is missing.")
        for name in self.instances.keys() & self.edges.keys():
            faults += _type_faults(
                name, self.instances[name], self.edges[name], len(self.documents)
            )
        cycle = find_cycle(self.hierarchy)
        if cycle is not None:
            faults.append(cycle)
        if faults:
            raise CorpusError(list_faults(f"The corpus '{self.name}' must be consistent", faults))

    @property
    def fields(self) -> list[str]:
        """The metadata fields, in the order in which they were given."""
        return [name for name in self.instances if name not in RESERVED_TYPES]

    @property
    def num_documents(self) -> int:
        return len(self.documents)

    def find_oddities(self) -> list[str]:
        """What looks like a mistake, a sentence each: `warnings`, and what the tables show."""
        found = list(self.warnings)
        labels = self.instances["label"]["id"]
        nodes = pd.unique(pd.concat([self.hierarchy["child"], self.hierarchy["parent"]]))
        if len(nodes) and len(labels) and not labels.isin(nodes).any():
            found.append(
                f"no label of the hierarchy is on any document, so that none has a parent: the "
                f"hierarchy has labels such as '{nodes[0]}', documents such as '{labels.iloc[0]}'; "
                f"check that both are of one data set"
            )
        empty = [name for name in self.fields if self.edges[name].empty]
        if empty:
            found.append(
                f"no document has the metadata fields {empty}, which are read as empty ones; check "
                f"their names"
            )
        return found


def check_field_names(fields: Sequence[str]) -> list[str]:
    """The faults of a list of metadata field names; empty if they can be node types."""
    faults = [f"the metadata field '{name}' is listed twice." for name in _repeated(fields)]
    for name in fields:
        if name in RECORD_KEYS:
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


def find_cycle(hierarchy: pd.DataFrame) -> str | None:
    """One sentence that names a cycle of the label hierarchy, or None if it is acyclic.

    Args:
        hierarchy: Columns ``child``, ``parent`` and optionally ``origin``.
    """
    ends = pd.concat([hierarchy["child"], hierarchy["parent"]])
    codes, names = pd.factorize(ends)
    child, parent = codes.reshape(2, -1)
    edges = find_cycle_edges(child, parent, len(names))
    if not len(edges):
        return None
    origin = f" ({hierarchy['origin'].iloc[edges[-1]]})" if "origin" in hierarchy else ""
    return describe_cycle([str(names[node]) for node in child[edges]], origin)


def find_cycle_edges(child: Indices, parent: Indices, num_nodes: int) -> Indices:
    """The numbers of edges that make a shortest cycle through some node, in order; or none.

    Linear in nodes and edges: a node lies on a cycle if its strongly connected component holds
    another one, or it has an edge to itself. From the first such node a breadth-first search
    within its component leads back to it.

    Args:
        child: Where each edge starts, [E].
        parent: Where it ends, [E].
        num_nodes: All nodes are below it.
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
    """The fault of a cycle; a long one is shown by both ends.

    Args:
        nodes: Each once, in order.
        origin: Where its last edge stands, with a blank before.
    """
    path = [*nodes, nodes[0]]
    if len(path) > _SHOWN_CYCLE:
        half = _SHOWN_CYCLE // 2
        path = [*path[:half], f"... ({len(path) - 2 * half:,} more) ...", *path[-half:]]
    return (
        f"the label hierarchy must be acyclic, but {' -> '.join(path)} is a cycle{origin}; "
        f"remove one of these edges, or set data.hierarchy=ignore."
    )


def _repeated(names: Iterable[str]) -> list[str]:
    series = pd.Series(list(names), dtype=object)
    return [str(name) for name in series[series.duplicated()].unique()]


def _document_faults(documents: pd.DataFrame) -> list[str]:
    missing = {"id", "split"} - set(documents.columns)
    if missing:
        return [f"the documents lack the columns {sorted(missing)}."]
    faults = [f"the document '{name}' is given twice." for name in _repeated(documents["id"])]
    unknown = set(documents["split"].unique()) - set(SPLITS)
    if unknown:
        faults.append(f"a split must be one of {SPLITS}, found {sorted(map(str, unknown))}.")
    if not (documents["split"] == "train").any():
        faults.append("the training split must hold a document, found none.")
    return faults


def _type_faults(
    name: str, ids: pd.DataFrame, edges: pd.DataFrame, num_documents: int
) -> list[str]:
    if "id" not in ids or not {"document", "instance"} <= set(edges.columns):
        return [f"the type '{name}' needs a column id, its edges need document and instance."]
    faults = [f"the {name} '{value}' is given twice." for value in _repeated(ids["id"])]
    for column, limit in (("document", num_documents), ("instance", len(ids))):
        values = edges[column].to_numpy()
        if len(values) and (values.min() < 0 or values.max() >= limit):
            faults.append(
                f"the {name} edges must name {column}s in [0, {limit}), "
                f"found {values.min()} to {values.max()}."
            )
    if not edges["document"].is_monotonic_increasing:
        faults.append(f"the {name} edges must be sorted by document.")
    return faults


def hierarchy_frame(edges: Sequence[tuple[str, str, str]]) -> pd.DataFrame:
    """(child, parent, origin) triples as a table; of equal edges the first is kept."""
    frame = pd.DataFrame(list(edges), columns=["child", "parent", "origin"], dtype=str)
    return frame.drop_duplicates(["child", "parent"], ignore_index=True)
