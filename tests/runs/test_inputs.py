"""Inputs of a run: batches and the hierarchy's weights, as its settings say."""

from pathlib import Path

import pytest
import torch

from match_graph.config import load_config
from match_graph.runs import Run, start_run
from match_graph.testing import write_match_folder
from match_graph.typing import MASKS


@pytest.fixture
def make_run(tmp_path: Path):
    """Makes a run on the toy folder, which is not trained."""
    toy = write_match_folder(tmp_path / "toy")

    def make(*settings: str) -> Run:
        config = load_config(settings=[*settings, "train.logger=none", "model.init=random"])
        return start_run(toy, config, tmp_path / "run", tmp_path / "root", overwrite=True)

    return make


def test_RunInputs_hierarchy_is_weighted_by_training(make_run) -> None:
    """Label edges weigh P(parent | child) among training documents, or 1."""
    run = make_run()
    dataset = run.dataset
    expected, every = (
        dataset.hierarchy.parent_given_child(dataset.targets, documents)
        for documents in (
            dataset.documents(MASKS["train"]),
            torch.arange(len(dataset.targets.ptr) - 1),
        )
    )
    assert torch.equal(run.hierarchy.edge_weight, expected)
    assert not torch.equal(expected, every)
    assert not torch.equal(expected, torch.ones_like(expected))
    plain = make_run("train.edge_weight=none").hierarchy
    assert torch.equal(plain.edge_weight, torch.ones_like(expected))


def test_RunInputs_loader_follows_the_settings(make_run) -> None:
    """Budgets, seed and batch size of training; evaluation is in full and in order of length."""
    run = make_run("data.max_metadata=3", "data.max_words=5", "train.batch_size=7", "seed=4")
    training, valid = run.loader("train", training=True), run.loader("valid")
    for loader, is_random in ((training, True), (valid, False)):
        sampler, order = loader.node_sampler, loader.order
        assert (sampler.max_metadata, sampler.max_words) == (3, 5)
        assert (sampler.random, order.shuffle) == (is_random, is_random)
        assert (sampler.seed, order.seed) == (4, 4)
        assert loader.num_workers == 0
    assert [training.order.batch_size, valid.order.batch_size] == [7, 256]
    found = torch.cat([batch.document for batch in valid]).sort().values
    assert torch.equal(found, run.dataset.documents(MASKS["valid"]))
