"""GraphSAGE by edge type: means, not sums; its naive version stands in test_graph.py."""

import torch

from match_graph.graph import TokenSpace
from match_graph.nn import TokenEmbedding
from match_graph.nn.encoders import HeteroSageEncoder
from match_graph.nn.neighbors import Neighbors
from match_graph.typing import DOCUMENT, has_edge, reverse_edge


def test_HeteroSageEncoder_repeated_neighbours_do_not_shift_mean() -> None:
    """Two edges to one author give the same mean as one."""
    torch.manual_seed(0)
    space = TokenSpace(("author", "word"), (3, 4))
    config = HeteroSageEncoder.Config(num_layers=1, channels=6)
    encoder = HeteroSageEncoder(TokenEmbedding(space, 4), config)
    states = {DOCUMENT: torch.randn(1, 6), "author": torch.randn(2, 6), "word": torch.randn(0, 6)}
    edge_types = encoder.layer_edge_types[0]
    none = Neighbors.from_edges(torch.empty(2, 0, dtype=torch.int64), 1)
    back = reverse_edge(has_edge("author"))
    found = []
    for rows in ([0, 1], [0, 1, 0, 1], [0]):
        authors = Neighbors.from_edges(torch.tensor([rows, [0] * len(rows)]), 1)
        lists = dict.fromkeys(edge_types, none) | {back: authors}
        found.append(encoder.layers[0](states, lists)[DOCUMENT])
    assert torch.allclose(found[0], found[1])
    assert not torch.allclose(found[0], found[2])
