"""The moving average of weights against torch's, and what it leaves alone."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from match_graph.config import ModelConfig
from match_graph.errors import CheckpointError
from match_graph.graph import TokenSpace
from match_graph.nn import MatchModel
from match_graph.training.average import WeightAverage


def move(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator))


def test_it_equals_the_average_of_torch_to_the_bit() -> None:
    """Over five updates, and again after being read from a checkpoint in between."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    average = WeightAverage(model, 0.9)
    expected = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    for number in range(5):
        move(model, number)
        if number == 3:
            saved = copy.deepcopy(average.values)
            average = WeightAverage(model, 0.9)
            average.load(saved)
        average.update()
        expected.update_parameters(model)
    own = [parameter.clone() for parameter in model.parameters()]
    with average.shown():
        for left, right in zip(model.parameters(), expected.module.parameters(), strict=True):
            assert torch.equal(left, right)
    assert all(torch.equal(a, b) for a, b in zip(own, model.parameters(), strict=True))


def test_the_wide_term_stays_the_model_s_own() -> None:
    """Its weights are neither kept twice nor averaged."""
    config = {"num_cls": 2, "num_layers": 1, "position_channels": 4}
    space = TokenSpace(("venue", "word"), (3, 4))
    model = MatchModel(space, 5, ModelConfig(channels=8, encoder_config=config, wide=True))
    assert model.wide is not None
    average = WeightAverage(model, 0.9)
    assert len(average.values) == len(list(model.parameters())) - 1
    average.update()
    start = model.head.label_weight.detach().clone()
    move(model, 0)
    average.update()
    wide, head = model.wide.weight.detach().clone(), model.head.label_weight.detach().clone()
    with average.shown():
        assert torch.equal(model.wide.weight, wide)
        assert torch.allclose(model.head.label_weight, start.lerp(head, 0.1))


def test_averages_of_another_model_are_refused() -> None:
    """Both shapes are in the sentence."""
    average = WeightAverage(nn.Linear(3, 2), 0.9)
    with pytest.raises(CheckpointError) as caught:
        average.load([torch.zeros(2, 2), torch.zeros(2)])
    assert str(caught.value) == (
        "Averages must be of the shapes [[2, 3], [2]], found [[2, 2], [2]]."
    )
