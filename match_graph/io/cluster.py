"""Functions run on many arguments: here, or in the processes of a Dask cluster.

Dask's scheduler hands out calls, shows them on its dashboard, and gives those of a process that is
lost to another one. The processes see the same files under the same paths. Source:
https://distributed.dask.org.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from match_graph.errors import ConfigError, ProcessError

if TYPE_CHECKING:
    from distributed import Client

A = TypeVar("A")
R = TypeVar("R")

_SECONDS = "30 s"  # until a scheduler must have answered
#: Seconds that a cluster may be without processes.
_PATIENCE = 60


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
        try:
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise ConfigError(
                "--workers and --scheduler need Dask, which is not installed; install "
                "match-graph[scale]."
            ) from error
        if self.workers is None:
            try:
                joined = Client(self.scheduler, timeout=_SECONDS, set_as_default=False)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"--scheduler must be the address of a Dask scheduler, such as "
                    f"tcp://host:8786, but '{self.scheduler}' is not ({error})."
                ) from error
            with joined:
                yield self._run(joined)
            return
        try:
            cluster = LocalCluster(
                n_workers=self.workers,
                threads_per_worker=1,
                memory_limit=self.memory or "auto",
                dashboard_address=":0",
            )
        except ValueError as error:
            raise ConfigError(
                f"--worker-memory must be a size such as 3GiB, found '{self.memory}' ({error})."
            ) from error
        with cluster, Client(cluster, set_as_default=False) as client:
            yield self._run(client)

    def _run(self, client: "Client") -> Run:
        if self.tell is not None:
            self.tell(f"dashboard: {client.dashboard_link}")

        def run(
            function: Callable[[A], R],
            arguments: Sequence[A],
            done: Callable[[A], None] | None = None,
        ) -> list[R]:
            return run_on(client, function, arguments, done)

        return run


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
    from distributed import as_completed

    futures = client.map(function, arguments, pure=False)
    place = {future.key: number for number, future in enumerate(futures)}
    results: list[Any] = [None] * len(arguments)
    failed: dict[int, BaseException] = {}
    had_none = False
    while place:
        waiting = [futures[number] for number in place.values()]
        try:
            for future in as_completed(waiting, loop=client.loop, timeout=_PATIENCE):
                number = place.pop(future.key)
                if future.status == "finished":
                    results[number] = future.result()
                    future.release()  # or it would be made again with the process that holds it
                    if done is not None:
                        done(arguments[number])
                else:
                    failed[number] = future.exception()
        except TimeoutError:
            has_none = not client.scheduler_info()["workers"]
            if has_none and had_none:
                raise ProcessError(
                    f"A cluster must have processes to run on, but '{client.scheduler.address}' "
                    f"has had none for {_PATIENCE} s; start some, and run the same command again."
                ) from None
            had_none = has_none
    if failed:
        raise _describe(failed[min(failed)])
    return results


def _describe(error: BaseException) -> BaseException:
    """Error of a call; one sentence where processes were lost over it."""
    from distributed import KilledWorker

    if not isinstance(error, KilledWorker):
        return error
    return ProcessError(
        f"A call must end in the process that runs it, but {error.allowed_failures + 1} processes "
        f"ended over '{error.task}'; give each more memory (--worker-memory), or run fewer."
    )
