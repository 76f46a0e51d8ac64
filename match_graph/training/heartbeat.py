"""Heartbeats between the processes of a run."""

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from subprocess import Popen
from typing import Any, TypeVar

import torch
from torch import distributed

from match_graph.errors import ConfigError, ProcessError

F = TypeVar("F", bound=Callable[..., Any])

#: Variable with the seconds after which a silent process counts as lost, and their default.
TIMEOUT, _DEFAULT_TIMEOUT = "MATCH_GRAPH_TIMEOUT", 600.0
#: Variable with the id of the process of the run that started this one, if any did.
PARENT = "MATCH_GRAPH_PARENT"
#: Seconds between two beats, and grace period to end by itself once a process is lost.
_BEAT, _GRACE = 1.0, 10.0
#: Parts of messages of gloo and NCCL on a broken connection or a timeout.
_SIGNS = ("gloo", "nccl", "connection closed by peer", "connection reset", "timed out", "timeout")


def read_timeout() -> timedelta:
    """Longest silence of a process: $MATCH_GRAPH_TIMEOUT seconds, or 10 minutes.

    Raises:
        ConfigError: The variable is no number of seconds in 1..10^7.
    """
    text = os.environ.get(TIMEOUT, str(_DEFAULT_TIMEOUT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 1e7:
        raise ConfigError(
            f"${TIMEOUT} must be the seconds after which a process that does not answer counts as "
            f"lost, in 1..10000000, found '{text}'; correct or unset it."
        )
    return timedelta(seconds=seconds)


class Heartbeat(threading.Thread):
    """Sums a few numbers over all processes every second, in a thread and group of its own.

    A killed process breaks the connection, a stopped one runs into the timeout; both make the sum
    fail on the others, also while they wait for one that works for days. Then this process ends
    within seconds: by the error of the collective that it shares with the lost one (see `shared`),
    or, if that goes on waiting, by this thread.

    Args:
        timeout: Duration of silence after which a process counts as lost.
        children: Processes started by this one.
    """

    def __init__(self, timeout: timedelta, children: list["Popen[bytes]"]) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.timeout, self.children = timeout, children
        self.group = distributed.new_group(backend="gloo", timeout=timeout)
        self.lost = threading.Event()
        self._state = [0, 0]  # whether this process leaves, and fails
        self._wake = threading.Event()

    def run(self) -> None:
        """Beats until a process leaves or is lost."""
        while True:
            state = torch.tensor(self._state)
            try:
                distributed.all_reduce(state, group=self.group)
            except RuntimeError:
                break
            if state[1]:
                break
            if state[0]:
                return
            self._wake.wait(_BEAT)
        self.lost.set()
        self._end_if_stuck()

    def _end_if_stuck(self) -> None:
        waited = 0.0
        while waited < _GRACE:  # counted in beats, so that time in which all were stopped is not
            time.sleep(_BEAT)
            waited = waited + _BEAT if _HERE.depth and not _HERE.works_alone else 0.0
        error = self.explain()
        self.kill_children()
        sys.stderr.write(f"Error: {error}\n")
        sys.stderr.flush()
        os._exit(1)

    def explain(self) -> ProcessError:
        """An error that names the lost process.

        A killed child breaks its connections before its parent sees its exit code, hence the wait.
        """
        if self.children:
            _wait_until(lambda: any(one.poll() not in (None, 0) for one in self.children), _BEAT)
        ended = [
            (number, child.returncode)
            for number, child in enumerate(self.children, start=1)
            if child.returncode not in (None, 0)
        ]
        seconds = f"{self.timeout.total_seconds():.0f} s (${TIMEOUT})"
        who = f"another one ended, or has not answered for {seconds}"
        if ended:
            number, code = ended[0]
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            who = f"process {number} of this machine {how}"
        return ProcessError(
            f"A run needs all of its processes to the end, but {who}; start the same command "
            f"again, without --overwrite: it goes on from what is saved."
        )

    def judge(self, error: BaseException) -> None:
        """Signals an error of this process to the others, unless it comes from a lost one.

        Raises:
            ProcessError: The error comes from a collective with a lost process.
        """
        if isinstance(error, RuntimeError):
            self.lost.wait(3 * _BEAT)
            is_sign = any(sign in str(error).lower() for sign in _SIGNS)
            if self.lost.is_set() or is_sign:
                lost = self.explain()  # before the others are killed
                self.kill_children()
                if PARENT in os.environ:  # which reports it and kills this process, if it can
                    time.sleep(2 * _BEAT)
                raise lost from error
        self._state[1] = 1
        self._wake.set()

    def leave(self) -> None:
        """Ends the beats of all processes, as this one is done."""
        self._state[0] = 1
        self._wake.set()
        self.join(2 * _BEAT + 1)

    def kill_children(self, patience: float = 0.0) -> None:
        """Kills the processes that this one started, stopped ones too, after some patience."""
        _wait_until(lambda: all(one.poll() is not None for one in self.children), patience)
        for child in self.children:
            if child.poll() is None:
                child.kill()


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


@dataclass
class _Here:
    """Role of this process.

    Args:
        heartbeat: Heartbeat thread; None where it is a run's only process.
        depth: Number of running functions that are `shared`, one within the other.
        works_alone: Whether the other processes wait for this one.
    """

    heartbeat: Heartbeat | None = None
    depth: int = 0
    works_alone: bool = False


_HERE = _Here()


def start_heartbeat(timeout: timedelta, children: list["Popen[bytes]"]) -> None:
    """Starts the heartbeat of this process, unless it runs already."""
    if _HERE.heartbeat is None:
        _HERE.heartbeat = Heartbeat(timeout, children)
        _HERE.heartbeat.start()
        atexit.register(_end, _HERE.heartbeat)


def _end(heartbeat: Heartbeat) -> None:
    if heartbeat.is_alive():
        heartbeat.leave()
    patience = 0.0 if heartbeat.lost.is_set() else heartbeat.timeout.total_seconds()
    heartbeat.kill_children(patience)


@contextmanager
def alone() -> Iterator[None]:
    """Context of work of one process while the others wait, finished even if one is lost."""
    _HERE.works_alone = True
    try:
        yield
    finally:
        _HERE.works_alone = False


def shared(function: F) -> F:
    """Decorator of collective work: a lost process is a `ProcessError`, an error ends all."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _HERE.depth += 1
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            if _HERE.heartbeat is not None:  # perhaps started by `function`
                _HERE.heartbeat.judge(error)
            raise
        finally:
            _HERE.depth -= 1

    return run  # type: ignore[return-value]
