"""Cells of a benchmark (row, data set, seed): running one, and reading its result."""

import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from match_graph.benchmark.experiment import Experiment
from match_graph.benchmark.plan import PlannedCell
from match_graph.benchmark.process import Work
from match_graph.benchmark.results import LARGEST, Cell, find_measure
from match_graph.errors import CheckpointError, describe_faults, list_faults
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import LEVELS, METRICS, VECTORS
from match_graph.runs import Run
from match_graph.runs.readers import read_history, read_metrics, read_record
from match_graph.runs.start import start_run
from match_graph.typing import Split


def run_cell(work: Work, split: Split = "test") -> None:
    """Runs all stages of a cell in its run folder; finished stages are not repeated.

    Args:
        work: Work order.
        split: Split that the experiment measures; the test split is read only for "test".
    """
    if is_evaluated(work.out / work.cell.folder, split):
        return
    run = open_cell(work, work.cell, work.vectors)
    run.train()
    run.evaluate(with_test=split == "test")


def is_evaluated(folder: Path, split: Split) -> bool:
    """True if a run has been evaluated on a split; also if its ``metrics.json`` is broken."""
    if not (folder / METRICS).is_file():
        return False
    try:
        return split in read_metrics(folder)
    except CheckpointError:  # as `read_cell` will say
        return True


def open_cell(work: Work, cell: PlannedCell, vectors: Path | None) -> Run:
    """Run of a cell, new or to be resumed, with the pre-trained vectors of another run.

    Args:
        work: Work order, which has the folders.
        cell: Planned cell.
        vectors: Run folder to take pre-trained vectors from; None trains them if need be.
    """
    run = start_run(
        cell.source, cell.config, work.out / cell.folder, work.root, reporter=Reporter()
    )
    if vectors is not None and not run.pretraining.is_done():
        run.take_vectors(vectors)
        run.reporter.line(f"pretrain: vectors of {vectors}")
    return run


def find_vectors(cell: PlannedCell, cells: Iterable[PlannedCell], out: Path) -> Path | None:
    """Run folder with the vectors that a cell starts from: that of the first cell to have them."""
    key = cell.vectors_key
    if key is None:
        return None
    folders = (out / other.folder for other in cells if other.vectors_key == key)
    return next((folder for folder in folders if (folder / VECTORS).is_file()), None)


def read_cell(planned: PlannedCell, out: Path, experiment: Experiment) -> Cell:
    """Reads a finished cell from its run folder.

    Args:
        planned: Planned cell, with its configuration.
        out: Folder of the benchmark.
        experiment: Experiment, whose measures the cell must have.

    Raises:
        CheckpointError: A file is broken, or a measure of the experiment is missing.
    """
    folder = out / planned.folder
    record = read_record(folder)
    epochs = _count_epochs(folder)
    seconds, resumed = record["seconds"], record.get("resumed", False)
    known = not resumed and epochs > 0  # else the seconds of a killed stage are lost
    if (source := record.get("vectors_from")) is not None:
        source = Path(os.path.relpath(folder / source, out)).as_posix()
    content = {
        "status": "done",
        "metrics": read_metrics(folder),
        "history": _read_history(folder),
        "seconds": seconds,
        "epochs": epochs or None,
        "seconds_per_epoch": seconds["train"] / epochs if known else None,
        "parameters": record.get("parameters"),
        "peak_mib": record["peak_memory_mib"],
        "device": record["device"],
        "versions": {**record["versions"], "python": record["python"]},
        "git": record["git"],
        "vectors_from": source,
        "network_share": record.get("network_share"),
        "feature_checksums": record.get("feature_checksums", {}),
        "input_checksums": record.get("input_checksums", {}),
        "resumed": resumed,
        "finished": datetime.fromtimestamp((folder / METRICS).stat().st_mtime, UTC).isoformat(
            timespec="seconds"
        ),
    }
    summary = f"The files of the cell '{planned.folder}' must be as a run writes them"
    try:
        cell = make_cell(planned, **content)
    except ValidationError as error:
        raise CheckpointError(list_faults(summary, describe_faults(Cell, error))) from error
    if faults := cell.find_missing():
        raise CheckpointError(list_faults(summary, faults))
    for measure in experiment.measures:
        find_measure(cell, experiment.split, measure)
    return cell


def make_cell(planned: PlannedCell, **changes: Any) -> Cell:
    """Cell of the results; its status is "waiting" unless ``changes`` says otherwise."""
    content: dict[str, Any] = {
        "dataset": planned.dataset,
        "row": planned.row.name,
        "seed": planned.seed,
        "folder": planned.folder,
        "config": planned.config.model_dump(mode="json"),
    }
    return Cell(**content | changes)


def _read_history(folder: Path) -> list[dict[str, float]]:
    table = read_history(folder)
    if table is None:
        return []
    return [
        {str(name): float(value) for name, value in row.items() if abs(value) <= LARGEST}
        for row in table.to_dict("records")
    ]


def _count_epochs(folder: Path) -> int:
    """Number of epochs: rows of the histories of the run and of a label tree's upper levels."""
    tables = [read_history(place) for place in (folder, *(folder / LEVELS).glob("*"))]
    return sum(len(table) for table in tables if table is not None)
