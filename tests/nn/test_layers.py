"""Dropout and Transformer layers over packed documents."""

import math

import pytest
import torch

from match_graph.errors import ConfigError
from match_graph.nn.attention import RaggedLayout
from match_graph.nn.layers import (
    ByteDropout,
    TransformerLayer,
    TransformerStack,
    add_positions,
    check_heads,
    prepend,
    sinusoids,
)

PTR = torch.tensor([0, 3, 3, 8, 9])

pytestmark = pytest.mark.usefixtures("float64")


def make_layer(seed: int = 0) -> TransformerLayer:
    """With no parameter at its neutral start."""
    torch.manual_seed(seed)
    layer = TransformerLayer(6, 2, 5, 0.0)
    layer.reset_parameters()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


@pytest.mark.parametrize("num_groups", [1, 3])
def test_TransformerLayer_equals_torchs_own(copy_layer, num_groups: int) -> None:
    """nn.TransformerEncoderLayer(norm_first=False, relu): states and all gradients."""
    layer = make_layer()
    copied = copy_layer(layer)
    ours = torch.randn(9, 6, requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    found = layer(ours, RaggedLayout.from_ptr(PTR, num_groups))
    parts = [part for part in theirs.split(PTR.diff().tolist()) if len(part)]
    expected = torch.cat([copied(part.unsqueeze(0))[0] for part in parts])
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)
    outgoing = torch.randn_like(found)
    found.backward(outgoing)
    expected.backward(outgoing)
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-9, atol=1e-11)
    for name, parameter in layer.named_parameters():
        torchs = name.replace("attention.project.", "self_attn.in_proj_")
        other = copied.get_parameter(torchs.replace("attention.out", "self_attn.out_proj"))
        assert torch.allclose(parameter.grad, other.grad, rtol=1e-9, atol=1e-10), name


def test_TransformerLayer_dropout_is_on_both_branches() -> None:
    """A dropout of every value leaves a layer that only normalizes, twice."""
    layer, tokens = make_layer(), torch.randn(9, 6)
    layer.dropout.register_forward_hook(lambda *args: torch.zeros_like(args[2]))
    found = layer(tokens, RaggedLayout.from_ptr(PTR))
    assert torch.equal(found, layer.norm2(layer.norm1(tokens)))


def test_TransformerLayer_reset_parameters_resets_norms() -> None:
    """Norms start at scale 1 and shift 0."""
    layer = make_layer()
    layer.reset_parameters()
    for norm in (layer.norm1, layer.norm2):
        assert norm.weight.tolist() == [1.0] * 6
        assert norm.bias.tolist() == [0.0] * 6


def test_TransformerStack_applies_its_layers_one_after_the_other(copy_layer) -> None:
    """All tokens, and the first ones alone, are the same."""
    torch.manual_seed(0)
    stack = TransformerStack(3, 6, 2, 5, 0.0)
    stack.reset_parameters()
    ptr = torch.tensor([0, 3, 5, 9])
    tokens = torch.randn(9, 6)
    found = stack(tokens, ptr)
    expected = [part.unsqueeze(0) for part in tokens.split(ptr.diff().tolist())]
    for layer in stack:
        expected = [copy_layer(layer)(part) for part in expected]
    assert torch.allclose(found, torch.cat(expected, dim=1)[0], rtol=1e-10, atol=1e-12)
    first = torch.stack([part[0, :2].flatten() for part in expected])
    assert torch.allclose(stack.forward_first(tokens, ptr, 2), first, rtol=1e-10, atol=1e-12)


def test_prepend_tokens_are_put_before_each_document() -> None:
    """Also before an empty one; a gradient reaches both parts."""
    first = torch.randn(4, 2, 6, requires_grad=True)
    tokens = torch.randn(9, 6, requires_grad=True)
    joined, ptr = prepend(first, tokens, PTR)
    assert ptr.tolist() == [0, 5, 7, 14, 17]
    expected = []
    for document in range(4):
        expected += [first[document], tokens[PTR[document] : PTR[document + 1]]]
    assert torch.equal(joined, torch.cat(expected))
    joined.sum().backward()
    assert bool((first.grad == 1).all())
    assert bool((tokens.grad == 1).all())


def naive_code(position: int, channels: int) -> list[float]:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d)), PE(pos, 2i + 1) = cos of the same."""
    code = []
    for channel in range(channels):
        angle = position / 10000 ** ((channel // 2) * 2 / channels)
        code.append(math.sin(angle) if channel % 2 == 0 else math.cos(angle))
    return code


@pytest.mark.parametrize("channels", [2, 4, 7, 28])
def test_sinusoids_equal_the_formula(channels: int) -> None:
    """Sines in even channels, cosines in odd ones, for the first and for late positions."""
    position = torch.tensor([0, 1, 2, 3, 77, 499, 32766])
    expected = [naive_code(place, channels) for place in position.tolist()]
    found = sinusoids(position, channels)
    assert torch.allclose(found, torch.tensor(expected), rtol=1e-9, atol=1e-10)


def test_sinusoids_follow_the_default_precision() -> None:
    """float32 in a float32 program."""
    torch.set_default_dtype(torch.float32)
    assert sinusoids(torch.arange(3), 4).dtype == torch.float32


def test_add_positions_only_words_have_positions() -> None:
    """Codes are added to words; metadata stay as they are."""
    tokens, position = torch.randn(3, 4), torch.tensor([0, 0, 7])
    found = add_positions(tokens, position, torch.tensor([False, True, True]))
    codes = torch.tensor([[0.0] * 4, naive_code(0, 4), naive_code(7, 4)])
    assert torch.allclose(found, tokens + codes, rtol=1e-12, atol=1e-14)


def test_check_heads_refuses_an_indivisible_width() -> None:
    """The sentence names both numbers and what the width is."""
    check_heads(12, 3, "model.channels")
    with pytest.raises(ConfigError) as error:
        check_heads(10, 3, "model.channels")
    assert str(error.value) == (
        "The width of the encoder must be a multiple of num_heads, found 10 (model.channels) and "
        "3; change model.encoder_config."
    )


SIZE = 200_000


@pytest.mark.parametrize(
    ("p", "rate"), [(0.1, 26 / 256), (0.2, 51 / 256), (0.3, 77 / 256), (0.5, 0.5), (0.9, 230 / 256)]
)
def test_ByteDropout_rate_is_quantised_to_bytes(p: float, rate: float) -> None:
    """The share of zeros lies within five standard deviations of the rate in 256ths."""
    torch.manual_seed(0)
    dropped = (ByteDropout(p)(torch.ones(SIZE)) == 0).double()
    deviation = math.sqrt(rate * (1 - rate) / SIZE)
    assert abs(rate - p) <= 1 / 512
    assert abs(float(dropped.mean()) - rate) < 5 * deviation


def test_ByteDropout_every_byte_of_a_draw_is_used_alike() -> None:
    """Each of the eight values that share 64 random bits is dropped at the rate, independently."""
    torch.manual_seed(1)
    dropped = (ByteDropout(0.25)(torch.ones(SIZE)) == 0).double().view(-1, 8)
    bound = 5 / math.sqrt(len(dropped))
    assert float((dropped.mean(dim=0) - 0.25).abs().max()) < bound * math.sqrt(0.25 * 0.75)
    correlation = torch.corrcoef(dropped.t()) - torch.eye(8)
    assert float(correlation.abs().max()) < bound


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_ByteDropout_mean_is_preserved(p: float) -> None:
    """Kept values are scaled by 256 / (256 - threshold), so the expectation is the value."""
    torch.manual_seed(2)
    layer = ByteDropout(p)
    scale = 256 / (256 - layer.threshold)
    values = layer(torch.ones(SIZE, dtype=torch.float64))
    assert values.unique().tolist() == [0, pytest.approx(scale)]
    assert abs(float(values.mean()) - 1) < 5 * math.sqrt((scale - 1) / SIZE)


def test_ByteDropout_gradient_is_the_mask_times_the_scale() -> None:
    """What was dropped gets no gradient, what was kept the scaled one."""
    torch.manual_seed(3)
    layer = ByteDropout(0.3)
    values = (torch.rand(7, 9, dtype=torch.float64) + 1).requires_grad_()
    dropped = layer(values)
    outgoing = torch.randn(7, 9, dtype=torch.float64)
    dropped.backward(outgoing)
    mask = dropped.detach() != 0
    assert 0 < int(mask.sum()) < mask.numel()
    scale = 256 / (256 - 77)
    assert torch.allclose(dropped, values * mask * scale, rtol=1e-14)
    assert torch.allclose(values.grad, outgoing * mask * scale, rtol=1e-14)


def test_ByteDropout_draws_follow_the_seed() -> None:
    """Reproducible under torch.manual_seed, and new at every call."""
    layer, values = ByteDropout(0.5), torch.ones(1000)
    torch.manual_seed(4)
    first, second = layer(values), layer(values)
    torch.manual_seed(4)
    assert torch.equal(layer(values), first)
    assert not torch.equal(first, second)


def test_ByteDropout_is_identity_in_evaluation_or_at_rate_0() -> None:
    """The very same tensor, and no random number is drawn; a rate below 1/512 rounds to 0."""
    values = torch.randn(10)
    state = torch.get_rng_state()
    assert ByteDropout(0.5).eval()(values) is values
    assert ByteDropout(0.0)(values) is values
    assert ByteDropout(0.001)(values) is values
    assert torch.equal(torch.get_rng_state(), state)


def test_ByteDropout_rate_close_to_1_keeps_one_of_256() -> None:
    """The highest rate is 255/256, so that the scale stays finite."""
    torch.manual_seed(5)
    values = ByteDropout(0.999)(torch.ones(SIZE))
    assert values.unique().tolist() == [0, 256]
    assert abs(float(values.mean()) - 1) < 5 * math.sqrt(255 / SIZE)


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ByteDropout_shape_and_type_are_kept(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Any number of values, also none and no multiple of eight, also of a transposed view."""
    values = torch.ones(shape, dtype=dtype).transpose(0, -1)
    dropped = ByteDropout(0.5)(values)
    assert dropped.shape == values.shape
    assert dropped.dtype == dtype
    assert set(dropped.flatten().tolist()) <= {0.0, 2.0}


def test_ByteDropout_input_is_left_alone() -> None:
    """The scale is not applied in place."""
    values = torch.ones(100)
    ByteDropout(0.5)(values)
    assert torch.equal(values, torch.ones(100))
    assert repr(ByteDropout(0.5)) == "ByteDropout(p=0.5)"
