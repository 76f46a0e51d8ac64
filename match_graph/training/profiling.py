"""Profile of some training steps, by torch.profiler."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from match_graph.io.files import write_beside, write_text

#: Numbers of steps that are skipped, that warm the profiler up, and that are recorded.
WAIT, WARMUP, ACTIVE = 3, 2, 5
#: Operations in the table.
_ROWS = 40


@contextmanager
def profile_steps(folder: Path | None) -> Iterator[Callable[[], None]]:
    """Callback for the end of each step, which records some of the first steps.

    Writes ``trace.json`` (for chrome://tracing or ui.perfetto.dev) and ``operations.txt``, the
    operations by their own time, on the CPU and on CUDA where there is a device.

    Args:
        folder: Folder of both; None records nothing.
    """
    if folder is None:
        yield lambda: None
        return
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # prints nothing
    has_cuda = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if has_cuda else [])]
    by = f"self_{'device' if has_cuda else 'cpu'}_time_total"

    def write(found: profile) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        table = found.key_averages().table(sort_by=by, row_limit=_ROWS)
        write_beside(folder / "trace.json", lambda place: found.export_chrome_trace(str(place)))
        write_text(folder / "operations.txt", table)

    steps = schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1)
    with profile(  # of one cycle: torch 2.11 warns of those before it unless they are kept
        activities=activities, schedule=steps, on_trace_ready=write, acc_events=True
    ) as profiler:
        yield profiler.step
