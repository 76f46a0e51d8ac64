"""The attention that tokens receive, against torch's own layer and a document at a time."""

import pytest
import torch
from torch import nn

from match_graph.graph import EgoBatch, TokenSpace
from match_graph.graph.csr import make_ptr
from match_graph.nn import BertXmlEncoder, MatchEncoder, StarTransformerEncoder, TokenEmbedding
from match_graph.nn.attention import RaggedAttention, RaggedLayout
from match_graph.nn.attribution import record_attention
from match_graph.nn.encoders import Encoder, TransformerEncoder, XmlCnnEncoder


@pytest.mark.parametrize("num_queries", [1, 3])
def test_RaggedAttention_received_attention_is_that_of_torch(num_queries: int) -> None:
    """`nn.MultiheadAttention` of each document alone, its weights averaged over queries."""
    torch.manual_seed(0)
    attention = RaggedAttention(12, num_heads=3)
    reference = nn.MultiheadAttention(12, 3, batch_first=True)
    with torch.no_grad():
        reference.in_proj_weight.copy_(attention.project.weight)
        reference.in_proj_bias.copy_(attention.project.bias)
    lengths = torch.tensor([5, 3, 9, 3])
    ptr, tokens = make_ptr(lengths), torch.randn(20, 12)
    received = attention.received(tokens, RaggedLayout.from_ptr(ptr, 2), num_queries)
    for share, document in zip(
        received.split(lengths.tolist()), tokens.split(lengths.tolist()), strict=True
    ):
        one = document.unsqueeze(0)
        _, weight = reference(one[:, :num_queries], one, one)
        torch.testing.assert_close(share, weight.mean(dim=1).squeeze(0))
        assert float(share.detach().sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("encoder_cls", "layers", "num_queries"),
    [
        (MatchEncoder, 1, 8),
        (BertXmlEncoder, 1, 5),
        (StarTransformerEncoder, 2, 1),
        (TransformerEncoder, 0, 0),
        (XmlCnnEncoder, 0, 0),
    ],
)
def test_record_attention_only_attention_documents_states(
    toy_space: TokenSpace,
    toy_batch: EgoBatch,
    encoder_cls: type[Encoder],
    layers: int,
    num_queries: int,
) -> None:
    """Only attention of a documents own states is recorded.

    [CLS] in the last layer, relays in every cycle; means over tokens and convolutions: none.
    """
    torch.manual_seed(0)
    encoder = encoder_cls(TokenEmbedding(toy_space, 100), encoder_cls.Config()).eval()
    plain = encoder(toy_batch).document
    with record_attention(encoder) as received:
        seen = encoder(toy_batch).document
    assert torch.equal(plain, seen)
    assert [one.num_queries for one in received] == [num_queries] * layers
    for one in received:
        assert float(one.share.sum()) == pytest.approx(toy_batch.num_documents, abs=1e-4)
    encoder(toy_batch)
    assert len(received) == layers  # nothing is recorded after the block


def test_record_attention_hooks_go_when_the_block_fails(toy_space: TokenSpace) -> None:
    """An error within the block leaves no hook behind."""
    encoder = MatchEncoder(TokenEmbedding(toy_space, 100), MatchEncoder.Config())

    def fail() -> None:
        with record_attention(encoder):
            raise ValueError

    with pytest.raises(ValueError):
        fail()
    assert not any(module._forward_pre_hooks for module in encoder.modules())
