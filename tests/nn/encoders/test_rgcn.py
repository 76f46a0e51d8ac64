"""Relational convolutions over nodes of several types, against the formula in float64."""

import torch

from match_graph.nn.encoders.rgcn import RelationalLayer
from match_graph.nn.neighbors import Neighbors
from match_graph.typing import has_edge, reverse_edge

AUTHOR, VENUE = has_edge("author"), has_edge("venue")


@torch.no_grad()
def test_RelationalLayer_it_is_the_formula_of_the_paper() -> None:
    """h_i W_0 + sum over edge types of the mean of h_j W_r, W_r a sum of bases (equations 2, 3)."""
    torch.manual_seed(0)
    edge_types = [AUTHOR, VENUE, reverse_edge(AUTHOR), reverse_edge(VENUE)]
    layer = RelationalLayer(3, edge_types, num_bases=2).double()
    states = {
        name: torch.randn(size, 3, dtype=torch.float64)
        for name, size in (("document", 3), ("venue", 0), ("author", 2))
    }
    pairs = {AUTHOR: [(0, 1), (2, 1), (1, 0)], reverse_edge(AUTHOR): [(1, 0), (1, 2), (0, 0)]}
    edges = {
        edge_type: torch.tensor(pairs.get(edge_type, []), dtype=torch.int64).view(-1, 2).t()
        for edge_type in edge_types
    }
    lists = {
        edge_type: Neighbors.from_edges(edges[edge_type], len(states[edge_type[2]]))
        for edge_type in edge_types
    }
    found = layer(states, lists)
    conv = layer.conv
    for name, state in states.items():
        assert found[name].shape == state.shape
        for place in range(len(state)):
            expected = state[place] @ conv.root + conv.bias
            for number, edge_type in enumerate(edge_types):
                weight = sum(conv.comp[number, base] * conv.weight[base] for base in range(2))
                near = [
                    states[edge_type[0]][row]
                    for row, col in pairs.get(edge_type, [])
                    if edge_type[2] == name and col == place
                ]
                if near:
                    expected = expected + sum(near) / len(near) @ weight
            assert torch.allclose(found[name][place], expected)
