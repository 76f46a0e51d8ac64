"""OpenMP thread settings: spinning, and number of threads."""

import os
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

#: Turns of a waiting thread's loop before it sleeps: libgomp's own number where there are more
#: threads than processors. Its default of 300,000 holds processors that other processes need, and
#: whom a barrier waits for cannot run; 0 costs a third of the rate where nothing runs beside.
SPIN_COUNT = 1000
#: Whoever has set one of these has decided how threads wait.
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
    """Opens a pool of as many threads as torch has, each of which computes with one of them.

    Args:
        most: Threads of the pool at most; a pool of 1 computes with all of torch's.
    """
    import torch

    number = torch.get_num_threads()
    pool = ThreadPoolExecutor(
        min(number, most),
        "match-graph",
        initializer=torch.set_num_threads,
        initargs=(1 if most > 1 else number,),
    )
    with limit_threads(number):  # restores that of matrix products, which the pool sets for all
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)


if is_program(getattr(sys, "argv", []), sys.orig_argv):
    limit_spinning()
