"""Status of a benchmark's cells: kept from earlier calls, waiting, finished, failed."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from match_graph.benchmark.cell import is_evaluated, make_cell, read_cell
from match_graph.benchmark.earlier import EarlierCells
from match_graph.benchmark.plan import Plan, PlannedCell
from match_graph.benchmark.results import (
    RESULTS,
    Cell,
    Machine,
    Results,
    read_results,
    sort_cells,
    write_results,
)
from match_graph.config import FeatureSource
from match_graph.errors import CheckpointError, MatchGraphError
from match_graph.features import identify_features
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import CONFIG, RECORD
from match_graph.runs.folder import advise, find_difference, open_run_folder
from match_graph.runs.inputs import find_changed_inputs, hash_inputs
from match_graph.runs.readers import read_record
from match_graph.runs.record import describe_processor, describe_software


class Ledger:
    """Status of every cell of a plan, and of the finished cells of earlier calls.

    Args:
        plan: Plan of the benchmark.
        out: Folder of the benchmark, absolute.
        reporter: Progress reporter; warns of cells that are left out.

    Raises:
        CheckpointError: A run folder in ``out`` is of other settings or data than the plan.
    """

    def __init__(self, plan: Plan, out: Path, reporter: Reporter) -> None:
        self.plan, self.out, self.reporter = plan, out, reporter
        cells = [*map(make_cell, plan.cells), *plan.refused]
        self.cells: dict[tuple[str, str, int], Cell] = {cell.key: cell for cell in cells}
        self._started, self._datasets = _now(), plan.datasets
        self._machine = describe_machine()
        self._identified: dict[tuple[str, str, str], str | None] = {}
        self._take_over()

    def find_pending(self) -> list[PlannedCell]:
        """Cells that wait to be run, in the order of work."""
        return [one for one in self.plan.cells if self.cells[one.key].status == "waiting"]

    def _take_over(self) -> None:
        """Reads the finished cells of earlier calls, of this plan or of another."""
        for planned in self.plan.cells:
            folder = self.out / planned.folder
            if (folder / CONFIG).is_file():
                self._check_folder(planned, folder)
        if (self.out / RESULTS).is_file():
            self._read_earlier()
        for planned in self.plan.cells:
            if is_evaluated(self.out / planned.folder, self.plan.experiment.split):
                self.read(planned)

    def _check_folder(self, planned: PlannedCell, folder: Path) -> None:
        there = open_run_folder(folder)
        difference = find_difference(there, planned.config)
        advice = advise(there, planned.config) if difference else ""
        if not difference and (folder / RECORD).is_file():
            difference = self._compare_record(planned, read_record(folder))
        if difference:
            raise CheckpointError(
                f"A cell that is there must have the settings and data of the plan, but "
                f"'{folder}' has others ({difference}); {advice}choose another folder with --out, "
                f"or delete the row's cells, '{folder.parent}'."
            )

    def _compare_record(self, planned: PlannedCell, record: Mapping[str, Any]) -> str:
        """Clause on data, features or files that a cell was made from and that differ; or empty."""
        if record["data_checksum"] != planned.checksum:
            return "it was made from other data"
        there = record.get("feature_checksums", {})
        for node_type, source in planned.config.data.features.items():
            here = self._identify(source, node_type, planned.checksum)
            if here is not None and there.get(node_type, here) != here:
                return f"it was made with other features of '{node_type}'"
        if changed := find_changed_inputs(record, hash_inputs(planned.config)):
            return f"it was made with another content of {changed}"
        return ""

    def _identify(self, source: FeatureSource, node_type: str, checksum: str) -> str | None:
        """Checksum of features; None if they cannot be read now, of which the cell will tell."""
        key = source.model_dump_json(), node_type, checksum
        if key not in self._identified:
            try:
                self._identified[key] = identify_features(source, node_type, checksum)
            except MatchGraphError:
                self._identified[key] = None
        return self._identified[key]

    def _read_earlier(self) -> None:
        """Keeps cells of earlier calls that are not planned now: other data sets, other seeds.

        Left out are cells that were not run or lack a measure, of rows that the experiment no
        longer has, of changed data, and of rows with other settings, features or code now.
        Published cells are kept even if planned, as they have no run folder to be read from.
        """
        earlier = read_results(self.out / RESULTS)
        self._started = earlier.started
        there = {record.name: record for record in earlier.datasets}
        keeper, left_out = EarlierCells(self.plan, earlier, self._identify), 0
        for cell in earlier.cells:
            if cell.published or cell.status == "waiting":
                continue
            if keeper.matches(cell) if cell.status == "done" else keeper.matches_row(cell):
                self.cells.setdefault(cell.key, cell)
            left_out += cell.key not in self.cells
        if left_out:
            self.reporter.warn(
                f"{left_out} cells of earlier calls are of other rows, settings, data or measures; "
                f"their folders stay, the results have them no more"
            )
        self._take_published(earlier, keeper)
        kept = {dataset for dataset, _, _ in self.cells}
        tests = {record.checksum: record.tests for record in earlier.datasets}
        records = {name: record for name, record in there.items() if name in kept}
        for record in self.plan.datasets:  # in its old place, or at the end
            update = {"tests": tests.get(record.checksum, [])}
            records[record.name] = record.model_copy(update=update)
        self._datasets = [*records.values()]

    def _take_published(self, earlier: Results, keeper: EarlierCells) -> None:
        """Keeps published cells of the same settings and data, which have no run folder."""
        published = [cell for cell in earlier.cells if cell.published]
        places = {one.key: self.out / one.folder for one in self.plan.cells}
        kept, left_out = 0, []
        for cell in published:
            if cell.key in places and (places[cell.key] / CONFIG).is_file():
                continue  # it was run again
            if cell.key in self.cells and self.cells[cell.key].status == "refused":
                continue  # as it was then
            if keeper.matches(cell):
                self.cells[cell.key] = cell
                kept += 1
            else:
                left_out.append(cell)
        if kept:
            self.reporter.line(f"{kept} cells are published ones, kept without run folders")
        if left_out:
            self.reporter.warn(
                f"{len(left_out)} published cells are of other rows, settings, data or measures, "
                f"such as '{left_out[0].folder}'; the results have them no more"
            )

    def read(self, planned: PlannedCell) -> None:
        """Reads a finished cell from its run folder; one that lacks a measure counts as failed."""
        try:
            cell = read_cell(planned, self.out, self.plan.experiment)
        except MatchGraphError as error:
            self.fail(planned, str(error))
            return
        self.cells[planned.key] = cell

    def fail(self, planned: PlannedCell, reason: str) -> None:
        """Marks a cell as failed, with the reason."""
        self.cells[planned.key] = make_cell(
            planned, status="failed", reason=reason, finished=_now()
        )

    def write(self) -> Results:
        """Writes ``results.json``."""
        results = Results(
            experiment=self.plan.experiment,
            machine=self._machine,
            started=self._started,
            updated=_now(),
            datasets=self._datasets,
            cells=sort_cells([*self.cells.values()], self._datasets),
        )
        write_results(self.out, results)
        return results


def describe_machine() -> Machine:
    """Description of this machine, without its name."""
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return Machine(
        platform=platform.platform(terse=True),
        processor=describe_processor(),
        cores=os.cpu_count() or 1,
        gpus=gpus,
        **describe_software(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
