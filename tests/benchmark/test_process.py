"""Processes of cells: how they are started."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from match_graph.benchmark.process import describe_error, make_context
from match_graph.errors import ConfigError

#: Without ``if __name__ == "__main__"``, as a script of a gallery.
SCRIPT = """
print("imported", flush=True)
import operator
from multiprocessing import get_context
from match_graph.benchmark.process import start_process

process, _ = start_process(get_context("spawn"), operator.is_, None)
process.join()
print(process.exitcode)
"""


def test_make_context_long_tmpdir(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are spawned if the path of a socket would be too long."""
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert make_context().get_start_method() == "forkserver"
    monkeypatch.setattr("tempfile.tempdir", "/tmp/" + "x" * 70)
    assert make_context().get_start_method() == "spawn"


def test_make_context_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes forked after the GPU's driver was initialized cannot use it."""
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert make_context().get_start_method() == "spawn"


@pytest.mark.slow
def test_start_process_does_not_import_the_script(tmp_path: Path) -> None:
    """A script needs no ``if __name__ == "__main__"``."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout == "imported\n0\n", done.stderr


@pytest.mark.parametrize("kind", [ValueError, ConfigError])
def test_describe_error_fits_a_pipe(kind: type[Exception]) -> None:
    """The reason of a failed cell is shorter than the 64 KiB that a pipe holds."""
    told = describe_error(kind("\U0001f600" * 200_000))
    assert len(told) > 5_000  # cut, not dropped
    assert len(pickle.dumps(told)) < 2**16  # as a connection of multiprocessing sends it
    assert describe_error(kind("short")).endswith("short")
