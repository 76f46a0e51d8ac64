"""Commands on experiments: benchmark, tune."""

from pathlib import Path
from typing import Annotated

import typer

from match_graph.cli.app import echo
from match_graph.cli.options import (
    QuietOption,
    Repeated,
    RootOption,
    SetOption,
    Workers,
    command,
)
from match_graph.errors import MatchGraphError
from match_graph.io import Reporter


@command("benchmark")
def run_experiment(
    workers: Workers,
    experiment: Annotated[
        Path, typer.Argument(metavar="EXPERIMENT", help="A YAML file, as in experiments/.")
    ],
    dataset: Annotated[
        Repeated,
        typer.Option("--dataset", help="A data set instead of the file's; repeatable."),
    ] = None,
    row: Annotated[
        Repeated,
        typer.Option("--row", help="Run this row only, the others later; repeatable."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, max=10_000, help="Seeds per row.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=2**32 - 1, help="First seed.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The benchmark's folder; by default runs/EXPERIMENT."),
    ] = None,
    settings: SetOption = None,
    root: RootOption = None,
    encoder: Annotated[
        Repeated,
        typer.Option("--encoder", help="An encoder of your own to be imported; repeatable."),
    ] = None,
    head: Annotated[
        Repeated,
        typer.Option("--head", help="A head of your own to be imported; repeatable."),
    ] = None,
    quiet: QuietOption = False,
) -> None:
    """Run an experiment: rows x data sets x seeds, resumable, with tables and figures."""
    from match_graph.benchmark import load_experiment, run_benchmark
    from match_graph.benchmark.results import describe_failures
    from match_graph.report import write_tables

    code = [*(encoder or []), *(head or [])]
    question = load_experiment(experiment, dataset, runs, seed, settings, code)
    folder = out or Path("runs") / question.name
    reporter = Reporter(quiet)
    cluster = workers.find_cluster(reporter)
    results = run_benchmark(question, folder, root, cluster, reporter, row)
    for path in write_tables(folder, results, reporter):
        echo(path)
    if fault := describe_failures(results):
        raise MatchGraphError(fault)
