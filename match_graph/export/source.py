"""Source of an export: a built data set, restricted by the export's options."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.config import StrictModel, parse_settings
from match_graph.corpus import Array
from match_graph.datasets import CorpusDataset
from match_graph.errors import ExportError
from match_graph.export.inventory import Inventory
from match_graph.graph import Targets
from match_graph.graph.csr import make_ptr, row_index
from match_graph.graph.view import Graph, GraphView, view_graph
from match_graph.typing import (
    CONTAINS,
    DOCUMENT,
    IS_A,
    LABEL,
    MASKS,
    RESERVED_TYPES,
    TAGGED,
    WORD,
    EdgeType,
)

Features: TypeAlias = Literal["none", "data", "ids", "pretrained"]
IncludeLabels: TypeAlias = Literal["none", "train", "all"]
Text: TypeAlias = Literal["none", "raw", "words"]

#: Numbers of nodes and of edges per batch.
NODE_BATCH, EDGE_BATCH = 50_000, 1_000_000
#: Placeholder of a missing integer, such as an unknown depth, where arrays are compared.
NONE = -1
#: Edge type of gold labels in an export; the graph has those of training only, as TAGGED.
GOLD: EdgeType = (DOCUMENT, "gold", LABEL)


class ExportOptions(StrictModel):
    """Options of an export.

    Args:
        features: Node features ``x``: none, those of the data (the data set's own, or
            ``data.features`` of the configuration), the node's index, or pre-trained vectors; None
            takes those of the data where there are some.
        include_labels: Documents whose gold labels are exported: none, train, or all. Those of
            other splits than train are never ``tagged`` edges; networkx and parquet write them as
            edges of the type ``gold`` beside these.
        text: Document texts: none, raw, or the word sequence with spaces; None is the target's own
            default.
    """

    features: Features | None = None
    include_labels: IncludeLabels = "train"
    text: Text | None = None


def parse_options(**given: Any) -> ExportOptions:
    """Export options of a user's arguments.

    Raises:
        ConfigError: With every option that is unknown or has an invalid value.
    """
    return parse_settings(ExportOptions, given, "The options of an export must be valid")


@dataclass(frozen=True)
class Source:
    """Exported view of a built data set; made by `open_source`.

    Args:
        dataset: Built data set.
        options: Export options.
        graph: Graph, read in place; without gold labels if these are left out.
        targets: Gold labels; none for documents whose labels are left out.
        features: Features ``x`` per node type, [num_nodes, F], float32; of node numbers int64.
        has_edge_attr: Whether `edges` gives ``edge_attr``, for a format that carries it.
        advance: Called with the number of nodes or edges of each batch.
    """

    dataset: CorpusDataset
    options: ExportOptions
    graph: GraphView
    targets: Targets
    features: Mapping[str, Tensor] = field(default_factory=dict)
    has_edge_attr: bool = False
    advance: Callable[[int], None] = lambda _number: None

    @property
    def fields(self) -> list[str]:
        """Metadata fields."""
        return [name for name in self.graph.node_types if name not in RESERVED_TYPES]

    @property
    def has_gold(self) -> bool:
        """Whether any gold labels are exported."""
        return self.options.include_labels != "none"

    @property
    def num_items(self) -> int:
        """Number of nodes, edges and gold labels."""
        graph = self.graph
        nodes, edges = (
            map(graph.num_nodes, graph.node_types),
            map(graph.num_edges, graph.edge_types),
        )
        return sum(nodes) + sum(edges) + len(self.targets.index)

    @cached_property
    def data(self) -> HeteroData:
        """Graph in memory without ``x``, for formats that hold whole arrays."""
        data = copy.copy(self.dataset[0])
        for store in data.node_stores:
            store.pop("x", None)
        if not self.has_gold:
            del data[TAGGED]
            del data[LABEL].train_count
        return data

    @cached_property
    def shown(self) -> Tensor:
        """Mask of documents whose gold labels are exported, [D], bool."""
        train = self.graph.node_tensor(DOCUMENT, MASKS["train"])
        assert train is not None
        if self.options.include_labels == "train":
            return train
        return torch.full_like(train, self.options.include_labels == "all")

    @cached_property
    def split(self) -> Array:
        """Split of every document, strings, [D]."""
        return list_splits(self.graph)

    def nodes(self, node_type: str) -> Iterator[pa.RecordBatch]:
        """Nodes of a type in batches, in the order of the graph.

        Columns: ``id``; of documents ``split``, ``text`` and ``time``; ``name`` and
        ``definition`` where the data set has them; of labels ``depth`` where their source gives it;
        ``train_count``; ``x``. Each only if it exists and is exported.
        """
        is_hidden = node_type == LABEL and not self.has_gold
        train_count = None if is_hidden else self.graph.node_tensor(node_type, "train_count")
        start = 0
        with_text = self.options.text == "raw"
        for batch in self.dataset.iter_table(node_type, NODE_BATCH, with_text):
            rows = slice(start, start + batch.num_rows)
            columns = {"id": batch.column("id")}
            if node_type == DOCUMENT:
                columns["split"] = pa.array(self.split[rows], pa.string())
                columns |= self._texts(batch, start)
            for column in ("name", "definition", "depth", "time"):
                if column in batch.schema.names:
                    columns[column] = batch.column(column)
            if train_count is not None:
                columns["train_count"] = pa.array(train_count[rows].numpy())
            if node_type in self.features:
                columns["x"] = _vectors(self.features[node_type][rows])
            self.advance(batch.num_rows)
            start = rows.stop
            yield pa.RecordBatch.from_pydict(columns)

    def names(self, node_type: str) -> Iterator[pa.RecordBatch]:
        """As `nodes`, without columns that some formats keep as arrays: splits, counts, ``x``."""
        for batch in self.nodes(node_type):
            held = ("x", "train_count", "split")
            yield batch.drop_columns([name for name in held if name in batch.schema.names])

    def edges(self, edge_type: EdgeType) -> Iterator[pa.RecordBatch]:
        """Edges of a type in batches: ``source``, ``target`` (int32), ``position`` of words.

        With `has_edge_attr` also ``edge_attr``, where the graph has it.
        """
        attributes = None
        if edge_type == GOLD:
            ptr, node, is_sequence = self.targets.ptr, self.targets.index, False
        else:
            lists, is_sequence = self.graph.adjacency(edge_type), self.graph.is_sequence(edge_type)
            ptr, node = lists.ptr, lists.node
            if self.has_edge_attr:
                attributes = self.graph.edge_tensor(edge_type, "edge_attr")
        for start in range(0, max(len(node), 1), EDGE_BATCH):
            target = node[start : start + EDGE_BATCH]
            place = torch.arange(start, start + len(target))
            row = torch.searchsorted(ptr, place, right=True) - 1
            part = {"source": row.to(target.dtype), "target": target}
            if is_sequence:
                part["position"] = (place - ptr[row]).to(torch.int16)
            arrays = {name: pa.array(values.numpy()) for name, values in part.items()}
            if attributes is not None:
                arrays["edge_attr"] = _vectors(attributes[start : start + EDGE_BATCH])
            batch = pa.RecordBatch.from_pydict(arrays)
            self.advance(batch.num_rows)
            yield batch

    def take_inventory(self, kept: Mapping[str, Tensor] | None = None) -> Inventory:
        """Inventory that the export must have.

        Args:
            kept: Masks of the nodes that the export has, bool, by node type; edges must lead to
                these. If it includes labels, the caller adds the hierarchy. Types that it lacks, or
                all if it is None, are complete.
        """
        inventory = Inventory()
        masks = {node_type: mask.numpy() for node_type, mask in (kept or {}).items()}
        number = {node_type: mask.cumsum() - 1 for node_type, mask in masks.items()}
        for node_type in self.graph.node_types:
            start = 0
            for batch in self.nodes(node_type):
                rows = slice(start, start + batch.num_rows)
                start = rows.stop
                is_part = node_type in masks
                part = batch.filter(pa.array(masks[node_type][rows])) if is_part else batch
                inventory.add_nodes(node_type, *split_columns(part))
        for edge_type in self.edge_types:
            if edge_type == IS_A and LABEL in masks:
                continue
            for batch in self.edges(edge_type):
                (head, tail), columns = split_ends(batch)
                if edge_type[2] in masks:
                    tail = number[edge_type[2]][tail]
                inventory.add_edges(edge_type, (head, tail), columns)
        return inventory

    @property
    def edge_types(self) -> list[EdgeType]:
        """Edge types of the graph and, if gold labels are exported, `GOLD`."""
        return [*self.graph.edge_types, *([GOLD] if self.has_gold else [])]

    def _texts(self, batch: pa.RecordBatch, start: int) -> dict[str, pa.Array]:
        if self.options.text == "raw":
            return {"text": batch.column("text")}
        if self.options.text == "words":
            texts = map(" ".join, self.list_words(start, batch.num_rows))
            return {"text": pa.array(texts, pa.string())}
        return {}

    def list_words(self, start: int, number: int) -> list[Array]:
        """Words of a range of documents, in order, strings."""
        lists = self.graph.adjacency(CONTAINS)
        ptr = lists.ptr[start : start + number + 1]
        words = lists.node[int(ptr[0]) : int(ptr[-1])]
        names = self._words[words.numpy()]
        bounds = (ptr[1:-1] - ptr[0]).numpy()
        return np.split(names, bounds)

    @cached_property
    def _words(self) -> Array:
        return self.dataset.names(WORD).to_numpy(dtype=object)


def open_source(dataset: CorpusDataset, options: ExportOptions) -> Source:
    """Opens a data set for export with these options, without features.

    Raises:
        ExportError: Raw texts are asked for, but the data set keeps none; or it has a ``transform``
            that does more than hide types.
    """
    if dataset.transform is not None and not hasattr(dataset.transform, "hide"):
        raise ExportError(
            f"An export is of a data set as it is built, but '{dataset.name}' has a transform; "
            f"leave it out, and transform what is exported."
        )
    if options.text == "raw" and not dataset.keeps_texts:
        raise ExportError(
            f"--text raw needs raw texts, but '{dataset.name}' keeps none; "
            f"choose --text words or --text none."
        )
    graph, targets = dataset.graph, dataset.targets
    if options.include_labels == "none":
        graph = graph.without([], [TAGGED])
    source = Source(dataset, options, graph, targets)
    if options.include_labels == "all":
        return source
    return replace(source, targets=_keep_targets(targets, source.shown))


def _keep_targets(targets: Targets, kept: Tensor) -> Targets:
    """Gold labels of the documents of a mask; the lists of others are empty."""
    index = targets.index[kept[row_index(targets.ptr)]]
    return Targets(make_ptr(targets.ptr.diff() * kept), index, targets.num_labels)


def split_columns(batch: pa.RecordBatch) -> tuple[Any, dict[str, Any]]:
    """Ids and attributes of a batch of nodes, as `Inventory.add_nodes` takes them."""
    columns = {name: read_column(batch.column(name)) for name in batch.schema.names}
    return columns.pop("id"), columns


def split_ends(batch: pa.RecordBatch) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Ends and attributes of a batch of edges, as `Inventory.add_edges` takes them."""
    columns = {name: read_column(batch.column(name)) for name in batch.schema.names}
    return (columns.pop("source"), columns.pop("target")), columns


def list_splits(data: Graph) -> Array:
    """Split of every document of a graph, strings, [D]."""
    graph = view_graph(data)
    names = np.full(graph.num_nodes(DOCUMENT), "", dtype=object)
    for name, key in MASKS.items():
        mask = graph.node_tensor(DOCUMENT, key)
        assert mask is not None
        names[mask.numpy()] = name
    return names


def add_graph_edges(inventory: Inventory, data: HeteroData, gold: Mapping[str, Any] | None) -> None:
    """Adds the edges of a graph, and gold labels as `Targets.to_dict` gives them."""
    for edge_type in data.edge_types:
        store = data[edge_type]
        more = {name: store[name].numpy() for name in ("position", "edge_attr") if name in store}
        inventory.add_edges(edge_type, store.edge_index.numpy(), more)
    if gold is not None:
        inventory.add_edges(GOLD, (row_index(gold["ptr"]).numpy(), gold["index"].numpy()))


def read_column(column: Any) -> Any:
    """NumPy array of a column: strings as objects, vectors [N, C], missing integers as `NONE`."""
    if pa.types.is_fixed_size_list(column.type):
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        values = column.flatten().to_numpy(zero_copy_only=False)
        return values.reshape(len(column), column.type.list_size)
    if pa.types.is_integer(column.type):
        column = column.fill_null(NONE)
    return np.asarray(column.to_pandas())


def _vectors(x: Tensor) -> pa.Array:
    flat = pa.array(x.contiguous().view(-1).numpy())
    return pa.FixedSizeListArray.from_arrays(flat, x.size(1))
