"""Encoders of the words alone: metadata reach them only when asked for."""

from dataclasses import replace

import pytest
import torch

from match_graph.graph import EgoBatch
from match_graph.nn import ENCODERS, TextEncoder
from match_graph.typing import WORD

pytestmark = pytest.mark.usefixtures("float64")

TEXT_ENCODERS = sorted(name for name, cls in ENCODERS.items() if issubclass(cls, TextEncoder))


def hide_metadata(batch: EgoBatch, word_field: int) -> EgoBatch:
    """Every metadata token becomes the [UNK] of its type."""
    is_word = batch.field == word_field
    return replace(batch, token_id=torch.where(is_word, batch.token_id, 1 + batch.field))


@torch.no_grad()
@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_TextEncoder_reads_metadata_only_on_request(
    make_encoder, toy_batch: EgoBatch, name
) -> None:
    """By default other metadata change no state; with metadata=true they do."""
    encoder_cls = ENCODERS[name]
    for metadata in (False, True):
        encoder = make_encoder(encoder_cls, channels=12, metadata=metadata)
        hidden = hide_metadata(toy_batch, encoder.embedding.space.field_index(WORD))
        found, other = encoder(toy_batch), encoder(hidden)
        states = [
            value.document if value.states is None else value.states for value in (found, other)
        ]
        assert torch.equal(*states) is not metadata


def test_TextEncoder_embed_selects_words(make_encoder, toy_batch: EgoBatch) -> None:
    """`embed` gives it with its vectors; with metadata it is the batch itself."""
    encoder = make_encoder(ENCODERS["transformer"])
    batch, tokens = encoder.embed(toy_batch)
    assert bool((batch.field == encoder.word_field).all())
    assert int(batch.ptr[-1]) == tokens.size(0) < int(toy_batch.ptr[-1])
    with_metadata = make_encoder(ENCODERS["transformer"], metadata=True)
    assert with_metadata.embed(toy_batch)[0] is toy_batch
