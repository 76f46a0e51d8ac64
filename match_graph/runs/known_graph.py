"""Known graph: the training graph that a run keeps, so that new documents reach neighbours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.datasets import CorpusDataset
from match_graph.graph import TokenSpace
from match_graph.graph.adjacency import Adjacency
from match_graph.graph.build import CITATION_FIELD, MAX_POSITIONS
from match_graph.graph.csr import make_ptr, ragged_arange, row_index, select_rows
from match_graph.io.files import DamagedError, read_tensors, reading, write_tensors
from match_graph.io.run_folder import EDGES, GRAPH
from match_graph.runs.vocabulary import (
    WRITE_AGAIN,
    ReadDocument,
    Vocabulary,
    list_times,
    read_names,
    read_rows,
    write_names,
)
from match_graph.typing import (
    CITES,
    CONTAINS,
    DOCUMENT,
    MASKS,
    EdgeType,
    has_edge,
    reverse_edge,
    token_edge,
)

_POSITION, _TIME, _ATTRIBUTES = "position", "time", "edge_attr"


@dataclass(frozen=True)
class KnownGraph:
    """Reachable documents with their metadata and words, by name.

    Args:
        data: Graph, numbered as in the data set's; no label is in it.
        vocabulary: Rows of all names in the graph, not only of tokens.
        documents: Rows of the graph's documents, by id.
    """

    data: HeteroData
    vocabulary: Vocabulary
    documents: Mapping[str, int]

    @property
    def has_time(self) -> bool:
        """Whether the documents have a time."""
        return _TIME in self.data[DOCUMENT]

    def build_graph(self, documents: Sequence[ReadDocument]) -> HeteroData:
        """Graph of new documents for `EgoGraphs.adopt`, with citations in both directions.

        A document that cites a new one has its id among its references. Where the graph has times,
        a document without one is as late as the latest.
        """
        data = self.vocabulary.build_graph(documents)
        if self.has_time:
            data[DOCUMENT].time = list_times(documents, int(self.data[DOCUMENT].time.max()))
        if CITATION_FIELD not in self.vocabulary.rows:
            return data
        cited = [
            [self.documents[name] for name in names if name in self.documents]
            for names in (self.vocabulary.names(document, CITATION_FIELD) for document in documents)
        ]
        ptr = torch.tensor([0, *map(len, cited)]).cumsum(0)
        found = torch.tensor([row for rows in cited for row in rows], dtype=torch.int64)
        data[CITES].edge_index = torch.stack([row_index(ptr), found])
        references = self.vocabulary.rows[CITATION_FIELD]
        unknown = len(references)
        own = torch.tensor([references.get(document.id or "", unknown) for document in documents])
        degree = self._cited_by.degree(own)
        offset = ragged_arange(torch.zeros_like(degree), degree)
        citing, _ = self._cited_by.find(own, degree, offset)
        pairs = torch.stack([row_index(make_ptr(degree)), citing])
        data[reverse_edge(CITES)].edge_index = pairs
        return data

    @cached_property
    def _cited_by(self) -> Adjacency:
        """Documents that cite each reference, the earlier first, as in the data set's lists."""
        edge_type = has_edge(CITATION_FIELD)
        edge_index, number = self.data[edge_type].edge_index, self.data[CITATION_FIELD].num_nodes
        time = self.data[DOCUMENT].time if self.has_time else None
        return Adjacency.by_training(edge_type, edge_index, int(number or 0), None, time)


def write_known_graph(
    folder: Path, dataset: CorpusDataset, space: TokenSpace, transductive: bool
) -> None:
    """Writes ``graph/`` of a run folder, leaving what is there.

    One table of names per node type, the training documents' times and edges with their
    attributes, and no label.

    Args:
        folder: Run folder.
        dataset: Data set of the run.
        space: Token space, which names the node types.
        transductive: Whether to write the documents of all splits.
    """
    graph = dataset.graph
    reachable = torch.zeros(graph.num_nodes(DOCUMENT), dtype=torch.bool)
    reachable[slice(None) if transductive else dataset.documents(MASKS["train"])] = True
    tables = {DOCUMENT: dataset.table(DOCUMENT)[["id"]]}
    tables[DOCUMENT] = tables[DOCUMENT].assign(row=range(len(reachable)))[reachable.numpy()]
    for name in space.types:  # ordered by training frequency, so that those of training are first
        table, count = dataset.table(name)[["id"]], graph.node_tensor(name, "train_count")
        number = len(table) if transductive or count is None else int((count > 0).sum())
        tables[name] = table.head(number)
    tensors = {"num_documents": torch.tensor(len(reachable))}
    for edge_type in list_known_edges(space.types):
        lists, rows = graph.adjacency(edge_type), reachable.nonzero().view(-1)
        ptr, col = select_rows(lists.ptr, lists.node, rows)
        row = rows.to(col.dtype)[row_index(ptr)]
        place = ragged_arange(torch.zeros_like(rows), ptr.diff())
        _, edge = lists.find(rows, ptr.diff(), place)
        kept = reachable[col] if edge_type[2] == DOCUMENT else torch.ones_like(col).bool()
        tensors[" ".join(edge_type)] = torch.stack([row[kept], col[kept]])
        if graph.is_sequence(edge_type):
            tensors[_POSITION] = place[kept].to(torch.int16)
        attributes = graph.edge_tensor(edge_type, _ATTRIBUTES)
        if attributes is not None:
            tensors[_attributes_of(edge_type)] = attributes[edge[kept]]
    time = graph.node_tensor(DOCUMENT, _TIME)
    if time is not None:
        tensors[_TIME] = time[reachable]
    write_names(folder / GRAPH, tables)
    if not (folder / GRAPH / EDGES).is_file():
        write_tensors(folder / GRAPH / EDGES, tensors)


def read_known_graph(
    folder: Path, vocabulary: Vocabulary, x: Mapping[str, Tensor] | None = None
) -> KnownGraph:
    """Reads ``graph/`` of a run folder.

    Args:
        folder: Run folder.
        vocabulary: Vocabulary of the run.
        x: Features of the data set's nodes by type, [num_nodes, F].

    Raises:
        CheckpointError: A file is missing or broken, or an edge leads to a node that is none.
    """
    tensors = read_tensors(folder / GRAPH / EDGES)
    table = read_names(folder / GRAPH / f"{DOCUMENT}.parquet")
    types = vocabulary.space.types
    rows = {name: read_rows(folder / GRAPH / f"{name}.parquet") for name in types}
    data = HeteroData()
    must = "A run of a graph encoder keeps the graph that it was trained on"
    found = f"'{folder / GRAPH}' cannot be used"
    with reading(folder / GRAPH / EDGES, must, WRITE_AGAIN, found):
        documents = dict(zip(table["id"].tolist(), table["row"].tolist(), strict=True))
        data[DOCUMENT].num_nodes = number = int(tensors["num_documents"])
        _check_rows(torch.tensor(list(documents.values()), dtype=torch.int64), number)
        for name, known in rows.items():
            data[name].num_nodes = len(known)
        for edge_type in list_known_edges(types):
            edge_index = tensors[" ".join(edge_type)]
            if edge_index.dim() != 2 or len(edge_index) != 2:
                raise DamagedError(f"'{' '.join(edge_type)}' is no edge index")
            for row, node_type in zip(edge_index, edge_type[::2], strict=True):
                _check_rows(row, int(data[node_type].num_nodes))
            data[edge_type].edge_index = edge_index
            if (attributes := tensors.get(_attributes_of(edge_type))) is not None:
                if attributes.dim() != 2 or len(attributes) != edge_index.size(1):
                    raise DamagedError(f"'{_attributes_of(edge_type)}' is not of the edges")
                data[edge_type].edge_attr = attributes
        position = tensors[_POSITION]
        if position.shape != tensors[" ".join(CONTAINS)][0].shape or position.is_floating_point():
            raise DamagedError(f"'{_POSITION}' is not of the words")
        _check_rows(position.to(torch.int64), MAX_POSITIONS)
        data[CONTAINS].position = position
        if _TIME in tensors:
            data[DOCUMENT].time = _place_times(tensors[_TIME], [*documents.values()], number)
        _join_features(data, x or {})
    known_names = Vocabulary(vocabulary.settings, rows, vocabulary.labels)
    return KnownGraph(data, known_names, documents)


def _join_features(data: HeteroData, x: Mapping[str, Tensor]) -> None:
    """Gives nodes their features; of other types than documents the first nodes are kept.

    Raises:
        DamagedError: There are fewer than nodes.
    """
    for name in data.node_types:
        number = int(data[name].num_nodes or 0)
        if name in x:
            if len(x[name]) < number:
                raise DamagedError(f"there are fewer features of '{name}' than nodes")
            data[name].x = x[name][:number]


def _place_times(time: Tensor, rows: list[int], num_documents: int) -> Tensor:
    """Time of every document, the earliest for those that are not kept.

    Nothing reaches these, but the latest of all is the time of new documents without one.

    Raises:
        DamagedError: There is not one number for each that is kept.
    """
    if list(time.shape) != [len(rows)] or time.dtype != torch.int64:
        raise DamagedError(f"'{_TIME}' is not of the documents")
    if not rows:
        raise DamagedError("it holds no document")
    placed = time.new_full((num_documents,), time.min().item())
    placed[rows] = time
    return placed


def _check_rows(row: Tensor, number: int) -> None:
    """Checks that row indices lie within a table.

    Raises:
        DamagedError: They are not.
    """
    is_row = row.dtype in (torch.int32, torch.int64)
    if not is_row or bool(((row < 0) | (row >= number)).any()):
        raise DamagedError(f"a row is not in 0..{number - 1}")


def _attributes_of(edge_type: EdgeType) -> str:
    return " ".join([*edge_type, _ATTRIBUTES])


def list_known_edges(types: Sequence[str]) -> list[EdgeType]:
    """The edge types that a run folder keeps for predictions, by the types of its tokens."""
    edge_types = [token_edge(name) for name in types]
    return [*edge_types, CITES] if CITATION_FIELD in types else edge_types
