"""What tests of benchmarks share: a toy folder, an experiment of seconds on it."""

from pathlib import Path

import pytest

from match_graph.benchmark import Experiment
from match_graph.testing import write_match_folder

#: So that a cell takes less than a second.
TINY = {
    "pretrain.samples": 2000,
    "pretrain.channels": 16,
    "model.channels": 16,
    "train.batch_size": 16,
    "train.accelerator": "cpu",
    "train.precision": "32-true",
}
SMALL_MATCH = {"model.encoder_config": {"num_layers": 1, "num_cls": 1, "position_channels": 4}}


@pytest.fixture
def toy_folder(tmp_path: Path) -> Path:
    """The toy folder, its data set's name "toy"."""
    return write_match_folder(tmp_path / "toy")


@pytest.fixture
def make_experiment(toy_folder: Path):
    """A small experiment on the toy folder, changed by keywords."""

    def make(**changes) -> Experiment:
        content = {
            "name": "trial",
            "question": "Is it better?",
            "datasets": [str(toy_folder)],
            "runs": 2,
            "measures": ["P@1", "NDCG@5"],
            "settings": {**TINY, "train.epochs": 1},
            "reference": "MATCH",
            "rows": [
                {"name": "prior", "encoder": "prior"},
                {"name": "MATCH", "settings": SMALL_MATCH},
            ],
        }
        return Experiment(**{**content, **changes})

    return make
