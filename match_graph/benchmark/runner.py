"""Execution of a benchmark: plan, cells in processes of their own, results after each."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from match_graph.benchmark.cell import Work, do_work, make_context, start_process
from match_graph.benchmark.estimate import Estimate, format_seconds
from match_graph.benchmark.experiment import Experiment
from match_graph.benchmark.ledger import Ledger
from match_graph.benchmark.plan import Plan, PlannedCell, make_plan
from match_graph.benchmark.probe import probe_cells
from match_graph.benchmark.results import Results
from match_graph.datasets.dataset import default_root
from match_graph.errors import CheckpointError, ConfigError
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import VECTORS
from match_graph.openmp import limit_spinning

#: How long a stopped cell has to write its record before it is ended.
_PATIENCE = 10.0


def run_benchmark(
    experiment: Experiment,
    out: str | Path,
    root: str | Path | None = None,
    parallel: int = 1,
    reporter: Reporter | None = None,
    rows: Sequence[str] | None = None,
) -> Results:
    """Runs the cells of an experiment that are not finished yet.

    Every cell is an ordinary run folder in ``OUT/cells/DATASET/ROW/seedN``, run in a process of its
    own; beside it lies what the process printed. Finished cells are kept, stopped ones go on where
    they were, failed ones are tried again. ``results.json`` is written after every cell. Cells
    that start from equal vectors share them: the first pre-trains, the others link its file.

    Args:
        experiment: Experiment to run.
        out: Folder of the benchmark; new, or of the same experiment.
        root: Root folder of built data; None takes the default.
        parallel: Number of cells that run at a time, over all GPUs, or over shares of the threads.
        reporter: Progress reporter; None prints nothing.
        rows: Names of rows to run now; the others wait for a later call. None runs all.

    Raises:
        CheckpointError: A folder in ``out`` is of other settings or data, or another benchmark runs
            there.
        ConfigError: There is no such row.
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
        names = _choose_rows(rows, plan)
        return _Benchmark(plan, out, place, parallel, reporter).run(names)
    finally:
        lock.release()


def _choose_rows(rows: Sequence[str] | None, plan: Plan) -> Sequence[str]:
    there = list(dict.fromkeys(row.name for record in plan.datasets for row in record.rows))
    if unknown := [name for name in rows or [] if name not in there]:
        raise ConfigError(
            f"The rows to run must be rows of the experiment, which are {there}, found {unknown}."
        )
    return there if rows is None else rows


@dataclass(frozen=True)
class _Running:
    """Running process of a cell."""

    process: BaseProcess
    answer: Connection
    cell: PlannedCell
    slot: int


class _Benchmark:
    """Running benchmark.

    Args:
        plan: Plan of the benchmark.
        out: Folder of the benchmark, absolute.
        root: Root folder of built data.
        parallel: Number of cells at a time.
        reporter: Progress reporter.
    """

    def __init__(self, plan: Plan, out: Path, root: str, parallel: int, reporter: Reporter) -> None:
        self.plan, self.out, self.root = plan, out, root
        self.parallel, self.reporter = parallel, reporter
        self.ledger = Ledger(plan, out, reporter)
        self.estimate = Estimate()
        limit_spinning()  # of the cells' processes, wherever this one was started
        self.context = make_context()

    def run(self, rows: Sequence[str]) -> Results:
        pending = [one for one in self.ledger.find_pending() if one.row.name in rows]
        self._announce(pending)
        self.ledger.write()
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
                    self.ledger.write()
                    self._report(done.cell, left)
        except KeyboardInterrupt:
            self._stop(running.values())
            raise
        return self.ledger.write()

    def _announce(self, pending: list[PlannedCell]) -> None:
        report = self.reporter.line
        refused = {(cell.dataset, cell.row): cell.reason for cell in self.plan.refused}
        done = [cell for cell in self.ledger.cells.values() if cell.status == "done"]
        for record in self.plan.datasets:
            budget = "" if record.epochs is None else f", epochs of every network: {record.epochs}"
            report(
                f"{record.name}: {len(record.rows)} rows x {self.plan.experiment.runs} runs{budget}"
            )
        for (dataset, row), reason in refused.items():
            report(f"{dataset}, {row}: left out. {reason}")
        report(f"cells: {len(done)} done, {len(pending)} to run, {self.parallel} at a time")
        if others := len(self.ledger.find_pending()) - len(pending):
            report(f"cells of other rows, left to a later call: {others}")
        for cell in done:
            self.estimate.add(cell)
        if any(self.estimate.seconds_of(planned.key[:2]) is None for planned in pending):
            report("measuring a few steps of every network, for an estimate of the time")
        probe_cells(pending, self.estimate, self._make_work, self.context)
        for dataset, once in self.estimate.embedding.items():
            if once:
                report(f"{dataset}, texts to embed: about {format_seconds(once)}, once")
        for kind in dict.fromkeys(planned.key[:2] for planned in pending):
            seconds = self.estimate.seconds_of(kind)
            known = "not known yet" if seconds is None else f"about {format_seconds(seconds)}"
            report(f"{kind[0]}, {kind[1]}: {known} a run")
        if pending:
            report(self.estimate.describe(pending, self.parallel))

    def _choose(
        self, pending: list[PlannedCell], running: dict[int, _Running]
    ) -> PlannedCell | None:
        """Next cell whose vectors no other one is pre-training at the moment."""
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
        """Run folder of another cell with the vectors that this one starts from."""
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
        process, receive = start_process(self.context, do_work, self._make_work(planned, slot))
        return _Running(process, receive, planned, slot)

    def _finish(self, done: _Running) -> None:
        done.process.join()
        reason = _hear(done.answer)
        code = done.process.exitcode
        if not reason and code:
            reason = f"The process of the cell ended with exit code {code}; see its log."
        done.answer.close()
        if reason:
            self.ledger.fail(done.cell, reason)
        else:
            self.ledger.read(done.cell)

    def _report(self, planned: PlannedCell, left: list[PlannedCell]) -> None:
        cell, experiment = self.ledger.cells[planned.key], self.plan.experiment
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
            self.reporter.line(f"{len(left)} of {len(self.ledger.cells)} cells left, {more}")

    def _stop(self, running: Iterable[_Running]) -> None:
        """Interrupts cells so that they write their records, and ends them."""
        for one in running:
            one.process.join(_PATIENCE)
            one.process.terminate()
            one.process.join()
        self.ledger.write()
        left = sum(cell.status == "waiting" for cell in self.ledger.cells.values())
        self.reporter.warn(
            f"stopped with {left} of {len(self.ledger.cells)} cells left; the same command goes "
            f"on, with --out {self.out}"
        )


def _hear(answer: Connection) -> str:
    """Reason that an ended process has sent; empty if there is none."""
    try:
        return str(answer.recv()) if answer.poll() else ""
    except (EOFError, OSError):  # it was ended before, or amid what it said
        return ""


def _choose_gpu(planned: PlannedCell, slot: int) -> str | None:
    if planned.config.train.accelerator == "cpu" or not torch.cuda.is_available():
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [*map(str, range(torch.cuda.device_count()))]
    return names[slot % len(names)]
