"""Tables of a benchmark: means, deviations, tests, intervals and differences by hand."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from match_graph.benchmark import (
    Cell,
    DatasetRecord,
    Experiment,
    Machine,
    Results,
    read_results,
)
from match_graph.errors import CheckpointError
from match_graph.io import Reporter
from match_graph.io.run_folder import RECORD
from match_graph.metrics import Comparison
from match_graph.report import summarize, write_tables
from match_graph.report.benchmark_tables import (
    make_csv,
    make_legend,
    tabulate_best,
    tabulate_grid,
    tabulate_rows,
)
from match_graph.report.summary import (
    Value,
    collect_notes,
    describe_dataset_twins,
    describe_policies,
    publish,
)
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


def write_cells(folder: Path, values=VALUES, seeds=3, num_documents=50, checksum="abc") -> Path:
    """Run folders of the rows: scores of documents around NDCG@5, and the data's checksum."""
    record = {
        "dataset": "toy", "data_checksum": checksum, "num_train_documents": 8, "seed": 0,
        "processes": 1, "seconds": {}, "peak_memory_mib": {}, "device": {}, "versions": {},
        "python": "3.11", "git": None,
    }  # fmt: skip
    for row, found in values.items():
        for seed in range(seeds if found else 0):
            cell = folder / "c" / row / str(seed)
            cell.mkdir(parents=True)
            (cell / RECORD).write_text(json.dumps(record))
            scores = DocumentScores(torch.arange(10, 10 + num_documents))
            noise = torch.rand(num_documents, generator=torch.Generator().manual_seed(seed)) / 5
            bend = 0.05 * torch.sin(len(row) * torch.arange(num_documents))
            scores.table[:, -1] = found[seed][0] + noise - noise.mean() + bend - bend.mean()
            write_scores(cell, {"test": scores})
    return folder


def spread(values=VALUES) -> dict[str, list[tuple[float, float]]]:
    """Five seeds of the rows that have three."""
    more = ((0.003, 0.01), (-0.004, 0.02))
    return {
        row: [*found, *((found[0][0] + a, found[-1][1] + b) for a, b in more if found)]
        for row, found in values.items()
    }


def test_make_legend_says_what_was_tuned_on() -> None:
    """Whether the data set is one of those, or for reporting alone; nothing if none is named."""
    results = make_results()
    [record] = results.datasets
    texts = []
    for names in ([], ["toy", "other"], ["other"]):
        experiment = results.experiment.model_copy(update={"tuned_on": names})
        found = results.model_copy(update={"experiment": experiment})
        texts.append(" ".join(make_legend(found, record, summarize(found, "toy"))))
    assert "were chosen on validation" not in texts[0]
    assert "on validation of toy, other; this data set is among them." in texts[1]
    assert "on validation of other; this data set is for reporting alone." in texts[2]


def test_publish_keeps_tests_without_run_folders(tmp_path: Path) -> None:
    """Means, intervals, stars and notes are those of the run folders; also read from a file."""
    results, folder = make_results(spread(), 5), write_cells(tmp_path, spread(), 5)
    record = results.datasets[0].model_copy(update={"source": "/home/of/somebody/toy"})
    cells = [one.model_copy(update={"config": {"dataset": "/home/toy"}}) for one in results.cells]
    results = results.model_copy(update={"datasets": [record], "cells": cells})
    publish(results, folder, tmp_path)
    assert "home" not in (tmp_path / "results.json").read_text()
    read = read_results(tmp_path)
    assert (read.datasets[0].source, read.cells[0].config) == ("toy", {"dataset": "toy"})
    assert not any(cell.history for cell in read.cells)
    assert all(cell.published for cell in read.cells)
    expected = summarize(results, "toy", folder)
    found = summarize(read, "toy")
    measures = results.experiment.measures
    assert tabulate_rows(found, measures).to_markdown() == (
        tabulate_rows(expected, measures).to_markdown()
    )
    assert collect_notes(found) == collect_notes(expected)
    assert any(value.interval for row in found for value in row.measured.values())
    assert summarize(results, "toy") != expected


def test_summarize_row_by_hand(tmp_path: Path) -> None:
    """Mean, deviation with n - 1, both tests against the reference, best, direction of stars."""
    values = spread()
    folder = write_cells(tmp_path, values, 5)
    rows = {row.name: row for row in summarize(make_results(values, 5), "toy", folder)}
    first = rows["A & B_1"]
    value = first.measured["NDCG@5"]
    mine, theirs = (np.array([one for one, _ in values[row]]) for row in ("A & B_1", "MATCH"))
    assert value.mean == pytest.approx(mine.mean())
    assert value.std == pytest.approx(mine.std(ddof=1))
    p_value = stats.ttest_rel(mine, theirs).pvalue
    assert value.runs.p_value == pytest.approx(p_value)
    assert value.runs.p_holm == pytest.approx(p_value)  # "same" has none: its runs do not vary
    assert value.documents.p_value == pytest.approx(1e-4)
    assert value.documents.p_holm == pytest.approx(2e-4)  # of two rows
    assert value.documents.difference == pytest.approx(mine.mean() - theirs.mean(), abs=1e-6)
    assert value.interval == value.documents.interval
    assert value.interval[0] < mine.mean() - theirs.mean() < value.interval[1] < 0
    assert (value.stars, value.is_best) == ("**", False)
    reference = rows["MATCH"].measured["NDCG@5"]
    assert reference.is_best
    assert (reference.runs, reference.documents, reference.stars) == (None, None, "")
    assert reference.interval[0] < reference.mean < reference.interval[1]
    assert reference.difference == pytest.approx(reference.mean - 0.61)
    violations = first.measured["violation_rate"]
    assert violations.is_best  # less is better
    assert (violations.documents, violations.interval, violations.stars) == (None, None, "")
    assert first.train_seconds == 12.0
    assert (first.runs, first.parameters, first.seconds_per_epoch, first.peak_mib) == (
        5, 1234, 3.0, 104.0,
    )  # fmt: skip
    assert rows["same"].measured["NDCG@5"].stars == ""
    assert rows["same"].notes == (
        "no test over runs and no stars: the difference is the same for all 5 runs.",
    )
    assert rows["gone"].notes == ("left out. It has no colour.",)
    assert not rows["gone"].measured


def test_Value_stars_say_which_side_is_better() -> None:
    """Of a rate of violations less is better; ++ is significantly better than the reference."""
    test = Comparison(0.1, 5, 0.001, p_holm=0.002)
    content = {"mean": 0.5, "std": None, "is_best": True, "interval": None, "expected": ()}
    for difference, lower_is_better, stars in (
        (0.1, False, "++"), (0.1, True, "**"), (-0.1, False, "**"), (-0.1, True, "++"),
    ):  # fmt: skip
        both = replace(test, difference=difference)
        value = Value(**content, runs=both, documents=both, lower_is_better=lower_is_better)
        assert value.stars == stars
        assert replace(value, documents=None).stars == ""
        assert replace(value, runs=None).stars == ""


def test_summarize_fewer_than_five_seeds_have_no_stars(tmp_path: Path) -> None:
    """However clear the difference is."""
    folder = write_cells(tmp_path)
    first, reference, *_ = summarize(make_results(), "toy", folder)
    value = first.measured["NDCG@5"]
    assert (value.stars, value.runs.p_value) == ("", None)
    assert value.documents.p_holm < 0.01
    assert value.interval[1] < 0
    assert first.notes == ("no test over runs and no stars: it needs 5 common seeds and has 3.",)
    assert reference.notes == ()
    assert collect_notes(summarize(make_results(), "toy", folder)) == [
        "A & B_1, same: no test over runs and no stars: it needs 5 common seeds and has 3.",
        "gone: left out. It has no colour.",
    ]


def test_summarize_without_a_reference_has_intervals_of_means(tmp_path: Path) -> None:
    """Of every row, and nothing is tested."""
    rows = summarize(make_results(reference=None), "toy", write_cells(tmp_path))
    for row in rows[:3]:
        value = row.measured["NDCG@5"]
        assert (value.runs, value.documents, value.stars) == (None, None, "")
        assert value.interval[0] < value.mean < value.interval[1]
        assert row.notes == ()


def test_summarize_what_cannot_be_compared_is_told_once(tmp_path: Path) -> None:
    """Cells that were moved, other documents, and a reference without scores."""
    results, lost = (
        make_results(),
        "the scores of its documents cannot be read from its run folders.",
    )
    none = "no intervals over documents and no stars: "
    for folder in (None, tmp_path):
        notes = collect_notes(summarize(results, "toy", folder))
        assert notes[0] == f"A & B_1, MATCH, same: {none}{lost}"
    write_cells(tmp_path, {"MATCH": VALUES["MATCH"]})
    write_cells(tmp_path, {"A & B_1": VALUES["A & B_1"]}, num_documents=49)
    write_cells(tmp_path, {"same": VALUES["same"]}, checksum="other")
    notes = collect_notes(summarize(results, "toy", tmp_path))
    assert notes[0] == f"A & B_1, same: {none}it was measured on other documents than 'MATCH'."
    shutil.rmtree(tmp_path / "c" / "MATCH")
    notes = collect_notes(summarize(results, "toy", tmp_path))
    assert notes[0] == f"A & B_1, same: {none}the reference 'MATCH' has no scores of documents."
    assert f"MATCH: {none}{lost}" in notes
    shutil.rmtree(tmp_path / "c" / "same" / "2")
    write_cells(tmp_path / "new", {"same": VALUES["same"]}, num_documents=9)
    (tmp_path / "new" / "c" / "same" / "2").rename(tmp_path / "c" / "same" / "2")
    notes = collect_notes(summarize(results, "toy", tmp_path))
    assert f"same: {none}its seeds were measured on different documents." in notes


def test_summarize_rows_are_compared_on_the_seeds_that_both_have() -> None:
    """A failed run leaves two pairs; no common seed leaves none."""
    results = make_results()
    cells = [
        cell.model_copy(update={"status": "failed", "reason": "No."})
        if (cell.row, cell.seed) == ("A & B_1", 2)
        else cell
        for cell in results.cells
    ]
    row = summarize(results.model_copy(update={"cells": cells}), "toy")[0]
    assert (row.runs, row.measured["NDCG@5"].runs.num_pairs) == (2, 2)
    assert row.notes[0] == "seed 2 failed. No."
    cells = [
        cell.model_copy(update={"seed": cell.seed + 10}) if cell.row == "MATCH" else cell
        for cell in cells
    ]
    row = summarize(results.model_copy(update={"cells": cells}), "toy")[0]
    why = "no test over runs and no stars: it needs 5 common seeds and has 0."
    assert why in row.notes


def test_summarize_model_columns_are_read_from_resolved_settings() -> None:
    """Blend, features and start of a network; of a baseline its features alone."""
    results = make_results()
    network = {
        "model": {"head": "linear", "blend": False, "init": "random"},
        "data": {"features": {"document": {"path": "x.npy"}, "label": {"path": "y.npy"}}},
    }
    baseline = {"model": {"head": None, "blend": None, "init": "spherical"}, "data": {}}
    configs = {"MATCH": network, "A & B_1": baseline}
    cells = [
        cell.model_copy(update={"config": configs.get(cell.row, {})}) for cell in results.cells
    ]
    rows = summarize(results.model_copy(update={"cells": cells}), "toy")
    assert [(row.blend, row.features, row.start) for row in rows] == [
        (None, (), None), (False, ("document", "label"), "random"), (None, (), None),
        (None, (), None),
    ]  # fmt: skip
    shown = [list(row[3:6]) for row in tabulate_rows(rows, results.experiment.measures).rows]
    assert shown[:2] == [["-", "-", "-"], ["no", "document, label", "random"]]
    network["model"]["blend"] = "tree"
    rows = summarize(results.model_copy(update={"cells": cells}), "toy")
    assert tabulate_rows(rows, results.experiment.measures).rows[1][3] == "tree"


def test_write_tables_seeds_of_a_table_are_those_of_its_runs(tmp_path: Path) -> None:
    """Earlier calls with more runs, or another first seed, are in its means too."""
    results = make_results()
    experiment = results.experiment.model_copy(update={"runs": 1, "seed": 2})
    write_tables(tmp_path, results.model_copy(update={"experiment": experiment}))
    assert "Seeds 0, 1, 2; 9 runs are finished." in (tmp_path / "tables" / "toy.md").read_text()


def test_write_tables_files_hold_the_same_numbers(tmp_path: Path) -> None:
    """Markdown and LaTeX with 4 digits, CSV with all."""
    values = spread()
    written = write_tables(write_cells(tmp_path, values, 5), make_results(values, 5))
    assert [path.name for path in written] == ["toy.md", "toy.csv", "toy.tex"]
    markdown, latex = (tmp_path / "tables" / f"toy.{end}" for end in ("md", "tex"))
    lines = markdown.read_text().splitlines()
    assert lines[:3] == ["## trial on toy", "", r"Is A\|B better than \<script\>?"]
    assert lines[6:8] == [
        r"|  | NDCG@5 | violation\_rate | blend | features | start | runs | parameters | train s | "
        "s / epoch | peak MiB |",
        f"| --- |{' --: |' * 10}",
    ]
    assert lines[8].startswith(r"| A \& B\_1 | 0.5058 ± 0.0094\*\*<br>\[-0.11")
    assert lines[8].endswith(r"\] | **0.1660 ± 0.0847** | - | - | - | 5 | 1,234 | 12 | 3 | 104 |")
    assert lines[9].startswith(r"| MATCH | **0.6118 ± 0.0220**<br>\[0.60")
    assert lines[11] == "| gone | - | - | - | - | - | 0 | - | - | - | - |"
    text = "\n".join(lines)
    assert "95 % interval over documents of the difference to MATCH, for it the mean" in text
    assert r"No intervals and no stars of violation\_rate: a run keeps no score of each" in text
    assert text.count("Holm") == 1
    assert "| MATCH | 0.6100 (+0.0018) | - |" in text
    assert "- gone: left out. It has no colour." in text
    assert "Epochs of every network: 4." in text
    body = latex.read_text()
    assert r"\toprule" in body
    assert r"A \& B\_1 & 0.5058 $\pm$ 0.0094\textsuperscript{**} & \textbf{0.1660" in body
    assert r" & {\scriptsize [-0.11" in body
    table = pd.read_csv(tmp_path / "tables" / "toy.csv")
    assert table["NDCG@5"].tolist()[:2] == pytest.approx([0.5058, 0.6118])
    assert table["NDCG@5_stars"].tolist()[0] == "**"
    assert (table["NDCG@5_low"] < table["NDCG@5_high"]).tolist() == [True, True, True, False]
    assert table["NDCG@5_p_runs_holm"].notna().tolist() == [True, False, False, False]
    assert table["NDCG@5_p_documents"].tolist()[0] == pytest.approx(1e-4)
    assert table["NDCG@5_p_documents_holm"].tolist()[0] == pytest.approx(2e-4)
    assert table["NDCG@5_difference"].tolist()[1] == pytest.approx(0.0018)
    assert table["violation_rate_p_runs"].notna().tolist() == [True, False, False, False]
    assert table["violation_rate_low"].isna().all()


def test_write_tables_marks_of_better_rows_are_the_same_in_csv(tmp_path: Path) -> None:
    """Plus signs, with nothing before them."""
    values = {"MATCH": spread()["A & B_1"], "better": spread()["MATCH"]}
    write_tables(write_cells(tmp_path, values, 5), make_results(values, 5, expected={}))
    table = pd.read_csv(tmp_path / "tables" / "toy.csv")
    assert table["NDCG@5_stars"].tolist()[1] == "++"


def test_write_tables_missing_measure_is_an_error_and_no_table(tmp_path: Path) -> None:
    results = make_results(measures=["NDCG@5", "violation_rate", "P@1"])
    with pytest.raises(CheckpointError) as caught:
        write_tables(tmp_path, results)
    assert str(caught.value) == (
        "The cell 'c/A & B_1/0' must have the measure 'P@1' on test, but it has ['NDCG@5', "
        "'violation_rate'] there, of the splits ['test']; change 'measures' or 'split', or "
        "evaluate the cell again."
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
        "warning: tables only: A figure needs the package matplotlib, which is not installed; "
        "run: pip install 'match-graph[report]'\n"
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


def test_write_tables_name_the_policy_of_few_labels(tmp_path: Path) -> None:
    """Of at_least_k beside that of the others; of ranks the lowest is the best."""
    ranks = ["at_least_k/P@1", "at_least_k/RankedSum@3"]
    values = {"MATCH": [(0.9, 12.5)], "other": [(0.8, 1234.5)]}
    results = make_results(values, seeds=1, measures=ranks, expected={})
    row = summarize(results, "toy")[0]
    assert [row.measured[name].is_best for name in ranks] == [True, True]
    write_tables(tmp_path, results)
    text = (tmp_path / "tables" / "toy.md").read_text()
    about = (
        "at\\_least\\_k/: means over the documents with at least k labels (policy "
        "'at\\_least\\_k'); RankedSum@k is the rank of the k-th gold label, lower is better."
    )
    assert f"over runs. {about}" in text
    assert describe_policies(["P@1", "at_least_k/P@1", "shared_threshold/F1_micro"]) == (
        "Documents without labels count as 0 (policy 'zero'). at_least_k/: means over the "
        "documents with at least k labels (policy 'at_least_k'). shared_threshold/: at one "
        "threshold of all labels, chosen on valid."
    )


@pytest.mark.parametrize(
    ("twins", "sentence"),
    [
        ({"valid": 3, "test": 1}, "1 of 2 test documents (50.0%) has the words of a training"),
        ({"test": 2}, "2 of 2 test documents (100.0%) have the words of a training document."),
        ({"test": 0}, "0 of 2 test documents have the words of a training document."),
        ({"valid": 1}, None),
        ({}, None),
        (None, None),
    ],
)
def test_write_tables_name_twins_of_training_documents(
    tmp_path: Path, twins: dict[str, int] | None, sentence: str | None
) -> None:
    """Once, of the split that is measured; not in results that do not say."""
    results = make_results()
    record = results.datasets[0].model_copy(update={"twins": twins})
    results = results.model_copy(update={"datasets": [record]})
    write_tables(tmp_path, results)
    for ending in ("md", "tex"):
        text = (tmp_path / "tables" / f"toy.{ending}").read_text().replace("\\", "")
        assert text.count("the words of a training") == (sentence is not None)
        assert sentence is None or sentence in text
    assert describe_dataset_twins(record, "test").startswith(sentence or "")
