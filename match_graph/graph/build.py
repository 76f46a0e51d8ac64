"""`Corpus` -> `HeteroData`, targets, and the tables that name its nodes; fields left out again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.transforms import BaseTransform

from match_graph.corpus import Corpus
from match_graph.errors import GraphError
from match_graph.graph.csr import sorted_row_ptr
from match_graph.graph.labels import Targets
from match_graph.typing import CITES, CONTAINS, DOCUMENT, IS_A, LABEL, MASKS, TAGGED, WORD, has_edge

#: `position` is int16: longer texts are cut here.
MAX_POSITIONS = 2**15 - 1

#: The field whose instances name documents of the corpus where they resolve.
CITATION_FIELD = "reference"


@dataclass(frozen=True)
class BuiltGraph:
    """A built graph with its targets and names.

    Args:
        data: The graph; its schema stands in `build_graph`.
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

    Nodes: ``document`` (with train_mask, val_mask, test_mask), one type per metadata field,
    ``word``, ``label``; all but documents hold ``train_count`` (training documents, for words
    training occurrences; int32) and are ordered by it, descending, ties by id.

    Edges (``edge_index`` int32, sorted by source): (document, has, FIELD) in the document's order,
    (document, contains, word) with ``position`` (int16), (document, cites, document),
    (document, tagged, label) of training documents only, (label, is_a, label).

    Returns:
        The graph passes ``data.validate()``; no gold label of another split is in it.
    """
    data = HeteroData()
    data[DOCUMENT].num_nodes = corpus.num_documents
    splits = corpus.documents["split"].to_numpy()
    for split, mask in MASKS.items():
        data[DOCUMENT][mask] = torch.from_numpy(splits == split)
    in_train = splits == "train"

    tables = {DOCUMENT: corpus.documents}
    edges: dict[str, Tensor] = {}
    for name in (*corpus.fields, WORD, LABEL):
        table, count, edge_index = _order_by_frequency(corpus, name, in_train)
        tables[name], edges[name] = table, edge_index
        data[name].num_nodes = len(table)
        data[name].train_count = count
    for field in corpus.fields:
        data[has_edge(field)].edge_index = edges[field]
    num_cut = _add_words(data, edges.pop(WORD), corpus.num_documents)
    if CITATION_FIELD in corpus.fields:
        data[CITES].edge_index = _resolve_citations(corpus, tables[CITATION_FIELD], edges)

    document, label = edges[LABEL]
    data[TAGGED].edge_index = edges[LABEL][:, torch.from_numpy(in_train)[document.long()]]
    ptr = sorted_row_ptr(document, corpus.num_documents)
    targets = Targets(ptr, _sort_within_rows(document, label), len(tables[LABEL]))

    pairs, num_contracted = contract_hierarchy(corpus.hierarchy, tables[LABEL]["id"].tolist())
    number = {name: row for row, name in enumerate(tables[LABEL]["id"])}
    is_a = sorted((number[child], number[parent]) for child, parent in pairs)
    data[IS_A].edge_index = torch.tensor(is_a, dtype=torch.int32).view(-1, 2).t().contiguous()

    data.validate()
    notes = {
        **corpus.notes,
        "hierarchy_edges_read": len(corpus.hierarchy),
        "hierarchy_nodes_contracted": num_contracted,
        "words_cut": num_cut,
    }
    return BuiltGraph(data, targets, tables, notes)


def contract_hierarchy(
    hierarchy: pd.DataFrame, labels: Sequence[str]
) -> tuple[list[tuple[str, str]], int]:
    """Leaves out nodes that no document carries; children join the nearest kept ancestors.

    Args:
        hierarchy: Table of edges with the columns ``child`` and ``parent``; acyclic.
        labels: Labels to keep.

    Returns:
        (child, parent) pairs without repetition, and how many nodes were left out.
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


def _order_by_frequency(
    corpus: Corpus, name: str, in_train: np.ndarray
) -> tuple[pd.DataFrame, Tensor, Tensor]:
    """A type's table and training counts [num_nodes] by frequency, and its edges [2, E], int32."""
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
    counts = torch.from_numpy(count[order].astype(np.int32))
    return table.iloc[order].reset_index(drop=True), counts, edge_index


def _add_words(data: HeteroData, edge_index: Tensor, num_documents: int) -> int:
    """Adds the word sequence with positions; returns how many words were beyond the last."""
    ptr = sorted_row_ptr(edge_index[0], num_documents)
    position = torch.arange(edge_index.size(1), dtype=torch.int32)
    position -= ptr[:-1].to(torch.int32)[edge_index[0]]
    kept = position < MAX_POSITIONS
    num_cut = int((~kept).sum())
    if num_cut:
        edge_index, position = edge_index[:, kept], position[kept]
    data[CONTAINS].edge_index = edge_index
    data[CONTAINS].position = position.to(torch.int16)
    return num_cut


def _resolve_citations(corpus: Corpus, table: pd.DataFrame, edges: dict[str, Tensor]) -> Tensor:
    """(document, cited document) for references that are ids of documents, [2, E], int32."""
    documents = pd.Index(corpus.documents["id"])
    cited_by_instance = torch.from_numpy(documents.get_indexer(table["id"]).astype(np.int32))
    document, instance = edges[CITATION_FIELD]
    cited = cited_by_instance[instance]
    kept = (cited >= 0) & (cited != document)
    return torch.stack([document[kept], cited[kept]])


def _sort_within_rows(row: Tensor, index: Tensor) -> Tensor:
    """Packed values ascending within each row; the rows are sorted already."""
    return index[torch.from_numpy(np.lexsort((index.numpy(), row.numpy())))]


class DropFields(BaseTransform):
    """Takes metadata fields out of a graph: their nodes and every edge of theirs.

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
        known = metadata_fields(data)
        if missing := [name for name in self.fields if name not in known]:
            raise GraphError(
                f"Only metadata fields of the graph can be taken out, found {missing}; "
                f"choose from {known}."
            )
        for edge_type in data.edge_types:
            if edge_type[0] in self.fields or edge_type[2] in self.fields:
                del data[edge_type]
        if CITATION_FIELD in self.fields and CITES in data.edge_types:
            del data[CITES]
        for name in self.fields:
            del data[name]
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.fields)})"


def metadata_fields(data: HeteroData) -> list[str]:
    """The metadata fields of a built graph, in their order."""
    return [edge_type[2] for edge_type in data.edge_types if edge_type[:2] == (DOCUMENT, "has")]
