"""`Corpus` -> `HeteroData`, targets and tables of node names; removal of metadata fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.transforms import BaseTransform

from match_graph.corpus import Corpus
from match_graph.errors import GraphError
from match_graph.graph.csr import sorted_row_ptr
from match_graph.graph.labels import Targets
from match_graph.graph.view import Graph, GraphView, view_graph
from match_graph.typing import (
    CITES,
    CONTAINS,
    DOCUMENT,
    IS_A,
    LABEL,
    MASKS,
    TAGGED,
    WORD,
    EdgeType,
    has_edge,
)

#: `position` is int16: longer texts are cut here.
MAX_POSITIONS = 2**15 - 1

#: Field of references, which become citations where they are ids of documents.
CITATION_FIELD = "reference"


@dataclass(frozen=True)
class BuiltGraph:
    """A built graph with its targets and names.

    Args:
        data: The graph; for its schema see `build_graph`.
        targets: Gold labels of all splits.
        tables: Table of names per node type, rows in the order of the graph.
        notes: Counts of what was dropped or contracted.
    """

    data: HeteroData
    targets: Targets
    tables: dict[str, pd.DataFrame]
    notes: dict[str, Any]


def build_graph(corpus: Corpus) -> BuiltGraph:
    """The heterogeneous graph of a corpus.

    Nodes: ``document`` (with train_mask, val_mask, test_mask, and ``time`` [N], int64, where the
    corpus has it), one type per metadata field, ``word``, ``label``; all but documents hold
    ``train_count`` (training documents, for words training occurrences; int32) and are ordered by
    it, descending, ties by id. Types with features have ``x`` [N, F], float16 or float32.

    Edges (``edge_index`` int32, sorted by source): (document, has, FIELD) in the document's order,
    (document, contains, word) with ``position`` (int16), (document, cites, document),
    (document, tagged, label) of training documents only, (label, is_a, label). Attributes of edges
    are ``edge_attr`` [E, K], float32; those of (document, cites, document) are its references'.

    Returns:
        The graph passes ``data.validate()``; no gold label of another split is in it.
    """
    data = HeteroData()
    data[DOCUMENT].num_nodes = corpus.num_documents
    splits = corpus.documents["split"].to_numpy()
    for split, mask in MASKS.items():
        data[DOCUMENT][mask] = torch.from_numpy(splits == split)
    in_train = splits == "train"
    if "time" in corpus.documents:
        data[DOCUMENT].time = torch.tensor(corpus.documents["time"].to_numpy())
    if DOCUMENT in corpus.features:
        data[DOCUMENT].x = torch.tensor(corpus.features[DOCUMENT])

    tables = {DOCUMENT: corpus.documents}
    edges: dict[str, Tensor] = {}
    for name in (*corpus.fields, WORD, LABEL):
        tables[name], edges[name] = _add_type(data, corpus, name, in_train)
    for field in corpus.fields:
        _add_edges(data, has_edge(field), edges[field], corpus.edge_attr(field))
    num_cut = _add_words(data, edges.pop(WORD), corpus)
    if CITATION_FIELD in corpus.fields:
        cited, kept = _resolve_citations(corpus, tables[CITATION_FIELD], edges[CITATION_FIELD])
        _add_edges(data, CITES, cited, corpus.edge_attr(CITATION_FIELD), kept)

    document, label = edges[LABEL]
    is_training = torch.from_numpy(in_train)[document.long()]
    _add_edges(data, TAGGED, edges[LABEL][:, is_training], corpus.edge_attr(LABEL), is_training)
    by_label = torch.from_numpy(np.lexsort((label.numpy(), document.numpy())))  # of each document
    ptr = sorted_row_ptr(document, corpus.num_documents)
    targets = Targets(ptr, label[by_label], len(tables[LABEL]))
    is_a, num_contracted = number_hierarchy(corpus.hierarchy, tables[LABEL]["id"].tolist())
    data[IS_A].edge_index = torch.from_numpy(is_a)
    data.validate()
    notes = describe_build(corpus.notes, len(corpus.hierarchy), num_contracted, num_cut)
    return BuiltGraph(data, targets, tables, notes)


def describe_build(
    notes: Mapping[str, Any], num_read: int, num_contracted: int, num_cut: int
) -> dict[str, Any]:
    """Notes of a built graph.

    Args:
        notes: Those of the corpus.
        num_read: Number of hierarchy edges read.
        num_contracted: Number of nodes that no document carries.
        num_cut: Number of words beyond the last position.
    """
    return {
        **notes,
        "hierarchy_edges_read": num_read,
        "hierarchy_nodes_contracted": num_contracted,
        "words_cut": num_cut,
    }


def number_hierarchy(
    hierarchy: pd.DataFrame, labels: Sequence[str]
) -> tuple[NDArray[np.int32], int]:
    """Contracted hierarchy as sorted (label, is_a, label) edges, [2, E], int32; nodes left out.

    Args:
        hierarchy: Table of edges with the columns ``child`` and ``parent``; acyclic.
        labels: Labels in the order of the graph.
    """
    pairs, num_contracted = contract_hierarchy(hierarchy, labels)
    number = {name: row for row, name in enumerate(labels)}
    is_a = sorted((number[child], number[parent]) for child, parent in pairs)
    return np.ascontiguousarray(np.array(is_a, np.int32).reshape(-1, 2).T), num_contracted


def contract_hierarchy(
    hierarchy: pd.DataFrame, labels: Sequence[str]
) -> tuple[list[tuple[str, str]], int]:
    """Leaves out nodes that no document carries; children join the nearest kept ancestors.

    Args:
        hierarchy: Table of edges with the columns ``child`` and ``parent``; acyclic.
        labels: Labels to keep.

    Returns:
        Distinct (child, parent) pairs, and the number of nodes left out.
    """
    kept = set(labels)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from(zip(hierarchy["parent"], hierarchy["child"], strict=True))
    above: dict[str, dict[str, None]] = {}  # nearest kept ancestors, in order
    for node in nx.topological_sort(graph):
        above[node] = {}
        for parent in graph.predecessors(node):
            above[node].update({parent: None} if parent in kept else above[parent])
    edges = [(child, parent) for child in above if child in kept for parent in above[child]]
    return edges, len(above.keys() - kept)


def _add_type(
    data: HeteroData, corpus: Corpus, name: str, in_train: np.ndarray
) -> tuple[pd.DataFrame, Tensor]:
    """Adds the nodes of a type, by frequency; its table, and its edges [2, E], int32."""
    table, edges = corpus.instances[name], corpus.edges[name]
    document, instance = edges["document"].to_numpy(), edges["instance"].to_numpy()
    count = np.bincount(instance[in_train[document]], minlength=len(table))
    by_id = table["id"].argsort(kind="stable").to_numpy()
    order = by_id[np.argsort(-count[by_id], kind="stable")]
    rank = np.empty(len(table), dtype=np.int32)
    rank[order] = np.arange(len(table), dtype=np.int32)
    edge_index = torch.empty(2, len(edges), dtype=torch.int32)
    edge_index[0] = torch.from_numpy(document.astype(np.int32))
    edge_index[1] = torch.from_numpy(rank[instance])
    data[name].num_nodes = len(table)
    data[name].train_count = torch.from_numpy(count[order].astype(np.int32))
    if name in corpus.features:
        data[name].x = torch.from_numpy(corpus.features[name][order])
    return table.iloc[order].reset_index(drop=True), edge_index


def _add_edges(
    data: HeteroData,
    edge_type: EdgeType,
    edge_index: Tensor,
    attributes: np.ndarray | None,
    kept: Tensor | None = None,
) -> None:
    """Adds edges, with the attributes of the ``kept`` ones among those read."""
    data[edge_type].edge_index = edge_index
    if attributes is not None:
        rows = torch.tensor(attributes)  # a table's array may be read-only
        data[edge_type].edge_attr = rows if kept is None else rows[kept]


def _add_words(data: HeteroData, edge_index: Tensor, corpus: Corpus) -> int:
    """Adds the word sequence with positions; returns the number of words that were cut."""
    ptr = sorted_row_ptr(edge_index[0], corpus.num_documents)
    position = torch.arange(edge_index.size(1), dtype=torch.int32)
    position -= ptr[:-1].to(torch.int32)[edge_index[0]]
    kept = position < MAX_POSITIONS
    num_cut = int((~kept).sum())
    if num_cut:
        edge_index, position = edge_index[:, kept], position[kept]
    _add_edges(data, CONTAINS, edge_index, corpus.edge_attr(WORD), kept)
    data[CONTAINS].position = position.to(torch.int16)
    return num_cut


def _resolve_citations(
    corpus: Corpus, table: pd.DataFrame, edge_index: Tensor
) -> tuple[Tensor, Tensor]:
    """(document, cited document) [2, E], int32, for references that are ids; a mask of these."""
    documents = pd.Index(corpus.documents["id"])
    cited_by_instance = torch.from_numpy(documents.get_indexer(table["id"]).astype(np.int32))
    document, instance = edge_index
    cited = cited_by_instance[instance]
    kept = (cited >= 0) & (cited != document)
    return torch.stack([document[kept], cited[kept]]), kept


class DropFields(BaseTransform):
    """Removes metadata fields from a graph: their nodes and all of their edges.

    (document, cites, document) is made of references and goes with them. The built data stay as
    they are; nothing is copied.

    Args:
        fields: Names of the metadata fields to remove.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)

    def forward(self, data: HeteroData) -> HeteroData:
        """The graph without the fields.

        Raises:
            GraphError: A field is not in the graph.
        """
        return self.hide(view_graph(data)).loader_data

    def hide(self, graph: GraphView) -> GraphView:
        """The same for a graph that is read in place.

        Raises:
            GraphError: A field is not in the graph.
        """
        known = metadata_fields(graph)
        if missing := [name for name in self.fields if name not in known]:
            raise GraphError(
                f"Only metadata fields of the graph can be taken out, found {missing}; "
                f"choose from {known}."
            )
        return graph.without(self.fields, [CITES] if CITATION_FIELD in self.fields else [])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.fields)})"


def metadata_fields(data: Graph) -> list[str]:
    """The metadata fields of a built graph, in their order."""
    return [edge_type[2] for edge_type in data.edge_types if edge_type[:2] == (DOCUMENT, "has")]
