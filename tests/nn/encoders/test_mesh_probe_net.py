"""MeSHProbeNet against torch's LSTM and GRU on single documents and a loop over the probes."""

import pytest
import torch
from torch import Tensor, nn

from match_graph.graph import EgoBatch
from match_graph.nn import MeshProbeNetEncoder

pytestmark = pytest.mark.usefixtures("float64")


def naive_document(encoder: MeshProbeNetEncoder, tokens: list[Tensor]) -> Tensor:
    """The network over one document alone, then each probe's weighted mean."""
    if not tokens:
        return torch.zeros(encoder.out_channels)
    states, _ = encoder.rnn(torch.stack(tokens).unsqueeze(1))  # [T, 1, C]
    joined = []
    for probe in encoder.probes:
        weights = [float(torch.exp(state @ probe)) for state in states[:, 0]]
        joined.append(
            sum(
                weight / sum(weights) * state
                for weight, state in zip(weights, states[:, 0], strict=True)
            )
        )
    return torch.cat(joined)


@pytest.mark.parametrize(
    ("rnn", "num_layers", "num_probes", "metadata"),
    [("lstm", 1, 3, False), ("lstm", 2, 1, True), ("gru", 2, 2, False)],
)
@torch.no_grad()
def test_MeshProbeNetEncoder_equals_torch_per_document(
    make_encoder, read_tokens, toy_batch: EgoBatch, rnn, num_layers, num_probes, metadata
) -> None:
    """Documents equal the network on single documents.

    Neither the next document nor padding reaches a state, in either direction.
    """
    encoder = make_encoder(
        MeshProbeNetEncoder, rnn=rnn, num_layers=num_layers, num_probes=num_probes,
        metadata=metadata, hidden_channels=4,
    )  # fmt: skip
    assert isinstance(encoder.rnn, {"lstm": nn.LSTM, "gru": nn.GRU}[rnn])
    output = encoder(toy_batch)
    assert output.document.shape == (12, num_probes * 8)
    for document in range(12):
        expected = naive_document(encoder, read_tokens(encoder, document, metadata))
        assert torch.allclose(output.document[document], expected, rtol=1e-9, atol=1e-11)


def test_MeshProbeNetEncoder_gradients_equal_torch_per_document(
    make_encoder, read_tokens, toy_batch: EgoBatch
) -> None:
    """Gradients equal those of single documents.

    Of the network and of the probes.
    """
    encoder = make_encoder(MeshProbeNetEncoder, hidden_channels=4, num_probes=2)
    outgoing = torch.randn(12, encoder.out_channels)
    found = torch.autograd.grad(
        encoder(toy_batch).document, [*encoder.rnn.parameters(), encoder.probes], outgoing
    )
    alone = []
    for document in range(12):
        tokens = read_tokens(encoder, document, metadata=False)
        if tokens:
            states = encoder.rnn(torch.stack(tokens).unsqueeze(1))[0][:, 0]
            weights = torch.softmax(states @ encoder.probes.t(), dim=0)
            alone.append((weights.t() @ states).flatten() @ outgoing[document])
    expected = torch.autograd.grad(sum(alone), [*encoder.rnn.parameters(), encoder.probes])
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)


def test_MeshProbeNetEncoder_dropout_acts_on_states_in_training(
    make_encoder, toy_batch: EgoBatch
) -> None:
    """Two passes differ, two passes of one seed do not."""
    encoder = make_encoder(MeshProbeNetEncoder, hidden_channels=4, dropout=0.5).train()
    torch.manual_seed(0)
    first, second = encoder(toy_batch).document, encoder(toy_batch).document
    torch.manual_seed(0)
    assert torch.equal(encoder(toy_batch).document, first)
    assert not torch.equal(first, second)
