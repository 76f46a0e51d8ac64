"""``record.json`` of a run folder: how its results were made."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from match_graph.config import TrainConfig
from match_graph.errors import CheckpointError
from match_graph.training.device import choose_device
from match_graph.training.files import RECORD, read_json

_PACKAGES = ("match-graph", "torch", "torch-geometric", "lightning", "numpy", "pandas")


def describe_process(config: TrainConfig) -> dict[str, Any]:
    """Memory, device, versions and commit of this process, for a record."""
    return {
        "peak_memory_mib": measure_peak_memory(),
        "device": describe_device(config.accelerator),
        "versions": {name: version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "git": find_git_hash(),
    }


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a run folder.

    Raises:
        CheckpointError: It is broken, or of another kind.
    """
    record = read_json(folder / RECORD)
    if not isinstance(record, dict) or not {"data_checksum", "seconds"} <= record.keys():
        raise CheckpointError(
            f"'{folder / RECORD}' must hold data_checksum and seconds, but it does not; start the "
            f"run again with --overwrite."
        )
    return record


def measure_peak_memory() -> dict[str, float]:
    """Peak resident memory of this process, and of the GPU if one is used, in MiB."""
    import resource

    unit = 1024 if platform.system() == "Linux" else 1024**2
    peak = {"host": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)}
    if torch.cuda.is_available():
        peak["cuda"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return peak


def describe_device(accelerator: str) -> dict[str, Any]:
    """The processor and, if it is used, the GPU."""
    device: dict[str, Any] = {"processor": platform.machine(), "threads": torch.get_num_threads()}
    if choose_device(accelerator).type == "cuda":
        device["cuda"] = torch.cuda.get_device_name()
    return device


def find_git_hash() -> str | None:
    """The commit of the checkout that the package lies in; None outside one."""
    try:
        result = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40"],  # noqa: S607
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None
