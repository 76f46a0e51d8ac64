"""State of a training: what the lazy optimizer of the embedding takes from the settings."""

import pytest
import torch

from match_graph.config import ModelConfig, TrainConfig
from match_graph.graph import TokenSpace
from match_graph.nn import MatchModel
from match_graph.training import learner
from match_graph.training.average import WeightAverage
from match_graph.training.device import make_fabric
from match_graph.training.learner import make_learner
from match_graph.training.optimizers import find_progress, set_progress


@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_make_learner_rows_have_every_steps_settings(
    monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    """Rates and averaging of the embedding's rows are those of all other weights, step by step."""
    given: list[tuple] = []
    monkeypatch.setattr(learner, "RowAdam", lambda *arguments: given.append(arguments))
    encoder = {"num_cls": 1, "num_layers": 1, "position_channels": 4}
    settings = ModelConfig(channels=8, encoder_config=encoder)
    model = MatchModel(TokenSpace(("venue", "word"), (3, 4)), 5, settings)
    config = TrainConfig(
        epochs=4, batch_size=8, learning_rate=0.01, warmup=0.3, schedule=schedule, average=0.25,
        average_after=2, accelerator="cpu", precision="32-true",
    )  # fmt: skip
    found = make_learner(make_fabric(config), model, config, 40, origin="")
    [(table, optimizer, rates, average, kept)] = given
    assert (table, average) == (model.embedding, found.average)
    expected = []
    for step in range(1, 41):
        set_progress(optimizer, find_progress(step, 40), config)
        expected.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx(expected)
    alone = WeightAverage(torch.nn.Linear(1, 1), 0.25)
    assert kept == [alone.keeps(step - 20) for step in range(1, 41)]  # from the third epoch on
