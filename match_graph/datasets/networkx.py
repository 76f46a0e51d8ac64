"""A networkx graph in memory as a `Corpus`."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.corpus import Corpus
from match_graph.datasets.frames import simplify_cell
from match_graph.datasets.hetero import from_hetero
from match_graph.datasets.hetero_parts import describe_left_out
from match_graph.datasets.table_rows import SPLIT_NAMES
from match_graph.errors import CorpusError, list_faults
from match_graph.io.json_lines import read_values
from match_graph.typing import DOCUMENT, LABEL, MASKS, EdgeType, Tokenizer

_SUMMARY = "A networkx graph must be readable as a corpus"


def from_networkx(
    graph: "nx.Graph[Any]",
    document: str = DOCUMENT,
    labels: str = LABEL,
    *,
    key: str = "type",
    drop: Collection[str | EdgeType] = (),
    tokenizer: Tokenizer = "regex",
    seed: int = 0,
    name: str = "networkx",
) -> Corpus:
    """The corpus of a networkx graph whose nodes have types.

    Attributes of nodes that are read: ``x`` (a list of numbers); of documents ``text``, ``split``
    (train, valid, test) and ``time``, an integer; of others ``name`` and ``definition``. Of edges:
    the type (none: "to"), ``weight`` and ``position``, an integer. Others are left out, which
    `Corpus.warnings` says. What edges become is said at `from_hetero`, which reads the graph.

    Args:
        graph: Graph, directed or not, a multigraph or not; its nodes are the ids.
        document: Type of the documents.
        labels: Type of the labels, or the attribute of documents that lists theirs. In a directed
            graph edges between labels, from child to parent, are the hierarchy.
        key: Attribute of nodes and edges that names their type.
        drop: Node types and edge types (triples) to leave out; those of an undirected graph start
            at the document.
        tokenizer: How texts become words.
        seed: Seed of the split of a graph without splits.
        name: Name of the corpus.

    Raises:
        CorpusError: With every fault: a node without a type, an unknown split, and so on.
    """
    if not isinstance(graph, nx.Graph):
        raise CorpusError(f"{_SUMMARY}: it must be a Graph, found {type(graph).__name__}.")
    reader, label_type = _Reader(graph, document, key), labels
    if labels not in reader.nodes:
        reader.add_labels(labels)
        label_type = LABEL
    reader.add_edges(label_type)
    reader.check()
    corpus = from_hetero(
        reader.data, document, label_type, names=reader.names, drop=drop, tokenizer=tokenizer,
        seed=seed, name=name,
    )  # fmt: skip
    return replace(corpus, warnings=[*corpus.warnings, *reader.list_unread(labels, drop)])


class _Reader:
    """Converter of a networkx graph into a `HeteroData`."""

    def __init__(self, graph: "nx.Graph[Any]", document: str, key: str) -> None:
        self.graph, self.document, self.key = graph, document, key
        self.data, self.faults = HeteroData(), list[str]()
        self.nodes: dict[str, list[Mapping[str, Any]]] = {}
        self.edges: dict[EdgeType, list[Mapping[str, Any]]] = {}
        self.names: dict[str, list[str]] = {}
        self.place: dict[Any, tuple[str, int]] = {}
        untyped: list[Any] = []
        for node, attributes in graph.nodes(data=True):
            node_type = attributes.get(key)
            if not isinstance(node_type, str):
                untyped.append(node)
                continue
            self.place[node] = node_type, len(self.nodes.setdefault(node_type, []))
            self.nodes[node_type].append(attributes)
            self.names.setdefault(node_type, []).append(str(node))
        if untyped:
            self.faults.append(
                f"every node must have its type in '{key}', but {len(untyped):,} of {len(graph):,} "
                f"have none, such as {untyped[0]!r}; name another attribute by key."
            )
        elif document not in self.nodes:
            self.faults.append(
                f"it must have nodes of the type '{document}', found {sorted(self.nodes)}; name "
                f"the documents' type by document."
            )
        self.check()
        for node_type, rows in self.nodes.items():
            self._add_nodes(node_type, rows)
        self._add_documents(self.nodes[document])

    def check(self) -> None:
        """Raises the faults found so far.

        Raises:
            CorpusError: There are some.
        """
        if self.faults:
            raise CorpusError(list_faults(_SUMMARY, self.faults))

    def _add_nodes(self, node_type: str, rows: Sequence[Mapping[str, Any]]) -> None:
        store = self.data[node_type]
        store.num_nodes = len(rows)
        if any("x" in row for row in rows):
            try:
                store.x = torch.from_numpy(np.array([row["x"] for row in rows], dtype=np.float32))
            except (KeyError, TypeError, ValueError):
                self.faults.append(
                    f"x must be given for all nodes of the type '{node_type}', as equally many "
                    f"numbers, or for none."
                )
        for key in ("name", "definition"):
            if any(isinstance(row.get(key), str) for row in rows):
                store[key] = [str(row.get(key) or "") for row in rows]

    def _add_documents(self, rows: Sequence[Mapping[str, Any]]) -> None:
        store = self.data[self.document]
        if any("text" in row for row in rows):
            store.text = [row.get("text") or "" for row in rows]
        if any("time" in row for row in rows):
            times = [row.get("time") for row in rows]
            if (numbers := _read_integers(times)) is not None:
                store.time = numbers
            else:
                self.faults.append("time must be an integer of every document, or of none.")
        if any("split" in row for row in rows):
            splits = [str(row.get("split") or "").lower() for row in rows]
            if unknown := sorted({*splits} - {*SPLIT_NAMES, ""}):
                self.faults.append(f"split must be one of {[*SPLIT_NAMES]}, found {unknown}.")
            found = np.array([SPLIT_NAMES.get(one, "") for one in splits])
            for split, mask in MASKS.items():
                store[mask] = torch.from_numpy(found == split)

    def add_labels(self, key: str) -> None:
        """Adds nodes of the labels that an attribute of the documents lists."""
        lists = [read_values(simplify_cell(row.get(key))) for row in self.nodes[self.document]]
        if not any(lists) or LABEL in self.nodes:
            self.faults.append(
                f"labels must name a node type or an attribute of documents with strings, found "
                f"'{key}'; the types are {sorted(self.nodes)}."
            )
            self.check()
        if None in lists:
            self.faults.append(f"'{key}' must be a string or a list of strings in every document.")
        names = dict.fromkeys(label for labels in lists for label in labels or ())
        number = {label: row for row, label in enumerate(names)}
        pairs = [(row, number[one]) for row, labels in enumerate(lists) for one in labels or ()]
        self.names[LABEL] = [*names]
        self.data[LABEL].num_nodes = len(names)
        self.data[self.document, "tagged", LABEL].edge_index = _pack(pairs)

    def add_edges(self, labels: str) -> None:
        """Adds the edges by type, with their weights and positions.

        An undirected edge between a document and a node of another type starts at the document.
        """
        edges: dict[EdgeType, list[tuple[tuple[int, int], Mapping[str, Any]]]] = {}
        is_directed = self.graph.is_directed()
        for head, tail, attributes in self.graph.edges(data=True):
            (head_type, first), (tail_type, second) = self.place[head], self.place[tail]
            if not is_directed and tail_type == self.document != head_type:  # order of insertion
                head_type, first, tail_type, second = tail_type, second, head_type, first
            edge_type = head_type, str(attributes.get(self.key) or "to"), tail_type
            if not is_directed and head_type == tail_type == labels:
                self.faults.append(
                    "edges between labels must point from child to parent, but the graph is "
                    "undirected; make it a DiGraph."
                )
                return
            both = not is_directed and head_type == tail_type
            for pair in [(first, second), (second, first)][: 2 if both else 1]:
                edges.setdefault(edge_type, []).append((pair, attributes))
        for edge_type, found in edges.items():
            self.data[edge_type].edge_index = _pack(pair for pair, _ in found)
            self.edges[edge_type] = [attributes for _, attributes in found]
            for key, add in (("weight", self._add_weights), ("position", self._add_positions)):
                values = [attributes.get(key) for _, attributes in found]
                if any(one is not None for one in values):
                    add(edge_type, values)

    def list_unread(self, labels: str, drop: Collection[str | EdgeType]) -> list[str]:
        """Warning that names the attributes that were not read; empty without any.

        Args:
            labels: Type of the labels, or the attribute of documents that lists theirs.
            drop: Types that are left out on purpose.
        """
        others = dict[str, None]()
        for node_type, rows in self.nodes.items():
            read = {self.key, *self.data[node_type].keys()}
            read |= {"split", labels} if node_type == self.document else set()
            if node_type not in drop:
                others |= _list_keys(node_type, rows, read)
        for edge_type, rows in self.edges.items():
            if {edge_type, *edge_type[::2]}.isdisjoint(drop):
                others |= _list_keys(edge_type, rows, {self.key, "weight", "position"})
        return describe_left_out(others)

    def _add_weights(self, edge_type: EdgeType, weights: Sequence[Any]) -> None:
        try:
            attributes = np.array(weights, dtype=np.float32)[:, None]
        except (TypeError, ValueError):
            self.faults.append(f"weight must be a number of every edge {edge_type}, or of none.")
        else:
            self.data[edge_type].edge_attr = torch.from_numpy(attributes)

    def _add_positions(self, edge_type: EdgeType, positions: Sequence[Any]) -> None:
        if (numbers := _read_integers(positions)) is None:
            self.faults.append(
                f"position must be an integer of every edge {edge_type}, or of none."
            )
        else:
            self.data[edge_type].position = numbers


def _list_keys(
    name: object, rows: Sequence[Mapping[str, Any]], read: Collection[str]
) -> dict[str, None]:
    """Attributes of the rows of a type that are not read, in order."""
    return dict.fromkeys(f"{name}.{key}" for row in rows for key in row if key not in read)


def _read_integers(values: Sequence[Any]) -> Tensor | None:
    """Values as int64; None if one is no integer of 64 bits."""
    if not all(isinstance(one, int | np.integer) for one in values):
        return None
    try:
        return torch.from_numpy(np.array(values, dtype=np.int64))
    except OverflowError:
        return None


def _pack(pairs: Iterable[tuple[int, int]]) -> Tensor:
    return torch.tensor([*pairs], dtype=torch.int64).view(-1, 2).t().contiguous()
