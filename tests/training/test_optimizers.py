"""Optimizer: groups of parameters, and the schedule."""

import pytest

from match_graph.config import ModelConfig, TrainConfig
from match_graph.graph import NodeFeatures, TokenSpace
from match_graph.nn import MatchModel
from match_graph.training.optimizers import (
    find_progress,
    make_optimizer,
    schedule,
    set_progress,
)

SPACE = TokenSpace(("venue", "word"), (3, 4))


def make_model() -> MatchModel:
    config = {"num_cls": 2, "num_layers": 1, "position_channels": 4}
    settings = ModelConfig(channels=8, encoder_config=config)
    return MatchModel(SPACE, 5, settings, features=NodeFeatures(3))


def test_schedule_warms_up_then_falls_to_zero() -> None:
    """Linear from 0 to 1 over the warm-up, linear to 0 at the end; never negative."""
    assert [schedule(p, 0.2) for p in (0.0, 0.1, 0.2, 0.6, 1.0, 1.1)] == pytest.approx(
        [0, 0.5, 1, 0.5, 0, 0]
    )
    assert schedule(0.0, 0.0) == 1.0


def test_schedule_constant_stays_after_the_warm_up() -> None:
    """Adam at a constant rate, as in the paper; also at the last step."""
    found = [schedule(p, 0.2, "constant") for p in (0.0, 0.1, 0.2, 0.6, 1.0)]
    assert found == pytest.approx([0, 0.5, 1, 1, 1])


def test_find_progress_one_step_has_a_rate() -> None:
    """Else it is the share of the steps, 1 with the last; a single step is not at rate 0."""
    assert [find_progress(step, 4) for step in (1, 2, 4)] == [0.25, 0.5, 1.0]
    assert schedule(find_progress(1, 1), 0.1) > 0.5


@pytest.mark.parametrize(("kind", "rate"), [("linear", 0.001), ("constant", 0.002)])
def test_set_progress_follows_the_schedule(kind: str, rate: float) -> None:
    """Half of the way down, each group has half of its rate; all of it at a constant rate."""
    config = TrainConfig(learning_rate=0.002, batch_size=64, warmup=0.2, schedule=kind)
    optimizer = make_optimizer(make_model(), config)
    set_progress(optimizer, 0.6, config)
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == pytest.approx([rate] * len(rates))


def test_set_progress_keeps_the_factors_of_an_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder has a tenth of the rate of all else, at the peak and half of the way down."""
    model = make_model()
    monkeypatch.setattr(type(model.encoder), "rate_factors", {"": 0.1})
    config = TrainConfig(learning_rate=0.002, batch_size=64, warmup=0.2)
    optimizer = make_optimizer(model, config)
    for progress, rate in ((0.2, 0.002), (0.6, 0.001)):
        set_progress(optimizer, progress, config)
        rates = {one: group["lr"] for group in optimizer.param_groups for one in group["params"]}
        for name, parameter in model.named_parameters():
            expected = 0.1 * rate if name.startswith("encoder.") else rate
            assert rates[parameter] == pytest.approx(expected), name


def test_make_optimizer_decays_matrices_only() -> None:
    """Weight decay leaves embeddings, biases and norms alone.

    Every parameter is in one group; only matrices outside the embedding decay.
    """
    model = make_model()
    groups = make_optimizer(model, TrainConfig(weight_decay=0.1, batch_size=8)).param_groups
    decayed = {id(parameter) for parameter in groups[0]["params"]}
    for name, parameter in model.named_parameters():
        expected = parameter.dim() > 1 and name != "embedding.weight"
        assert (id(parameter) in decayed) == expected, name
    total = sum(len(group["params"]) for group in groups)
    assert total == len(list(model.parameters()))
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0, 0.0]
    adam = TrainConfig(optimizer="adam", weight_decay=0.1, batch_size=8)
    groups = make_optimizer(model, adam).param_groups
    assert [group["weight_decay"] for group in groups] == [0.0, 0.0, 0.0]
