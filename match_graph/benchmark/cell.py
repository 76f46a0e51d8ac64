"""Cell of a benchmark (row, data set, seed), run in a process of its own."""

import multiprocessing
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from filelock import FileLock, Timeout
from pydantic import ValidationError

from match_graph.benchmark.experiment import Experiment
from match_graph.benchmark.plan import PlannedCell
from match_graph.benchmark.results import LARGEST, Cell, find_measure
from match_graph.errors import CheckpointError, MatchGraphError, describe_faults, list_faults
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import LEVELS, METRICS
from match_graph.runs.readers import read_history, read_metrics, read_record
from match_graph.runs.start import start_run

#: Seconds that a process of a killed benchmark has to end.
_PATIENCE = 60.0
#: Bytes of the path of a socket on macOS; Linux has 107.
_SOCKET = 103


@dataclass(frozen=True)
class Work:
    """Work order of a process that runs a cell.

    Args:
        cell: Planned cell, with its configuration.
        out: Folder of the benchmark, absolute.
        root: Root folder of built data; None takes the default.
        vectors: Run folder to take pre-trained vectors from; None trains them if need be.
        threads: Number of processor threads.
        gpu: Index of the GPU, as ``CUDA_VISIBLE_DEVICES`` counts; None for none.
        environment: Environment variables of the process that plans.
    """

    cell: PlannedCell
    out: Path
    root: str | None
    vectors: Path | None
    threads: int
    gpu: str | None
    environment: Mapping[str, str]

    @property
    def log(self) -> Path:
        """Path of the process's log, beside the run folder."""
        return self.out / f"{self.cell.folder}.log"


def do_work(work: Work, answer: Connection) -> None:
    """Runs a cell, resumed if need be; the main function of its process.

    Args:
        work: Work order of the cell.
        answer: Connection for the answer: the reason if the cell fails, nothing if it is done.
    """
    prepare_process(work)
    try:
        with _hold(work.log.with_suffix(".lock")):
            run_cell(work)
    except MatchGraphError as error:
        answer.send(str(error))
    except Exception as error:
        traceback.print_exc()
        answer.send(describe_error(error))


def make_context() -> Any:
    """Multiprocessing context of cells: forked off a server that has imported torch once.

    The server's socket lies in ``TMPDIR``. Where that is too long for a socket, or where there is
    no such server, every cell imports torch.
    """
    socket = len(os.fsencode(tempfile.gettempdir())) + len("/pymp-12345678/listener-12345678")
    if socket > _SOCKET or "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def start_process(
    context: Any, function: Callable[..., None], work: Any
) -> tuple[BaseProcess, Connection]:
    """Starts a process for some work, which answers through a connection.

    It does not import the script that this process was started with, so that a script needs no
    ``if __name__ == "__main__"``.
    """
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=function, args=(work, send), daemon=True)
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()
    finally:
        sys.modules["__main__"] = main
    send.close()
    return process, receive


@contextmanager
def _hold(path: Path) -> Iterator[None]:
    """Waits for a process of a killed benchmark that is still ending."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        lock.acquire(timeout=_PATIENCE)
        time.sleep(1.0)  # files are closed before a process is gone
    try:
        yield
    finally:
        lock.release()


def describe_error(error: Exception) -> str:
    """Unexpected error as a clause: its type and message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")


def prepare_process(work: Work) -> None:
    """Sets environment, devices and log of this process; it ends when the planning process ends."""
    os.environ.update(work.environment)
    if work.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = work.gpu
    torch.set_num_threads(work.threads)
    work.log.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(work.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for number in (1, 2):
        os.dup2(log, number)
    os.close(log)
    if (parent := parent_process()) is not None:
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: Any) -> None:
    parent.join()
    os._exit(1)


def run_cell(work: Work) -> None:
    """Runs all stages of a cell in its run folder; finished ones are kept."""
    cell = work.cell
    run = start_run(
        cell.source, cell.config, work.out / cell.folder, work.root, reporter=Reporter()
    )
    if (run.folder / METRICS).is_file():
        return
    if work.vectors is not None and not run.pretraining.is_done():
        run.take_vectors(work.vectors)
        run.reporter.line(f"pretrain: vectors of {work.vectors}")
    run.train()
    run.evaluate()


def read_cell(planned: PlannedCell, out: Path, experiment: Experiment, resumed: bool) -> Cell:
    """Reads a finished cell from its run folder.

    Args:
        planned: Planned cell, with its configuration.
        out: Folder of the benchmark.
        experiment: Experiment, which says which measures must be there.
        resumed: Whether the cell was interrupted, so that its seconds are not all known.

    Raises:
        CheckpointError: A file is broken, or a measure of the experiment is missing.
    """
    folder = out / planned.folder
    record = read_record(folder)
    epochs = _count_epochs(folder)
    seconds = record["seconds"]
    known = not resumed and epochs > 0
    source = record.get("vectors_from")
    content = {
        "status": "done",
        "metrics": read_metrics(folder),
        "history": _read_history(folder),
        "seconds": seconds,
        "epochs": epochs or None,
        "seconds_per_epoch": seconds["train"] / epochs if known else None,
        "parameters": record.get("parameters"),
        "peak_mib": record["peak_memory_mib"],
        "device": record["device"],
        "git": record["git"],
        "vectors_from": None if source is None else _relative(folder / source, out),
        "feature_checksums": record.get("feature_checksums", {}),
        "resumed": resumed,
        "finished": _read_time(folder / METRICS),
    }
    summary = f"The files of the cell '{planned.folder}' must be as a run writes them"
    try:
        cell = make_cell(planned, **content)
    except ValidationError as error:
        raise CheckpointError(list_faults(summary, describe_faults(Cell, error))) from error
    if faults := cell.find_missing():
        raise CheckpointError(list_faults(summary, faults))
    for measure in experiment.measures:
        find_measure(cell, experiment.split, measure)
    return cell


def make_cell(planned: PlannedCell, **changes: Any) -> Cell:
    """Cell of the results, waiting unless changed."""
    content: dict[str, Any] = {
        "dataset": planned.dataset,
        "row": planned.row.name,
        "seed": planned.seed,
        "folder": planned.folder,
        "config": planned.config.model_dump(mode="json"),
    }
    return Cell(**content | changes)


def _read_history(folder: Path) -> list[dict[str, float]]:
    table = read_history(folder)
    if table is None:
        return []
    return [
        {str(name): float(value) for name, value in row.items() if abs(value) <= LARGEST}
        for row in table.to_dict("records")
    ]


def _count_epochs(folder: Path) -> int:
    """Number of epochs: rows of the histories of the run and of upper levels of a label tree."""
    tables = [read_history(place) for place in (folder, *(folder / LEVELS).glob("*"))]
    return sum(len(table) for table in tables if table is not None)


def _relative(path: Path, out: Path) -> str:
    return Path(os.path.relpath(path, out)).as_posix()


def _read_time(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
