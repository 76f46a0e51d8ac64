"""Options that sub-commands share, each declared once; registration of the sub-commands."""

import json
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from match_graph.config import Config, load_config
from match_graph.errors import ConfigError
from match_graph.io import Reporter
from match_graph.io.cluster import Cluster

if TYPE_CHECKING:
    from match_graph.datasets import CorpusDataset
    from match_graph.runs import Run

app = typer.Typer(
    name="match-graph",
    help="Classify documents with metadata into a large label hierarchy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

W = TypeVar("W", bound=Callable[..., None])

DatasetArgument = Annotated[
    str, typer.Argument(metavar="DATASET", help="A name, a folder, module:Class or file.py:Class.")
]
Repeated = list[str] | None
SetOption = Annotated[
    Repeated, typer.Option("--set", metavar="KEY=VALUE", help="One setting; repeatable.")
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", min=0, max=2**32 - 1, help="Seed of all randomness.")
]
RootOption = Annotated[Path | None, typer.Option("--root", help="Root folder of built data.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
BatchSizeOption = Annotated[int, typer.Option(min=1, max=2**20, help="Documents per batch.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def command(name: str | None = None) -> Callable[[W], W]:
    """Registers a sub-command, of which an argument that is a dataclass stands for its fields.

    Args:
        name: Name of the sub-command; None takes the function's.
    """

    def register(work: W) -> W:
        hints = get_type_hints(work, include_extras=True)
        groups: dict[str, Any] = {key: one for key, one in hints.items() if is_dataclass(one)}
        parameters = []
        for key, parameter in signature(work).parameters.items():
            listed = {key: parameter.default}
            if group := groups.get(key):
                hints |= get_type_hints(group, include_extras=True)
                listed = {
                    one.name: Parameter.empty if one.default is MISSING else one.default
                    for one in fields(group)
                }
            parameters += [
                Parameter(one, Parameter.KEYWORD_ONLY, default=default, annotation=hints[one])
                for one, default in listed.items()
            ]

        def run(**given: Any) -> None:
            for key, group in groups.items():
                given[key] = group(**{one.name: given.pop(one.name) for one in fields(group)})
            work(**given)

        run.__name__, run.__doc__ = work.__name__, work.__doc__
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        app.command(name)(run)
        return work

    return register


def _set(key: str, value: object) -> str:
    """A setting in the form of --set, its value as YAML, so that a string stays a string."""
    return f"{key}={json.dumps(value, ensure_ascii=False)}"


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Dask workers that share the work."""

    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, max=4096, help="Dask processes of this machine."),
    ] = None
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="Dask cluster instead."),
    ] = None

    def find_cluster(self, reporter: Reporter, memory: str | None = None) -> Cluster | None:
        """Dask cluster that shares the work; None without options that ask for one."""
        given = self.workers, self.scheduler, memory
        return None if given == (None, None, None) else Cluster(*given, reporter.line)


@dataclass(frozen=True, kw_only=True)
class LimitedWorkers(Workers):
    """Dask workers with a limit of memory, for builds and predictions of files."""

    worker_memory: Annotated[
        str | None, typer.Option("--worker-memory", help="Memory of each of them, such as 3GiB.")
    ] = None

    def find_cluster(self, reporter: Reporter, memory: str | None = None) -> Cluster | None:
        return super().find_cluster(reporter, memory or self.worker_memory)


@dataclass(frozen=True, kw_only=True)
class Settings(LimitedWorkers):
    """Settings from a file and options, and where and by which workers data are built."""

    config: Annotated[Path | None, typer.Option("--config", help="A YAML file of settings.")] = None
    settings: SetOption = None
    root: RootOption = None

    def load(self) -> Config:
        """Resolved settings."""
        return load_config(self.config, self.settings)

    def open_dataset(
        self, name: str, config: Config, reporter: Reporter, **options: Any
    ) -> "CorpusDataset":
        """Data set opened with its settings, which override ``options``."""
        from match_graph.datasets import open_dataset

        options |= config.data.dataset_options()
        options |= {"track": reporter.track, "cluster": self.find_cluster(reporter)}
        return open_dataset(name, root=self.root, **options)


@dataclass(frozen=True, kw_only=True)
class Start(Settings):
    """Start of a run."""

    dataset: DatasetArgument
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help="The encoder's preset, listed by `encoders NAME`; your settings win.",
        ),
    ] = None
    out: Annotated[Path | None, typer.Option("--out", help="The run folder.")] = None
    seed: SeedOption = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete an existing run.")] = False
    quiet: QuietOption = False
    ablation: Annotated[
        Repeated,
        typer.Option(
            "--ablation",
            metavar="NAME",
            help="Leave out: no-metadata, no-FIELD, no-hierarchy, no-pretrain; repeatable.",
        ),
    ] = None

    def name_settings(self) -> list[str]:
        """Settings given by --set, then those of the flags."""
        named = [*(self.settings or [])]
        named += [] if self.seed is None else [f"seed={self.seed}"]
        if self.ablation:
            named.append(_set("ablation", self.ablation))
        return named

    def start(self) -> "Run":
        """Run with settings from file, options and command line."""
        from match_graph.runs import start_run
        from match_graph.runs.configure import load_preset_config
        from match_graph.training.models import find_model

        resolved = load_preset_config(self.config, self.name_settings(), self.preset)
        file = load_config(self.config)  # a run's names its data set, and holds all settings
        find_model(resolved).check_used(file if file.dataset else None)
        reporter = Reporter(self.quiet)
        if self.find_cluster(reporter) is not None:  # built by it, and found by the run
            self.open_dataset(self.dataset, resolved, reporter)
        return start_run(self.dataset, resolved, self.out, self.root, self.overwrite, reporter)


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Devices and machines that share a training or an evaluation."""

    devices: Annotated[
        int | None,
        typer.Option(
            "--devices",
            min=1,
            max=4096,
            help="Devices per machine, a process each; train.accelerator says which.",
        ),
    ] = None
    num_nodes: Annotated[
        int | None, typer.Option("--num-nodes", min=1, max=2**16, help="Number of machines.")
    ] = None
    strategy: Annotated[
        str | None, typer.Option("--strategy", help="auto, ddp, or fsdp: a sharded model.")
    ] = None

    @property
    def sharing(self) -> dict[str, int | str]:
        """Given settings of devices and machines."""
        names = ("devices", "num_nodes", "strategy")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Pretrain(Devices, Start):
    """Start of a run that several processes may share."""

    def name_settings(self) -> list[str]:
        named = super().name_settings()
        return named + [_set(f"train.{name}", value) for name, value in self.sharing.items()]


@dataclass(frozen=True, kw_only=True)
class Train(Pretrain):
    """Start of a run that trains."""

    encoder: Annotated[
        str | None, typer.Option("--encoder", help="A name, module:Class or file.py:Class.")
    ] = None
    word_vectors: Annotated[
        Path | None,
        typer.Option("--word-vectors", help="GloVe or word2vec text that words start from."),
    ] = None
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Bit-identical results on CUDA too, but slower.")
    ] = False
    logger: Annotated[
        str | None, typer.Option("--logger", help="tensorboard, csv, wandb, mlflow or none.")
    ] = None
    profile: Annotated[
        bool, typer.Option("--profile", help="Profile some training steps into RUN/profile/.")
    ] = False

    def name_settings(self) -> list[str]:
        named = super().name_settings()
        if self.word_vectors is not None:
            named += ["model.init=word_vectors", _set("model.word_vectors", str(self.word_vectors))]
        named += ["train.deterministic=true"] if self.deterministic else []
        named += [] if self.logger is None else [_set("train.logger", self.logger)]
        return named + ([] if self.encoder is None else [_set("model.encoder", self.encoder)])

    def start(self) -> "Run":
        run = super().start()
        run.profiled = self.profile
        return run

    def repeat(self, runs: int) -> "Iterator[Train]":
        """Options of runs with the seeds from the first one on, each with a folder of its own."""
        from match_graph.training.launch import is_by_torchrun

        config = load_config(self.config, self.name_settings())
        if is_by_torchrun() or config.train.devices * config.train.num_nodes > 1:
            raise ConfigError(
                "Runs of several seeds are of one process each, found --runs beside several "
                "devices, machines or torchrun; give each seed its own command with --seed."
            )
        if config.seed + runs > 2**32:
            raise ConfigError(
                f"Seeds must be below 2^32, found {config.seed + runs - 1:,} by --runs; start with "
                f"a lower --seed."
            )
        for seed in range(config.seed, config.seed + runs):
            out = None if self.out is None else self.out / f"seed{seed}"
            yield replace(self, seed=seed, out=out)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """An existing run: root of its data, and confirmation of a user's own code."""

    root: RootOption = None
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="To confirm a class of your own.")
    ] = None
    head: Annotated[str | None, typer.Option("--head", help="To confirm a head of your own.")] = (
        None
    )
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="To confirm a data set class of your own.")
    ] = None
    quiet: QuietOption = False


VerifyOption = Annotated[
    bool, typer.Option("--verify", help="Check the SHA-256 of every file, also of large ones.")
]
