"""The padded baseline gives the scores of the ragged encoder with the same weights."""

from dataclasses import replace
from itertools import islice

import pytest
import torch

from match_graph.nn import sparse_bce
from match_graph.speed import Bench
from match_graph.speed.batches import open_bench, shuffle_batches
from match_graph.speed.padded import PaddedModel
from match_graph.speed.step import PaddedTrainer, Trainer, dense_bce


@pytest.mark.parametrize("length", [None, 500])
def test_PaddedModel_it_gives_the_same_scores(bench: Bench, length: int | None) -> None:
    """In float32 and evaluation mode, scores are those of MATCH for any padding."""
    run = open_bench(bench)
    model = run.make_model().eval()
    padded = PaddedModel(model, length).eval()
    for batch in islice(run.loader("train", training=True), 3):
        with torch.no_grad():
            torch.testing.assert_close(padded(batch), model(batch), rtol=1e-4, atol=1e-5)


def test_PaddedModel_it_gives_the_same_gradients(bench: Bench) -> None:
    """Gradients of the head and the embedding are those of MATCH."""
    run = open_bench(bench)
    model = run.make_model().eval()  # no dropout
    padded = PaddedModel(model, None).eval()
    batch = next(iter(run.loader("train", training=True)))
    sparse_bce(model(batch), batch.label_ptr, batch.label_index).backward()
    dense_bce(padded(batch), batch.label_ptr, batch.label_index).backward()
    torch.testing.assert_close(
        padded.head.weight.grad, model.head.weight.grad, rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        padded.embedding.weight.grad, model.embedding.weight.grad, rtol=1e-3, atol=1e-5
    )


def test_PaddedModel_drops_what_match_drops(bench: Bench) -> None:
    """Dropout is on both residual branches, not on attention weights or the hidden layer."""
    model = open_bench(bench).make_model()
    for layer in PaddedModel(model).encoder.layers:
        rates = layer.self_attn.dropout, layer.dropout.p, layer.dropout1.p, layer.dropout2.p
        assert rates == (0.0, 0.0, 0.2, 0.2) == (0, 0, *[model.encoder.dropout.p] * 2)


def test_PaddedModel_longer_documents_are_cut(bench: Bench) -> None:
    """Tokens beyond the length do not change the scores."""
    run = open_bench(bench)
    padded = PaddedModel(run.make_model(), 3).eval()
    batch = next(iter(run.loader("train", training=True)))
    column = torch.arange(len(batch.token_id)) - torch.repeat_interleave(
        batch.ptr[:-1], batch.ptr.diff()
    )
    changed = replace(batch, token_id=torch.where(column < 3, batch.token_id, 1))
    assert not torch.equal(changed.token_id, batch.token_id)
    with torch.no_grad():
        assert torch.equal(padded(batch), padded(changed))


def test_dense_bce_dense_target_gives_the_same_loss() -> None:
    """Loss and gradient are those of `sparse_bce`."""
    logits = torch.randn(4, 7, generator=torch.Generator().manual_seed(0)).double()
    gold = torch.tensor([0, 2, 2, 3, 4]), torch.tensor([1, 5, 0, 6])
    one, two = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    sparse, dense = sparse_bce(one, *gold), dense_bce(two, *gold)
    (sparse + dense).backward()
    torch.testing.assert_close(sparse, dense)
    torch.testing.assert_close(one.grad, two.grad)


def test_PaddedTrainer_both_trainers_learn(bench: Bench) -> None:
    """The training loss on one batch falls for ours and for the baseline."""
    trainer = Trainer(bench)
    batch = next(iter(open_bench(bench).loader("train", training=True)))
    padded = PaddedTrainer(trainer.model, bench, None)
    for model, step in ((trainer.model, trainer.step), (padded.model, padded.step)):
        losses = []
        for _ in range(2):
            with torch.no_grad():
                losses.append(float(sparse_bce(model(batch), batch.label_ptr, batch.label_index)))
            assert [step(batch) for _ in range(10)] == [batch.num_documents] * 10
        assert losses[1] < losses[0]


def test_shuffle_batches_shuffled_batches_hold_same_documents(bench: Bench) -> None:
    """The documents are the same, in another order."""
    batches = list(islice(open_bench(bench).loader("train", training=True), 4))
    shuffled = shuffle_batches(bench, batches)
    documents = [torch.cat([batch.document for batch in some]) for some in (batches, shuffled)]
    assert not torch.equal(*documents)
    assert torch.equal(documents[0].sort().values, documents[1].sort().values)
    assert [batch.num_documents for batch in shuffled] == [16] * 4
