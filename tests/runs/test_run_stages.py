"""What a stage of a run does to its process and its record, also where it breaks off."""

from pathlib import Path

import pytest
import torch

from match_graph.runs import start_run
from match_graph.runs import run as run_module
from match_graph.training.device import deterministic


def test_Run_train_deterministic_algorithms_end_with_it(
    monkeypatch: pytest.MonkeyPatch, small_settings, tmp_path: Path
) -> None:
    """`train.deterministic` holds while a stage works, and not in the process that goes on."""
    gpu = torch.device("cuda")  # there need not be one
    monkeypatch.setattr(run_module, "deterministic", lambda config, _: deterministic(config, gpu))
    config = small_settings("train.deterministic=true", "train.epochs=2")
    run = start_run("synthetic", config, tmp_path / "run", tmp_path / "root")

    def watch(_: object) -> None:
        assert torch.are_deterministic_algorithms_enabled()
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run.train(watch)
    assert not torch.are_deterministic_algorithms_enabled()
