"""A bench of seconds: the small planted corpus, a small encoder."""

import pytest
import torch

from match_graph.datasets import Synthetic
from match_graph.runs.configure import resolve_config
from match_graph.speed import Bench


@pytest.fixture(scope="session")
def bench(synthetic: Synthetic, small_settings) -> Bench:
    """Bench in float32 on the CPU, with a third of a second per stage."""
    config = small_settings("train.precision=32-true", "train.accelerator=cpu")
    return Bench(synthetic, resolve_config(config, synthetic), 0.3, torch.device("cpu"))
