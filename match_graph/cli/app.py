"""Typer application and shared options."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from match_graph import __version__
from match_graph.errors import MatchGraphError
from match_graph.io import Reporter
from match_graph.io.escape import escape_controls

if TYPE_CHECKING:
    from match_graph.runs import Run

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
    typer.Option(
        "--preset", metavar="NAME", help="The encoder's preset: paper or own; your settings win."
    ),
]
OutOption = Annotated[Path | None, typer.Option("--out", help="The run folder.")]
SeedOption = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of all randomness.")
]
EncoderOption = Annotated[
    str | None, typer.Option("--encoder", help="An encoder's name or module:Class.")
]
ConfirmEncoder = Annotated[
    str | None, typer.Option("--encoder", help="To confirm the run's own module:Class.")
]
ConfirmHead = Annotated[
    str | None, typer.Option("--head", help="To confirm the own module:Class of its head.")
]
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
RootOption = Annotated[Path | None, typer.Option("--root", help="Root folder of built data.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Delete an existing run.")]
DevicesOption = Annotated[
    int | None,
    typer.Option("--devices", min=1, max=4096, help="Devices per machine, a process each."),
]
NodesOption = Annotated[
    int | None, typer.Option("--num-nodes", min=1, max=2**16, help="Number of machines.")
]
StrategyOption = Annotated[
    str | None, typer.Option("--strategy", help="auto, ddp, or fsdp: a sharded model.")
]
DeterministicOption = Annotated[
    bool, typer.Option("--deterministic", help="Bit-identical results on CUDA too, but slower.")
]
VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Check the SHA-256 of every file, also of large ones.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress.")]


def echo(value: object) -> None:
    """Prints a line on standard output, control characters escaped."""
    typer.echo(escape_controls(str(value)))


@app.callback(invoke_without_command=True)
def _options(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        echo(__version__)
        raise typer.Exit


def start(
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
) -> "Run":
    """Starts a run with settings from file, options and command line."""
    from match_graph.runs import start_run
    from match_graph.runs.configure import load_preset_config
    from match_graph.training.models import find_model

    named = [] if seed is None else [f"seed={seed}"]
    named += [f"ablation={json.dumps(ablation, ensure_ascii=False)}"] if ablation else []
    named += [] if encoder is None else [f"model.encoder={encoder}"]
    resolved = load_preset_config(config, [*(settings or []), *named], preset)
    find_model(resolved).check_used()
    return start_run(dataset, resolved, out, root, overwrite, Reporter(quiet))


def with_word_vectors(settings: list[str] | None, path: Path | None) -> list[str]:
    """Given settings and those that a file of word vectors stands for."""
    if path is None:
        return [*(settings or [])]
    quoted = json.dumps(str(path), ensure_ascii=False)  # a YAML string, whatever the name
    return [*(settings or []), "model.init=word_vectors", f"model.word_vectors={quoted}"]


def training_settings(
    settings: list[str] | None,
    word_vectors: Path | None,
    devices: int | None,
    num_nodes: int | None,
    strategy: str | None,
    deterministic: bool,
) -> list[str]:
    """Settings that the flags of a training stand for, besides those given."""
    settings = with_word_vectors(settings, word_vectors)
    settings += [f"train.{name}={value}" for name, value in share(devices, num_nodes, strategy)]
    return [*settings, "train.deterministic=true"] if deterministic else settings


def share(
    devices: int | None, num_nodes: int | None, strategy: str | None
) -> list[tuple[str, Any]]:
    """Given settings of devices and machines."""
    given = {"devices": devices, "num_nodes": num_nodes, "strategy": strategy}
    return [(name, value) for name, value in given.items() if value is not None]


def drop_output() -> None:
    """Discards buffered standard output: a full disk would refuse it again at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Console script: errors of match-graph are one sentence and exit code 1."""
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk is said here, not at exit
    except MatchGraphError as error:
        sys.stderr.write(f"Error: {escape_controls(str(error))}\n")
        sys.exit(1)
    except OSError as error:
        which = (
            f"'{escape_controls(str(error.filename))}'"
            if error.filename is not None
            else "one of them"
        )
        reason = error.strerror or str(error)
        sys.stderr.write(
            f"Error: Files must be readable and writable, but {which} is not "
            f"({reason}); check the path, its permissions and the space on the disk.\n"
        )
        if error.filename is None:
            drop_output()
        sys.exit(1)
