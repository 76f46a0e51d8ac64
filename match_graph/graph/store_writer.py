"""Writes the arrays of a built graph as files, whole or piece by piece.

A build folder is read by `MappedGraph`. Its arrays are plain ``.npy`` files::

    nodes/TYPE/ATTRIBUTE.npy      train_mask, val_mask, test_mask (bool), time (int64),
                                  train_count (int32), x (float16 or float32); [num_nodes, ...]
    edges/SOURCE.RELATION.TARGET/
        ptr.npy, index.npy        targets of each source, in its order: CSR, int64 and int32
        edge_attr.npy             attributes of the edges, [E, K], float32
        back/ptr.npy, index.npy   sources of each target: training sources first, each part sorted
                                  by time where sources have one, then by index
        back/edge.npy             place of each edge in the forward lists, int32 (int64 from 2^31)
        back/stop.npy             end of the training sources in each list, [num targets], int64;
                                  where sources have a train_mask
    targets/ptr.npy, index.npy    gold labels of all splits, ascending within a document

``index`` is int64 where its node type has 2^31 nodes or more. The place of a word in its text is
its place in the list, and is not stored. ``corpus.json`` holds what `StoreWriter.schema` returns.

A graph in memory is written by `write_graph`. A larger one is written in blocks, in any order of
the files, sources before their edges are reversed::

    writer = StoreWriter(folder)
    writer.add_nodes("document", num_documents)
    writer.add_nodes("word", num_words)
    with writer.node_array("document", "train_mask", np.bool_, (num_documents,)) as array:
        for block in masks:
            array.append(block)
    writer.add_edges(CONTAINS, num_edges, is_sequence=True)
    with writer.edge_array(CONTAINS, "ptr") as ptr, writer.edge_array(CONTAINS, "index") as index:
        ...
    writer.reverse(CONTAINS)  # back/, in bounded memory, from the files
    with writer.target_array("ptr", num_documents + 1) as ptr: ...
    with writer.target_array("index", num_gold) as index: ...
    schema = writer.schema()  # checks that nothing is missing
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.errors import GraphError
from match_graph.graph.csr import sorted_row_ptr
from match_graph.graph.labels import Targets
from match_graph.graph.reverse import Reversal
from match_graph.graph.view import count_nodes
from match_graph.io.names import check_file_name
from match_graph.typing import MASKS, EdgeType

#: From so many nodes or edges on, their indices are int64.
_MANY = 2**31


def index_dtype(number: int) -> np.dtype[Any]:
    """Type of indices of so many nodes or edges."""
    return np.dtype(np.int64 if number >= _MANY else np.int32)


def table_name(node_type: str) -> str:
    """File of the table of a node type, relative to the build."""
    return f"nodes/{node_type}.parquet"


def edge_folder(edge_type: EdgeType) -> str:
    """Folder of an edge type, relative to the build."""
    return f"edges/{'.'.join(edge_type)}"


class ArrayFile:
    """A ``.npy`` file written in blocks, as a context manager.

    Args:
        path: Path of the file; its folder is created.
        dtype: Type of the values.
        shape: Shape of the whole array; blocks are rows of it.

    Raises:
        GraphError: The blocks have other shapes, or more or fewer rows in all.
    """

    def __init__(self, path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> None:
        self.path, self.dtype, self.shape = path, np.dtype(dtype), tuple(map(int, shape))
        self._num_rows = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, block: NDArray[Any] | Tensor) -> None:
        """Writes the next rows."""
        rows = np.ascontiguousarray(np.asarray(block), self.dtype)
        if rows.shape[1:] != self.shape[1:]:
            raise GraphError(
                f"Blocks of '{self.path.name}' must be rows of {list(self.shape)}, found "
                f"{list(rows.shape)}."
            )
        self._num_rows += len(rows)
        self._file.write(rows.data)

    def __enter__(self) -> "ArrayFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        if kind is None and self._num_rows != self.shape[0]:
            raise GraphError(
                f"'{self.path.name}' must get {self.shape[0]:,} rows, found {self._num_rows:,}."
            )


class StoreWriter:
    """Writes the arrays of a build; see the module for the files and the order of calls.

    Args:
        folder: Folder of the build, which exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._nodes: dict[str, dict[str, Any]] = {}  # entries of the schema
        self._edges: dict[EdgeType, dict[str, Any]] = {}

    def add_nodes(self, node_type: str, num_nodes: int) -> None:
        """Adds a node type.

        Raises:
            GraphError: Its name cannot name a folder.
        """
        try:
            check_file_name(node_type)
        except ValueError as error:
            raise GraphError(f"The name of a node type {error}, found {node_type!r}.") from None
        self._nodes[node_type] = {"num_nodes": num_nodes, "attributes": []}

    def node_array(
        self, node_type: str, name: str, dtype: DTypeLike, shape: tuple[int, ...]
    ) -> ArrayFile:
        """File of an attribute of the nodes of a type, [num_nodes, ...]."""
        self._nodes[node_type]["attributes"].append(name)
        return ArrayFile(self.folder / "nodes" / node_type / f"{name}.npy", dtype, shape)

    def add_edges(self, edge_type: EdgeType, num_edges: int, is_sequence: bool = False) -> None:
        """Adds an edge type between node types that were added.

        Args:
            edge_type: Edge type.
            num_edges: Number of edges.
            is_sequence: Whether the lists are sequences, such as words, and not sets.
        """
        self._edges[edge_type] = {
            "edge_type": list(edge_type),
            "num_edges": num_edges,
            "is_sequence": is_sequence,
            "attributes": [],
        }

    def edge_array(
        self,
        edge_type: EdgeType,
        name: str,
        dtype: DTypeLike = np.float32,
        row_shape: tuple[int, ...] = (),
    ) -> ArrayFile:
        """File of an edge type.

        Args:
            edge_type: Edge type.
            name: ``ptr`` [num sources + 1], ``index`` [E], or an attribute.
            dtype: Type of an attribute.
            row_shape: Shape of an attribute of one edge.
        """
        num_sources, num_targets = (self._nodes[end]["num_nodes"] for end in edge_type[::2])
        entry, path = self._edges[edge_type], self.folder / edge_folder(edge_type) / f"{name}.npy"
        if name == "ptr":
            return ArrayFile(path, np.int64, (num_sources + 1,))
        if name == "index":
            return ArrayFile(path, index_dtype(num_targets), (entry["num_edges"],))
        entry["attributes"].append(name)
        return ArrayFile(path, dtype, (entry["num_edges"], *row_shape))

    def plan_reverse(self, edge_type: EdgeType) -> Reversal:
        """Transposition of the lists by source on file into lists by target.

        The nodes' ``train_mask`` and ``time`` must have been written.
        """
        source, target = (self._nodes[end] for end in edge_type[::2])
        train, time = (
            self.folder / "nodes" / edge_type[0] / f"{name}.npy"
            if name in source["attributes"]
            else None
            for name in (MASKS["train"], "time")
        )
        num_edges = self._edges[edge_type]["num_edges"]
        dtypes = index_dtype(source["num_nodes"]), index_dtype(num_edges)
        folder = self.folder / edge_folder(edge_type)
        return Reversal(folder, target["num_nodes"], dtypes, train, time)

    def reverse(self, edge_type: EdgeType) -> None:
        """Writes the lists by target in this process."""
        reversal = self.plan_reverse(edge_type)
        for block in reversal.begin():
            block.write()
        for bucket in reversal.list_buckets():
            bucket.write()
        reversal.end()

    def target_array(self, name: str, size: int) -> ArrayFile:
        """File of the gold labels: ``ptr`` [num documents + 1] or ``index``."""
        dtype = np.int64 if name == "ptr" else np.int32
        return ArrayFile(self.folder / "targets" / f"{name}.npy", dtype, (size,))

    def schema(self) -> dict[str, Any]:
        """Node and edge types with their counts and attributes, for ``corpus.json``.

        Raises:
            GraphError: A file of an edge type or of the gold labels was not written.
        """
        needed = ["targets/ptr.npy", "targets/index.npy"]
        for edge_type in self._edges:
            names = ("ptr", "index", "back/ptr", "back/index", "back/edge")
            needed += [f"{edge_folder(edge_type)}/{name}.npy" for name in names]
        if missing := [name for name in needed if not (self.folder / name).is_file()]:
            raise GraphError(f"A build must hold all of its arrays, but {missing} are missing.")
        for entry in (*self._nodes.values(), *self._edges.values()):
            entry["attributes"].sort()
        return {"nodes": self._nodes, "edges": list(self._edges.values())}


#: Types that `MappedGraph` accepts for features.
_FEATURES = {"x": (torch.float16, torch.float32), "edge_attr": (torch.float32,)}


def write_graph(writer: StoreWriter, data: HeteroData, targets: Targets) -> None:
    """Writes a graph in memory with its gold labels; edges in any order are sorted by source.

    Raises:
        GraphError: The number of nodes of a type is unknown, an attribute is not a tensor of the
            nodes or edges, or the ``position`` of edges is not their place in their source's list.
    """
    if held := sorted(data._global_store.keys()):
        raise GraphError(
            f"A built graph holds tensors of nodes and edges, found {held} of the whole graph; "
            f"leave them out in pre_transform."
        )
    for name in data.node_types:
        number = count_nodes(data, name)
        writer.add_nodes(name, number)
        for key, value in _attributes(name, data[name], number).items():
            with writer.node_array(name, key, value.dtype, value.shape) as array:
                array.append(value)
    for edge_type in data.edge_types:
        _write_edges(writer, data, edge_type)
    for key, values in (("ptr", targets.ptr), ("index", targets.index)):
        with writer.target_array(key, len(values)) as array:
            array.append(values)


def _write_edges(writer: StoreWriter, data: HeteroData, edge_type: EdgeType) -> None:
    store = data[edge_type]
    if not [*store.keys()]:  # taken out by a pre_transform
        return
    if "edge_index" not in store:
        raise GraphError(
            f"A built graph holds edges as 'edge_index', but those of {edge_type!r} have "
            f"{[*store.keys()]} alone; leave out what makes them so in pre_transform, or take out "
            f"the whole edge type."
        )
    _check_form(edge_type, store.edge_index)
    (row, index), num_edges = store.edge_index, store.edge_index.size(1)
    held = _attributes(edge_type, store, num_edges)
    held.pop("edge_index")
    _check_ends(data, edge_type, row, index)
    if taken := sorted({"ptr", "index"} & held.keys()):
        raise GraphError(
            f"The attributes of edges must have names other than 'ptr' and 'index', which their "
            f"lists have in a built graph, found {taken} of {edge_type!r}; rename them in "
            f"pre_transform."
        )
    if bool((row[1:] < row[:-1]).any()):
        order = torch.argsort(row, stable=True)
        row, index = row[order], index[order]
        held = {key: value[order.numpy()] for key, value in held.items()}
    ptr = sorted_row_ptr(row, count_nodes(data, edge_type[0]))
    position = held.pop("position", None)
    if position is not None:
        _check_position(edge_type, ptr, row, position)
    writer.add_edges(edge_type, num_edges, position is not None)
    for key, value in {"ptr": ptr, "index": index}.items():
        with writer.edge_array(edge_type, key) as array:
            array.append(value)
    for key, values in held.items():
        with writer.edge_array(edge_type, key, values.dtype, values.shape[1:]) as array:
            array.append(values)
    writer.reverse(edge_type)


def _attributes(name: object, store: Mapping[str, Any], len_of: int) -> dict[str, NDArray[Any]]:
    """Attributes of nodes or edges as arrays; ``num_nodes`` is left out."""
    held = {}
    for key, value in store.items():
        if key == "num_nodes":
            continue
        is_index = key == "edge_index"
        if not isinstance(value, Tensor) or not (is_index or value.shape[:1] == (len_of,)):
            what = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise GraphError(
                f"A built graph holds tensors with a row per node or edge, but '{key}' of {name!r} "
                f"is {what}; leave it out in pre_transform."
            )
        with suppress(TypeError, RuntimeError):  # sparse, or of a type that numpy does not have
            held[key] = value.detach().numpy()
        if key not in held or value.is_complex():
            kind = "sparse" if value.layout != torch.strided else str(value.dtype)
            raise GraphError(
                f"A built graph holds dense tensors of real numbers that numpy has, but '{key}' of "
                f"{name!r} is {kind}; change it in pre_transform."
            )
        if key in _FEATURES and (value.dim() != 2 or value.dtype not in _FEATURES[key]):
            kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in _FEATURES[key])
            raise GraphError(
                f"'{key}' of {name!r} must be a matrix of {kinds} in a built graph, found "
                f"{list(value.shape)} of {value.dtype}; change it in pre_transform."
            )
    return held


def _check_form(edge_type: EdgeType, edge_index: Any) -> None:
    found = type(edge_index).__name__
    if isinstance(edge_index, Tensor):
        if edge_index.dim() == 2 and len(edge_index) == 2 and not edge_index.is_floating_point():
            return
        found = f"{list(edge_index.shape)} of {edge_index.dtype}"
    raise GraphError(
        f"The edges {edge_type!r} must be a tensor [2, E] of whole numbers in a built graph, found "
        f"{found}; change them in pre_transform."
    )


def _check_ends(data: HeteroData, edge_type: EdgeType, *ends: Tensor) -> None:
    for name, end in zip((edge_type[0], edge_type[2]), ends, strict=True):
        number = count_nodes(data, name)
        if end.numel() and not 0 <= int(end.min()) <= int(end.max()) < number:
            raise GraphError(
                f"The edges {edge_type!r} must join nodes of the graph, which has {number:,} of "
                f"'{name}', found one at {int(end.min() if end.min() < 0 else end.max())}; mend "
                f"them in pre_transform."
            )


def _check_position(edge_type: EdgeType, ptr: Tensor, row: Tensor, position: NDArray[Any]) -> None:
    place = torch.arange(row.numel()) - ptr[row.long()]
    if not torch.equal(place, torch.from_numpy(position).long()):
        raise GraphError(
            f"The position of {edge_type} must be the place of each edge in the list of its "
            f"source, but it is not; number them anew in pre_transform."
        )
