"""Execution of a benchmark: plan, cells in processes of their own, results after each."""

import os
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from match_graph.benchmark.cell import find_vectors, run_cell
from match_graph.benchmark.estimate import Estimate
from match_graph.benchmark.experiment import Experiment
from match_graph.benchmark.ledger import Ledger
from match_graph.benchmark.plan import Plan, PlannedCell, make_plan
from match_graph.benchmark.probe import probe_cells
from match_graph.benchmark.process import (
    Work,
    describe_error,
    hold_folder,
    run_apart,
    run_on_cluster,
)
from match_graph.benchmark.results import Results
from match_graph.config import Config
from match_graph.datasets import default_root
from match_graph.errors import ConfigError, suggest
from match_graph.io.cluster import Calls, Cluster, LocalCalls
from match_graph.io.names import read_path
from match_graph.io.progress import Reporter, format_seconds
from match_graph.io.run_folder import VECTORS
from match_graph.training.models import find_model


def run_benchmark(
    experiment: Experiment,
    out: str | Path,
    root: str | Path | None = None,
    cluster: Cluster | None = None,
    reporter: Reporter | None = None,
    rows: Sequence[str] | None = None,
) -> Results:
    """Runs the cells of an experiment that are not finished yet.

    Every cell is an ordinary run folder in ``OUT/cells/DATASET/ROW/seedN``, run in a process of its
    own, with the log of the process beside it. Finished cells are kept, interrupted ones are
    resumed, failed ones are tried again. ``results.json`` is written after every cell. Cells of
    the same pre-training share its vectors: the first one pre-trains, the others link its file.

    Args:
        experiment: Experiment to run.
        out: Folder of the benchmark; new, or of the same experiment.
        root: Root folder of built data; None takes the default.
        cluster: Cluster whose processes run the cells, each in a process of its own there; None
            runs one after another. They must see the same files under the same paths.
        reporter: Progress reporter; None prints nothing.
        rows: Names of rows to run now; the others wait for a later call. None runs all.

    Raises:
        CheckpointError: A folder in ``out`` is of other settings or data, or another benchmark runs
            there.
        ConfigError: There is no such row, or a data set lacks documents of the experiment's split.
        KeyboardInterrupt: Passed on, after cells have stopped and results are written.
    """
    out = read_path(out, "A folder of results").resolve()
    reporter = reporter or Reporter(quiet=True)
    place = str(Path(root or default_root()).resolve())
    with hold_folder(out, "benchmark"):
        plan = make_plan(experiment, place, reporter)
        _check_splits(plan)
        names = choose_rows(rows, plan)
        return _Benchmark(plan, out, place, cluster, reporter).run(names)


def _check_splits(plan: Plan) -> None:
    """Checks that there are documents to measure on, before anything is trained."""
    split = plan.experiment.split
    for record in plan.datasets:
        if split not in record.documents:
            advice = "take 'split: valid'" if split == "test" else "split the data"
            raise ConfigError(
                f"A data set of a benchmark must have {split} documents, but '{record.name}' has "
                f"none; {advice}."
            )


def choose_rows(rows: Sequence[str] | None, plan: Plan) -> Sequence[str]:
    """Names of rows to run; the rows of all data sets unless some are given.

    The name that a row has in the file stands for all rows that it expands to, one for each
    metadata field or point of the grid.

    Raises:
        ConfigError: There is no such row, or it expands to none as no data set has fields.
    """
    there = {row.name: [row.name] for record in plan.datasets for row in record.rows}
    if rows is None:
        return list(there)
    fields = list(dict.fromkeys(name for record in plan.datasets for name in record.fields))
    for row in plan.experiment.rows:
        there.setdefault(row.name, [one.name for one in plan.experiment.expand_row(row, fields)])
    if unknown := [name for name in rows if name not in there]:
        raise ConfigError(
            f"The rows to run must be rows of the experiment, which are {list(there)}, found "
            f"{unknown}; {suggest(unknown[0], list(there))}."
        )
    if empty := [name for name in rows if not there[name]]:
        raise ConfigError(
            f"'{empty[0]}' is a row for each field of metadata, but none of the data sets "
            f"{[record.name for record in plan.datasets]} has any; leave the row out, or name "
            f"another data set."
        )
    return [name for chosen in rows for name in there[chosen]]


class _Benchmark:
    """Running benchmark.

    Args:
        plan: Plan of the benchmark.
        out: Folder of the benchmark, absolute.
        root: Root folder of built data.
        cluster: Cluster that runs the cells; None runs one at a time.
        reporter: Progress reporter.
    """

    def __init__(
        self, plan: Plan, out: Path, root: str, cluster: Cluster | None, reporter: Reporter
    ) -> None:
        self.plan, self.out, self.root = plan, out, root
        self.cluster, self.reporter = cluster, reporter
        self.ledger = Ledger(plan, out, reporter)
        self.estimate = Estimate()

    def run(self, rows: Sequence[str]) -> Results:
        pending = [one for one in self.ledger.find_pending() if one.row.name in rows]
        self._announce(pending)
        self.ledger.write()
        running: list[PlannedCell] = []
        with nullcontext(LocalCalls()) if self.cluster is None else self.cluster.open_calls() as to:
            try:
                self._run(pending, running, to)
            except KeyboardInterrupt:
                to.cancel()
                self._warn_stopped()
                raise
        return self.ledger.write()

    def _run(self, pending: list[PlannedCell], running: list[PlannedCell], calls: Calls) -> None:
        function = run_apart if self.cluster is None else run_on_cluster
        if pending:
            self.reporter.line(self.estimate.describe(pending, calls.number))
        while pending or running:
            while len(running) < calls.number and (ready := self._choose(pending, running)):
                pending.remove(ready)
                running.append(ready)
                calls.submit(ready, function, self._make_work(ready), takes_gpu(ready.config))
            if (ended := calls.wait()) is None:
                continue
            planned, reason = ended
            running.remove(planned)
            self._finish(planned, reason)
            self.ledger.write()
            self._report(planned, [*pending, *running], calls.number)

    def _announce(self, pending: list[PlannedCell]) -> None:
        report = self.reporter.line
        refused = {(cell.dataset, cell.row): cell.reason for cell in self.plan.refused}
        done = [cell for cell in self.ledger.cells.values() if cell.status == "done"]
        for record in self.plan.datasets:
            epochs = record.epochs
            budget = "" if epochs is None else f", epochs of networks that set none: {epochs}"
            report(
                f"{record.name}: {len(record.rows)} rows x {self.plan.experiment.runs} runs{budget}"
            )
        nowhere = {row for _, row in refused} - {cell.key[1] for cell in self.plan.cells}
        for (dataset, row), reason in refused.items():
            tell = self.reporter.warn if row in nowhere else report
            tell(f"{dataset}, {row}: left out. {reason}")
        threads = self.plan.experiment.threads
        at_a_time = ", one at a time (--workers runs more)" if self.cluster is None else ""
        report(
            f"cells: {len(done)} done, {len(pending)} to run with {threads} "
            f"thread{'s' * (threads > 1)} each{at_a_time}"
        )
        if others := len(self.ledger.find_pending()) - len(pending):
            report(f"cells of other rows, left to a later call: {others}")
        for cell in done:
            if not cell.published:  # another machine's seconds
                self.estimate.add(cell)
        if any(self.estimate.seconds_of(planned.key[:2]) is None for planned in pending):
            report("measuring a few steps of every network, for an estimate of the time")
        probe_cells(pending, self.estimate, self._make_work)
        for dataset, once in self.estimate.embedding.items():
            if once:
                report(f"{dataset}, texts to embed: about {format_seconds(once)}, once")
        for kind in dict.fromkeys(planned.key[:2] for planned in pending):
            seconds = self.estimate.seconds_of(kind)
            known = None if seconds is None else f"about {format_seconds(seconds)} a run"
            report(f"{kind[0]}, {kind[1]}: {known or 'time not known yet'}")

    def _choose(self, pending: list[PlannedCell], running: list[PlannedCell]) -> PlannedCell | None:
        """First cell that need not wait for vectors which a running cell pre-trains; or None."""
        busy = {
            one.vectors_key for one in running if not (self.out / one.folder / VECTORS).is_file()
        } - {None}
        return next(
            (
                planned
                for planned in pending
                if planned.vectors_key not in busy
                or find_vectors(planned, self.plan.cells, self.out) is not None
            ),
            None,
        )

    def _make_work(self, planned: PlannedCell) -> Work:
        return Work(
            cell=planned,
            out=self.out,
            root=self.root,
            vectors=find_vectors(planned, self.plan.cells, self.out),
            threads=self.plan.experiment.threads,
            environment=find_environment(self.cluster),
            function=partial(run_cell, split=self.plan.experiment.split),
        )

    def _finish(self, planned: PlannedCell, reason: str | Exception) -> None:
        """Records how a cell has ended; an error of its call, such as a cluster's, is a reason."""
        if isinstance(reason, Exception):
            reason = describe_error(reason)
        if reason:
            self.ledger.fail(planned, reason)
        else:
            self.ledger.read(planned)

    def _report(self, planned: PlannedCell, left: list[PlannedCell], number: int) -> None:
        cell, experiment = self.ledger.cells[planned.key], self.plan.experiment
        self.estimate.add(cell)
        if cell.status == "failed":
            self.reporter.warn(f"{planned.title} failed: {cell.reason}")
        else:
            values = cell.metrics[experiment.split]
            shown = [f"{name} {values[name]:.4f}" for name in experiment.measures if name in values]
            seconds = format_seconds(sum(cell.seconds.values()))
            self.reporter.line(f"{planned.title}: {', '.join(shown)} in {seconds}")
        if left:
            more = self.estimate.describe(left, number)
            self.reporter.line(f"{len(left)} of {len(self.ledger.cells)} cells left, {more}")

    def _warn_stopped(self) -> None:
        self.ledger.write()
        left = sum(cell.status == "waiting" for cell in self.ledger.cells.values())
        self.reporter.warn(
            f"stopped with {left} of {len(self.ledger.cells)} cells left; the same command goes "
            f"on, with --out {shlex.quote(str(self.out))}"
        )


def takes_gpu(config: Config) -> bool:
    """Whether a cell takes a GPU where there is one."""
    return config.train.accelerator != "cpu" and find_model(config).is_neural


def find_environment(cluster: Cluster | None) -> dict[str, str]:
    """Environment variables for a cell: this process's, of which a cluster takes our own alone."""
    return {
        name: value
        for name, value in os.environ.items()
        if cluster is None or name.startswith("MATCH_GRAPH_")
    }
