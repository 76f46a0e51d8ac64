"""The average of weights against its definition and torch's, and how far back it reaches."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim.swa_utils import AveragedModel

from match_graph.errors import CheckpointError
from match_graph.training.average import WeightAverage


def move(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))


def test_WeightAverage_equals_the_recursion_in_float64() -> None:
    """Over the first steps, each of which counts, and again after being read from a checkpoint."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    average = WeightAverage(model, 0.2)
    expected = [
        torch.zeros(parameter.shape, dtype=torch.float64) for parameter in model.parameters()
    ]
    for step in range(1, 65):
        move(model, step)
        if step == 40:
            saved = copy.deepcopy(average.values)
            average = WeightAverage(model, 0.2)
            average.load(saved)
        average.update(step)
        weight = (3 + 1) / (step + 3)
        expected = [
            (1 - weight) * value + weight * parameter.detach().double()
            for value, parameter in zip(expected, model.parameters(), strict=True)
        ]
    own = [parameter.clone() for parameter in model.parameters()]
    with average.shown():
        for left, right in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(left, right.float())
    assert all(torch.equal(a, b) for a, b in zip(own, model.parameters(), strict=True))


def test_WeightAverage_equals_torch_mean_at_share_one_half() -> None:
    """Torch's own average, which is the mean of all steps."""
    model = nn.Linear(3, 4)
    average, expected = WeightAverage(model, 0.5), AveragedModel(model)
    for step in range(1, 61):
        move(model, step)
        average.update(step)
        expected.update_parameters(model)
    with average.shown():
        for left, right in zip(model.parameters(), expected.module.parameters(), strict=True):
            torch.testing.assert_close(left, right)


def test_WeightAverage_steps_before_the_first_are_not_taken_in() -> None:
    """Stochastic weight averaging starts anew from its first step, whatever was before."""
    model = nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, 0.5, after=4)
    for step in range(-20, 31):
        with torch.no_grad():
            model.weight.fill_(step)
        average.update(step)
    assert float(average.values[0]) == pytest.approx(sum(range(1, 31)) / 30)


@given(st.floats(0.02, 0.5), st.integers(100, 3000))
def test_WeightAverage_what_is_averaged_is_share_of_steps_old(share: float, last: int) -> None:
    """A weight that equals the step tells its age: also where one step in 8 is taken in."""
    model = nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, share)
    for step in range(1, last + 1):
        with torch.no_grad():
            model.weight.fill_(step)
        average.update(step)
    age = last - float(average.values[0])
    assert age == pytest.approx(share * last, rel=0.05, abs=9)


def test_WeightAverage_averages_of_another_model_are_refused() -> None:
    """Both shapes are in the sentence."""
    average = WeightAverage(nn.Linear(3, 2), 0.25)
    with pytest.raises(CheckpointError) as caught:
        average.load([torch.zeros(2, 2), torch.zeros(2)])
    assert str(caught.value) == (
        "Averages must be of the shapes [[2, 3], [2]], found [[2, 2], [2]]."
    )


def test_WeightAverage_leave_out_leaves_one_to_the_caller() -> None:
    """Its average stays, is shown with the others, and is updated again once it is taken in."""
    model = nn.Linear(3, 4)
    average, expected = WeightAverage(model, 0.25), WeightAverage(model, 0.25)
    left_out = average.leave_out(model.bias)
    before = left_out.clone()
    for step in range(1, 10):
        move(model, step)
        average.update(step)
        expected.update(step)
    assert torch.equal(left_out, before)
    left_out.copy_(expected.values[1])
    average.take_in(model.bias)
    move(model, 10)
    average.update(10)
    expected.update(10)
    for left, right in zip(average.values, expected.values, strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_WeightAverage_keeps_is_the_product_over_8_steps(share: float) -> None:
    """An update after 8 steps decays the average as 8 updates do; at share 1/2 it is the mean."""
    average = WeightAverage(nn.Linear(1, 1), share)
    kept, expected = 1.0, 1.0
    for step in range(65, 513):
        kept *= average.keeps(step)
        expected *= 1 - (average.eta + 1) / (step + average.eta)
        if step % 8 == 0:
            assert kept == pytest.approx(expected)
    if share == 0.5:
        assert kept == pytest.approx(64 / 512)


@given(step=st.integers(-3, 200), share=st.sampled_from([0.1, 0.25, 0.5]))
def test_WeightAverage_keeps_is_what_an_update_leaves_of_it(step: int, share: float) -> None:
    """All of it before the first step and between two turns, nothing at the first."""
    model = nn.Linear(1, 1, bias=False)
    average = WeightAverage(model, share)
    with torch.no_grad():
        average.values[0].fill_(1.0)
        model.weight.fill_(0.0)
    average.update(step)
    assert float(average.values[0]) == pytest.approx(average.keeps(step), abs=1e-6)
    assert average.keeps(1) == 0.0
