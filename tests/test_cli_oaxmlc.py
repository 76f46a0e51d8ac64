"""OAXMLC-Bench in its published layout by `run`, `evaluate` and `benchmark`."""

import json
from pathlib import Path

import pytest

TOPICS = {"0": ["D1", "D2"], "D1": ["F1", "F2"], "D2": ["F3"], "F1": ["T1", "T2"], "F2": ["T3"],
          "F3": ["T4", "T5"]}  # fmt: skip
#: A diamond: C5 is below C3 and C4.
CONCEPTS = {"0": ["C1", "C2"], "C1": ["C3", "C4"], "C3": ["C5"], "C4": ["C5"], "C2": ["C6"]}
TINY = {
    "data.options.min_documents": 5, "data.max_words": 20, "pretrain.samples": 1000,
    "pretrain.channels": 20, "model.channels": 20, "train.epochs": 1, "train.batch_size": 16,
    "train.accelerator": "cpu", "train.precision": "32-true",
}  # fmt: skip
SETTINGS = [part for key, value in TINY.items() for part in ("--set", f"{key}={value}")]


def write_taxonomy(folder: Path, children: dict[str, list[str]]) -> None:
    folder.mkdir()
    lines = [" ".join([parent, *below]) for parent, below in children.items()]
    (folder / "taxonomy.txt").write_text("\n".join(lines) + "\n")
    labels = [label for below in children.values() for label in below]
    entries = [json.dumps({"label": one, "title": f"title of {one}"}) for one in labels]
    (folder / "ontology.json").write_text("\n".join(dict.fromkeys(entries)) + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the published files in ``raw/oaxmlc``."""
    raw = tmp_path / "root" / "raw" / "oaxmlc"
    raw.mkdir(parents=True)
    documents = [
        {
            "id": f"W{number}",
            "title": f"On kind {number % 5}",
            "abstract": f"and on kind {number % 3} alone" if number % 7 else None,
            "topics_labels": [f"T{1 + number % 5}", "T3"][: 1 + (number % 4 == 0)],
            "concepts_labels": [["C5"], ["C6"], ["C4", "C6"]][number % 3],
            "authors": [f"A{number % 6}"],
            "year": 2010 + number % 9,
            "references": [f"W{number // 2}"],
        }
        for number in range(150)
    ]
    (raw / "documents.json").write_text("".join(f"{json.dumps(one)}\n" for one in documents))
    write_taxonomy(raw / "topics", TOPICS)
    write_taxonomy(raw / "concepts", CONCEPTS)
    return tmp_path / "root"


@pytest.mark.parametrize(("taxonomy", "num_labels"), [("topics", 10), ("concepts", 6)])
def test_run_and_evaluate_oaxmlc(
    call, root: Path, tmp_path: Path, taxonomy: str, num_labels: int
) -> None:
    """Split and measures are the benchmark's: P@3 is over documents with three labels."""
    out = tmp_path / "run"
    arguments = [*SETTINGS, "--set", f"data.options.taxonomy={taxonomy}"]
    code, _, error = call("run", "oaxmlc", "--root", root, "--out", out, *arguments, "--quiet")
    assert (code, error) == (0, "")
    before = json.loads((out / "metrics.json").read_text())
    (out / "metrics.json").unlink()
    code, _, error = call("evaluate", out, "--root", root, "--quiet")
    assert (code, error) == (0, "")
    assert json.loads((out / "metrics.json").read_text()) == before
    test = before["test"]
    assert test["at_least_k/P@1"] == test["P@1"]  # all have a label
    assert test["at_least_k/P@3"] >= test["P@3"]
    assert 3 <= test["at_least_k/RankedSum@3"] <= num_labels
    assert 0 < test["shared_threshold/F1_micro"] <= 1


def test_benchmark_oaxmlc(call, root: Path, tmp_path: Path, monkeypatch) -> None:
    """A row of the shipped experiment has the policy and published values below its table."""
    monkeypatch.setattr("match_graph.benchmark.runner.probe_cells", lambda *_: {})
    rows = ["--row", "MATCH (paper), text alone"]
    arguments = ["--dataset", "oaxmlc", "--runs", 1, "--root", root, "--out", tmp_path / "out"]
    code, printed, error = call("benchmark", "oaxmlc", *rows, *arguments, *SETTINGS, "--quiet")
    assert (code, error) == (0, "")
    assert "at_least_k/: means over the documents with at least k labels" in printed
    text = (tmp_path / "out" / "tables" / "oaxmlc.md").read_text()
    assert "RankedSum@k is the rank of the k-th gold label, lower is better." in text
    assert "| MATCH (paper), text alone | 0.8834 (" in text
