"""The page of a run: its sections and numbers, what is said where something is missing."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from match_graph import Run
from match_graph.errors import CheckpointError, CorpusError
from match_graph.io.files import remove_files, write_json
from match_graph.io.manifest import write_manifest
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import HISTORY, METRICS, RECORD, RELIABILITY
from match_graph.report.charts import BarChart, LineChart
from match_graph.report.page import Case, Note, Page, render_page
from match_graph.report.page_parts import CaseOptions
from match_graph.report.run_page import _group_slices, draw_columns, make_run_page
from match_graph.report.tables import Table
from match_graph.runs.measures import ABOUT_POLICY
from match_graph.runs.readers import read_record
from match_graph.runs.record import describe_twins


@pytest.fixture(scope="module")
def page(trained_run: Run, baseline_run: Run) -> Page:
    root = Path(trained_run.dataset.root)
    return make_run_page(trained_run.folder, CaseOptions((), 2, [baseline_run.folder], root, "cpu"))


@pytest.fixture
def copied(trained_run: Run, tmp_path: Path) -> Path:
    """Copy of a run folder, to be damaged."""
    return Path(shutil.copytree(trained_run.folder, tmp_path / "run"))


def make(folder: Path, run: Run, *documents: str, number: int = 0) -> Page:
    return make_run_page(
        folder, CaseOptions(documents, number, root=Path(run.dataset.root), device="cpu")
    )


TITLES = [
    "Measures", "Training", "Slices of the labels", "Calibration", "Case studies",
    "How it was made",
]  # fmt: skip


def test_make_run_page_numbers_are_those_of_the_run(page: Page, trained_run: Run) -> None:
    """Headlines and table are from metrics.json, with the label prior below."""
    metrics = trained_run.read_metrics()
    assert page.title == "synthetic: match, seed 0"
    assert [section.title for section in page.sections] == TITLES
    shown = {one.name: one.value for one in page.headlines}
    assert shown["P@1, test"] == f"{metrics['test']['P@1']:.4f}"
    [table] = page.sections[0].blocks
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["valid", "test", "test, label prior"]
    column = table.columns.index("NDCG@5")
    expected = [metrics["valid"], metrics["test"], trained_run.prior("test")]
    assert [row[column] for row in table.rows] == [f"{values['NDCG@5']:.4f}" for values in expected]
    assert table.rows[0][table.columns.index("F1_micro")] == "-"
    assert page.sections[0].about.startswith(ABOUT_POLICY)
    for split, twins in read_record(trained_run.folder)["twins"].items():
        assert describe_twins(split, twins["documents"], twins["of"]) in page.sections[0].about


def test_make_run_page_without_count_of_twins(copied: Path, trained_run: Run) -> None:
    record = read_record(copied)
    del record["twins"]
    write_json(copied / RECORD, record)
    write_manifest(copied)
    assert "training document" not in make(copied, trained_run).sections[0].about


def test_make_run_page_figures_are_those_of_its_files(page: Page, trained_run: Run) -> None:
    """Curves are from history.csv, slices from metrics.json, reliability from its CSV."""
    history = pd.read_csv(trained_run.folder / HISTORY)
    loss = page.sections[1].blocks[0]
    assert isinstance(loss, LineChart)
    assert loss.series[0].y == history["loss"].tolist()
    alone = "of the network alone, before its blend, calibration and coherent output"
    assert alone in page.sections[1].about  # its best NDCG@5 is not the one on valid above
    values = trained_run.read_metrics()["test"]
    slices = {
        block.title: block for block in page.sections[2].blocks if isinstance(block, BarChart)
    }
    assert list(slices)[:2] == ["R@5 by frequency", "R@5 by depth"]
    for bar in slices["R@5 by depth"].bars:
        assert bar.value == pytest.approx(values[f"{bar.name.replace(' ', '_')}/R@5"])
    [diagram] = page.sections[3].blocks
    assert isinstance(diagram, LineChart)
    bins = pd.read_csv(trained_run.folder / RELIABILITY)
    test = bins[(bins["split"] == "test") & (bins["labels"] == "ranked") & (bins["pairs"] > 0)]
    assert diagram.series[0].x == test["probability"].tolist()
    assert [
        int(row[2].replace(",", "")) for row in diagram.data.rows if row[0] == "5 best labels"
    ] == (test["pairs"].tolist())
    weights = test["pairs"] / test["pairs"].sum()
    error = ((test["gold"] - test["probability"]).abs() * weights).sum()
    assert error == pytest.approx(values["ECE@5"])


def test_make_run_page_case_studies_compare_the_variants(page: Page) -> None:
    """Both runs are shown on two sampled test documents, each with its label figure."""
    cases = page.sections[4].blocks
    assert len(cases) == 2
    for case in cases:
        assert isinstance(case, Case)
        assert case.study.split == "test"
        assert [one.encoder for one in case.study.variants] == ["match", "tfidf_linear"]
        assert [rows.variant for rows in case.rows] == case.study.variants


def test_make_run_page_case_studies_of_its_split(copied: Path, trained_run: Run) -> None:
    """A run whose test documents were not read shows none of them."""
    metrics = json.loads((copied / METRICS).read_text())
    write_json(copied / METRICS, {"valid": metrics["valid"]})
    [case] = make(copied, trained_run, number=1).sections[4].blocks
    assert isinstance(case, Case)
    assert case.study.split == "valid"


def test_make_run_page_same_run_gives_the_same_page(
    page: Page, trained_run: Run, baseline_run: Run
) -> None:
    """It is equal byte by byte, as it has no time of its own."""
    root = Path(trained_run.dataset.root)
    again = make_run_page(
        trained_run.folder, CaseOptions((), 2, [baseline_run.folder], root, "cpu")
    )
    assert render_page(again) == render_page(page)


def test_make_run_page_named_documents_take_place_of_drawn_ones(trained_run: Run) -> None:
    """They keep their order; if none is studied, the page has no text of the data set."""
    names = trained_run.dataset.names("document")[[395, 391]].tolist()
    cases = make(trained_run.folder, trained_run, *names, number=3).sections[4].blocks
    assert [case.study.document for case in cases if isinstance(case, Case)] == names
    assert not make(trained_run.folder, trained_run).sections[4].blocks
    with pytest.raises(CorpusError):
        make(trained_run.folder, trained_run, "nobody")


def test_make_run_page_what_is_missing_is_said(copied: Path, trained_run: Run) -> None:
    """A baseline or an older run may have no history, bins or slices."""
    remove_files(copied / HISTORY, copied / RELIABILITY)
    values = json.loads((copied / METRICS).read_text())
    flat = {
        split: {k: v for k, v in found.items() if "/" not in k} for split, found in values.items()
    }
    write_json(copied / METRICS, flat)
    sections = make(copied, trained_run).sections
    notes = [
        line
        for section in sections
        for block in section.blocks
        if isinstance(block, Note)
        for line in block.lines
    ]
    assert notes == [
        "There is no history: nothing was trained by epochs.",
        "There are no slices: they are measured on test documents.",
        f"There is no {RELIABILITY}; `match-graph evaluate {copied}` writes it.",
    ]


def test_make_run_page_without_the_data_the_rest_is_there(copied: Path, tmp_path: Path) -> None:
    """Only case studies and the label prior need the data set."""
    config = (copied / "config.yaml").read_text()
    (copied / "config.yaml").write_text(config.replace("dataset: synthetic", "dataset: /nowhere"))
    write_manifest(copied)
    warned: list[str] = []

    class Listener(Reporter):
        def warn(self, message: str) -> None:
            warned.append(message)

        def track(self, *_: object) -> None:
            raise AssertionError

    options = CaseOptions(root=tmp_path, device="cpu", reporter=Listener())
    page = make_run_page(copied, options)
    [table] = page.sections[0].blocks
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["valid", "test"]
    [note] = page.sections[4].blocks
    assert isinstance(note, Note)
    assert note.lines[0].startswith("There are none: ")
    assert warned == [note.lines[0].replace("There are none", "The report has no case studies")]
    with pytest.raises(CorpusError):
        make_run_page(copied, CaseOptions(["d1"], root=tmp_path, device="cpu"))


def test_make_run_page_run_that_was_not_evaluated_is_refused(copied: Path) -> None:
    """The error has the command that evaluates it."""
    remove_files(copied / METRICS)
    with pytest.raises(CheckpointError) as caught:
        make_run_page(copied)
    assert str(caught.value) == (
        f"A report needs the measures of an evaluated run, but '{copied}' has no metrics.json; go "
        f"on with `match-graph evaluate {copied}`."
    )


def test_draw_columns_that_are_not_finite_are_left_out() -> None:
    """An infinite loss leaves a gap; a column without a finite value has no line."""
    table = pd.DataFrame(
        {"epoch": [1, 2], "loss": [1.0, float("inf")], "other": [float("nan")] * 2}
    )
    [series] = draw_columns(table, ["loss", "other", "absent"])
    assert (series.name, series.x, series.y) == ("loss", [1], [1.0])


def test_group_slices_go_from_head_to_tail_and_roots_down() -> None:
    """Depth 10 is below depth 2; a group without slices is left out."""
    found = dict.fromkeys(("depth_10", "tail", "depth_2", "head"), 0.5)
    assert _group_slices(found) == {
        "by frequency": ["head", "tail"], "by depth": ["depth_2", "depth_10"]
    }  # fmt: skip
    assert _group_slices({"torso": 0.5}) == {"by frequency": ["torso"]}
