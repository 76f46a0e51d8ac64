"""`ByteDropout`: its rate, scale, gradient and seed, and when it does nothing."""

import math

import pytest
import torch

from match_graph.nn.dropout import ByteDropout

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


def test_ByteDropout_nothing_happens_evaluation_or_without_rate() -> None:
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
