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


def release(results: Results, folder: Path, out: Path) -> Path:
    """Published results alone, in a folder of their own."""
    out.mkdir()
    publish(results, folder, out)
    return out


def test_CellScores_are_read_back_without_run_folders(make_experiment, tmp_path: Path) -> None:
    """Checksum and scores of every cell, from its run folder and from the one file."""
    results = run_benchmark(make_experiment(), tmp_path / "out", tmp_path / "root")
    kept = release(results, tmp_path / "out", tmp_path / "kept")
    assert sorted(path.name for path in kept.iterdir()) == ["results.json", SCORES]
    there, here = CellScores(tmp_path / "out", "test"), CellScores(kept, "test")
    for cell in results.cells:
        (checksum, scores), found = there.read(cell), here.read(cell)
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
    """One sentence."""
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
    """Another row joins a published table; its intervals are those of a benchmark of both."""
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

    def find_intervals(found: Results, folder: Path) -> list:
        rows = summarize(found, "toy", folder)
        return [value.interval for row in rows for value in row.measured.values()]

    intervals = find_intervals(whole, out)
    assert None not in intervals
    assert find_intervals(results, kept) == intervals
    again = release(results, kept, tmp_path / "again")  # from run folders and the file
    assert find_intervals(read_results(again), again) == intervals
    assert all(cell.published for cell in read_results(again).cells)
    write_tables(again, read_results(again))


def test_run_benchmark_runs_published_cells_of_other_settings(
    make_experiment, tmp_path: Path
) -> None:
    """A cell is not taken for one of other settings, or of a measure that it lacks."""
    out, root = tmp_path / "out", tmp_path / "root"
    common = {"rows": [{"name": "prior", "encoder": "prior"}], "reference": None, "runs": 1}
    results = run_benchmark(make_experiment(**common), out, root)
    kept = release(results, out, tmp_path / "kept")
    for number, changes in enumerate(
        [{"settings": {**results.experiment.settings, "data.hierarchy": "ignore"}}, {}]
    ):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(kept, copy)
        if not changes:
            read = read_results(copy)
            del read.cells[0].metrics["test"]["P@1"]
            write_results(copy, read)
        [cell] = run_benchmark(make_experiment(**common, **changes), copy, root).cells
        assert not cell.published
        assert (copy / cell.folder / "metrics.json").is_file()
