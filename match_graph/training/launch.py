"""Launch and rendezvous of the processes of a run."""

import atexit
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from subprocess import Popen

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments import LightningEnvironment
from lightning_fabric.strategies import ParallelStrategy
from torch import distributed

from match_graph.config import TrainConfig
from match_graph.errors import ConfigError, ProcessError
from match_graph.training.heartbeat import PARENT, TIMEOUT, read_timeout, start_heartbeat

#: Variables that torchrun sets for every process, besides $MASTER_ADDR.
_NUMBERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT")
#: Seconds of waiting after which a message says what for: other machines, processes of this one;
#: and seconds between two checks.
_SAY_AFTER, _SAY_AFTER_HERE, _CHECK_EVERY = 5.0, 60.0, 0.1
#: The highest port, which bounds ranks and counts of processes too.
_MOST = 65535
#: Largest number of processes per processor on CPU; more are no faster.
_PER_PROCESSOR = 8


def count_processes(config: TrainConfig) -> TrainConfig:
    """The settings with the number of devices and machines that torchrun chose, if it runs this.

    Raises:
        ConfigError: The settings ask for another number, or what torchrun sets is missing.
    """
    if not is_by_torchrun():
        return config
    missing = [name for name in (*_NUMBERS, "MASTER_ADDR") if name not in os.environ]
    if missing:
        raise ConfigError(
            f"Where $TORCHELASTIC_RUN_ID is set, torchrun must have set the rest of what a process "
            f"needs, but there is no ${missing[0]}; start this command by torchrun, or unset "
            f"$TORCHELASTIC_RUN_ID."
        )
    numbers = {name: read_number(name) for name in _NUMBERS}
    world, local = numbers["WORLD_SIZE"], numbers["LOCAL_WORLD_SIZE"]
    asked = config.devices * config.num_nodes
    if asked not in (1, world):
        raise ConfigError(
            f"train.devices x train.num_nodes must be the number of processes that torchrun "
            f"started, found {config.devices} x {config.num_nodes} and {world}; leave them out, or "
            f"run torchrun with --nproc-per-node {config.devices} --nnodes {config.num_nodes}."
        )
    return config.model_copy(update={"devices": local, "num_nodes": max(world // local, 1)})


def is_by_torchrun() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Whether this process has rank 0, or runs without torchrun."""
    return not is_by_torchrun() or read_number("RANK") == 0


def read_number(name: str) -> int:
    """The number of an environment variable: a port, a count or rank of processes; 0 without.

    Raises:
        ConfigError: It is none in 0..65535.
    """
    text = os.environ.get(name, "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= _MOST):
        raise ConfigError(
            f"${name} must be a number in 0..{_MOST} for several processes to share a run, found "
            f"'{text}'; correct or unset it."
        )
    return int(text)


def check_number(config: TrainConfig, device: torch.device) -> None:
    """Checks that this machine can hold its processes.

    Raises:
        ConfigError: There are more than GPUs, or than the processors can run.
    """
    if device.type == "cuda" and config.devices > torch.cuda.device_count():
        raise ConfigError(
            f"train.devices must be at most the GPUs of each machine, found {config.devices} and "
            f"{torch.cuda.device_count()}; ask for fewer, or set train.accelerator=cpu."
        )
    most = _PER_PROCESSOR * (os.cpu_count() or 1)
    if device.type == "cpu" and config.devices > most:
        raise ConfigError(
            f"train.devices must be at most {most} on CPU here, {_PER_PROCESSOR} for each "
            f"processor, found {config.devices}; ask for fewer."
        )


def launch(fabric: Fabric, config: TrainConfig) -> None:
    """Starts the other processes of this machine and waits for all processes to meet.

    torchrun and schedulers that Lightning knows start processes by themselves. Elsewhere the
    command of this process is run again for each further device of this machine. Those of other
    machines are started there, with $NODE_RANK, $MASTER_ADDR and $MASTER_PORT.

    Raises:
        ProcessError: They do not find each other in time, or the port is taken.
        ConfigError: A variable of the environment is wrong.
    """
    children: list[Popen[bytes]] = []
    timeout = read_timeout()
    number = config.devices * config.num_nodes
    environment = getattr(fabric.strategy, "cluster_environment", None)
    if number > 1 and isinstance(environment, LightningEnvironment):
        children = _meet(fabric, environment, config, timeout)
    try:
        fabric.launch()
        if fabric.world_size > 1:
            start_heartbeat(timeout, children)
    except RuntimeError as error:  # of torch's store and groups
        if number == 1:
            raise
        place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise ProcessError(
            f"All processes of a run must meet at {place}, but process "
            f"{os.environ.get('RANK', '0')} could not ({str(error).splitlines()[0]}); choose "
            f"another $MASTER_PORT, and check that every process is started."
        ) from error


def _meet(
    fabric: Fabric, environment: LightningEnvironment, config: TrainConfig, timeout: timedelta
) -> list["Popen[bytes]"]:
    """Rendezvous by a TCP store of process 0; returns the processes that were started here."""
    if distributed.is_initialized():  # an earlier run of this program
        return []
    local, node = read_number("LOCAL_RANK"), read_number("NODE_RANK")
    number, rank = config.devices * config.num_nodes, node * config.devices + local
    if node >= config.num_nodes or local >= config.devices:
        raise ConfigError(
            f"$NODE_RANK must be below train.num_nodes and $LOCAL_RANK below train.devices, found "
            f"{node} of {config.num_nodes} and {local} of {config.devices}; correct them, or unset "
            f"$LOCAL_RANK for this command to start the others itself."
        )
    starts_others = not environment.creates_processes_externally
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    store = _hold_store(number, timeout) if rank == 0 else _join_store(rank, number, timeout)
    children = _start_others(config.devices) if starts_others else []
    try:
        _wait_for_all(store, rank, config, timeout, children)
        assert isinstance(fabric.strategy, ParallelStrategy)
        device = fabric.strategy.root_device.type
        backend = distributed.Backend.default_device_backend_map.get(device, "gloo")
        distributed.init_process_group(
            backend, store=store, rank=rank, world_size=number, timeout=timeout
        )
    except BaseException:
        for child in children:
            child.kill()
        raise
    if backend == "nccl":
        atexit.register(distributed.destroy_process_group)
    return children


def _place() -> tuple[str, int]:
    return os.environ["MASTER_ADDR"], read_number("MASTER_PORT")


def _hold_store(number: int, timeout: timedelta) -> distributed.TCPStore:
    """Opens the store of process 0, at a free port if none is given."""
    address, port = _place()
    try:
        store = distributed.TCPStore(
            address, port, number, is_master=True, timeout=timeout, wait_for_workers=False
        )
    except RuntimeError as error:
        found = re.search(r"message: ([^)]*)", str(error))
        raise ProcessError(
            f"Process 0 of a run must hold the port {port}, where the others find it, but it "
            f"cannot ({found[1] if found else type(error).__name__}); choose another $MASTER_PORT, "
            f"or unset it for a free one."
        ) from error
    os.environ["MASTER_PORT"] = str(store.port)
    return store


def _join_store(rank: int, number: int, timeout: timedelta) -> distributed.TCPStore:
    """Connects another process to the store of process 0."""
    address, port = _place()
    if not port:
        raise ConfigError(
            f"$MASTER_ADDR and $MASTER_PORT must say where process 0 of a run is, found no port in "
            f"process {rank}; set them as on the first machine, or run torchrun."
        )
    what = f"process {rank} of {number} waits for process 0 at {address}:{port}"
    wait = _Wait(timeout, what, _SAY_AFTER)
    while True:
        try:
            socket.create_connection((address, port), timeout=_SAY_AFTER).close()
            return distributed.TCPStore(address, port, number, is_master=False, timeout=timeout)
        except (OSError, RuntimeError):
            wait.pause("process 0", address, port)


def _start_others(number: int) -> list["Popen[bytes]"]:
    """Runs this program again for each further device of this machine."""
    if "OMP_NUM_THREADS" not in os.environ:
        num_threads = max((os.cpu_count() or 1) // number, 1)
        os.environ["OMP_NUM_THREADS"] = str(num_threads)
        torch.set_num_threads(num_threads)
    os.environ["LOCAL_RANK"] = "0"
    variables = {**os.environ, PARENT: str(os.getpid())}
    command = _find_program() if number > 1 else []
    return [
        Popen(command, env={**variables, "LOCAL_RANK": str(local)})  # noqa: S603 (this program)
        for local in range(1, number)
    ]


def _find_program() -> list[str]:
    """The command that runs this program again, with its arguments."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None:
        return [sys.executable, "-m", spec.name, *sys.argv[1:]]
    if Path(sys.argv[0]).is_file() or shutil.which(sys.argv[0]):
        return [sys.executable, str(Path(sys.argv[0]).resolve()), *sys.argv[1:]]
    raise ConfigError(
        f"For several processes this program is run again, so it must be a file, found "
        f"'{sys.argv[0]}'; write it to one, or run torchrun."
    )


class _Wait:
    """A polled wait: a message after some seconds, an error at the timeout."""

    def __init__(self, timeout: timedelta, what: str, say_after: float) -> None:
        self.timeout, self.what, self.say_after = timeout, what, say_after
        self.start, self.has_said = time.monotonic(), False

    def pause(self, missing: str, address: str, port: int) -> None:
        """Sleeps until the next check.

        Raises:
            ProcessError: The time is over, or the process that started this one is gone.
        """
        elapsed = time.monotonic() - self.start
        if elapsed > self.say_after and not self.has_said:
            self.has_said = True
            sys.stderr.write(f"{self.what}, at most {self.timeout.total_seconds():.0f} s\n")
        if elapsed > self.timeout.total_seconds():
            raise ProcessError(
                f"All processes of a run must meet at {address}:{port}, but {missing} did not come "
                f"within {self.timeout.total_seconds():.0f} s (${TIMEOUT}); start the same command "
                f"on every machine with its $NODE_RANK and the same $MASTER_ADDR and $MASTER_PORT."
            )
        if PARENT in os.environ and os.getppid() != int(os.environ[PARENT]):
            raise SystemExit(1)  # the other one said why
        time.sleep(_CHECK_EVERY)


def _wait_for_all(
    store: distributed.TCPStore,
    rank: int,
    config: TrainConfig,
    timeout: timedelta,
    children: Sequence["Popen[bytes]"],
) -> None:
    """Waits until every process has registered in the store."""
    address, port = _place()
    number, is_here = config.devices * config.num_nodes, config.num_nodes == 1
    store.set(f"process {rank}", "here")
    missing = [one for one in range(number) if one != rank]
    what = f"process {rank} of {number} waits at {address}:{port} for the others"
    if rank == 0 and not is_here:
        what += f" (started with MASTER_ADDR={address} MASTER_PORT={port} NODE_RANK=1 and so on)"
    wait = _Wait(timeout, what, _SAY_AFTER_HERE if is_here else _SAY_AFTER)
    while True:
        try:
            missing = [one for one in missing if not store.check([f"process {one}"])]
        except RuntimeError as error:
            raise ProcessError(
                f"All processes of a run must meet at {address}:{port}, but process 0 ended; start "
                f"the same command again."
            ) from error
        if not missing:
            return
        for local, child in enumerate(children, start=1):
            if child.poll() is not None:
                raise ProcessError(
                    f"A run needs all of its processes, but process {local} of this machine ended "
                    f"with exit code {child.returncode} before the work began; see above why."
                )
        wait.pause(_name(missing), address, port)


def _name(missing: Sequence[int]) -> str:
    names = ", ".join(map(str, missing[:8])) + (" and others" if len(missing) > 8 else "")
    return f"process{'es' if len(missing) > 1 else ''} {names}"
