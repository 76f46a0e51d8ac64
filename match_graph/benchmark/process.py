"""Cells run in child processes, of this process or of a cluster's: environment, threads, log."""

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from filelock import FileLock, Timeout
from threadpoolctl import threadpool_limits

from match_graph.benchmark.plan import PlannedCell
from match_graph.errors import CheckpointError, MatchGraphError
from match_graph.io.cluster import is_wanted
from match_graph.io.run_folder import LOCK
from match_graph.openmp import limit_spinning

#: Seconds to wait for a process of a killed benchmark to end, and for an interrupted cell to write
#: its record before it is terminated.
_PATIENCE, _STOPPING = 60.0, 10.0
#: Seconds between two checks whether the result of a cluster's cell is still wanted.
_POLLING = 1.0
#: Largest number of characters of a reason: it is read when the process has ended, so that the
#: pipe must hold all of it.
_REASON = 10_000
#: Largest number of bytes of a socket's path on macOS; on Linux it is 107.
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
        environment: Environment variables to set; see `find_environment`.
        function: Function that does the work: `run_cell`, or `run_trial` of a search.
    """

    cell: PlannedCell
    out: Path
    root: str | None
    vectors: Path | None
    threads: int
    environment: Mapping[str, str]
    function: "Callable[[Work], None]"

    @property
    def log(self) -> Path:
        """Path of the process's log, beside the run folder."""
        return self.out / f"{self.cell.folder}.log"


def run_apart(work: Work) -> str:
    """Does the work in a process of its own.

    Returns:
        Reason why it failed, a sentence; empty if it succeeded.
    """
    limit_spinning()
    process, receive = start_process(make_context(), do_work, work)
    try:
        process.join()
    except KeyboardInterrupt:  # the process has been interrupted too
        _stop(process)
        raise
    return _read_reason(process, receive)


def run_on_cluster(work: Work) -> str:
    """`run_apart` for a cluster's process; stops the work once nobody waits for its result.

    On a machine with several GPUs each process of a local cluster takes the next one.
    """
    from distributed import get_worker

    limit_spinning()
    multiprocessing.current_process().daemon = False  # or it could not start processes
    name = get_worker().name
    gpu = _choose_gpu(name) if isinstance(name, int) else {}
    work = replace(work, environment={**work.environment, **gpu})
    process, receive = start_process(make_context(), do_work, work)
    while process.is_alive():
        process.join(_POLLING)
        if not is_wanted():
            os.kill(process.pid or 0, signal.SIGINT)
            _stop(process)
    return _read_reason(process, receive)


def _choose_gpu(number: int) -> dict[str, str]:
    """Environment that shows one GPU to a process of a local cluster, by its number."""
    if not torch.cuda.is_available():
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [*map(str, range(torch.cuda.device_count()))]
    return {"CUDA_VISIBLE_DEVICES": names[number % len(names)]}


def _stop(process: BaseProcess) -> None:
    """Ends an interrupted process, after some time to write its record."""
    process.join(_STOPPING)
    process.terminate()
    process.join()


def _read_reason(process: BaseProcess, answer: Connection) -> str:
    """Reason why a process that has ended failed; empty if it succeeded."""
    try:
        reason = str(answer.recv()) if answer.poll() else ""
    except (EOFError, OSError):  # it was killed before or while it sent one
        reason = ""
    answer.close()
    if not reason and process.exitcode:
        return f"The process of the cell ended with exit code {process.exitcode}; see its log."
    return reason


def do_work(work: Work, answer: Connection) -> None:
    """Does the work, resumed if need be; the main function of its process.

    Args:
        work: Work order of the cell.
        answer: Connection that gets the reason if the work fails, and nothing if it succeeds.
    """
    prepare_process(work)
    try:
        with _hold(work.log.with_suffix(".lock")):
            work.function(work)
    except Exception as error:
        if not isinstance(error, MatchGraphError):
            traceback.print_exc()
        answer.send(describe_error(error))


def make_context() -> Any:
    """Multiprocessing context of cells: forked from a server that has imported torch once.

    Processes are spawned instead, and each imports torch, if the path of the server's socket in
    ``TMPDIR`` would be too long, if the system has no such server, or if there is a GPU: imports
    initialize its driver, and no process forked after that can use it.
    """
    socket = len(os.fsencode(tempfile.gettempdir())) + len("/pymp-12345678/listener-12345678")
    has_server = "forkserver" in multiprocessing.get_all_start_methods()
    if socket > _SOCKET or not has_server or torch.cuda.is_available():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["match_graph.benchmark.cell"])
    return context


def start_process(
    context: Any, function: Callable[..., None], work: Any
) -> tuple[BaseProcess, Connection]:
    """Starts a process for some work; returns it, and the connection of its answers.

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
def hold_folder(out: Path, what: str) -> Iterator[None]:
    """Makes the folder of a benchmark or of a search, and locks it within the block.

    A folder that is empty at the end, because an error was raised early, is removed.

    Raises:
        CheckpointError: Another process works there.
    """
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / LOCK)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        raise CheckpointError(
            f"One {what} at a time can run in a folder, but another one is at work in '{out}'; "
            f"wait for it, or choose another folder with --out."
        ) from None
    with held:
        try:
            yield
        finally:
            if [*out.iterdir()] == [out / LOCK]:
                shutil.rmtree(out)


def _hold(path: Path) -> AbstractContextManager[object]:
    """Acquired lock; waits for a process of a killed benchmark that is still ending."""
    lock = FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        held = lock.acquire(timeout=_PATIENCE)
        time.sleep(1.0)  # files are closed before a process is gone
        return held


def describe_error(error: Exception) -> str:
    """Message of an error: a `MatchGraphError` as it is, another with its type before it."""
    told = str(error)
    if not isinstance(error, MatchGraphError):
        told = f"{type(error).__name__}: {' '.join(told.split())}".removesuffix(": ")
    return told[:_REASON]


def prepare_process(work: Work) -> None:
    """Sets environment, threads and log of this process; it ends when its parent ends."""
    os.environ.update(work.environment)
    torch.set_num_threads(work.threads)
    threadpool_limits(work.threads)
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
    """Ends this process when its parent has ended."""
    parent.join()
    os._exit(1)
