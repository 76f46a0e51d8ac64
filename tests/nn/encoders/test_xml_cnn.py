"""XML-CNN against loops over documents, windows and chunks, and torch's adaptive pooling."""

import pytest
import torch
from torch import Tensor, nn

from match_graph.graph import EgoBatch
from match_graph.graph.csr import make_ptr
from match_graph.nn import XmlCnnEncoder

pytestmark = pytest.mark.usefixtures("float64")


def naive_responses(layer: nn.Conv1d, tokens: list[Tensor]) -> list[Tensor]:
    """One per token: the filter over the window around it, zero beyond the document."""
    width = layer.kernel_size[0]
    responses = []
    for center in range(len(tokens)):
        response = layer.bias
        for tap in range(width):
            place = center - (width - 1) // 2 + tap
            if 0 <= place < len(tokens):
                response = response + layer.weight[:, :, tap] @ tokens[place]
        responses.append(response)
    return responses


def naive_document(encoder: XmlCnnEncoder, tokens: list[Tensor]) -> Tensor:
    pooled = []
    responses = [naive_responses(layer, tokens) for layer in encoder.filters]
    for chunk in range(encoder.num_chunks):
        start = chunk * len(tokens) // encoder.num_chunks
        stop = -(-(chunk + 1) * len(tokens) // encoder.num_chunks)
        for layer, values in zip(encoder.filters, responses, strict=True):
            part = values[start:stop]
            none = torch.zeros(layer.out_channels)
            pooled.append(torch.stack(part).amax(dim=0).clamp(min=0) if part else none)
    bottleneck = encoder.bottleneck
    return (bottleneck.weight @ torch.cat(pooled) + bottleneck.bias).clamp(min=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"widths": [2, 4, 8], "num_chunks": 8, "metadata": False},
        {"widths": [1], "num_chunks": 1, "metadata": False},
        {"widths": [3, 15], "num_chunks": 3, "metadata": True},
    ],
)
@torch.no_grad()
def test_XmlCnnEncoder_documents_equal_a_naive_implementation(
    make_encoder, read_tokens, toy_batch: EgoBatch, settings
) -> None:
    """Windows stop at the document's ends, chunks at its true length; one document has no word."""
    encoder = make_encoder(XmlCnnEncoder, num_filters=3, bottleneck=5, **settings)
    output = encoder(toy_batch)
    assert output.states is None
    for document in range(12):
        tokens = read_tokens(encoder, document, settings["metadata"])
        expected = naive_document(encoder, tokens)
        assert torch.allclose(output.document[document], expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("width", [1, 2, 15])
def test_XmlCnnEncoder_batch_without_tokens(make_encoder, width: int) -> None:
    """No responses and zero maxima, however wide the filters are."""
    encoder = make_encoder(XmlCnnEncoder, widths=[width], num_filters=3, num_chunks=2)
    ptr = torch.zeros(2, dtype=torch.int64)
    responses = encoder.convolve(torch.empty(0, encoder.embedding.channels), ptr)
    assert responses.shape == (0, 3)
    assert torch.equal(encoder.pool(responses, ptr), torch.zeros(1, 2 * 3))


@pytest.mark.parametrize("num_chunks", [1, 3, 8])
def test_XmlCnnEncoder_chunks_are_torchs_adaptive_pooling(make_encoder, num_chunks: int) -> None:
    """nn.AdaptiveMaxPool1d on each document alone, with the gradients; zeros for an empty one."""
    encoder = make_encoder(XmlCnnEncoder, num_chunks=num_chunks)
    lengths = [5, 1, 0, 20, 8, 3]
    ours = torch.randn(sum(lengths), 4, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    found = encoder.pool(ours, make_ptr(torch.tensor(lengths)))
    pool = nn.AdaptiveMaxPool1d(num_chunks)
    expected = torch.stack(
        [
            pool(part.t()).t().flatten() if len(part) else torch.zeros(4 * num_chunks)
            for part in theirs.split(lengths)
        ]
    )
    assert torch.equal(found, expected)
    outgoing = torch.randn_like(found)
    found.backward(outgoing)
    expected.backward(outgoing)
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-12, atol=1e-14)


def test_XmlCnnEncoder_defaults_are_of_public_implementations() -> None:
    """Widths 2, 4 and 8 with 128 filters each, 8 chunks, a bottleneck of 512; their dropout of .5
    in the paper's settings alone.
    """
    expected = {"widths": [2, 4, 8], "num_filters": 128, "num_chunks": 8, "bottleneck": 512}
    config = XmlCnnEncoder.Config()
    assert config.model_dump() == {"metadata": False, **expected, "dropout": 0.2}
    paper = XmlCnnEncoder.presets["paper"]["model.encoder_config"]
    assert paper == {"metadata": False, **expected, "dropout": 0.5}


def test_XmlCnnEncoder_dropout_acts_on_the_state_in_training(
    make_encoder, toy_batch: EgoBatch
) -> None:
    """About a half of the values that are not zero anyway."""
    encoder = make_encoder(XmlCnnEncoder, dropout=0.5)
    kept = encoder(toy_batch).document > 0
    torch.manual_seed(0)
    dropped = (encoder.train()(toy_batch).document == 0)[kept].double().mean()
    assert 0.4 < float(dropped) < 0.6
