"""Options of a Dask cluster; `test_assemble_cluster` runs on one."""

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import nullcontext
from typing import Any

import psutil
import pytest

from match_graph.errors import ConfigError, ProcessError
from match_graph.io import cluster
from match_graph.io.cluster import Cluster, run_here, run_on


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "found None and None"),
        ({"workers": 1, "scheduler": "tcp://a:1"}, "found 1 and tcp://a:1"),
        ({"scheduler": "tcp://a:1", "memory": "1GiB"}, "found --worker-memory beside --scheduler"),
    ],
)
def test_Cluster_options_that_do_not_fit(options: dict[str, Any], fault: str) -> None:
    """Either workers or a scheduler is given, and memory only for local workers."""
    with pytest.raises(ConfigError, match=fault):
        Cluster(**options)


def test_Cluster_without_dask_or_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package and a wrong address are one sentence each."""
    pytest.importorskip("distributed", reason="no Dask (extra: scale)")
    with pytest.raises(ConfigError, match="must be the address of a Dask scheduler"):
        Cluster(scheduler="nothing://here").open().__enter__()
    with pytest.raises(ConfigError, match="--worker-memory must be a size such as 3GiB"):
        Cluster(workers=1, memory="much").open().__enter__()
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"install 'match-graph\[scale\]'"):
        Cluster(workers=1).open().__enter__()


def test_Cluster_scheduler_passes_on_errors_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """An OSError in the block is not reported as a wrong address."""
    distributed = pytest.importorskip("distributed", reason="no Dask (extra: scale)")
    monkeypatch.setattr(distributed, "Client", lambda *_, **__: nullcontext())
    with (
        pytest.raises(OSError, match="No space left"),
        Cluster(scheduler="tcp://host:1").open(),
    ):
        raise OSError("No space left on device")


def test_Cluster_ends_where_dask_starts_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """If closing fails while Dask restarts a worker, the error stays and no process is left."""
    distributed = pytest.importorskip("distributed", reason="no Dask (extra: scale)")
    close = distributed.LocalCluster._close

    async def fail(local: Any) -> None:
        monkeypatch.setattr(distributed.LocalCluster, "_close", close)
        local.status = distributed.Status.closing
        lost = asyncio.get_running_loop().create_future()
        lost.set_exception(AssertionError("can only join a started process"))
        local._futures.add(lost)
        await lost

    monkeypatch.setattr(distributed.LocalCluster, "_close", fail)
    with pytest.raises(ZeroDivisionError), Cluster(workers=1).open() as run:
        [number] = run(eval, ["__import__('os').getpid()"])
        run(eval, ["1 / 0"])
    assert not psutil.pid_exists(number)


def test_Cluster_hides_warnings_of_workers_killed_at_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Warnings of workers that are killed while closing are hidden, others are not."""
    distributed = pytest.importorskip("distributed", reason="no Dask (extra: scale)")
    nanny = logging.getLogger("distributed.nanny")
    close = distributed.LocalCluster.close

    def warn(local: Any) -> None:
        nanny.warning("killing")
        close(local)

    monkeypatch.setattr(distributed.LocalCluster, "close", warn)
    caplog.set_level(logging.WARNING, "distributed.nanny")
    with caplog.at_level(logging.WARNING), Cluster(workers=1).open():
        nanny.warning("memory")
    nanny.warning("later")
    assert [one.message for one in caplog.records if one.name == nanny.name] == ["memory", "later"]


def test_Cluster_processes_leave_an_interrupt_to_this_one() -> None:
    """Workers ignore Ctrl-C, which would end each with a traceback."""
    pytest.importorskip("distributed", reason="no Dask (extra: scale)")
    with Cluster(workers=1).open() as run:
        [before] = run(eval, ["__import__('os').getpid()"])
        os.kill(before, signal.SIGINT)
        time.sleep(0.2)
        [after] = run(eval, ["1 and __import__('os').getpid()"])
    assert before == after


def test_run_on_cluster_that_has_no_process_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster without workers is one sentence instead of an endless wait."""
    distributed = pytest.importorskip("distributed", reason="no Dask (extra: scale)")
    monkeypatch.setattr(cluster, "_PATIENCE", 0.2)
    options = {"dashboard_address": None, "silence_logs": logging.ERROR}
    with (
        distributed.LocalCluster(n_workers=0, **options) as none_left,
        distributed.Client(none_left, set_as_default=False) as client,
        pytest.raises(ProcessError, match=r"has had none for 0\.2 s; start some"),
    ):
        run_on(client, abs, [1, 2])


def test_run_here_results_in_order() -> None:
    """Results are in order, and the callback gets each argument."""
    done: list[int] = []
    assert run_here(abs, [-3, 2], done.append) == [3, 2]
    assert done == [-3, 2]


def test_cli_workers_beside_scheduler(call) -> None:
    """Both options together are refused before anything is read."""
    code, _, error = call("build", "synthetic", "--workers", 2, "--scheduler", "tcp://a:1")
    assert code == 1
    assert error == (
        "Error: A cluster is either --workers of this machine or a --scheduler that is there, "
        "found 2 and tcp://a:1; give one.\n"
    )
