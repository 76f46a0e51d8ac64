"""Probes: rows with features are measured with them, and texts that wait for a language model."""

import os
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest

from match_graph.benchmark.cell import run_cell
from match_graph.benchmark.estimate import Estimate
from match_graph.benchmark.plan import make_plan
from match_graph.benchmark.probe import probe_cells
from match_graph.benchmark.process import Work
from match_graph.features import TextEmbedder
from match_graph.io import Reporter
from match_graph.testing import toy_documents, write_match_folder


def start_here(_context: object, function: Callable[..., None], works: Sequence[Work]):
    """In this process, which has the packages already."""
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
    estimate = Estimate()
    probe_cells(plan.cells, estimate, make_work)
    assert estimate.probed.keys() == {("toy", "MATCH")}
    assert estimate.embedding["toy"] > 0
    cache = tmp_path / "root" / "features" / "texts"
    embedder = TextEmbedder(str(sentence_model), cache)
    missing = embedder.find_missing(f"graphs {number}" for number in range(80))
    assert 0 < len(missing) < 80
