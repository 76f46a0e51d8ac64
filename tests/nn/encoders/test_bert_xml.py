"""BertXML against torch's own layers on single documents."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu

from match_graph.graph import EgoBatch
from match_graph.nn import BertXmlEncoder

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize(
    ("num_cls", "num_layers", "max_positions", "metadata"),
    [(1, 1, 500, False), (3, 2, 500, False), (2, 3, 4, True)],
)
@torch.no_grad()
def test_BertXmlEncoder_equals_torch_layers_and_pooling(
    make_encoder, read_tokens, copy_layer, toy_batch: EgoBatch, num_cls, num_layers,
    max_positions, metadata,
) -> None:  # fmt: skip
    """Documents equal torch's layers and a pooling layer.

    [CLS] tokens, then words with learned positions, the last of which later words share.
    """
    encoder = make_encoder(
        BertXmlEncoder, num_cls=num_cls, num_layers=num_layers, max_positions=max_positions,
        metadata=metadata, hidden_channels=5,
    )  # fmt: skip

    def code_of(position: int) -> Tensor:
        return encoder.position[min(position, max_positions - 1)]

    layers = [copy_layer(layer) for layer in encoder.layers]
    output = encoder(toy_batch)
    assert output.document.shape == (12, num_cls * 6)
    for document in range(12):
        tokens = [*encoder.cls, *read_tokens(encoder, document, metadata, code_of)]
        states = torch.stack(tokens).unsqueeze(0)
        for layer in layers:
            states = layer(states)
        joined = elu(states[0, :num_cls].flatten())
        expected = elu(encoder.pooler.weight @ joined + encoder.pooler.bias)
        assert torch.allclose(output.document[document], expected, rtol=1e-9, atol=1e-11)


def test_BertXmlEncoder_defaults_are_cornets() -> None:
    """5 [CLS] tokens, 2 layers and the last, 2 heads, 600 hidden channels, 500 positions."""
    assert BertXmlEncoder.Config().model_dump() == {
        "metadata": False, "num_cls": 5, "num_layers": 3, "num_heads": 2, "hidden_channels": 600,
        "max_positions": 500, "dropout": 0.1,
    }  # fmt: skip
