"""Subgraphs for encoders: fan-outs by name, token ids, input tokens, no labels."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from match_graph.config import parse_settings
from match_graph.errors import ConfigError
from match_graph.graph import (
    BuiltGraph,
    EgoGraphs,
    EgoLoader,
    EgoSampler,
    NeighborhoodConfig,
    TokenSpace,
)
from match_graph.typing import CITES, CONTAINS, DOCUMENT, TAGGED, has_edge, reverse_edge

FIELDS = ("venue", "author", "reference")


def make(built: BuiltGraph, transductive: bool = False, **settings) -> EgoGraphs:
    data = built.data
    reachable = None if transductive else data[DOCUMENT].train_mask
    return EgoGraphs(data, NeighborhoodConfig(**settings), TokenSpace.from_data(data), reachable)


# Fan-outs ------------------------------------------------------------------------------------


def test_NeighborhoodConfig_settings_become_fanouts_edge_types(toy_graph: BuiltGraph) -> None:
    """Each kind in both directions; a single edge type comes before its kind; no labels."""
    config = NeighborhoodConfig(
        metadata=[1], metadata_documents=[0, 2], words=[3], word_documents=[0, 4],
        cites=[5, 6], cited_by=[7], fanouts={"author rev_has document": [0, -1]},
    )  # fmt: skip
    expected = {CONTAINS: [3], reverse_edge(CONTAINS): [0, 4], CITES: [5, 6]}
    expected[reverse_edge(CITES)] = [7]
    for field in FIELDS:
        expected[has_edge(field)] = [1]
        expected[reverse_edge(has_edge(field))] = [0, -1] if field == "author" else [0, 2]
    assert config.resolve(toy_graph.data.edge_types) == expected


def test_NeighborhoodConfig_unknown_edge_types_are_one_sentence(toy_graph: BuiltGraph) -> None:
    """Also those of labels."""
    config = NeighborhoodConfig(fanouts={"document tagged label": [1], "a b c": [1]})
    edge_types = [CITES, CONTAINS, *map(has_edge, FIELDS)]
    known = sorted(
        " ".join(edge_type) for edge_type in [*edge_types, *map(reverse_edge, edge_types)]
    )
    with pytest.raises(ConfigError) as caught:
        config.resolve(toy_graph.data.edge_types)
    assert str(caught.value) == (
        f"neighborhood.fanouts must name edge types of the graph or their reverses, found "
        f"['a b c', 'document tagged label']; choose from {known}."
    )


def test_NeighborhoodConfig_wrong_fanouts_are_all_named() -> None:
    """Every fault with its path."""
    with pytest.raises(ConfigError) as caught:
        parse_settings(
            NeighborhoodConfig, {"words": [-2], "fanouts": {"a": [-3]}, "hops": 3}, "wrong"
        )
    message = str(caught.value)
    assert "'words': a fan-out must be at least 0, or -1 for all, found [-2]." in message
    assert "'fanouts.a': a fan-out must be at least 0, or -1 for all, found [-3]." in message
    assert "'hops' is not a setting" in message


# Subgraphs -----------------------------------------------------------------------------------


def test_EgoGraphs_nodes_carry_their_token_ids(toy_graph: BuiltGraph) -> None:
    """Ids of the token space, [UNK] of the type for rare nodes; nothing else of the graph."""
    graph = make(toy_graph).sample(torch.arange(12))
    space = TokenSpace.from_data(toy_graph.data)
    for name in (*FIELDS, "word"):
        assert torch.equal(graph[name].token_id, space.encode(name, graph[name].n_id))
        assert set(graph[name].keys()) == {"num_nodes", "n_id", "batch", "token_id"}
        assert (graph[name].token_id == space.unk_id(name)).any()
    assert torch.equal(graph[DOCUMENT].n_id[:12], torch.arange(12))
    assert torch.equal(graph[DOCUMENT].batch[:12], torch.arange(12))


@pytest.mark.parametrize(("metadata", "words"), [(8, 32), (2, 3), (0, 0)])
def test_EgoGraphs_documents_carry_the_tokens_they_start_from(
    toy_graph: BuiltGraph, metadata: int, words: int
) -> None:
    """The first tokens within the budgets of every document, reached ones too."""
    data = toy_graph.data
    graph = make(toy_graph, document_metadata=metadata, document_words=words).sample(
        torch.arange(12)
    )
    space = TokenSpace.from_data(data)
    (whole,) = EgoLoader(
        data, EgoSampler(data, metadata, words), space, torch.arange(12), batch_size=12
    )
    store = graph[DOCUMENT]
    assert store.num_nodes > 12
    lists = store.token_row[12:].unique()  # a reached document's copies share one
    assert len(lists) == len(store.n_id[12:].unique()) == store.token_ptr.numel() - 13
    for place, document in enumerate(store.n_id.tolist()):
        row = int(store.token_row[place])
        mine = slice(*store.token_ptr[row : row + 2].tolist())
        expected = slice(*whole.ptr[document : document + 2].tolist())
        assert store.token_id[mine].tolist() == whole.token_id[expected].tolist()
        assert store.field[mine].tolist() == whole.field[expected].tolist()


def test_EgoGraphs_tokens_are_the_same_once_cached(toy_graph: BuiltGraph) -> None:
    """After as many documents as there are in the graph; copies of the sampler share them."""
    graphs = make(toy_graph)
    draws = [graphs.with_random(False).sample(torch.arange(12)) for _ in range(3)]
    assert graphs._tokens._cached is not None
    for name in ("token_id", "field", "token_ptr", "token_row"):
        first, *others = (draw[DOCUMENT][name] for draw in draws)
        assert all(torch.equal(first, other) for other in others), name
        assert {other.dtype for other in others} == {torch.int64}
    some = torch.tensor([7, 2, 11])
    fresh, kept = make(toy_graph)._tokens.select(some), graphs._tokens.select(some)
    assert all(torch.equal(first, other) for first, other in zip(fresh, kept, strict=True))


def test_EgoGraphs_no_label_is_in_a_subgraph(toy_graph: BuiltGraph) -> None:
    """Although every gold label is an edge of the graph, and a label has edges of its own."""
    data = toy_graph.data.clone()
    document = torch.repeat_interleave(torch.arange(12), toy_graph.targets.ptr.diff())
    data[TAGGED].edge_index = torch.stack([document, toy_graph.targets.index.long()]).int()
    data["label", "marks", "document"].edge_index = data[TAGGED].edge_index.flip(0)
    config = NeighborhoodConfig(
        metadata=[-1] * 3, words=[-1] * 3, metadata_documents=[-1] * 3, word_documents=[-1] * 3,
        cites=[-1] * 3, cited_by=[-1] * 3,
    )  # fmt: skip
    graph = EgoGraphs(data, config, TokenSpace.from_data(data)).sample(torch.arange(12))
    assert set(graph.node_types) == {DOCUMENT, *FIELDS, "word"}
    assert {edge_type[1] for edge_type in graph.edge_types} == {"has", "contains", "cites"}
    assert (graph[DOCUMENT].token_id < TokenSpace.from_data(data).num_tokens).all()


def test_EgoGraphs_loader_adds_them_to_its_batches(toy_graph: BuiltGraph) -> None:
    """The tokens stay those of the documents alone; epochs reach the random draws."""
    data, space = toy_graph.data, TokenSpace.from_data(toy_graph.data)
    graphs = make(toy_graph, words=[2], word_documents=[0, 1]).with_random(True)
    arguments = (data, EgoSampler(data), space, torch.arange(12))
    loader = EgoLoader(*arguments, graphs=graphs, batch_size=5)
    seen = []
    for epoch in (0, 1, 0):
        loader.set_epoch(epoch)
        batches = list(loader)
        for batch, plain in zip(batches, EgoLoader(*arguments, batch_size=5), strict=True):
            assert torch.equal(batch.token_id, plain.token_id)
            assert torch.equal(batch.graph[DOCUMENT].n_id[: batch.num_documents], batch.document)
            assert batch.to("meta").graph["word"].token_id.device.type == "meta"
        seen.append([batch.graph[CONTAINS].e_id.tolist() for batch in batches])
    assert seen[0] == seen[2] != seen[1]


def test_EgoGraphs_adopted_documents_start_from_their_own_tokens(toy_graph: BuiltGraph) -> None:
    """Of documents outside the graph, and of those of the graph that they reach."""
    new = HeteroData()
    new[DOCUMENT].num_nodes = 1
    new["author"].num_nodes = toy_graph.data["author"].num_nodes
    new[has_edge("author")].edge_index = torch.tensor([[0], [0]])
    new["word"].num_nodes = toy_graph.data["word"].num_nodes
    new[CONTAINS].edge_index = torch.tensor([[0, 0], [3, 1]])
    new[CONTAINS].position = torch.tensor([0, 1])
    graphs = make(toy_graph)
    graph = graphs.adopt(new).sample(torch.tensor([0]))
    space = TokenSpace.from_data(toy_graph.data)
    store = graph[DOCUMENT]
    first = store.token_id[: store.token_ptr[1]].tolist()
    words = space.encode("word", torch.tensor([3, 1])).tolist()
    assert first == [*space.encode("author", torch.tensor([0])).tolist(), *words]
    reached = store.n_id[1:]
    assert toy_graph.data[DOCUMENT].train_mask[reached].all()
    again = graphs.sample(reached[:1])[DOCUMENT]
    row = int(store.token_row[1])
    assert store.token_id[slice(*store.token_ptr[row : row + 2].tolist())].tolist() == (
        again.token_id[: again.token_ptr[1]].tolist()
    )


# Features, edge attributes, times ------------------------------------------------------------


@pytest.fixture
def rich_data(toy_graph: BuiltGraph) -> HeteroData:
    """The toy graph with x on some node types, labels too, edge_attr on some edges, and times."""
    data = toy_graph.data.clone()
    torch.manual_seed(0)
    for name, dtype in ((DOCUMENT, torch.float16), ("author", torch.float32), ("label", None)):
        data[name].x = torch.randn(int(data[name].num_nodes), 3, dtype=dtype)
    for edge_type in (CONTAINS, has_edge("author"), TAGGED):
        data[edge_type].edge_attr = torch.randn(data[edge_type].edge_index.size(1), 2)
    data[DOCUMENT].time = torch.arange(12) % 5
    return data


def test_EgoGraphs_features_edge_attributes_times_follow(rich_data: HeteroData) -> None:
    """Rows by n_id and e_id of what the graph has, no more, nothing of labels; types stay."""
    space = TokenSpace.from_data(rich_data)
    graph = EgoGraphs(rich_data, NeighborhoodConfig(), space).sample(torch.tensor([5, 0, 3]))
    for name in (DOCUMENT, "author"):
        assert torch.equal(graph[name].x, rich_data[name].x[graph[name].n_id])
    for edge_type in (CONTAINS, has_edge("author")):
        expected = rich_data[edge_type].edge_attr[graph[edge_type].e_id]
        assert torch.equal(graph[edge_type].edge_attr, expected)
    assert torch.equal(graph[DOCUMENT].time, rich_data[DOCUMENT].time[graph[DOCUMENT].n_id])
    assert graph[DOCUMENT].num_nodes > 3
    assert "label" not in graph.node_types
    assert not any("x" in graph[name] for name in ("venue", "word"))
    assert "edge_attr" not in graph[CITES]


@pytest.mark.parametrize("transductive", [True, False])
def test_EgoGraphs_unseen_nodes_have_no_features(rich_data: HeteroData, transductive: bool) -> None:
    """Authors that no training document has get zero features, unless the run is transductive."""
    unseen = rich_data["author"].train_count == 0
    assert unseen.any()
    reachable = None if transductive else rich_data[DOCUMENT].train_mask
    graphs = EgoGraphs(
        rich_data, NeighborhoodConfig(metadata=[-1]), TokenSpace.from_data(rich_data), reachable
    )
    authors = graphs.sample(torch.arange(int(rich_data[DOCUMENT].num_nodes)))["author"]
    found = authors.x[unseen[authors.n_id]]
    assert len(found)
    assert bool((found == 0).all()) != transductive
    seen = authors.n_id[~unseen[authors.n_id]]
    assert torch.equal(authors.x[~unseen[authors.n_id]], rich_data["author"].x[seen])


def test_EgoGraphs_mapped_features_are_read_by_row(rich_data: HeteroData, tmp_path: Path) -> None:
    """From a file, of which the graph holds a map."""
    x = rich_data[DOCUMENT].x.numpy()
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")
    rich_data[DOCUMENT].x = torch.from_numpy(mapped)
    graphs = EgoGraphs(rich_data, NeighborhoodConfig(), TokenSpace.from_data(rich_data))
    store = graphs.sample(torch.tensor([1, 2]))[DOCUMENT]
    assert store.x.numpy().tolist() == x[store.n_id].tolist()


@pytest.mark.parametrize("given", [True, False])
def test_EgoGraphs_adopted_documents_have_their_own_features(
    rich_data: HeteroData, given: bool
) -> None:
    """Zeros where nothing is known: of new edges and unknown authors always; the latest time."""
    num_authors = int(rich_data["author"].num_nodes)
    new = HeteroData()
    new[DOCUMENT].num_nodes, new["author"].num_nodes = 2, num_authors + 1
    new[has_edge("author")].edge_index = torch.tensor([[0, 1], [0, num_authors]])
    new["word"].num_nodes = rich_data["word"].num_nodes
    new[CONTAINS].edge_index = torch.tensor([[0], [3]])
    new[CONTAINS].position = torch.tensor([0])
    if given:
        new[DOCUMENT].x = torch.tensor([[2.0] * 3, [3.0] * 3])
        new[DOCUMENT].time = torch.tensor([1, 0])
    space = TokenSpace.from_data(rich_data)
    graphs = EgoGraphs(rich_data, NeighborhoodConfig(), space, temporal=True)
    graph = graphs.adopt(new).sample(torch.tensor([1, 0]))
    documents, authors = graph[DOCUMENT], graph["author"]
    assert documents.x.dtype == torch.float16
    assert documents.x[:2].tolist() == ([[3.0] * 3, [2.0] * 3] if given else [[0.0] * 3] * 2)
    assert documents.time[:2].tolist() == ([0, 1] if given else [4, 4])
    assert (documents.time <= documents.time[documents.batch]).all()
    assert documents.num_nodes > 2
    assert torch.equal(documents.x[2:], rich_data[DOCUMENT].x[documents.n_id[2:]])
    unknown = authors.n_id == num_authors
    assert (authors.x[unknown] == 0).all()
    assert torch.equal(authors.x[~unknown], rich_data["author"].x[authors.n_id[~unknown]])
    edges = graph[has_edge("author")]
    assert (edges.edge_attr[edges.e_id < 0] == 0).all()
    assert (edges.edge_attr[edges.e_id >= 0] != 0).all()
    assert {bool(e_id < 0) for e_id in edges.e_id} == {True, False}


def test_EgoGraphs_temporal_reaches_no_later_document(rich_data: HeteroData) -> None:
    """Of its own seed, through every edge type; needs times."""
    space, config = TokenSpace.from_data(rich_data), NeighborhoodConfig(word_documents=[0, -1])
    every = torch.arange(12)
    later = [
        (store.time > store.time[store.batch]).any()
        for store in (
            EgoGraphs(rich_data, config, space, temporal=temporal).sample(every)[DOCUMENT]
            for temporal in (False, True)
        )
    ]
    assert later == [True, False]
    del rich_data[DOCUMENT].time
    with pytest.raises(ConfigError) as caught:
        EgoGraphs(rich_data, config, space, temporal=True)
    assert str(caught.value) == (
        "data.temporal needs the time of every document, but the graph has none; read it into "
        "data['document'].time, or set data.temporal to false."
    )


def test_EgoLoader_with_graph_carries_features(rich_data: HeteroData) -> None:
    """The one-hop subgraphs too, without labels."""
    space = TokenSpace.from_data(rich_data)
    arguments = {"with_graph": True, "batch_size": 5}
    for batch in EgoLoader(rich_data, EgoSampler(rich_data), space, torch.arange(12), **arguments):
        graph = batch.graph
        assert "label" not in graph.node_types
        assert torch.equal(graph[DOCUMENT].x, rich_data[DOCUMENT].x[batch.document])
        assert torch.equal(graph[DOCUMENT].time, rich_data[DOCUMENT].time[batch.document])
        assert torch.equal(graph["author"].x, rich_data["author"].x[graph["author"].n_id])
        edges = graph[has_edge("author")]
        expected = rich_data[has_edge("author")].edge_attr[edges.e_id]
        assert torch.equal(edges.edge_attr, expected)
