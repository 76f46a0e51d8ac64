"""Functions run on many arguments: here, or in the processes of a Dask cluster.

Dask's scheduler hands out calls, shows them on its dashboard, and gives those of a process that is
lost to another one. The processes see the same files under the same paths. Source:
https://distributed.dask.org.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from match_graph.errors import ConfigError, ProcessError, import_extra

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster

A = TypeVar("A")
R = TypeVar("R")

_SECONDS = "30 s"  # until a scheduler must have answered
#: Seconds that a cluster may be without processes.
_PATIENCE = 60
_GPU = "GPU"  # resource of a process that has one
#: Source that processes of a local cluster run first. Ctrl-C reaches them too; it is this process
#: that ends them. A handler, since to ignore it would be inherited by what they start.
_PRELOAD = "import signal; signal.signal(signal.SIGINT, lambda number, frame: None)"


class Run(Protocol):
    """Runs a function on many arguments."""

    def __call__(
        self,
        function: Callable[[A], R],
        arguments: Sequence[A],
        done: Callable[[A], None] | None = None,
    ) -> list[R]:
        """Results in the order of the arguments.

        Args:
            function: Function of a module; a call may be made twice, and the second time finds what
                the first one wrote.
            arguments: Arguments, one for each call.
            done: Called with each argument whose result is there.
        """


def run_here(
    function: Callable[[A], R],
    arguments: Sequence[A],
    done: Callable[[A], None] | None = None,
) -> list[R]:
    """Runs in this process, one after another; arguments as for `Run`."""
    results = []
    for argument in arguments:
        results.append(function(argument))
        if done is not None:
            done(argument)
    return results


class Calls(Protocol):
    """Calls of functions that are added one by one, as others end."""

    @property
    def number(self) -> int:
        """Number of calls that run at a time, at least 1."""

    def submit(
        self, key: Hashable, function: Callable[[A], object], argument: A, on_gpu: bool = False
    ) -> None:
        """Adds a call.

        Args:
            key: Name of the call.
            function: Function of a module; on a cluster it may be called twice.
            argument: Its argument.
            on_gpu: Whether it takes a GPU, where processes of a cluster declare any as a resource
                (``dask worker --resources GPU=1``).
        """

    def wait(self) -> tuple[Any, Any] | None:
        """Key and result of the next call that has ended.

        An error is a result too. None: none has ended for some seconds, and there may be more
        processes now.
        """

    def cancel(self) -> None:
        """Cancels the calls that have not ended."""


class LocalCalls:
    """`Calls` in this process, each when it is waited for."""

    number = 1

    def __init__(self) -> None:
        self._waiting: deque[tuple[Hashable, Callable[[Any], object], Any]] = deque()

    def submit(
        self, key: Hashable, function: Callable[[A], object], argument: A, on_gpu: bool = False
    ) -> None:
        """Adds a call."""
        self._waiting.append((key, function, argument))

    def wait(self) -> tuple[Any, Any]:
        """Key and result of the first call, which is made now."""
        key, function, argument = self._waiting.popleft()
        try:
            return key, function(argument)
        except Exception as error:
            return key, error

    def cancel(self) -> None:
        """Forgets the calls that have not begun."""
        self._waiting.clear()


class ClusterCalls:
    """`Calls` in the processes of a Dask cluster.

    Args:
        client: Client of the cluster.
    """

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._futures: dict[str, tuple[Any, Future]] = {}
        self._ended: SimpleQueue[str] = SimpleQueue()
        self._had_none = False

    @property
    def number(self) -> int:
        """Number of threads of all processes, at least 1."""
        return max(1, sum(self._client.nthreads().values()))

    def submit(
        self, key: Hashable, function: Callable[[A], object], argument: A, on_gpu: bool = False
    ) -> None:
        """Adds a call."""
        resources = {_GPU: 1} if on_gpu and self._have_gpus() else None
        future = self._client.submit(function, argument, pure=False, resources=resources)
        self._futures[future.key] = key, future
        future.add_done_callback(lambda done: self._ended.put(done.key))

    def wait(self) -> tuple[Any, Any] | None:
        """Key and result of the next call that has ended; None after some seconds without one.

        Raises:
            ProcessError: The cluster has had no process for a minute, or has ended.
        """
        try:
            key, future = self._futures.pop(self._ended.get(timeout=_PATIENCE))
        except Empty:
            self._check_processes()
            return None
        self._had_none = False
        if future.status not in ("finished", "error"):
            raise ProcessError(
                f"The scheduler of a cluster must run until all is done, but "
                f"'{self._client.scheduler.address}' has ended; start it again, and run the same "
                f"command again."
            )
        result = future.result() if future.status == "finished" else _describe(future.exception())
        future.release()  # or it would be made again with the process that holds it
        return key, result

    def _have_gpus(self) -> bool:
        workers = self._client.scheduler_info()["workers"].values()
        return any(one["resources"].get(_GPU) for one in workers)

    def _check_processes(self) -> None:
        has_none = not self._client.nthreads()
        if has_none and self._had_none:
            raise ProcessError(
                f"A cluster must have processes to run on, but '{self._client.scheduler.address}' "
                f"has had none for {_PATIENCE} s; start some, and run the same command again."
            )
        self._had_none = has_none

    def cancel(self) -> None:
        """Cancels the calls that have not ended; `is_wanted` tells those that run."""
        self._client.cancel([future for _, future in self._futures.values()])


def is_wanted() -> bool:
    """Whether somebody still waits for the call of a cluster that this thread runs.

    Nobody does after `Calls.cancel`, or when the process that waited has ended.
    """
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is not None and task.state == "executing"


@dataclass(frozen=True)
class Cluster:
    """Dask cluster that is started, or joined, when there is something to run.

    Args:
        workers: Number of processes of a cluster on this machine.
        scheduler: Address of the scheduler of a cluster that is there, instead.
        memory: Memory of each process on this machine, such as ``3GiB``, at which Dask ends it;
            None shares this machine's.
        tell: Takes a line with the address of the dashboard.

    Raises:
        ConfigError: Neither or both are given, or memory of processes that are started elsewhere.
    """

    workers: int | None = None
    scheduler: str | None = None
    memory: str | None = None
    tell: Callable[[str], object] | None = None

    def __post_init__(self) -> None:
        if (self.workers is None) == (self.scheduler is None):
            raise ConfigError(
                f"A cluster is either --workers of this machine or a --scheduler that is there, "
                f"found {self.workers} and {self.scheduler}; give one."
            )
        if self.memory is not None and self.workers is None:
            raise ConfigError(
                "The memory of a process is set where it is started, found --worker-memory beside "
                "--scheduler; give it to the workers there."
            )

    @contextmanager
    def open(self) -> Iterator[Run]:
        """Cluster as a `Run`; a local one ends with the block.

        Raises:
            ConfigError: Dask is not installed, or nothing answers at the address.
        """
        with self._connect() as client:
            yield partial(run_on, client)

    @contextmanager
    def open_calls(self) -> Iterator[Calls]:
        """Cluster as `Calls`; a local one ends with the block.

        Raises:
            ConfigError: Dask is not installed, or nothing answers at the address.
        """
        with self._connect() as client:
            yield ClusterCalls(client)

    @contextmanager
    def _connect(self) -> "Iterator[Client]":
        dask = import_extra("distributed", "A Dask cluster", "scale")
        if self.workers is None:
            try:
                joined = dask.Client(self.scheduler, timeout=_SECONDS, set_as_default=False)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"--scheduler must be the address of a Dask scheduler, such as "
                    f"tcp://host:8786, but '{self.scheduler}' is not ({error})."
                ) from error
            with joined:
                self._tell(joined)
                yield joined
            return
        try:
            cluster = dask.LocalCluster(
                n_workers=self.workers,
                threads_per_worker=1,
                memory_limit=self.memory or "auto",
                dashboard_address=":0",
                preload=_PRELOAD,
            )
        except ValueError as error:
            raise ConfigError(
                f"--worker-memory must be a size such as 3GiB, found '{self.memory}' ({error})."
            ) from error
        try:
            with dask.Client(cluster, set_as_default=False) as client:
                self._tell(client)
                yield client
        finally:
            _close(cluster)

    def _tell(self, client: "Client") -> None:
        if self.tell is not None:
            self.tell(f"dashboard: {client.dashboard_link}")


def _close(cluster: "LocalCluster") -> None:
    """Ends a local cluster, at the second try if Dask was starting a lost process anew.

    All calls have ended, so that nothing is lost with a process that does not end in the four
    seconds that Dask gives it and is killed: warnings of that are not shown.
    """
    from distributed import Status

    nanny = logging.getLogger("distributed.nanny")
    level = nanny.level
    nanny.setLevel(logging.ERROR)
    try:
        cluster.close()
    except AssertionError:  # "can only join a started process"; its nanny has given up by now
        # a task that failed would fail the second try too, and Dask offers no way to drop it
        cluster._futures = {task for task in cluster._futures if not task.done()}
        cluster.status = Status.running
        cluster.close()
    finally:
        nanny.setLevel(level)


def run_on(
    client: "Client",
    function: Callable[[A], R],
    arguments: Sequence[A],
    done: Callable[[A], None] | None = None,
) -> list[R]:
    """Runs on a cluster; arguments as for `Run`.

    Raises:
        ProcessError: One process after another ended over the same argument, or none is left.
        Exception: What the function raises for the first argument for which it raises.
    """
    calls = ClusterCalls(client)
    for number, argument in enumerate(arguments):
        calls.submit(number, function, argument)
    results: dict[int, Any] = {}
    while len(results) < len(arguments):
        if (ended := calls.wait()) is not None:
            number, results[number] = ended
            if done is not None and not isinstance(results[number], BaseException):
                done(arguments[number])
    for number in sorted(results):
        if isinstance(results[number], BaseException):
            raise results[number]
    return [results[number] for number in range(len(arguments))]


def _describe(error: BaseException) -> BaseException:
    """Error of a call; one sentence where processes were lost over it."""
    from distributed import KilledWorker

    if not isinstance(error, KilledWorker):
        return error
    return ProcessError(
        f"A call must end in the process that runs it, but {error.allowed_failures + 1} processes "
        f"ended over '{error.task}'; give each more memory (--worker-memory), or run fewer."
    )
