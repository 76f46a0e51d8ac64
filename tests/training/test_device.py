"""Device and precision."""

import os
from types import SimpleNamespace

import pytest
import torch

from match_graph.config import TrainConfig
from match_graph.errors import ConfigError
from match_graph.training import device as device_module
from match_graph.training.device import choose_device, choose_precision, make_fabric


def test_precision_is_what_is_asked_for() -> None:
    """`train.precision` forces it; auto is one of the two, and resolved the same way."""
    for precision in ("32-true", "bf16-mixed"):
        config = TrainConfig(precision=precision)
        assert make_fabric(config)._precision.precision == choose_precision(config) == precision
    assert choose_precision(TrainConfig(accelerator="cpu")) in ("32-true", "bf16-mixed")


def test_a_gpu_that_is_not_there_is_one_sentence() -> None:
    """So is a device that nobody knows."""
    wrong = ["tpu"] if torch.cuda.is_available() else ["tpu", "cuda"]
    for device in wrong:
        with pytest.raises(ConfigError) as caught:
            choose_device(device)
        assert str(caught.value) == (
            f"The device must be 'auto', 'cpu' or, where torch finds a GPU, 'cuda', "
            f"found '{device}'."
        )
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(("devices", "count"), [(1, None), (2, "1000")])
def test_make_fabric_limits_spinning_of_the_processes_that_it_starts(
    monkeypatch: pytest.MonkeyPatch, devices: int, count: str | None
) -> None:
    """They take the variable over; without others this process's environment is left alone."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    found: list[str | None] = []
    fabric = SimpleNamespace(
        launch=lambda: found.append(os.environ.get("GOMP_SPINCOUNT")), strategy=None, world_size=1
    )
    monkeypatch.setattr(device_module, "Fabric", lambda **_: fabric)
    make_fabric(TrainConfig(accelerator="cpu", devices=devices))
    assert found == [count]
