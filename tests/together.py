"""Processes as torchrun would start them, for tests of what they share."""

import faulthandler
import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch


def as_torchrun(rank: int, number: int, port: int) -> dict[str, str]:
    """The variables that torchrun gives a process."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_PORT")
    values = (rank, rank, number, number, 0, port)
    plain = {name: str(value) for name, value in zip(names, values, strict=True)}
    return {**plain, "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "test"}


def find_port() -> int:
    """A free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def run_together(
    work: Callable[..., None], *args: Any, number: int = 2, seconds: float = 240
) -> list[int | None]:
    """Calls ``work`` in several processes as torchrun would; their exit codes."""
    port = find_port()

    def start(rank: int) -> None:
        os.environ.update(as_torchrun(rank, number, port))
        work(*args)

    return run_forked(start, number, seconds)


def run_forked(start: Callable[[int], object], number: int, seconds: float) -> list[int | None]:
    """Calls ``start`` with their ranks in several processes of one thread; their exit codes.

    Processes that take longer are killed, having written where they stand.
    """

    def begin(rank: int) -> None:
        faulthandler.dump_traceback_later(0.9 * seconds)
        torch.set_num_threads(1)
        start(rank)

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=begin, args=(rank,)) for rank in range(number)]
    for process in processes:
        wait_for_threads()
        process.start()
    for process in processes:
        process.join(seconds)
        process.kill()
        process.join()
    return [process.exitcode for process in processes]


def wait_for_threads(seconds: float = 10) -> None:
    """Waits until the other threads of this process sleep or have ended, as Linux tells.

    Python's `join` returns before a thread has left its libraries. MKL gives back the thread's
    memory meanwhile, under a lock: a process that is forked then never gets it, and its first
    matrix product in a thread spins for ever.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not all(map(_sleeps, Path("/proc/self/task").glob("*"))):
        time.sleep(0.001)


def _sleeps(task: Path) -> bool:
    if task.name == str(threading.get_native_id()):
        return True
    with suppress(OSError):  # it has ended
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "S"
    return True
