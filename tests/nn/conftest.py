"""What tests of networks share: float64, a batch with an empty document, encoders without zeros."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from match_graph.graph import BuiltGraph, EgoBatch, EgoLoader, EgoSampler, TokenSpace
from match_graph.nn import Encoder, TokenEmbedding
from match_graph.nn.layers import TransformerLayer


@pytest.fixture
def float64() -> Iterator[None]:
    """Everything is computed in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def toy_space(toy_graph: BuiltGraph) -> TokenSpace:
    """The token space of the toy corpus."""
    return TokenSpace.from_data(toy_graph.data)


@pytest.fixture(scope="session")
def toy_batch(toy_graph: BuiltGraph, toy_space: TokenSpace) -> EgoBatch:
    """Its twelve documents of 2 to 14 tokens, one of them without words."""
    loader = EgoLoader(
        toy_graph.data, EgoSampler(toy_graph.data), toy_space, torch.arange(12), batch_size=12
    )
    batch: EgoBatch = next(iter(loader))
    return batch


@pytest.fixture
def make_encoder(toy_space: TokenSpace) -> Callable[..., Encoder]:
    """Makes an encoder in evaluation mode, with no parameter at its neutral start."""

    def make(encoder_cls: type[Encoder], channels: int = 6, **settings: object) -> Encoder:
        torch.manual_seed(0)
        embedding = TokenEmbedding(toy_space, channels)
        encoder = encoder_cls(embedding, encoder_cls.Config(**settings))
        with torch.no_grad():
            for parameter in encoder.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        return encoder.eval()

    return make


@pytest.fixture(scope="session")
def read_tokens(toy_batch: EgoBatch, toy_space: TokenSpace) -> Callable[..., list[Tensor]]:
    """Reads the tokens of a toy document one by one: its vectors, and the code of its position."""

    def read(
        encoder: Encoder, document: int, metadata: bool, code: Callable[[int], Tensor] | None = None
    ) -> list[Tensor]:
        vectors = []
        for place in range(int(toy_batch.ptr[document]), int(toy_batch.ptr[document + 1])):
            is_word = toy_space.types[int(toy_batch.field[place])] == "word"
            if not (is_word or metadata):
                continue
            weight = encoder.embedding.weight
            vector = weight[toy_batch.token_id[place]] * weight.size(1) ** 0.5
            if is_word and code is not None:
                vector = vector + code(int(toy_batch.position[place]))
            vectors.append(vector.detach())
        return vectors

    return read


@pytest.fixture(scope="session")
def copy_layer() -> Callable[[TransformerLayer], nn.TransformerEncoderLayer]:
    """Copies a layer into torch's own, which is compared to it."""

    def copy(layer: TransformerLayer) -> nn.TransformerEncoderLayer:
        channels = layer.attention.channels
        copied = nn.TransformerEncoderLayer(
            channels,
            layer.attention.num_heads,
            layer.linear1.out_features,
            dropout=0.0,
            activation="relu",
            batch_first=True,
            norm_first=False,
        )
        state = layer.state_dict()
        copied.load_state_dict(
            {
                "self_attn.in_proj_weight": state.pop("attention.project.weight"),
                "self_attn.in_proj_bias": state.pop("attention.project.bias"),
                "self_attn.out_proj.weight": state.pop("attention.out.weight"),
                "self_attn.out_proj.bias": state.pop("attention.out.bias"),
                **state,
            }
        )
        return copied.train()  # torch's fast path for evaluation is not what is compared

    return copy
