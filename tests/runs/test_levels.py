"""A label tree in a run folder: trained by level, resumed, loaded as any other run."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from match_graph.datasets import Synthetic
from match_graph.io.files import read_tensors
from match_graph.io.run_folder import HISTORY, LEVELS, MODEL, STATE
from match_graph.nn.label_tree import TreeModel
from match_graph.predict import load
from match_graph.runs import Run, start_run
from match_graph.runs.levels import plan_levels
from match_graph.training import loop as loop_module
from match_graph.typing import MASKS


@pytest.fixture
def make_run(tmp_path: Path, small_settings):
    """Starts a run whose labels are grouped into 8 clusters."""

    def make(name: str, *settings: str) -> Run:
        config = small_settings(
            "model.encoder=attention_xml", "model.encoder_config={hidden_channels: 4}",
            "model.head_config={hidden_channels: [4], flat_labels: 8, cluster_size: 4, beam: 3}",
            "model.init=random", "model.channels=8", "data.max_words=10", *settings,
        )  # fmt: skip
        return start_run("synthetic", config, tmp_path / name, tmp_path / "root")

    return make


def test_plan_levels_are_planned_top_down(synthetic: Synthetic, tmp_path: Path) -> None:
    """Gold clusters are those of gold labels; the last level is the run itself."""
    upper, middle, last = plan_levels((2, 8, synthetic.num_labels), synthetic, tmp_path, 0)
    assert (upper.parent, upper.above, middle.above, last.above) == (None, None, upper, middle)
    assert [level.folder for level in (upper, middle, last)] == [
        tmp_path / LEVELS / "0", tmp_path / LEVELS / "1", tmp_path
    ]  # fmt: skip
    assert [level.sizes[-1] for level in (upper, middle, last)] == [2, 8, synthetic.num_labels]
    assert last.targets is synthetic.targets
    every = torch.arange(len(synthetic.targets.ptr) - 1)
    for document in every[:50]:
        gold = last.targets.select(document.view(1))[1]
        nodes = middle.targets.select(document.view(1))[1]
        assert nodes.tolist() == sorted(set(last.parent[gold].tolist()))
        assert upper.targets.select(document.view(1))[1].tolist() == sorted(
            set(middle.parent[nodes].tolist())
        )
    again = plan_levels((2, 8, synthetic.num_labels), synthetic, tmp_path, 0)[-1]
    assert torch.equal(again.parent, last.parent)


def test_plan_levels_flat_model_has_one_level(synthetic: Synthetic, tmp_path: Path) -> None:
    """A flat model has one level, the run itself."""
    (level,) = plan_levels((synthetic.num_labels,), synthetic, tmp_path, 0)
    assert (level.folder, level.parent, level.above) == (tmp_path, None, None)


def test_plan_levels_prior_is_given_the_parent(make_run) -> None:
    """A node's prior is its share among the documents of its parent."""
    run = make_run("a")
    documents = run.dataset.documents(MASKS["train"])
    top, last = plan_levels(run.sizes, run.dataset, run.folder, 0)
    model = run.make_model()
    last.set_prior(model, documents)
    top.set_prior(model.above, documents)
    bias, upper = model.head.bias.detach(), model.above.head.bias.detach()
    count, above = last.targets.count(documents), top.targets.count(documents)
    for label in range(len(count)):
        expected = (float(count[label]) + 0.5) / (float(above[last.parent[label]]) + 1)
        assert float(torch.sigmoid(bias[label])) == pytest.approx(expected, rel=1e-4)
    expected = (float(above[0]) + 0.5) / (len(documents) + 1)
    assert float(torch.sigmoid(upper[0])) == pytest.approx(expected, rel=1e-4)


def test_plan_levels_tree_goes_the_whole_line(make_run) -> None:
    """Two levels are trained in turn, and the loaded folder predicts the same."""
    run = make_run("a", "model.coherent=true", "model.blend=true")
    assert (run.config.model.blend, run.config.train.lambda_output) == (True, 0.0)
    run.train()
    metrics = run.evaluate()
    assert metrics["test"]["violation_rate"] == 0
    assert metrics["test"]["NDCG@5"] > run.prior("test")["NDCG@5"] - 0.1
    upper = run.folder / LEVELS / "0"
    assert len(pd.read_csv(upper / HISTORY)) == len(pd.read_csv(run.folder / HISTORY)) == 2
    assert (upper / STATE).stat().st_size < 10_000
    model, first = run.load_model(), read_tensors(upper / MODEL)
    assert isinstance(model, TreeModel)
    assert all(torch.equal(value, first[name]) for name, value in model.above.state_dict().items())
    assert not torch.equal(model.encoder.lstm.weight_hh_l0, model.above.encoder.lstm.weight_hh_l0)
    assert torch.equal(model.parent, plan_levels(run.sizes, run.dataset, run.folder, 0)[-1].parent)
    classifier = load(run.folder)
    (found,) = classifier.predict([{"text": "w1 w2 w3"}])
    assert len(found["labels"]) == 5
    before = (run.folder / MODEL).read_bytes()
    make_run(
        "a", "model.coherent=true", "model.blend=true"
    ).train()  # finished: nothing is trained again
    assert (run.folder / MODEL).read_bytes() == before


@pytest.mark.parametrize("broken_level", [0, 1])
def test_Run_killed_tree_equals_an_uninterrupted_one(
    make_run, monkeypatch: pytest.MonkeyPatch, broken_level: int
) -> None:
    """A training killed in either level resumes to the same weights, to the bit."""
    whole = make_run("whole")
    whole.train()
    killed = make_run("killed")
    original, epochs = loop_module._train_epoch, []

    def break_off(*args, **kwargs):
        epochs.append(1)
        if len(epochs) == 2 * broken_level + 2:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop_module, "_train_epoch", break_off)
        killed.train()
    make_run("killed").train()
    left, right = (read_tensors(run.folder / MODEL) for run in (whole, killed))
    assert set(left) == set(right)
    assert all(torch.equal(left[name], right[name]) for name in left)
