"""The page of a benchmark: its numbers by hand, stars, figures, and what is said of what is not."""

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from match_graph import Run, load_config, start_run
from match_graph.benchmark import write_results
from match_graph.errors import CheckpointError, ConfigError, CorpusError
from match_graph.io.run_folder import RELIABILITY
from match_graph.report.benchmark_page import choose_main_measures, make_benchmark_page
from match_graph.report.charts import BarChart, LineChart
from match_graph.report.page import Block, Case, Code, Note, Page, render_page
from match_graph.report.page_parts import CaseOptions
from match_graph.report.tables import Table
from match_graph.testing import write_match_folder


def make(folder: Path, run: Run, number: int = 1, documents: tuple[str, ...] = ()) -> Page:
    options = CaseOptions(documents, number, root=Path(run.dataset.root), device="cpu")
    return make_benchmark_page(folder, options)


@pytest.fixture(scope="module")
def page(benchmark_folder: Path, trained_run: Run) -> Page:
    return make(benchmark_folder, trained_run)


def find_blocks(page: Page, title: str) -> list[Block]:
    [section] = [section for section in page.sections if section.title == title]
    return list(section.blocks)


def test_make_benchmark_page_table_by_hand(page: Page) -> None:
    """Means, deviations, intervals, the best and notes are as by hand; two seeds have no stars."""
    [section] = [section for section in page.sections if section.title == "Results"]
    twins = "4 of 40 test documents (10.0%) have the words of a training document."
    assert section.about.count(twins) == 1
    table, expected, notes = section.blocks
    assert isinstance(table, Table)
    assert table.columns[:8] == [
        "", "P@1", "NDCG@5", "violation_rate", "blend", "features", "start", "runs",
    ]  # fmt: skip
    assert [[*row[:4], row[7]] for row in table.rows] == [
        ["TF-IDF", "0.5100 ± 0.0141", "0.4050 ± 0.0071", "0.2500 ± 0.0707", "2"],
        ["MATCH <b>", "0.6100 ± 0.0141", "0.5600 ± 0.0141", "0.1500 ± 0.0707", "2"],
        ["BertXML", "0.5900 ± 0.0141", "0.5700 ± 0.0141", "0.3500 ± 0.0707", "2"],
        ["LM", "-", "-", "-", "0"],
    ]
    assert table.best == {(1, 1), (2, 2), (1, 3)}
    assert table.stars == {}
    places = {(row, column) for row in range(3) for column in (1, 2)}
    assert set(table.below) == places  # no score of each document for violations
    signs = [not {*table.below[row, 1]}.isdisjoint("+-") for row in range(3)]
    assert signs == [True, False, True]  # differences to the reference, and its own mean
    assert isinstance(expected, Table)
    assert expected.caption == "What is published, and in brackets the difference of ours"
    assert list(expected.rows[0]) == ["MATCH <b>", "0.6000 (+0.0100)", "0.5000 (+0.0600)", "-"]
    assert isinstance(notes, Note)
    assert "LM: left out. It has no <i>checkpoint</i>." in notes.lines
    assert notes.lines[0] == (
        "TF-IDF, BertXML: no test over runs and no stars: it needs 5 common seeds and has 2."
    )
    [about] = [section.about for section in page.sections if section.title == "Results"]
    assert "In brackets the 95 % interval over documents" in about


@pytest.mark.parametrize(
    ("measures", "expected"),
    [
        (["P@1", "NDCG@5", "PSP@5", "violation_rate"], ["P@1", "NDCG@5"]),
        (["P@1", "violation_size"], ["P@1"]),
        (["PSP@1", "tail/R@5", "ECE"], ["PSP@1", "tail/R@5"]),
        (["violation_rate"], ["violation_rate"]),
    ],
)
def test_choose_main_measures(measures: list[str], expected: list[str]) -> None:
    """They are the first and last measure to be maximized, P@k and NDCG@k before others."""
    assert choose_main_measures(measures) == expected


def test_make_benchmark_page_headlines_name_the_best_row(page: Page) -> None:
    """There is one for each main measure."""
    shown = [(one.name, one.value, one.about) for one in page.headlines]
    assert shown == [
        ("best P@1, synthetic", "0.6100", "MATCH <b>"),
        ("best NDCG@5, synthetic", "0.5700", "BertXML"),
        ("runs finished", "6 of 8", ""),
    ]


def test_make_benchmark_page_figures(page: Page, trained_run: Run) -> None:
    """There are bars of measures, curves over epochs, slices and a reliability diagram."""
    bars = find_blocks(page, "Rows side by side")
    assert [(block.title, block.about) for block in bars if isinstance(block, BarChart)] == [
        ("P@1", "fraction"), ("NDCG@5", "fraction"),
        ("violation_rate", "fraction, less is better"),
    ]  # fmt: skip
    assert isinstance(bars[0], BarChart)
    assert [(bar.name, bar.value, bar.spread) for bar in bars[0].bars] == [
        ("TF-IDF", pytest.approx(0.51), pytest.approx(2**0.5 / 100)),
        ("MATCH <b>", pytest.approx(0.61), pytest.approx(2**0.5 / 100)),
        ("BertXML", pytest.approx(0.59), pytest.approx(2**0.5 / 100)),
    ]
    loss, valid = find_blocks(page, "Training")
    assert isinstance(loss, LineChart)
    assert isinstance(valid, LineChart)
    assert [one.name for one in loss.series] == ["MATCH <b>", "BertXML"]
    assert (loss.series[0].x, loss.series[0].y) == ([1, 2], [4.5, 2.5])
    assert loss.series[0].spread == pytest.approx([0.5**0.5] * 2)
    assert valid.series[0].y == [0.25, 0.5]
    [about] = [section.about for section in page.sections if section.title == "Training"]
    assert "of the network alone, before its blend, calibration and coherent output" in about
    [slices] = find_blocks(page, "Slices of the labels")
    assert isinstance(slices, Table)
    assert slices.columns == ["R@5", "head", "depth 0"]
    assert [list(row) for row in slices.rows] == [
        ["TF-IDF", "0.5500", "0.1500"], ["MATCH <b>", "0.8000", "0.4000"],
        ["BertXML", "0.8000", "0.3000"], ["LM", "-", "-"],
    ]  # fmt: skip
    [diagram] = find_blocks(page, "Calibration")
    assert isinstance(diagram, LineChart)
    assert [one.name for one in diagram.series] == ["TF-IDF", "MATCH <b>", "BertXML"]
    bins = pd.read_csv(trained_run.folder / RELIABILITY).dropna()
    mine = bins[(bins["split"] == "test") & (bins["labels"] == "ranked")]
    assert diagram.series[1].y == mine["gold"].tolist()


def test_make_benchmark_page_figure_of_violations_alone(
    benchmark_results, tmp_path: Path, trained_run: Run
) -> None:
    """A benchmark that measures violations alone has one chart of them, not two."""
    results = benchmark_results(tmp_path)
    changes = {"measures": ["violation_rate"], "expected": {}}
    experiment = results.experiment.model_copy(update=changes)
    cells = [
        one.model_copy(
            update={"history": [{"epoch": 1, "violation_rate": 0.5}] if one.history else []}
        )
        for one in results.cells
    ]
    write_results(tmp_path, results.model_copy(update={"experiment": experiment, "cells": cells}))
    page = make(tmp_path, trained_run, number=0)
    assert [one.title for one in find_blocks(page, "Rows side by side")] == ["violation_rate"]
    assert [one.title for one in find_blocks(page, "Training")] == ["Violations of the hierarchy"]


def test_make_benchmark_page_case_studies_compare_the_rows(
    page: Page, benchmark_folder: Path, trained_run: Run
) -> None:
    """The reference comes first, then other rows in order, by their names."""
    [case] = find_blocks(page, "Case studies")
    assert isinstance(case, Case)
    assert [one.run for one in case.study.variants] == ["MATCH <b>", "TF-IDF", "BertXML"]
    [about] = [section.about for section in page.sections if section.title == "Case studies"]
    assert about.startswith(
        "Shown: MATCH <b>, TF-IDF, BertXML; 3 of 3 rows with a finished run, each by its first "
        "seed. The documents are drawn at random from test. `match-graph report` takes other rows "
        "by --row NAME and other documents by --document ID, both repeatable. What carried each"
    )
    assert not find_blocks(make(benchmark_folder, trained_run, number=0), "Case studies")
    with pytest.raises(CorpusError) as caught:
        make(benchmark_folder, trained_run, documents=("nobody",))
    assert str(caught.value) == (
        "A document must be in a data set of the benchmark that has a finished run, found 'nobody' "
        "in none of ['synthetic']; look at the ids."
    )


def test_make_benchmark_page_case_studies_of_chosen_rows(
    benchmark_folder: Path, trained_run: Run
) -> None:
    """Named rows are compared in the given order, each once; unknown ones are an error."""
    options = CaseOptions((), 1, root=Path(trained_run.dataset.root), device="cpu")
    chosen = replace(options, rows=["BertXML", "TF-IDF", "BertXML"])
    page = make_benchmark_page(benchmark_folder, chosen)
    [case] = find_blocks(page, "Case studies")
    assert isinstance(case, Case)
    assert [one.run for one in case.study.variants] == ["BertXML", "TF-IDF"]
    assert any("Shown: BertXML, TF-IDF; 2 of 3 rows" in one.about for one in page.sections)
    must = "A row of case studies must be one of the benchmark with a finished run, found "
    for name, hint in (
        ("BertXLM", "'BertXLM'; the nearest is 'BertXML'."),
        ("LM", "'LM'; choose from ['TF-IDF', 'MATCH <b>', 'BertXML']."),
    ):
        with pytest.raises(ConfigError) as caught:
            make_benchmark_page(benchmark_folder, replace(options, rows=[name]))
        assert str(caught.value) == must + hint


def test_make_benchmark_page_case_studies_of_its_split(
    benchmark_results, tmp_path: Path, trained_run: Run
) -> None:
    """A benchmark that is measured on valid shows no test document with its labels."""
    results = benchmark_results(tmp_path)
    cells = [
        one.model_copy(update={"metrics": {"valid": one.metrics["test"]}}) if one.metrics else one
        for one in results.cells
    ]
    experiment = results.experiment.model_copy(update={"split": "valid"})
    update = {"cells": cells, "experiment": experiment}
    write_results(tmp_path, results.model_copy(update=update))
    page = make(tmp_path, trained_run, number=2)
    cases = find_blocks(page, "Case studies")
    assert [case.study.split for case in cases if isinstance(case, Case)] == ["valid", "valid"]
    assert any(
        "The documents are drawn at random from valid." in one.about for one in page.sections
    )


def test_make_benchmark_page_document_in_any_data_set(
    benchmark_results, tmp_path: Path, trained_run: Run
) -> None:
    """A named document is studied in its data set; the other one has no case study."""
    toy, root = write_match_folder(tmp_path / "toy"), Path(trained_run.dataset.root)
    config = load_config(settings=["model.encoder=prior"])
    run = start_run(str(toy), config, tmp_path / "prior", root)
    run.train()
    results = benchmark_results(tmp_path)
    (record,), first = results.datasets, results.cells[0]
    other = record.model_copy(update={"name": "toy"})
    cell = first.model_copy(update={"dataset": "toy", "folder": "prior"})
    both = {"datasets": [other, record], "cells": [cell, *results.cells]}
    write_results(tmp_path, results.model_copy(update=both))
    document = str(trained_run.dataset.names("document")[0])
    page = make(tmp_path, trained_run, documents=(document,))
    assert not find_blocks(page, "toy: Case studies")
    [case] = find_blocks(page, "synthetic: Case studies")
    assert isinstance(case, Case)
    assert case.study.document == document


def test_make_benchmark_page_how_it_was_made(page: Page) -> None:
    """It lists machine, data sets, runs with their status, and the experiment."""
    machine, datasets, cells, experiment = find_blocks(page, "How it was made")
    assert isinstance(machine, Table)
    assert ["cores", "2"] in [list(row) for row in machine.rows]
    assert isinstance(datasets, Table)
    assert list(datasets.rows[0][:2]) == ["synthetic", "360"]
    assert isinstance(cells, Table)
    assert list(cells.rows[0]) == [
        "TF-IDF", "synthetic", "0", "done", "2 min", "2", "500", "-",
    ]  # fmt: skip
    assert cells.rows[-1][-1] == "It has no <i>checkpoint</i>."
    assert isinstance(experiment, Code)
    assert "question: Is <script> better?" in experiment.text


def test_make_benchmark_page_same_results_give_the_same_page(
    page: Page, benchmark_folder: Path, trained_run: Run
) -> None:
    """The HTML is equal byte by byte."""
    assert render_page(make(benchmark_folder, trained_run)) == render_page(page)


def test_make_benchmark_page_without_the_cells_the_rest_is_there(
    benchmark_results, tmp_path: Path, trained_run: Run
) -> None:
    """So it is for moved results, and for a benchmark that has not begun."""
    results = benchmark_results(tmp_path)
    gone = [cell.model_copy(update={"folder": "gone"}) for cell in results.cells]
    write_results(tmp_path, results.model_copy(update={"cells": gone}))
    page = make(tmp_path, trained_run)
    assert not find_blocks(page, "Calibration")
    [note] = find_blocks(page, "Case studies")
    assert isinstance(note, Note)
    assert note.lines[0].startswith("There are none: A run must be a folder that match-graph wrote")
    waiting = [
        cell.model_copy(update={"status": "waiting", "metrics": {}, "history": []})
        for cell in results.cells
    ]
    write_results(tmp_path, results.model_copy(update={"cells": waiting}))
    page = make(tmp_path, trained_run)
    assert [one.value for one in page.headlines] == ["0 of 8"]
    assert "seeds 0, 1: not finished." in render_page(page)
    shutil.rmtree(tmp_path)
    with pytest.raises(CheckpointError):
        make(tmp_path, trained_run)


def test_make_benchmark_page_several_data_sets_are_told_apart(
    benchmark_results, tmp_path: Path, trained_run: Run
) -> None:
    """Titles of sections begin with the name of the data set."""
    results = benchmark_results(tmp_path)
    other = results.datasets[0].model_copy(update={"name": "other"})
    cells = [cell.model_copy(update={"dataset": "other"}) for cell in results.cells]
    both = {"datasets": [*results.datasets, other], "cells": [*results.cells, *cells]}
    write_results(tmp_path, results.model_copy(update=both))
    titles = [section.title for section in make(tmp_path, trained_run, number=0).sections]
    assert titles[0] == "synthetic: Results"
    assert titles[6] == "other: Results"
    assert titles[-1] == "How it was made"
