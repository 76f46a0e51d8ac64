"""The averaged Transformer against torch's own layers on single documents."""

import pytest
import torch
from torch import Tensor

from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch
from match_graph.nn import TransformerEncoder
from match_graph.nn.layers import sinusoids

pytestmark = pytest.mark.usefixtures("float64")


def code_of(position: int) -> Tensor:
    return sinusoids(torch.tensor([position]), 6)[0]


@pytest.mark.parametrize(
    ("num_layers", "num_heads", "metadata"), [(1, 1, False), (2, 3, False), (3, 2, True)]
)
@torch.no_grad()
def test_TransformerEncoder_equals_mean_of_torch_layers(
    make_encoder, read_tokens, copy_layer, toy_batch: EgoBatch, num_layers, num_heads, metadata
) -> None:
    """Document by document; words have positions, metadata none; no word is zero."""
    encoder = make_encoder(
        TransformerEncoder, num_layers=num_layers, num_heads=num_heads, hidden_channels=5,
        metadata=metadata,
    )  # fmt: skip
    layers = [copy_layer(layer) for layer in encoder.layers]
    assert len(layers) == num_layers
    output = encoder(toy_batch)
    assert output.document.shape == (12, 6)
    for document in range(12):
        tokens = read_tokens(encoder, document, metadata, code_of)
        expected = torch.zeros(6)
        if tokens:
            states = torch.stack(tokens).unsqueeze(0)
            for layer in layers:
                states = layer(states)
            expected = states[0].mean(dim=0)
        assert torch.allclose(output.document[document], expected, rtol=1e-9, atol=1e-11)


def test_TransformerEncoder_refuses_an_indivisible_width(make_encoder) -> None:
    """The sentence names model.channels."""
    with pytest.raises(ConfigError) as error:
        make_encoder(TransformerEncoder, num_heads=4)
    assert str(error.value) == (
        "The width of the encoder must be a multiple of num_heads, found 6 (model.channels) and "
        "4; change model.encoder_config."
    )
