"""results.json: read back as written, another version refused, a missing measure an error."""

import json
import re
from pathlib import Path

import pytest

from match_graph.benchmark import (
    Cell,
    DatasetRecord,
    Experiment,
    Machine,
    Results,
    find_measure,
    read_results,
    write_results,
)
from match_graph.benchmark.results import RESULTS, describe_failures, sort_cells
from match_graph.errors import CheckpointError, ConfigError
from match_graph.report import write_tables


@pytest.fixture
def results() -> Results:
    """Results of two rows with two seeds, of which one cell failed."""
    experiment = Experiment(
        name="trial",
        question="Is it better?",
        datasets=["toy"],
        runs=2,
        measures=["P@1"],
        reference="MATCH",
        rows=[{"name": "prior", "encoder": "prior"}, {"name": "MATCH"}],
    )
    cells = [
        Cell(
            dataset="toy",
            row=row,
            seed=seed,
            status="done",
            folder=f"cells/toy/{row}/seed{seed}",
            metrics={"test": {"P@1": 0.5 + seed / 10}, "valid": {"P@1": 1}},
            seconds={"train": 1.0},
            peak_mib={"host": 500.0},
        )
        for row in ("prior", "MATCH")
        for seed in (0, 1)
    ]
    cells[0] = Cell(
        dataset="toy", row="prior", seed=0, status="failed", reason="No.", folder="cells/x"
    )
    record = DatasetRecord(
        name="toy",
        source="toy",
        checksum="abc",
        documents={"train": 8},
        num_labels=9,
        fields=["venue"],
        rows=experiment.expand(["venue"]),
    )
    machine = Machine(platform="Linux", processor="x86_64", cores=2, python="3.11", versions={})
    return Results(
        experiment=experiment,
        machine=machine,
        started="2026-01-01T00:00:00+00:00",
        updated="2026-01-01T00:00:00+00:00",
        datasets=[record],
        cells=cells,
    )


def test_read_results_are_read_back_as_written(results: Results, tmp_path: Path) -> None:
    """The path is that of the folder or of the file; no temporary file is left."""
    path = write_results(tmp_path, results)
    assert read_results(tmp_path) == read_results(path) == results
    assert [file.name for file in tmp_path.iterdir()] == [RESULTS]
    assert results.is_finished


def test_read_results_without_twins_are_read(results: Results, tmp_path: Path) -> None:
    """Older versions did not count twins."""
    content = results.model_dump(mode="json")
    del content["datasets"][0]["twins"]
    (tmp_path / RESULTS).write_text(json.dumps(content))
    assert read_results(tmp_path).datasets[0].twins is None


def test_Results_values_are_by_seed_of_the_finished_cells(results: Results) -> None:
    assert results.find_values("toy", "MATCH", "P@1") == {0: 0.5, 1: 0.6}
    assert results.find_values("toy", "prior", "P@1") == {1: 0.6}
    assert [cell.status for cell in results.find_cells("toy", "prior")] == ["failed", "done"]


def test_find_measure_missing_measure_is_an_error_and_never_0(results: Results) -> None:
    cell = results.cells[1]
    with pytest.raises(CheckpointError) as caught:
        find_measure(cell, "test", "P@3")
    assert str(caught.value) == (
        "The cell 'cells/toy/prior/seed1' must have the measure 'P@3' on test, but it has "
        f"['P@1'] there, of the splits {sorted(cell.metrics)}; change 'measures' or 'split', or "
        f"evaluate the cell again."
    )
    with pytest.raises(CheckpointError) as caught:
        find_measure(cell.model_copy(update={"metrics": {"valid": {}}}), "test", "P@1")
    assert str(caught.value) == (
        "The cell 'cells/toy/prior/seed1' must have the measure 'P@1' on test, but it has [] "
        "there, of the splits ['valid']; change 'measures' or 'split', or evaluate the cell again."
    )


@pytest.mark.parametrize(
    ("dataset", "row", "fault"),
    [
        (
            "toys",
            "MATCH",
            "data set must be one of the results, found 'toys'; the nearest is 'toy'",
        ),
        ("toy", "MATHC", "row must be one of the results, found 'MATHC'; the nearest is 'MATCH'"),
    ],
)
def test_Results_refuse_unknown_rows(results: Results, dataset: str, row: str, fault: str) -> None:
    """An unknown row is an error, and not one without values."""
    with pytest.raises(ConfigError, match=re.escape(f"The {fault}.")):
        results.find_values(dataset, row, "P@1")


def test_find_measure_of_a_slice_may_be_lacked_by_a_data_set(results: Results) -> None:
    cell = results.cells[1]
    for measure in ("depth_9/R@5", "tail/F1_macro", "at_least_k/RankedSum@3"):
        assert find_measure(cell, "test", measure) is None
        assert results.find_values("toy", "MATCH", measure) == {}
    nothing = cell.model_copy(update={"metrics": {}})
    with pytest.raises(CheckpointError, match=r"must have the measure 'depth_9/R@5' on test, but"):
        find_measure(nothing, "test", "depth_9/R@5")


def test_write_results_another_version_is_refused(results: Results, tmp_path: Path) -> None:
    path = write_results(tmp_path, results)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "format": 99}))
    with pytest.raises(CheckpointError) as caught:
        read_results(tmp_path)
    assert str(caught.value) == (
        f"This version of match-graph reads results of format 2, found format 99 in '{path}'; use "
        f"the version that wrote it, or run the benchmark into another folder."
    )


def test_write_results_broken_results_say_where(results: Results, tmp_path: Path) -> None:
    path = write_results(tmp_path, results)
    content = json.loads(path.read_text())
    content["cells"][1]["seed"] = "one"
    del content["machine"]
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as caught:
        read_results(tmp_path)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"The results in '{path}' must be valid, but 2 faults were found:"
    assert lines[1].startswith("  'machine': Field required, found {'format': 2, 'experiment': {")
    assert lines[2] == "  'cells.1.seed': Input should be a valid integer, found 'one'."
    for broken, reason in (
        (b"{", "Invalid JSON: EOF while parsing an object at line 1 column 1"),
        (b"[1]", "Input should be an object"),
        (b'{"format": ' + b"[" * 100_000, "Invalid JSON: recursion limit exceeded at line 1"),
        (b"\xff", "Invalid JSON: expected value at line 1 column 1"),
    ):
        path.write_bytes(broken)
        with pytest.raises(CheckpointError) as caught:
            read_results(path)
        assert str(caught.value).startswith(
            f"'{path}' must hold the results of a benchmark as match-graph wrote them, but it "
            f"cannot be read ({reason}"
        )


def spoil(content: dict, *path: object, value: object = None) -> None:
    """Sets the value at a path in nested mappings, or deletes it without one."""
    for place in path[:-1]:
        content = content[place]
    if value is None:
        del content[path[-1]]
    else:
        content[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("cells", 1, "dataset"), "other", "'cells.1': there is no row 'prior' of the data set "
         "'other'."),
        (("cells", 1, "row"), "other", "'cells.1': there is no row 'other' of the data set 'toy'."),
        (("cells", 3, "seed"), 0, "'cells': ('toy', 'MATCH', 0) must be of one cell only."),
        (("cells", 1, "peak_mib"), {"x": 1}, "'cells.1': a finished cell must have peak_mib.host."),
        (("cells", 1, "seconds"), {}, "'cells.1': a finished cell must have seconds.train."),
        (("datasets",), [], "'cells.0': there is no row 'prior' of the data set 'toy'."),
        (("cells", 1, "metrics", "test", "P@1"), 10**400, "Input should be a finite number"),
        (("cells", 1, "metrics", "test", "P@1"), 1e308, "Input should be less than or equal to"),
        (("cells", 1, "metrics", "test", "P@1"), "x", "Input should be a valid number"),
        (("cells", 1, "seed"), -1, "Input should be greater than or equal to 0, found -1."),
        (("cells", 1, "status"), "gone", "Input should be 'waiting', 'done', 'refused' or"),
        (("cells", 1, "history"), [{"loss": float("inf")}], "Input should be a finite number"),
        (("cells",), None, "'cells': Field required"),
        (("experiment", "grid"), {f"k{n}": [0] * 10 for n in range(16)}, "'experiment': 'rows'"),
        (("experiment", "runs"), 10**9, "Input should be less than or equal to 10000"),
    ],
)  # fmt: skip
def test_read_results_names_what_is_damaged(
    results: Results, tmp_path: Path, path: tuple, value: object, fault: str
) -> None:
    """Wrong values and types, missing keys and dangling references are a sentence each."""
    file = write_results(tmp_path, results)
    content = json.loads(file.read_text())
    spoil(content, *path, value=value)
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as caught:
        read_results(tmp_path)
    assert str(caught.value).startswith(f"The results in '{file}' must be valid")
    assert fault in str(caught.value)


def test_sort_cells_are_in_the_order_of_tables(results: Results) -> None:
    shuffled = [results.cells[number] for number in (3, 1, 2, 0)]
    assert sort_cells(shuffled, results.datasets) == results.cells


def test_read_results_imports_nothing(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that name custom code are read without importing it."""
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    path = write_results(tmp_path, results)
    content = json.loads(path.read_text())
    for row in (content["experiment"]["rows"][1], content["datasets"][0]["rows"][1]):
        row |= {"encoder": "evil:Evil", "preset": "paper"}
    path.write_text(json.dumps(content))
    read = read_results(tmp_path)
    assert read.experiment.rows[1].encoder == "evil:Evil"
    write_tables(tmp_path, read)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../../../X", "/tmp/X", ".."])
def test_read_results_refuses_names_that_lead_outside(
    results: Results, tmp_path: Path, name: str
) -> None:
    """Names are used in paths of tables and cells."""
    path = write_results(tmp_path, results)
    content = json.loads(path.read_text())
    content["datasets"][0]["name"] = name
    content["cells"][0]["folder"] = name
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as caught:
        read_results(tmp_path)
    assert str(caught.value) == (
        f"The results in '{path}' must be valid, but 2 faults were found:\n"
        f"  'datasets.0.name': must be a name without / and \\, as it names a folder, found "
        f"'{name}'.\n"
        f"  'cells.0.folder': must be a path below the folder, found '{name}'."
    )


def test_describe_failures_counts_runs_of_the_experiment(results: Results) -> None:
    """Failed runs count; refused ones only if all are."""
    assert describe_failures(results) == (
        "Every run of a benchmark must succeed, but 1 of 4 failed, such as 'cells/x' (No); mend "
        "the cause and give the same command again, which keeps what is finished."
    )
    done = results.model_copy(update={"cells": results.cells[1:]})
    assert describe_failures(done) is None
    refused = [one.model_copy(update={"status": "refused"}) for one in results.cells]
    text = describe_failures(results.model_copy(update={"cells": refused}))
    assert text is not None
    assert text.startswith("Every run of a benchmark must succeed, but 4 of 4 were left out, such")
    some = results.model_copy(update={"cells": [*refused[:1], *results.cells[1:]]})
    assert describe_failures(some) is None


def test_Results_values_are_of_the_data_set_and_split(results: Results) -> None:
    """They are measured on the experiment's split, and on no other data set."""
    here = results.cells[1]
    there = here.model_copy(update={"dataset": "far", "metrics": {"test": {"P@1": 0.9}}})
    far = results.datasets[0].model_copy(update={"name": "far"})
    update = {"datasets": [*results.datasets, far], "cells": [*results.cells, there]}
    both = results.model_copy(update=update)
    assert both.find_values("toy", "prior", "P@1") == {1: 0.6}
    assert both.find_values("far", "prior", "P@1") == {1: 0.9}
    experiment = results.experiment.model_copy(update={"split": "valid"})
    valid = results.model_copy(update={"experiment": experiment})
    assert valid.find_values("toy", "MATCH", "P@1") == {0: 1.0, 1: 1.0}


def test_Cell_find_missing_seconds_of_a_stopped_training(results: Results) -> None:
    """A resumed cell may lack the seconds of a killed stage."""
    cell = results.cells[1].model_copy(update={"seconds": {}})
    assert cell.find_missing() == ["a finished cell must have seconds.train."]
    assert cell.model_copy(update={"resumed": True}).find_missing() == []


def test_describe_failures_leaves_out_cells_of_earlier_calls(results: Results) -> None:
    """Failed cells of other seeds or data sets than the experiment's do not count."""
    done = results.cells[1:]
    far = results.datasets[0].model_copy(update={"name": "far", "source": "far"})
    for update in ({"seed": 2}, {"dataset": "far"}):
        cells = [*done, results.cells[0].model_copy(update=update)]
        changed = {"cells": cells, "datasets": [*results.datasets, far]}
        assert describe_failures(results.model_copy(update=changed)) is None
