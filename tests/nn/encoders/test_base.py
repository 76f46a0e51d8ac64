"""The base class of encoders: it holds the embedding without owning it."""

import pytest
import torch

from match_graph.graph import EgoBatch, TokenSpace
from match_graph.nn import Encoder, TokenEmbedding

SPACE = TokenSpace(("word",), (4,))
EMPTY = torch.empty(0, dtype=torch.int64)


def test_Encoder_embedding_is_used_and_not_registered() -> None:
    """Not among modules, parameters or the state; moving the encoder leaves it alone."""
    embedding = TokenEmbedding(SPACE, 3)
    encoder = Encoder(embedding, Encoder.Config())
    assert encoder.embedding is embedding
    assert list(encoder.modules()) == [encoder]
    assert list(encoder.parameters()) == []
    assert encoder.state_dict() == {}
    encoder.double().eval()
    assert embedding.weight.dtype == torch.float32
    assert embedding.training


def test_Encoder_needs_tokens_and_gives_documents_by_default() -> None:
    """An encoder reads tokens and gives documents unless it says otherwise.

    The defaults of the contract.
    """
    assert Encoder.needs == frozenset({"tokens"})
    assert Encoder.gives == "document"
    assert Encoder.Config().model_dump() == {}


def test_Encoder_base_class_leaves_everything_to_subclasses() -> None:
    """Nothing is computed silently."""
    encoder = Encoder(TokenEmbedding(SPACE, 3), Encoder.Config())
    with pytest.raises(NotImplementedError):
        encoder.reset_parameters()
    with pytest.raises(NotImplementedError):
        encoder(EgoBatch(EMPTY, EMPTY, EMPTY, EMPTY, torch.zeros(1, dtype=torch.int64)))
