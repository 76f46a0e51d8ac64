"""Commands on experiments: benchmark, tune."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from match_graph.cli.app import echo
from match_graph.cli.options import (
    QuietOption,
    Repeated,
    RootOption,
    SetOption,
    Workers,
    command,
)
from match_graph.errors import MatchGraphError, format_command
from match_graph.io import Reporter
from match_graph.io.escape import SafeConsole

if TYPE_CHECKING:
    from match_graph.benchmark import Experiment, Results, RowSearch


#: Characters of a row's name that are printed on one line.
_MAX_NAME = 40


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(Workers):
    """Experiment with the command line's changes, and the workers that run it."""

    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT", help="A YAML file, or a name such as comparison or encoders."
        ),
    ]
    dataset: Annotated[
        Repeated,
        typer.Option("--dataset", help="A data set instead of the file's; repeatable."),
    ] = None
    row: Annotated[
        Repeated,
        typer.Option("--row", help="Run this row only, the others later; repeatable."),
    ] = None
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=2**32 - 1, help="First seed.")
    ] = None
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder; by default below runs/.")
    ] = None
    settings: SetOption = None
    root: RootOption = None
    encoder: Annotated[
        Repeated,
        typer.Option("--encoder", help="An encoder of your own to be imported; repeatable."),
    ] = None
    head: Annotated[
        Repeated,
        typer.Option("--head", help="A head of your own to be imported; repeatable."),
    ] = None
    quiet: QuietOption = False

    def load(self, runs: int | None = None) -> "Experiment":
        """Experiment with the command line's changes."""
        from match_graph.benchmark import load_experiment

        code = [*(self.encoder or []), *(self.head or [])]
        changes = self.dataset, runs, self.seed, self.settings, code
        return load_experiment(self.experiment, *changes)


@command("benchmark")
def run_experiment(
    options: ExperimentOptions,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, max=10_000, help="Seeds per row.")
    ] = None,
) -> None:
    """Run an experiment: rows x data sets x seeds, resumable, with tables and figures."""
    from match_graph.benchmark import run_benchmark
    from match_graph.benchmark.results import describe_failures
    from match_graph.report import write_tables

    experiment, reporter = options.load(runs), Reporter(options.quiet)
    folder = options.out or Path("runs") / experiment.name
    cluster = options.find_cluster(reporter)
    results = run_benchmark(experiment, folder, options.root, cluster, reporter, options.row)
    paths = write_tables(folder, results, reporter)
    _print_results(results)
    for path in paths:
        echo(path)
    if fault := describe_failures(results):
        raise MatchGraphError(fault)


@command()
def tune(
    options: ExperimentOptions,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, max=10_000, help="Trials of each row.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0.01, max=10**6, help="Minutes of all trials of a row."),
    ] = None,
) -> None:
    """Search the settings of an experiment's rows by validation, with equal budgets."""
    from match_graph.benchmark import run_search

    experiment, reporter = options.load(), Reporter(options.quiet)
    given = {"trials": trials, "minutes": minutes}
    changes = {name: value for name, value in given.items() if value is not None}
    search = experiment.search.model_copy(update=changes)
    experiment = experiment.model_copy(update={"search": search})
    folder = options.out or Path("runs") / f"{experiment.name}-search"
    cluster = options.find_cluster(reporter)
    found = run_search(experiment, folder, options.root, cluster, reporter, options.row)
    _print_search(found, search.measure)
    echo(folder / "trials.csv")
    echo(format_command("benchmark", folder / "tuned.yaml", "--runs", 5))
    if failed := [one.row.name for one in found if one.best is None]:
        raise MatchGraphError(
            f"A row must have a trial that ends, but all trials of {failed} failed; see 'reason' "
            f"in '{folder / 'trials.csv'}'."
        )


def _print_results(results: "Results") -> None:
    """Prints the means of a benchmark, a table for each data set."""
    from match_graph.report.summary import (
        describe_dataset_twins,
        describe_policies,
        summarize,
    )
    from match_graph.report.tables import fraction

    experiment, console = results.experiment, SafeConsole()
    for record in results.datasets:
        summaries = summarize(results, record.name)
        rows = [row for row in summaries if row.runs]
        widest = max((len(row.name) for row in rows), default=0)
        for measures in _fit_columns(experiment.measures, console.width - min(widest, _MAX_NAME)):
            table = Table(record.name, *measures, "runs")
            table.columns[0].overflow = "fold"
            for column in table.columns[1:]:
                column.justify, column.overflow = "right", "fold"
            for row in rows:
                values = [row.measured.get(measure) for measure in measures]
                cells = [
                    Text("-") if one is None else Text(fraction(one.mean), "bold" * one.is_best)
                    for one in values
                ]
                table.add_row(Text(row.name), *cells, str(row.runs))
            console.print(table)
        if others := [row.name for row in summaries if not row.runs]:
            echo(f"Rows without a finished run: {', '.join(others)}.")
        if twins := describe_dataset_twins(record, experiment.split):
            echo(twins)
    policies = describe_policies(experiment.measures)
    echo(f"Means over runs, on {experiment.split}. {policies} Deviations, intervals and tests:")


def _fit_columns(measures: "Sequence[str]", room: int) -> "list[list[str]]":
    """Measures in groups whose columns fit beside the names of rows and the number of runs.

    Args:
        measures: Measures, the columns.
        room: Characters of a line that names of rows leave.
    """
    groups: list[list[str]] = []
    left = 0
    for measure in measures:
        width = max(len(measure), 6) + 3
        if not groups or width > left:
            groups.append([])
            left = room - 11  # borders, and the runs
        groups[-1].append(measure)
        left -= width
    return groups


def _print_search(searches: "Sequence[RowSearch]", measure: str) -> None:
    """Prints the first and the best value of every row, and its best settings."""
    from match_graph.benchmark.search import shorten_value

    table = Table("", "trials", "pruned", "failed", f"first {measure}", "best")
    table.columns[0].overflow = "fold"
    for search in searches:
        best, first = search.best, search.trials[0].value if search.trials else None
        table.add_row(
            Text(search.row.name),
            str(len(search.trials)),
            *(str(search.count(state)) for state in ("PRUNED", "FAIL")),
            *("-" if one is None else f"{one:.4f}" for one in (first, best and best.value)),
        )
    SafeConsole().print(table)
    for search in searches:
        settings = {} if search.best is None else search.find_settings(search.best)
        for key, value in settings.items():
            echo(f"{search.row.name}: {key}={shorten_value(value)}")
