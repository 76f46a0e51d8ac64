"""Processes of a run are counted and started, and find each other or say why not."""

import io
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from match_graph.config import TrainConfig
from match_graph.errors import ConfigError, MatchGraphError
from match_graph.training import launch
from match_graph.training.device import make_fabric
from match_graph.training.heartbeat import TIMEOUT
from match_graph.training.launch import check_number, count_processes

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TORCHRUN = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_PORT": "1",
    "MASTER_ADDR": "127.0.0.1",
    "TORCHELASTIC_RUN_ID": "test",
}


@pytest.fixture
def refusal() -> Callable[..., tuple[str, str]]:
    """What `make_fabric` raises in a process of its own, and what it says before."""

    def run(config: TrainConfig, **variables: Any) -> tuple[str, str]:
        reader, writer = multiprocessing.Pipe(duplex=False)

        def work() -> None:
            os.environ.update({name: str(value) for name, value in variables.items()})
            launch._SAY_AFTER = 0.2
            sys.stderr = said = io.StringIO()
            try:
                make_fabric(config)
            except MatchGraphError as error:
                writer.send((f"{type(error).__name__}: {error}", said.getvalue()))

        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join(60)
        process.kill()
        assert process.exitcode == 0
        assert reader.poll()
        found: tuple[str, str] = reader.recv()
        return found

    return run


def test_launch_alone_fails_of_something_else() -> None:
    """A single process has no rendezvous: an error of its device is not reported as one."""

    class Broken:
        strategy = None

        def launch(self) -> None:
            raise RuntimeError("CUDA error: initialization error")

    with pytest.raises(RuntimeError, match="CUDA error"):
        launch.launch(Broken(), TrainConfig())


@pytest.fixture
def port() -> int:
    """A port that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_count_processes_takes_the_number_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is refused; without torchrun the settings count."""
    asked = TrainConfig(devices=4, num_nodes=2)
    assert count_processes(asked) is asked
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    found = count_processes(TrainConfig())
    assert (found.devices, found.num_nodes) == (2, 1)
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert count_processes(asked).num_nodes == 4
    with pytest.raises(ConfigError) as caught:
        count_processes(TrainConfig(devices=3))
    assert str(caught.value) == (
        "train.devices x train.num_nodes must be the number of processes that torchrun started, "
        "found 3 x 1 and 8; leave them out, or run torchrun with --nproc-per-node 3 --nnodes 1."
    )


def test_count_processes_without_the_variables_of_torchrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of them alone, and one that is no number."""
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    with pytest.raises(ConfigError) as caught:
        count_processes(TrainConfig())
    assert str(caught.value) == (
        "Where $TORCHELASTIC_RUN_ID is set, torchrun must have set the rest of what a process "
        "needs, but there is no $RANK; start this command by torchrun, or unset "
        "$TORCHELASTIC_RUN_ID."
    )
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    for wrong in ("two", "-1", "1" * 5000, "65536"):
        monkeypatch.setenv("WORLD_SIZE", wrong)
        with pytest.raises(ConfigError) as caught:
            count_processes(TrainConfig())
        assert str(caught.value) == (
            "$WORLD_SIZE must be a number in 0..65535 for several processes to share a run, found "
            f"'{wrong}'; correct or unset it."
        )


def test_check_number_refuses_too_many_processes() -> None:
    """More processes than the processors can run are refused.

    Before any is started.
    """
    most = 8 * (os.cpu_count() or 1)
    check_number(TrainConfig(devices=most), torch.device("cpu"))
    with pytest.raises(ConfigError) as caught:
        make_fabric(TrainConfig(devices=4096, accelerator="cpu"))
    assert str(caught.value) == (
        f"train.devices must be at most {most} on CPU here, 8 for each processor, found 4096; "
        f"ask for fewer."
    )


def test_launch_of_one_of_two_machines_says_what_it_waits_for(refusal, port: int) -> None:
    """And gives up when the time is over."""
    config = TrainConfig(num_nodes=2, accelerator="cpu")
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    error, said = refusal(config, **place, **{TIMEOUT: 1})
    assert said == (
        f"process 0 of 2 waits at 127.0.0.1:{port} for the others (started with "
        f"MASTER_ADDR=127.0.0.1 MASTER_PORT={port} NODE_RANK=1 and so on), at most 1 s\n"
    )
    missing = (
        f"ProcessError: All processes of a run must meet at 127.0.0.1:{port}, but process %d did "
        f"not come within 1 s ($MATCH_GRAPH_TIMEOUT); start the same command on every machine with "
        f"its $NODE_RANK and the same $MASTER_ADDR and $MASTER_PORT."
    )
    assert error == missing % 1
    error, said = refusal(config, NODE_RANK=1, **place, **{TIMEOUT: 1})
    assert said == f"process 1 of 2 waits for process 0 at 127.0.0.1:{port}, at most 1 s\n"
    assert error == missing % 0


def test_launch_where_variables_are_wrong(refusal) -> None:
    """A rank out of range, no port, a timeout that is no number."""
    config = TrainConfig(num_nodes=2, accelerator="cpu")
    assert refusal(config, NODE_RANK=2)[0] == (
        "ConfigError: $NODE_RANK must be below train.num_nodes and $LOCAL_RANK below "
        "train.devices, found 2 of 2 and 0 of 1; correct them, or unset $LOCAL_RANK for this "
        "command to start the others itself."
    )
    assert refusal(config, NODE_RANK=1)[0] == (
        "ConfigError: $MASTER_ADDR and $MASTER_PORT must say where process 0 of a run is, found no "
        "port in process 1; set them as on the first machine, or run torchrun."
    )
    assert refusal(config, **{TIMEOUT: "soon"})[0] == (
        "ConfigError: $MATCH_GRAPH_TIMEOUT must be the seconds after which a process that does not "
        "answer counts as lost, in 1..10000000, found 'soon'; correct or unset it."
    )


def test_launch_at_a_taken_port_starts_no_other_process(refusal) -> None:
    """Nothing is left to wait for it."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = TrainConfig(devices=2, accelerator="cpu")
        error, said = refusal(config, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    assert error == (
        f"ProcessError: Process 0 of a run must hold the port {port}, where the others find it, "
        f"but it cannot (address already in use); choose another $MASTER_PORT, or unset it for a "
        f"free one."
    )
    assert "Traceback" not in said
