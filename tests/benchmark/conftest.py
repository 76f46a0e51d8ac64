"""What tests of benchmarks share: a toy folder, an experiment of seconds on it."""

from pathlib import Path

import pytest

from match_graph import Run
from match_graph.benchmark import (
    Cell,
    DatasetRecord,
    Experiment,
    Machine,
    Results,
    write_results,
)
from match_graph.testing import write_match_folder

#: So that a cell takes less than a second.
TINY = {
    "pretrain.samples": 2000,
    "pretrain.channels": 16,
    "model.channels": 16,
    "train.batch_size": 16,
    "train.accelerator": "cpu",
    "train.precision": "32-true",
    "model.blend": False,
}
SMALL_MATCH = {"model.encoder_config": {"num_layers": 1, "num_cls": 1, "position_channels": 4}}


@pytest.fixture
def toy_folder(tmp_path: Path) -> Path:
    """Toy data set in a folder that is named "toy"."""
    return write_match_folder(tmp_path / "toy")


@pytest.fixture
def make_experiment(toy_folder: Path):
    """Makes a small experiment on the toy folder, changed by keywords."""

    def make(**changes) -> Experiment:
        content = {
            "name": "trial",
            "question": "Is it better?",
            "datasets": [str(toy_folder)],
            "runs": 2,
            "measures": ["P@1", "NDCG@5"],
            "settings": {**TINY, "train.epochs": 1},
            "reference": "MATCH",
            "rows": [
                {"name": "prior", "encoder": "prior"},
                {"name": "MATCH", "settings": SMALL_MATCH},
            ],
        }
        return Experiment(**{**content, **changes})

    return make


#: P@1, NDCG@5, violation rate and R@5 of two slices, by row and seed; the page's are these.
MEASURED = {
    "TF-IDF": [(0.50, 0.40, 0.30, 0.5, 0.2), (0.52, 0.41, 0.20, 0.6, 0.1)],
    "MATCH <b>": [(0.60, 0.55, 0.10, 0.7, 0.3), (0.62, 0.57, 0.20, 0.9, 0.5)],
    "BertXML": [(0.58, 0.56, 0.40, 0.8, 0.4), (0.60, 0.58, 0.30, 0.8, 0.2)],
}
COLUMNS = ("P@1", "NDCG@5", "violation_rate", "head/R@5", "depth_0/R@5")


@pytest.fixture(scope="session")
def benchmark_results(trained_run: Run, baseline_run: Run, text_run: Run):
    """Makes results as if a benchmark had run cells in a folder and refused one."""
    runs = {"TF-IDF": baseline_run, "MATCH <b>": trained_run, "BertXML": text_run}
    experiment = Experiment(
        name="trial", question="Is <script> better?", datasets=["synthetic"], runs=2,
        measures=["P@1", "NDCG@5", "violation_rate"], reference="MATCH <b>",
        rows=[*({"name": name} for name in runs), {"name": "LM", "encoder": "language_model"}],
        expected={"synthetic": {"MATCH <b>": {"P@1": [0.6], "NDCG@5": [0.5, 0.01]}}},
    )  # fmt: skip
    machine = Machine(platform="Linux", processor="x86_64", cores=2, python="3.11", versions={})
    when = "2026-01-01T00:00:00+00:00"

    def make(folder: Path, **changes) -> Results:
        for number, run in enumerate(runs.values()):
            if not (place := folder / f"run{number}").exists():
                place.symlink_to(run.folder)
        cells = [
            Cell(
                dataset="synthetic", row=row, seed=seed, status="done", peak_mib={"host": 500.0},
                folder=f"run{number}", seconds={"train": 90.0}, epochs=2,
                metrics={"test": dict(zip(COLUMNS, MEASURED[row][seed], strict=True))},
                history=[] if row == "TF-IDF" else [
                    {"epoch": epoch, "loss_recent": 4.0 / epoch + seed, "NDCG@5": 0.25 * epoch}
                    for epoch in (1.0, 2.0)
                ],
            )
            for number, row in enumerate(runs) for seed in (0, 1)
        ]  # fmt: skip
        lost = {"status": "refused", "reason": "It has no <i>checkpoint</i>."}
        cells += [
            Cell(dataset="synthetic", row="LM", seed=seed, folder="none", **lost) for seed in (0, 1)
        ]
        dataset = trained_run.dataset
        record = DatasetRecord(
            name="synthetic", source="synthetic", checksum=dataset.checksum, fields=["venue"],
            documents={"train": 320, "test": 40}, num_labels=dataset.num_labels, epochs=2,
            twins={"test": 4}, rows=experiment.expand([]),
        )  # fmt: skip
        content = {"experiment": experiment, "datasets": [record], "cells": cells, **changes}
        return Results(machine=machine, started=when, updated=when, **content)

    return make


@pytest.fixture(scope="session")
def benchmark_folder(benchmark_results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of such a benchmark, whose cells are the runs that tests share."""
    folder = tmp_path_factory.mktemp("benchmark")
    write_results(folder, benchmark_results(folder))
    return folder
