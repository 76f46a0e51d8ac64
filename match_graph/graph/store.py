"""A built graph as memory-mapped files, read in place: PyG's feature store and graph store.

The files are those of `store_writer`. Nothing is copied from them: tensors are private mappings of
the files, so that memory holds only pages that were touched, which the system may evict.
"""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, HeteroData, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from match_graph.errors import GraphError, suggest
from match_graph.graph.adjacency import Adjacency
from match_graph.graph.csr import row_index
from match_graph.graph.labels import Targets
from match_graph.graph.store_writer import edge_folder
from match_graph.graph.view import make_lists
from match_graph.io.build_folder import check_file, damaged_build
from match_graph.io.manifest import LARGE_BYTES
from match_graph.typing import DOCUMENT, LABEL, MASKS, EdgeType

#: File of a build that holds the schema of its graph, among others.
CORPUS = "corpus.json"
_NODE_DTYPES = {
    "train_count": torch.int32,
    "time": torch.int64,
    **dict.fromkeys(MASKS.values(), torch.bool),
}


class MappedGraph(FeatureStore, GraphStore):
    """Graph of a build folder, whose files are opened on first use.

    It is both a `FeatureStore` and a `GraphStore` of PyG, so that
    ``NodeLoader((graph, graph), node_sampler=EgoSampler(graph), ...)`` works. When a file is first
    opened, it is checked against the build's manifest, and its indices against the numbers of
    nodes; files of 256 MiB and more are checked by size only.

    Args:
        folder: Built folder.

    Raises:
        CorpusError: A file is damaged, here and when it is opened.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        with check_file(folder, CORPUS) as path:
            schema = json.loads(path.read_text(encoding="utf-8"))["schema"]
            self._nodes = {name: _read_nodes(entry) for name, entry in schema["nodes"].items()}
            self._edges = {tuple(entry["edge_type"]): entry for entry in schema["edges"]}
            if not {DOCUMENT, LABEL} <= self._nodes.keys():
                raise TypeError
            for (source, _, target), entry in self._edges.items():
                if not {source, target} <= self._nodes.keys() or not _is_count(entry["num_edges"]):
                    raise TypeError
        self._opened: dict[str, Tensor] = {}
        self._lists: dict[tuple[EdgeType, bool], Adjacency] = {}
        self._added: dict[tuple[str, str], Tensor] = {}
        self._replaced: dict[EdgeType, Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        """State without open mappings: another process maps the files itself."""
        return {**self.__dict__, "_opened": {}, "_lists": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    @property
    def node_types(self) -> list[str]:
        """Node types, in the order in which they were written."""
        return list(self._nodes)

    @property
    def edge_types(self) -> list[EdgeType]:
        """Edge types, in the order in which they were written."""
        return list(self._edges)

    def num_nodes(self, node_type: str) -> int:
        """Number of nodes of a type."""
        return self._nodes[node_type]["num_nodes"]

    def num_edges(self, edge_type: EdgeType) -> int:
        """Number of edges of a type."""
        return self._edges[edge_type]["num_edges"]

    def is_sequence(self, edge_type: EdgeType) -> bool:
        """Whether the lists of an edge type are sequences, such as words, and not sets."""
        return bool(self._edges[edge_type]["is_sequence"])

    def node_tensor(self, node_type: str, name: str) -> Tensor | None:
        """Attribute of the nodes of a type, [num_nodes, ...]; None where they have no such."""
        if (node_type, name) in self._added:
            return self._added[node_type, name]
        if name not in self._nodes[node_type]["attributes"]:
            return None
        path, number = f"nodes/{node_type}/{name}.npy", self.num_nodes(node_type)
        values = self._open(path)
        if name in _NODE_DTYPES and not _is_tensor(values, _NODE_DTYPES[name], (number,)):
            raise self._damage(path, f"'{name}' is not one {_NODE_DTYPES[name]} a node")
        is_float = values.dtype in (torch.float16, torch.float32)
        if name == "x" and not (is_float and values.dim() == 2 and len(values) == number):
            raise self._damage(path, f"'x' is not [{number}, F] of float16 or float32")
        if not values.dim() or len(values) != number:
            raise self._damage(path, f"'{name}' has not {number} rows")
        return values

    def edge_tensor(self, edge_type: EdgeType, name: str) -> Tensor | None:
        """Attribute of the edges of a type, [E, ...]; None where they have no such."""
        if name not in self._edges[edge_type]["attributes"]:
            return None
        path, number = f"{edge_folder(edge_type)}/{name}.npy", self.num_edges(edge_type)
        values = self._open(path)
        is_matrix = values.dtype == torch.float32 and values.dim() == 2
        if len(values) != number or (name == "edge_attr" and not is_matrix):
            raise self._damage(path, f"'{name}' is not [{number}, K] of float32")
        return values

    def list_attributes(self, of: str | EdgeType) -> list[str]:
        """Names of the attributes of a node type or an edge type."""
        if not isinstance(of, str):
            return [*self._edges[of]["attributes"]]
        added = [name for node_type, name in self._added if node_type == of]
        return [*dict.fromkeys([*self._nodes[of]["attributes"], *added])]

    def adjacency(self, edge_type: EdgeType, backwards: bool = False) -> Adjacency:
        """Neighbour lists of an edge type, by its sources or backwards by its targets, in place."""
        if (edge_type, backwards) not in self._lists:
            edges = self._replaced.get(edge_type)
            self._lists[edge_type, backwards] = (
                self._open_lists(edge_type, backwards)
                if edges is None
                else make_lists(self, edge_type, edges, backwards)
            )
        return self._lists[edge_type, backwards]

    def edge_index(self, edge_type: EdgeType) -> Tensor:
        """Edges of a type, [2, E]; in memory, for small types."""
        lists = self.adjacency(edge_type)
        return torch.stack([row_index(lists.ptr).to(lists.node.dtype), lists.node])

    def train_degree(self, edge_type: EdgeType) -> Tensor:
        """Edges at each target whose source is of training, [num_targets], int64.

        Where sources have no training mask all edges count.
        """
        lists = self.adjacency(edge_type, backwards=True)
        return (lists.ptr[1:] if lists.stop is None else lists.stop) - lists.ptr[:-1]

    @property
    def loader_data(self) -> tuple["MappedGraph", "MappedGraph"]:
        """The graph as PyG's loaders take it: feature store and graph store."""
        return self, self

    def targets(self) -> Targets:
        """Gold labels of all splits; only loss and metrics may read them."""
        num_documents, num_labels = self.num_nodes(DOCUMENT), self.num_nodes(LABEL)
        ptr, index = self._open("targets/ptr.npy"), self._open("targets/index.npy")
        self._check_lists("targets", ptr, index, num_documents, index.numel(), num_labels)
        return Targets(ptr, index, num_labels)

    def without(self, node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> "MappedGraph":
        """Copy that hides types; edges of hidden nodes go with them. The files stay."""
        other = copy.copy(self)
        other._nodes = {
            name: entry for name, entry in self._nodes.items() if name not in node_types
        }
        other._edges = {
            edge_type: entry
            for edge_type, entry in self._edges.items()
            if edge_type not in edge_types and not {edge_type[0], edge_type[2]} & {*node_types}
        }
        return other

    def with_edges(self, edges: Mapping[EdgeType, Tensor]) -> "MappedGraph":
        """Copy with other edges of some types, [2, E] each, that have no attributes."""
        other = copy.copy(self)
        other._replaced = {**self._replaced, **edges}
        other._lists = {key: lists for key, lists in self._lists.items() if key[0] not in edges}
        other._edges = {**self._edges}
        for edge_type, edge_index in edges.items():
            changed = {"num_edges": edge_index.size(1), "is_sequence": False, "attributes": []}
            other._edges[edge_type] = {**self._edges[edge_type], **changed}
        return other

    def to_hetero(self) -> HeteroData:
        """The graph of `build_graph` in memory; ``edge_index`` is int64, as PyG's layers need."""
        data = HeteroData()
        for name in self.node_types:
            data[name].num_nodes = self.num_nodes(name)
            for key in self.list_attributes(name):
                data[name][key] = self.node_tensor(name, key)
        for edge_type in self.edge_types:
            ptr, store = self.adjacency(edge_type).ptr, data[edge_type]
            store.edge_index = self.edge_index(edge_type).long()
            if self.is_sequence(edge_type):
                row = store.edge_index[0].long()
                store.position = (torch.arange(len(row)) - ptr[row]).to(torch.int16)
            for key in self.list_attributes(edge_type):
                store[key] = self.edge_tensor(edge_type, key)
        return data

    # PyG's stores

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        values = self.node_tensor(attr.group_name, attr.attr_name)
        return values if values is None or attr.index is None else values[attr.index]

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        """Adds or replaces an attribute in memory; the files stay.

        Raises:
            GraphError: The lists in the files are sorted and cut by this attribute, or there is no
                such node type.
        """
        if attr.group_name not in self._nodes:
            raise GraphError(
                f"An attribute must be of one of the node types {[*self._nodes]}, found "
                f"'{attr.group_name}'; {suggest(str(attr.group_name), self._nodes)}."
            )
        if attr.attr_name in _NODE_DTYPES:
            raise GraphError(
                f"An attribute that is put into a built graph must leave its neighbour lists "
                f"right, which are in the order of times and training, found '{attr.attr_name}' of "
                f"'{attr.group_name}'; put it into the HeteroData that to_hetero() gives."
            )
        values = torch.as_tensor(tensor)
        if attr.index is not None or len(values) != self.num_nodes(attr.group_name):
            return False
        self._added = {**self._added, (attr.group_name, attr.attr_name): values}
        return True

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        """Removes an attribute that was put."""
        kept = dict(self._added)
        found = kept.pop((attr.group_name, attr.attr_name), None)
        self._added = kept
        return found is not None

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        values = self.node_tensor(attr.group_name, attr.attr_name)
        return None if values is None else tuple(values.shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Attributes of all node types."""
        return [TensorAttr(name, key) for name in self._nodes for key in self.list_attributes(name)]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.edge_type not in self._edges:
            return None
        lists = self.adjacency(edge_attr.edge_type, edge_attr.layout == EdgeLayout.CSC)
        if edge_attr.layout == EdgeLayout.CSC:
            return lists.node, lists.ptr
        if edge_attr.layout == EdgeLayout.COO:
            row, col = self.edge_index(edge_attr.edge_type)
            return row, col
        return lists.ptr, lists.node

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        """Not offered: edges are what was built."""
        return False

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        """Not offered: edges are what was built; `without` hides types."""
        return False

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Edge types in the two layouts that lie in files."""
        return [
            EdgeAttr(edge_type, layout, size=(self.num_nodes(source), self.num_nodes(target)))
            for edge_type in self._edges
            for source, _, target in [edge_type]
            for layout in (EdgeLayout.CSR, EdgeLayout.CSC)
        ]

    # files

    def _open_lists(self, edge_type: EdgeType, backwards: bool) -> Adjacency:
        source, _, target = reversed(edge_type) if backwards else edge_type
        folder = edge_folder(edge_type) + ("/back" if backwards else "")
        ptr, node = self._open(f"{folder}/ptr.npy"), self._open(f"{folder}/index.npy")
        num_edges = self.num_edges(edge_type)
        sizes = self.num_nodes(source), num_edges, self.num_nodes(target)
        self._check_lists(folder, ptr, node, *sizes)
        if not backwards:
            return Adjacency(edge_type, False, ptr, node, None)
        edge, stop = self._open(f"{folder}/edge.npy"), None
        if not _is_index(edge, num_edges, num_edges):
            raise self._damage(f"{folder}/edge.npy", "it names edges that are none")
        if MASKS["train"] in self._nodes[target]["attributes"]:
            stop = self._open(f"{folder}/stop.npy")
            if not _is_tensor(stop, torch.int64, ptr[:-1].shape) or _is_outside(stop, ptr):
                raise self._damage(f"{folder}/stop.npy", "it does not lie within the lists")
        return Adjacency(edge_type, True, ptr, node, edge, stop)

    def _check_lists(
        self, folder: str, ptr: Tensor, index: Tensor, num_rows: int, num_edges: int, num_cols: int
    ) -> None:
        is_ptr = _is_tensor(ptr, torch.int64, (num_rows + 1,))
        if not is_ptr or int(ptr[0]) or int(ptr[-1]) != num_edges or _is_decreasing(ptr):
            raise self._damage(f"{folder}/ptr.npy", f"it does not cut {num_edges} edges into lists")
        if not _is_index(index, num_edges, num_cols):
            raise self._damage(f"{folder}/index.npy", "it names nodes that are none")

    def _open(self, name: str) -> Tensor:
        """Array of a file as a private mapping: torch warns of what is read-only."""
        if name not in self._opened:
            with check_file(self.folder, name) as path:
                array = np.lib.format.open_memmap(path, mode="c")
                if array.dtype.byteorder == ">" or not array.flags.c_contiguous:
                    raise TypeError
                self._opened[name] = torch.from_numpy(array)
        return self._opened[name]

    def _damage(self, name: str, fault: str) -> Exception:
        return damaged_build(self.folder / name, fault)


def _read_nodes(entry: dict[str, Any]) -> dict[str, Any]:
    if not _is_count(entry["num_nodes"]) or not isinstance(entry["attributes"], list):
        raise TypeError
    return entry


def _is_count(number: Any) -> bool:
    return type(number) is int and number >= 0


def _is_tensor(value: Tensor, dtype: torch.dtype, shape: Sequence[int]) -> bool:
    return value.dtype == dtype and tuple(value.shape) == tuple(shape)


def _is_index(values: Tensor, size: int, bound: int) -> bool:
    """True if an array holds ``size`` indices below a bound.

    Of large files only the type and shape are checked.
    """
    if values.dtype not in (torch.int32, torch.int64) or tuple(values.shape) != (size,):
        return False
    if not size or values.nbytes >= LARGE_BYTES:
        return True
    least, most = torch.aminmax(values)
    return int(least) >= 0 and int(most) < bound


def _is_decreasing(ptr: Tensor) -> bool:
    """True if offsets decrease anywhere; large files are not checked."""
    if ptr.nbytes >= LARGE_BYTES:
        return False
    return bool((ptr[1:] < ptr[:-1]).any())


def _is_outside(stop: Tensor, ptr: Tensor) -> bool:
    """True if a list's training part ends outside the list; large files are not checked."""
    if stop.nbytes >= LARGE_BYTES:
        return False
    return bool(((stop < ptr[:-1]) | (stop > ptr[1:])).any())
