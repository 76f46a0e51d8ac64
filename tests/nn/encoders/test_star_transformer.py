"""Star-Transformer against a loop over documents and nodes, and torch's attention."""

import pytest
import torch
from torch import Tensor, nn

from match_graph.graph import EgoBatch
from match_graph.nn import StarTransformerEncoder
from match_graph.nn.encoders.star_transformer import Ring, StarCycle
from match_graph.nn.layers import sinusoids

pytestmark = pytest.mark.usefixtures("float64")


def torch_attention(cycle: StarCycle, of_relay: bool) -> nn.MultiheadAttention:
    """torch's attention with the weights of one of the two."""
    channels = cycle.query.in_features
    copied = nn.MultiheadAttention(channels, cycle.num_heads, batch_first=True)
    own = cycle.relay_attention
    if of_relay:
        weight, bias, out = own.project.weight, own.project.bias, own.out
    else:
        weight = torch.cat([cycle.query.weight, cycle.key_value.weight])
        bias = torch.cat([cycle.query.bias, cycle.key_value.bias])
        out = cycle.out
    copied.load_state_dict(
        {
            "in_proj_weight": weight, "in_proj_bias": bias,
            "out_proj.weight": out.weight, "out_proj.bias": out.bias,
        }
    )  # fmt: skip
    return copied


def naive_attend(attention: nn.MultiheadAttention, query: Tensor, context: list[Tensor]) -> Tensor:
    keys = torch.stack(context).unsqueeze(0)
    return attention(query.view(1, 1, -1), keys, keys)[0][0, 0]


def naive_document(encoder: StarTransformerEncoder, tokens: list[Tensor]) -> Tensor:
    """Algorithm 1, node by node."""
    nodes = list(tokens)
    relay = sum(tokens) / len(tokens) if tokens else torch.zeros(encoder.out_channels)
    for cycle in encoder.cycles:
        ring, star = torch_attention(cycle, False), torch_attention(cycle, True)
        updated = []
        for place, node in enumerate(nodes):
            after = nodes[(place + 1) % len(nodes)]
            context = [nodes[place - 1], node, after, tokens[place], relay]
            attended = naive_attend(ring, node, context)
            updated.append(cycle.node_norm(attended.clamp(min=0)))
        nodes = updated
        attended = naive_attend(star, relay, [relay, *nodes])
        relay = cycle.relay_norm(attended.clamp(min=0))
    return relay + (torch.stack(nodes).amax(dim=0) if nodes else 0.0)


@pytest.mark.parametrize(
    ("num_cycles", "num_heads", "metadata"), [(1, 1, False), (2, 3, False), (3, 2, True)]
)
@torch.no_grad()
def test_StarTransformerEncoder_documents_equal_algorithm_1(
    make_encoder, read_tokens, toy_batch: EgoBatch, num_cycles, num_heads, metadata
) -> None:
    """Also for documents of no word, and of so few that neighbours are the same node."""
    encoder = make_encoder(
        StarTransformerEncoder, num_cycles=num_cycles, num_heads=num_heads, metadata=metadata
    )
    output = encoder(toy_batch)
    assert output.document.shape == (12, 6)
    for document in range(12):
        tokens = read_tokens(
            encoder, document, metadata, lambda place: sinusoids(torch.tensor([place]), 6)[0]
        )
        expected = naive_document(encoder, tokens)
        assert torch.allclose(output.document[document], expected, rtol=1e-9, atol=1e-11)


def test_Ring_neighbours_close_a_ring_in_each_document() -> None:
    """Documents of 3, 0, 1 and 2 tokens."""
    ring = Ring(torch.tensor([0, 3, 3, 4, 6]))
    assert ring.row.tolist() == [0, 0, 0, 2, 3, 3]
    assert ring.before.tolist() == [2, 0, 1, 3, 5, 4]
    assert ring.after.tolist() == [1, 2, 0, 3, 5, 4]
