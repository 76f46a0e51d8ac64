"""Summaries of rows: means, deviations, tests, intervals and differences by hand."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report.conftest import VALUES, make_results, spread, write_cells
from scipy import stats

from match_graph.benchmark import (
    read_results,
)
from match_graph.benchmark.results import Cell
from match_graph.metrics import Comparison
from match_graph.report import summarize
from match_graph.report.benchmark_tables import (
    make_csv,
    tabulate_rows,
)
from match_graph.report.summary import (
    RowSummary,
    Value,
    collect_notes,
    publish,
)


def test_publish_keeps_tests_without_run_folders(tmp_path: Path) -> None:
    """Means, intervals, stars and notes stay the same, also when read from a file."""
    results, folder = make_results(spread(), 5), write_cells(tmp_path, spread(), 5)
    record = results.datasets[0].model_copy(update={"source": "../of/somebody/toy/"})
    cells = [one.model_copy(update={"config": {"dataset": "/home/toy"}}) for one in results.cells]
    results = results.model_copy(update={"datasets": [record], "cells": cells})
    publish(results, folder, tmp_path)
    text = (tmp_path / "results.json").read_text()
    assert "home" not in text
    assert "somebody" not in text
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


def test_publish_shortens_paths_in_reasons_of_failures(tmp_path: Path) -> None:
    """Absolute paths in the reason of a failed cell become their last part."""
    results, folder = make_results(spread(), 5), write_cells(tmp_path, spread(), 5)
    reason = "'/home/me/my runs/cells/x' must be P@1/P@5 (see /home/me/log.txt); 3/4 is 75 %."
    failed = {"status": "failed", "metrics": {}, "reason": reason}
    cells = [results.cells[0].model_copy(update=failed), *results.cells[1:]]
    publish(results.model_copy(update={"cells": cells}), folder, tmp_path)
    [cell] = [one for one in read_results(tmp_path).cells if one.status == "failed"]
    assert cell.reason == "'x' must be P@1/P@5 (see log.txt); 3/4 is 75 %."


def test_summarize_row_by_hand(tmp_path: Path) -> None:
    """Mean, deviation with n - 1, both tests, best and direction of stars are as by hand."""
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
    """The lower rate of violations is better; ++ is significantly better than the reference."""
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
    """There are none however clear the difference is."""
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
    """Every row has the interval of its mean, and nothing is tested."""
    rows = summarize(make_results(reference=None), "toy", write_cells(tmp_path))
    for row in rows[:3]:
        value = row.measured["NDCG@5"]
        assert (value.runs, value.documents, value.stars) == (None, None, "")
        assert value.interval[0] < value.mean < value.interval[1]
        assert row.notes == ()


def test_summarize_what_cannot_be_compared_is_told_once(tmp_path: Path) -> None:
    """Notes tell of moved cells, other documents, and a reference without scores."""
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
    """A failed run leaves two pairs of seeds; no common seed leaves none."""
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


def test_summarize_says_where_a_network_has_no_share() -> None:
    """A note says that the row's scores are the linear classifier's alone."""
    results = make_results()
    shares = {0: 0.0, 1: 0.4, 2: 0.0}
    cells = [
        cell.model_copy(update={"network_share": shares.get(cell.seed)})
        if cell.row == "MATCH"
        else cell
        for cell in results.cells
    ]
    rows = summarize(results.model_copy(update={"cells": cells}), "toy")
    note = (
        "the network's share of its blend is 0 with seeds 0, 2: there the linear classifier is "
        "measured by itself."
    )
    assert [row.name for row in rows if note in row.notes] == ["MATCH"]
    assert not any("share" in note for row in summarize(results, "toy") for note in row.notes)


def test_summarize_costs_are_of_one_device() -> None:
    """Seconds and memory are those of runs on the most common device; notes name other runs."""
    results = make_results()
    gpu = {("A & B_1", 1), ("A & B_1", 2), ("same", 0), ("same", 1), ("same", 2)}

    def move(cell: Cell) -> Cell:
        seconds = {**cell.seconds, "train": 9.0 + cell.seed}  # and 1 of the blend
        device = {"processor": "x86_64"}
        if (cell.row, cell.seed) not in gpu:
            return cell.model_copy(update={"device": device, "seconds": seconds})
        update = {"device": {**device, "cuda": "Tensor 9"}, "seconds_per_epoch": 0.1}
        peak = {"host": 9_000.0, "cuda": 8_000.0}
        return cell.model_copy(update={**update, "seconds": seconds, "peak_mib": peak})

    def find(cells: list[Cell]) -> dict[str, RowSummary]:
        rows = summarize(results.model_copy(update={"cells": cells}), "toy")
        return {row.name: row for row in rows}

    tail = "their seconds and memory are left out, those of the table are of"
    cells = [move(cell) for cell in results.cells if cell.status == "done"]
    rows = find([cell for cell in cells if (cell.row, cell.seed) != ("same", 2)])
    mixed, other = rows["A & B_1"], rows["same"]  # four of eight runs on either: the first counts
    assert (mixed.train_seconds, mixed.seconds_per_epoch) == (10.0, 1.0)
    assert mixed.peak_mib == results.find_cells("toy", "A & B_1")[0].peak_mib["host"]
    assert f"seeds 1, 2 ran on Tensor 9: {tail} CPU." in mixed.notes
    assert (other.train_seconds, other.seconds_per_epoch, other.peak_mib) == (None, None, None)
    assert other.runs == 2  # and count in the measures
    assert not any("ran on" in note for note in rows["MATCH"].notes)
    rows = find(cells)  # five of nine are on the GPU
    assert (rows["same"].train_seconds, rows["same"].peak_mib) == (11.0, 8_000.0)
    assert f"seeds 0, 1, 2 ran on CPU: {tail} Tensor 9." in rows["MATCH"].notes
    threads = {"processor": "x86_64", "threads": 8}
    cells = [cell.model_copy(update={"device": threads}) for cell in cells if cell.row != "MATCH"]
    notes = find([*cells, *(move(cell) for cell in results.find_cells("toy", "MATCH"))])["MATCH"]
    assert f"seeds 0, 1, 2 ran on CPU: {tail} CPU with 8 threads." in notes.notes


def test_summarize_costs_leave_out_resumed_runs() -> None:
    """The seconds of a killed stage are lost; the memory of all of its runs counts."""
    results = make_results()
    cells = [
        cell.model_copy(update={"resumed": True, "seconds_per_epoch": None})
        if (cell.row, cell.seed) == ("MATCH", 2)
        else cell
        for cell in results.cells
    ]
    rows = summarize(results.model_copy(update={"cells": cells}), "toy")
    [row] = [row for row in rows if row.name == "MATCH"]
    assert (row.train_seconds, row.seconds_per_epoch, row.peak_mib) == (6.0, 1.5, 102.0)
    assert row.runs == 3


def test_summarize_names_cells_that_wait(tmp_path: Path) -> None:
    """A note has their seeds; what is published leaves them out."""
    results, folder = make_results(), write_cells(tmp_path)
    waiting = {"status": "waiting", "metrics": {}, "history": [], "seconds": {}, "peak_mib": {}}
    cells = [
        cell.model_copy(update=waiting) if (cell.row, cell.seed) == ("MATCH", 2) else cell
        for cell in results.cells
    ]
    results = results.model_copy(update={"cells": cells})
    assert "MATCH: seed 2: not finished." in collect_notes(summarize(results, "toy"))
    publish(results, folder, tmp_path)
    found = read_results(tmp_path).cells
    assert len(found) == len(cells) - 1
    assert {cell.status for cell in found} == {"done", "refused"}


def test_summarize_model_columns_are_read_from_resolved_settings() -> None:
    """A network has blend, features and initialization; a baseline features alone."""
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
    table = make_csv(rows, results.experiment.measures)[["blend", "features", "start"]]
    assert table.iloc[1].tolist() == [False, "document, label", "random"]
    network["model"]["blend"] = "tree"
    rows = summarize(results.model_copy(update={"cells": cells}), "toy")
    assert tabulate_rows(rows, results.experiment.measures).rows[1][3] == "tree"
