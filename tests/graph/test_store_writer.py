"""Files of a build: whole or in blocks the same bytes; what cannot be a build is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from match_graph.errors import GraphError
from match_graph.graph import BuiltGraph, Targets
from match_graph.graph.store_writer import ArrayFile, StoreWriter, index_dtype, write_graph


def read_folder(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_StoreWriter_blocks_give_the_bytes_of_write_graph(
    toy_graph: BuiltGraph, tmp_path: Path
) -> None:
    """In blocks of three rows, node types last that have no edges."""
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    whole.mkdir()
    pieces.mkdir()
    first, second = StoreWriter(whole), StoreWriter(pieces)
    write_graph(first, toy_graph.data, toy_graph.targets)
    for name in toy_graph.data.node_types:
        second.add_nodes(name, toy_graph.data[name].num_nodes)
        for key, value in toy_graph.data[name].items():
            if key != "num_nodes":
                with second.node_array(name, key, value.numpy().dtype, value.shape) as array:
                    for block in value.split(3):
                        array.append(block)
    for edge_type in toy_graph.data.edge_types:
        row, col = toy_graph.data[edge_type].edge_index
        second.add_edges(edge_type, len(row), "position" in toy_graph.data[edge_type])
        number = toy_graph.data[edge_type[0]].num_nodes
        with second.edge_array(edge_type, "ptr") as ptr:
            ptr.append(np.searchsorted(row.numpy(), np.arange(number + 1)))
        with second.edge_array(edge_type, "index") as index:
            for block in col.split(3):
                index.append(block)
        second.reverse(edge_type)
    for key in ("ptr", "index"):
        values = getattr(toy_graph.targets, key)
        with second.target_array(key, len(values)) as array:
            array.append(values)
    assert first.schema() == second.schema()
    assert read_folder(whole) == read_folder(pieces)


def test_ArrayFile_refuses_other_rows_than_it_was_made_for(tmp_path: Path) -> None:
    """Another width at once, another number at the end; numpy reads what was written."""
    with ArrayFile(tmp_path / "x.npy", np.float16, (3, 2)) as array:
        array.append(np.ones((2, 2)))
        with pytest.raises(GraphError) as caught:
            array.append(np.ones((1, 3)))
        assert str(caught.value) == "Blocks of 'x.npy' must be rows of [3, 2], found [1, 3]."
        array.append(torch.zeros(1, 2))
    assert np.load(tmp_path / "x.npy").tolist() == [[1, 1], [1, 1], [0, 0]]
    with pytest.raises(GraphError) as caught, ArrayFile(tmp_path / "y.npy", bool, (3,)) as array:
        array.append(np.ones(2))
    assert str(caught.value) == "'y.npy' must get 3 rows, found 2."


def test_StoreWriter_schema_names_what_was_not_written(tmp_path: Path) -> None:
    """A build without its lists by target is incomplete."""
    writer = StoreWriter(tmp_path)
    writer.add_nodes("document", 1)
    writer.add_edges(("document", "cites", "document"), 0)
    for name in ("ptr", "index"):
        with writer.edge_array(("document", "cites", "document"), name) as array:
            array.append(np.zeros(2 if name == "ptr" else 0))
    with pytest.raises(GraphError) as caught:
        writer.schema()
    back = [f"edges/document.cites.document/back/{name}.npy" for name in ("ptr", "index", "edge")]
    assert str(caught.value) == (
        f"A build must hold all of its arrays, but "
        f"{['targets/ptr.npy', 'targets/index.npy', *back]} are missing."
    )


def test_StoreWriter_refuses_names_that_name_no_folder(tmp_path: Path) -> None:
    """They would lead out of the build."""
    with pytest.raises(GraphError, match=r"^The name of a node type must be a name without /"):
        StoreWriter(tmp_path).add_nodes("../author", 1)


def spoil_position(data: HeteroData) -> None:
    data["document", "contains", "word"].position += 1


def add_list(data: HeteroData) -> None:
    data["venue"].colours = ["red"]


def add_scalar(data: HeteroData) -> None:
    data.year = 2021


HAS_VENUE = ("document", "has", "venue")


def name_index(data: HeteroData) -> None:
    data[HAS_VENUE].index = torch.zeros(data[HAS_VENUE].num_edges)


def make_sparse_edges(data: HeteroData) -> None:
    edges = data[HAS_VENUE]
    edges.adj_t = edges.edge_index
    del edges.edge_index


def cut_edge_index(data: HeteroData) -> None:
    data[HAS_VENUE].edge_index = data[HAS_VENUE].edge_index[0]


def make_float_edges(data: HeteroData) -> None:
    data[HAS_VENUE].edge_index = data[HAS_VENUE].edge_index[:, :4] + 0.5


def list_edges(data: HeteroData) -> None:
    data[HAS_VENUE].edge_index = data[HAS_VENUE].edge_index.tolist()


def join_unknown_type(data: HeteroData) -> None:
    data["document", "of", "team"].edge_index = torch.tensor([[0], [0]])


def add_type_without_number(data: HeteroData) -> None:
    data["team"].strength = torch.ones(3)


def point_past(data: HeteroData) -> None:
    data[HAS_VENUE].edge_index = torch.tensor([[0], [99]])


def point_below(data: HeteroData) -> None:
    data[HAS_VENUE].edge_index = torch.tensor([[-1], [0]])


def add_bfloat16(data: HeteroData) -> None:
    data["document"].x = torch.ones(12, 2, dtype=torch.bfloat16)


def add_sparse(data: HeteroData) -> None:
    data["document"].x = torch.eye(12).to_sparse()


def add_complex(data: HeteroData) -> None:
    data["document"].phase = torch.ones(12, dtype=torch.complex64)


def add_float64(data: HeteroData) -> None:
    data["document"].x = torch.ones(12, 2, dtype=torch.float64)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            spoil_position,
            "The position of ('document', 'contains', 'word') must be the place of each edge in "
            "the list of its source, but it is not; number them anew in pre_transform.",
        ),
        (
            add_list,
            "A built graph holds tensors with a row per node or edge, but 'colours' of 'venue' is "
            "list; leave it out in pre_transform.",
        ),
        (
            add_scalar,
            "A built graph holds tensors of nodes and edges, found ['year'] of the whole graph; "
            "leave them out in pre_transform.",
        ),
        (
            name_index,
            "The attributes of edges must have names other than 'ptr' and 'index', which their "
            "lists have in a built graph, found ['index'] of ('document', 'has', 'venue'); rename "
            "them in pre_transform.",
        ),
        (
            make_sparse_edges,
            "A built graph holds edges as 'edge_index', but those of ('document', 'has', 'venue') "
            "have ['adj_t'] alone; leave out what makes them so in pre_transform, or take out the "
            "whole edge type.",
        ),
        (
            cut_edge_index,
            "The edges ('document', 'has', 'venue') must be a tensor [2, E] of whole numbers in a "
            "built graph, found [10] of torch.int32; change them in pre_transform.",
        ),
        (
            make_float_edges,
            "The edges ('document', 'has', 'venue') must be a tensor [2, E] of whole numbers in a "
            "built graph, found [2, 4] of torch.float32; change them in pre_transform.",
        ),
        (
            list_edges,
            "The edges ('document', 'has', 'venue') must be a tensor [2, E] of whole numbers in a "
            "built graph, found list; change them in pre_transform.",
        ),
        (
            join_unknown_type,
            "A graph must tell how many nodes of each type it has, found no number of 'team'; set "
            "data['team'].num_nodes.",
        ),
        (
            add_type_without_number,
            "A graph must tell how many nodes of each type it has, found no number of 'team'; set "
            "data['team'].num_nodes.",
        ),
        (
            point_past,
            "The edges ('document', 'has', 'venue') must join nodes of the graph, which has 3 of "
            "'venue', found one at 99; mend them in pre_transform.",
        ),
        (
            point_below,
            "The edges ('document', 'has', 'venue') must join nodes of the graph, which has 12 of "
            "'document', found one at -1; mend them in pre_transform.",
        ),
        (
            add_bfloat16,
            "A built graph holds dense tensors of real numbers that numpy has, but 'x' of "
            "'document' is torch.bfloat16; change it in pre_transform.",
        ),
        (
            add_sparse,
            "A built graph holds dense tensors of real numbers that numpy has, but 'x' of "
            "'document' is sparse; change it in pre_transform.",
        ),
        (
            add_complex,
            "A built graph holds dense tensors of real numbers that numpy has, but 'phase' of "
            "'document' is torch.complex64; change it in pre_transform.",
        ),
        (
            add_float64,
            "'x' of 'document' must be a matrix of float16 or float32 in a built graph, found "
            "[12, 2] of torch.float64; change it in pre_transform.",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Unable to accurately infer 'num_nodes'")  # PyG's
def test_write_graph_refuses_what_no_file_holds(
    toy_graph: BuiltGraph, tmp_path: Path, change: object, fault: str
) -> None:
    """What a pre_transform may have added."""
    data = HeteroData.from_dict(toy_graph.data.to_dict())
    data["document", "contains", "word"].position = data[
        "document", "contains", "word"
    ].position.clone()
    assert callable(change)
    change(data)
    with pytest.raises(GraphError) as caught:
        write_graph(StoreWriter(tmp_path), data, toy_graph.targets)
    assert str(caught.value) == fault


def test_write_graph_sorts_edges_with_their_attributes(tmp_path: Path) -> None:
    """Edges that a pre_transform added in any order; attributes of any shape, as of nodes."""
    data, writer = HeteroData(), StoreWriter(tmp_path)
    data["document"].num_nodes, data["label"].num_nodes = 3, 2
    data["label", "rev", "document"].edge_index = torch.tensor([[1, 0, 1, 0], [2, 2, 0, 1]])
    data["label", "rev", "document"].edge_attr = torch.arange(4.0).view(4, 1)
    data["label", "rev", "document"].blocks = torch.arange(24).view(4, 2, 3)
    write_graph(writer, data, Targets(torch.zeros(4).long(), torch.empty(0).int(), 2))
    folder = tmp_path / "edges" / "label.rev.document"
    assert np.load(folder / "index.npy").tolist() == [2, 1, 2, 0]
    assert np.load(folder / "edge_attr.npy").tolist() == [[1], [3], [0], [2]]
    assert np.load(folder / "blocks.npy")[:, 0, 0].tolist() == [6, 18, 0, 12]
    assert np.load(folder / "blocks.npy").shape == (4, 2, 3)
    assert np.load(folder / "back/edge.npy").tolist() == [3, 1, 0, 2]


def test_index_dtype_is_int64_from_2_to_the_31_on() -> None:
    """Offsets are int64 anyway."""
    assert index_dtype(2**31 - 1) == np.int32
    assert index_dtype(2**31) == np.int64
