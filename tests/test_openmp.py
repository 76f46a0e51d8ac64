"""OpenMP: spinning is limited in processes of match-graph, and in no other; thread numbers."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Barrier

import pytest
import torch

from match_graph.openmp import (
    SPIN_COUNT,
    is_program,
    limit_spinning,
    limit_threads,
    open_threads,
)
from match_graph.speed.alone import run_alone

SCRIPT = "import match_graph.cli, torch"  # as a command does that computes
DECIDED = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY")


def run_process(arguments: list[str], **variables: str) -> str:
    """The spin count that libgomp reports in a new process."""
    environment = {key: value for key, value in os.environ.items() if key not in DECIDED}
    environment |= {"OMP_DISPLAY_ENV": "verbose", **variables}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    assert lines, done.stderr
    return lines[0].partition("'")[2].rstrip("'")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="torch comes with libgomp on Linux")
@pytest.mark.parametrize(
    ("name", "variables", "count"),
    [
        ("match-graph", {}, "1000"),
        ("match-graph", {"GOMP_SPINCOUNT": "77"}, "77"),
        ("match-graph", {"OMP_WAIT_POLICY": "passive"}, "0"),
        ("-m", {}, "1000"),
        ("mine.py", {}, "300000"),
    ],
)
def test_limit_spinning_reaches_libgomp(
    tmp_path: Path, name: str, variables: dict[str, str], count: str
) -> None:
    """The program's libgomp spins less unless the user has set how; a script's is left alone."""
    script = tmp_path / name
    script.write_text(SCRIPT)
    ours = ["-m", "match_graph.cli", "datasets", "--json"]
    assert run_process(ours if name == "-m" else [str(script)], **variables) == count


@pytest.mark.parametrize("name", DECIDED)
def test_limit_spinning_keeps_what_is_set(name: str) -> None:
    environment = {name: ""}
    limit_spinning(environment)
    assert environment == {name: ""}


def test_limit_spinning_sets_the_count() -> None:
    environment: dict[str, str] = {}
    limit_spinning(environment)
    assert environment == {"GOMP_SPINCOUNT": str(SPIN_COUNT)}


@pytest.mark.parametrize(
    ("arguments", "command", "expected"),
    [
        (["/usr/bin/match-graph", "run"], ["python", "/usr/bin/match-graph", "run"], True),
        (["C:\\bin\\match-graph.exe"], ["python"], sys.platform == "win32"),
        (["match-graph.exe"], ["python"], True),
        (["-m", "run"], ["python", "-u", "-m", "match_graph.cli", "run"], True),
        (["-m"], ["python", "-m", "mine", "match_graph_too"], False),
        (["mine.py", "match_graph.cli"], ["python", "mine.py", "match_graph.cli"], False),
        (["-c"], ["python", "-c", "import match_graph"], False),
        ([], ["python"], False),
    ],
)
def test_is_program(arguments: list[str], command: list[str], expected: bool) -> None:
    assert is_program(arguments, command) == expected


def test_run_alone_limits_spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that we start has it, although this one may not."""
    for name in DECIDED:
        monkeypatch.delenv(name, raising=False)
    assert run_alone(os.getenv, "GOMP_SPINCOUNT") == str(SPIN_COUNT)


@pytest.mark.parametrize(("number", "inside"), [(0, 1), (1, 1), (2, 2), (99, 3)])
def test_limit_threads_is_between_one_and_what_was_allowed(number: int, inside: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with limit_threads(number):
            assert torch.get_num_threads() == inside
        assert torch.get_num_threads() == 3
        with pytest.raises(ZeroDivisionError), limit_threads(1):
            raise ZeroDivisionError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_open_threads_share_those_of_torch() -> None:
    """A pool has as many threads as torch with one each, or one thread with all of them."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        for most, workers, each in ((8, 3, 1), (2, 2, 1), (1, 1, 3)):
            with open_threads(most) as pool:
                started = Barrier(workers)

                def work(started: Barrier = started) -> int:
                    started.wait(timeout=60)  # so that every thread is one that works
                    return torch.get_num_threads()

                found = [pool.submit(work) for _ in range(workers)]
                assert [one.result() for one in found] == [each] * workers
                assert pool._max_workers == workers
            assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
