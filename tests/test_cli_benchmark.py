"""`match-graph benchmark`: an experiment from the command line, its tables, its errors."""

from pathlib import Path

import pytest

from match_graph.benchmark import read_results
from match_graph.testing import write_match_folder

EXPERIMENT = """
question: Does it beat the label prior?
datasets: [synthetic]
runs: 3
measures: [P@1, NDCG@5]
reference: tfidf_linear
rows:
  - {name: prior, encoder: prior}
  - {name: tfidf_linear, encoder: tfidf_linear}
"""


@pytest.mark.slow
def test_benchmark_ends_with_tables(call, tmp_path: Path, monkeypatch) -> None:
    """Data set, runs, seed and settings are options; results are below runs/ by default.

    A measure that the data set lacks fails no run.
    """
    monkeypatch.chdir(tmp_path)
    measures = "[P@1, NDCG@5, depth_9/R@5]"
    (tmp_path / "trial.yaml").write_text(EXPERIMENT.replace("[P@1, NDCG@5]", measures))
    write_match_folder(tmp_path / "toy")
    arguments = ["benchmark", "trial.yaml", "--dataset", "toy", "--runs", 1, "--seed", 4]
    code, printed, error = call(*arguments, "--set", "data.max_words=20")
    assert code == 0
    out = Path("runs", "trial", "tables")
    assert printed.splitlines()[-3:] == [f"{out}/toy.md", f"{out}/toy.csv", f"{out}/toy.tex"]
    assert "depth_9/R@5" in printed
    assert r"data set counts for depth\_9/R@5." in (out / "toy.md").read_text()
    assert printed.count("documents have the words of a training document.") == 1
    assert "cells: 0 done, 2 to run with 1 thread each, one at a time (--workers runs" in error
    assert "toy, prior: time not known yet" in error.splitlines()
    results = read_results(Path("runs", "trial"))
    assert [(cell.status, cell.seed) for cell in results.cells] == [("done", 4)] * 2
    assert results.cells[0].config["data"]["max_words"] == 20
    code, printed, error = call(*arguments, "--set", "data.max_words=20", "--quiet")
    assert (code, error) == (0, "")


def test_benchmark_prints_measures_that_fit_beside_whole_names(
    call, tmp_path: Path, monkeypatch
) -> None:
    """On 80 columns measures are grouped and names unbroken; waiting rows are named."""
    monkeypatch.chdir(tmp_path)
    names = ["a model of a rather long name", "label prior"]
    content = EXPERIMENT.replace("name: tfidf_linear", f"name: {names[0]}")
    content = content.replace("name: prior", f"name: {names[1]}")
    content = content.replace("reference: tfidf_linear", f"reference: {names[0]}")
    measures = ["P@1", "P@3", "P@5", "NDCG@3", "NDCG@5", "PSP@5", "violation_rate"]
    content = content.replace("[P@1, NDCG@5]", f"[{', '.join(measures)}]")
    (tmp_path / "trial.yaml").write_text(content + "  - {name: later, encoder: prior}\n")
    write_match_folder(tmp_path / "toy")
    rows = [part for name in names for part in ("--row", name)]
    code, printed, _ = call("benchmark", "trial.yaml", "--dataset", "toy", "--runs", 1, *rows)
    assert code == 0
    lines = printed.splitlines()
    heads = [line.strip("┃ ").split("┃") for line in lines if line.startswith("┃ toy")]
    found = [[cell.strip() for cell in cells] for cells in heads]
    assert [name for cells in found for name in cells if name in measures] == measures
    assert [cells[-1] for cells in found] == ["runs"] * len(found)
    assert max(len(line) for line in lines if line[0] in "┏┃│└") <= 80
    for name in names:
        assert sum(line.startswith(f"│ {name} ") for line in lines) == len(found) == 2
    assert "Rows without a finished run: later." in lines


def test_benchmark_faults_are_one_sentence(call, tmp_path: Path) -> None:
    """Each fault is one sentence."""
    path = tmp_path / "trial.yaml"
    path.write_text(EXPERIMENT.replace("[P@1, NDCG@5]", "[]"))
    code, _, error = call("benchmark", path)
    assert code == 1
    assert error == (
        f"Error: The experiment '{path}' must be valid: 'measures': List should have at least 1 "
        f"item after validation, not 0, found [].\n"
    )


def test_benchmark_ends_with_1_where_a_run_failed(call, tmp_path: Path, monkeypatch) -> None:
    """If a run fails, tables are written, and the last line says why and what to do."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trial.yaml").write_text(EXPERIMENT)
    write_match_folder(tmp_path / "toy")
    arguments = ["benchmark", "trial.yaml", "--dataset", "toy", "--runs", 1, "--quiet"]
    spoiled = Path("runs/trial/cells/toy/tfidf_linear/seed0/baseline")
    spoiled.parent.mkdir(parents=True)
    spoiled.write_text("in the way")
    code, printed, error = call(*arguments)
    assert code == 1
    assert printed.splitlines()[-1] == "runs/trial/tables/toy.tex"
    assert error.splitlines()[-1].startswith("Error: Every run of a benchmark must succeed, but 1 ")
