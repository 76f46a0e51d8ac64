"""Processes of cells: how they are started."""

import subprocess
import sys
from pathlib import Path

import pytest

from match_graph.benchmark.cell import make_context

SCRIPT = """
from multiprocessing import current_process

import match_graph as mg

assert current_process().name == "MainProcess", "a cell has imported the script"
results = mg.run_benchmark(mg.load_experiment({experiment!r}), {out!r}, root={root!r})
print([cell.status for cell in results.cells])
"""
EXPERIMENT = """
question: Is it fast?
datasets: [synthetic]
runs: 1
measures: [P@1]
settings: {data.options: {num_documents: 200, num_labels: 10}}
rows: [{name: prior, encoder: prior}]
"""


def test_make_context_long_tmpdir(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket would not fit, so that there is none."""
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert make_context().get_start_method() == "forkserver"
    monkeypatch.setattr("tempfile.tempdir", "/tmp/" + "x" * 70)
    assert make_context().get_start_method() == "spawn"


def test_start_process_without_main_guard(tmp_path: Path) -> None:
    """A script as in a gallery, its temporary folder too long for a socket."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    (tmp_path / "trial.yaml").write_text(EXPERIMENT)
    names = {name: str(tmp_path / name) for name in ("out", "root")}
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(experiment=str(tmp_path / "trial.yaml"), **names))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False,
        env={"PYTHONPATH": ":".join(sys.path), "TMPDIR": str(long), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout == "['done']\n", done.stderr
