"""Checkpoints: of what they are, when they are due, and what a broken one costs."""

from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from match_graph.config import TrainConfig
from match_graph.errors import CheckpointError
from match_graph.graph import EgoBatch
from match_graph.io.files import read_state, read_tensors, write_state
from match_graph.io.manifest import write_manifest
from match_graph.io.run_folder import HISTORY, MODEL, STATE
from match_graph.nn.loss import Losses
from match_graph.runs import Run, start_run
from match_graph.training import checkpoint
from match_graph.training import loop as loop_module
from match_graph.training.checkpoint import LossMeter, SaveTimer, TrainState, close_training
from match_graph.training.device import make_fabric


@pytest.fixture
def make_run(tmp_path: Path, small_settings):
    """Starts a run of the small corpus without pre-training."""

    def make(name: str, *settings: str) -> Run:
        config = small_settings("model.init=random", "train.precision=32-true", *settings)
        return start_run("synthetic", config, tmp_path / name, tmp_path / "root")

    return make


@pytest.fixture
def broken_off(make_run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with checkpoints after every step, stopped in the second epoch."""
    run, original = make_run("run"), loop_module.train_step
    monkeypatch.setattr(checkpoint, "SAVE_POINT_EVERY", 1)

    def step_or_stop(learner, *args):
        if (learner.state.epoch, learner.state.step) == (1, 3):
            raise KeyboardInterrupt
        return original(learner, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop_module, "train_step", step_or_stop)
        patch.setattr(checkpoint, "SAVE_SECONDS", 0.0)
        patch.setattr(checkpoint, "SAVE_FACTOR", 0.0)
        run.train()
    return run


def test_Run_checkpoint_is_complete_and_without_pickle(broken_off: Run) -> None:
    """Tensors and plain values alone: `read_state` takes nothing else."""
    content = read_state(broken_off.folder / STATE)
    assert content["train"] == {**content["train"], "epoch": 1, "step": 3}
    assert content["origin"] == broken_off.origin
    assert len(content["optimizer"]["state"]) > 0
    assert content["average"]
    assert content["random"]["cpu"].shape == (1, torch.get_rng_state().numel())
    assert content["losses"]["num_documents"].tolist() == [3 * broken_off.config.train.batch_size]


def test_Run_truncated_checkpoint_falls_back_to_the_previous(
    broken_off: Run, make_run, capsys: pytest.CaptureFixture
) -> None:
    """The training says so, goes on, and ends with the same weights."""
    whole = make_run("whole")
    whole.train()
    path = broken_off.folder / STATE
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    again = make_run("run")
    again.train()
    assert f"warning: the checkpoint '{path}' cannot be read" in capsys.readouterr().err
    left, right = (read_tensors(run.folder / MODEL) for run in (whole, again))
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert (whole.folder / HISTORY).read_text() == (again.folder / HISTORY).read_text()


def test_Run_checkpoint_of_other_settings_is_refused(broken_off: Run, make_run) -> None:
    """A whole sentence, and the file stays."""
    other = make_run("other", "seed=1")
    assert other.origin != broken_off.origin
    path = other.folder / STATE
    path.parent.mkdir()
    path.write_bytes((broken_off.folder / STATE).read_bytes())
    write_manifest(other.folder)
    with pytest.raises(CheckpointError) as caught:
        other.train()
    assert str(caught.value) == (
        f"The checkpoint '{path}' must be of the data and settings of this run, but it was made "
        f"with others; delete the folder '{path.parent}' to train again."
    )
    assert path.is_file()


@pytest.mark.parametrize("part", ["model", "average", "optimizer", "losses"])
def test_Run_checkpoint_of_another_model_is_refused(broken_off: Run, make_run, part: str) -> None:
    """Where a part is missing, has other shapes or is of another kind."""
    path = broken_off.folder / STATE
    content = read_state(path)
    changed = {
        "model": {**content["model"], "head.bias": torch.zeros(3)},
        "average": content["average"][:-1],
        "optimizer": {},
        "losses": None,
    }
    write_state(path, {**content, part: changed[part]})
    with pytest.raises(CheckpointError) as caught:
        make_run("run").train()
    text = str(caught.value)
    assert text.startswith(
        f"The checkpoint '{path}' must hold the weights, moments and counts of this run's model, "
        f"but it cannot be used ("
    )
    assert text.endswith(f"); delete the folder '{path.parent}' to train again.")


def test_close_training_keeps_the_progress_alone(tmp_path: Path) -> None:
    """Weights go with the previous checkpoint and the parts; origin and progress stay."""
    path = tmp_path / STATE
    train = asdict(TrainState(epoch=2, best=0.5, best_epoch=1))
    for origin in ("before", "here"):
        write_state(path, {"origin": origin, "train": train, "model": {"w": torch.ones(9)}})
    parts = path.parent / "parts-1"
    parts.mkdir()
    (parts / "shard").touch()
    close_training(tmp_path, TrainConfig(epochs=2))
    assert read_state(path) == {"origin": "here", "train": train}
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_SaveTimer_is_due_by_clock_and_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After 30 seconds; after one that took 4 seconds, not before 80; after every other step."""
    now = 100.0
    monkeypatch.setattr(checkpoint, "SAVE_POINT_EVERY", 2)
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now)
    timer = SaveTimer(make_fabric(TrainConfig(accelerator="cpu")))
    now += 29
    assert not timer.is_due(2)
    now += 1
    assert (timer.is_due(3), timer.is_due(4)) == (False, True)
    with timer.writing():
        now += 4
    now += 79
    assert not timer.is_due(6)
    now += 1
    assert timer.is_due(8)
    with timer.writing():
        pass
    now += 30
    assert timer.is_due(10)


def test_SaveTimer_is_due_after_epochs_longer_than_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Always after the first; after one that took .5 seconds, not before 10."""
    now = 100.0
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now)
    timer = SaveTimer(make_fabric(TrainConfig(accelerator="cpu")))
    assert timer.is_due_after_epoch()
    with timer.writing():
        now += 0.5
    now += 9.5
    assert not timer.is_due_after_epoch()
    now += 0.5
    assert timer.is_due_after_epoch()


def test_LossMeter_losses_are_means_over_documents() -> None:
    """Batches of different size by hand; a share of 0 counts nothing, and states read back."""
    fabric = make_fabric(TrainConfig(accelerator="cpu"))
    config = TrainConfig(lambda_parameter=0.5, lambda_output=2.0)
    empty = torch.zeros(0, dtype=torch.int64)

    def batch(size: int, share: float = 1.0) -> EgoBatch:
        made = EgoBatch(torch.arange(size), empty, empty, empty, torch.zeros(size + 1).long())
        return replace(made, share=share)

    def losses(bce: float) -> Losses:
        parts = [torch.tensor(value) for value in (99.0, bce, 4.0, 1.0)]
        return Losses(*parts)

    meter = LossMeter(fabric.device)
    assert float(meter.update(losses(1.0), config, batch(3))) == 5.0
    meter.update(losses(3.0), config, batch(1))
    meter.update(losses(1000.0), config, batch(1, share=0.0))
    found = meter.compute(fabric)
    assert found == {
        "loss": 5.5, "loss_bce": 1.5, "loss_parameter": 4.0, "loss_output": 1.0,
        "loss_recent": pytest.approx(4.0),
    }  # fmt: skip
    again = LossMeter(fabric.device)
    again.load_state_dict(meter.state_dict(fabric), fabric)
    assert again.compute(fabric) == found
    halves = {name: torch.cat([part, part]) for name, part in meter.state_dict(fabric).items()}
    again.reset()
    again.load_state_dict(halves, fabric)  # two processes, now one
    assert again.num_documents == 2 * meter.num_documents
    assert again.compute(fabric)["loss"] == found["loss"]
    again.reset()
    assert again.compute(fabric) == dict.fromkeys(found, 0.0)
    second = SimpleNamespace(global_rank=1, world_size=2)  # the first process takes it all
    again.load_state_dict(meter.state_dict(fabric), second)
    assert again.num_documents == 0
    assert not again.sums.any()


def test_TrainState_str_says_epoch_and_steps() -> None:
    """For the line that says what is gone on from."""
    assert str(TrainState(epoch=2)) == "epoch 2"
    assert str(TrainState(epoch=2, step=7)) == "epoch 2 and 7 steps"


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1}, {"epoch": 2**60}, {"epoch": "1"}, {"epoch": True}, {"step": -3},
        {"best": float("nan")}, {"best_epoch": 9}, {"other": 1}, None,
    ],
)  # fmt: skip
def test_TrainState_from_checkpoint_refuses_what_no_training_is(change) -> None:
    """Wrong types, wrong ranges, missing and other keys."""
    right = asdict(TrainState(epoch=2, best=0.5, best_epoch=1))
    path = Path("run") / STATE
    assert TrainState.from_checkpoint({"train": right}, path) == TrainState(2, 0.5, 1)
    found = None if change is None else {**right, **change}
    with pytest.raises(CheckpointError) as caught:
        TrainState.from_checkpoint({"train": found}, path)
    assert str(caught.value) == (
        f"The checkpoint '{path}' must say how far its training was, but it holds {found!r}; "
        f"delete the folder '{path.parent}' to train again."
    )


def flatten_moments(state):
    """The moments of an optimizer in one dimension."""
    moments = {
        number: {name: value.view(-1) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return {**state, "state": moments}


@pytest.mark.parametrize(
    ("part", "spoil"),
    [
        ("model", lambda model: {name: value * torch.nan for name, value in model.items()}),
        ("model", lambda _: "weights"),
        ("optimizer", lambda state: {**state, "state": {99: {}}}),
        ("optimizer", lambda state: {**state, "param_groups": []}),
        ("optimizer", flatten_moments),
        ("losses", lambda losses: {**losses, "sums": torch.zeros(1, 7)}),
        ("losses", lambda losses: {**losses, "recent": torch.full((1, 2), torch.inf)}),
        ("random", lambda _: {"cpu": torch.zeros(1, 3, dtype=torch.uint8)}),
        ("random", lambda _: None),
        ("history", lambda _: {"epoch": [1, 2, 3]}),
        ("history", lambda _: {"epoch": [1], "loss": [1.0, 2.0]}),
        ("train", lambda train: {**train, "step": 10**6}),
    ],
)
def test_Run_crafted_checkpoint_is_one_sentence(
    broken_off: Run, make_run, part: str, spoil
) -> None:
    """Whatever is wrong in it; what was there stays."""
    path = broken_off.folder / STATE
    content = read_state(path)
    write_state(path, {**content, part: spoil(content[part])}, keep_previous=False)
    kept = path.read_bytes()
    with pytest.raises(CheckpointError) as caught:
        make_run("run").train()
    assert str(caught.value).startswith(f"The checkpoint '{path}' must ")
    assert str(caught.value).endswith(f"; delete the folder '{path.parent}' to train again.")
    assert path.read_bytes() == kept
