"""The loop: resuming, stopping, choosing the best."""

import math
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from match_graph.config import TrainConfig
from match_graph.errors import ConfigError
from match_graph.graph import Targets
from match_graph.graph.csr import make_ptr, row_index
from match_graph.io.files import read_state, read_tensors
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import HISTORY, MODEL, STATE
from match_graph.runs import Run, start_run
from match_graph.training import checkpoint
from match_graph.training import loop as loop_module
from match_graph.training.average import WeightAverage
from match_graph.training.checkpoint import SaveTimer, TrainState
from match_graph.training.loop import (
    FitInputs,
    draw_seed,
    train_model,
)


@pytest.fixture
def make_run(tmp_path: Path, small_settings):
    """Starts a run of the small corpus in a folder of its own."""

    def make(name: str, *settings: str) -> Run:
        config = small_settings("train.epochs=3", *settings)
        return start_run("synthetic", config, tmp_path / name, tmp_path / "root")

    return make


def test_Run_training_learns_and_keeps_the_best_epoch(make_run, monkeypatch) -> None:
    """The loss falls, the history has a row per epoch, and model.safetensors is the best one."""
    monkeypatch.setattr(checkpoint, "RECENT", 2)
    run = make_run("a", "model.blend=false")
    run.train()
    history = pd.read_csv(run.folder / HISTORY)
    assert history["epoch"].tolist() == [1, 2, 3]
    assert history["loss"].is_monotonic_decreasing
    assert history["loss"].iloc[-1] < 0.92 * history["loss"].iloc[0]
    assert history["loss_bce"].iloc[-1] < history["loss"].iloc[-1]
    assert history["loss_recent"].iloc[0] < history["loss"].iloc[0]  # the end of the epoch only
    metrics = run.evaluate()
    assert metrics["valid"]["NDCG@5"] == pytest.approx(history["NDCG@5"].max(), abs=1e-12)
    events = EventAccumulator(str(run.folder / "events")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3]


def break_off(
    run: Run, monkeypatch: pytest.MonkeyPatch, epoch: int, step: int, save_every: int = 0
) -> None:
    """Trains until a step of an epoch, with a checkpoint every so many steps, if any."""
    original, written = loop_module.train_step, SaveTimer.is_due

    def step_or_stop(learner, *args):
        if (learner.state.epoch, learner.state.step) == (epoch, step):
            raise KeyboardInterrupt
        return original(learner, *args)

    def is_due(timer, done):
        return done % save_every == 0 if save_every else written(timer, done)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop_module, "train_step", step_or_stop)
        patch.setattr(SaveTimer, "is_due", is_due)
        run.train()


@pytest.mark.parametrize(
    ("extra", "epoch", "step", "save_every"),
    [
        ((), 1, 0, 0),
        (("train.average=0.4",), 1, 5, 0),
        ((), 0, 7, 3),
        (("train.average=0", "data.max_metadata=3"), 1, 4, 4),
        (("train.average=0.5", "train.average_after=1", "train.schedule=constant"), 2, 5, 5),
    ],
)
def test_train_model_resume_is_bit_identical(
    make_run,
    monkeypatch: pytest.MonkeyPatch,
    extra: tuple[str, ...],
    epoch: int,
    step: int,
    save_every: int,
) -> None:
    """Broken off between or within epochs and started again: the same weights to the bit."""
    monkeypatch.setattr(checkpoint, "SAVE_POINT_EVERY", save_every or checkpoint.SAVE_POINT_EVERY)
    extra = "train.deterministic=true", *extra  # a GPU adds up in any order else
    whole = make_run("whole", *extra)
    whole.train()
    killed = make_run("killed", *extra)
    break_off(killed, monkeypatch, epoch, step, save_every)
    state = read_state(killed.folder / STATE)["train"]
    done = step // save_every * save_every if save_every else 0
    assert (state["epoch"], state["step"]) == (epoch, done)
    again = make_run("killed", *extra)
    again.train()
    left, right = (read_tensors(run.folder / MODEL) for run in (whole, again))
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert (whole.folder / HISTORY).read_text() == (again.folder / HISTORY).read_text()


def test_train_model_writes_the_best_weights_with_a_checkpoint(
    make_run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After short epochs there is neither; the best ones are kept until the last is written."""
    validate, runs, found = loop_module._validate, list[Run](), list[bool]()

    def fall(*args):
        """Validation that falls: the first epoch is the best."""
        fall.calls += 1
        found.append((runs[-1].folder / MODEL).exists())
        return {**validate(*args), "NDCG@5": 1 / fall.calls}

    monkeypatch.setattr(loop_module, "_validate", fall)
    for name, is_due in (("each", True), ("last", False)):
        monkeypatch.setattr(SaveTimer, "is_due_after_epoch", lambda _, due=is_due: due)
        fall.calls = 0
        runs.append(make_run(name))
        runs[-1].train()
    each, last = (read_tensors(run.folder / MODEL) for run in runs)
    assert found == [False, True, True, False, False, False]
    assert all(torch.equal(each[name], last[name]) for name in each)


def test_Run_validates_the_weights_until_averaging_starts(
    make_run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that never starts equals none; from its first epoch on it changes what is validated."""
    rows, steps, update = [], list[int](), WeightAverage.update

    def record(average: WeightAverage, step: int) -> None:
        steps.append(step)
        update(average, step)

    monkeypatch.setattr(WeightAverage, "update", record)
    for name, settings in (
        ("none", ("train.average=0",)),
        ("never", ("train.average=0.5", "train.average_after=9")),
        ("late", ("train.average=0.5", "train.average_after=2")),
    ):
        run = make_run(name, *settings)
        steps.clear()
        run.train()
        rows.append(pd.read_csv(run.folder / HISTORY)["NDCG@5"].tolist())
    none, never, late = rows
    assert never == none
    assert late[:2] == none[:2]
    assert late[2] != none[2]
    assert steps[-1] == len(steps) // 3  # counted from the last of three epochs


def test_Run_training_stops_when_validation_no_longer_improves(
    make_run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a measure that never rises, patience 2 ends after three of ten epochs."""
    run = make_run("a", "train.epochs=10", "train.patience=2", "model.blend=false")
    lines: list[str] = []
    monkeypatch.setattr(Reporter, "line", lambda _reporter, text: lines.append(text))
    values = iter([0.9, 0.9, 0.7, 0.6, 0.5])
    monkeypatch.setattr(
        loop_module, "evaluate_model", lambda *_, **__: {"P@1": 0.5, "NDCG@5": next(values)}
    )
    run.train()
    assert len(pd.read_csv(run.folder / HISTORY)) == 3
    assert lines[-1] == (
        "train: stopped after epoch 3 of 10, as validation NDCG@5 did not rise for 2 epochs "
        "(train.patience)"
    )


def test_TrainState_knows_when_it_is_over() -> None:
    """Epochs used up, or patience."""
    config = TrainConfig(epochs=5, patience=2)
    assert TrainState(epoch=5, best_epoch=5).is_over(config)
    assert TrainState(epoch=4, best_epoch=2).is_over(config)
    assert not TrainState(epoch=4, best_epoch=3).is_over(config)
    assert not TrainState().is_over(config)


def test_Run_loss_that_is_not_finite_is_one_sentence(make_run) -> None:
    """A diverging run stops, names the setting, and leaves no weights."""
    run = make_run("a", "train.epochs=1")
    beyond = {"learning_rate": 1e30, "clip_norm": 1e30}  # out of the bounds of a file
    train = run.config.train.model_copy(update=beyond)
    run.config = run.config.model_copy(update={"train": train})
    with pytest.raises(ConfigError) as caught:
        run.train()
    assert str(caught.value) == (
        "The training loss and the weights must stay finite, but they did not in epoch 1; lower "
        "train.learning_rate (now 1e+30) and run again (overwrite=True, --overwrite)."
    )
    assert not (run.folder / MODEL).exists()


@pytest.mark.parametrize("broken", ["loss", "weight"])
def test_train_step_that_is_not_finite_is_not_kept(
    make_run, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Neither within the epoch nor at its end: the checkpoint is of the steps before."""
    run, original = make_run("a", "train.precision=32-true"), loop_module.train_step

    def step_and_break(learner, *args):
        loss = original(learner, *args)
        if (learner.state.epoch, learner.state.step) == (1, 4):
            values = learner.losses.sums if broken == "loss" else learner.model.head.bias.data
            values[0] = math.nan
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(loop_module, "train_step", step_and_break)
        patch.setattr(SaveTimer, "is_due", lambda _timer, done: done % 3 == 0)
        with pytest.raises(ConfigError) as caught:
            run.train()
    assert str(caught.value).startswith("The training loss and the weights must stay finite, but ")
    assert "in epoch 2; " in str(caught.value)
    content = read_state(run.folder / STATE)
    assert (content["train"]["epoch"], content["train"]["step"]) == (1, 3)
    assert bool(torch.isfinite(content["losses"]["sums"]).all())
    assert all(bool(torch.isfinite(value).all()) for value in content["model"].values())


def test_train_step_follows_the_settings(make_run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of the loss and bound of gradients; no gradient or order of batches is left over."""
    run = make_run(
        "a", "train.epochs=2", "model.init=random", "train.lambda_parameter=0.25",
        "train.lambda_output=0.5", "train.clip_norm=3.0",
    )  # fmt: skip
    match_loss, clip_gradients = loop_module.match_loss, loop_module.clip_gradients
    gold, norms = list[list[int]](), set[float]()

    def record_loss(logits, labels, head, hierarchy, **settings):
        assert (settings["lambda_parameter"], settings["lambda_output"]) == (0.25, 0.5)
        assert head.training
        assert all(one.grad is None or not one.grad.any() for one in head.parameters())
        gold.append(labels[1].tolist())
        return match_loss(logits, labels, head, hierarchy, **settings)

    def record_norm(learner, max_norm, of_rows=None):
        norms.add(max_norm)
        return clip_gradients(learner, max_norm, of_rows)

    monkeypatch.setattr(loop_module, "match_loss", record_loss)
    monkeypatch.setattr(loop_module, "clip_gradients", record_norm)
    run.train()
    assert norms == {3.0}
    half = len(gold) // 2
    assert half > 1
    assert gold[:half] != gold[half:]


def test_train_model_seeds_each_epoch_by_draw_seed(
    make_run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each epoch has a seed of its own, so that none repeats the dropout of another."""
    run = make_run("a", "train.epochs=2", "model.init=random", "seed=3")
    seeds, manual_seed = list[int](), torch.manual_seed

    def record(seed: int) -> torch.Generator:
        seeds.append(seed)
        return manual_seed(seed)

    monkeypatch.setattr(torch, "manual_seed", record)
    run.train()
    assert seeds[-2:] == [draw_seed(3, 0, 0), draw_seed(3, 1, 0)]


def test_train_model_validates_up_to_date_rows(make_run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The momentum of tokens that the last batches of an epoch lacked has gone on before."""
    run = make_run(
        "a", "train.epochs=1", "model.init=random", "train.average=0", "train.accelerator=cpu"
    )
    validate, found = loop_module._validate, list[bool]()

    def compare(fabric, model, *others):
        weight = model.embedding.weight
        before = weight.detach().clone()
        model.embedding.rows.settle()
        found.append(torch.equal(weight, before))
        return validate(fabric, model, *others)

    monkeypatch.setattr(loop_module, "_validate", compare)
    run.train()
    assert found == [True]


def test_train_step_gets_other_metadata_in_each_epoch(
    make_run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of documents with more than are read; none in the order of the epoch before."""
    run = make_run("a", "train.epochs=2", "model.init=random", "data.max_metadata=1")
    train_step, seen = loop_module.train_step, list[tuple[int, list[int]]]()

    def record(learner, batch, *others):
        documents = zip(
            batch.document.tolist(), batch.token_id.split(batch.ptr.diff().tolist()), strict=True
        )
        seen.extend((number, sorted(tokens.tolist())) for number, tokens in documents)
        return train_step(learner, batch, *others)

    monkeypatch.setattr(loop_module, "train_step", record)
    run.train()
    half = len(seen) // 2
    first, second = dict(seen[:half]), dict(seen[half:])
    assert first.keys() == second.keys()
    changed = sum(first[number] != second[number] for number in first)
    assert changed > 0.2 * len(first)
    assert [number for number, _ in seen[:half]] != [number for number, _ in seen[half:]]


def test_draw_seed_differs_for_all_processes_epochs_and_seeds() -> None:
    """Also past 2,048 processes; and the generator of the CPU draws otherwise for each."""
    of = [(s, e, r) for s in (0, 1, 2**32 - 1) for e in (0, 1, 39) for r in range(4096)]
    seeds = [draw_seed(*one) for one in of]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) >= 0 and max(seeds) < 2**64
    drawn = [torch.rand(2, generator=torch.Generator().manual_seed(one)) for one in seeds[:64]]
    assert len({tuple(values.tolist()) for values in drawn}) == 64


def test_train_model_places_labels_withheld_from_training(make_run, tmp_path: Path) -> None:
    """Labels withheld from training are scored by way of their parents.

    Their edges weigh 1: validation documents that carry them score them above the others, as
    their parents'. At weight 0 their order is chance."""
    run = make_run(
        "a", "model.init=random", "train.lambda_parameter=0.1",
        "train.epochs=8", "train.precision=32-true", "train.accelerator=cpu",
    )  # fmt: skip
    hierarchy, targets = run.dataset.hierarchy, run.dataset.targets
    child, parent = hierarchy.edge_index
    withheld = child[~torch.isin(child, parent)].unique()[::3]
    row, kept = row_index(targets.ptr), ~torch.isin(targets.index, withheld)
    count = torch.bincount(row[kept], minlength=len(targets.ptr) - 1)
    seen = Targets(make_ptr(count), targets.index[kept], targets.num_labels)
    given = hierarchy.parent_given_child(seen, run.dataset.documents("train_mask"))
    is_withheld = torch.isin(child, withheld)
    assert given[is_withheld].tolist() == [1.0] * int(is_withheld.sum())

    @torch.no_grad()
    def area_under_curve(weight: torch.Tensor, folder: Path) -> float:
        model, loader = run.make_model(), run.loader("train", training=True, targets=seen)
        with torch.enable_grad():
            inputs = FitInputs(
                loader, run.loader("valid"), hierarchy.weighted(weight), folder,
                Reporter(quiet=True), run.fabric, "",
            )  # fmt: skip
            train_model(model, inputs, run.config.train, 0)
        won = pairs = 0
        logits, gold = [], []
        for batch in run.loader("valid"):
            logits.append(model.eval()(batch))
            gold.append(torch.zeros(logits[-1].shape, dtype=torch.bool))
            gold[-1][row_index(batch.label_ptr), batch.label_index] = True
        scores, is_gold = torch.cat(logits), torch.cat(gold)
        for label in withheld.tolist():
            high, low = (scores[mask, label] for mask in (is_gold[:, label], ~is_gold[:, label]))
            won += int((high.unsqueeze(1) > low).sum())
            pairs += len(high) * len(low)
        return won / pairs

    without = area_under_curve(torch.where(is_withheld, 0.0, given), tmp_path / "without")
    found = area_under_curve(given, tmp_path / "with")
    assert found > without + 0.1


@pytest.mark.parametrize(("max_norm", "factor"), [(2.5, 0.5), (10.0, 1.0)])
def test_clip_gradients_shrinks_and_never_enlarges(max_norm: float, factor: float) -> None:
    """Gradients of parameters and of rows by their common norm, 5, as torch clips them."""
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad, of_rows = torch.tensor([3.0, 0.0]), torch.tensor([[0.0, 4.0]])
    learner = SimpleNamespace(
        tables={},
        optimizer=torch.optim.SGD([weight], lr=1.0),
        model=SimpleNamespace(embedding=SimpleNamespace(shard=None)),
    )
    loop_module.clip_gradients(learner, max_norm, of_rows)
    assert weight.grad.tolist() == pytest.approx([3 * factor, 0])
    assert of_rows.tolist() == [pytest.approx([0, 4 * factor])]
