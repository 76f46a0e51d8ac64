"""Search of settings by validation: trials of rows in processes of their own, resumable."""

import shlex
import shutil
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from match_graph.benchmark.cell import find_vectors
from match_graph.benchmark.experiment import Experiment
from match_graph.benchmark.plan import Plan, PlannedCell, make_plan
from match_graph.benchmark.process import (
    describe_error,
    hold_folder,
    run_apart,
    run_on_cluster,
)
from match_graph.benchmark.row_search import (
    JOURNAL,
    RowSearch,
    begin,
    change_row,
    check_spaces,
    list_trials,
    open_earlier,
    open_searches,
)
from match_graph.benchmark.runner import find_environment, takes_gpu
from match_graph.benchmark.trial import PRUNED_ON, SECONDS, TrialWork, read_pruned, run_trial
from match_graph.datasets import default_root
from match_graph.errors import ConfigError, import_extra
from match_graph.io.cluster import Calls, Cluster, LocalCalls
from match_graph.io.files import write_beside, write_text
from match_graph.io.names import read_path
from match_graph.io.progress import Reporter, format_seconds
from match_graph.io.run_folder import CONFIG, HISTORY, METRICS, RECORD
from match_graph.io.yaml import dump_yaml
from match_graph.training.loop import MONITOR

TRIALS, RECORDS, TUNED = "trials", "trials.csv", "tuned.yaml"
#: Files that are kept of a trial's run folders.
_KEPT = frozenset({CONFIG, HISTORY, METRICS, RECORD})
#: Trials with random settings before the sampler learns from them.
_RANDOM_TRIALS = 5


def run_search(
    experiment: Experiment,
    out: str | Path,
    root: str | Path | None = None,
    cluster: Cluster | None = None,
    reporter: Reporter | None = None,
    rows: Sequence[str] | None = None,
) -> list[RowSearch]:
    """Searches settings of an experiment's rows by validation, with equal budgets; resumable.

    A trial trains a row with sampled settings on every data set; test is never read. The first
    trial takes the row's own settings, where the space contains them; the others are sampled by
    tree-structured Parzen estimators (Bergstra et al., NeurIPS 2011). No point of a finite space
    is repeated before all have been tried, and trials behind the median of others are pruned
    (`run_trial`). Under a limit of minutes, trials that run when it is reached are completed,
    failed trials count, and shared pre-training counts for the first of its rows alone.

    In ``out``: `TUNED`, the experiment with the best settings of every row, and `RECORDS`, all
    trials, both also of other rows by earlier calls; `JOURNAL`, from which a killed search is
    resumed; and `TRIALS`, the files that are kept of their run folders.

    Args:
        experiment: Experiment with spaces; those of all networks, and of rows.
        out: Folder of the search; new, or of the same search.
        root: Root folder of built data; None takes the default.
        cluster: Cluster whose processes run the trials; None runs one after another.
        reporter: Progress reporter; None prints nothing.
        rows: Names of rows to search; None searches all that have a space and no base.

    Raises:
        ConfigError: There is nothing to search, a value of a space is invalid, a data set is for
            reporting alone, or Optuna is not installed.
        CheckpointError: The folder is of another search, or one is at work there.
    """
    import_extra("optuna", "A search", "tune")
    out = read_path(out, "A folder of results").resolve()
    reporter = reporter or Reporter(quiet=True)
    place = str(Path(root or default_root()).resolve())
    with hold_folder(out, "search"):
        check_spaces(experiment)
        plan = make_plan(experiment.model_copy(update={"runs": 1}), place, reporter)
        check_tunable(plan)
        searches = open_searches(plan, out, rows, reporter)
        earlier = open_earlier(plan, out, searches)
        for search in searches:
            begin(plan, search)
        runs = experiment.runs
        return _Searcher(plan, out, place, cluster, reporter, searches, earlier, runs).run()


def check_tunable(plan: Plan) -> None:
    """Checks that no data set of a search is one of those for reporting alone.

    Raises:
        ConfigError: One is.
    """
    reported = plan.experiment.report_on
    if found := [one.name for one in plan.datasets if one.name in reported]:
        raise ConfigError(
            f"A search must be on data sets that settings may be chosen on, found '{found[0]}' in "
            f"'report_on' of the experiment; search on another data set."
        )


class _Searcher:
    """Running search."""

    def __init__(
        self, plan: Plan, out: Path, root: str, cluster: Cluster | None, reporter: Reporter,
        searches: list[RowSearch], earlier: list[RowSearch], runs: int,
    ) -> None:  # fmt: skip
        self.plan, self.out, self.root, self.cluster = plan, out, root, cluster
        self.reporter, self.searches, self.runs = reporter, searches, runs
        names = [row.name for row in plan.experiment.rows]
        self.recorded = sorted([*searches, *earlier], key=lambda one: names.index(one.row.name))
        self.options = plan.experiment.search
        self._begun: dict[tuple[str, int], float] = {}

    def run(self) -> list[RowSearch]:
        for search in self.searches:
            for one in search.trials:
                self._plan_cells(search, one.number)
        lost = [  # left running by a killed call; they are resumed first
            (search, one.number)
            for search in self.searches
            for one in search.trials
            if one.state.name == "RUNNING"
        ]
        self._announce(len(lost))
        running: list[tuple[str, int]] = []
        with nullcontext(LocalCalls()) if self.cluster is None else self.cluster.open_calls() as to:
            try:
                while (due := self._find_due(lost, running)) or running:
                    while due and len(running) < to.number:
                        running += self._submit(*due, to)
                        due = self._find_due(lost, running)
                    if running and (ended := to.wait()) is not None:
                        running.remove(ended[0])
                        self._finish(*ended)
            except KeyboardInterrupt:
                to.cancel()
                self._write()
                out = shlex.quote(str(self.out))
                self.reporter.warn(f"stopped; the same command goes on, with --out {out}")
                raise
        self._write()
        numbers = {one.row.name: len(one.trials) for one in self.recorded}
        if self.options.minutes is None and len({*numbers.values()}) > 1:
            shown = ", ".join(f"{name} {number}" for name, number in numbers.items())
            self.reporter.warn(f"rows have different numbers of trials, not equal budgets: {shown}")
        return self.searches

    def _announce(self, num_lost: int) -> None:
        minutes = self.options.minutes
        limit = "" if minutes is None else f", or {minutes:g} minutes"
        done = sum(len(search.trials) for search in self.searches) - num_lost
        again = f", {num_lost} of them to be resumed" if num_lost else ""
        self.reporter.line(
            f"search of {', '.join(search.row.name for search in self.searches)}: "
            f"{self.options.trials} trials each{limit}, by {self.options.measure} on valid; "
            f"{done + num_lost} are there{again}"
        )

    def _find_due(
        self, lost: list[tuple[RowSearch, int]], running: Iterable[tuple[str, int]]
    ) -> tuple[RowSearch, int | None] | None:
        """Next trial: one to be resumed, else a new one of the row with the fewest trials."""
        if lost:
            return lost.pop(0)
        minutes = self.options.minutes
        due = [
            search
            for search in self.searches
            if len(search.trials) < self.options.trials
            and (minutes is None or search.seconds < 60 * minutes)
        ]
        return (min(due, key=lambda one: len(one.trials)), None) if due else None

    def _submit(self, search: RowSearch, number: int | None, calls: Calls) -> list[tuple[str, int]]:
        """Starts a trial; returns its key in a list, empty if its settings are incompatible."""
        import optuna

        if number is None:
            name = zlib.crc32(search.row.name.encode())
            seed = (self.plan.experiment.seed, name, len(search.trials))
            sampler = optuna.samplers.TPESampler(
                n_startup_trials=_RANDOM_TRIALS,
                multivariate=True,
                constant_liar=True,
                seed=int(np.random.SeedSequence(seed).generate_state(1)[0]),
            )
            number = search.ask(sampler)
        cells = self._plan_cells(search, number)
        if cells is None:
            self._write()
            return []
        key = search.row.name, number
        work = self._make_work(search, number, cells)
        function = run_apart if self.cluster is None else run_on_cluster
        calls.submit(key, function, work, takes_gpu(cells[0].config))
        self._begun[key] = time.monotonic()
        return [key]

    def _plan_cells(self, search: RowSearch, number: int) -> tuple[PlannedCell, ...] | None:
        """Cells of a trial; None if its settings are incompatible, when it is marked as failed."""
        settings = search.find_settings(search.find_trial(number))
        row = change_row(search.row, settings)
        try:
            cells = tuple(
                self.plan.planners[record.name].plan_trial(
                    record, row, f"{TRIALS}/{row.folder_name}/{number:04d}/{record.name}"
                )
                for record in self.plan.datasets
            )
        except ConfigError as error:
            self._fail(search, number, " ".join(str(error).split()))
            return None
        search.planned[number] = cells
        return cells

    def _make_work(
        self, search: RowSearch, number: int, cells: tuple[PlannedCell, ...]
    ) -> TrialWork:
        trial = search.find_trial(number)
        return TrialWork(
            cell=cells[0],
            out=self.out,
            root=self.root,
            vectors=None,
            threads=self.plan.experiment.threads,
            environment=find_environment(self.cluster),
            function=run_trial,
            cells=cells,
            sources=tuple(find_vectors(cell, self._cells, self.out) for cell in cells),
            journal=self.out / JOURNAL,
            row=search.row.name,
            trial_id=trial._trial_id,
            measure=self.options.measure,
        )

    def _finish(self, key: tuple[str, int], reason: str | Exception) -> None:
        """Reports how a trial has ended, as its process wrote to the journal unless it failed."""
        name, number = key
        search = next(one for one in self.searches if one.row.name == name)
        if isinstance(reason, Exception):
            reason = describe_error(reason)
        if search.find_trial(number).state.is_finished():
            self._remove_weights(search.planned[number])
            self._report(search, number)
        else:
            text = reason or "Its process ended without a result; see its log."
            self._fail(search, number, text)
        self._write()

    def _fail(self, search: RowSearch, number: int, text: str) -> None:
        """Marks a trial as failed, unless it has ended already."""
        import optuna

        trial = search.find_trial(number)
        if not trial.state.is_finished():
            noted = optuna.trial.Trial(search.study, trial._trial_id)
            noted.set_user_attr("reason", text)
            if (begun := self._begun.get((search.row.name, number))) is not None:
                noted.set_user_attr(SECONDS, time.monotonic() - begun)  # they count in the budget
            search.study.tell(number, state=optuna.trial.TrialState.FAIL)
            self.reporter.warn(f"{search.row.name}, trial {number + 1} failed: {text}")

    def _remove_weights(self, cells: Iterable[PlannedCell]) -> None:
        """Removes weights and tables of a trial, unless others start from its vectors."""
        for cell in cells:
            folder = self.out / cell.folder
            if find_vectors(cell, self._cells, self.out) == folder:
                continue
            for path in folder.glob("*"):
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name not in _KEPT:
                    path.unlink()

    @property
    def _cells(self) -> list[PlannedCell]:
        """Cells of all trials, in the order in which they began."""
        return [cell for one in self.searches for cells in one.planned.values() for cell in cells]

    def _report(self, search: RowSearch, number: int) -> None:
        trial, best = search.find_trial(number), search.best
        value = "-" if trial.value is None else f"{self.options.measure} {trial.value:.4f}"
        if (pruned := read_pruned(trial)) is not None:
            dataset = trial.user_attrs[PRUNED_ON]
            value = f"pruned with {MONITOR} {pruned:.4f} of the network on {dataset}"
        shown = ", ".join(f"{key}={shorten_value(v)}" for key, v in trial.params.items())
        seconds = trial.user_attrs.get(SECONDS, 0.0)
        highest = "" if best is None or best.value is None else f" (best {best.value:.4f})"
        self.reporter.line(
            f"{search.row.name}, trial {number + 1}: {value}{highest} in "
            f"{format_seconds(seconds)}; {shown}"
        )

    def _write(self) -> None:
        """Writes the record of all trials, and the experiment with the best settings."""
        frame = list_trials(self.recorded)
        write_beside(self.out / RECORDS, lambda beside: frame.to_csv(beside, index=False))
        found = {one.row.name: one.find_settings(one.best) for one in self.recorded if one.best}
        experiment = self.plan.experiment
        rows = [
            row.model_copy(update={"settings": {**row.settings, **found.get(row.name, {})}})
            for row in experiment.rows
        ]
        names = [*experiment.tuned_on, *(record.name for record in self.plan.datasets)]
        update = {
            "rows": rows,
            "name": f"{experiment.name}-tuned",
            "runs": self.runs,
            "tuned_on": [*dict.fromkeys(names)],
        }
        tuned = experiment.model_copy(update=update)
        head = f"# Settings by {self.options.measure} on valid; all trials: {RECORDS}.\n"
        content = tuned.model_dump(mode="json", exclude_defaults=True)
        text = head + dump_yaml(content, sort_keys=False, allow_unicode=True)
        write_text(self.out / TUNED, text)


def shorten_value(value: object) -> str:
    """Value of a setting for a line of the terminal."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
