"""The encoder of AttentionXML against torch's LSTM on one document after the other."""

import pytest
import torch

from match_graph.graph import BuiltGraph, EgoBatch, EgoLoader, EgoSampler, TokenSpace
from match_graph.nn import AttentionXmlEncoder, TokenEmbedding


@pytest.fixture(scope="module")
def space(toy_graph: BuiltGraph) -> TokenSpace:
    return TokenSpace.from_data(toy_graph.data)


@pytest.fixture(scope="module")
def batch(toy_graph: BuiltGraph, space: TokenSpace) -> EgoBatch:
    """Twelve documents with metadata and words, one of them without words."""
    sampler = EgoSampler(toy_graph.data)
    return next(
        iter(
            EgoLoader(
                toy_graph.data, sampler, space, torch.arange(12), toy_graph.targets, batch_size=12
            )
        )
    )


def make_encoder(space: TokenSpace, **settings: object) -> AttentionXmlEncoder:
    torch.manual_seed(0)
    config = AttentionXmlEncoder.Config(**{"hidden_channels": 5, **settings})
    return AttentionXmlEncoder(TokenEmbedding(space, 6), config).eval()


@pytest.mark.parametrize("metadata", [False, True])
@torch.no_grad()
def test_AttentionXmlEncoder_states_equal_those_single_documents(
    space: TokenSpace, batch: EgoBatch, metadata: bool
) -> None:
    """Both directions, from zero states; words alone, or metadata before the words."""
    encoder = make_encoder(space, metadata=metadata)
    output = encoder(batch)
    assert output.document is None
    is_word = batch.field == space.field_index("word")
    for document in range(12):
        span = slice(int(batch.ptr[document]), int(batch.ptr[document + 1]))
        kept = torch.ones_like(is_word[span]) if metadata else is_word[span]
        tokens = encoder.embedding(batch)[span][kept]
        found = output.states[output.ptr[document] : output.ptr[document + 1]]
        assert found.shape == (int(kept.sum()), 10)
        if len(tokens):
            assert torch.allclose(found, encoder.lstm(tokens)[0], atol=1e-6)


@torch.no_grad()
def test_AttentionXmlEncoder_metadata_change_nothing_unless(
    space: TokenSpace, batch: EgoBatch
) -> None:
    """Metadata change nothing unless they are asked for.

    States of the words are the same for another venue, author or reference.
    """
    changed = torch.where(batch.field == space.field_index("word"), batch.token_id, 1 + batch.field)
    other = EgoBatch(batch.document, changed, batch.field, batch.position, batch.ptr)
    encoder = make_encoder(space)
    assert torch.equal(encoder(batch).states, encoder(other).states)
    encoder = make_encoder(space, metadata=True)
    assert not torch.equal(encoder(batch).states, encoder(other).states)


def test_AttentionXmlEncoder_dropout_acts_states_training_alone(
    space: TokenSpace, batch: EgoBatch
) -> None:
    """A share of them is zero."""
    encoder = make_encoder(space, dropout=0.5)
    assert bool((encoder(batch).states != 0).all())
    share = float((encoder.train()(batch).states == 0).float().mean())
    assert 0.3 < share < 0.7
