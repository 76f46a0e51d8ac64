"""What graph encoders share, against a naive version in float64: start, layers, joined states."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, SAGEConv

from match_graph.errors import ConfigError
from match_graph.graph import (
    BuiltGraph,
    EgoGraphs,
    NeighborhoodConfig,
    NodeFeatures,
    TokenSpace,
)
from match_graph.nn import TokenEmbedding
from match_graph.nn.encoders import GraphEncoder, HeteroSageEncoder, HgtEncoder, RgcnEncoder
from match_graph.nn.encoders.graph import key_of, key_of_edge, list_edge_types
from match_graph.nn.encoders.hetero_sage import MeanLayer
from match_graph.nn.encoders.hgt import AttentionLayer
from match_graph.nn.encoders.rgcn import RelationalLayer
from match_graph.nn.neighbors import Neighbors
from match_graph.typing import CITES, CONTAINS, DOCUMENT, EdgeType, has_edge, reverse_edge

SPACE = TokenSpace(("venue", "author", "reference", "word"), (3, 2, 0, 4))


@pytest.fixture
def encoder(toy_graph: BuiltGraph) -> HeteroSageEncoder:
    """Two layers, in float64 and evaluation mode."""
    torch.manual_seed(0)
    embedding = TokenEmbedding(TokenSpace.from_data(toy_graph.data), 4)
    config = HeteroSageEncoder.Config(num_layers=2, channels=5)
    return HeteroSageEncoder(embedding.double(), config).double().eval()


def naive_norm(state: Tensor, norm: nn.LayerNorm) -> Tensor:
    centred = state - state.mean()
    return centred / (centred.square().mean() + norm.eps).sqrt() * norm.weight + norm.bias


def naive_gelu(state: Tensor) -> Tensor:
    return state * (1 + torch.erf(state / math.sqrt(2))) / 2


@torch.no_grad()
def test_GraphEncoder_states_equal_a_loop_over_nodes(
    toy_graph: BuiltGraph, encoder: HeteroSageEncoder
) -> None:
    """Every message of every node by Python: means by edge type and direction, and their mean."""
    data = toy_graph.data
    graphs = EgoGraphs(data, NeighborhoodConfig(), encoder.embedding.space)
    graph = graphs.sample(torch.tensor([0, 3, 11]))
    weight = encoder.embedding.weight
    states: dict[tuple[str, int], Tensor] = {}
    for number, name in enumerate(encoder.node_types):
        store = graph[name]
        for place in range(store.num_nodes):
            if name == DOCUMENT:
                row = int(store.token_row[place])
                ids = store.token_id[store.token_ptr[row] : store.token_ptr[row + 1]].tolist()
            else:
                ids = [int(store.token_id[place])]
            mean = sum(weight[token] for token in ids) / max(len(ids), 1) * 2 + torch.zeros(4)
            start = encoder.project.weight @ mean.double() + encoder.project.bias
            states[name, place] = start + encoder.node_type[number]
    joined = [[states[DOCUMENT, place]] for place in range(graph[DOCUMENT].num_nodes)]
    edges = {edge_type: graph[edge_type].edge_index.t().tolist() for edge_type in graph.edge_types}
    edges |= {
        reverse_edge(edge_type): [[col, row] for row, col in pairs]
        for edge_type, pairs in edges.items()
    }
    for layer, norm, edge_types in zip(
        encoder.layers, encoder.norms, encoder.layer_edge_types, strict=True
    ):
        new = dict(states)
        for (name, place), state in states.items():
            found = []
            for edge_type in edge_types:
                if edge_type[2] != name:
                    continue
                conv = layer.conv.convs[key_of_edge(edge_type)]
                near = [states[edge_type[0], row] for row, col in edges[edge_type] if col == place]
                mean = sum(near) / len(near) if near else torch.zeros(5, dtype=torch.float64)
                found.append(conv.lin_l.weight @ mean + conv.lin_l.bias + conv.lin_r.weight @ state)
            if found:
                new[name, place] = naive_norm(state + naive_gelu(sum(found) / len(found)), norm)
        states = new
        for place, parts in enumerate(joined):
            parts.append(states[DOCUMENT, place])
    expected = torch.stack([torch.cat(parts) for parts in joined])
    first = encoder.encode_documents(graph, 2)
    assert torch.allclose(first, expected[:2], atol=1e-10)
    found = encoder.encode_documents(graph)
    assert found.shape == (graph[DOCUMENT].num_nodes, encoder.out_channels)
    assert torch.allclose(found, expected, atol=1e-10)


def test_list_edge_types_follow_what_is_sampled(toy_graph: BuiltGraph) -> None:
    """Both directions of each edge type with a fan-out; the last layer only into documents."""
    config = NeighborhoodConfig(words=[0], word_documents=[], cites=[0, 0], cited_by=[2])
    fields = [has_edge(name) for name in SPACE.types[:-1]]
    drawn = [*fields, CITES]
    edge_types = list_edge_types(SPACE, config)
    assert edge_types == [*drawn, *map(reverse_edge, drawn)]
    with_words = NeighborhoodConfig(cites=[], cited_by=[])
    assert list_edge_types(SPACE, with_words)[:4] == [*fields, CONTAINS]
    encoder = HeteroSageEncoder(
        TokenEmbedding(SPACE, 4), HeteroSageEncoder.Config(num_layers=3, neighborhood=config)
    )
    assert encoder.node_types == [DOCUMENT, "venue", "author", "reference"]
    assert encoder.layer_edge_types[:2] == [edge_types, edge_types]
    assert {edge_type[2] for edge_type in encoder.layer_edge_types[2]} == {DOCUMENT}


def test_list_edge_types_without_references_has_no_citations() -> None:
    """`cites` exists only beside the field that it is read from."""
    space = TokenSpace(("venue", "word"), (3, 4))
    edge_types = list_edge_types(space, NeighborhoodConfig())
    assert CITES not in edge_types
    assert len(edge_types) == 4


def test_GraphEncoder_subclass_gives_a_layer() -> None:
    """The class itself has none."""
    with pytest.raises(NotImplementedError):
        GraphEncoder(TokenEmbedding(SPACE, 4), GraphEncoder.Config())


def make_own(layer: Callable[[Any, list[EdgeType]], Any]) -> type[GraphEncoder]:
    return type("Own", (GraphEncoder,), {"make_layer": lambda self, *given: layer(*given)})


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        (
            lambda *_: None,
            "make_layer of 'Own' must return a module with reset_parameters, found NoneType.",
        ),
        (
            lambda *_: nn.GELU(),
            "make_layer of 'Own' must return a module with reset_parameters, found GELU.",
        ),
        (
            lambda config, edges: HeteroConv(
                {one: SAGEConv((-1, -1), config.channels) for one in edges}
            ),
            "Layers of 'Own' must be made with known widths, found parameters without a shape; "
            "give (channels, channels) where PyG takes (-1, -1).",
        ),
    ],
)
def test_GraphEncoder_wrong_layer_is_one_sentence(layer: Any, sentence: str) -> None:
    """A layer of the wrong kind is refused when the encoder is made."""
    with pytest.raises(ConfigError) as caught:
        make_own(layer)(TokenEmbedding(SPACE, 4), GraphEncoder.Config())
    assert str(caught.value) == sentence


@pytest.mark.parametrize(("width", "left_out"), [(1, ""), (256, ""), (8, "document")])
def test_GraphEncoder_wrong_states_are_one_sentence(
    width: int, left_out: str, toy_graph: BuiltGraph
) -> None:
    """A width of 1 would be broadcast."""

    def make(config: Any, edges: list[EdgeType]) -> nn.Module:
        convs = {one: SAGEConv(config.channels, width) for one in edges if one[2] != left_out}
        return HeteroConv(convs or {has_edge("author"): SAGEConv(config.channels, width)})

    space = TokenSpace.from_data(toy_graph.data)
    encoder = make_own(make)(TokenEmbedding(space, 4), GraphEncoder.Config(channels=8))
    graph = EgoGraphs(toy_graph.data, NeighborhoodConfig(), space).sample(torch.arange(3))
    with pytest.raises(ConfigError) as caught:
        encoder.encode_documents(graph)
    said = str(caught.value)
    assert said.startswith("Layers of 'Own' must give states [n, 8] by node type, for n = ")
    assert said.endswith(", found NoneType." if left_out else f", {width}].")


AUTHOR = has_edge("author")
EDGE_TYPES = [AUTHOR, CITES, CONTAINS]
EDGE_TYPES = [*EDGE_TYPES, *map(reverse_edge, EDGE_TYPES)]


def call_pyg(layer: nn.Module, states: dict[str, Tensor], edges: dict[EdgeType, Tensor]):
    """PyG's own layer over all nodes, with the weights of ours."""
    if not isinstance(layer, RelationalLayer):
        keyed = {key_of(name): state for name, state in states.items()}
        found = layer.conv(
            keyed, {key_of_edge(edge_type): ends for edge_type, ends in edges.items()}
        )
        return {name: found[key_of(name)] for name in states if key_of(name) in found}
    names, sizes = [*states], [len(state) for state in states.values()]
    starts = dict(zip(names, [0, *torch.tensor(sizes).cumsum(0).tolist()], strict=False))
    moved = [
        edges[edge_type] + torch.tensor([[starts[edge_type[0]]], [starts[edge_type[2]]]])
        for edge_type in layer.edge_types
    ]
    numbers = torch.arange(len(moved)).repeat_interleave(torch.tensor([e.size(1) for e in moved]))
    found = layer.conv(torch.cat([*states.values()]), torch.cat(moved, dim=1), numbers)
    return dict(zip(names, found.split(sizes), strict=True))


@pytest.mark.parametrize(
    "make",
    [
        lambda: RelationalLayer(8, EDGE_TYPES, num_bases=2),
        lambda: MeanLayer(8, EDGE_TYPES),
        lambda: AttentionLayer(8, ["document", "author", "word"], EDGE_TYPES, num_heads=2),
    ],
    ids=["RelationalLayer", "MeanLayer", "AttentionLayer"],
)
def test_GraphEncoder_layers_and_gradients_equal_pyg(make: Callable[[], nn.Module]) -> None:
    """For the first nodes of each type; a type may have no node, and a node no neighbour."""
    torch.manual_seed(0)
    layer = make().double()
    for value in layer.parameters():
        nn.init.normal_(value)
    sizes, first = {"document": 9, "author": 5, "word": 7}, {"document": 4, "author": 5, "word": 0}
    states = {
        name: torch.randn(size, 8, dtype=torch.float64, requires_grad=True)
        for name, size in sizes.items()
    }
    edges = {
        edge_type: torch.stack(
            [
                torch.randint(sizes[edge_type[0]], (20,)),
                torch.randint(sizes[edge_type[2]] - 1, (20,)),
            ]
        )
        for edge_type in EDGE_TYPES
    }
    edges[CITES] = edges[CITES][:, :0]
    expected = call_pyg(layer, states, edges)
    lists = {
        edge_type: Neighbors.from_edges(edges[edge_type], sizes[edge_type[2]])
        for edge_type in EDGE_TYPES
    }
    found = layer(
        states, {edge_type: one.first(first[edge_type[2]]) for edge_type, one in lists.items()}
    )
    weights = {name: torch.randn(size, 8, dtype=torch.float64) for name, size in first.items()}
    inputs = [*states.values(), *layer.parameters()]
    gradients = []
    for outputs in (found, expected):
        for name, size in first.items():
            assert torch.allclose(outputs[name][:size], expected[name][:size], atol=1e-10)
        total = sum((weights[name] * outputs[name][:size]).sum() for name, size in first.items())
        gradients.append(torch.autograd.grad(total, inputs, allow_unused=True))
    assert {name: len(state) for name, state in found.items()} == first
    for ours, theirs in zip(*gradients, strict=True):
        zero = torch.zeros(1, dtype=torch.float64)
        assert torch.allclose(zero if ours is None else ours, zero if theirs is None else theirs)


@torch.no_grad()
@pytest.mark.parametrize("cls", [HeteroSageEncoder, RgcnEncoder, HgtEncoder])
def test_GraphEncoder_skipped_nodes_change_no_first_document(
    toy_graph: BuiltGraph, cls: type[GraphEncoder]
) -> None:
    """Three layers over three hops, of all documents and of the batch's alone."""
    torch.manual_seed(0)
    neighborhood = NeighborhoodConfig(
        metadata=[4, 4, 4], metadata_documents=[4, 4, 4], words=[3, 3, 3], word_documents=[0, 1, 1]
    )
    config = cls.Config(num_layers=3, channels=8, neighborhood=neighborhood)
    embedding = TokenEmbedding(TokenSpace.from_data(toy_graph.data), 4)
    encoder = cls(embedding.double(), config).double().eval()
    graph = EgoGraphs(toy_graph.data, neighborhood, embedding.space).sample(
        torch.tensor([0, 3, 11])
    )
    every = encoder.encode_documents(graph)
    assert len(every) > 6
    assert torch.allclose(encoder.encode_documents(graph, 3), every[:3], atol=1e-12)


@torch.no_grad()
def test_GraphEncoder_start_adds_features_of_documents(toy_graph: BuiltGraph) -> None:
    """Projected as tokens are, without the bias a second time; dropped by channels in training."""
    torch.manual_seed(0)
    space, config = TokenSpace.from_data(toy_graph.data), HeteroSageEncoder.Config(channels=50)
    features = NodeFeatures(3)
    embedding = TokenEmbedding(space, 50, dropout=0.5, features=features, feature_dropout=0.0)
    encoder = HeteroSageEncoder(embedding.eval(), config).eval()
    graph = EgoGraphs(toy_graph.data, config.neighborhood, space).sample(torch.tensor([0, 3, 11]))
    graph[DOCUMENT].x = torch.randn(int(graph[DOCUMENT].num_nodes), 3)
    encoder.project.bias.fill_(1.0)
    document, found = embedding.document, encoder.start(graph)[DOCUMENT]
    assert document is not None
    vectors = document(graph[DOCUMENT].x)
    embedding.document = None
    without = encoder.start(graph)[DOCUMENT]
    torch.testing.assert_close(found, without + vectors @ encoder.project.weight.t())
    embedding.document = document
    embedding.weight.zero_()  # so that features alone are left of a document
    encoder.project.weight.copy_(torch.eye(50))
    embedding.train()
    rest = encoder.start(graph)[DOCUMENT] - encoder.project.bias - encoder.node_type[0]
    assert 0.4 < float((rest.abs() < 1e-6).double().mean()) < 0.6
