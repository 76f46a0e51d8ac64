"""How fast each stage is: one function per stage, each against a baseline on the same data."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from match_graph.config import Config
from match_graph.datasets import CorpusDataset
from match_graph.errors import ConfigError
from match_graph.pretrain import SphericalTrainer

#: Between two looks at the memory.
_MEMORY_SECONDS = 0.002


@dataclass(frozen=True)
class Speed:
    """One measure of one stage.

    Args:
        stage: Which.
        size: Of the data, for example documents and edges.
        device: What it ran on.
        rate: How many ``unit`` per second.
        unit: What is counted.
        baseline: What ours is compared with, and its rate in words.
        ratio: Our rate over the baseline's.
        peak_mib: Peak memory beyond graph and tables, see `MemoryPeak`.
        more: Further numbers of the stage.
    """

    stage: str
    size: str
    device: str
    rate: float
    unit: str
    baseline: str
    ratio: float
    peak_mib: float | None
    more: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """As one flat JSON object."""
        content = asdict(self)
        more = content.pop("more")
        return {**content, **more}


class MemoryPeak:
    """The peak of this process's anonymous memory above what it was at the start, in MiB.

    A thread reads ``RssAnon`` of ``/proc/self/status`` every 2 ms. Anonymous memory leaves out what
    is mapped from files: the built graph. On CUDA it is the allocator's peak above the start. None
    where neither is to be had.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.start = self.peak = self._read()

    def _read(self) -> float | None:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20
        status = Path("/proc/self/status")
        if not status.is_file():
            return None
        for line in status.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1024
        return None

    @property
    def mib(self) -> float | None:
        """Peak above the start."""
        if self.peak is None or self.start is None:
            return None
        return self.peak - self.start

    @contextmanager
    def watch(self) -> Iterator["MemoryPeak"]:
        """Watches as long as the block runs."""
        done = threading.Event()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.start = torch.cuda.memory_allocated(self.device) / 2**20
        else:
            self.start = self._read()
        self.peak = self.start

        def look() -> None:
            while not done.wait(_MEMORY_SECONDS):
                self._look()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            done.set()
            thread.join()
            self._look()

    def _look(self) -> None:
        now = self._read()
        if now is not None:
            self.peak = now if self.peak is None else max(self.peak, now)


def measure_pretrain(
    dataset: CorpusDataset, config: Config, seconds: float, device: torch.device
) -> Iterator[Speed]:
    """Positives per second of pre-training, against independent negatives.

    Both modes take turns, so that a machine that slows down slows both. The memory is the peak
    from before a trainer is made, less its tables.
    """
    space = dataset.token_space(config.data.min_count, config.data.min_word_count)
    rows = dict(zip(space.types, space.num_kept, strict=True))
    shared = config.pretrain.model_copy(update={"shared_negatives": True})
    with MemoryPeak(device).watch() as memory:
        ours = SphericalTrainer(dataset[0], shared, config.seed, rows, device=device)
        _fit_for(ours, 0.5)
    tables = sum(table.numel() * table.element_size() for table in ours.tables.values()) / 2**20
    peak = None if memory.mib is None else max(0.0, memory.mib - tables)
    alone = config.pretrain.model_copy(update={"shared_negatives": False})
    baseline = SphericalTrainer(dataset[0], alone, config.seed, rows, device=device)
    _fit_for(baseline, 0.5)
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        rates[0].append(_fit_for(ours, seconds / 6))
        rates[1].append(_fit_for(baseline, seconds / 6))
    rate, slow = sorted(rates[0])[1], sorted(rates[1])[1]  # medians
    data = dataset[0]
    edges = sum(data[kind].edge_index.size(1) for kind in data.edge_types)
    yield Speed(
        "pretrain",
        f"{dataset.name}: {data['document'].num_nodes:,} documents, {edges:,} edges, "
        f"{shared.negatives} negatives, chunks of {shared.chunk_size}, {shared.channels} channels",
        describe(device),
        round(rate, 1),
        "positives/s",
        f"independent negatives: {slow:,.0f} positives/s",
        round(rate / slow, 3),
        None if peak is None else round(peak, 1),
        {"comparisons_per_s": round(rate * shared.negatives, 1)},
    )


def _fit_for(trainer: SphericalTrainer, seconds: float) -> float:
    """Positives per second while training for about so many seconds."""
    step, start = 100 * trainer.config.chunk_size, time.perf_counter()
    before = trainer.num_seen
    while time.perf_counter() - start < seconds:
        aim = trainer.num_seen + step // 10
        trainer.fit(aim * 2, stop=aim)
        synchronize(trainer.device)
    return (trainer.num_seen - before) / (time.perf_counter() - start)


def synchronize(device: torch.device) -> None:
    """Waits for a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe(device: torch.device) -> str:
    """A device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {torch.get_num_threads()} threads"


#: What measures a stage; a further stage is one more function here.
SPEED_STAGES: dict[str, Callable[[CorpusDataset, Config, float, torch.device], Iterator[Speed]]] = {
    "pretrain": measure_pretrain
}


def measure_speed(
    stage: str, dataset: CorpusDataset, config: Config, seconds: float, device: torch.device
) -> Iterator[Speed]:
    """Measures one stage, or ``all``.

    Args:
        stage: A name in `SPEED_STAGES`, or ``all``.
        dataset: What it runs on.
        config: Settings; those of the stage count.
        seconds: About how long each stage is measured.
        device: Where it runs.

    Raises:
        ConfigError: There is no such stage.
    """
    if stage != "all" and stage not in SPEED_STAGES:
        raise ConfigError(
            f"A stage must be one of {sorted(SPEED_STAGES)} or 'all', found '{stage}'."
        )
    for name in SPEED_STAGES if stage == "all" else [stage]:
        yield from SPEED_STAGES[name](dataset, config, seconds, device)
