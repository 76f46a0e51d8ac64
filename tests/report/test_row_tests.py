"""Tests of rows against the reference, by the scores that their run folders hold."""

import json
from pathlib import Path

import pytest
import torch

from match_graph.benchmark import Cell, DatasetRecord, Experiment
from match_graph.benchmark.scores import CellScores
from match_graph.errors import CheckpointError
from match_graph.io.run_folder import RECORD
from match_graph.metrics import DocumentBootstrap
from match_graph.report.row_tests import RowTests, read_row_scores
from match_graph.runs.measures import SCORE_NAMES, DocumentScores, write_scores


def write_run(folder: Path, scores: torch.Tensor, checksum: str = "abc") -> Path:
    """Writes a run folder with scores of documents, [D, 6], and the checksum of its data."""
    record = {
        "dataset": "toy", "data_checksum": checksum, "num_train_documents": 8, "seed": 0,
        "processes": 1, "seconds": {}, "peak_memory_mib": {}, "device": {}, "versions": {},
        "python": "3.11", "git": None,
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / RECORD).write_text(json.dumps(record))
    table = DocumentScores(torch.arange(len(scores)))
    table.table[:] = scores
    write_scores(folder, {"test": table})
    return folder


def draw(seed: int, number: int = 30) -> torch.Tensor:
    """Scores of documents by measure."""
    return torch.rand(number, len(SCORE_NAMES), generator=torch.Generator().manual_seed(seed))


def make_cells(row: str, paths: list[str]) -> list[Cell]:
    """Cells of a row in these folders, a seed each."""
    return [Cell(dataset="toy", row=row, seed=seed, folder=path) for seed, path in enumerate(paths)]


def make_tests(
    folder: Path | None, names: dict[str, list[str]], published=(), values=None, **changes
) -> RowTests:
    """Tests of rows whose cells lie in these folders, a seed each."""
    content = {
        "question": "?", "datasets": ["toy"], "measures": ["P@5", "ECE", "NDCG@1"],
        "rows": [{"name": name} for name in names], "reference": next(iter(names)),
    }  # fmt: skip
    experiment = Experiment(**{**content, **changes})
    done = {row: make_cells(row, paths) for row, paths in names.items()}
    values = values or {
        (row, measure): {seed: 0.1 * len(row) + 0.01 * seed**2 for seed in range(len(cells))}
        for row, cells in done.items()
        for measure in experiment.measures
    }
    scores = None if folder is None else CellScores(folder, "test")
    return RowTests(experiment, done, values, scores, published)


def test_read_row_scores_are_averaged_over_seeds(tmp_path: Path) -> None:
    """Columns are in the order of measures; runs of different data have no average."""
    for seed in (0, 1):
        write_run(tmp_path / str(seed), draw(seed))
    scores = CellScores(tmp_path, "test")
    found = read_row_scores(make_cells("M", ["0", "1"]), scores, ["NDCG@5", "P@1"])
    assert found is not None
    assert found.documents == ("abc", 30)
    torch.testing.assert_close(found.table, (draw(0) + draw(1)).double()[:, [5, 0]] / 2)
    write_run(tmp_path / "other", draw(2), "data of another day")
    assert read_row_scores(make_cells("M", ["0", "1", "other"]), scores, ["P@1"]) is None
    with pytest.raises(CheckpointError):
        read_row_scores(make_cells("M", ["0", "1", "gone"]), scores, ["P@1"])


def test_RowTests_of_one_draw_over_documents(tmp_path: Path) -> None:
    """Differences to the reference in mean scores are tested, corrected over rows."""
    for seed in range(4):
        write_run(tmp_path / str(seed), draw(seed))
    tests = make_tests(tmp_path, {"M": ["0", "1"], "a": ["2"], "b": ["3"]})
    scores = torch.stack([(draw(0) + draw(1)) / 2, draw(2), draw(3)])
    for column, measure in ((2, "P@5"), (3, "NDCG@1")):
        alone = DocumentBootstrap(scores[:, :, column].t())
        expected = [alone.compare(row, 0) for row in (1, 2)]
        found = [tests.by_unit["documents"][row, measure] for row in "ab"]
        assert [one.p_value for one in found] == [one.p_value for one in expected]
        smaller, larger = sorted(found, key=lambda one: one.p_value)
        assert smaller.p_holm == pytest.approx(min(1, 2 * smaller.p_value))
        assert larger.p_holm == pytest.approx(max(larger.p_value, smaller.p_holm))
        for row, one in zip("ab", expected, strict=True):
            assert tests.intervals[row, measure] == pytest.approx(one.interval)
        assert tests.intervals["M", measure] == pytest.approx(alone.find_interval(0))
    assert not any(
        measure == "ECE" for _, measure in (*tests.by_unit["documents"], *tests.intervals)
    )
    assert {measure for _, measure in tests.by_unit["runs"]} == {"P@5", "ECE", "NDCG@1"}
    why = "no test over runs and no stars: it needs 5 common seeds and has 1."
    assert tests.notes == {"M": [], "a": [why], "b": [why]}


def test_RowTests_without_a_reference_each_row_has_its_documents(tmp_path: Path) -> None:
    """Intervals of means need no common documents."""
    write_run(tmp_path / "0", draw(0))
    write_run(tmp_path / "1", draw(1, 20))
    tests = make_tests(tmp_path, {"M": ["0"], "a": ["1"]}, reference=None)
    alone = DocumentBootstrap(draw(1, 20)[:, [2, 3]])
    assert tests.intervals["a", "NDCG@1"] == pytest.approx(alone.find_interval(1))
    assert ("M", "P@5") in tests.intervals
    assert tests.by_unit == {"runs": {}, "documents": {}}
    assert tests.notes == {"M": [], "a": []}


def test_RowTests_measures_of_a_reason_are_named(tmp_path: Path) -> None:
    """A row equals the reference in one measure, which has no test."""
    scores = draw(1)
    write_run(tmp_path / "0", scores)
    write_run(tmp_path / "1", scores.index_copy(1, torch.tensor([3]), draw(2)[:, :1]))
    tests = make_tests(tmp_path, {"M": ["0"] * 5, "aa": ["1"] * 5})
    assert tests.by_unit["documents"]["aa", "P@5"].p_value is None
    assert tests.by_unit["documents"]["aa", "NDCG@1"].p_value is not None
    assert tests.notes["aa"] == [
        "no test over runs and no stars: the difference is the same for all 5 runs.",
        "no test over documents of P@5 and no stars: the difference is the same for all 30 "
        "documents.",
    ]


def test_RowTests_published_rows_keep_their_tests(tmp_path: Path) -> None:
    """A row without scores keeps its interval and p-value as long as its difference stands: neither
    its own mean nor the reference's is another."""
    for seed in range(4):
        write_run(tmp_path / str(seed), draw(seed))
    names = {"M": ["0"], "a": ["1"], "b": ["2"], "c": ["3"]}
    means = {
        (row, measure): {0: float(draw(int(path))[:, column].mean())}
        for row, [path] in names.items()
        for measure, column in (("P@5", 2), ("NDCG@1", 3), ("ECE", 0))
    }
    whole = make_tests(tmp_path, names, values=means)
    record = DatasetRecord(
        name="toy", source="toy", checksum="abc", documents={"test": 30}, num_labels=9,
        fields=[], rows=whole.experiment.expand([]),
    )  # fmt: skip
    published = whole.publish(record).tests
    assert len(published) == 8
    # one row is run again and has scores, one has none, one has others by now
    names = {"M": ["0"], "a": ["1"], "b": ["gone"], "c": ["gone"]}
    changed = {**means, ("c", "P@5"): {0: 0.0}, ("c", "NDCG@1"): {0: 0.0}}
    found = make_tests(tmp_path, names, published, changed)
    alone = make_tests(None, names, published, means)
    for measure in ("P@5", "NDCG@1"):
        for row in "Mab":
            assert found.intervals[row, measure] == pytest.approx(whole.intervals[row, measure])
        p_values = [found.by_unit["documents"][row, measure].p_value for row in "ab"]
        expected = [whole.by_unit["documents"][row, measure].p_value for row in "ab"]
        assert p_values == expected
        holm = [found.by_unit["documents"][row, measure].p_holm for row in "ab"]
        assert min(holm) == pytest.approx(min(1, 2 * min(p_values)))  # over two rows, not three
        assert ("c", measure) not in found.by_unit["documents"]
    assert not any(row == "c" for row, _ in found.intervals)
    assert found.notes["c"][0] == (
        "no intervals over documents and no stars: the scores of its documents cannot be read "
        "from its run folders."
    )
    moved = make_tests(None, names, published, {**means, ("M", "P@5"): {0: 0.0}})
    assert list(moved.by_unit["documents"]) == [(row, "NDCG@1") for row in "abc"]
    assert ("M", "P@5") not in moved.intervals
    assert alone.intervals == whole.intervals
    assert list(alone.by_unit["documents"]) == list(whole.by_unit["documents"])
    for key, test in whole.by_unit["documents"].items():
        kept = alone.by_unit["documents"][key]
        assert (kept.p_value, kept.p_holm) == (test.p_value, test.p_holm)
