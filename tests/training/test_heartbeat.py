"""A process that is lost ends the others, with a sentence."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from together import as_torchrun, find_port

from match_graph.config import TrainConfig
from match_graph.errors import ConfigError, ProcessError
from match_graph.training import heartbeat
from match_graph.training.device import make_fabric
from match_graph.training.heartbeat import TIMEOUT, alone, read_timeout, shared
from match_graph.training.processes import lead, sum_up

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

LOST = (
    "A run needs all of its processes to the end, but another one ended, or has not answered for "
    "{} s ($MATCH_GRAPH_TIMEOUT); start the same command again, without --overwrite: it goes on "
    "from what is saved."
)


@shared
def work_until_lost(fault: Callable[[], None], faulty: int, folder: Path, work: str) -> None:
    """Sums or trains for ever, or waits for the first one; one of the two fails."""
    fabric = make_fabric(TrainConfig(accelerator="cpu"))
    fabric.barrier()  # so that neither is lost while they still meet
    if work == "lead":
        lead(fabric, fault)
        return
    model = fabric.setup_module(torch.nn.Linear(4, 4))
    for step in range(10**6):
        if fabric.global_rank == faulty and step == 50:
            fault()
        if work == "train":
            fabric.backward(model(torch.ones(2, 4)).sum())
        else:
            sum_up(fabric, torch.tensor(1))


def run_pair(
    fault: Callable[[], None], faulty: int, folder: Path, timeout: float, work: str = "sum"
) -> tuple[list[int | None], float]:
    """Two processes as of torchrun; exit codes, and seconds. What one says is ``folder/RANK``."""
    port = find_port()

    def start(rank: int) -> None:
        os.environ.update(as_torchrun(rank, 2, port))
        os.environ[TIMEOUT] = str(timeout)
        heartbeat._GRACE = 2.0
        sys.stderr = (folder / f"error{rank}").open("w")
        torch.set_num_threads(1)
        try:
            work_until_lost(fault, faulty, folder, work)
        except ProcessError as error:
            (folder / str(rank)).write_text(str(error))
            raise SystemExit(1) from None

    context, begin = multiprocessing.get_context("fork"), time.monotonic()
    processes = [context.Process(target=start, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    processes[1 - faulty].join(60)
    seconds = time.monotonic() - begin
    for process in processes:
        process.kill()
        process.join()
    return [process.exitcode for process in processes], seconds


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop_self() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def say(folder: Path, rank: int) -> str:
    """What a process said, by its error or by the thread that ended it."""
    if (folder / str(rank)).is_file():
        return (folder / str(rank)).read_text()
    return (folder / f"error{rank}").read_text().removeprefix("Error: ").strip()


@pytest.mark.parametrize("faulty", [0, 1])
def test_shared_with_a_killed_process(tmp_path: Path, faulty: int) -> None:
    """The other one ends by the operation that broke."""
    codes, seconds = run_pair(kill_self, faulty, tmp_path, 600)
    assert codes[faulty] == -signal.SIGKILL
    assert codes[1 - faulty] == 1
    assert seconds < 30
    assert say(tmp_path, 1 - faulty) == LOST.format(600)


@pytest.mark.parametrize("work", ["sum", "train", "lead"])
def test_shared_with_a_stopped_process(tmp_path: Path, work: str) -> None:
    """It stops answering, also where the other one waits for days."""
    codes, seconds = run_pair(stop_self, 0, tmp_path, 2, work)
    assert codes[1] == 1
    assert seconds < 30
    assert say(tmp_path, 1) == LOST.format(2)


def test_lead_with_a_killed_leader(tmp_path: Path) -> None:
    """As in a long pre-training."""
    codes, seconds = run_pair(kill_self, 0, tmp_path, 600, "lead")
    assert codes[1] == 1
    assert seconds < 30
    assert say(tmp_path, 1) == LOST.format(600)


def fail_alone() -> None:
    raise RuntimeError("out of luck")


def test_shared_with_a_process_that_fails(tmp_path: Path) -> None:
    """Its own error stays its own; the other one does not wait for it."""
    codes, seconds = run_pair(fail_alone, 1, tmp_path, 600)
    assert codes == [1, 1]
    assert seconds < 30
    assert say(tmp_path, 0) == LOST.format(600)
    assert "out of luck" in (tmp_path / "error1").read_text()


class DyingChild:
    """A child whose exit is seen at the n-th poll, or when it is killed."""

    returncode: int | None = None

    def __init__(self, looks: float = float("inf"), code: int = -signal.SIGKILL) -> None:
        self.looks, self.code = looks, code

    def poll(self) -> int | None:
        self.looks -= 1
        if self.looks <= 0:
            self.returncode = self.code
        return self.returncode

    def kill(self) -> None:
        self.returncode = -signal.SIGKILL


def test_Heartbeat_judge_names_the_lost_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its end is seen late, and not the one that this process kills then."""
    monkeypatch.setattr(heartbeat.distributed, "new_group", lambda **_: None)
    living, lost = DyingChild(), DyingChild(looks=4)
    beat = heartbeat.Heartbeat(read_timeout(), [living, lost])
    beat.lost.set()
    with pytest.raises(ProcessError, match="process 2 of this machine was killed by signal 9;"):
        beat.judge(RuntimeError("Connection closed by peer"))
    assert living.returncode == -signal.SIGKILL


def test_Heartbeat_explain_names_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the child that failed, where another one has ended well."""
    monkeypatch.setattr(heartbeat.distributed, "new_group", lambda **_: None)
    children = [DyingChild(looks=1, code=0), DyingChild(looks=1, code=3)]
    told = str(heartbeat.Heartbeat(read_timeout(), children).explain())
    assert "but process 2 of this machine ended with exit code 3; start the same" in told


@pytest.mark.parametrize(("is_lost", "patience"), [(False, 90.0), (True, 0.0)])
def test_Heartbeat_end_waits_for_children_unless_one_is_lost(
    is_lost: bool, patience: float
) -> None:
    """They may have something to finish when the process that started them ends."""
    waited: list[float] = []
    beat = SimpleNamespace(
        is_alive=lambda: False, lost=threading.Event(), timeout=timedelta(seconds=90),
        kill_children=waited.append,
    )  # fmt: skip
    if is_lost:
        beat.lost.set()
    heartbeat._end(beat)
    assert waited == [patience]


def test_alone_ends_with_its_block() -> None:
    """Also by an error; from then on a process that waits for a lost one is ended."""
    with pytest.raises(KeyError), alone():
        assert heartbeat._HERE.works_alone
        raise KeyError
    assert not heartbeat._HERE.works_alone


def test_read_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten minutes, or what the variable says."""
    monkeypatch.delenv(TIMEOUT, raising=False)
    assert read_timeout().total_seconds() == 600
    monkeypatch.setenv(TIMEOUT, "90.5")
    assert read_timeout().total_seconds() == 90.5
    for wrong in ("", "0", "0.5", "nan", "inf", "1e9", "-5"):
        monkeypatch.setenv(TIMEOUT, wrong)
        with pytest.raises(ConfigError) as caught:
            read_timeout()
        assert str(caught.value) == (
            f"$MATCH_GRAPH_TIMEOUT must be the seconds after which a process that does not answer "
            f"counts as lost, in 1..10000000, found '{wrong}'; correct or unset it."
        )
