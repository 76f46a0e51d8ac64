"""Tables of a benchmark: a hand computation of means, deviations, stars and differences."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from match_graph.benchmark import Cell, DatasetRecord, Experiment, Machine, Results
from match_graph.errors import CheckpointError
from match_graph.io import Reporter
from match_graph.report import summarize, write_tables
from match_graph.report.benchmark_tables import make_csv, tabulate_best, tabulate_grid
from match_graph.report.summary import collect_notes
from match_graph.runs.measures import DocumentScores, write_scores

#: NDCG@5 and violation rate by row and seed.
VALUES = {
    "A & B_1": [(0.50, 0.30), (0.52, 0.20), (0.51, 0.10)],
    "MATCH": [(0.60, 0.11), (0.61, 0.21), (0.65, 0.31)],
    "same": [(0.59, 0.11), (0.60, 0.21), (0.64, 0.31)],
    "gone": [],
}


def make_results(values=VALUES, seeds=3, **changes) -> Results:
    """Results of rows with these measures; rows without are refused."""
    content = {
        "name": "trial",
        "question": "Is A|B better than <script>?",
        "datasets": ["toy"],
        "runs": seeds,
        "measures": ["NDCG@5", "violation_rate"],
        "reference": "MATCH",
        "rows": [{"name": name} for name in values],
        "expected": {"toy": {"MATCH": {"NDCG@5": [0.61, 0.01]}}},
    }
    experiment = Experiment(**{**content, **changes})
    cells = []
    for row in experiment.expand([]):
        found = values[row.name]
        for seed in range(seeds):
            common = {
                "dataset": "toy",
                "row": row.name,
                "seed": seed,
                "folder": f"c/{row.name}/{seed}",
            }
            if not found:
                cells.append(Cell(**common, status="refused", reason="It has no colour."))
                continue
            measures = dict(zip(experiment.measures, found[seed], strict=False))
            history = [
                {"epoch": 1, "loss_recent": 2.0, **measures},
                {"epoch": 2, "loss_recent": 1.0, **measures},
            ]
            cells.append(
                Cell(
                    **common,
                    status="done",
                    metrics={"test": measures},
                    history=history,
                    seconds={"pretrain": 9.0, "train": 4.0 + 4 * seed},
                    seconds_per_epoch=1.0 + seed,
                    parameters=1234,
                    peak_mib={"host": 100.0 + seed},
                )
            )
    record = DatasetRecord(
        name="toy",
        source="toy",
        checksum="abcdef",
        documents={"train": 8, "test": 2},
        num_labels=9,
        fields=[],
        epochs=4,
        rows=experiment.expand([]),
    )
    machine = Machine(platform="L", processor="x86_64", cores=2, python="3.11", versions={})
    when = "2026-01-01T00:00:00+00:00"
    return Results(
        experiment=experiment, machine=machine, started=when, updated=when, datasets=[record],
        cells=cells,
    )  # fmt: skip


def test_summarize_row_by_hand() -> None:
    """Mean, deviation with n - 1, paired test with the reference, best, direction of stars."""
    rows = {row.name: row for row in summarize(make_results(), "toy")}
    first = rows["A & B_1"]
    value = first.measured["NDCG@5"]
    assert value.mean == pytest.approx(0.51)
    assert value.std == pytest.approx(0.01)
    # differences .10, .09, .14: mean .11, deviation sqrt(.0007), t = .11 / (sqrt(.0007) / sqrt(3))
    t = 0.11 / np.sqrt(0.0014 / 2 / 3)
    assert value.test.p_value == pytest.approx(2 * stats.t.sf(t, df=2))
    assert 0.01 < value.test.p_value < 0.05
    assert (value.stars, value.is_best) == ("*", False)
    assert rows["MATCH"].measured["NDCG@5"].is_best
    assert rows["MATCH"].measured["NDCG@5"].test is None
    assert rows["MATCH"].measured["NDCG@5"].difference == pytest.approx(0.01)
    assert first.measured["violation_rate"].is_best  # less is better
    assert first.train_seconds == 8.0
    assert (first.runs, first.parameters, first.seconds_per_epoch, first.peak_mib) == (
        3, 1234, 2.0, 102.0,
    )  # fmt: skip
    assert rows["same"].measured["NDCG@5"].stars == ""
    assert rows["same"].notes == (
        "no test over runs, as the difference is the same for all 3 runs.",
    )
    assert rows["gone"].notes == ("left out. It has no colour.",)
    assert not rows["gone"].measured


def test_summarize_stars_say_which_side_is_better() -> None:
    """Of a rate of violations less is better; ++ is significantly better than the reference."""
    values = {
        "low": [(0.9, 0.101), (0.9, 0.202), (0.9, 0.303)],
        "MATCH": [(0.5, 0.2), (0.51, 0.3), (0.5, 0.4)],
    }
    row = summarize(make_results(values, expected={}), "toy")[0]
    assert row.measured["NDCG@5"].stars == "++"
    assert row.measured["violation_rate"].stars == "++"
    values = {"low": values["MATCH"], "MATCH": values["low"]}
    row = summarize(make_results(values, expected={}), "toy")[0]
    assert (row.measured["NDCG@5"].stars, row.measured["violation_rate"].stars) == ("**", "**")


def test_summarize_one_run_is_compared_over_documents(tmp_path: Path) -> None:
    """No star; a p-value of the bootstrap, named as such."""
    values = {name: found[:1] for name, found in VALUES.items()}
    results = make_results(values, seeds=1)
    generator = torch.Generator().manual_seed(0)
    for row, shift in (("MATCH", 0.3), ("A & B_1", 0.0), ("same", 0.3)):
        scores = DocumentScores(torch.arange(10, 60))
        scores.table[:, -1] = torch.rand(50, generator=generator) / 2 + shift
        (tmp_path / "c" / row).mkdir(parents=True)
        write_scores(tmp_path / "c" / row / "0", {"test": scores})
    first = summarize(results, "toy", tmp_path)[0]
    value = first.measured["NDCG@5"]
    assert (value.stars, value.std, value.test.p_value) == ("", None, None)
    assert value.documents.p_value == pytest.approx(0.001)
    assert first.notes == (
        "no test over runs, as there is one run only.",
        "p-values of one run over its 50 documents: NDCG@5 0.001 (paired bootstrap; other seeds "
        "may differ).",
    )
    assert summarize(results, "toy")[0].measured["NDCG@5"].documents is None
    assert collect_notes(summarize(results, "toy")) == [
        "A & B_1, same: no test over runs, as there is one run only.",
        "gone: left out. It has no colour.",
    ]


def test_summarize_rows_are_compared_on_the_seeds_that_both_have() -> None:
    """A failed run leaves two pairs; no common seed leaves no test, with the reason."""
    results = make_results()
    cells = [
        cell.model_copy(update={"status": "failed", "reason": "No."})
        if (cell.row, cell.seed) == ("A & B_1", 2)
        else cell
        for cell in results.cells
    ]
    row = summarize(results.model_copy(update={"cells": cells}), "toy")[0]
    assert (row.runs, row.measured["NDCG@5"].test.num_pairs) == (2, 2)
    assert row.notes == ("seed 2 failed. No.",)
    cells = [
        cell.model_copy(update={"seed": cell.seed + 10}) if cell.row == "MATCH" else cell
        for cell in cells
    ]
    row = summarize(results.model_copy(update={"cells": cells}), "toy")[0]
    assert row.notes[1] == "no test over runs, as it has no run with a seed of 'MATCH'."


def test_summarize_measure_without_a_test_is_named() -> None:
    """A measure without a test is named where others have one."""
    values = {"MATCH": [(0.5, 0.1), (0.6, 0.2)], "b": [(0.4, 0.1), (0.4, 0.2)]}
    row = summarize(make_results(values, seeds=2, expected={}), "toy")[1]
    assert row.measured["NDCG@5"].test.p_value > 0
    assert row.notes == (
        "no test over runs of violation_rate, as the difference is the same for all 2 runs.",
    )


def test_write_tables_seeds_of_a_table_are_those_of_its_runs(tmp_path: Path) -> None:
    """Earlier calls with more runs, or another first seed, are in its means too."""
    results = make_results()
    experiment = results.experiment.model_copy(update={"runs": 1, "seed": 2})
    write_tables(tmp_path, results.model_copy(update={"experiment": experiment}))
    assert "Seeds 0, 1, 2; 9 runs are finished." in (tmp_path / "tables" / "toy.md").read_text()


def test_write_tables_files_hold_the_same_numbers(tmp_path: Path) -> None:
    """Markdown and LaTeX with 4 digits, CSV with all."""
    written = write_tables(tmp_path, make_results())
    assert [path.name for path in written] == ["toy.md", "toy.csv", "toy.tex"]
    markdown, latex = (tmp_path / "tables" / f"toy.{end}" for end in ("md", "tex"))
    lines = markdown.read_text().splitlines()
    assert lines[:3] == ["## trial on toy", "", r"Is A\|B better than \<script\>?"]
    assert lines[6:8] == [
        r"|  | NDCG@5 | violation\_rate | runs | parameters | train s | s / epoch | peak MiB |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    assert lines[8] == (
        r"| A \& B\_1 | 0.5100 ± 0.0100\* | **0.2000 ± 0.1000** | 3 | 1,234 | 8 | 2 | 102 |"
    )
    assert lines[9].startswith("| MATCH | **0.6200 ± 0.0265** | 0.2100 ± 0.1000 | 3 |")
    assert lines[11] == "| gone | - | - | 0 | - | - | - | - |"
    text = "\n".join(lines)
    assert "| MATCH | 0.6100 (+0.0100) | - |" in text
    assert "- gone: left out. It has no colour." in text
    assert "Epochs of every network: 4." in text
    body = latex.read_text()
    assert r"\toprule" in body
    assert r"A \& B\_1 & 0.5100 $\pm$ 0.0100\textsuperscript{*} & \textbf{0.2000" in body
    table = pd.read_csv(tmp_path / "tables" / "toy.csv")
    assert table["NDCG@5"].tolist()[:2] == pytest.approx([0.51, 0.62])
    assert table["NDCG@5_stars"].tolist()[0] == "*"
    assert table["NDCG@5_difference"].tolist()[1] == pytest.approx(0.01)
    assert table["violation_rate_p"].notna().tolist() == [True, False, False, False]


def test_write_tables_missing_measure_is_an_error_and_no_table(tmp_path: Path) -> None:
    results = make_results(measures=["NDCG@5", "violation_rate", "P@1"])
    with pytest.raises(CheckpointError) as caught:
        write_tables(tmp_path, results)
    assert str(caught.value) == (
        "The cell 'c/A & B_1/0' must have the measure 'P@1' on test, but it has ['NDCG@5', "
        "'violation_rate']; leave it out of 'measures', or evaluate the cell again."
    )
    with pytest.raises(CheckpointError) as caught:
        summarize(results, "other")
    assert str(caught.value) == (
        "The results must have the data set that is asked for, but there is no 'other' among "
        "['toy']."
    )


@pytest.mark.parametrize("figure", ["bars", "curves", "grid"])
def test_write_tables_figures_come_with_their_data(
    tmp_path: Path, figure: str, monkeypatch, capsys
) -> None:
    """A CSV and a picture; without matplotlib the CSV and one sentence."""
    changes = {"figure": figure}
    values = {"MATCH": VALUES["MATCH"]}
    if figure == "grid":
        grid = {"train.lambda_parameter": [0.0, 0.1], "train.lambda_output": [0.0, 1.0]}
        changes |= {"grid": grid, "reference": None, "rows": [{"name": "M"}], "expected": {}}
        points = ("0.0", "0.1"), ("0.0", "1.0")
        values = {
            f"M, lambda_parameter={left}, lambda_output={right}": VALUES["MATCH"]
            for left in points[0]
            for right in points[1]
        }
    results = make_results(values, **changes)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    written = write_tables(tmp_path / "without", results, Reporter(quiet=True))
    assert [path.name for path in written[3:]] == [f"toy-{figure}.csv"]
    assert capsys.readouterr().err == (
        "warning: tables only: A figure needs matplotlib, which is not installed; run pip install "
        "'match-graph[report]'.\n"
    )
    monkeypatch.undo()
    pytest.importorskip("matplotlib", reason="figures need the extra 'report'")
    written = write_tables(tmp_path / "with", results)
    assert [path.name for path in written[3:]] == [f"toy-{figure}.csv", f"toy-{figure}.png"]
    assert written[4].read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(written[3])
    if figure == "curves":
        assert table["epoch"].tolist() == [1, 2] * 3
        assert table["NDCG@5"].tolist() == [0.60, 0.60, 0.61, 0.61, 0.65, 0.65]
    else:
        ours = table[table["measure"] == "NDCG@5"]["mean"].tolist()
        assert ours == pytest.approx([0.62] * (4 if figure == "grid" else 1))


def test_write_tables_empty_benchmark_has_empty_tables(tmp_path: Path) -> None:
    """Every row left out: dashes, no figure."""
    results = make_results({"MATCH": [], "b": []}, figure="bars", expected={})
    written = write_tables(tmp_path, results)
    assert [path.suffix for path in written] == [".md", ".csv", ".tex"]
    frame = make_csv(summarize(results, "toy"), ["NDCG@5"])
    assert frame["NDCG@5"].isna().all()


def test_tabulate_grid() -> None:
    """The first setting down, the second across; points that are not finished leave gaps."""
    points = pd.DataFrame(
        [
            {"row": "a", "x": 0.1, "y": 1, "measure": "P@1", "mean": 0.5},
            {"row": "b", "x": 0.1, "y": 2, "measure": "P@1", "mean": 0.75},
            {"row": "c", "x": 0.2, "y": 1, "measure": "P@1", "mean": 0.25},
        ]
    )
    [table] = tabulate_grid(points, ["x", "y"], ["P@1"])
    assert table.columns == ["P@1", "y=1", "y=2"]
    assert [list(row) for row in table.rows] == [
        ["x=0.1", "0.5000", "0.7500"],
        ["x=0.2", "0.2500", "-"],
    ]
    assert table.best == {(0, 1), (0, 2)}
    assert not [*tabulate_grid(pd.DataFrame(), ["x", "y"], ["P@1"])]


def test_tabulate_best_lower() -> None:
    """As for violations of the hierarchy."""
    table = tabulate_best({"a": {"x": 0.5}, "b": {"x": 0.25}}, ["x"], "", lower_is_better=True)
    assert table.best == {(1, 1)}
