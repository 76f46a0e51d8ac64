"""Runs a benchmark: plan, cells in processes of their own, and results after every cell."""

import multiprocessing
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from match_graph.benchmark.cell import Work, do_work, make_cell, read_cell
from match_graph.benchmark.estimate import Estimate, format_seconds
from match_graph.benchmark.experiment import Experiment
from match_graph.benchmark.plan import Plan, PlannedCell, make_plan
from match_graph.benchmark.probe import probe_cells
from match_graph.benchmark.results import (
    RESULTS,
    Machine,
    Results,
    read_results,
    sort_cells,
    write_results,
)
from match_graph.datasets.dataset import default_root
from match_graph.errors import CheckpointError, MatchGraphError
from match_graph.training.files import (
    CONFIG,
    METRICS,
    RECORD,
    VECTORS,
    find_difference,
    open_run_folder,
)
from match_graph.training.progress import Reporter
from match_graph.training.record import describe_software, read_record

#: How long a stopped cell has to write its record before it is ended.
_PATIENCE = 10.0


def run_benchmark(
    experiment: Experiment,
    out: str | Path,
    root: str | Path | None = None,
    parallel: int = 1,
    reporter: Reporter | None = None,
) -> Results:
    """Runs the cells of an experiment that are not finished yet.

    Every cell is an ordinary run folder in ``OUT/cells/DATASET/ROW/seedN``, run in a process of its
    own; beside it lies what the process printed. Finished cells are kept, stopped ones go on where
    they were, failed ones are tried again. ``results.json`` is written after every cell. Cells
    that start from equal vectors share them: the first pre-trains, the others link its file.

    Call it below ``if __name__ == "__main__"``: processes import the main module.

    Args:
        experiment: What to do.
        out: The folder; new, or of the same experiment.
        root: Of built data; None takes the default.
        parallel: How many cells run at a time, over all GPUs, or over shares of the threads.
        reporter: For progress; None prints nothing.

    Raises:
        CheckpointError: A folder in ``out`` is of other settings or data, or another benchmark runs
            there.
        KeyboardInterrupt: Passed on, after cells have stopped and results are written.
    """
    out = Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    reporter = reporter or Reporter(quiet=True)
    place = str(Path(root or default_root()).resolve())
    lock = FileLock(out / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise CheckpointError(
            f"One benchmark at a time can run in a folder, but another one is at work in '{out}'; "
            f"wait for it, or choose another folder with --out."
        ) from None
    try:
        plan = make_plan(experiment, place, reporter)
        return _Benchmark(plan, out, place, parallel, reporter).run()
    finally:
        lock.release()


@dataclass(frozen=True)
class _Running:
    """A process at work."""

    process: BaseProcess
    answer: Connection
    cell: PlannedCell
    slot: int


class _Benchmark:
    """A benchmark at work.

    Args:
        plan: What to do.
        out: The folder, absolute.
        root: Of built data.
        parallel: Cells at a time.
        reporter: For progress.
    """

    def __init__(self, plan: Plan, out: Path, root: str, parallel: int, reporter: Reporter) -> None:
        self.plan, self.out, self.root = plan, out, root
        self.parallel, self.reporter = parallel, reporter
        self.cells = {planned.key: make_cell(planned) for planned in plan.cells}
        self.resumed: set[tuple[str, str, int]] = set()
        self.estimate = Estimate()
        self.started, self.datasets = _now(), plan.datasets
        self.machine = describe_machine()
        methods = multiprocessing.get_all_start_methods()
        self.context: Any = multiprocessing.get_context(
            "forkserver" if "forkserver" in methods else "spawn"
        )
        if "forkserver" in methods:  # so that torch is imported once, not once a cell
            self.context.set_forkserver_preload([do_work.__module__])

    def run(self) -> Results:
        self._take_over()
        pending = [
            planned for planned in self.plan.cells if self.cells[planned.key].status == "waiting"
        ]
        self._announce(pending)
        self._write()
        running: dict[int, _Running] = {}
        try:
            while pending or running:
                while len(running) < self.parallel and (ready := self._choose(pending, running)):
                    pending.remove(ready)
                    started = self._start(ready, {one.slot for one in running.values()})
                    running[started.process.sentinel] = started
                for sentinel in wait([*running]):
                    assert isinstance(sentinel, int)
                    done = running.pop(sentinel)
                    self._finish(done)
                    left = [*pending, *(one.cell for one in running.values())]
                    self._write()
                    self._report(done.cell, left)
        except KeyboardInterrupt:
            self._stop(running.values())
            raise
        return self._write()

    def _take_over(self) -> None:
        """Reads what an earlier call left: finished cells, of this plan or of others."""
        for planned in self.plan.cells:
            folder = self.out / planned.folder
            if planned.config is None or not (folder / CONFIG).is_file():
                continue
            self._check_folder(planned, folder)
            if not (folder / METRICS).is_file():
                self.resumed.add(planned.key)
        if (self.out / RESULTS).is_file():
            self._read_earlier()
        for planned in self.plan.cells:
            folder = self.out / planned.folder
            if planned.config is not None and (folder / METRICS).is_file():
                self._read(planned)

    def _check_folder(self, planned: PlannedCell, folder: Path) -> None:
        assert planned.config is not None
        difference = find_difference(open_run_folder(folder), planned.config)
        checksum = next(
            record.checksum for record in self.plan.datasets if record.name == planned.dataset
        )
        if not difference and (folder / RECORD).is_file():
            there = read_record(folder)["data_checksum"]
            difference = "" if there == checksum else "it was made from other data"
        if difference:
            raise CheckpointError(
                f"A cell that is there must have the settings and data of the plan, but "
                f"'{folder}' has others ({difference}); choose another folder with --out, or "
                f"delete this one."
            )

    def _read_earlier(self) -> None:
        """Keeps the cells of earlier calls that are not planned now, if their row is the same."""
        earlier = read_results(self.out / RESULTS)
        for cell in earlier.cells:
            if cell.resumed:
                self.resumed.add((cell.dataset, cell.row, cell.seed))
        self.started = earlier.started
        mine, theirs = self.plan.experiment, earlier.experiment
        same = ("settings", "overrides", "budget", "split", "rows", "grid", "measures")
        if any(getattr(mine, name) != getattr(theirs, name) for name in same):
            return
        names = {record.name for record in self.plan.datasets}
        kept = [record for record in earlier.datasets if record.name not in names]
        self.datasets = [*self.plan.datasets, *kept]
        for cell in earlier.cells:
            self.cells.setdefault((cell.dataset, cell.row, cell.seed), cell)

    def _announce(self, pending: list[PlannedCell]) -> None:
        report = self.reporter.line
        refused = {
            (cell.dataset, cell.row): cell.reason
            for cell in self.cells.values()
            if cell.status == "refused"
        }
        done = [cell for cell in self.cells.values() if cell.status == "done"]
        for record in self.plan.datasets:
            budget = "" if record.epochs is None else f", {record.epochs} epochs for every network"
            report(
                f"{record.name}: {len(record.rows)} rows x {self.plan.experiment.runs} runs{budget}"
            )
        for (dataset, row), reason in refused.items():
            report(f"{dataset}, {row}: left out. {reason}")
        report(f"cells: {len(done)} done, {len(pending)} to run, {self.parallel} at a time")
        for cell in done:
            self.estimate.add(cell)
        self.estimate.probed = probe_cells(pending, self.estimate, self._make_work, self.context)
        if pending:
            report(self.estimate.describe(pending, self.parallel))

    def _choose(
        self, pending: list[PlannedCell], running: dict[int, _Running]
    ) -> PlannedCell | None:
        """The next cell whose vectors no other one is pre-training at the moment."""
        busy = {
            one.cell.vectors_key
            for one in running.values()
            if not (self.out / one.cell.folder / VECTORS).is_file()
        } - {None}
        return next(
            (
                planned
                for planned in pending
                if planned.vectors_key not in busy or self._find_vectors(planned) is not None
            ),
            None,
        )

    def _find_vectors(self, planned: PlannedCell) -> Path | None:
        """The folder of another cell with the vectors that this one starts from."""
        key = planned.vectors_key
        if key is None:
            return None
        for other in self.plan.cells:
            folder = self.out / other.folder
            if other.vectors_key == key and (folder / VECTORS).is_file():
                return folder
        return None

    def _make_work(self, planned: PlannedCell, slot: int = 0) -> Work:
        return Work(
            cell=planned,
            out=self.out,
            root=self.root,
            vectors=self._find_vectors(planned),
            threads=max(1, torch.get_num_threads() // self.parallel),
            gpu=_choose_gpu(planned, slot),
            environment=dict(os.environ),
        )

    def _start(self, planned: PlannedCell, taken: Iterable[int]) -> _Running:
        slot = min({*range(self.parallel)} - {*taken})
        receive, send = self.context.Pipe(duplex=False)
        process = self.context.Process(
            target=do_work, args=(self._make_work(planned, slot), send), daemon=True
        )
        process.start()
        send.close()
        return _Running(process, receive, planned, slot)

    def _finish(self, done: _Running) -> None:
        done.process.join()
        reason = _hear(done.answer)
        code = done.process.exitcode
        if not reason and code:
            reason = f"The process of the cell ended with exit code {code}; see its log."
        done.answer.close()
        if reason:
            self._fail(done.cell, reason)
        else:
            self._read(done.cell)

    def _read(self, planned: PlannedCell) -> None:
        resumed = planned.key in self.resumed
        try:
            cell = read_cell(planned, self.out, self.plan.experiment, resumed)
        except MatchGraphError as error:
            self._fail(planned, str(error))
            return
        self.cells[planned.key] = cell

    def _fail(self, planned: PlannedCell, reason: str) -> None:
        changes = {"status": "failed", "reason": reason, "finished": _now()}
        self.cells[planned.key] = make_cell(planned).model_copy(update=changes)

    def _report(self, planned: PlannedCell, left: list[PlannedCell]) -> None:
        cell, experiment = self.cells[planned.key], self.plan.experiment
        self.estimate.add(cell)
        if cell.status == "failed":
            self.reporter.warn(f"{planned.title} failed: {cell.reason}")
        else:
            shown = [
                f"{name} {cell.metrics[experiment.split][name]:.4f}" for name in experiment.measures
            ]
            seconds = format_seconds(sum(cell.seconds.values()))
            self.reporter.line(f"{planned.title}: {', '.join(shown)} in {seconds}")
        if left:
            more = self.estimate.describe(left, self.parallel)
            self.reporter.line(f"{len(left)} of {len(self.cells)} cells left, {more}")

    def _write(self) -> Results:
        results = Results(
            experiment=self.plan.experiment,
            machine=self.machine,
            started=self.started,
            updated=_now(),
            datasets=self.datasets,
            cells=sort_cells([*self.cells.values()], self.datasets),
        )
        write_results(self.out, results)
        return results

    def _stop(self, running: Iterable[_Running]) -> None:
        """Lets cells write their records, as they were interrupted too, and ends them."""
        for one in running:
            one.process.join(_PATIENCE)
            one.process.terminate()
            one.process.join()
        self._write()
        left = sum(cell.status == "waiting" for cell in self.cells.values())
        self.reporter.warn(
            f"stopped with {left} of {len(self.cells)} cells left; the same command goes on, with "
            f"--out {self.out}"
        )


def _hear(answer: Connection) -> str:
    """What a process said before it ended; nothing if it said nothing."""
    try:
        return str(answer.recv()) if answer.poll() else ""
    except EOFError:
        return ""


def _choose_gpu(planned: PlannedCell, slot: int) -> str | None:
    assert planned.config is not None
    if planned.config.train.accelerator == "cpu" or not torch.cuda.is_available():
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [*map(str, range(torch.cuda.device_count()))]
    return names[slot % len(names)]


def describe_machine() -> Machine:
    """This machine, without its name."""
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return Machine(
        platform=platform.platform(terse=True),
        processor=platform.processor() or platform.machine(),
        cores=os.cpu_count() or 1,
        gpus=gpus,
        **describe_software(),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
