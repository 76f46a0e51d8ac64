"""Stages of a run: torch's state is restored and interruptions are recorded."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from match_graph.runs import open_run, start_run
from match_graph.runs import record as record_module
from match_graph.runs import run as run_module
from match_graph.runs.readers import read_record
from match_graph.training.device import deterministic


def test_Run_train_deterministic_algorithms_end_with_it(
    monkeypatch: pytest.MonkeyPatch, small_settings, tmp_path: Path
) -> None:
    """`train.deterministic` holds while a stage works, and not in the process that goes on."""
    gpu = torch.device("cuda")  # there need not be one
    monkeypatch.setattr(run_module, "deterministic", lambda config, _: deterministic(config, gpu))
    config = small_settings("train.deterministic=true", "train.epochs=2")
    run = start_run("synthetic", config, tmp_path / "run", tmp_path / "root")

    def watch(_: object) -> None:
        assert torch.are_deterministic_algorithms_enabled()
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run.train(watch)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_find_git_hash_is_of_the_package_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not of a project whose environment the package is installed in."""
    package = tmp_path / "venv" / "record.py"
    package.parent.mkdir()
    package.touch()
    monkeypatch.setattr(record_module, "__file__", str(package))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    find_git_hash = record_module.find_git_hash.__wrapped__
    assert find_git_hash() is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "Begin"], check=True)
    assert find_git_hash() is None
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "Add the package"], check=True)
    assert re.fullmatch("[0-9a-f]{40}", find_git_hash())


def test_RunRecord_says_whether_a_stage_was_broken_off(small_settings, tmp_path: Path) -> None:
    """One that goes on after it has seconds that are not those of an uninterrupted one."""
    config = small_settings("train.epochs=2", "model.blend=false")
    run = start_run("synthetic", config, tmp_path / "run", tmp_path / "root")

    def watch(_: object) -> None:
        raise InterruptedError

    run.pretrain()
    record = read_record(run.folder)
    assert (record["resumed"], "stage" in record) == (False, False)
    with pytest.raises(InterruptedError):
        run.train(watch)
    record = read_record(run.folder)
    assert (record["resumed"], record["stage"]) == (False, "train")
    again = open_run(run.folder, run.dataset.root)
    again.train()
    again.evaluate()
    record = read_record(run.folder)
    assert (record["resumed"], "stage" in record) == (True, False)
