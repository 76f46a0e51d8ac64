"""A build read in place: the same graph, through PyG's stores too."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader

from match_graph.datasets import Synthetic, open_dataset
from match_graph.errors import GraphError
from match_graph.graph import (
    BuiltGraph,
    EgoSampler,
    MappedGraph,
    NeighborhoodConfig,
    NeighborhoodSampler,
)
from match_graph.graph.view import view_graph
from match_graph.pretrain import find_relations
from match_graph.testing import toy_corpus
from match_graph.typing import CITES, CONTAINS, DOCUMENT, TAGGED, has_edge


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> MappedGraph:
    """The toy graph in files."""
    return MappedGraph(open_dataset(toy_corpus(), root=tmp_path_factory.mktemp("root")).built)


def test_MappedGraph_to_hetero_is_what_was_built(graph: MappedGraph, toy_graph: BuiltGraph) -> None:
    """Types in their order, with all tensors; edges in int64, as PyG's layers take them."""
    data, expected = graph.to_hetero().to_dict(), toy_graph.data.to_dict()
    assert list(data) == list(expected)
    for key, store in expected.items():
        assert data[key].keys() == store.keys()
        for name, value in store.items():
            if isinstance(value, torch.Tensor):
                dtype = torch.int64 if name == "edge_index" else value.dtype
                assert data[key][name].dtype == dtype
                assert torch.equal(data[key][name], value)
    assert graph.to_hetero().validate()


def test_MappedGraph_tensors_are_the_files(graph: MappedGraph) -> None:
    """Nothing is copied: every tensor lies within a private mapping of its file."""
    lists = MappedGraph(graph.folder).adjacency(CONTAINS, backwards=True)
    ranges = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, mode, _, _, _, *path = line.split(maxsplit=5)
        if path and mode == "rw-p":
            first, end = (int(number, 16) for number in bounds.split("-"))
            ranges[path[0].strip()] = range(first, end)
    folder = graph.folder / "edges/document.contains.word/back"
    for name, value in (("ptr", lists.ptr), ("index", lists.node), ("edge", lists.edge)):
        assert value is not None
        assert value.data_ptr() in ranges[str(folder / f"{name}.npy")]
        before = np.load(folder / f"{name}.npy")
        value[0] += 1
        assert np.array_equal(np.load(folder / f"{name}.npy"), before)


def test_MappedGraph_back_lists_hold_the_edges(graph: MappedGraph, toy_graph: BuiltGraph) -> None:
    """By target, those of training documents first up to ``stop``."""
    train = toy_graph.data[DOCUMENT].train_mask
    for edge_type in (CONTAINS, CITES, has_edge("author"), TAGGED):
        row, col = toy_graph.data[edge_type].edge_index
        lists = graph.adjacency(edge_type, backwards=True)
        assert lists.edge is not None
        assert lists.stop is not None
        assert torch.equal(row[lists.edge.long()], lists.node)
        target = torch.repeat_interleave(lists.ptr.diff())
        assert torch.equal(col[lists.edge.long()].long(), target)
        place = torch.arange(len(target))
        assert torch.equal(train[lists.node.long()], place < lists.stop[target])


def test_MappedGraph_feeds_a_NodeLoader_of_pyg(graph: MappedGraph, toy_graph: BuiltGraph) -> None:
    """As feature store and graph store, with our sampler; the batches are those of the graph."""
    sampler = EgoSampler(toy_graph.data)
    seeds = (DOCUMENT, torch.arange(12))
    loaders = [
        NodeLoader(source, sampler, seeds, batch_size=5)
        for source in ((graph, graph), toy_graph.data)
    ]
    for found, expected in zip(*loaders, strict=True):
        assert isinstance(found, HeteroData)
        for edge_type in sampler.edge_types:
            assert torch.equal(found[edge_type].edge_index, expected[edge_type].edge_index)
        assert torch.equal(found["word"].train_count, expected["word"].train_count)
        assert torch.equal(found[DOCUMENT].train_mask, expected[DOCUMENT].train_mask)


def test_MappedGraph_graph_store_gives_all_layouts(
    graph: MappedGraph, toy_graph: BuiltGraph
) -> None:
    """CSR and CSC as they lie in files, COO expanded; sizes are numbers of sources and targets."""
    edge_type = has_edge("author")
    row, col = toy_graph.data[edge_type].edge_index
    rows, cols, _ = graph.coo([edge_type])
    pairs = sorted(zip(rows[edge_type].tolist(), cols[edge_type].tolist(), strict=True))
    assert pairs == sorted(zip(row.tolist(), col.tolist(), strict=True))
    assert torch.equal(graph.get_edge_index(edge_type, "coo")[0], row)
    ptr, index = graph.get_edge_index(edge_type, "csr")
    assert torch.equal(index, col)
    assert torch.equal(ptr.diff(), row.bincount(minlength=12))
    for attr in graph.get_all_edge_attrs():
        source, _, target = attr.edge_type
        assert attr.size == (graph.num_nodes(source), graph.num_nodes(target))
    with pytest.raises(KeyError):
        graph.get_edge_index(("document", "has", "journal"), "csr")
    assert not graph.put_edge_index((row, col), edge_type, "coo")
    assert not graph.remove_edge_index(edge_type, "coo")


def test_MappedGraph_put_tensor_joins_features(graph: MappedGraph) -> None:
    """In memory, for nodes as a whole; a copy that hides types shares nothing of it."""
    x = torch.rand(graph.num_nodes("venue"), 4)
    other = graph.without(["author"], [CITES])
    assert other.put_tensor(x, group_name="venue", attr_name="x", index=None)
    assert not other.put_tensor(x[1:], group_name="venue", attr_name="x", index=None)
    found = other.get_tensor(group_name="venue", attr_name="x", index=torch.tensor([1]))
    assert torch.equal(found, x[1:2])
    assert torch.equal(other.to_hetero()["venue"].x, x)
    assert graph.node_tensor("venue", "x") is None
    assert other.get_tensor_size(group_name="venue", attr_name="x", index=None) == x.shape
    assert other.remove_tensor(group_name="venue", attr_name="x", index=None)
    assert other.node_tensor("venue", "x") is None


def test_MappedGraph_put_tensor_of_an_unknown_type(graph: MappedGraph) -> None:
    """The message names the nearest type."""
    with pytest.raises(GraphError, match=r"found 'venues'; the nearest is 'venue'\.$"):
        graph.put_tensor(torch.rand(3, 4), group_name="venues", attr_name="x", index=None)


@pytest.mark.parametrize("name", ["time", "train_mask"])
def test_MappedGraph_put_tensor_refuses_what_sorts_the_lists(graph: MappedGraph, name: str) -> None:
    """Draws search the lists of the files by it: others than the built ones would mislead them."""
    values = torch.zeros(graph.num_nodes(DOCUMENT), dtype=torch.int64)
    with pytest.raises(GraphError) as error:
        graph.put_tensor(values, group_name=DOCUMENT, attr_name=name, index=None)
    assert str(error.value) == (
        "An attribute that is put into a built graph must leave its neighbour lists right, which "
        f"are in the order of times and training, found '{name}' of 'document'; put it into the "
        "HeteroData that to_hetero() gives."
    )


def test_MappedGraph_without_hides_types(graph: MappedGraph) -> None:
    """Edges of hidden nodes go with them."""
    other = graph.without(["author"], [CITES])
    assert set(graph.node_types) - set(other.node_types) == {"author"}
    assert set(graph.edge_types) - set(other.edge_types) == {CITES, has_edge("author")}
    assert has_edge("author") not in {attr.edge_type for attr in other.get_all_edge_attrs()}


def test_MappedGraph_goes_to_other_processes_as_a_path(graph: MappedGraph) -> None:
    """A pickle holds no array."""
    graph.adjacency(CONTAINS)
    content = pickle.dumps(graph)
    assert len(content) < 10_000
    again = pickle.loads(content)
    assert torch.equal(again.adjacency(CONTAINS).node, graph.adjacency(CONTAINS).node)


@pytest.mark.parametrize("with_time", [False, True])
def test_MappedGraph_samples_as_a_graph_in_memory(
    tmp_path: Path, synthetic: Synthetic, with_time: bool
) -> None:
    """Ego-networks, neighbourhoods up to a time and pairs: the same draws from files."""
    corpus = synthetic.read()
    if with_time:
        generator = np.random.default_rng(0)
        corpus.documents["time"] = generator.integers(0, 9, corpus.num_documents)
    dataset = open_dataset(corpus, root=tmp_path)
    data, mapped = dataset[0], dataset.graph
    train, every = data[DOCUMENT].train_mask, torch.arange(corpus.num_documents)
    limit = data[DOCUMENT].time if with_time else None
    for reachable in (None, train, every % 3 == 0):
        fanouts = NeighborhoodConfig().resolve(data.edge_types)
        draws = [
            NeighborhoodSampler(graph, fanouts, reachable, random=True).sample(every, limit)
            for graph in (data, mapped)
        ]
        for part in ("node", "edge", "row"):
            found, expected = (getattr(draw, part) for draw in draws)
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[name], expected[name]) for name in found)
    first, second = (
        EgoSampler(graph, 5, 20, random=True).sample(every) for graph in (data, mapped)
    )
    assert torch.equal(first.node, second.node)
    rows = {name: int(data[name].num_nodes) for name in data.node_types} | {"word": 300}
    for kinds in zip(*(find_relations(graph, rows, 3) for graph in (data, mapped)), strict=True):
        for left, right in zip(*kinds, strict=True):
            drawn = [one.sample(500, torch.Generator().manual_seed(1)) for one in (left, right)]
            assert torch.equal(drawn[0][0], drawn[1][0])
            assert torch.equal(drawn[0][1], drawn[1][1])
            assert torch.equal(left.cdf, right.cdf)


def test_MappedGraph_with_edges_as_in_memory(synthetic: Synthetic) -> None:
    """Lists both ways of other edges, also after pickling; the rest and the graph stay."""
    edge_type = ("document", "has", "author")
    graph, edges = synthetic.graph, synthetic.graph.edge_index(("document", "has", "author"))
    fewer = edges[:, torch.randperm(edges.size(1))[: edges.size(1) // 3]]
    found, expected = graph.with_edges({edge_type: fewer}), view_graph(synthetic[0])
    expected = expected.with_edges({edge_type: fewer})
    for one in (found, pickle.loads(pickle.dumps(found))):
        assert one.num_edges(edge_type) == fewer.size(1)
        assert one.edge_tensor(edge_type, "edge_attr") is None
        assert torch.equal(one.train_degree(edge_type), expected.train_degree(edge_type))
        for backwards in (False, True):
            mine, other = (view.adjacency(edge_type, backwards) for view in (one, expected))
            assert torch.equal(mine.ptr, other.ptr)
            assert torch.equal(mine.node, other.node)
            assert (mine.edge is None) == (other.edge is None)
            if mine.edge is not None and other.edge is not None:
                assert torch.equal(mine.edge, other.edge)
    assert graph.num_edges(edge_type) == edges.size(1)
    words = ("document", "contains", "word")
    mine, other = found.adjacency(words), graph.adjacency(words)
    assert torch.equal(mine.node, other.node)


def test_MappedGraph_with_edges_drops_their_attributes(tmp_path: Path) -> None:
    """They are of the built edges, also where as many others take their place."""
    corpus, edge_type = toy_corpus(), has_edge("author")
    author = corpus.edges["author"].assign(edge_attr_0=1.5)
    corpus = replace(corpus, edges={**corpus.edges, "author": author})
    graph = open_dataset(corpus, root=tmp_path).graph
    assert graph.edge_tensor(edge_type, "edge_attr") is not None
    other = graph.with_edges({edge_type: graph.edge_index(edge_type).flip(1)})
    assert other.edge_tensor(edge_type, "edge_attr") is None
    assert other.list_attributes(edge_type) == []
