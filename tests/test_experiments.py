"""Experiments as data: every file is valid, complete, and runs to its end on a tiny corpus."""

import json
import re
import runpy
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer import BadParameter

from match_graph.baselines import BASELINES
from match_graph.benchmark import (
    Experiment,
    Results,
    load_experiment,
    read_results,
    run_benchmark,
    write_results,
)
from match_graph.benchmark.row_search import check_spaces
from match_graph.config import Config
from match_graph.datasets import Custom, OaXmlc, Synthetic, open_dataset
from match_graph.errors import MatchGraphError
from match_graph.graph import describe_graph
from match_graph.nn import ENCODERS
from match_graph.report import write_tables
from match_graph.runs.configure import load_preset_config
from match_graph.testing import write_match_folder, write_release_folder
from match_graph.training.models import find_model
from match_graph.typing import CONTAINS, LABEL, MASKS

FOLDER = Path(__file__).resolve().parents[1] / "experiments"
PATHS = sorted(FOLDER.glob("*.yaml"))
#: So that a cell takes a fraction of a second.
TINY = [
    "pretrain.samples=1000", "pretrain.channels=20", "model.channels=20", "train.epochs=1",
    "train.batch_size=16", "train.accelerator=cpu", "train.precision=32-true",
    "model.blend=false",
]  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, and no steps measured for an estimate."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("match_graph.benchmark.runner.probe_cells", lambda *_: {})


def run(experiment: Experiment, folder: Path) -> Results:
    """To its end; the rows that were left out or failed are known ones."""
    results = run_benchmark(experiment, folder / "out", folder / "root")
    for cell in results.cells:
        assert cell.status == ("failed" if cell.row == "language model" else "done"), cell.reason
    return results


def test_the_folder_holds_data_only() -> None:
    """But for the scripts that measure and plan at scale, draw subsets, and write tables."""
    assert {path.stem for path in PATHS} == {
        "comparison", "defaults", "encoders", "features", "hierarchy", "metadata_ablation",
        "metadata_weight", "oaxmlc", "pina", "pretraining", "sizes", "small_corpora", "wide_labels",
    }  # fmt: skip
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    kinds = {path.suffix for path in files if path.suffix != ".py"}
    assert kinds <= {".yaml", ".md", ".csv", ".png", ".json", ".jsonl", ".parquet"}
    scripts = {path.name for path in files if path.suffix == ".py"}
    assert scripts == {
        "measure.py", "plan.py", "plot_sizes.py", "write_planted.py", "write_subsets.py",
        "write_tables.py",
    }  # fmt: skip


def test_write_tables_leaves_nothing_to_write() -> None:
    """README and RESULTS.md hold the figures of the committed results."""
    content = runpy.run_path(str(FOLDER / "tables" / "write_tables.py"))
    for path in content["FILES"]:
        text = path.read_text(encoding="utf-8")
        assert content["fill"](text) == text, f"run {FOLDER}/tables/write_tables.py: {path}"


def test_write_figures_are_those_of_the_results(tmp_path: Path) -> None:
    """Data of heat maps and bars are those of the committed results, and each has its picture."""
    for path in FOLDER.rglob("results.json"):
        (tmp_path / path.parent.relative_to(FOLDER)).mkdir(parents=True, exist_ok=True)
    content = runpy.run_path(str(FOLDER / "tables" / "write_tables.py"))
    content["write_figures"](tmp_path)
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.csv")}
    assert {str(path) for path in written} == {
        "hierarchy/biotools-grid.csv", "hierarchy/cacm-grid.csv", "hierarchy/debtags-grid.csv",
        "metadata_ablation/cacm-bars.csv", "metadata_ablation/paper_batches/biotools-bars.csv",
        "metadata_ablation/paper_batches/debtags-bars.csv",
    }  # fmt: skip
    for path in written:
        assert (FOLDER / path).read_text() == (tmp_path / path).read_text()
        assert (FOLDER / path).with_suffix(".png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "path",
    [
        FOLDER.parent / "README.md",
        FOLDER / "README.md",
        *(path.with_name("RESULTS.md") for path in sorted(FOLDER.glob("*/results.json"))),
    ],
    ids=lambda path: path.parent.name,
)
def test_figures_stand_in_written_tables(path: Path) -> None:
    """Outside of what a command writes from results, no fraction is typed: bounds and settings are.

    These stand in code, with their sign or their key: `≥ .99`, `learning_rate=0.05`.
    """
    text = re.sub(
        r"(<!-- \w+.*?-->\n).*?<!-- end -->", "", path.read_text("utf-8"), flags=re.DOTALL
    )
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", lambda code: code[0] * (not re.search("[a-z≥]", code[0])), text)
    assert re.findall(r"[^\n]*(?<![\w.])0?\.\d{2,}[^\n]*", text) == []


def test_write_tables_takes_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a benchmark, beside the experiment; a table holds the measures that are asked for."""
    toy = write_match_folder(tmp_path / "toy")
    experiment = load_experiment("encoders", [str(toy)], runs=1, settings=TINY)
    rows = [row for row in experiment.rows if row.name in ("TF-IDF + linear", "MATCH")]
    small = experiment.model_copy(update={"rows": rows})
    run_benchmark(small.model_copy(update={"runs": 2}), tmp_path / "out", tmp_path / "root")
    content = runpy.run_path(str(FOLDER / "tables" / "write_tables.py"))
    (tmp_path / "encoders").mkdir()
    monkeypatch.setitem(content["take"].__globals__, "HERE", tmp_path)
    content["take"](tmp_path / "out", "encoders")
    text = "a\n<!-- table: encoders/toy NDCG@5 -->\nold\n<!-- end -->\nb\n"
    filled = content["fill"](text)
    assert filled.startswith(
        "a\n<!-- table: encoders/toy NDCG@5 -->\n\n|  | validation NDCG@5 | NDCG@5 |"
    )
    results = read_results(tmp_path / "out")
    cells = {row: results.find_cells("toy", row) for row in ("TF-IDF + linear", "MATCH")}
    values = {
        row: [cell.metrics["valid"]["NDCG@5"] for cell in found] for row, found in cells.items()
    }
    highest = max(np.mean(found) for found in values.values())
    for row, found in values.items():
        mark = "**" if np.isclose(np.mean(found), highest) else ""
        value = f"{mark}{np.mean(found):.4f} ± {np.std(found, ddof=1):.4f}{mark}"
        assert f"\n| {row} | {value} | " in filled
    tested = np.mean([cell.metrics["test"]["NDCG@5"] for cell in cells["MATCH"]])
    shown = next(line for line in filled.splitlines() if line.startswith("| MATCH |"))
    assert f"{tested:.4f}" in shown.split("|")[3]  # marks, intervals and bold have moved along
    assert ("<br>" in shown.split("|")[2], "<br>" in shown.split("|")[3]) == (False, True)
    assert "old" not in filled
    assert "[" in filled  # intervals over documents
    assert content["fill"](filled) == filled
    published = read_results(tmp_path / "encoders")
    of_valid = published.experiment.model_copy(update={"split": "valid"})
    write_results(tmp_path / "encoders", published.model_copy(update={"experiment": of_valid}))
    assert content["VALIDATION"] not in content["fill"](text)
    write_results(tmp_path / "encoders", published)
    for changed, said in (
        (text.replace("NDCG@5", "R@7"), "found 'R@7' of encoders"),
        (text.replace("/toy", "/tou"), "found 'tou' of encoders; take one of toy"),
        ("<!-- summary: encoders R@7: MATCH -->\n<!-- end -->", "found 'R@7' of encoders"),
    ):
        with pytest.raises(MatchGraphError, match=said):
            content["fill"](changed)
    alone = published.experiment.model_copy(update={"reference": None})
    write_results(tmp_path / "encoders", published.model_copy(update={"experiment": alone}))
    with pytest.raises(MatchGraphError, match="must have one row of reference, found None"):
        content["fill"]("<!-- summary: encoders P@1: MATCH -->\n<!-- end -->")
    [record] = published.datasets
    without = record.rows[0].model_copy(update={"name": "Omikuji"})  # a row that was not run
    record = record.model_copy(update={"rows": [*record.rows, without]})
    write_results(tmp_path / "encoders", published.model_copy(update={"datasets": [record]}))
    text = (
        "<!-- summary: encoders encoders P@1: MATCH | Omikuji | TF-IDF + linear -->\n<!-- end -->\n"
    )
    filled = content["fill"](text)
    assert re.search(
        r"\n\| (\| toy<br>\d+ documents<br>\d+ labels ){2}\|\n\|---\|--:\|--:\|\n", filled
    )
    assert re.search(r"\n\| MATCH (\| \d?\.\d{3}<br>\[\.\d+, \d?\.\d+\] ){2}\|\n", filled)
    assert "\n| Omikuji | - | - |\n" in filled
    assert re.search(
        r"\n\| TF-IDF \+ linear (\| \d?\.\d{3}<br>\[[+-]\d?\.\d+, [+-]\d?\.\d+\] ){2}\|\n", filled
    )


def test_make_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation columns count seeds, test columns have intervals where documents have scores."""
    toy = write_match_folder(tmp_path / "toy")
    experiment = load_experiment("encoders", [str(toy)], runs=2, settings=TINY)
    rows = [row for row in experiment.rows if row.name in ("label prior", "Omikuji", "MATCH")]
    few = experiment.model_copy(update={"rows": rows})
    run_benchmark(few, tmp_path / "out", tmp_path / "root")
    content = runpy.run_path(str(FOLDER / "tables" / "write_tables.py"))
    (tmp_path / "encoders").mkdir()
    monkeypatch.setitem(content["take"].__globals__, "HERE", tmp_path)
    content["take"](tmp_path / "out", "encoders")
    results = read_results(tmp_path / "out")

    def find(row: str, split: str, measure: str) -> np.ndarray:
        cells = results.find_cells("toy", row)
        return np.array([cell.metrics[split][measure] for cell in cells])

    def show(value: float, sign: str = "+") -> str:
        return f"{value:{sign}.4f}".replace("0.", ".")

    for measure, is_worse in (("NDCG@5", np.less), ("violation_rate", np.greater)):
        text = f"<!-- differences: encoders/toy {measure}: label prior | Omikuji -->\n<!-- end -->"
        lines = content["fill"](text).splitlines()
        assert lines[2] == "| | toy,<br>validation | toy,<br>test |"
        shown = {line[2:].split(" | ")[0]: line[2:-2].split(" | ")[1:] for line in lines[4:7]}
        first = [show(find("MATCH", split, measure).mean(), "") for split in ("valid", "test")]
        assert shown["MATCH"] == first
        for row in ("label prior", "Omikuji"):
            for column, split in enumerate(("valid", "test")):
                ours, others = find(row, split, measure), find("MATCH", split, measure)
                cell = shown[row][column]
                assert cell.startswith(show((ours - others).mean()))
                counted = f" ({is_worse(ours, others).sum()} of 2)"
                has_interval = split == "test" and measure == "NDCG@5"
                assert cell.endswith("]") if has_interval else cell.endswith(counted)
    filled = content["fill"](text.replace(": label prior", " less label prior: MATCH"))
    of_base = find("MATCH", "test", measure) - find("label prior", "test", measure)
    [line] = [line for line in filled.splitlines() if line.startswith("| MATCH |")]
    assert line.split(" | ")[2].startswith(f"{show(of_base.mean())} (")
    with pytest.raises(MatchGraphError, match=r"Differences must be of rows of toy, found 'SAGE'"):
        content["fill"](text.replace("Omikuji", "SAGE"))
    summary = text.replace("differences: encoders/toy", "summary: encoders")
    assert "| Omikuji |" in content["fill"](summary)
    with pytest.raises(MatchGraphError, match="A summary must be of rows of encoders, found 'SAG'"):
        content["fill"](summary.replace("Omikuji", "SAG"))
    published = read_results(tmp_path / "encoders")
    cells = [
        cell
        for cell in published.cells
        if (cell.row, cell.seed) not in (("label prior", 0), ("MATCH", 1))
    ]
    write_results(tmp_path / "encoders", published.model_copy(update={"cells": cells}))
    of_seeds = text.replace(measure, "violation_rate")
    [line] = [one for one in content["fill"](of_seeds).splitlines() if "| label prior |" in one]
    assert line == "| label prior | - | - |"  # no seed of both
    cells = [cell for cell in cells if cell.row != "MATCH"]
    write_results(tmp_path / "encoders", published.model_copy(update={"cells": cells}))
    with pytest.raises(MatchGraphError, match="must be to a row that was run, but MATCH on toy"):
        content["fill"](text)


def test_write_tables_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line per row, the best first; pruned trials have no value and are counted."""
    content = runpy.run_path(str(FOLDER / "tables" / "write_tables.py"))
    monkeypatch.setitem(content["make_search"].__globals__, "HERE", tmp_path)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "trials.csv").write_text(
        "row,trial,state,value,pruned_at,model.encoder_config.cost,train.learning_rate\n"
        "linear,0,complete,0.50004,,1.0,\n"
        "linear,1,complete,0.5,,0.25,\n"
        "MATCH,0,complete,0.5,,,0.001\n"
        "MATCH,1,pruned,,0.9,,0.01\n"
        "MATCH,2,complete,0.625,,,0.0004567\n"
    )
    text = "a\n<!-- search: toy -->\n<!-- end -->\nb\n"
    filled = content["fill"](text)
    assert filled == (
        "a\n<!-- search: toy -->\n\n"
        "|  | first trial | best | which | pruned | cost | learning rate |\n"
        "| --- | --: | --: | --: | --: | --: | --: |\n"
        "| MATCH | .5000 | .6250 | 3 of 3 | 1 | - | .00046 |\n"
        "| linear | .5000 | .5000 | 1 of 2 | 0 | 1 | - |\n"
        "\n<!-- end -->\nb\n"
    )
    assert content["fill"](filled) == filled
    (tmp_path / "toy" / "trials.csv").write_text(
        "row,trial,state,value,model.init,model.coherent\n"
        "MATCH,0,fail,,random,True\n"
        "MATCH,1,complete,0.5,spherical,False\n"
    )
    assert "| MATCH | - | .5000 | 2 of 2 | 0 | spherical | False |" in content["fill"](text)
    with pytest.raises(MatchGraphError, match=r"but there is no .*; name a folder with"):
        content["fill"](text.replace("toy", "nowhere"))


def test_write_tables_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates of stages in the order that is asked for, a row each with all of its baselines."""
    shared = {"size": "toy: batches of 2", "device": "cpu, 2 threads", "unit": "documents/s"}
    lines = [
        {
            "stage": "step",
            "rate": 139060.0,
            "baseline": "padded: 10,004.6 documents/s",  # the ratio is rounded, this is not
            "ratio": 13.9,
        },
        {"stage": "predict", "rate": 7.0, "baseline": "one by one: 14 documents/s", "ratio": 0.5},
        {
            "stage": "step",
            "rate": 1390.6,
            "baseline": "ours, slowly: 500 documents/s",
            "ratio": 2.7812,
        },
        {"stage": "step", "rate": 1390.6, "baseline": "sorted: 1e3 documents/s", "ratio": 1.3906},
    ]
    content = runpy.run_path(str(FOLDER / "tables" / "write_tables.py"))
    monkeypatch.setitem(content["make_speed"].__globals__, "HERE", tmp_path)
    (tmp_path / "speed").mkdir()
    (tmp_path / "speed" / "measured.jsonl").write_text(
        "".join(f"{json.dumps(shared | line)}\n" for line in lines)
    )
    text = "a\n<!-- speed: predict step -->\n<!-- end -->\nb\n"
    filled = content["fill"](text)
    assert filled == (
        "a\n<!-- speed: predict step -->\n\n"
        "|  | size | ours | baseline | its rate | times as fast |\n"
        "| --- | --- | --: | --: | --: | --: |\n"
        "| predict | toy: batches of 2 | 7 documents/s | one by one | 14 documents/s | 0.5 |\n"
        "| step | toy: batches of 2 | 139,060 documents/s | padded | 10,005 documents/s | 14 |\n"
        "| step | toy: batches of 2 | 1,391 documents/s | ours, slowly | 500 documents/s | 2.8 |\n"
        "| step | toy: batches of 2 | 1,391 documents/s | sorted | 1,000 documents/s | 1.4 |\n"
        "\n<!-- end -->\nb\n"
    )
    assert content["fill"](filled) == filled
    filled = content["fill"](text.replace("speed: predict step", "speed summary: step"))
    assert "\n| step | 1,391 documents/s | 14 padded; 1.4 sorted |\n\n<!-- end" in filled
    with pytest.raises(MatchGraphError, match=r"found 'sample'; add it with `match-graph speed"):
        content["fill"](text.replace("predict", "sample"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--take", "nowhere"], "--take and --as belong together"),
        (["--take", "nowhere", "--as", "encodrs"], "found 'encodrs'"),
        (["--take", "nowhere", "--as", "encoders"], "'nowhere' must hold the results"),
    ],
)
def test_write_tables_refuses(
    given: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written; the last line is one sentence."""
    monkeypatch.setattr(sys, "argv", ["write_tables.py", *given])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(FOLDER / "tables" / "write_tables.py"), run_name="__main__")
    assert said in f"{caught.value.code}{capsys.readouterr().err}"


@pytest.mark.parametrize(
    ("kind", "wanted", "form"),
    [
        ("table", "encoders NDCG@5", "EXPERIMENT/DATASET MEASURE ..."),
        ("table", " ", "EXPERIMENT/DATASET MEASURE ..."),
        ("differences", "encoders/cacm NDCG@5", "EXPERIMENT/DATASET ... MEASURE: ROW | ROW"),
        ("differences", " less MATCH: bare", "EXPERIMENT/DATASET ... MEASURE: ROW | ROW"),
        ("summary", "NDCG@5: MATCH", "EXPERIMENT ... MEASURE: ROW | ROW"),
        ("search", " ", "EXPERIMENT/SEARCH"),
        ("speed summary", " ", "STAGE ..."),
    ],
)
def test_write_tables_comments_have_a_form(kind: str, wanted: str, form: str) -> None:
    """A comment of a known kind that lacks something is refused with what belongs there."""
    content = runpy.run_path(str(FOLDER / "tables" / "write_tables.py"))
    with pytest.raises(MatchGraphError) as caught:
        content["fill"](f"<!-- {kind}: {wanted} -->\n<!-- end -->")
    assert str(caught.value) == (
        f"The comment of a table must be '<!-- {kind}: {form} -->', found "
        f"'<!-- {kind}: {wanted} -->'; complete it."
    )


@pytest.mark.parametrize(("few", "train", "valid", "test"), [(0, 16, 2, 10), (400, 14, 2, 12)])
def test_write_subsets(
    few: int, train: int, valid: int, test: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation documents are tested, and validate too where they are many enough; none twice."""
    content = runpy.run_path(str(FOLDER / "sizes" / "write_subsets.py"))
    monkeypatch.setitem(content["draw"].__globals__, "FEW", few)
    folder = tmp_path / "toy"
    folder.mkdir()
    lines = {"train.json": 40, "dev.json": 12, "test.json": 12}
    for name, number in lines.items():
        (folder / name).write_text("".join(f"{name} {n}\n" for n in range(number)))
    content["main"](folder, [16])
    subset = tmp_path / "toy_16"
    found = {name: (subset / name).read_text().splitlines() for name in lines}
    assert [len(found[name]) for name in lines] == [train, valid, test]
    drawn = [line for part in found.values() for line in part]
    assert len(set(drawn)) == len(drawn)
    assert not any(line.startswith("test.json") for line in drawn)
    assert all(line.startswith("dev.json") for line in found["test.json"])
    assert content["draw"](folder, 16, seed=0) == found
    assert content["draw"](folder, 16, seed=1) != found
    for number, message in ((16, "toy_16 is there already"), (41, "must be at most 40")):
        with pytest.raises(BadParameter, match=message):
            content["main"](folder, [number])
    monkeypatch.setitem(content["draw"].__globals__, "FEW", 1)
    (folder / "dev.json").write_text("dev.json 0\ndev.json 1\n")
    with pytest.raises(BadParameter, match="must leave some of the 2 validation documents"):
        content["draw"](folder, 16, seed=0)


@pytest.mark.parametrize("least", [1, 2])
def test_write_subsets_labelled_by_metadata(tmp_path: Path, least: int) -> None:
    """References of as many training documents are the labels; a folder that can be read."""
    content = runpy.run_path(str(FOLDER / "sizes" / "write_subsets.py"))
    folder = write_match_folder(tmp_path / "toy")
    content["main"](folder, [8], labels="reference", least=least)
    subset = tmp_path / "toy_8_reference"
    found = {
        name: [json.loads(line) for line in (subset / f"{name}.json").read_text().splitlines()]
        for name in ("train", "dev", "test")
    }
    drawn = map(json.loads, content["draw"](folder, 8, seed=0)["train.json"])
    counts = Counter(label for one in drawn for label in one["reference"])
    labels = {label for one in found["train"] for label in one["label"]}
    assert labels == {label for label, number in counts.items() if number >= least}
    for documents in found.values():
        assert all(one["label"] and labels.issuperset(one["label"]) for one in documents)
        assert not any("reference" in one for one in documents)
    data = open_dataset(str(subset), root=tmp_path / "root")[0]
    assert data[LABEL].num_nodes == len(labels)
    message = f"must be a field with values in {least} or more training documents, found 'pages'"
    with pytest.raises(BadParameter, match=message):
        content["main"](folder, [8], labels="pages", least=least)


def test_measure_adds_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command adds what it measured on a planted corpus."""
    runpy.run_path(str(FOLDER / "scale" / "write_planted.py"))["main"](
        tmp_path / "raw", scale=1e-3, label_scale=0.01
    )
    content = runpy.run_path(str(FOLDER / "scale" / "measure.py"))
    monkeypatch.setitem(content["add_row"].__globals__, "MEASURED", tmp_path / "measured.json")
    place = tmp_path / "raw", tmp_path / "root"
    content["pretrain"](*place, pairs=1000)
    content["train"](*place, in_memory=True)
    content["predict"](*place)
    rows = {row.pop("stage"): row for row in json.loads((tmp_path / "measured.json").read_text())}
    assert [*rows] == ["pretrain", "train", "predict"]
    assert rows["pretrain"]["pairs"] >= 1000
    assert rows["train"]["states_mib"] > rows["train"]["tables_mib"] > 0
    assert rows["train"]["steps"] * rows["train"]["batch"] > 100
    assert all(row["documents"] > 0 for row in rows.values())


def test_plot_sizes(tmp_path: Path) -> None:
    """A row's interval on each subset and the whole corpus, by number of training documents."""
    names = [str(write_match_folder(tmp_path / name)) for name in ("toy_8", "toy_16", "toy")]
    experiment = load_experiment("sizes", names, runs=1, settings=TINY)
    rows = [row for row in experiment.rows if row.name in ("TF-IDF + linear", "MATCH")]
    run_benchmark(experiment.model_copy(update={"rows": rows}), tmp_path, tmp_path / "root")
    content = runpy.run_path(str(FOLDER / "sizes" / "plot_sizes.py"))
    tables = runpy.run_path(str(FOLDER / "tables" / "write_tables.py"))
    (tmp_path / "out").mkdir()
    tables["publish"](tables["read_results"](tmp_path), tmp_path, tmp_path / "out")
    published = tables["read_results"](tmp_path / "out")
    cells = [cell for cell in published.cells if cell.dataset != "toy"]
    subsets = published.model_copy(update={"datasets": published.datasets[:2], "cells": cells})
    write_results(tmp_path / "out", subsets)
    (tmp_path / "whole").mkdir()
    write_results(tmp_path / "whole", published)
    content["main"](tmp_path, tmp_path / "out", tmp_path / "whole")
    assert (tmp_path / "sizes.png").stat().st_size > 10_000
    written = pd.read_csv(tmp_path / "sizes.csv")
    assert list(written["corpus"]) == ["toy"] * 3
    assert list(written["row"]) == ["TF-IDF + linear"] * 3
    gaps = content["list_gaps"](published, ["toy_8", "toy"])
    assert list(gaps) == ["TF-IDF + linear"]
    assert [low <= gap <= high for _, gap, low, high in gaps["TF-IDF + linear"]] == [True, True]


def test_plot_sizes_is_of_the_results(tmp_path: Path) -> None:
    """The points of the picture are those of the committed results, but for rounding.

    They are means and bootstraps of thousands of scores, whose sums differ in the last digits
    between processors.
    """
    runpy.run_path(str(FOLDER / "sizes" / "plot_sizes.py"))["main"](tmp_path)
    written, committed = (
        pd.read_csv(folder / "sizes.csv") for folder in (tmp_path, FOLDER / "sizes")
    )
    pd.testing.assert_frame_equal(written, committed, rtol=0, atol=1e-9)
    assert (FOLDER / "sizes" / "sizes.png").stat().st_size > 10_000


def test_check_spaces_of_encoders() -> None:
    """Every value of its spaces is one that its row takes; ablations are not searched."""
    experiment = load_experiment("encoders")
    check_spaces(experiment)
    based = {row.name: row.base for row in experiment.rows if row.ablation}
    assert set(based.values()) == {"MATCH"}
    assert not any(row.space for row in experiment.rows if row.name in based)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_Experiment_rows_of_a_preset_are_the_preset(path: Path) -> None:
    """A row that trains otherwise than a paper says is named so."""
    experiment = load_experiment(path)
    rows = [row for row in experiment.expand(["venue"]) if row.preset]
    for row in rows:
        preset = load_preset_config(None, [f"model.encoder={row.encoder}"], row.preset)
        config = experiment.configure(row, seed=0)
        for section in ("data", "pretrain", "model", "train"):
            is_same = getattr(config, section) == getattr(preset, section)
            assert is_same or ", " in row.name, (row.name, section)
        assert experiment.budget == "own" or row.settings["train.epochs"] == preset.train.epochs


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_Experiment_has_rows_of_match_and_the_paper(path: Path) -> None:
    """Both are whole, and named so; a grid is drawn of one row, at the defaults."""
    experiment = load_experiment(path)
    whole = [row for row in experiment.rows if row.encoder == "match" and not row.ablation]
    ours = [row.name for row in whole if not row.preset and not row.settings]
    papers = [row.name for row in whole if row.preset == "paper" and ", " not in row.name]
    if path.stem == "comparison":  # the names of the paper
        assert (ours, papers) == (["MATCH, defaults"], ["MATCH"])
    else:
        assert ours == ["MATCH"]
        assert papers == ([] if experiment.grid else ["MATCH (paper)"])


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_load_experiment_runs_on_the_toy_corpus(
    path: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One run of every row; tables and the figure are there."""
    toy = write_match_folder(tmp_path / "toy")
    settings = list(TINY)
    if path.stem == "features":
        model = request.getfixturevalue("sentence_model")
        settings += [f"data.features.{name}.model={model}" for name in ("document", "label")]
    experiment = load_experiment(path, [str(toy)], runs=1, settings=settings)
    results = run(experiment, tmp_path)
    featured = [cell for cell in results.cells if {"LM", "LSA"} & {*cell.row.split()}]
    assert all(bool(cell.feature_checksums) == (cell in featured) for cell in results.cells)
    assert [cell.row for cell in results.cells] == [
        row.name for row in experiment.expand(["venue", "author", "reference"])
    ]
    names = [file.name for file in write_tables(tmp_path / "out", results)]
    assert names[:3] == ["toy.md", "toy.csv", "toy.tex"]
    assert (f"toy-{experiment.figure}.csv" in names) == (experiment.figure != "none")


def test_Experiment_rows_with_features_are_their_base_rows() -> None:
    """But for the features that their names add; "alone" leaves out the tokens."""
    experiment = load_experiment(FOLDER / "features.yaml")
    rows = {row.name: row for row in experiment.rows}
    pairs = [name for name in rows if name.endswith(" + LM")]
    assert {rows[name].encoder for name in pairs} == {
        "match", "hetero_sage", "rgcn", "hgt", "tfidf_linear",
    }  # fmt: skip
    tokens = "model.encoder_config.tokens"
    for name in [*pairs, "LM alone + linear"]:
        base = rows[name.removesuffix(" + LM") if name in pairs else "TF-IDF + linear"]
        settings = dict(rows[name].settings)
        types = {key for key in settings if key.startswith("data.features.")}
        label = {"data.features.label"} if base.name.endswith("label graph") else set()
        assert types == {"data.features.document", *label}, name
        assert name in pairs or settings.pop(tokens) is False
        assert {key: settings[key] for key in settings.keys() - types} == base.settings, name
        assert rows[name].encoder == base.encoder


def test_every_registered_model_is_among_the_encoders() -> None:
    """Every ablation too; rows that start from vectors of text alone read no metadata.

    Each of these has one beside it that does.
    """
    experiment = load_experiment(FOLDER / "encoders.yaml")
    assert {row.encoder for row in experiment.rows} == {*ENCODERS, *BASELINES}
    ablations = {name for row in experiment.rows for name in row.ablation}
    assert ablations == {"no-metadata", "no-{field}", "no-hierarchy", "no-pretrain"}
    of_words = set()
    for row in experiment.rows:
        model = find_model(Config().change("model", encoder=row.encoder))
        reads = getattr(model.settings, "metadata", True)
        reads = row.settings.get("model.encoder_config.metadata", reads)
        assert (row.settings.get("model.init") == "spherical_text") == (not reads), row.name
        of_words |= set() if reads else {row.name}
    assert {row.base for row in experiment.rows if row.name.endswith(" + metadata")} == of_words


def test_Experiment_expected_numbers_are_complete() -> None:
    """Nine rows, five columns of Tables 2 and 3, MATCH the best of each; our own row has none."""
    experiment = load_experiment(FOLDER / "comparison.yaml")
    rows = [row.name for row in experiment.rows]
    assert set(experiment.expected) == {"mag-cs", "pubmed"}
    for expected in experiment.expected.values():
        assert list(expected) == rows[:9]
        for measure in experiment.measures:
            means = {name: values[measure][0] for name, values in expected.items()}
            assert max(means, key=means.__getitem__) == "MATCH"
        for values in expected.values():
            assert list(values) == experiment.measures
            assert values["P@1"][0] > values["P@3"][0] > values["P@5"][0]
            assert all(0 < deviation < 0.01 for _, deviation in values.values())


def release(synthetic: Synthetic, folder: Path) -> None:
    """A planted corpus as the folder that the paper's authors released."""
    dag, names = synthetic.hierarchy, synthetic.names(LABEL).tolist()
    children: dict[str, list[str]] = {}
    for child, parent in dag.edge_index.t().tolist():
        children.setdefault(names[parent], []).append(names[child])
    taxonomy = [" ".join([parent, *found]) for parent, found in children.items()]
    documents = {
        split: synthetic.as_json(synthetic.documents(mask).tolist()[:120])
        for split, mask in MASKS.items()
    }
    write_release_folder(folder, documents, taxonomy)


def test_run_benchmark_comparison_of_the_released_folder(
    synthetic: Synthetic, tmp_path: Path
) -> None:
    """`--dataset mag-cs --root ROOT`; the table shows the paper's numbers and the difference."""
    release(synthetic, tmp_path / "root" / "raw" / "MAG")
    tiny = [*TINY, "data.max_words=20"]
    experiment = load_experiment(FOLDER / "comparison.yaml", ["mag-cs"], 1, settings=tiny)
    rows = [row for row in experiment.rows if row.name in ("Transformer", "MATCH")]
    expected = {
        dataset: {row.name: found[row.name] for row in rows}
        for dataset, found in experiment.expected.items()
    }
    experiment = experiment.model_copy(update={"rows": rows, "expected": expected})
    results = run(experiment, tmp_path)
    (record,) = results.datasets
    assert (record.name, record.source) == ("mag-cs", "mag-cs")
    assert torch.tensor([*record.documents.values()]).le(120).all()
    write_tables(tmp_path / "out", results)
    lines = (tmp_path / "out" / "tables" / "mag-cs.md").read_text().splitlines()
    mean = results.find_values("mag-cs", "MATCH", "P@1")[0]
    shown = [line for line in lines if line.startswith("| MATCH |")]
    assert shown[1].split(" | ")[1] == f"0.9190 ({mean - 0.9190:+.4f})"


def test_scale_plan_is_what_its_script_computes() -> None:
    """The page holds the tables that measured.json gives, and no others."""
    content = runpy.run_path(str(FOLDER / "scale" / "plan.py"))
    page = (FOLDER.parent / "docs/how_to/scale_plan.md").read_text(encoding="utf-8")
    rest = page.partition(content["BEGIN"])[2]
    found = rest.partition(content["END"])[0]
    assert found.strip() == content["describe"](content["load_rates"]())


def test_write_planted_gives_what_synthetic_builds(tmp_path: Path) -> None:
    """Parts of JSON lines, read by `Custom`: the same graph as the planted corpus itself."""
    content = runpy.run_path(str(FOLDER / "scale" / "write_planted.py"))
    content["main"](tmp_path / "it", "mag-cs", 0.004, 0.02, 3)
    options = {
        "path": str(tmp_path / "it/parts"), "taxonomy": str(tmp_path / "it/taxonomy.txt"),
        "fields": ["venue", "author", "reference"], "columns": {"split": "split"},
        "tokenizer": "whitespace",
    }  # fmt: skip
    read = Custom(root=tmp_path, **options)
    drawn = Synthetic(root=tmp_path, like="mag-cs", scale=0.004, label_scale=0.02, seed=3)
    assert describe_graph(read.graph, read.targets) == describe_graph(drawn.graph, drawn.targets)
    assert read.graph.edge_index(CONTAINS).equal(drawn.graph.edge_index(CONTAINS))


def test_write_planted_in_the_layout_of_oaxmlc(tmp_path: Path) -> None:
    """All documents and labels are read; the hierarchy is the planted one."""
    content = runpy.run_path(str(FOLDER / "scale" / "write_planted.py"))
    content["main"](tmp_path / "it", "mag-cs", 0.002, 0.02, 3, True)
    read = OaXmlc(root=tmp_path, path=str(tmp_path / "it"), split="own", close_labels=False)
    drawn = Synthetic(root=tmp_path, like="mag-cs", scale=0.002, label_scale=0.02, seed=3)
    assert sorted(read.names(LABEL)) == sorted(drawn.names(LABEL))
    assert read.hierarchy.num_edges == drawn.hierarchy.num_edges
    assert read.targets.index.numel() == drawn.targets.index.numel()
