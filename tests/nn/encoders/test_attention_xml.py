"""The encoder of AttentionXML against torch's LSTM on one document after the other."""

import pytest
import torch

from match_graph.graph import EgoBatch, TokenSpace
from match_graph.nn import AttentionXmlEncoder, TokenEmbedding


def make_encoder(space: TokenSpace, **settings: object) -> AttentionXmlEncoder:
    torch.manual_seed(0)
    config = AttentionXmlEncoder.Config(**{"hidden_channels": 5, **settings})
    return AttentionXmlEncoder(TokenEmbedding(space, 6), config).eval()


@pytest.mark.parametrize("metadata", [False, True])
@torch.no_grad()
def test_AttentionXmlEncoder_equals_torch_lstm_per_document(
    toy_space: TokenSpace, toy_batch: EgoBatch, metadata: bool
) -> None:
    """Both directions, from zero states; words alone, or metadata before the words."""
    encoder = make_encoder(toy_space, metadata=metadata)
    output = encoder(toy_batch)
    assert output.document is None
    is_word = toy_batch.field == toy_space.field_index("word")
    for document in range(12):
        span = slice(int(toy_batch.ptr[document]), int(toy_batch.ptr[document + 1]))
        kept = torch.ones_like(is_word[span]) if metadata else is_word[span]
        tokens = encoder.embedding(toy_batch)[span][kept]
        found = output.states[output.ptr[document] : output.ptr[document + 1]]
        assert found.shape == (int(kept.sum()), 10)
        if len(tokens):
            assert torch.allclose(found, encoder.lstm(tokens)[0], atol=1e-6)


@torch.no_grad()
def test_AttentionXmlEncoder_reads_metadata_only_on_request(
    toy_space: TokenSpace, toy_batch: EgoBatch
) -> None:
    """Metadata change nothing unless they are asked for.

    States of the words are the same for another venue, author or reference.
    """
    changed = torch.where(
        toy_batch.field == toy_space.field_index("word"), toy_batch.token_id, 1 + toy_batch.field
    )
    other = EgoBatch(
        toy_batch.document, changed, toy_batch.field, toy_batch.position, toy_batch.ptr
    )
    encoder = make_encoder(toy_space)
    assert torch.equal(encoder(toy_batch).states, encoder(other).states)
    encoder = make_encoder(toy_space, metadata=True)
    assert not torch.equal(encoder(toy_batch).states, encoder(other).states)


def test_AttentionXmlEncoder_drops_states_in_training_only(
    toy_space: TokenSpace, toy_batch: EgoBatch
) -> None:
    """A share of them is zero."""
    encoder = make_encoder(toy_space, dropout=0.5)
    assert bool((encoder(toy_batch).states != 0).all())
    share = float((encoder.train()(toy_batch).states == 0).float().mean())
    assert 0.3 < share < 0.7
