"""MATCH with a graph encoder: which states join the tokens, and where."""

import pytest
import torch

from match_graph.graph import BuiltGraph, EgoGraphs, EgoLoader, EgoSampler, TokenSpace
from match_graph.graph.tokens import EgoBatch
from match_graph.nn import TokenEmbedding
from match_graph.nn.encoders import MatchEncoder, MatchHeteroEncoder
from match_graph.typing import DOCUMENT


@pytest.fixture
def encoder(toy_graph: BuiltGraph) -> MatchHeteroEncoder:
    torch.manual_seed(0)
    embedding = TokenEmbedding(TokenSpace.from_data(toy_graph.data), 8)
    config = MatchHeteroEncoder.Config(num_cls=2, num_layers=1, position_channels=4)
    return MatchHeteroEncoder(embedding, config).eval()


@pytest.fixture
def batch(toy_graph: BuiltGraph, encoder: MatchHeteroEncoder) -> EgoBatch:
    data, space = toy_graph.data, encoder.embedding.space
    neighborhood = encoder.neighborhood(encoder.config)
    assert neighborhood is not None
    graphs = EgoGraphs(data, neighborhood, space, data[DOCUMENT].train_mask)
    loader = EgoLoader(
        data, EgoSampler(data), space, torch.arange(12), graphs=graphs, batch_size=12
    )
    found: EgoBatch = next(iter(loader))
    return found


@torch.no_grad()
def test_MatchHeteroEncoder_states_of_documents_follow_the_words(
    encoder: MatchHeteroEncoder, batch: EgoBatch
) -> None:
    """The tokens of MATCH, then the document's own state, then those around it, each mapped."""
    tokens, ptr = encoder.join(batch)
    plain, plain_ptr = MatchEncoder.join(encoder, batch)
    assert batch.graph is not None
    root = batch.graph[DOCUMENT].batch
    states = encoder.adapt(encoder.graph_encoder.encode_documents(batch.graph))
    assert root.numel() > 20
    for document in range(12):
        mine = tokens[ptr[document] : ptr[document + 1]]
        own = plain[plain_ptr[document] : plain_ptr[document + 1]]
        around = [place for place in range(12, root.numel()) if root[place] == document]
        assert torch.equal(mine[: len(own)], own)
        expected = [states[document] + encoder.role[0]]
        expected += [states[place] + encoder.role[1] for place in around]
        assert torch.allclose(mine[len(own) :], torch.stack(expected), atol=1e-6)


@torch.no_grad()
def test_MatchHeteroEncoder_without_dropout_draws_nothing(
    encoder: MatchHeteroEncoder, batch: EgoBatch
) -> None:
    """A rate of 0 is that of the graph encoder too."""
    config = encoder.config.model_copy(update={"dropout": 0.0})
    without = MatchHeteroEncoder(encoder.embedding, config)
    expected = without.eval()(batch).document
    assert torch.allclose(without.train()(batch).document, expected, atol=1e-6)


@torch.no_grad()
def test_MatchHeteroEncoder_cited_document_changes_the_state(
    toy_graph: BuiltGraph, encoder: MatchHeteroEncoder, batch: EgoBatch
) -> None:
    """What is written in the documents around it reaches a document, and no other document."""
    before = encoder(batch).document
    graph = batch.graph
    assert graph is not None
    place = 12 + int((graph[DOCUMENT].batch[12:] == 5).nonzero()[0])  # a document around document 5
    store = graph[DOCUMENT]  # its copies around other documents keep their tokens
    store.token_row[place] = store.token_ptr.numel() - 1
    store.token_ptr = torch.cat([store.token_ptr, store.token_ptr[-1:] + 2])
    store.token_id = torch.cat([store.token_id, torch.tensor([8, 9])])
    store.field = torch.cat([store.field, torch.tensor([0, 0])])
    moved = (encoder(batch).document - before).abs().amax(dim=1) > 1e-7
    assert moved.nonzero().view(-1).tolist() == [5]
