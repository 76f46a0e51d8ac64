"""Scores of documents beside published results: written, read back, and gone on from."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from match_graph.benchmark import Cell, Results, read_results, run_benchmark, write_results
from match_graph.benchmark.scores import SCORES, CellScores
from match_graph.errors import CheckpointError
from match_graph.io import Reporter
from match_graph.report import summarize, write_tables
from match_graph.report.summary import publish
from match_graph.runs.measures import SCORE_NAMES
from match_graph.testing import write_match_folder


def find_intervals(results: Results, folder: Path) -> list:
    """Intervals of a table, by row and measure."""
    rows = summarize(results, "toy", folder)
    return [value.interval for row in rows for value in row.measured.values()]


def release(results: Results, folder: Path, out: Path) -> Path:
    """Publishes results into a new folder."""
    out.mkdir()
    publish(results, folder, out)
    return out


def test_CellScores_are_read_back_without_run_folders(make_experiment, tmp_path: Path) -> None:
    """Checksum and scores of every cell are the same in both places."""
    results = run_benchmark(make_experiment(), tmp_path / "out", tmp_path / "root")
    kept = release(results, tmp_path / "out", tmp_path / "kept")
    assert sorted(path.name for path in kept.iterdir()) == ["results.json", SCORES]
    there, here = CellScores(tmp_path / "out", "test"), CellScores(kept, "test")
    for cell in results.cells:
        published = cell.model_copy(update={"published": True})
        (checksum, scores), found = there.read(cell), here.read(published)
        assert found[0] == checksum == results.datasets[0].checksum
        torch.testing.assert_close(found[1], scores, rtol=0, atol=0)
    with pytest.raises(CheckpointError, match="must hold the measure"):
        here.read(Cell(dataset="toy", row="MATCH", seed=9, folder="cells/none"))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda table: table.drop(columns="P@1"), "ArrowInvalid"),
        (lambda table: table.assign(**{"P@1": 1.5}), "a measure is not in 0..1"),
        (lambda table: table.assign(**{"P@1": float("nan")}), "a measure is not in 0..1"),
        (
            lambda table: table.assign(data_checksum=[*"ab"] * (len(table) // 2)),
            "'prior' has 2 checksums of data for a seed",
        ),
    ],
    ids=["column", "large", "nan", "checksums"],
)
def test_CellScores_refuses_a_broken_file(make_experiment, tmp_path: Path, change, found) -> None:
    """The error is one sentence."""
    results = run_benchmark(make_experiment(), tmp_path / "out", tmp_path / "root", rows=["prior"])
    kept = release(results, tmp_path / "out", tmp_path / "kept")
    change(pd.read_parquet(kept / SCORES)).to_parquet(kept / SCORES)
    with pytest.raises(CheckpointError) as caught:
        summarize(read_results(kept), "toy", kept)
    assert str(caught.value).startswith(
        f"'{kept / SCORES}' must hold scores of documents as match-graph wrote them, but it cannot "
        f"be used ({found}"
    )


def test_run_benchmark_goes_on_from_published_results(
    make_experiment, tmp_path: Path, capsys
) -> None:
    """A row that is added has the intervals of a benchmark of both rows."""
    out, root = tmp_path / "out", tmp_path / "root"
    experiment = make_experiment()
    whole = run_benchmark(experiment, out, root)
    first = run_benchmark(experiment, tmp_path / "first", root, rows=["MATCH"])
    kept = release(first, tmp_path / "first", tmp_path / "kept")
    results = run_benchmark(experiment, kept, root, reporter=Reporter())
    said = capsys.readouterr().err
    assert "2 cells are published ones, kept without run folders\n" in said
    assert "cells: 2 done, 2 to run with 1 thread each" in said
    assert [cell.published for cell in results.cells] == [False, False, True, True]
    assert not (kept / "cells" / "toy" / "MATCH").exists()

    intervals = find_intervals(whole, out)
    assert None not in intervals
    assert find_intervals(results, kept) == intervals
    again = release(results, kept, tmp_path / "again")  # from run folders and the file
    assert find_intervals(read_results(again), again) == intervals
    assert all(cell.published for cell in read_results(again).cells)
    write_tables(again, read_results(again))


PRIOR = {"rows": [{"name": "prior", "encoder": "prior"}], "reference": None}


def test_run_benchmark_runs_published_cells_of_other_settings(
    make_experiment, tmp_path: Path, capsys
) -> None:
    """A cell of other settings, or without a measure or split, is run again.

    How processes share a training is not among the settings.
    """
    out, root = tmp_path / "out", tmp_path / "root"
    results = run_benchmark(make_experiment(**PRIOR, runs=1), out, root)
    kept = release(results, out, tmp_path / "kept")

    def lose(name: str) -> dict:
        read = read_results(copy)
        measures = read.cells[0].metrics["test"]
        measures.pop(name) if name else read.cells[0].metrics.pop("test")
        write_results(copy, read)
        return {}

    other = {"settings": {**results.experiment.settings, "data.hierarchy": "ignore"}}
    for number, change in enumerate([lambda: other, lambda: lose("P@1"), lambda: lose("")]):
        copy = shutil.copytree(kept, tmp_path / f"copy{number}")
        changes = {**PRIOR, "runs": 1, **change()}
        [cell] = run_benchmark(make_experiment(**changes), copy, root, reporter=Reporter()).cells
        assert not cell.published
        assert (copy / cell.folder / "metrics.json").is_file()
        assert (
            "1 published cells are of other rows, settings, data or measures, such as "
            "'cells/toy/prior/seed0'; the results have them no more"
        ) in " ".join(capsys.readouterr().err.split())
    read = read_results(kept)
    read.cells[0].config["train"]["shard_embeddings"] = False
    write_results(kept, read)
    [cell] = run_benchmark(make_experiment(**PRIOR, runs=1), kept, root).cells
    assert cell.published


@pytest.mark.parametrize(("asked", "counts"), [("auto", True), ("32-true", False)])
def test_run_benchmark_takes_cells_in_a_precision_of_its_device(
    make_experiment, tmp_path: Path, asked: str, counts: bool
) -> None:
    """Published cells of another precision are reused if `train.precision` is auto, else rerun."""
    settings = {**make_experiment().settings, "train.precision": asked}
    experiment = make_experiment(**PRIOR, runs=1, settings=settings)
    results = run_benchmark(experiment, tmp_path / "out", tmp_path / "root")
    kept = release(results, tmp_path / "out", tmp_path / "kept")
    read = read_results(kept)
    mine = read.cells[0].config["train"]["precision"]
    read.cells[0].config["train"]["precision"] = {"32-true": "bf16-mixed"}.get(mine, "32-true")
    write_results(kept, read)
    [cell] = run_benchmark(experiment, kept, tmp_path / "root").cells
    assert cell.published == counts


def test_run_benchmark_runs_cells_of_changed_code_again(make_experiment, tmp_path: Path) -> None:
    """Published cells of changed custom code are run again; run folders are refused."""
    root, out, code = tmp_path / "root", tmp_path / "out", tmp_path / "own_prior.py"
    code.write_text(OWN)
    rows = [{"name": "mine", "encoder": f"{code}:Mine"}]
    experiment = make_experiment(rows=rows, reference=None, runs=1)
    results = run_benchmark(experiment, out, root)
    kept = release(results, out, tmp_path / "kept")
    assert [cell.published for cell in run_benchmark(experiment, kept, root).cells] == [True]
    code.write_text(f"{OWN}    offset = 1\n")
    message = r"made with another content of \['model.encoder'\]\); choose another folder"
    with pytest.raises(CheckpointError, match=message):
        run_benchmark(experiment, out, root)
    [cell] = run_benchmark(experiment, kept, root).cells
    assert not cell.published
    assert cell.input_checksums != results.cells[0].input_checksums


OWN = "from match_graph import LabelPrior\n\n\nclass Mine(LabelPrior):\n    pass\n"


def test_run_benchmark_adds_a_row_to_published_results(make_experiment, tmp_path: Path) -> None:
    """Cells of other seeds and data sets keep their own settings."""
    root, twin = tmp_path / "root", write_match_folder(tmp_path / "twin")
    toy = make_experiment(**PRIOR, runs=2)
    both = toy.model_copy(update={"datasets": [*toy.datasets, str(twin)]})
    results = run_benchmark(both, tmp_path / "out", root)
    kept = release(results, tmp_path / "out", tmp_path / "kept")
    rows = [*PRIOR["rows"], {"name": "another", "encoder": "prior"}]
    more = make_experiment(rows=rows, reference=None, runs=1)
    found = run_benchmark(more, kept, root)
    assert [(one.dataset, one.row, one.seed, one.published) for one in found.cells] == [
        ("toy", "prior", 0, True), ("toy", "prior", 1, True), ("toy", "another", 0, False),
        ("twin", "prior", 0, True), ("twin", "prior", 1, True),
    ]  # fmt: skip
    assert None not in find_intervals(found, kept)


def test_run_benchmark_keeps_published_rows_that_are_refused(
    make_experiment, tmp_path: Path, capsys
) -> None:
    """They are refused again, without a warning that the results lose them."""
    rows = [*PRIOR["rows"], {"name": "other", "encoder": "prior", "ablation": ["no-nothing"]}]
    experiment = make_experiment(rows=rows, reference=None, runs=1)
    results = run_benchmark(experiment, tmp_path / "out", tmp_path / "root")
    assert [cell.status for cell in results.cells] == ["done", "refused"]
    kept = release(results, tmp_path / "out", tmp_path / "kept")
    capsys.readouterr()
    found = run_benchmark(experiment, kept, tmp_path / "root", reporter=Reporter())
    assert [cell.status for cell in found.cells] == ["done", "refused"]
    assert "no more" not in capsys.readouterr().err


def test_CellScores_are_those_that_the_results_were_measured_by(
    make_experiment, tmp_path: Path
) -> None:
    """Scores of another split, or beside other results, give no intervals."""
    out, root = tmp_path / "out", tmp_path / "root"
    results = run_benchmark(make_experiment(**PRIOR, runs=1), out, root)
    kept = release(results, out, tmp_path / "kept")
    read = read_results(kept)
    with pytest.raises(CheckpointError, match=r"must hold the scores behind results\.json, but"):
        CellScores(kept, "valid").read(read.cells[0])
    read.cells[0].metrics["test"]["P@1"] += 0.25
    with pytest.raises(CheckpointError, match="restore both files together"):
        CellScores(kept, "test").read(read.cells[0])
    write_results(kept, read)
    [row] = summarize(read_results(kept), "toy", kept)
    assert row.measured["P@1"].interval is None
    assert "no intervals over documents of P@1" in row.notes[0]


def test_CellScores_write_says_what_is_damaged(make_experiment, tmp_path: Path) -> None:
    """A run folder without scores is an error; without any scores an old file is removed."""
    out = tmp_path / "out"
    results = run_benchmark(make_experiment(**PRIOR, runs=1), out, tmp_path / "root")
    [path] = out.glob("cells/toy/prior/seed0/per_document.parquet")
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"per_document\.parquet"):
        publish(results, out, tmp_path)
    (tmp_path / SCORES).touch()
    CellScores(out, "test").write(tmp_path, [])
    assert not (tmp_path / SCORES).exists()


@pytest.fixture
def kept_cell(tmp_path: Path) -> Cell:
    """A published cell with scores of 0.25 and 0.75 in the folder's file."""
    columns = {name: [0.25, 0.75] for name in SCORE_NAMES}
    key = {"dataset": "toy", "row": "prior", "seed": 0, "data_checksum": "old"}
    pd.DataFrame({**key, **columns}).to_parquet(tmp_path / SCORES)
    return Cell(
        dataset="toy", row="prior", seed=0, status="done", folder="cells/x", published=True,
        metrics={"test": dict.fromkeys(SCORE_NAMES, 0.5), "valid": {"P@1": 0.9}},
    )  # fmt: skip


def test_CellScores_read_takes_the_run_folder_of_a_new_run(
    kept_cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file stands for published cells alone; scores are of the experiment's split."""
    asked = []

    def read(folder: Path, split: str, names: tuple[str, ...]) -> torch.Tensor:
        asked.append((folder, split))
        return torch.zeros(2, len(names))

    monkeypatch.setattr("match_graph.benchmark.scores.read_scores", read)
    record = {"data_checksum": "new"}
    monkeypatch.setattr("match_graph.benchmark.scores.read_record", lambda _: record)
    scores = CellScores(tmp_path, "valid")
    again = kept_cell.model_copy(update={"published": False})
    checksum, found = scores.read(again)
    assert (checksum, float(found.sum())) == ("new", 0.0)
    assert asked == [(tmp_path / "cells/x", "valid")]


def test_CellScores_read_compares_means_with_the_results(kept_cell: Cell, tmp_path: Path) -> None:
    """On the split that was measured, to the rounding of a mean; without measures there is none."""
    scores = CellScores(tmp_path, "test")
    checksum, found = scores.read(kept_cell)
    assert (checksum, found[:, 0].tolist()) == ("old", [0.25, 0.75])
    for metrics in (
        {"test": dict.fromkeys(SCORE_NAMES, 0.501)},
        {"valid": dict.fromkeys(SCORE_NAMES, 0.5)},
    ):
        with pytest.raises(CheckpointError, match="must hold the scores behind"):
            scores.read(kept_cell.model_copy(update={"metrics": metrics}))
    with pytest.raises(CheckpointError, match=r"'P@1' of 'cells/x' on valid is 0\.9 there"):
        CellScores(tmp_path, "valid").read(kept_cell)


def test_CellScores_write_leaves_out_published_cells_without(
    kept_cell: Cell, tmp_path: Path
) -> None:
    """A published cell without scores in the published file has no rows; others keep theirs."""
    other = kept_cell.model_copy(update={"seed": 1})
    (tmp_path / "to").mkdir()
    CellScores(tmp_path, "test").write(tmp_path / "to", [kept_cell, other])
    table = pd.read_parquet(tmp_path / "to" / SCORES)
    assert table["seed"].tolist() == [0, 0]
    assert table["P@1"].tolist() == [0.25, 0.75]
