"""Map of a function over arguments, in this process or on a Dask cluster.

Dask's scheduler distributes the calls, shows them on its dashboard, and repeats those of a lost
worker on another one. All workers must see the same files under the same paths. Source:
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
#: Seconds that a cluster may be without workers.
_PATIENCE = 60
_GPU = "GPU"  # Dask resource of a worker that has one
#: Code that workers of a local cluster run first. Ctrl-C reaches them too, but this process ends
#: them. An empty handler, as an ignored signal would be inherited by processes that they start.
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
            function: Function of a module; a call may be repeated, and the second time finds the
                files that the first one wrote.
            arguments: Arguments, one for each call.
            done: Called with each argument whose call has returned.
        """


def run_here(
    function: Callable[[A], R],
    arguments: Sequence[A],
    done: Callable[[A], None] | None = None,
) -> list[R]:
    """Runs in this process, one call after another; arguments as for `Run`."""
    results = []
    for argument in arguments:
        results.append(function(argument))
        if done is not None:
            done(argument)
    return results


class Calls(Protocol):
    """Task pool: calls are submitted one by one, and results taken as they complete."""

    @property
    def number(self) -> int:
        """Number of calls that run at a time, at least 1."""

    def submit(
        self, key: Hashable, function: Callable[[A], object], argument: A, on_gpu: bool = False
    ) -> None:
        """Submits a call.

        Args:
            key: Name of the call.
            function: Function of a module; on a cluster a call may be repeated.
            argument: Its argument.
            on_gpu: Whether it takes a GPU, if workers of the cluster declare any as a resource
                (``dask worker --resources GPU=1``).
        """

    def wait(self) -> tuple[Any, Any] | None:
        """Key and result of the next call that completes; an exception is a result, too.

        None after some seconds without one: there may be more workers now.
        """

    def cancel(self) -> None:
        """Cancels the calls that have not completed."""


class LocalCalls:
    """`Calls` in this process, each run by `wait`."""

    number = 1

    def __init__(self) -> None:
        self._waiting: deque[tuple[Hashable, Callable[[Any], object], Any]] = deque()

    def submit(
        self, key: Hashable, function: Callable[[A], object], argument: A, on_gpu: bool = False
    ) -> None:
        """Adds a call."""
        self._waiting.append((key, function, argument))

    def wait(self) -> tuple[Any, Any]:
        """Runs the first call; gives its key and result."""
        key, function, argument = self._waiting.popleft()
        try:
            return key, function(argument)
        except Exception as error:
            return key, error

    def cancel(self) -> None:
        """Drops the calls that have not begun."""
        self._waiting.clear()


class ClusterCalls:
    """`Calls` on the workers of a Dask cluster.

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
        """Number of threads of all workers, at least 1."""
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
        """Key and result of the next call that completes; None after some seconds without one.

        Raises:
            ProcessError: The cluster has had no worker for a minute, or has ended.
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
        future.release()  # or it would be computed again if its worker is lost
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
        """Cancels the calls that have not completed; running ones see it by `is_wanted`."""
        self._client.cancel([future for _, future in self._futures.values()])


def is_wanted() -> bool:
    """Whether a client still waits for the result of this thread's Dask task.

    None does after `Calls.cancel`, or when the client has ended.
    """
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is not None and task.state == "executing"


@dataclass(frozen=True)
class Cluster:
    """Dask cluster, started or joined when there is something to run.

    Args:
        workers: Number of workers of a local cluster.
        scheduler: Address of the scheduler of a running cluster, instead.
        memory: Memory limit of each local worker, such as ``3GiB``, at which Dask ends it; None
            divides this machine's.
        tell: Callback that takes a line with the address of the dashboard.

    Raises:
        ConfigError: Neither or both of workers and scheduler are given, or memory beside a
            scheduler.
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
        """Cluster as a `Run`; a local one is closed after the block.

        Raises:
            ConfigError: Dask is not installed, or nothing answers at the address.
        """
        with self._connect() as client:
            yield partial(run_on, client)

    @contextmanager
    def open_calls(self) -> Iterator[Calls]:
        """Cluster as `Calls`; a local one is closed after the block.

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
    """Closes a local cluster, at the second try if Dask was restarting a lost worker.

    All calls have completed, so that nothing is lost where Dask kills a worker that does not end
    within four seconds: its warnings are not shown.
    """
    from distributed import Status

    nanny = logging.getLogger("distributed.nanny")
    level = nanny.level
    nanny.setLevel(logging.ERROR)
    try:
        cluster.close()
    except AssertionError:  # "can only join a started process"; its nanny has given up by now
        # a failed task would fail the second try, too, and Dask has no interface to drop it
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
        ProcessError: Several workers died at the same argument, or none is left.
        Exception: That of the function for the first argument for which it fails.
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
    """Exception of a call; one sentence where it killed several workers."""
    from distributed import KilledWorker

    if not isinstance(error, KilledWorker):
        return error
    return ProcessError(
        f"A call must end in the process that runs it, but {error.allowed_failures + 1} processes "
        f"ended over '{error.task}'; give each more memory (--worker-memory), or run fewer."
    )
