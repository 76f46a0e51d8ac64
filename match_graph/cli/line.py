"""Pipeline commands: run, build, pretrain, train, evaluate, predict."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from match_graph.cli.app import echo
from match_graph.cli.options import (
    BatchSizeOption,
    DatasetArgument,
    DeviceOption,
    Devices,
    Finished,
    LimitedWorkers,
    Pretrain,
    QuietOption,
    Settings,
    Train,
    VerifyOption,
    command,
)
from match_graph.io import Reporter
from match_graph.io.escape import SafeConsole
from match_graph.io.source import is_folder

if TYPE_CHECKING:
    from match_graph.runs import Run

_BATCH_SIZE, _DEVICE = 256, "auto"


@command("run")
def run_line(
    options: Train,
    runs: Annotated[
        int, typer.Option("--runs", min=1, max=10_000, help="Runs of so many seeds, in turn.")
    ] = 1,
) -> None:
    """Run all stages: build, pre-train, train, evaluate."""
    from match_graph.cli.show import print_examples, print_metrics, print_paths, print_runs

    if runs > 1:
        print_runs([_run(one) for one in options.repeat(runs)])
        return
    run = _run(options)
    if run.leads:
        print_metrics(run)
        print_examples(run)
        print_paths(run)


def _run(options: Train) -> "Run":
    run = options.start()
    if run.is_finished:
        run.reporter.line(f"This run is finished; --overwrite runs it again: {run.shown}")
    else:
        run.train()
        run.evaluate()
    return run


@command()
def build(
    dataset: DatasetArgument,
    data: Settings,
    quiet: QuietOption = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="A folder for REPORT.md and its pictures.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every built file with its checksum.")
    ] = False,
) -> None:
    """Build the graph and print its statistics (Table 1 of the paper)."""
    from match_graph.datasets.built import FAULTS
    from match_graph.graph import compare_counts, describe_graph
    from match_graph.runs.configure import check_drop_fields
    from match_graph.runs.features import join_features

    reporter, config = Reporter(quiet), data.load()
    built = data.open_dataset(dataset, config, reporter)
    check_drop_fields(config, built.graph)  # this and the next refuse as a run does
    join_features(built, config.data.features, data.root, reporter)
    for line in built.warnings:
        reporter.warn(line)
    if len(built.faults):
        reporter.line(f"faults, with their files and lines: {built.built / FAULTS}")
    if verify:
        reporter.line(f"verified: the {built.verify()} files of '{built.built}' are whole")
    counts = describe_graph(built.graph, built.targets)
    rows = {**counts, **built.notes}
    published = compare_counts(rows, built.published)
    table = Table("", built.name, *(["published", "difference"] if published else []))
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify, column.overflow = "right", "fold"
    for name, value in rows.items():
        shown = [value, *published.get(name, ())]
        cells = [f"{v:,.3f}" if isinstance(v, float) else f"{v:,}" for v in shown]
        table.add_row(name if name in counts else name.replace("_", " "), *cells)
    SafeConsole().print(table)
    if report is not None:
        from match_graph.report import write_graph_report

        for path in write_graph_report(built, report, Reporter(quiet)):
            echo(path)


@command()
def pretrain(
    options: Pretrain,
    text: Annotated[bool, typer.Option("--text", help="Also write word2vec text.")] = False,
    measure: Annotated[
        bool,
        typer.Option("--evaluate", help="Hold out 5 % of the pairs and rank them; no vectors."),
    ] = False,
) -> None:
    """Pre-train unit vectors into a run folder; with --evaluate, measure such vectors instead."""
    from match_graph.cli.show import print_quality

    if text and measure:
        raise typer.BadParameter("--text writes vectors, but --evaluate trains none to be kept")
    run = options.start()
    quality = run.evaluate_pretraining() if measure else None
    if not measure:
        run.pretrain()
    path = run.pretraining.write_text() if text else None
    if not run.leads:
        return
    if quality is not None:
        print_quality(quality)
    if path is not None:
        echo(path)
    echo(run.shown)


@command()
def train(options: Train) -> None:
    """Train in a run folder, from its pre-trained vectors (trained first if there are none)."""
    run = options.start()
    run.train()
    if run.leads:
        echo(run.shown)


@command()
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    options: Finished,
    devices: Devices,
    workers: LimitedWorkers,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="Documents with labels instead, in files or folders as for predict; repeatable.",
        ),
    ] = None,
    target: Annotated[
        Path | None, typer.Option("--output", help="With --input: the folder for metrics.json.")
    ] = None,
    batch_size: BatchSizeOption = _BATCH_SIZE,
    device: DeviceOption = _DEVICE,
    verify: VerifyOption = False,
) -> None:
    """Evaluate a trained run on its validation and test documents, or on files of documents."""
    from match_graph.cli.show import print_measures, print_metrics
    from match_graph.predict import evaluate_files
    from match_graph.runs import open_run
    from match_graph.runs.folder import verify_run_folder
    from match_graph.training.launch import is_first

    if (source is None) != (target is None):
        raise typer.BadParameter("--input and --output belong together")
    cluster = workers.find_cluster(Reporter(options.quiet))
    if cluster is not None and source is None:
        raise typer.BadParameter("--workers and --scheduler share the files of --input")
    if source is None and (device, batch_size) != (_DEVICE, _BATCH_SIZE):
        raise typer.BadParameter(
            "--device and --batch-size belong to --input; a run's own documents are evaluated "
            "where it was trained (train.accelerator)"
        )
    if source and target:
        if options.root or options.dataset:
            raise typer.BadParameter(
                "--root and --dataset are of a run's own documents, not --input"
            )
        if devices.sharing:
            raise typer.BadParameter("--input is shared by the processes of torchrun alone")
        if verify:
            verify_run_folder(folder)
        measures = evaluate_files(
            folder, source, target, batch_size, device, options.encoder, options.head,
            Reporter(options.quiet), cluster,
        )  # fmt: skip
        if is_first():
            print_measures(measures)
            echo(target)
        return
    code = options.encoder, options.head, options.dataset
    reporter = Reporter(options.quiet)
    run = open_run(folder, options.root, reporter, *code, devices.sharing, verify)
    run.evaluate()
    if run.leads:
        print_metrics(run)


@command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A trained run.")],
    options: Finished,
    workers: LimitedWorkers,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="JSON lines, or CSV by its suffix; - is standard input. Repeatable, or a folder "
            "of .jsonl, .csv and .tsv files: then --output is a folder too.",
        ),
    ] = None,
    target: Annotated[
        str, typer.Option("--output", help="JSON lines; - is standard output. Or a folder.")
    ] = "-",
    top_k: Annotated[
        int | None,
        typer.Option(
            min=1, max=2**31, help="Labels per document; 5, or with --threshold all above it."
        ),
    ] = None,
    threshold: Annotated[
        bool, typer.Option("--threshold", help="Labels at or above the thresholds of `evaluate`.")
    ] = False,
    batch_size: BatchSizeOption = _BATCH_SIZE,
    device: DeviceOption = _DEVICE,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Case studies: of --document of the run's data set, or of --input."
        ),
    ] = False,
    document: Annotated[
        str | None, typer.Option("--document", metavar="ID", help="With --explain.")
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", help="With --explain: another run, side by side; repeatable."),
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="With --explain: as a JSON object a document.")
    ] = False,
    verify: VerifyOption = False,
) -> None:
    """Predict the labels of new documents, with the run folder alone; or explain predictions."""
    from match_graph.cli.show import print_case_study
    from match_graph.predict import (
        compare_variants,
        load,
        open_explainers,
        predict_files,
        predict_lines,
    )
    from match_graph.predict.classifier import DEFAULT_TOP_K
    from match_graph.predict.streams import STREAM, stream_documents
    from match_graph.runs.folder import verify_run_folder
    from match_graph.training.launch import is_by_torchrun

    more = bool(against or options.dataset or options.root or json_lines)
    _check_explain(explain, document, source, more)
    of_files = (target, threshold, batch_size) != ("-", False, _BATCH_SIZE)
    if explain and (of_files or workers.find_cluster(Reporter(quiet=True)) is not None):
        raise typer.BadParameter(
            "--output, --threshold, --batch-size, --workers and --scheduler are of predictions; "
            "--explain prints a study of --document, or of each document of --input"
        )
    if verify:
        verify_run_folder(folder)
    code, reporter = (options.encoder, options.head), Reporter(options.quiet)
    if explain:
        folders, number = [folder, *(against or [])], top_k or DEFAULT_TOP_K
        explainers = open_explainers(
            folders, options.root, device, *code, options.dataset, reporter
        )
        named = iter([("", document or "")])
        if source:
            read = stream_documents(source[0])
            named = explainers[0].classifier.columns.warn_of_unread(read, reporter.warn)
        for place, one in named:
            study = compare_variants(explainers, one, number, place)
            if json_lines:
                echo(study.model_dump_json(indent=2 if source is None else None))
            else:
                print_case_study(study)
        return
    sources, settings = source or [STREAM], (top_k, threshold, batch_size)
    cluster = workers.find_cluster(reporter)
    if cluster is not None or is_by_torchrun() or _are_many(sources, target):
        if target == STREAM:
            raise typer.BadParameter("must be a folder for the results", param_hint="--output")
        predict_files(folder, sources, target, *settings, device, *code, reporter, cluster)
        return
    predict_lines(load(folder, device, *code), sources[0], target, *settings, reporter)


def _are_many(sources: list[str], target: str) -> bool:
    """Whether results are those of `predict_files`."""
    return len(sources) > 1 or is_folder(sources[0]) or target.endswith("/") or is_folder(target)


def _check_explain(
    explain: bool, document: str | None, sources: list[str] | None, more: bool
) -> None:
    if document is not None and not explain:
        raise typer.BadParameter("--document belongs to --explain")
    if explain and (document is None) == (sources is None):
        raise typer.BadParameter("--explain needs --document or --input, one of them")
    if explain and sources and (len(sources) > 1 or is_folder(sources[0])):
        raise typer.BadParameter("--explain takes one file of --input, found several or a folder")
    if more and not explain:
        raise typer.BadParameter("--against, --dataset, --root and --json belong to --explain")
