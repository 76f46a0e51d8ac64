"""Further commands: speed, export, report, share."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from match_graph.cli.app import echo
from match_graph.cli.options import (
    DatasetArgument,
    DeviceOption,
    Finished,
    JsonOption,
    QuietOption,
    Settings,
    command,
)
from match_graph.io import Reporter


@command()
def speed(
    data: Settings,
    stage: Annotated[
        str,
        typer.Argument(
            metavar="STAGE",
            help="build, sample, pretrain, step, targets, hypernymy, predict, all of these; or "
            "scaling (corpora of its own), sharding (two processes), read, export.",
        ),
    ],
    size: Annotated[
        Literal["debtags", "50k", "mag-cs", "pubmed"],
        typer.Option(
            "--size",
            help="Debian's packages, or planted corpora: 50,000 documents, the paper's sizes.",
        ),
    ] = "debtags",
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", help="A data set by name or folder, instead of --size."),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=86_400, help="Seconds per stage.")
    ] = 30.0,
    busy: Annotated[
        int,
        typer.Option(
            "--busy", min=0, max=1024, help="Measure beside so many busy processes too, in turns."
        ),
    ] = 0,
    json_lines: JsonOption = False,
    curve: Annotated[
        Path | None,
        typer.Option(
            "--curve",
            help="Instead, held-out ranks of pre-training against seconds: "
            "the folder for a table and a figure.",
        ),
    ] = None,
) -> None:
    """Measure how fast a stage is, against a baseline in the same process."""
    from match_graph.report.time_to_quality import check_curve, write_time_to_quality
    from match_graph.speed import OWN_CORPORA, SPEED_SIZES, check_stage, measure_speed
    from match_graph.training.device import choose_device

    if curve is not None and (busy or json_lines):
        raise typer.BadParameter(
            "a curve is measured without --busy and --json", param_hint="--curve"
        )
    check_stage(stage, busy)  # before a data set is built
    if curve is not None:
        check_curve(stage)
    if stage in OWN_CORPORA:
        if dataset is not None:
            raise typer.BadParameter(
                f"'{stage}' measures corpora of its own", param_hint="--dataset"
            )
        dataset = "synthetic"  # not measured, and not downloaded either
    name, options = SPEED_SIZES[size] if dataset is None else (dataset, {})
    resolved = data.load()
    built = data.open_dataset(name, resolved, Reporter(quiet=True), **options)
    device = choose_device(resolved.train.accelerator)
    if curve is not None:
        write_time_to_quality(curve, built, resolved, seconds, device, echo)
        return
    for found in measure_speed(stage, built, resolved, seconds, device, busy, Reporter()):
        if json_lines:
            echo(json.dumps(found.to_dict(), ensure_ascii=False))
        else:
            echo("  ".join(f"{name}={value}" for name, value in found.to_dict().items()))


@command()
def export(
    dataset: DatasetArgument,
    data: Settings,
    to: Annotated[
        str, typer.Option("--to", help="pyg, ogb, relbench, networkx, parquet or match.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder to make.")],
    features: Annotated[
        str | None,
        typer.Option(help="x of nodes: none, data, ids or pretrained; by default the data's."),
    ] = None,
    include_labels: Annotated[
        str, typer.Option(help="Gold labels of which documents: none, train or all.")
    ] = "train",
    text: Annotated[
        str | None, typer.Option(help="Texts: none, raw or words; by default the target's.")
    ] = None,
    run_folder: Annotated[
        Path | None, typer.Option("--run", help="The run whose vectors are x; else trained.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the export that is there.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Export the graph to another library's format, verified by reading it back."""
    from match_graph.export import export_dataset, find_target, parse_options

    resolved, reporter = data.load(), Reporter(quiet)
    find_target(to)  # before a data set is built
    options = parse_options(features=features, include_labels=include_labels, text=text)
    built = data.open_dataset(dataset, resolved, reporter)
    echo(export_dataset(built, to, out, options, run_folder, resolved, overwrite, reporter))


@command()
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN|BENCHMARK", help="An evaluated run, or a benchmark.")
    ],
    options: Finished,
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file; report.html in the folder.")
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", help="Another run, for the case studies of a run; repeatable."),
    ] = None,
    document: Annotated[
        list[str] | None,
        typer.Option("--document", metavar="ID", help="A document of case studies; repeatable."),
    ] = None,
    num_documents: Annotated[
        int,
        typer.Option(
            "--num-documents",
            min=0,
            max=1000,
            help="Documents drawn without --document; 0: no texts.",
        ),
    ] = 3,
    row: Annotated[
        list[str] | None,
        typer.Option(
            "--row", metavar="NAME", help="A benchmark's row in case studies; repeatable."
        ),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Write one self-contained HTML file of a run or a benchmark."""
    from match_graph.report import write_report

    page = write_report(
        folder, out, against or [], document or [], num_documents, options.root, device,
        Reporter(options.quiet), options.encoder, options.head, options.dataset, row or [],
    )  # fmt: skip
    echo(page)


@command()
def share(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="An evaluated run.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to make.")],
    license: Annotated[  # noqa: A002 - as the hub calls it
        str | None, typer.Option("--license", help="Licence of the weights, such as mit.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the shared folder that is there.")
    ] = False,
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="OWNER/NAME", help="Upload it to the Hugging Face hub too."),
    ] = None,
) -> None:
    """Write what predictions need of a run into one folder, with a model card."""
    from match_graph.predict import push_run, share_run

    made = share_run(folder, out, license, overwrite)
    echo(made if push is None else push_run(made, push))
