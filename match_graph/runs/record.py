"""``record.json``: provenance of a run."""

import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import torch

from match_graph.config import TrainConfig
from match_graph.io.files import has_file, write_json
from match_graph.io.run_folder import RECORD
from match_graph.runs.readers import read_record
from match_graph.training.device import choose_device

_PACKAGES = ("match-graph", "torch", "torch-geometric", "lightning-fabric", "numpy", "pandas")
#: Entries of the process that ended a run's training, or that evaluated the run first.
_PROCESS = ("processes", "device", "versions", "python", "git")
#: Entries that only some runs have.
Note: TypeAlias = Literal["parameters", "vectors_from", "twins", "network_share", "metadata_weight"]
_NOTES = get_args(Note)


class RunRecord:
    """Provenance of a run, updated by its stages; a resumed run adds to what is there.

    Once a run is trained or evaluated, processes, device, versions and commit stay: whoever opens
    it later, perhaps on another machine, adds seconds and memory alone. Of a training that was
    killed and went on they are those of the process that ended it, and ``resumed`` is true.

    Args:
        folder: Run folder.
        config: Configuration, which says which device is used.
        content: Constant entries: data set, seed and the like.
        writes: Whether this process writes the record.
    """

    def __init__(
        self, folder: Path, config: TrainConfig, content: Mapping[str, Any], writes: bool
    ) -> None:
        before = read_record(folder) if has_file(folder / RECORD) else {}
        self.folder, self.config, self.writes = folder, config, writes
        inputs = {**before.get("input_checksums", {}), **content["input_checksums"]}
        self.content = {**content, "input_checksums": inputs}  # a file may be gone by now
        #: Seconds by stage, without those of a process that was killed in it.
        self.seconds: dict[str, float] = dict(before.get("seconds", {}))
        #: Stage that was begun and has not ended; whether a process went on after such a stage.
        self._stage, self._resumed = before.get("stage"), bool(before.get("resumed"))
        self._notes = {name: before[name] for name in _NOTES if name in before}
        is_trained = "train" in self.seconds and self._stage != "train"
        is_settled = is_trained or "evaluate" in self.seconds
        self._process = {name: before[name] for name in _PROCESS if is_settled and name in before}
        self._peak: dict[str, float] = before.get("peak_memory_mib", {})

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Adds the seconds of the block to a stage, and writes the record before and behind it.

        A block that breaks off leaves its stage in the record, so that the next one knows of it.
        """
        self._resumed |= self._stage is not None
        self._stage = stage
        self.write()
        start = time.monotonic()
        try:
            yield
            self._stage = None
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - start
            self.write()

    def note(self, name: Note, value: Any) -> None:
        """Sets an entry that only some runs have, and writes the record."""
        self._notes[name] = value
        self.write()

    def write(self) -> None:
        """Writes ``record.json``; peak memory is the largest of all processes so far."""
        if not self.writes:
            return
        seconds = {name: round(value, 3) for name, value in self.seconds.items()}
        for name, value in measure_peak_memory().items():
            self._peak[name] = max(value, self._peak.get(name, 0.0))
        process = {"device": describe_device(self.config.accelerator), **describe_software()}
        state = {"resumed": self._resumed} | ({"stage": self._stage} if self._stage else {})
        content = {**self.content, "seconds": seconds, **state, **self._notes}
        content |= {"peak_memory_mib": self._peak, **process, **self._process}
        write_json(self.folder / RECORD, content)


def list_twins(record: Mapping[str, Any]) -> list[str]:
    """Sentence of `describe_twins` for each evaluated split of a run, by its record."""
    twins = record.get("twins", {})
    return [describe_twins(split, one["documents"], one["of"]) for split, one in twins.items()]


def describe_twins(split: str, number: int, total: int) -> str:
    """Sentence on how many documents of a split have the word sequence of a training document."""
    have = "has" if number == 1 else "have"
    share = f" ({number / total:.1%})" if number else ""
    return (
        f"{number:,} of {total:,} {split} documents{share} {have} the words of a training document."
    )


@cache
def describe_software() -> dict[str, Any]:
    """Versions of packages and Python, and the commit."""
    return {
        "versions": {name: version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "git": find_git_hash(),
    }


def measure_peak_memory() -> dict[str, float]:
    """Peak resident memory of this process, and of the GPU if one is used, in MiB."""
    import resource

    unit = 1024 if platform.system() == "Linux" else 1024**2
    peak = {"host": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)}
    if torch.cuda.is_available():
        peak["cuda"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
    return peak


def describe_processor() -> str:
    """CPU architecture and instruction set of torch's kernels; rounding depends on both."""
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def describe_device(accelerator: str) -> dict[str, Any]:
    """Processor and, if it is used, GPU."""
    device: dict[str, Any] = {"processor": describe_processor(), "threads": torch.get_num_threads()}
    if choose_device(accelerator).type == "cuda":
        device["cuda"] = torch.cuda.get_device_name()
    return device


@cache
def find_git_hash() -> str | None:
    """Commit of the checkout that holds the package when first asked; None outside one."""
    path = Path(__file__)

    def ask(*arguments: str) -> str:
        done = subprocess.run(  # noqa: S603
            ["git", *arguments],  # noqa: S607
            cwd=path.parent, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
        return done.stdout.strip()

    try:
        ask("ls-files", "--error-unmatch", path.name)  # else one around an installed package
        return ask("describe", "--always", "--dirty", "--abbrev=40") or None
    except (OSError, subprocess.SubprocessError):
        return None
