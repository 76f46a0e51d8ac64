"""The runner: ordinary run folders, shared vectors, rows that say why, continued after a kill."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

import match_graph as mg
from match_graph.benchmark import Experiment, Results, read_results, run_benchmark
from match_graph.benchmark.cell import _count_epochs, find_vectors
from match_graph.benchmark.earlier import EarlierCells
from match_graph.benchmark.ledger import Ledger
from match_graph.benchmark.plan import Plan, make_plan
from match_graph.benchmark.results import RESULTS, PublishedTest, write_results
from match_graph.benchmark.runner import (
    _Benchmark,
    choose_rows,
    find_environment,
    takes_gpu,
)
from match_graph.config import Config
from match_graph.errors import CheckpointError, ConfigError
from match_graph.io import Reporter
from match_graph.io.cluster import Cluster
from match_graph.io.files import write_json
from match_graph.io.run_folder import MODEL, VECTORS
from match_graph.runs.readers import read_metrics
from match_graph.runs.record import describe_processor
from match_graph.runs.start import start_run
from match_graph.testing import toy_documents, write_match_folder

#: An encoder of a user's own that fails in its own way.
BAD_ENCODER = """
import os, signal
from match_graph.nn import Encoder
from match_graph.nn.encoders import MatchEncoder

class Base(MatchEncoder):
    class Config(MatchEncoder.Config):
        num_layers: int = 1
        num_cls: int = 1

class Raises(Base):
    def forward(self, batch):
        if batch.num_documents > 2:
            raise ZeroDivisionError("nothing to divide")
        return super().forward(batch)

class Dies(Base):
    def forward(self, batch):
        if batch.num_documents > 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(batch)
"""


def match_row(name: str = "MATCH", **changes) -> dict:
    settings = {"model.encoder_config": {"num_layers": 1, "num_cls": 1, "position_channels": 4}}
    return {"name": name, "settings": settings, **changes}


@pytest.mark.slow
def test_run_benchmark_cells_are_run_folders_and_rows_say_why(
    make_experiment, tmp_path: Path, monkeypatch
) -> None:
    """Cells fail by a MatchGraphError, an exception and a signal; the others go on."""
    (tmp_path / "bad_encoder.py").write_text(BAD_ENCODER)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = [
        {"name": "prior", "encoder": "prior"},
        match_row(),
        match_row("No-hierarchy", ablation=["no-hierarchy"]),
        match_row("No-colour", ablation=["no-colour"]),
        {"name": "LM", "encoder": "language_model"},
        {"name": "Raises", "encoder": "bad_encoder:Raises"},
        {"name": "Dies", "encoder": "bad_encoder:Dies"},
    ]
    experiment = make_experiment(rows=rows, runs=1)
    out = tmp_path / "out"
    results = run_benchmark(experiment, out, tmp_path / "root")
    assert results == read_results(out)
    cells = {cell.row: cell for cell in results.cells}
    assert list(cells) == [row["name"] for row in rows]
    assert [cell.status for cell in cells.values()] == [
        "done", "done", "done", "refused", "failed", "failed", "failed",
    ]  # fmt: skip
    assert cells["No-colour"].reason == (
        "An ablation must leave out what the data set or the model has, one of ['no-metadata', "
        "'no-hierarchy', 'no-pretrain', 'no-venue', 'no-author', 'no-reference'], found "
        "'no-colour'; check the name."
    )
    # a checkpoint, or the package where it is not installed
    assert cells["LM"].reason.startswith("The encoder 'language_model' needs ")
    assert cells["Raises"].reason == "ZeroDivisionError: nothing to divide"
    assert cells["Dies"].reason == ("The process of the cell ended with exit code -9; see its log.")
    assert "ZeroDivisionError" in (out / f"{cells['Raises'].folder}.log").read_text()
    check_cell(out, cells["MATCH"])
    check_shared_vectors(out, cells)
    assert results.datasets[0].epochs == 1
    assert results.machine.versions["torch"]
    assert results.machine.processor == cells["MATCH"].device["processor"] == describe_processor()


def check_cell(out: Path, cell) -> None:
    """Checks all of a cell's record, and that its folder predicts."""
    assert cell.folder == "cells/toy/MATCH/seed0"
    assert cell.metrics == json.loads((out / cell.folder / "metrics.json").read_text())
    assert [row["epoch"] for row in cell.history] == [1]
    assert cell.seconds_per_epoch == cell.seconds["train"] > 0
    assert (cell.epochs, cell.config["train"]["epochs"], cell.resumed) == (1, 1, False)
    assert cell.parameters > 1000
    assert cell.peak_mib["host"] > 100
    documents = toy_documents()["test"]
    classifier = mg.load(out / cell.folder, device="cpu")
    assert len([*classifier.predict(documents, top_k=3)]) == 2


def check_shared_vectors(out: Path, cells) -> None:
    """Checks that one of two cells pre-trained, and the other links its file."""
    pair = cells["MATCH"], cells["No-hierarchy"]
    taken = [cell for cell in pair if cell.vectors_from]
    (trained,) = [cell for cell in pair if not cell.vectors_from]
    assert [cell.vectors_from for cell in taken] == [trained.folder]
    assert "pretrain" in trained.seconds
    assert "pretrain" not in taken[0].seconds
    record = json.loads((out / taken[0].folder / "record.json").read_text())
    assert record["vectors_from"] == os.path.relpath(out / trained.folder, out / taken[0].folder)
    files = [out / cell.folder / "vectors.safetensors" for cell in pair]
    assert files[0].samefile(files[1])


def test_run_benchmark_rows_with_features_share_vectors(
    make_experiment, sentence_model: Path, tmp_path: Path, monkeypatch
) -> None:
    """Each text is embedded once, and pre-trained vectors are shared with rows without."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("match_graph.benchmark.runner.probe_cells", lambda *_: None)
    model = shutil.copytree(sentence_model, tmp_path / "model")
    texts = {"data.features.document.model": str(model)}
    linear, far = {"encoder": "tfidf_linear"}, {"data.features.document.model": "no/where"}
    rows = [
        {"name": "linear + LM", "settings": texts, **linear},
        {"name": "LM", "settings": {**texts, "model.encoder_config.tokens": False}, **linear},
        match_row(),
        match_row("MATCH + LM", settings={**match_row()["settings"], **texts}),
        match_row("lost", settings=far),
    ]
    experiment, out, root = make_experiment(rows=rows, runs=1), tmp_path / "out", tmp_path / "root"
    first = run_benchmark(experiment, out, root)
    cells = {cell.row: cell for cell in first.cells}
    assert [cell.status for cell in cells.values()] == [*["done"] * 4, "failed"]
    assert cells["lost"].reason.startswith("A language model must be a folder or a name on the hub")
    assert cells["MATCH"].feature_checksums == {}
    (digest,) = {tuple(cells[name].feature_checksums.items()) for name in LANGUAGE_MODEL_ROWS}
    assert [node_type for node_type, _ in digest] == ["document"]
    check_shared_texts(out, root, [cells[name].folder for name in LANGUAGE_MODEL_ROWS])
    assert (cells["MATCH"].vectors_from, cells["MATCH + LM"].vectors_from) == (
        None, cells["MATCH"].folder,
    )  # fmt: skip
    found = run_benchmark(experiment, out, root, rows=["MATCH"])  # all but one are kept
    assert [cell for cell in found.cells if cell.status == "done"] == first.cells[:4]
    (model / "vocab.txt").write_text("other words")
    with pytest.raises(CheckpointError, match=r"made with other features of 'document'\); choose"):
        run_benchmark(experiment, out, root)
    shutil.rmtree(model)
    run_benchmark(experiment, out, root, rows=["MATCH"])  # what is finished needs no model


LANGUAGE_MODEL_ROWS = ("linear + LM", "LM", "MATCH + LM")


def check_shared_texts(out: Path, root: Path, folders: list[str]) -> None:
    """Checks that a cache has each text once, and run folders link one file of features."""
    (cache,) = (root / "features" / "texts").glob("*.sqlite")
    texts = {document["text"] for split in toy_documents().values() for document in split}
    with closing(sqlite3.connect(cache)) as database:
        assert database.execute("SELECT count(*) FROM vectors").fetchone() == (len(texts),)
    (kept,) = (root / "features").glob("document-*/x.npy")
    assert all(kept.samefile(out / folder / "features" / "document.npy") for folder in folders)


def test_run_benchmark_finished_cells_kept_other_settings(
    make_experiment, tmp_path: Path, capsys
) -> None:
    """Finished cells are kept and other settings refused.

    More runs add cells; other settings or data are one sentence before anything starts.
    """
    out, root = tmp_path / "out", tmp_path / "root"
    run_benchmark(make_experiment(runs=1), out, root)
    weights = out / "cells" / "toy" / "MATCH" / "seed0" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    capsys.readouterr()
    results = run_benchmark(make_experiment(runs=2), out, root, reporter=Reporter())
    assert "cells: 2 done, 2 to run with 1 thread each, one at a time" in capsys.readouterr().err
    assert weights.stat().st_mtime_ns == before
    assert results.cells[2].seconds_per_epoch == results.cells[2].seconds["train"] > 0
    assert [(cell.row, cell.seed) for cell in results.cells] == [
        ("prior", 0), ("prior", 1), ("MATCH", 0), ("MATCH", 1),
    ]  # fmt: skip
    mg.open_run(weights.parent, root).record.note("network_share", 0.25)
    results = run_benchmark(make_experiment(runs=1), out, root)
    assert len(results.cells) == 4  # those of earlier calls stay
    assert [cell.network_share for cell in results.cells] == [None, None, 0.25, None]
    other = make_experiment(overrides={"train.learning_rate": 0.5})
    with pytest.raises(CheckpointError) as caught:
        run_benchmark(other, out, root)
    assert str(caught.value) == (
        f"A cell that is there must have the settings and data of the plan, but "
        f"'{out / 'cells' / 'toy' / 'prior' / 'seed0'}' has others (train.learning_rate is 0.001 "
        f"there and 0.5 here); choose another folder with --out, or delete the row's cells, "
        f"'{out / 'cells' / 'toy' / 'prior'}'."
    )
    documents = toy_documents()
    documents["train"][0]["text"] += " more"
    write_match_folder(tmp_path / "toy", documents)
    with pytest.raises(
        CheckpointError, match=r"has others \(it was made from other data\); choose"
    ):
        run_benchmark(make_experiment(), out, root)


def test_run_benchmark_warns_of_rows_that_no_data_set_has(
    make_experiment, tmp_path: Path, capsys
) -> None:
    """A row refused on all data sets, as by a typo, is a warning; on some, a line."""
    rows = [
        {"name": "prior", "encoder": "prior"},
        {"name": "typo", "ablation": ["no-hier"]},
        {"name": "alone", "encoder": "tfidf_linear", "ablation": ["no-author"]},
    ]
    folders = [
        write_match_folder(tmp_path / "toy"),
        write_match_folder(tmp_path / "bare", fields=["venue"]),
    ]
    experiment = make_experiment(rows=rows, runs=1, reference=None, datasets=[*map(str, folders)])
    run_benchmark(experiment, tmp_path / "out", tmp_path / "root", reporter=Reporter())
    said = " ".join(capsys.readouterr().err.split())
    for name in ("toy", "bare"):
        assert f"warning: {name}, typo: left out. An ablation must leave out what the data" in said
    assert "bare, alone: left out." in said
    assert "warning: bare, alone" not in said


def test_run_benchmark_some_rows_now_and_the_others_later(
    make_experiment, tmp_path: Path, capsys
) -> None:
    """Budget and table are of all rows; an unknown row is one sentence."""
    out, root = tmp_path / "out", tmp_path / "root"
    experiment = make_experiment(runs=2)
    with pytest.raises(ConfigError) as caught:
        run_benchmark(experiment, out, root, rows=["MATCH", "WATCH"])
    assert str(caught.value) == (
        "The rows to run must be rows of the experiment, which are ['prior', 'MATCH'], found "
        "['WATCH']; the nearest is 'MATCH'."
    )
    results = run_benchmark(experiment, out, root, reporter=Reporter(), rows=["prior"])
    assert "cells of other rows, left to a later call: 2\n" in capsys.readouterr().err
    status = {(cell.row, cell.status) for cell in results.cells}
    assert status == {("prior", "done"), ("MATCH", "waiting")}
    kept = [cell for cell in results.cells if cell.row == "prior"]
    results = run_benchmark(experiment, out, root)
    assert {cell.status for cell in results.cells} == {"done"}
    assert [cell for cell in results.cells if cell.row == "prior"] == kept


def test_choose_rows_name_of_the_file_stands_for_all_its_rows(
    make_experiment, tmp_path: Path
) -> None:
    """For each field and each point of the grid; names of single rows choose these."""
    rows = [
        {"name": "MATCH"},
        {"name": "No-{field}", "ablation": ["no-{field}"]},
    ]
    grid = {"train.lambda_output": [0.0, 1.0]}
    experiment = make_experiment(rows=rows, grid=grid, reference=None)
    plan = make_plan(experiment, tmp_path / "root", Reporter(quiet=True))
    assert choose_rows(["No-{field}"], plan) == [
        f"No-{name}, lambda_output={value}"
        for name in plan.datasets[0].fields
        for value in (0.0, 1.0)
    ]
    one = "MATCH, lambda_output=1.0"
    assert choose_rows(["MATCH"], plan) == ["MATCH, lambda_output=0.0", one]
    assert choose_rows([one], plan) == [one]
    assert len(choose_rows(None, plan)) == 2 * (1 + len(plan.datasets[0].fields))
    bare = write_match_folder(tmp_path / "bare", fields=())
    experiment = make_experiment(rows=rows, reference=None, datasets=[str(bare)])
    plan = make_plan(experiment, tmp_path / "root", Reporter(quiet=True))
    with pytest.raises(ConfigError) as caught:
        choose_rows(["MATCH", "No-{field}"], plan)
    assert str(caught.value) == (
        "'No-{field}' is a row for each field of metadata, but none of the data sets ['bare'] has "
        "any; leave the row out, or name another data set."
    )


def test_run_benchmark_rows_with_data_options_of_own_are_kept(
    make_experiment, tmp_path: Path
) -> None:
    """The checksum of their data differs from that of the other rows."""
    own = {"name": "flat", "encoder": "prior", "settings": {"data.hierarchy": "ignore"}}
    rows = [{"name": "prior", "encoder": "prior"}, own]
    experiment = make_experiment(rows=rows, reference=None, runs=1)
    out, root = tmp_path / "out", tmp_path / "root"
    first = run_benchmark(experiment, out, root)
    checksums = [
        json.loads((out / cell.folder / "record.json").read_text())["data_checksum"]
        for cell in first.cells
    ]
    assert checksums[0] != checksums[1]
    assert run_benchmark(experiment, out, root).cells == first.cells


def test_run_benchmark_other_data_sets_are_kept_beside(
    make_experiment, tmp_path: Path, capsys
) -> None:
    """Cells of another data set join those in the folder; equal names are refused."""
    out, root = tmp_path / "out", tmp_path / "root"
    rows = [{"name": "prior", "encoder": "prior"}]
    common = {"rows": rows, "reference": None, "runs": 1}
    run_benchmark(make_experiment(**common), out, root)
    twin = write_match_folder(tmp_path / "twin")
    results = run_benchmark(make_experiment(datasets=[str(twin)], **common), out, root)
    assert [record.name for record in results.datasets] == ["toy", "twin"]
    assert [cell.dataset for cell in results.cells] == ["toy", "twin"]
    results = run_benchmark(make_experiment(**common), out, root)
    assert [record.name for record in results.datasets] == ["toy", "twin"]
    other = make_experiment(**{**common, "rows": [{"name": "prior 2", "encoder": "prior"}]})
    results = run_benchmark(other, out, root)
    assert [(cell.dataset, cell.row) for cell in results.cells] == [("toy", "prior 2")]
    assert capsys.readouterr().err == (
        "warning: 2 cells of earlier calls are of other rows, settings, data or measures; their "
        "folders stay, the results have them no more\n"
    )
    again = write_match_folder(tmp_path / "deeper" / "toy")
    both = make_experiment(datasets=[str(tmp_path / "toy"), str(again)], **common)
    with pytest.raises(ConfigError) as caught:
        run_benchmark(both, out, root)
    assert str(caught.value) == (
        "The data sets of a benchmark must have different names, found 'toy' twice; rename one of "
        "the folders."
    )


def test_run_benchmark_keeps_other_seeds_as_measures_are_added(
    make_experiment, tmp_path: Path, capsys
) -> None:
    """Cells of other seeds stay if they have the added measure; no cell is left waiting."""
    out, root = tmp_path / "out", tmp_path / "root"
    rows = [{"name": "prior", "encoder": "prior"}]
    common = {"reference": None, "measures": ["P@1"]}
    run_benchmark(make_experiment(rows=rows, runs=2, **common), out, root)
    common["measures"] = ["P@1", "PSP@5"]
    more = [*rows, {"name": "prior 2", "encoder": "prior"}]
    results = run_benchmark(make_experiment(rows=more, runs=1, **common), out, root)
    assert [(cell.row, cell.seed) for cell in results.cells] == [
        ("prior", 0), ("prior", 1), ("prior 2", 0),
    ]  # fmt: skip
    assert results.is_finished
    assert not capsys.readouterr().err


def test_run_benchmark_forgets_refusals_of_changed_data(make_experiment, tmp_path: Path) -> None:
    """Failed and refused cells of other seeds go when the checksum of the data changes."""
    out, root = tmp_path / "out", tmp_path / "root"
    rows = [
        {"name": "prior", "encoder": "prior"},
        {"name": "No-{field}", "encoder": "tfidf_linear", "ablation": ["no-{field}"]},
        {"name": "coloured", "encoder": "tfidf_linear", "ablation": ["no-colour"]},
    ]
    common = {"rows": rows, "reference": None}
    run_benchmark(make_experiment(**common, runs=2), out, root, rows=["prior"])
    results = read_results(out)
    cells = [
        cell.model_copy(update={"status": "failed", "reason": "It broke."})
        if cell.row.startswith("No-")
        else cell
        for cell in results.cells
    ]
    write_results(out, results.model_copy(update={"cells": cells}))
    documents = {
        split: [{key: value for key, value in one.items() if key != "venue"} for one in some]
        for split, some in toy_documents().items()
    }
    write_match_folder(tmp_path / "toy", documents)
    shutil.rmtree(out / "cells")
    again = run_benchmark(make_experiment(**common, runs=1), out, root, rows=["prior"])
    assert {cell.seed for cell in again.cells} == {0}


def test_run_benchmark_keeps_no_cells_that_were_only_planned(
    make_experiment, tmp_path: Path
) -> None:
    """Cells that an earlier call with more seeds planned but did not run are dropped."""
    out, root = tmp_path / "out", tmp_path / "root"
    rows = [{"name": name, "encoder": "prior"} for name in ("a", "b")]
    run_benchmark(make_experiment(rows=rows, reference=None, runs=2), out, root, rows=["a"])
    results = run_benchmark(make_experiment(rows=rows, reference=None, runs=1), out, root)
    assert [(cell.row, cell.seed) for cell in results.cells] == [("a", 0), ("a", 1), ("b", 0)]
    assert results.is_finished


def test_run_benchmark_without_documents_to_measure_on(make_experiment, tmp_path: Path) -> None:
    """It is refused before anything is trained."""
    folder = write_match_folder(tmp_path / "no_test", {**toy_documents(), "test": []})
    experiment = make_experiment(datasets=[str(folder)])
    with pytest.raises(ConfigError) as caught:
        run_benchmark(experiment, tmp_path / "out", tmp_path / "root")
    assert str(caught.value) == (
        "A data set of a benchmark must have test documents, but 'no_test' has none; "
        "take 'split: valid'."
    )
    assert not (tmp_path / "out" / "cells").exists()


def test_run_benchmark_leaves_out_seeds_of_other_defaults(
    make_experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A mean has no seeds that an older version trained by other defaults."""
    out, root = tmp_path / "out", tmp_path / "root"
    settings = {**make_experiment().settings}
    del settings["train.batch_size"]
    rows = [match_row()]
    run_benchmark(make_experiment(rows=rows, settings=settings, runs=2), out, root)
    monkeypatch.setattr("match_graph.runs.configure.derive_batch_size", lambda _: 8)
    one = make_experiment(rows=rows, settings=settings, runs=1)
    with pytest.raises(CheckpointError, match=r"train\.batch_size is 16 there and 8 here"):
        run_benchmark(one, out, root)
    shutil.rmtree(out / "cells" / "toy" / "MATCH" / "seed0")
    (cell,) = run_benchmark(one, out, root).cells
    assert (cell.seed, cell.config["train"]["batch_size"]) == (0, 8)
    assert "1 cells of earlier calls are of other rows" in capsys.readouterr().err


def write_experiment(path: Path, experiment: Experiment) -> Path:
    path.write_text(yaml.safe_dump(experiment.model_dump(), sort_keys=False))
    return path


@pytest.fixture
def long_experiment(make_experiment):
    """Experiment of one row that trains for a second or more."""
    overrides = {"train.epochs": 60, "train.patience": 60}
    return make_experiment(rows=[match_row()], runs=1, overrides=overrides)


CELL = Path("cells", "toy", "MATCH", "seed0")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.is_file() and time.monotonic() < deadline:
        time.sleep(0.02)


def check_continued(experiment: Experiment, out: Path) -> None:
    """Checks that a benchmark goes on, with the results of one that was not stopped."""
    root = out.parent / "root"
    (cell,) = run_benchmark(experiment, out, root).cells
    assert (cell.status, cell.resumed, cell.seconds_per_epoch) == ("done", True, None)
    assert "resumed after" in (out / f"{cell.folder}.log").read_text()
    (whole,) = run_benchmark(experiment, out.parent / "whole", root).cells
    assert whole.seconds_per_epoch > 0
    assert (whole.metrics, whole.history) == (cell.metrics, cell.history)


@pytest.mark.slow
def test_run_benchmark_killed_benchmark_goes_on(long_experiment, tmp_path: Path) -> None:
    """After `kill -9` of the command in a training, its cell ends too."""
    path, out = tmp_path / "e.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(long_experiment.model_dump(), sort_keys=False))
    command = [sys.executable, "-m", "match_graph.cli", "benchmark", str(path), "--out", str(out)]
    process = subprocess.Popen(
        [*command, "--root", str(tmp_path / "root"), "--quiet"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # as the tests: sums depend on the threads
    )
    wait_for(out / CELL / "checkpoint/state.pt")
    process.kill()
    process.wait()
    assert not (out / CELL / "metrics.json").exists()
    check_continued(long_experiment, out)


def test_run_benchmark_interrupted_benchmark_says_how_to_go_on(
    long_experiment, tmp_path: Path, monkeypatch, capsys
) -> None:
    """After Ctrl-C results list waiting cells, and a warning has the command."""
    monkeypatch.setattr("match_graph.benchmark.process._STOPPING", 0.1)
    out = tmp_path / "out"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs behind & ignore it

    def interrupt() -> None:
        wait_for(out / CELL / "checkpoint/state.pt")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_benchmark(long_experiment, out, tmp_path / "root")
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == (
        f"warning: stopped with 1 of 1 cells left; the same command goes on, with --out {out}\n"
    )
    assert read_results(out).cells[0].status == "waiting"
    check_continued(long_experiment, out)


def test_run_benchmark_stopped_cell_is_known_without_results(
    make_experiment, tmp_path: Path
) -> None:
    """A cell's record says that it was resumed, so lost results are written again."""
    rows = [{"name": "prior", "encoder": "prior"}]
    experiment = make_experiment(rows=rows, reference=None, runs=1)
    out, root = tmp_path / "out", tmp_path / "root"
    (cell,) = run_benchmark(experiment, out, root).cells
    assert not cell.resumed
    record = out / cell.folder / "record.json"
    content = json.loads(record.read_text())
    write_json(record, content | {"stage": "evaluate"})  # as a kill in the stage leaves it
    (out / cell.folder / "metrics.json").unlink()
    (cell,) = run_benchmark(experiment, out, root).cells
    assert (cell.status, cell.resumed) == ("done", True)
    (out / "results.json").unlink()
    (cell,) = run_benchmark(experiment, out, root).cells
    assert (cell.status, cell.resumed) == ("done", True)


def test_run_benchmark_reads_test_only_for_a_table_of_test(make_experiment, tmp_path: Path) -> None:
    """Cells of ``split: valid`` have no test measures; a table of test adds them, untrained."""
    out, root, rows = tmp_path / "out", tmp_path / "root", [match_row()]
    [first] = run_benchmark(
        make_experiment(runs=1, rows=rows, reference=None, split="valid"), out, root
    ).cells
    assert [*first.metrics] == ["valid"]
    assert [*read_metrics(out / first.folder)] == ["valid"]
    trained = (out / first.folder / MODEL).stat().st_mtime_ns
    [second] = run_benchmark(make_experiment(runs=1, rows=rows, reference=None), out, root).cells
    assert (second.status, [*second.metrics]) == ("done", ["valid", "test"])
    assert second.metrics["valid"] == first.metrics["valid"]
    assert (out / second.folder / MODEL).stat().st_mtime_ns == trained
    [third] = run_benchmark(
        make_experiment(runs=1, rows=rows, reference=None, split="valid"), out, root
    ).cells
    assert third.metrics == second.metrics  # kept, as it is there


def test_run_benchmark_one_benchmark_at_a_time(make_experiment, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / ".lock"), pytest.raises(CheckpointError) as caught:
        run_benchmark(make_experiment(), tmp_path / "out", tmp_path / "root")
    assert str(caught.value) == (
        f"One benchmark at a time can run in a folder, but another one is at work in "
        f"'{tmp_path / 'out'}'; wait for it, or choose another folder with --out."
    )


def test_run_benchmark_measure_that_a_cell_lacks_fails_the_cell(
    make_experiment, tmp_path: Path, monkeypatch
) -> None:
    """It is never 0; a measure that the data set lacks is left out."""
    rows = [{"name": "prior", "encoder": "prior"}]
    experiment = make_experiment(rows=rows, reference=None, runs=1, measures=["P@1", "depth_9/R@5"])
    (cell,) = run_benchmark(experiment, tmp_path / "out", tmp_path / "root").cells
    assert (cell.status, "depth_9/R@5" in cell.metrics["test"]) == ("done", False)
    monkeypatch.setattr("match_graph.benchmark.cell.read_metrics", lambda _: {"test": {"R@1": 1}})
    (cell,) = run_benchmark(experiment, tmp_path / "out", tmp_path / "root").cells
    assert cell.status == "failed"
    assert cell.reason.startswith(
        "The cell 'cells/toy/prior/seed0' must have the measure 'P@1' on test, but it has ["
        "'R@1'] there"
    )
    assert cell.reason.endswith("change 'measures' or 'split', or evaluate the cell again.")


PRIOR = [{"name": "prior", "encoder": "prior"}]
DONE = {
    "status": "done",
    "metrics": {split: {"P@1": 0.5, "NDCG@5": 0.5} for split in ("valid", "test")},
    "seconds": {"train": 1.0},
    "peak_mib": {"host": 500.0},
}


@pytest.fixture
def make_earlier(make_experiment, tmp_path: Path):
    """Plan of an experiment, and results as of a call that has run all of its cells."""

    def make(**changes) -> tuple[Plan, Results]:
        experiment = make_experiment(**{"rows": PRIOR, "reference": None, **changes})
        plan = make_plan(experiment, tmp_path / "root", Reporter(quiet=True))
        place = tmp_path / "made"
        place.mkdir(exist_ok=True)
        (place / RESULTS).unlink(missing_ok=True)
        waiting = Ledger(plan, place, Reporter(quiet=True)).write()
        cells = [
            cell.model_copy(update=DONE) if cell.status == "waiting" else cell
            for cell in waiting.cells
        ]
        return plan, waiting.model_copy(update={"cells": cells})

    return make


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Two data sets of the same documents."""
    return [str(write_match_folder(tmp_path / name)) for name in ("toy", "twin")]


def find_matches(plan: Plan, earlier: Results, found: str | None = None) -> list[bool]:
    """For each cell of earlier results whether it is kept; ``found`` is the features' checksum."""
    keeper = EarlierCells(plan, earlier, lambda *_: found)
    return [keeper.matches(cell) for cell in earlier.cells]


@pytest.mark.parametrize(
    ("changes", "matches"),
    [
        ({}, True),
        ({"measures": ["P@1"], "question": "Another?", "runs": 3, "seed": 1}, True),
        ({"settings": {"train.epochs": 2}}, False),
        ({"overrides": {"data.hierarchy": "ignore"}}, False),
        ({"budget": "own"}, False),
        ({"split": "valid"}, False),
        ({"rows": [{**PRIOR[0], "settings": {"model.coherent": False}}]}, False),
        ({"rows": [{**PRIOR[0], "name": "other"}]}, False),
    ],
    ids=["same", "seeds", "settings", "overrides", "budget", "split", "row", "name"],
)
def test_EarlierCells_matches_cells_of_a_data_set_left_out_now(
    make_earlier, folders: list[str], changes: dict, matches: bool
) -> None:
    """They share a table with new cells, so shared settings must be equal."""
    _, earlier = make_earlier(datasets=folders, runs=1)
    plan, _ = make_earlier(**{"datasets": folders[:1], "runs": 1, **changes})
    assert find_matches(plan, earlier)[1] == matches


def test_EarlierCells_matches_rows_of_the_fields_of_their_data(make_earlier, folders) -> None:
    """Rows per field are expanded for the fields of the earlier data set."""
    rows = [{"name": "No-{field}", "encoder": "tfidf_linear", "ablation": ["no-{field}"]}]
    _, earlier = make_earlier(datasets=folders, rows=rows, runs=1)
    plan, _ = make_earlier(datasets=folders[:1], rows=rows, runs=1)
    assert find_matches(plan, earlier) == [True] * 6


def test_EarlierCells_matches_cells_with_measures_of_the_split(make_earlier) -> None:
    """Cells measured on test alone are not kept for a table of validation."""
    plan, earlier = make_earlier(split="valid", runs=1)
    assert find_matches(plan, earlier) == [True]
    test = {"metrics": {"test": DONE["metrics"]["test"]}}
    cells = [cell.model_copy(update=test) for cell in earlier.cells]
    assert find_matches(plan, earlier.model_copy(update={"cells": cells})) == [False]


def test_EarlierCells_matches_cells_that_lack_a_slice(make_earlier) -> None:
    """A cell without a measure that its data set lacks is kept."""
    plan, earlier = make_earlier(measures=["P@1", "depth_9/R@5", "at_least_k/P@3"], runs=1)
    assert find_matches(plan, earlier) == [True]
    plan, earlier = make_earlier(measures=["P@1", "PSP@5"], runs=1)
    assert find_matches(plan, earlier) == [False]


def test_EarlierCells_matches_cells_of_the_same_features(make_earlier, tmp_path: Path) -> None:
    """Features are compared by checksum, as a file may change under its name."""
    settings = {"data.features.document": {"path": str(tmp_path / "x.npy")}}
    rows = [{"name": "linear", "encoder": "tfidf_linear", "settings": settings}]
    plan, earlier = make_earlier(rows=rows, runs=1)
    update = {"feature_checksums": {"document": "ab"}}
    cells = [cell.model_copy(update=update) for cell in earlier.cells]
    earlier = earlier.model_copy(update={"cells": cells})
    assert find_matches(plan, earlier, "ab") == [True]
    assert find_matches(plan, earlier, "cd") == [False]


def test_EarlierCells_matches_cells_of_the_same_settings(make_earlier) -> None:
    """Resolved settings are compared, without the folder of the data."""
    plan, earlier = make_earlier(runs=1)
    [cell] = earlier.cells
    moved = {**cell.config, "dataset": "/elsewhere/toy"}
    longer = {**cell.config, "train": {**cell.config["train"], "epochs": 9}}
    for config, matches in ((moved, True), (longer, False)):
        cells = [cell.model_copy(update={"config": config})]
        assert find_matches(plan, earlier.model_copy(update={"cells": cells})) == [matches]


def test_EarlierCells_are_of_the_same_documents_and_rows(make_earlier) -> None:
    """Finished and failed cells need the checksum and the row of the plan."""
    plan, earlier = make_earlier(runs=1)
    [cell] = earlier.cells
    assert EarlierCells(plan, earlier, lambda *_: None).matches_row(cell)
    records = [one.model_copy(update={"checksum": "other"}) for one in earlier.datasets]
    others = earlier.model_copy(update={"datasets": records})
    assert find_matches(plan, others) == [False]
    assert not EarlierCells(plan, others, lambda *_: None).matches_row(cell)
    plan, _ = make_earlier(runs=1, rows=[{**PRIOR[0], "name": "other"}])
    assert not EarlierCells(plan, earlier, lambda *_: None).matches_row(cell)


@pytest.fixture
def open_ledger(tmp_path: Path):
    """Opens the ledger of a plan in a folder with earlier results."""

    def open_it(plan: Plan, earlier: Results) -> Ledger:
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        write_results(out, earlier)
        return Ledger(plan, out, Reporter(quiet=True))

    return open_it


def test_Ledger_runs_planned_cells_without_a_run_folder_again(make_earlier, open_ledger) -> None:
    """Published cells and those of other seeds are kept, and the time of the start."""
    _, earlier = make_earlier(runs=2)
    plan, _ = make_earlier(runs=1)
    earlier = earlier.model_copy(update={"started": "2020-01-01T00:00:00+00:00"})
    ledger = open_ledger(plan, earlier)
    assert [cell.seed for cell in ledger.find_pending()] == [0]
    results = ledger.write()
    assert [cell.status for cell in results.cells] == ["waiting", "done"]
    assert results.started == earlier.started
    cells = [cell.model_copy(update={"published": True}) for cell in earlier.cells]
    ledger = open_ledger(plan, earlier.model_copy(update={"cells": cells}))
    assert not ledger.find_pending()


def test_Ledger_begun_again_takes_the_place_of_a_published_cell(
    make_earlier, open_ledger, tmp_path: Path
) -> None:
    """A cell with a run folder, though unfinished, is resumed."""
    plan, earlier = make_earlier(runs=1)
    [planned] = plan.cells
    start_run(planned.source, planned.config, tmp_path / "out" / planned.folder, tmp_path / "root")
    cells = [cell.model_copy(update={"published": True}) for cell in earlier.cells]
    ledger = open_ledger(plan, earlier.model_copy(update={"cells": cells}))
    assert ledger.find_pending() == [planned]


def test_Ledger_leaves_out_seeds_of_other_settings(make_earlier, open_ledger) -> None:
    """Means are over cells of equal settings; failed cells of the data are kept."""
    _, earlier = make_earlier(runs=2)
    plan, _ = make_earlier(runs=1)
    train = {**earlier.cells[1].config["train"], "epochs": 9}
    update = {"config": {**earlier.cells[1].config, "train": train}}
    cells = [earlier.cells[0], earlier.cells[1].model_copy(update=update)]
    ledger = open_ledger(plan, earlier.model_copy(update={"cells": cells}))
    assert {cell.seed for cell in ledger.cells.values()} == {0}
    failed = {"status": "failed", "reason": "No.", "metrics": {}}
    cells = [cell.model_copy(update=failed) for cell in earlier.cells]
    ledger = open_ledger(plan, earlier.model_copy(update={"cells": cells}))
    assert [cell.status for cell in ledger.cells.values()] == ["waiting", "failed"]


def test_Ledger_keeps_data_sets_with_cells_and_their_tests(
    make_earlier, open_ledger, folders: list[str]
) -> None:
    """Tests are kept only if the checksum of the data is the same."""
    _, earlier = make_earlier(datasets=folders, runs=1)
    test = PublishedTest(
        row="prior", measure="P@1", value=0.5, num_documents=2, p_value=None, reason="",
        interval=None,
    )  # fmt: skip
    records = [one.model_copy(update={"tests": [test]}) for one in earlier.datasets]
    earlier = earlier.model_copy(update={"datasets": records})
    plan, _ = make_earlier(datasets=folders[:1], runs=1)
    kept = open_ledger(plan, earlier).write().datasets
    assert [(one.name, one.tests) for one in kept] == [("toy", [test]), ("twin", [test])]
    changed = [one.model_copy(update={"checksum": f"other {one.name}"}) for one in earlier.datasets]
    others = earlier.model_copy(update={"datasets": changed})
    plan, _ = make_earlier(datasets=folders[:1], runs=1, budget="own")
    kept = open_ledger(plan, others).write().datasets
    assert [(one.name, one.tests) for one in kept] == [("toy", [])]


@pytest.fixture
def network_plan(make_experiment, tmp_path: Path) -> Plan:
    """Plan of two networks with the same vectors and a prior, with two seeds."""
    rows = [match_row(), match_row("flat", ablation=["no-hierarchy"]), *PRIOR]
    experiment = make_experiment(rows=rows, threads=2)
    return make_plan(experiment, tmp_path / "root", Reporter(quiet=True))


def test_find_vectors_are_those_of_the_same_seed(network_plan: Plan, tmp_path: Path) -> None:
    """The first run with vectors of that seed gives them; other seeds and baselines give none."""
    first, flat, prior, second, *_ = network_plan.cells
    assert find_vectors(flat, network_plan.cells, tmp_path) is None
    folder = tmp_path / first.folder
    folder.mkdir(parents=True)
    (folder / VECTORS).touch()
    found = [find_vectors(one, network_plan.cells, tmp_path) for one in (first, flat)]
    assert found == [folder, folder]
    assert find_vectors(second, network_plan.cells, tmp_path) is None
    assert find_vectors(prior, network_plan.cells, tmp_path) is None


def test_run_benchmark_chooses_cells_whose_vectors_are_there(
    network_plan: Plan, tmp_path: Path
) -> None:
    """A cell waits while another one pre-trains its vectors; those without vectors never do."""
    benchmark = _Benchmark(network_plan, tmp_path, "", None, Reporter(quiet=True))
    first, flat, prior, second, _, again = network_plan.cells
    assert benchmark._choose([flat, prior], [first]) == prior
    assert benchmark._choose([flat, second], [first]) == second
    assert benchmark._choose([again], [prior]) == again
    folder = tmp_path / first.folder
    folder.mkdir(parents=True)
    (folder / VECTORS).touch()
    assert benchmark._choose([flat, prior], [first]) == flat
    work = benchmark._make_work(flat)
    assert (work.vectors, work.threads) == (folder, 2)


def test_find_environment_of_other_machines_is_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only variables of match-graph are sent to a cluster."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("MATCH_GRAPH_ROOT", "/there")
    assert find_environment(None) == dict(os.environ)
    found = find_environment(Cluster(workers=2))
    assert found["MATCH_GRAPH_ROOT"] == "/there"
    assert all(name.startswith("MATCH_GRAPH_") for name in found)


def test_takes_gpu_of_networks_that_may_use_one() -> None:
    config = Config().change("train", accelerator="auto")
    assert takes_gpu(config)
    assert not takes_gpu(config.change("train", accelerator="cpu"))
    assert not takes_gpu(config.change("model", encoder="prior"))


def test_count_epochs_of_all_levels_of_a_label_tree(tmp_path: Path) -> None:
    """Seconds of training are divided by the epochs of all levels."""
    for folder, number in ((tmp_path, 2), (tmp_path / "levels" / "0", 3)):
        folder.mkdir(parents=True, exist_ok=True)
        rows = [f"{epoch},0.5" for epoch in range(1, number + 1)]
        (folder / "history.csv").write_text("\n".join(["epoch,loss", *rows]) + "\n")
    assert _count_epochs(tmp_path) == 5
