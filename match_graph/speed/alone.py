"""Measurements in a new process, so that its peak memory is that of the stage alone."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

import torch

from match_graph.errors import MatchGraphError
from match_graph.openmp import limit_spinning
from match_graph.speed.measure import CPU, MemoryPeak, Rates, take_turns

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Measured:
    """Result of a measurement in a process of its own.

    Args:
        rates: Rates of ours and of the baseline.
        peak_mib: Peak memory of ours in MiB, above what the process had before; see `MemoryPeak`.
        more: Further measures by name.
    """

    rates: Rates
    peak_mib: float | None
    more: dict[str, float]


def run_alone(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls a module-level function in a new process, which takes a few seconds to start.

    Raises:
        MatchGraphError: The process was killed; else what the function raises.
    """
    limit_spinning()  # as the command line does
    context, threads = get_context("spawn"), torch.get_num_threads()
    try:
        with ProcessPoolExecutor(1, context, torch.set_num_threads, (threads,)) as pool:
            return pool.submit(work, *args, **kwargs).result()
    except BrokenProcessPool as error:
        raise MatchGraphError(
            "A measured process must come to its end, but it was ended from outside, as happens "
            "where memory runs out; choose a smaller data set."
        ) from error


def measure_both(
    ours: Callable[[], float],
    name: str,
    baseline: Callable[[], float],
    seconds: float,
    busy: int = 0,
) -> Measured:
    """Peak memory of ours, then the rates of "ours" and of a named baseline by `take_turns`."""
    with MemoryPeak(CPU).watch() as memory:
        ours()
    rates = take_turns({"ours": ours, name: baseline}, seconds, CPU, busy)
    return Measured(rates, memory.mib, {})
