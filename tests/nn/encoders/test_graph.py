"""What graph encoders share, against a naive version in float64: start, layers, joined states."""

import math

import pytest
import torch
from torch import Tensor, nn

from match_graph.graph import BuiltGraph, EgoGraphs, NeighborhoodConfig, TokenSpace
from match_graph.nn import TokenEmbedding
from match_graph.nn.encoders import GraphEncoder, HeteroSageEncoder
from match_graph.nn.encoders.graph import list_edge_types
from match_graph.typing import CITES, CONTAINS, DOCUMENT, has_edge, reverse_edge

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
def test_states_are_those_of_a_loop_over_nodes(
    toy_graph: BuiltGraph, encoder: HeteroSageEncoder
) -> None:
    """Every message of every node by Python: means by edge type and direction, and their mean."""
    data = toy_graph.data
    graphs = EgoGraphs(data, NeighborhoodConfig(), encoder.embedding.space)
    graph = graphs.draw(torch.tensor([0, 3, 11]))
    weight = encoder.embedding.weight
    states: dict[tuple[str, int], Tensor] = {}
    for number, name in enumerate(encoder.node_types):
        store = graph[name]
        for place in range(store.num_nodes):
            if name == DOCUMENT:
                ids = store.token_id[store.token_ptr[place] : store.token_ptr[place + 1]].tolist()
            else:
                ids = [int(store.token_id[place])]
            mean = sum(weight[token] for token in ids) / max(len(ids), 1) * 2 + torch.zeros(4)
            start = encoder.project.weight @ mean.double() + encoder.project.bias
            states[name, place] = start + encoder.node_type[number]
    joined = [[states[DOCUMENT, place]] for place in range(graph[DOCUMENT].num_nodes)]
    edges = {kind: graph[kind].edge_index.t().tolist() for kind in graph.edge_types}
    edges |= {
        reverse_edge(kind): [[col, row] for row, col in pairs] for kind, pairs in edges.items()
    }
    for layer, norm, kinds in zip(
        encoder.layers, encoder.norms, encoder.layer_edge_types, strict=True
    ):
        new = dict(states)
        for (name, place), state in states.items():
            found = []
            for kind in kinds:
                if kind[2] != name:
                    continue
                conv = layer.convs[kind]
                near = [states[kind[0], row] for row, col in edges[kind] if col == place]
                mean = sum(near) / len(near) if near else torch.zeros(5, dtype=torch.float64)
                found.append(conv.lin_l.weight @ mean + conv.lin_l.bias + conv.lin_r.weight @ state)
            if found:
                new[name, place] = naive_norm(state + naive_gelu(sum(found) / len(found)), norm)
        states = new
        for place, parts in enumerate(joined):
            parts.append(states[DOCUMENT, place])
    expected = torch.stack([torch.cat(parts) for parts in joined])
    found = encoder.encode_documents(graph)
    assert found.shape == (graph[DOCUMENT].num_nodes, encoder.out_channels)
    assert torch.allclose(found, expected, atol=1e-10)


def test_messages_go_over_what_is_drawn(toy_graph: BuiltGraph) -> None:
    """Both directions of each edge type with a fan-out; the last layer only into documents."""
    config = NeighborhoodConfig(words=[0], word_documents=[], cites=[0, 0], cited_by=[2])
    fields = [has_edge(name) for name in SPACE.types[:-1]]
    drawn = [*fields, CITES]
    kinds = list_edge_types(SPACE, config)
    assert kinds == [*drawn, *map(reverse_edge, drawn)]
    with_words = NeighborhoodConfig(cites=[], cited_by=[])
    assert list_edge_types(SPACE, with_words)[:4] == [*fields, CONTAINS]
    encoder = HeteroSageEncoder(
        TokenEmbedding(SPACE, 4), HeteroSageEncoder.Config(num_layers=3, neighborhood=config)
    )
    assert encoder.node_types == [DOCUMENT, "venue", "author", "reference"]
    assert encoder.layer_edge_types[:2] == [kinds, kinds]
    assert {kind[2] for kind in encoder.layer_edge_types[2]} == {DOCUMENT}


def test_a_corpus_without_references_has_no_citations() -> None:
    """`cites` exists only beside the field that it is read from."""
    space = TokenSpace(("venue", "word"), (3, 4))
    kinds = list_edge_types(space, NeighborhoodConfig())
    assert CITES not in kinds
    assert len(kinds) == 4


def test_a_subclass_gives_a_layer() -> None:
    """The class itself has none."""
    with pytest.raises(NotImplementedError):
        GraphEncoder(TokenEmbedding(SPACE, 4), GraphEncoder.Config())
