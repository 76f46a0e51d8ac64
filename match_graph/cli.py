"""One sub-command per stage: parse, call, print."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from match_graph import __version__
from match_graph.config import load_config
from match_graph.datasets import list_datasets, open_dataset
from match_graph.errors import MatchGraphError
from match_graph.graph import compare_counts, describe_graph
from match_graph.training import Reporter, Run, load, open_run, start_run
from match_graph.training.catalogue import SIZE, list_models
from match_graph.training.files import METRICS
from match_graph.training.predictions import STREAM, predict_lines
from match_graph.training.settings import load_named_config
from match_graph.training.summary import list_files, next_commands, show_examples

app = typer.Typer(
    name="match-graph",
    help="Classify documents with metadata into a large label hierarchy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

DatasetArgument = Annotated[
    str, typer.Argument(metavar="DATASET", help="A registered name or a folder in MATCH format.")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="A YAML file of settings.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One setting; repeatable.")
]
PresetOption = Annotated[
    str | None,
    typer.Option("--settings", metavar="NAME", help="The encoder's own below yours: paper, own."),
]
OutOption = Annotated[Path | None, typer.Option("--out", help="The run folder.")]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="Of everything random.")]
EncoderOption = Annotated[str | None, typer.Option("--encoder", help="A name or module:Class.")]
ConfirmEncoder = Annotated[
    str | None, typer.Option("--encoder", help="To confirm the run's own module:Class.")
]
ConfirmHead = Annotated[str | None, typer.Option("--head", help="Likewise for its head.")]
WordVectorsOption = Annotated[
    Path | None,
    typer.Option("--word-vectors", help="GloVe or word2vec text that words start from."),
]
AblationOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ablation",
        metavar="NAME",
        help="Leave out: no-metadata, no-FIELD, no-hierarchy, no-pretrain; repeatable.",
    ),
]
RootOption = Annotated[Path | None, typer.Option("--root", help="Where built data go.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Delete the run that is there.")]
DevicesOption = Annotated[
    int | None, typer.Option("--devices", min=1, help="Of each machine, a process each.")
]
NodesOption = Annotated[int | None, typer.Option("--num-nodes", min=1, help="Machines.")]
StrategyOption = Annotated[
    str | None, typer.Option("--strategy", help="auto, ddp, or fsdp: a model in parts.")
]
DeterministicOption = Annotated[
    bool, typer.Option("--deterministic", help="The same to the bit on CUDA too, but slower.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress.")]


@app.command("run")
def run_line(
    dataset: DatasetArgument,
    config: ConfigOption = None,
    settings: SetOption = None,
    preset: PresetOption = None,
    out: OutOption = None,
    seed: SeedOption = None,
    encoder: EncoderOption = None,
    root: RootOption = None,
    overwrite: OverwriteOption = False,
    quiet: QuietOption = False,
    word_vectors: WordVectorsOption = None,
    ablation: AblationOption = None,
    devices: DevicesOption = None,
    num_nodes: NodesOption = None,
    strategy: StrategyOption = None,
    deterministic: DeterministicOption = False,
) -> None:
    """The whole line: build, pre-train, train, evaluate."""
    settings = _with_word_vectors(settings, word_vectors)
    settings += [f"train.{name}={value}" for name, value in _share(devices, num_nodes, strategy)]
    settings += ["train.deterministic=true"] if deterministic else []
    run = _start(
        dataset, config, settings, preset, out, seed, encoder, root, overwrite, quiet, ablation
    )
    if (run.folder / METRICS).is_file():
        run.reporter.line(f"This run is finished; --overwrite runs it again: {run.folder}")
    else:
        run.train()
        run.evaluate()
    if run.leads:
        _print_metrics(run)
        _print_examples(run)
        _print_paths(run)


@app.command()
def build(
    dataset: DatasetArgument,
    config: ConfigOption = None,
    settings: SetOption = None,
    root: RootOption = None,
    quiet: QuietOption = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="A folder for REPORT.md and its pictures.")
    ] = None,
) -> None:
    """Build the graph and print its statistics (Table 1 of the paper)."""
    options = load_config(config, settings).data.dataset_options()
    built = open_dataset(dataset, root=root, track=Reporter(quiet).track, **options)
    rows = {**describe_graph(built[0], built.targets), **built.notes}
    published = compare_counts(rows, built.published)
    table = Table("", built.name, *(["published", "difference"] if published else []))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, value in rows.items():
        shown = [value, *published.get(name, ())]
        cells = [f"{v:,.3f}" if isinstance(v, float) else f"{v:,}" for v in shown]
        table.add_row(name.replace("_", " "), *cells)
    Console().print(table)
    if report is not None:
        from match_graph.export import write_report

        for path in write_report(built, report, Reporter(quiet)):
            typer.echo(path)


@app.command()
def pretrain(
    dataset: DatasetArgument,
    config: ConfigOption = None,
    settings: SetOption = None,
    preset: PresetOption = None,
    out: OutOption = None,
    seed: SeedOption = None,
    root: RootOption = None,
    overwrite: OverwriteOption = False,
    quiet: QuietOption = False,
    ablation: AblationOption = None,
    text: Annotated[bool, typer.Option("--text", help="Also write word2vec text.")] = False,
    measure: Annotated[
        bool,
        typer.Option("--evaluate", help="Hold out 5 % of the pairs and rank them; no vectors."),
    ] = False,
) -> None:
    """Pre-train unit vectors into a run folder; with --evaluate, measure such vectors instead."""
    run = _start(
        dataset, config, settings, preset, out, seed, None, root, overwrite, quiet, ablation
    )
    if not measure:
        run.pretrain()
    if not run.leads:
        return
    if measure:
        _print_quality(run.pretraining.evaluate())
    if text:
        typer.echo(run.pretraining.write_text())
    typer.echo(run.folder)


@app.command()
def speed(
    stage: Annotated[
        str,
        typer.Argument(
            metavar="STAGE",
            help="build, sample, pretrain, step, targets, hypernymy, predict, all, or scaling.",
        ),
    ],
    size: Annotated[
        Literal["debtags", "mag-cs", "pubmed"],
        typer.Option("--size", help="Debian's packages, or planted corpora of the paper's sizes."),
    ] = "debtags",
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="As DATASET elsewhere, instead of --size.")
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Per stage.")] = 30.0,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    root: RootOption = None,
) -> None:
    """Measure how fast a stage is, against a baseline in the same process."""
    from match_graph.benchmark import SPEED_SIZES, measure_speed
    from match_graph.training.device import choose_device

    resolved = load_config(config, settings)
    name, options = SPEED_SIZES[size] if dataset is None else (dataset, {})
    built = open_dataset(name, root=root, **{**options, **resolved.data.dataset_options()})
    device = choose_device(resolved.train.accelerator)
    for found in measure_speed(stage, built, resolved, seconds, device):
        if json_lines:
            typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
        else:
            typer.echo("  ".join(f"{name}={value}" for name, value in found.to_dict().items()))


@app.command()
def train(
    dataset: DatasetArgument,
    config: ConfigOption = None,
    settings: SetOption = None,
    preset: PresetOption = None,
    out: OutOption = None,
    seed: SeedOption = None,
    encoder: EncoderOption = None,
    root: RootOption = None,
    overwrite: OverwriteOption = False,
    quiet: QuietOption = False,
    word_vectors: WordVectorsOption = None,
    ablation: AblationOption = None,
    devices: DevicesOption = None,
    num_nodes: NodesOption = None,
    strategy: StrategyOption = None,
    deterministic: DeterministicOption = False,
) -> None:
    """Train in a run folder, from its pre-trained vectors (trained first if there are none)."""
    settings = _with_word_vectors(settings, word_vectors)
    settings += [f"train.{name}={value}" for name, value in _share(devices, num_nodes, strategy)]
    settings += ["train.deterministic=true"] if deterministic else []
    run = _start(
        dataset, config, settings, preset, out, seed, encoder, root, overwrite, quiet, ablation
    )
    run.train()
    if run.leads:
        typer.echo(run.folder)


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    root: RootOption = None,
    encoder: ConfirmEncoder = None,
    head: ConfirmHead = None,
    quiet: QuietOption = False,
    devices: DevicesOption = None,
    num_nodes: NodesOption = None,
    strategy: StrategyOption = None,
) -> None:
    """Evaluate a trained run on its validation and test documents."""
    sharing = dict(_share(devices, num_nodes, strategy))
    run = open_run(folder, root, Reporter(quiet), encoder, head, sharing)
    run.evaluate()
    if run.leads:
        _print_metrics(run)


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A trained run.")],
    source: Annotated[
        str, typer.Option("--input", help="One JSON object a line; - is standard input.")
    ] = STREAM,
    target: Annotated[
        str, typer.Option("--output", help="One JSON object a line; - is standard output.")
    ] = STREAM,
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="Labels per document; 5, or with --threshold all above it."),
    ] = None,
    threshold: Annotated[
        bool, typer.Option("--threshold", help="Labels above the thresholds of `evaluate`.")
    ] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Documents per batch.")] = 256,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    encoder: ConfirmEncoder = None,
    head: ConfirmHead = None,
    quiet: QuietOption = False,
) -> None:
    """Predict the labels of new documents, with the run folder alone."""
    classifier = load(folder, device, encoder, head)
    predict_lines(classifier, source, target, top_k, threshold, batch_size, Reporter(quiet))


@app.command("datasets")
def show_datasets(
    root: RootOption = None,
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """List the registered data sets with licence, size and state."""
    rows = list_datasets(root)
    if json_lines:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
        return
    columns = ("name", "state", "size", "licence", "needs")
    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(row[column]) for column in columns))
    Console().print(table)


@app.command()
def encoders(
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """List encoders, heads and baselines: what they need and give, their size, their paper."""
    entries = list_models()
    if json_lines:
        for entry in entries:
            typer.echo(json.dumps(asdict(entry), ensure_ascii=False))
        return
    table = Table("", "kind", "needs", "gives", "parameters", "with head", "paper")
    for entry in entries:
        sizes = [entry.parameters, entry.parameters_with_head]
        shown = ["-" if size is None else f"{size:,}" for size in sizes]
        needs = ", ".join(entry.needs) or "-"
        paper = entry.paper.partition(", http")[0] or "-"  # the address is in --json
        table.add_row(entry.name, entry.kind, needs, entry.gives, *shown, paper)
    Console().print(table)
    typer.echo(f"Parameters without token embeddings, at {SIZE}.")


@app.command()
def export(
    dataset: DatasetArgument,
    to: Annotated[
        str, typer.Option("--to", help="pyg, ogb, relbench, networkx, parquet or match.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder to make.")],
    features: Annotated[str, typer.Option(help="x of nodes: none, ids or pretrained.")] = "none",
    include_labels: Annotated[
        str, typer.Option(help="Gold labels of which documents: none, train or all.")
    ] = "train",
    text: Annotated[
        str | None, typer.Option(help="none, raw or words; by default the target's.")
    ] = None,
    run_folder: Annotated[
        Path | None, typer.Option("--run", help="The run whose vectors are x; else trained.")
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    root: RootOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the export that is there.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Export the graph to another library's format, verified by reading it back."""
    from match_graph.export import export_dataset, parse_options

    resolved = load_config(config, settings)
    options = parse_options(features=features, include_labels=include_labels, text=text)
    reporter, data_options = Reporter(quiet), resolved.data.dataset_options()
    built = open_dataset(dataset, root=root, track=reporter.track, **data_options)
    typer.echo(export_dataset(built, to, out, options, run_folder, resolved, overwrite, reporter))


@app.callback(invoke_without_command=True)
def _options(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        typer.echo(__version__)
        raise typer.Exit


def _start(
    dataset: str,
    config: Path | None,
    settings: list[str] | None,
    preset: str | None,
    out: Path | None,
    seed: int | None,
    encoder: str | None,
    root: Path | None,
    overwrite: bool,
    quiet: bool,
    ablation: list[str] | None,
) -> Run:
    named = [] if seed is None else [f"seed={seed}"]
    named += [f"ablation={json.dumps(ablation, ensure_ascii=False)}"] if ablation else []
    named += [] if encoder is None else [f"model.encoder={encoder}"]
    resolved = load_named_config(config, [*(settings or []), *named], preset)
    return start_run(dataset, resolved, out, root, overwrite, Reporter(quiet))


def _with_word_vectors(settings: list[str] | None, path: Path | None) -> list[str]:
    if path is None:
        return [*(settings or [])]
    quoted = json.dumps(str(path), ensure_ascii=False)  # a YAML string, whatever the name
    return [*(settings or []), "model.init=word_vectors", f"model.word_vectors={quoted}"]


def _share(
    devices: int | None, num_nodes: int | None, strategy: str | None
) -> list[tuple[str, Any]]:
    given = {"devices": devices, "num_nodes": num_nodes, "strategy": strategy}
    return [(name, value) for name, value in given.items() if value is not None]


def _print_quality(quality: Mapping[str, Any]) -> None:
    console = Console()
    columns = ("mrr", "mrr_filtered", "satisfied", "pairs", "candidates")
    table = Table("held-out pairs", *(name.replace("_", " ") for name in columns))
    for node_type, values in quality["types"].items():
        row = [values[name] for name in columns]
        shown = [f"{value:.4f}" if isinstance(value, float) else f"{value:,}" for value in row]
        table.add_row(f"(document, {node_type})", *shown)
    console.print(table)
    for node_type, neighbours in quality["neighbours"].items():
        for name, near in neighbours.items():
            console.print(f"{node_type} {name}: {', '.join(near)}", markup=False, soft_wrap=True)


def _print_metrics(run: Run) -> None:
    metrics = run.read_metrics()
    table = Table("", "P@1", "P@3", "P@5", "NDCG@1", "NDCG@3", "NDCG@5")
    for split, values in metrics.items():
        table.add_row(split, *_format(values, table))
    if "test" in metrics:
        table.add_row("test, label prior", *_format(run.prior("test"), table))
    console = Console()
    console.print(table)
    trust = metrics.get("test", {})
    if "F1_micro" in trust:
        console.print(
            f"test, at the thresholds chosen on valid: F1 {trust['F1_micro']:.4f} (micro), "
            f"{trust['F1_macro']:.4f} (macro); calibration error of the 5 best labels "
            f"{trust['ECE@5']:.4f}, of all {trust['ECE']:.4f}",
            soft_wrap=True,
        )


def _print_examples(run: Run) -> None:
    console = Console(highlight=False)
    for example in show_examples(run):
        gold = set(example.gold)
        console.rule(Text(example.document), align="left")
        console.print(Text(example.text))
        for field, values in example.metadata.items():
            shown = ", ".join(values[:5]) + (", ..." if len(values) > 5 else "")
            console.print(Text(f"{field}: {shown or '-'}", style="dim"))
        console.print(Text(f"gold: {', '.join(sorted(gold))}"))
        for label, probability in example.predicted:
            mark = "right" if label in gold else "wrong"
            console.print(Text(f"  {probability:.3f}  {mark}  {label}"))
    console.rule(align="left")


def _print_paths(run: Run) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print("Written:")
    for path, content in list_files(run.folder).items():
        console.print(Text(f"  {path}  ({content})"))
    console.print("Next:")
    for command in next_commands(run):
        console.print(Text(f"  {command}"))


def _format(values: Mapping[str, float], table: Table) -> list[str]:
    return [f"{values[str(column.header)]:.4f}" for column in table.columns[1:]]


def main() -> None:
    """The console script: errors of match-graph are one sentence and exit code 1."""
    sys.path.append(str(Path.cwd()))  # so that `--encoder my_file:Class` finds the user's file
    try:
        app()
    except MatchGraphError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        sys.stderr.write(
            f"Error: Files must be readable and writable, but '{error.filename}' is not "
            f"({error.strerror}); check the path, its permissions and the space on the disk.\n"
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
