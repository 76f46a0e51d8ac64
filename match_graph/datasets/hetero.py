"""A PyG `HeteroData` in memory as a `Corpus`."""

import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.config import parse_settings
from match_graph.corpus import Array, Corpus, hierarchy_frame, split_words
from match_graph.corpus_builder import Interner
from match_graph.corpus_faults import RECORD_KEYS
from match_graph.datasets.hetero_parts import (
    Edges,
    describe_left_out,
    join_edges,
    number_edges,
    read_classes,
    read_edges,
    read_features,
    read_splits,
    read_strings,
    read_times,
)
from match_graph.datasets.hetero_roles import SUMMARY, Roles, find_roles
from match_graph.datasets.options import SplitConfig
from match_graph.errors import CorpusError, list_faults
from match_graph.graph.build import CITATION_FIELD
from match_graph.typing import (
    CONTEXT,
    DOCUMENT,
    LABEL,
    MASKS,
    RESERVED_TYPES,
    WORD,
    EdgeType,
    Tokenizer,
)

#: Attributes of nodes and edges that `from_hetero` reads.
_TEXT_KEYS = ("name", "definition")
_NODE_KEYS = {"x", "num_nodes", "train_count", *_TEXT_KEYS}
_EDGE_KEYS = {"edge_index", "edge_attr", "position"}


def from_hetero(
    data: HeteroData,
    document: str | None = None,
    labels: str | None = None,
    *,
    hierarchy: EdgeType | Tensor | Array | None = None,
    text: str | Sequence[str] | None = None,
    names: Mapping[str, Sequence[str | int]] | None = None,
    drop: Collection[str | EdgeType] = (),
    time: str = "time",
    tokenizer: Tokenizer = "regex",
    seed: int = 0,
    name: str = "hetero",
) -> Corpus:
    """The corpus of a graph: its documents with metadata, citations, features, times and labels.

    Edges between documents and another type make that type a metadata field, whichever way they
    point; both directions of one relation count once. All edges between documents are citations,
    the field ``reference``, of whatever relations. Node features ``x`` and ``edge_attr`` are kept,
    as are the lists of strings ``name`` and ``definition`` of nodes other than documents. Edges to
    a type ``word`` are the words of the documents, by ``position`` if they have it; edges from
    words are read where there are none to them. A node type that only edges name has as many nodes
    as these reach. Other attributes are left out, which `Corpus.warnings` says.

    Args:
        data: Graph; nothing of it is changed.
        document: Node type of the documents; None takes "document", else the only type with ``y``.
        labels: Attribute of the documents, class indices [N] (negative: none) or multi-hot [N, L],
            with ``y_index`` for some of the documents alone; or a node type whose edges with the
            documents are their labels. None takes ``y``, else the type "label".
        hierarchy: Edge type between labels, or class indices [2, E]; row 0 child, row 1 parent.
            None takes the only edge type between labels.
        text: Texts of the documents, or the attribute that holds them; None takes ``text`` if
            there is one.
        names: Ids of nodes by node type, unique, in the order of the nodes; of classes under the
            name of their attribute. None takes their numbers.
        drop: Node types and edge types to leave out, these with their reverses of `ToUndirected`.
        time: Attribute of the documents' times, [N], integers in one unit.
        tokenizer: How texts become words.
        seed: Seed of the split of a graph without masks, 8 : 1 : 1 by text, or else by id. A graph
            without ``val_mask`` gives a tenth of its training documents to it. Documents of no mask
            are left out.
        name: Name of the corpus.

    Raises:
        CorpusError: With every fault: a type that has no place in a corpus and is not dropped,
            masks that overlap, labels of another length, features that are not finite, and so on.
        ConfigError: The seed is none.
    """
    if not isinstance(data, HeteroData):
        raise CorpusError(
            f"from_hetero reads a HeteroData, found {type(data).__name__}; a Data becomes one by "
            f"its method to_heterogeneous."
        )
    data = copy(data)
    for head, _, tail in data.edge_types:  # access creates the stores of types that only edges name
        data[head], data[tail]
    roles = find_roles(data, document, labels, hierarchy, names or {}, drop)
    reader = _Reader(data, roles)
    reader.read_documents(text, time, parse_settings(SplitConfig, {"seed": seed}, SUMMARY))
    reader.read_labels(hierarchy)
    reader.read_fields()
    reader.read_words(tokenizer)
    if reader.faults:
        raise CorpusError(list_faults(SUMMARY, reader.faults))
    return reader.build(name, tokenizer)


class _Reader:
    """Converter of a graph into the tables of a corpus, by the roles of its types."""

    def __init__(self, data: HeteroData, roles: Roles) -> None:
        self.data, self.roles = data, roles
        self.faults: list[str] = []
        self.warnings: list[str] = []
        self.num_repeated = 0
        self.instances: dict[str, pd.DataFrame] = {}
        self.edges: dict[str, pd.DataFrame] = {}
        self.features: dict[str, Array] = {}

    def read_documents(
        self, text: str | Sequence[str] | None, time: str, config: SplitConfig
    ) -> None:
        """Reads ids, texts, times, splits and features of the documents."""
        document = self.roles.document
        store, number = self.data[document], self.roles.sizes[document]
        self.ids = self._list_ids(document, number)
        table = pd.DataFrame({"id": self.ids}, dtype=str)
        texts = self._read_texts(text)
        split = read_splits(store, number, self.faults)
        if split is None:
            split = np.array(
                [*map(config.choose_split, self.ids, texts or [""] * number)], dtype=object
            )
        elif MASKS["valid"] not in store:
            split = np.array(config.hold_out(split, self.ids, texts or [""] * number), dtype=object)
        self.kept = split != ""
        self.row = np.cumsum(self.kept) - 1
        if left_out := int((~self.kept).sum()):
            self.warnings.append(
                f"left out {left_out:,} of {number:,} documents, which are in none of the masks"
            )
        table["split"] = pd.Series(split, dtype=str)
        if texts is not None:
            table["text"] = pd.Series(texts, dtype=str)
        if time in store:
            table["time"] = read_times(store[time], number, self.faults)
        elif time != "time":
            self.faults.append(f"time must name an attribute of '{document}', found '{time}'.")
        self.documents = table[self.kept].reset_index(drop=True)
        if (x := self._read_x(document)) is not None:
            self.features[DOCUMENT] = x[self.kept]
        self._warn_of_attributes({*MASKS.values(), time, text if isinstance(text, str) else "text"})

    def _read_texts(self, text: str | Sequence[str] | None) -> list[str] | None:
        """Texts of the documents; None if the graph has none."""
        document, store = self.roles.document, self.data[self.roles.document]
        if isinstance(text, str) and text not in store:
            self.faults.append(f"text must name an attribute of '{document}', found '{text}'.")
            return None
        given = store.get(text or "text") if isinstance(text, str | None) else text
        if given is None:
            return None
        what = f"the texts of '{document}'"
        return read_strings(given, self.roles.sizes[document], what, self.faults)

    def _warn_of_attributes(self, own: set[Any]) -> None:
        """Warns of attributes that are not read; ``own`` are those of documents that are."""
        labels = self.roles.labels
        read = dict[Any, set[Any]]()
        read |= dict.fromkeys(self.roles.sizes, _NODE_KEYS)
        read |= dict.fromkeys(self.roles.edge_types, _EDGE_KEYS)
        read[self.roles.document] = {"x", "num_nodes", *own, labels, f"{labels}_index"}
        read[self.roles.is_a] = {"edge_index"}
        others = [
            f"{one}.{key}"
            for one in [*self.roles.sizes, *self.roles.edge_types]
            for key in self.data[one]
            if key not in read[one]
        ]
        self.warnings += describe_left_out(others)

    def _list_ids(self, node_type: str, number: int) -> Array:
        """Ids of the nodes of a type, or of classes."""
        if node_type not in self.roles.names:
            prefix = "reference " if node_type == CITATION_FIELD else ""  # not a document's
            return np.array([f"{prefix}{one}" for one in range(number)], dtype=object)
        given, what = self.roles.names[node_type], f"the names of '{node_type}'"
        found = read_strings(given, number, what, self.faults)
        return np.array([*range(number)] if found is None else found, dtype=object)

    def _read_x(self, node_type: str) -> Array | None:
        if "x" not in self.data[node_type]:
            return None
        number = self.roles.sizes[node_type]
        return read_features(self.data[node_type].x, node_type, number, self.faults)

    def read_labels(self, hierarchy: EdgeType | Tensor | Array | None) -> None:
        """Reads the labels of the documents, and the hierarchy above them."""
        labels, is_nodes = self.roles.labels, self.roles.has_label_nodes
        if is_nodes:
            number = self.roles.sizes[labels]
            edges = self._join(labels)
        else:
            store, rows = self.data[self.roles.document], self.roles.sizes[self.roles.document]
            edges, number = read_classes(store, labels, rows, self.faults)
            number = max(number, len(self.roles.names.get(labels, ())))
        pairs = np.empty((2, 0), dtype=np.int64)
        if isinstance(hierarchy, Tensor | np.ndarray):
            pairs = number_edges(hierarchy, (number, number), "hierarchy", self.faults)
        elif self.roles.is_a is not None:
            found = read_edges(self.data, self.roles.is_a, (number, number), self.faults)
            pairs = np.stack([found.head, found.tail])
        if is_nodes:
            ids = self._list_ids(labels, number)
        else:
            ids, edges, pairs = self._list_classes(number, edges, pairs)
        kept = self.kept[edges.head]
        there = np.bincount(edges.tail[kept], minlength=len(ids)) > 0  # else only in the hierarchy
        edges = edges.take(kept).renumber_tail(np.cumsum(there) - 1)
        self._add_type(LABEL, labels if is_nodes else None, ids, edges, there)
        self.hierarchy = hierarchy_frame([(*pair, "hierarchy") for pair in ids[pairs].T.tolist()])

    def _list_classes(self, number: int, edges: Edges, pairs: Array) -> tuple[Array, Edges, Array]:
        """Ids of the classes that occur, and both lists of edges renumbered by them.

        Class indices may be large ids of a database, so that no array is as long as the largest.
        """
        found, place = np.unique(np.concatenate([edges.tail, *pairs]), return_inverse=True)
        ids, labels = found.astype(str).astype(object), self.roles.labels
        if labels in self.roles.names:
            names = self.roles.names[labels]
            if read_strings(names, number, f"the names of '{labels}'", self.faults) is not None:
                ids = np.array(names, dtype=object)[found]
        tail, ends = np.split(place, [len(edges.tail)])
        return ids, replace(edges, tail=tail), ends.reshape(2, -1)

    def read_fields(self) -> None:
        """Reads metadata fields and citations."""
        for node_type in self.roles.of_type:
            if node_type not in (self.roles.labels, WORD):
                ids = self._list_ids(node_type, self.roles.sizes[node_type])
                self._add_type(self._name_field(node_type), node_type, ids, self._join(node_type))
        if self.roles.citations:
            self._add_citations()

    def read_words(self, tokenizer: Tokenizer) -> None:
        """Reads the words from the graph, or else from the texts."""
        if WORD in self.roles.of_type:
            ids = self._list_ids(WORD, self.roles.sizes[WORD])
            self._add_type(WORD, WORD, ids, self._join(WORD, is_set=False))
            return
        words = Interner()
        for text in self.documents.get("text", [""] * len(self.documents)):
            words.append(split_words(text, tokenizer))
        self.instances[WORD], self.edges[WORD] = words.instances(), words.edges()

    def _join(self, node_type: str, is_set: bool = True) -> Edges:
        """Merges all edge types between documents and a type into edges sorted by document."""
        document, edge_types = self.roles.document, self.roles.of_type[node_type]
        if not is_set:  # both directions would give each element twice
            edge_types = [one for one in edge_types if one[0] == document] or edge_types
        found = []
        for one in edge_types:
            sizes = self.roles.sizes[one[0]], self.roles.sizes[one[2]]
            edges = read_edges(self.data, one, sizes, self.faults)
            found.append(edges if one[0] == document else edges.reverse())
        joined, is_same = join_edges(found, str(edge_types), is_set, self.faults)
        if not is_same:
            self.warnings.append(
                f"the edge types {edge_types} have other edges each, and became one field, "
                f"'{node_type}'"
            )
        if is_set:
            repeated = [one.count_repeated() for one in found]
            self.num_repeated += max(repeated) if is_same else sum(repeated)
        return joined

    def _add_citations(self) -> None:
        """Adds cited documents to the field ``reference``."""
        number = self.roles.sizes[self.roles.document]
        found = [
            read_edges(self.data, one, (number, number), self.faults)
            for one in self.roles.citations
        ]
        cited, is_same = join_edges(found, str(self.roles.citations), True, self.faults)
        if not is_same:
            self.warnings.append(
                f"the edge types {self.roles.citations} between documents became one, citations; "
                f"drop=[...] leaves some of them out"
            )
        backwards = cited.tail * number + cited.head
        if (cited.head != cited.tail).any() and np.isin(
            backwards, cited.head * number + cited.tail
        ).all():
            self.warnings.append(
                "all edges between documents point both ways, as after T.ToUndirected(), and each "
                "counts as a citation; with merge=False it adds reverses that are told apart"
            )
        cited = cited.take(self.kept[cited.head]).renumber_head(self.row)
        table = self.instances.get(CITATION_FIELD, pd.DataFrame({"id": []}, dtype=str))
        row = pd.Index(table["id"]).get_indexer(self.ids)
        more = (np.bincount(cited.tail, minlength=number) > 0) & (row < 0)
        row[more] = len(table) + np.arange(more.sum())
        both = [cited.renumber_tail(row)]
        if CITATION_FIELD in self.edges:
            both.insert(0, Edges.from_frame(self.edges[CITATION_FIELD]))
        added = pd.DataFrame({"id": self.ids[more]}, dtype=str)
        self.instances[CITATION_FIELD] = pd.concat([table, added], ignore_index=True)
        what = f"the field '{CITATION_FIELD}' and {self.roles.citations}"
        joined, _ = join_edges(both, what, True, self.faults)
        self.edges[CITATION_FIELD] = joined.to_frame()
        if more.any() and CITATION_FIELD in self.features:
            self.faults.append(
                f"a type '{CITATION_FIELD}' with x must hold all cited documents, but "
                f"{int(more.sum()):,} are not in it; name its nodes by names, or drop it."
            )

    def _add_type(
        self, name: str, node_type: str | None, ids: Array, edges: Edges, there: Array | None = None
    ) -> None:
        """Adds a type: its nodes (of the mask ``there``), edges and features."""
        there = np.ones(len(ids), dtype=bool) if there is None else there
        table = pd.DataFrame({"id": ids[there]}, dtype=str)
        if node_type is not None:
            for key in [one for one in _TEXT_KEYS if one in self.data[node_type]]:
                what = f"'{key}' of '{node_type}'"
                strings = read_strings(self.data[node_type][key], len(ids), what, self.faults)
                if strings is not None:
                    table[key] = pd.Series(np.array(strings, dtype=object)[there], dtype=str)
            if (x := self._read_x(node_type)) is not None:
                self.features[name] = x[there]
        self.instances[name] = table
        self.edges[name] = edges.take(self.kept[edges.head]).renumber_head(self.row).to_frame()

    def _name_field(self, node_type: str) -> str:
        """Field name of a node type: its own, made valid and unique."""
        name = re.sub(r"[\W_]+", "_", node_type).strip("_") or "field"
        name = f"type_{name}" if name[0].isdigit() else name
        while name in {*RECORD_KEYS, *RESERVED_TYPES, CONTEXT, *self.instances}:
            name = f"{name}_node"
        if name != node_type:
            self.warnings.append(
                f"the node type '{node_type}' became the field '{name}', as its own name is taken "
                f"or has other characters than letters, digits and single underscores"
            )
        return name

    def build(self, name: str, tokenizer: Tokenizer) -> Corpus:
        """The corpus of what was read."""
        order = [*(one for one in self.instances if one not in (WORD, LABEL)), WORD, LABEL]
        return Corpus(
            name=name,
            documents=self.documents,
            instances={one: self.instances[one] for one in order},
            edges={one: self.edges[one] for one in order},
            hierarchy=self.hierarchy,
            notes={"repeated_values_dropped": self.num_repeated},
            warnings=self.warnings,
            features=self.features,
            tokenizer=tokenizer,
        )
