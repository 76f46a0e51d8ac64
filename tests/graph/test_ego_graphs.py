"""Subgraphs as encoders take them: fan-outs by name, token ids, start tokens, no label."""

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
    graph = make(toy_graph).draw(torch.arange(12))
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
    graph = make(toy_graph, document_metadata=metadata, document_words=words).draw(torch.arange(12))
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


def test_EgoGraphs_tokens_are_the_same_once_all_are_kept(toy_graph: BuiltGraph) -> None:
    """After as many documents as there are in the graph; copies of the sampler share them."""
    graphs = make(toy_graph)
    draws = [graphs.with_random(False).draw(torch.arange(12)) for _ in range(3)]
    assert graphs._tokens._kept is not None
    for name in ("token_id", "field", "token_ptr", "token_row"):
        first, *others = (draw[DOCUMENT][name] for draw in draws)
        assert all(torch.equal(first, other) for other in others), name
        assert {other.dtype for other in others} == {torch.int64}


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
    graph = EgoGraphs(data, config, TokenSpace.from_data(data)).draw(torch.arange(12))
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
    graph = graphs.adopt(new).draw(torch.tensor([0]))
    space = TokenSpace.from_data(toy_graph.data)
    store = graph[DOCUMENT]
    first = store.token_id[: store.token_ptr[1]].tolist()
    words = space.encode("word", torch.tensor([3, 1])).tolist()
    assert first == [*space.encode("author", torch.tensor([0])).tolist(), *words]
    reached = store.n_id[1:]
    assert toy_graph.data[DOCUMENT].train_mask[reached].all()
    again = graphs.draw(reached[:1])[DOCUMENT]
    row = int(store.token_row[1])
    assert store.token_id[slice(*store.token_ptr[row : row + 2].tolist())].tolist() == (
        again.token_id[: again.token_ptr[1]].tolist()
    )
