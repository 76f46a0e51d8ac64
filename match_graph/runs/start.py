"""Opening of runs: data set, settings, folder and processes."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from match_graph.config import SHARING, Config, TrainConfig, parse_settings
from match_graph.datasets import CorpusDataset, open_dataset
from match_graph.errors import CheckpointError, CorpusError
from match_graph.graph import DropFields
from match_graph.io.files import has_file
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import CONFIG, RECORD
from match_graph.runs.checks import check_model
from match_graph.runs.configure import locate_config, settle_config
from match_graph.runs.folder import (
    check_own_code,
    claim_run_folder,
    in_use,
    open_run_folder,
    verify_run_folder,
)
from match_graph.runs.known_graph import write_known_graph
from match_graph.runs.readers import read_record
from match_graph.runs.run import Run
from match_graph.runs.vocabulary import write_vocabulary
from match_graph.training.device import make_fabric
from match_graph.training.heartbeat import shared
from match_graph.training.launch import count_processes
from match_graph.training.models import find_model
from match_graph.training.processes import lead
from match_graph.typing import DOCUMENT, MASKS


@shared
def start_run(
    dataset_name: str,
    config: Config,
    folder: str | Path | None = None,
    root: str | Path | None = None,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> Run:
    """Opens the data set, settles the configuration, and makes or resumes the run folder.

    Args:
        dataset_name: Data set: a registered name, or a folder in the MATCH format.
        config: Configuration; what depends on the corpus is filled in.
        folder: Run folder; None takes `default_folder`.
        root: Root folder of built data; None takes the default.
        overwrite: Whether to delete an existing run folder.
        reporter: Progress reporter; None prints nothing.

    Raises:
        CorpusError: The data set is broken, or a split that a run needs is empty.
        CheckpointError: The folder is of something else.
    """
    train = count_processes(config.train)
    fabric = _launch(config, train)
    reporter = reporter if reporter and fabric.is_global_zero else Reporter(quiet=True)
    config = locate_config(dataset_name, config.model_copy(update={"train": train}))
    start = time.monotonic()
    dataset = _open_together(fabric, dataset_name, config, root, reporter)
    elapsed = time.monotonic() - start
    _check_splits(dataset, dataset_name)
    config = settle_config(config, dataset)
    folder = default_folder(dataset.name, config) if folder is None else Path(folder)
    run = Run(folder, config, dataset, reporter, fabric)
    check_model(run)
    lead(fabric, lambda: _claim(run, overwrite, elapsed))
    _check_is_seen(run)
    reporter.line(f"build: {dataset[0][DOCUMENT].num_nodes:,} documents in {elapsed:.1f} s")
    return run


def _launch(config: Config, train: TrainConfig) -> Fabric:
    """Launches the processes; parameters may be unused in a step of graph and custom encoders."""
    return make_fabric(train, find_model(config).may_leave_unused)


def _open_together(
    fabric: Fabric, name: str, config: Config, root: str | Path | None, reporter: Reporter
) -> CorpusDataset:
    """Opens the data set, built by the first process if need be."""

    def open_data() -> CorpusDataset:
        return open_dataset(name, root=root, track=reporter.track, **config.data.dataset_options())

    dataset = lead(fabric, open_data) or open_data()
    for line in dataset.warnings if fabric.is_global_zero else ():
        reporter.warn(line)
    return dataset


def default_folder(dataset_name: str, config: Config) -> Path:
    """Default run folder: ``runs/DATASET-ENCODER-seedN``, ablations after the encoder."""
    parts = [dataset_name, config.model.encoder.replace(":", "."), *config.ablation]
    return Path("runs") / "-".join([*parts, f"seed{config.seed}"])


def _check_splits(dataset: CorpusDataset, dataset_name: str) -> None:
    if not len(dataset.documents(MASKS["valid"])):
        raise CorpusError(
            f"A run chooses its weights on the validation split, but '{dataset_name}' has no "
            f"document there; move some of the training documents to it."
        )
    if not dataset.targets.count(dataset.documents(MASKS["train"])).any():
        raise CorpusError(
            f"A run learns from labels, but no training document of '{dataset_name}' has one; "
            f"check the key 'label' of its documents."
        )


def _claim(run: Run, overwrite: bool, build_seconds: float) -> None:
    claim_run_folder(run.folder, run.config, overwrite)
    with in_use(run.folder):
        _check_data(run)
        run.record.seconds.setdefault("build", build_seconds)
        run.record.write()
        write_vocabulary(run.folder, run.dataset, run.space, run.dataset.hierarchy)
        if run.graphs is not None:
            write_known_graph(run.folder, run.dataset, run.space, run.config.data.transductive)


def _check_is_seen(run: Run) -> None:
    if not (run.folder / CONFIG).is_file():
        raise CheckpointError(
            f"All processes of a run must see its folder, but process {run.fabric.global_rank} "
            f"does not find '{run.folder}'; choose one on a disk that the machines share with "
            f"--out."
        )


@shared
def open_run(
    folder: str | Path,
    root: str | Path | None = None,
    reporter: Reporter | None = None,
    encoder: str | None = None,
    head: str | None = None,
    sharing: Mapping[str, Any] | None = None,
    verify: bool = False,
) -> Run:
    """Opens an existing run with its data set.

    Args:
        folder: Run folder.
        root: Root folder of built data; None takes the default.
        reporter: Progress reporter; None prints nothing.
        encoder: Encoder; must be given if the run's is ``package.module:Class``, and equal it.
        head: Head; must be given if the run's is ``package.module:Class``, and equal it.
        sharing: Device settings: ``devices``, ``num_nodes`` and ``strategy`` as in ``train``; None
            takes one process, however many trained the run.
        verify: Whether to verify all checksums, as for `load`.

    Raises:
        CheckpointError: The folder is not a run, its data set has changed, or its encoder or head
            is code that was not named.
    """
    folder = Path(folder)
    if verify:
        verify_run_folder(folder)
    config = open_run_folder(folder)
    check_own_code(folder, config, encoder, head)
    content = {**config.train.model_dump(), **TrainConfig().model_dump(include={*SHARING})}
    content.update(sharing or {})
    train = count_processes(parse_settings(TrainConfig, content, "The settings must be valid"))
    fabric = _launch(config, train)
    reporter = reporter if reporter and fabric.is_global_zero else Reporter(quiet=True)
    dataset = _open_together(fabric, config.dataset, config, root, reporter)
    dataset.transform = DropFields(config.data.drop_fields)
    run = Run(folder, config, dataset, reporter, fabric)
    _check_data(run)
    return run


def _check_data(run: Run) -> None:
    path = run.folder / RECORD
    if has_file(path) and read_record(run.folder)["data_checksum"] != run.dataset.checksum:
        raise CheckpointError(
            f"The run in '{run.folder}' was made from other data than '{run.config.dataset}' holds "
            f"now; restore the data, or start again with --overwrite."
        )
