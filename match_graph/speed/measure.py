"""Rates measured in turns, optionally beside busy processes, and peak memory."""

import ctypes
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from match_graph.config import Config
from match_graph.datasets import CorpusDataset
from match_graph.graph import TokenSpace

CPU = torch.device("cpu")
#: Seconds between two readings of memory.
_MEMORY_SECONDS = 0.002
_TURNS = 3
#: Program of a busy process. It ends with the process that started it, which closes its input.
_SPIN = """
import os, sys, threading
def follow():
    sys.stdin.buffer.read()
    os._exit(0)
threading.Thread(target=follow, daemon=True).start()
os.write(1, b".")
while True:
    pass
"""


@dataclass(frozen=True)
class Bench:
    """Data set, settings and device of a measurement.

    Args:
        dataset: Built data set.
        config: Resolved configuration; the settings of the stage count.
        seconds: Approximate seconds per measured stage.
        device: Device of the measurement.
        busy: Number of busy processes beside which the stage is measured again; 0 for none.
    """

    dataset: CorpusDataset
    config: Config
    seconds: float
    device: torch.device
    busy: int = 0

    @property
    def space(self) -> TokenSpace:
        """Token ids of the data set at the minimum counts of the settings."""
        return self.dataset.token_space(self.config.data.min_count, self.config.data.min_word_count)

    @property
    def on_cpu(self) -> "Bench":
        """The same bench on the CPU, where some stages always run."""
        return replace(self, device=CPU)


@dataclass(frozen=True)
class Speed:
    """One measure of one stage.

    Args:
        stage: Name of the stage.
        size: Size of the data, for example documents and edges.
        device: Device of the measurement.
        rate: Our rate, in ``unit``.
        unit: Unit of the rate, such as "documents/s".
        baseline: Name of the baseline, and its rate as text.
        ratio: Ratio of our rate to the baseline's.
        peak_mib: Peak memory in MiB above that at the start, see `MemoryPeak`.
        more: Further measures of the stage, by name.
    """

    stage: str
    size: str
    device: str
    rate: float
    unit: str
    baseline: str
    ratio: float
    peak_mib: float | None
    more: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Flat JSON object of the measure."""
        content = asdict(self)
        more = content.pop("more")
        return {**content, **more}


@dataclass(frozen=True)
class Rates:
    """Rates from `take_turns`.

    Args:
        per_second: Units per second of each work item, the median over its turns; ours first.
        cpu_share: Processor time of this process as a share of the elapsed time of all its threads,
            in 0..1; far below 1 if the machine does other work too, or in stages of one thread.
        loaded: Units per second of ours beside busy processes; None without any.
        busy: Number of those busy processes.
    """

    per_second: dict[str, float]
    cpu_share: float
    loaded: float | None = None
    busy: int = 0


def take_turns(
    work: Mapping[str, Callable[[], float]], seconds: float, device: torch.device, busy: int = 0
) -> Rates:
    """Runs work items in turns, so that a machine that slows down affects all of them.

    Args:
        work: Work items, ours first; a call does some work and returns its number of units. Each is
            called once to warm up, and then at least three times.
        seconds: Seconds for all items together; more if single calls take longer.
        device: Device to synchronize at the end of each turn.
        busy: Number of busy processes beside which ours is measured again after each round.
    """
    for run in work.values():
        run()
    synchronize(device)
    quiet: dict[str, list[float]] = {name: [] for name in work}
    loaded: list[float] = []
    each = seconds / (_TURNS * (len(work) + bool(busy)))
    used = possible = 0.0
    for _ in range(_TURNS):
        start, cpu_start = time.perf_counter(), time.process_time()
        for name, run in work.items():
            quiet[name].append(_measure_rate(run, each, device))
        possible += (time.perf_counter() - start) * torch.get_num_threads()
        used += time.process_time() - cpu_start
        if busy:
            with busy_processes(busy):
                loaded.append(_measure_rate(next(iter(work.values())), each, device))
    return Rates(
        {name: statistics.median(rates) for name, rates in quiet.items()},
        used / possible,
        statistics.median(loaded) if busy else None,
        busy,
    )


def _measure_rate(run: Callable[[], float], seconds: float, device: torch.device) -> float:
    """Units per second of a work item, repeated for some seconds, at least once."""
    begin = time.perf_counter()
    count = run()
    while time.perf_counter() - begin < seconds:
        count += run()
    synchronize(device)
    return count / (time.perf_counter() - begin)


@contextmanager
def busy_processes(number: int) -> Iterator[list[int]]:
    """Runs busy processes during the block, and gives their ids; they end with this process."""
    with ExitStack() as stack:
        processes = []
        for _ in range(number):
            process = subprocess.Popen(  # noqa: S603 - a command of ours
                [sys.executable, "-I", "-S", "-c", _SPIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            stack.enter_context(process)  # closes its pipes and waits for it
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            process.stdout.read(1)  # it has started
        yield [process.pid for process in processes]


class MemoryPeak:
    """Peak anonymous memory of this process above that at the start, in MiB.

    A thread reads ``RssAnon`` of ``/proc/self/status`` every 2 ms. Anonymous memory excludes files
    that are mapped, such as the built graph. Memory that was freed before is first returned to the
    system, where the C library can, as it would be reused without being counted. On CUDA it is the
    allocator's peak above the start. None if neither can be read.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.start = self.peak = self._read()

    def _read(self) -> float | None:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 2**20
        return read_status("RssAnon")

    @property
    def mib(self) -> float | None:
        """Peak above the start, in MiB."""
        if self.peak is None or self.start is None:
            return None
        return self.peak - self.start

    @contextmanager
    def watch(self) -> Iterator["MemoryPeak"]:
        """Watches the memory within the block."""
        done = threading.Event()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.start = torch.cuda.memory_allocated(self.device) / 2**20
        else:
            _give_back()
            self.start = self._read()
        self.peak = self.start

        def watch() -> None:
            while not done.wait(_MEMORY_SECONDS):
                self._update()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            done.set()
            thread.join()
            self._update()

    def _update(self) -> None:
        now = self._read()
        if now is not None:
            self.peak = now if self.peak is None else max(self.peak, now)


def read_status(key: str, process: int | str = "self") -> float | None:
    """Memory of a process in MiB by a key of ``/proc/PID/status``; None if it has no such entry."""
    status = Path(f"/proc/{process}/status")
    if not status.is_file():
        return None
    for line in status.read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) / 1024
    return None


def _give_back() -> None:
    """Returns freed memory to the system, by glibc's malloc_trim if available."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def count_mib(tensors: Iterable[torch.Tensor]) -> float:
    """Size of tensors in MiB."""
    return sum(tensor.nbytes for tensor in tensors) / 2**20


def synchronize(device: torch.device) -> None:
    """Waits for the work of a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def describe(device: torch.device) -> str:
    """Description of a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {torch.get_num_threads()} threads"


def make_speed(
    bench: Bench,
    stage: str,
    size: str,
    unit: str,
    rates: Rates,
    baseline: str,
    peak_mib: float | None,
    **more: float,
) -> Speed:
    """Measure of ours against one baseline.

    Args:
        bench: Bench, which gives data set and device.
        stage: Name of the stage.
        size: Size of the data, beside the name of the data set.
        unit: Unit of the rate.
        rates: Rates of ours and of the baseline.
        baseline: Name of the baseline in ``rates``.
        peak_mib: Peak memory in MiB.
        **more: Further measures by name.
    """
    ours, theirs = next(iter(rates.per_second.values())), rates.per_second[baseline]
    loaded = {} if rates.loaded is None else {"busy": rates.busy, "loaded_rate": rates.loaded}
    return Speed(
        stage,
        f"{bench.dataset.name}: {size}",
        describe(bench.device),
        float(f"{ours:.6g}"),
        unit,
        f"{baseline}: {theirs:,.6g} {unit}",
        float(f"{ours / theirs:.4g}"),
        None if peak_mib is None else round(peak_mib, 1),
        {
            **{name: float(f"{value:.6g}") for name, value in {**more, **loaded}.items()},
            "cpu_share": round(rates.cpu_share, 3),
        },
    )


def watch_memory(bench: Bench, work: Callable[[], object]) -> float | None:
    """Peak memory in MiB of calling a function; see `MemoryPeak`."""
    with MemoryPeak(bench.device).watch() as memory:
        work()
    return memory.mib


def compare(
    bench: Bench,
    stage: str,
    size: str,
    unit: str,
    work: Mapping[str, Callable[[], float]],
    peak_mib: float | None,
    baselines: int = 1,
    more: Callable[[Mapping[str, float]], Mapping[str, float]] = lambda _: {},
) -> Iterator[Speed]:
    """Measures ours against each baseline, in turns on the same data.

    Args:
        bench: Bench, which gives data set, device, and seconds.
        stage: Name of the stage.
        size: Size of the data, beside the name of the data set.
        unit: Unit of the rate.
        work: Work items by name, as for `take_turns`: ours, the baselines, and others for ``more``.
        peak_mib: Peak memory of ours in MiB.
        baselines: Number of baselines.
        more: Further measures by name, from the units per second of the work items.
    """
    rates = take_turns(work, bench.seconds, bench.device, bench.busy)
    for name in [*work][1 : 1 + baselines]:
        yield make_speed(bench, stage, size, unit, rates, name, peak_mib, **more(rates.per_second))
