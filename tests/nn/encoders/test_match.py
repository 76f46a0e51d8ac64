"""The encoder of MATCH against a loop over documents and tokens, and against torch's own layer."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch, TokenSpace
from match_graph.nn import MatchEncoder, TokenEmbedding
from match_graph.nn.layers import TransformerLayer

CHANNELS, CODE = 6, 4


pytestmark = pytest.mark.usefixtures("float64")


def make_encoder(space: TokenSpace, seed: int = 0, **settings: object) -> MatchEncoder:
    """In evaluation mode, with no parameter at its neutral start."""
    torch.manual_seed(seed)
    settings = {"num_cls": 2, "num_layers": 2, "position_channels": CODE, **settings}
    encoder = MatchEncoder(TokenEmbedding(space, CHANNELS), MatchEncoder.Config(**settings))
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder.eval()


def naive_code(position: int, channels: int) -> list[float]:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d)), PE(pos, 2i + 1) = cos of the same."""
    code = []
    for channel in range(channels):
        angle = position / 10000 ** ((channel // 2) * 2 / channels)
        code.append(math.sin(angle) if channel % 2 == 0 else math.cos(angle))
    return code


def naive_norm(norm: nn.LayerNorm, values: Tensor) -> Tensor:
    mean = sum(values.tolist()) / len(values)
    variance = sum((value - mean) ** 2 for value in values.tolist()) / len(values)
    return (values - mean) / math.sqrt(variance + 1e-5) * norm.weight + norm.bias


def naive_layer(layer: TransformerLayer, tokens: list[Tensor]) -> list[Tensor]:
    """Post-norm on one document, token by token and head by head."""
    attention = layer.attention
    channels, num_heads = attention.channels, attention.num_heads
    width = channels // num_heads
    projected = [attention.project.weight @ token + attention.project.bias for token in tokens]
    states = []
    for token, own in zip(tokens, projected, strict=True):
        joined = []
        for head in range(num_heads):
            query = own[head * width : (head + 1) * width]
            start = channels + head * width
            scores = [
                math.exp(float(query @ other[start : start + width]) / math.sqrt(width))
                for other in projected
            ]
            start = 2 * channels + head * width
            joined.append(
                sum(
                    score / sum(scores) * other[start : start + width]
                    for score, other in zip(scores, projected, strict=True)
                )
            )
        attended = attention.out.weight @ torch.cat(joined) + attention.out.bias
        normed = naive_norm(layer.norm1, token + attended)
        hidden = (layer.linear1.weight @ normed + layer.linear1.bias).clamp(min=0)
        states.append(
            naive_norm(layer.norm2, normed + layer.linear2.weight @ hidden + layer.linear2.bias)
        )
    return states


def naive_input(encoder: MatchEncoder, batch: EgoBatch, document: int) -> list[Tensor]:
    """[CLS] tokens, then metadata without a position code, then words with theirs."""
    embedding, space = encoder.embedding, encoder.embedding.space
    tokens = list(encoder.cls)
    for place in range(int(batch.ptr[document]), int(batch.ptr[document + 1])):
        field = int(batch.field[place])
        code = [0.0] * CODE
        if space.types[field] == "word":
            code = naive_code(int(batch.position[place]), CODE)
        row = embedding.weight[batch.token_id[place]] * math.sqrt(CHANNELS)
        token = torch.cat([row, torch.tensor(code)])
        tokens.append(token if encoder.field is None else token + encoder.field[field])
    return tokens


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_layers": 1},
        {"num_cls": 1, "num_layers": 3, "num_heads": 5, "feed_forward": 1},
        {"num_cls": 3, "num_heads": 1},
        {"field_vectors": False},
    ],
)
@torch.no_grad()
def test_MatchEncoder_documents_equal_a_naive_implementation(
    toy_space: TokenSpace, toy_batch: EgoBatch, settings: dict[str, int]
) -> None:
    """Per document without padding; post-norm, the root of a head's width, [CLS] states joined."""
    encoder = make_encoder(toy_space, **settings)
    output = encoder(toy_batch)
    assert output.states is None
    assert output.document.shape == (12, encoder.out_channels)
    for document in range(12):
        tokens = naive_input(encoder, toy_batch, document)
        for layer in encoder.layers:
            tokens = naive_layer(layer, tokens)
        expected = torch.cat(tokens[: encoder.num_cls])
        assert torch.allclose(output.document[document], expected, rtol=1e-9, atol=1e-10)


@torch.no_grad()
def test_MatchEncoder_input_is_cls_then_metadata_then_words(
    toy_space: TokenSpace, toy_batch: EgoBatch
) -> None:
    """Token by token against the loop; ptr counts the [CLS] tokens."""
    encoder = make_encoder(toy_space)
    tokens, ptr = encoder.join(toy_batch)
    assert ptr.diff().tolist() == [length + 2 for length in toy_batch.ptr.diff().tolist()]
    for document, part in enumerate(tokens.split(ptr.diff().tolist())):
        expected = torch.stack(naive_input(encoder, toy_batch, document))
        assert torch.allclose(part, expected, rtol=1e-12, atol=1e-14)


@torch.no_grad()
def test_MatchEncoder_of_one_layer_joins_torchs_cls_states(
    toy_space: TokenSpace, toy_batch: EgoBatch, copy_layer
) -> None:
    """The last layer is computed for [CLS] tokens only; the result is the same."""
    encoder = make_encoder(toy_space, num_layers=1, num_cls=3)
    copied = copy_layer(encoder.layers[0])
    tokens, ptr = encoder.join(toy_batch)
    expected = [
        copied(part.unsqueeze(0))[0, :3].flatten() for part in tokens.split(ptr.diff().tolist())
    ]
    found = encoder(toy_batch).document
    assert torch.allclose(found, torch.stack(expected), rtol=1e-10, atol=1e-12)


def replace_tokens(batch: EgoBatch, document: int) -> EgoBatch:
    """Every token of one document becomes the [UNK] of its type."""
    token_id = batch.token_id.clone()
    own = slice(int(batch.ptr[document]), int(batch.ptr[document + 1]))
    token_id[own] = 1 + batch.field[own]
    return replace(batch, token_id=token_id)


@torch.no_grad()
def test_MatchEncoder_change_of_one_document_changes_no_other(
    toy_space: TokenSpace, toy_batch: EgoBatch
) -> None:
    """Also through padding, groups and layers."""
    encoder = make_encoder(toy_space)
    before = encoder(toy_batch).document
    for document in range(12):
        after = encoder(replace_tokens(toy_batch, document)).document
        changed = (after - before).abs().amax(dim=1) > 1e-9
        assert changed.nonzero().view(-1).tolist() == [document]


def reorder(batch: EgoBatch, document: int, words: bool) -> EgoBatch:
    """One document's words, or its metadata, in reverse; positions stay in place."""
    token_id, field = batch.token_id.clone(), batch.field.clone()
    own = torch.arange(int(batch.ptr[document]), int(batch.ptr[document + 1]))
    is_word = batch.field[own] == batch.field.max()
    own = own[is_word if words else ~is_word]
    token_id[own], field[own] = token_id[own.flip(0)], field[own.flip(0)]
    return replace(batch, token_id=token_id, field=field)


@torch.no_grad()
def test_MatchEncoder_metadata_are_a_set_and_words_a_sequence(
    toy_space: TokenSpace, toy_batch: EgoBatch
) -> None:
    """The order of metadata does not matter, that of words does, if they have position codes."""
    encoder = make_encoder(toy_space)
    before = encoder(toy_batch).document
    metadata = encoder(reorder(toy_batch, 0, words=False))
    assert not torch.equal(reorder(toy_batch, 0, words=False).token_id, toy_batch.token_id)
    assert torch.allclose(metadata.document, before, rtol=1e-10, atol=1e-12)
    words = encoder(reorder(toy_batch, 0, words=True)).document
    assert float((words[0] - before[0]).abs().max()) > 1e-3
    encoder = make_encoder(toy_space, position_channels=0)
    before = encoder(toy_batch).document
    words = encoder(reorder(toy_batch, 0, words=True)).document
    assert torch.allclose(words, before, rtol=1e-10, atol=1e-12)


def test_MatchEncoder_defaults_are_the_papers() -> None:
    """8 [CLS] tokens, 2 heads, width 128 with delta = 100; layers and dropout as said."""
    config = MatchEncoder.Config()
    assert (config.num_cls, config.num_layers, config.num_heads) == (8, 1, 2)
    assert (config.position_channels, config.feed_forward, config.dropout) == (28, 4, 0.2)
    encoder = MatchEncoder(TokenEmbedding(TokenSpace(("word",), (5,)), 100), config)
    assert (encoder.channels, encoder.out_channels) == (128, 1024)
    assert encoder.layers[0].linear1.weight.shape == (512, 128)


@pytest.mark.parametrize(("scaled", "std"), [(True, 1.0), (False, 0.1)])
def test_MatchEncoder_cls_tokens_start_at_the_scale_of_others(scaled: bool, std: float) -> None:
    """Unit variance beside scaled vectors, that of a unit vector's channels beside unit vectors.

    Vectors of types start small beside scaled ones.
    """
    embedding = TokenEmbedding(TokenSpace(("word",), (5,)), 100, scaled=scaled)
    encoder = MatchEncoder(embedding, MatchEncoder.Config(num_cls=100))
    assert float(encoder.cls.detach().std()) == pytest.approx(std, rel=0.05)
    assert encoder.field is not None
    assert float(encoder.field.detach().std()) == pytest.approx(0.1, rel=0.2)


def test_MatchEncoder_dropout_acts_in_training_by_the_seed(
    toy_space: TokenSpace, toy_batch: EgoBatch
) -> None:
    """Two passes differ, two passes of one seed do not, and a rate of 0 is evaluation."""
    encoder = make_encoder(toy_space, dropout=0.5).train()
    torch.manual_seed(0)
    first, second = encoder(toy_batch).document, encoder(toy_batch).document
    torch.manual_seed(0)
    assert torch.equal(encoder(toy_batch).document, first)
    assert not torch.equal(first, second)
    without = make_encoder(toy_space, dropout=0.0)
    assert torch.equal(without.train()(toy_batch).document, without.eval()(toy_batch).document)


def test_MatchEncoder_refuses_an_indivisible_width(toy_space: TokenSpace) -> None:
    """The sentence names both numbers."""
    config = MatchEncoder.Config(num_heads=3, position_channels=4)
    with pytest.raises(ConfigError) as error:
        MatchEncoder(TokenEmbedding(toy_space, 6), config)
    assert str(error.value) == (
        "The width of the encoder must be a multiple of num_heads, found 10 (embedding plus "
        "position channels) and 3; change model.encoder_config."
    )
