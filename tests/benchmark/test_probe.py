"""Probes: rows with features are measured with them, and texts that wait for a language model."""

import itertools
import os
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest

from match_graph.benchmark import Cell, probe
from match_graph.benchmark.cell import run_cell
from match_graph.benchmark.estimate import Estimate
from match_graph.benchmark.plan import make_plan
from match_graph.benchmark.probe import _time_embedding, probe_cells
from match_graph.benchmark.process import Work
from match_graph.config import Config
from match_graph.datasets import CorpusDataset, open_dataset
from match_graph.features import TextEmbedder
from match_graph.io import Reporter
from match_graph.testing import toy_documents, write_match_folder


def start_here(_context: object, function: Callable[..., None], works: Sequence[Work]):
    """Calls the function in this process, which has imported the packages already."""
    receive, send = Pipe(duplex=False)
    function(works, send)
    return SimpleNamespace(join=lambda: None), receive


def test_probe_cells_embeds_a_sample(
    make_experiment, sentence_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that starts from label names alone is measured; texts are counted for one row only."""
    documents = toy_documents()
    documents["train"] = [
        {**documents["train"][0], "paper": f"d{number}", "text": f"graphs {number}"}
        for number in range(80)
    ]
    write_match_folder(tmp_path / "toy", documents)
    model = {"model": str(sentence_model)}
    settings = {
        "data.features.document": model,
        "data.features.label": model,
        "model.head": "label_graph",
        "model.head_config.learned": False,
    }
    linear = {"data.features.document": model}
    lost = {"data.features.document": {"model": "no/where"}}
    rows = [
        {"name": "MATCH", "settings": settings},
        {"name": "linear", "encoder": "tfidf_linear", "settings": linear},
        {"name": "prior", "encoder": "prior"},
        {"name": "lost", "settings": lost},
    ]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    root = str(tmp_path / "root")
    plan = make_plan(make_experiment(rows=rows, runs=1), root, Reporter(quiet=True))

    def make_work(cell) -> Work:
        return Work(cell, tmp_path, root, None, 1, dict(os.environ), run_cell)

    monkeypatch.setattr("match_graph.benchmark.probe.prepare_process", lambda _: None)
    monkeypatch.setattr("match_graph.benchmark.probe.start_process", start_here)
    timed = []

    def time_embedding(embedder: TextEmbedder, texts: Sequence[str]) -> float:
        timed.append(_time_embedding(embedder, texts))
        return timed[-1]

    monkeypatch.setattr("match_graph.benchmark.probe._time_embedding", time_embedding)
    estimate = Estimate()
    probe_cells(plan.cells, estimate, make_work)
    assert estimate.probed.keys() == {("toy", "MATCH")}
    assert 0 < estimate.embedding["toy"] == pytest.approx(sum(timed))
    assert len(timed) == 2  # of documents and of labels
    cache = tmp_path / "root" / "features" / "texts"
    embedder = TextEmbedder(str(sentence_model), cache)
    missing = embedder.find_missing(f"graphs {number}" for number in range(80))
    assert 0 < len(missing) < 80


@pytest.fixture
def probe_here(make_experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Probes rows in this process; steps take 10 s, or 20 s on a twin, a pre-training 5 s."""

    def time_steps(dataset: CorpusDataset, _config: Config) -> float:
        return 20.0 if dataset.name == "twin" else 10.0

    def probe(estimate: Estimate, vectors: Path | None = None, **changes) -> Estimate:
        root = str(tmp_path / "root")
        plan = make_plan(make_experiment(runs=1, **changes), root, Reporter(quiet=True))
        monkeypatch.setattr("match_graph.benchmark.probe.prepare_process", lambda _: None)
        monkeypatch.setattr("match_graph.benchmark.probe.start_process", start_here)
        monkeypatch.setattr("match_graph.benchmark.probe._time_steps", time_steps)
        monkeypatch.setattr("match_graph.benchmark.probe._time_pretraining", lambda *_: 5.0)
        environment = dict(os.environ)
        probe_cells(
            plan.cells, estimate,
            lambda cell: Work(cell, tmp_path, root, vectors, 1, environment, run_cell),
        )  # fmt: skip
        return estimate

    return probe


NETWORKS = [{"name": "MATCH"}, {"name": "flat", "ablation": ["no-hierarchy"]}]


def test_probe_cells_counts_a_pre_training_once(probe_here, tmp_path: Path) -> None:
    """It counts for the first row that needs the vectors, unless a run has them already."""
    found = probe_here(Estimate(), rows=NETWORKS).probed
    assert found == {("toy", "MATCH"): 15.0, ("toy", "flat"): 10.0}
    found = probe_here(Estimate(), vectors=tmp_path, rows=NETWORKS).probed
    assert {*found.values()} == {10.0}


def test_probe_cells_of_rows_without_a_finished_cell(probe_here, tmp_path: Path) -> None:
    """A row is measured on each data set where it has no finished cell."""
    folders = [str(write_match_folder(tmp_path / name)) for name in ("toy", "twin")]
    both = probe_here(Estimate(), rows=NETWORKS[:1], datasets=folders).probed
    assert both == {("toy", "MATCH"): 15.0, ("twin", "MATCH"): 25.0}
    estimate = Estimate()
    estimate.add(
        Cell(dataset="toy", row="MATCH", seed=0, status="done", folder="x", seconds={"train": 1.0})
    )
    probe_here(estimate, rows=NETWORKS[:1], datasets=folders)
    assert estimate.probed.keys() == {("twin", "MATCH")}


def test_probe_time_is_that_of_all_epochs_and_pairs(
    make_experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is extrapolated from a few steps, and from a part of the pairs."""
    clock = itertools.count()
    monkeypatch.setattr("match_graph.benchmark.probe.time.perf_counter", lambda: next(clock))
    monkeypatch.setattr("match_graph.benchmark.probe._SECONDS", 100.0)
    monkeypatch.setattr("match_graph.benchmark.probe.time_training", lambda _, pairs: pairs * 0.5)
    monkeypatch.setattr("match_graph.benchmark.probe._PAIRS", 100)
    plan = make_plan(make_experiment(runs=1), tmp_path / "root", Reporter(quiet=True))
    config = plan.cells[-1].config
    dataset = open_dataset(config.dataset, root=tmp_path / "root", **config.data.dataset_options())
    assert probe._time_pretraining(dataset, config) == 0.5 * config.pretrain.samples
    once, thrice = (
        probe._time_steps(dataset, config.change("train", epochs=epochs)) for epochs in (1, 3)
    )
    assert 0 < 3 * once == pytest.approx(thrice)
