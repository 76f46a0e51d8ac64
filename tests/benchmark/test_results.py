"""results.json: read back as written, another version refused, a missing measure an error."""

import json
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
from match_graph.benchmark.results import RESULTS, sort_cells
from match_graph.errors import CheckpointError


@pytest.fixture
def results() -> Results:
    """Two rows, two seeds; one cell failed."""
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


def test_results_are_read_back_as_written(results: Results, tmp_path: Path) -> None:
    """By folder or by file; nothing half-written is left."""
    path = write_results(tmp_path, results)
    assert read_results(tmp_path) == read_results(path) == results
    assert [file.name for file in tmp_path.iterdir()] == [RESULTS]
    assert results.is_finished


def test_values_are_by_seed_of_the_finished_cells(results: Results) -> None:
    assert results.find_values("toy", "MATCH", "P@1") == {0: 0.5, 1: 0.6}
    assert results.find_values("toy", "prior", "P@1") == {1: 0.6}
    assert [cell.status for cell in results.find_cells("toy", "prior")] == ["failed", "done"]


def test_a_missing_measure_is_an_error_and_never_0(results: Results) -> None:
    cell = results.cells[1]
    with pytest.raises(CheckpointError) as caught:
        find_measure(cell, "test", "P@3")
    assert str(caught.value) == (
        "The cell 'cells/toy/prior/seed1' must have the measure 'P@3' on test, but it has "
        "['P@1']; leave it out of 'measures', or evaluate the cell again."
    )
    with pytest.raises(CheckpointError) as caught:
        find_measure(cell.model_copy(update={"metrics": {"valid": {}}}), "test", "P@1")
    assert str(caught.value) == (
        "The cell 'cells/toy/prior/seed1' must have measures on test, but it has them on "
        "['valid'] only; set 'split' of the experiment."
    )


def test_another_version_is_refused(results: Results, tmp_path: Path) -> None:
    path = write_results(tmp_path, results)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "format": 99}))
    with pytest.raises(CheckpointError) as caught:
        read_results(tmp_path)
    assert str(caught.value) == (
        f"This version of match-graph reads results of format 1, found format 99 in '{path}'; use "
        f"the version that wrote it, or run the benchmark into another folder."
    )


def test_broken_results_say_where(results: Results, tmp_path: Path) -> None:
    path = write_results(tmp_path, results)
    content = json.loads(path.read_text())
    content["cells"][1]["seed"] = "one"
    del content["machine"]
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as caught:
        read_results(tmp_path)
    assert str(caught.value) == (
        f"The results in '{path}' must be valid, but 2 faults were found:\n"
        f"  'machine': Field required.\n"
        f"  'cells.1.seed': Input should be a valid integer."
    )
    path.write_text("{")
    with pytest.raises(CheckpointError, match="must be a JSON file that match-graph wrote"):
        read_results(path)


def test_cells_are_in_the_order_of_tables(results: Results) -> None:
    shuffled = [results.cells[number] for number in (3, 1, 2, 0)]
    assert sort_cells(shuffled, results.datasets) == results.cells
