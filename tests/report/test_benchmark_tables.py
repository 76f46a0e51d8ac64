"""Tables and figures of a benchmark: what they hold, and that all forms agree."""

import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from report.conftest import VALUES, make_results, spread, write_cells

from match_graph.errors import CheckpointError
from match_graph.io import Reporter
from match_graph.report import summarize, write_tables
from match_graph.report.benchmark_tables import (
    make_csv,
    make_legend,
    tabulate_best,
    tabulate_grid,
    tabulate_rows,
)
from match_graph.report.summary import (
    describe_dataset_twins,
    describe_policies,
)


def test_make_legend_says_what_was_tuned_on() -> None:
    """It says whether the data set is among those, or nothing if none is named."""
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


def test_tabulate_rows_of_a_measure_that_a_data_set_lacks(tmp_path: Path) -> None:
    """The measure is a dash, and the legend says why; the others are as without it."""
    results = make_results(spread(), 5)
    measures = ["NDCG@5", "depth_9/R@5", "violation_rate"]
    experiment = results.experiment.model_copy(update={"measures": measures})
    lacking = results.model_copy(update={"experiment": experiment})
    rows = summarize(lacking, "toy", write_cells(tmp_path, spread(), 5))
    assert [*rows[0].measured] == ["NDCG@5", "violation_rate"]
    assert rows == summarize(results, "toy", tmp_path)
    table = tabulate_rows(rows, measures)
    assert {line[table.columns.index("depth_9/R@5")] for line in table.rows} == {"-"}
    assert make_csv(rows, measures)["depth_9/R@5"].isna().all()
    [record] = results.datasets
    told = "No document or label of this data set counts for depth_9/R@5."
    assert told in make_legend(lacking, record, rows)
    assert not any("counts for" in text for text in make_legend(results, record, rows))


def test_make_legend_says_that_runs_are_of_several_commits() -> None:
    """Number of commits, and of runs without a recorded one; no line where there is one commit."""
    results = make_results()
    [record] = results.datasets
    texts = []
    for names in (
        ["a"] * 9,
        [None] * 9,
        ["a"] * 3 + ["b"] * 6,
        ["a"] * 4 + [None] * 2 + ["b"] * 3,
        ["a"] * 4 + [None] * 5,
    ):
        commits = iter(names)
        cells = [
            cell.model_copy(update={"git": next(commits)}) if cell.status == "done" else cell
            for cell in results.cells
        ]
        found = results.model_copy(update={"cells": cells})
        [*_, last] = make_legend(found, record, summarize(found, "toy"))
        texts.append(last)
    assert not any("commits" in text for text in texts[:2])
    assert texts[2].startswith("Runs are of 2 commits of the code: differences")
    assert texts[3].startswith("Runs are of 2 commits of the code, and 2 of one that is not known:")
    assert texts[4].startswith("Runs are of one commit of the code, and 5 of one that is not known")


def test_write_tables_seeds_of_a_table_are_those_of_its_runs(tmp_path: Path) -> None:
    """Seeds of earlier calls, which are in the means too, are listed."""
    results = make_results()
    experiment = results.experiment.model_copy(update={"runs": 1, "seed": 2})
    write_tables(tmp_path, results.model_copy(update={"experiment": experiment}))
    assert "Seeds 0, 1, 2; 9 runs are finished." in (tmp_path / "tables" / "toy.md").read_text()


def test_write_tables_names_where_its_runs_were_made(tmp_path: Path) -> None:
    """Processor, GPU, torch and commit of the runs, not of the last call; counts if several."""
    results = make_results()
    [first, *others] = results.cells
    first = first.model_copy(
        update={
            "device": {"processor": "x86_64 AVX512", "cuda": "NVIDIA H100", "threads": 1},
            "versions": {"torch": "2.11.0"},
        }
    )
    here = {"device": {"processor": "x86_64", "threads": 1}, "versions": {"torch": "2.13.0"}}
    others = [cell.model_copy(update={**here, "git": "1a2b"}) for cell in others]
    write_tables(tmp_path, results.model_copy(update={"cells": [first, *others]}))
    text = (tmp_path / "tables" / "toy.md").read_text().replace("\\", "")
    assert "processor x86_64 (8), x86_64 AVX512 with NVIDIA H100 (1), torch 2.13.0 (8)," in text
    assert "commit 1a2b (8), unknown (1), data abcdef." in text


def test_write_tables_files_hold_the_same_numbers(tmp_path: Path) -> None:
    """Markdown and LaTeX have 4 digits, CSV all of them."""
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
    assert "95 % interval over documents of the difference to MATCH, or of MATCH's mean" in text
    assert r"No intervals and no stars of violation\_rate: a run keeps no score of each" in text
    assert text.count("Holm") == 1
    assert "| MATCH | 0.6100 (+0.0018) | - |" in text
    assert "- gone: left out. It has no colour." in text
    assert "Epochs of networks that set none: 4." in text
    body = latex.read_text()
    assert r"\toprule" in body
    assert r"A \& B\_1 & 0.5058 $\pm$ 0.0094\textsuperscript{**} & \textbf{0.1660" in body
    assert r" & {\scriptsize [-0.11" in body
    table = pd.read_csv(tmp_path / "tables" / "toy.csv")
    assert table["NDCG@5"].tolist()[:2] == pytest.approx([0.5058, 0.6118])
    assert table["NDCG@5_std"].tolist()[:2] == pytest.approx([0.0094, 0.0220], abs=1e-4)
    assert table["NDCG@5_expected"].dropna().tolist() == [0.61]
    costs = ["parameters", "train_seconds", "seconds_per_epoch", "peak_mib"]
    assert table.loc[0, costs].tolist() == [1234, 12, 3, 104]
    assert table["NDCG@5_stars"].tolist()[0] == "**"
    assert (table["NDCG@5_low"] < table["NDCG@5_high"]).tolist() == [False, True, False, False]
    below, above = table["NDCG@5_difference_low"], table["NDCG@5_difference_high"]
    assert (below < above).tolist() == [True, False, True, False]
    assert table["NDCG@5_difference"].between(below, above).tolist() == [True, False, True, False]
    assert table["NDCG@5_p_runs_holm"].notna().tolist() == [True, False, False, False]
    assert table["NDCG@5_p_documents"].tolist()[0] == pytest.approx(1e-4)
    assert table["NDCG@5_p_documents_holm"].tolist()[0] == pytest.approx(2e-4)
    assert table["NDCG@5_over_expected"].tolist()[1] == pytest.approx(0.0018)
    assert table["violation_rate_p_runs"].notna().tolist() == [True, False, False, False]
    assert table["violation_rate_low"].isna().all()


def test_write_tables_marks_of_better_rows_are_the_same_in_csv(tmp_path: Path) -> None:
    """Plus signs are not escaped as formulas; the interval of a difference has them too."""
    values = {"MATCH": spread()["A & B_1"], "better": spread()["MATCH"]}
    write_tables(write_cells(tmp_path, values, 5), make_results(values, 5, expected={}))
    text = (tmp_path / "tables" / "toy.md").read_text().replace("\\", "")
    assert re.search(r"\+\+<br>\[\+0\.\d{4}, \+0\.\d{4}\]", text)
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
    """There are a CSV and a PNG; without matplotlib the CSV alone, and a warning."""
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
    """If all rows are refused, cells are dashes and there is no figure."""
    results = make_results({"MATCH": [], "b": []}, figure="bars", expected={})
    written = write_tables(tmp_path, results)
    assert [path.suffix for path in written] == [".md", ".csv", ".tex"]
    frame = make_csv(summarize(results, "toy"), ["NDCG@5"])
    assert frame["NDCG@5"].isna().all()


def test_tabulate_grid() -> None:
    """The first setting is down, the second across; missing points and measures are left out."""
    points = pd.DataFrame(
        [
            {"row": "a", "x": 0.1, "y": 1, "measure": "P@1", "mean": 0.5},
            {"row": "b", "x": 0.1, "y": 2, "measure": "P@1", "mean": 0.75},
            {"row": "c", "x": 0.2, "y": 1, "measure": "P@1", "mean": 0.25},
        ]
    )
    [table] = tabulate_grid(points, ["x", "y"], ["P@1", "depth_9/R@5"])
    assert table.columns == ["P@1", "y=1", "y=2"]
    assert [list(row) for row in table.rows] == [
        ["x=0.1", "0.5000", "0.7500"],
        ["x=0.2", "0.2500", "-"],
    ]
    assert table.best == {(0, 1), (0, 2)}
    assert not [*tabulate_grid(pd.DataFrame(), ["x", "y"], ["P@1"])]


def test_tabulate_best_lower() -> None:
    """The smallest is marked, as for violations of the hierarchy."""
    table = tabulate_best({"a": {"x": 0.5}, "b": {"x": 0.25}}, ["x"], "", lower_is_better=True)
    assert table.best == {(1, 1)}


def test_write_tables_name_the_policy_of_few_labels(tmp_path: Path) -> None:
    """That of at_least_k stands beside that of other measures; the lowest rank is best."""
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
    """They are named once, for the measured split, unless results do not count them."""
    results = make_results()
    record = results.datasets[0].model_copy(update={"twins": twins})
    results = results.model_copy(update={"datasets": [record]})
    write_tables(tmp_path, results)
    for ending in ("md", "tex"):
        text = (tmp_path / "tables" / f"toy.{ending}").read_text().replace("\\", "")
        assert text.count("the words of a training") == (sentence is not None)
        assert sentence is None or sentence in text
    assert describe_dataset_twins(record, "test").startswith(sentence or "")
