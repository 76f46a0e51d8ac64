"""Stages of a run: torch's state is restored and interruptions are recorded."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from match_graph.nn import ENCODERS, match_loss
from match_graph.runs import Run, open_run, start_run
from match_graph.runs import record as record_module
from match_graph.runs import run as run_module
from match_graph.runs.readers import read_record
from match_graph.training.device import deterministic

#: Those that need no checkpoint of others.
ENCODER_NAMES = sorted(ENCODERS.keys() - {"language_model"})


def test_Run_train_deterministic_algorithms_end_with_it(
    monkeypatch: pytest.MonkeyPatch, small_settings, tmp_path: Path
) -> None:
    """Deterministic algorithms are on within a stage, and off after it."""
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
    """The commit is not that of a project in whose environment the package is installed."""
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
    """The record says whether a run was resumed after a stage was broken off."""
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


@pytest.fixture
def start_one(trained_run: Run, small_settings, tmp_path: Path):
    """Starts a run of an encoder at its defaults, on the data of `trained_run`."""

    def start(name: str, encoder: str, *settings: str) -> Run:
        own = f"model.encoder={encoder}", "model.encoder_config={}", "train.precision=32-true"
        config = small_settings(*own, "pretrain.samples=1000", *settings)
        return start_run("synthetic", config, tmp_path / name, trained_run.dataset.root)

    return start


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ENCODER_NAMES)
def test_Run_model_scores_on_a_gpu_as_on_the_cpu(encoder: str, start_one) -> None:
    """Scores in float32 and gradients on a GPU are as on the CPU, and finite."""
    run = start_one("run", encoder, "model.init=random", "train.accelerator=cpu")
    model, batch = run.make_model().eval(), next(iter(run.loader("valid")))
    with torch.no_grad():
        expected = model(batch)
        found = model.to("cuda")(batch.to("cuda")).cpu()
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
    batch = next(iter(run.loader("train"))).to("cuda")
    match_loss(
        model.train()(batch), batch.gold, model.head, run.hierarchy.to("cuda"),
        lambda_parameter=1e-3, lambda_output=0.1,
    ).total.backward()  # fmt: skip
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    assert gradients
    assert all(one.isfinite().all() for one in gradients)


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ENCODER_NAMES)
def test_Run_trains_twice_alike_on_a_gpu(encoder: str, start_one) -> None:
    """With train.deterministic, weights and measures on a GPU are bit-identical."""
    settings = "train.deterministic=true", "train.epochs=1", "model.blend=true"
    runs = [start_one(name, encoder, *settings) for name in ("one", "two")]
    metrics = []
    for run in runs:
        run.train()
        metrics.append(run.evaluate())
    one, two = (run.load_model().state_dict() for run in runs)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert metrics[0]["test"] == metrics[1]["test"]
