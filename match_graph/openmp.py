"""OpenMP thread settings: spinning, and number of threads."""

import os
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

#: Spins of a waiting thread before it sleeps: libgomp's own number when threads outnumber
#: processors. Its default of 300,000 keeps processors from other processes, and from the threads
#: that a barrier waits for; 0 costs a third of the throughput on an otherwise idle machine.
SPIN_COUNT = 1000
#: Variables by which a user sets how threads wait; if one is set, nothing is changed.
_DECIDED = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY")


def limit_spinning(environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets ``GOMP_SPINCOUNT`` unless the user has set an OpenMP wait policy.

    libgomp reads it when it is loaded: it reaches this process before the first import of torch,
    and the processes that this one starts at any time.

    Args:
        environment: Environment variables, changed in place.
    """
    if not any(name in environment for name in _DECIDED):
        environment["GOMP_SPINCOUNT"] = str(SPIN_COUNT)


def is_program(arguments: Sequence[str], command: Sequence[str]) -> bool:
    """Whether a process is `match-graph` or ``python -m match_graph...``, not someone's script.

    Args:
        arguments: ``sys.argv``; Python puts "-m" first while it imports the parents of a module.
        command: ``sys.orig_argv``, the command as it was given.
    """
    if arguments and arguments[0] == "-m":
        return any(word.partition(".")[0] == "match_graph" for word in command)
    return bool(arguments) and Path(arguments[0]).stem in ("match-graph", "match-graph-script")


@contextmanager
def limit_threads(number: int) -> Iterator[None]:
    """Limits torch to a number of threads, at least one, within the block.

    Args:
        number: Threads per operation, for this thread and, in matrix products, for all others too.
    """
    import torch  # not before `limit_spinning`

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(number, before)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def open_threads(most: int) -> Iterator[ThreadPoolExecutor]:
    """Pool of as many threads as torch uses, each of which runs operations on one thread.

    Args:
        most: Maximum number of threads; with 1, operations use as many threads as torch does.
    """
    import torch

    number = torch.get_num_threads()
    pool = ThreadPoolExecutor(
        min(number, most),
        "match-graph",
        initializer=torch.set_num_threads,
        initargs=(1 if most > 1 else number,),
    )
    with limit_threads(number):  # restores those of matrix products, which the pool sets for all
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


if is_program(getattr(sys, "argv", []), sys.orig_argv):
    limit_spinning()
