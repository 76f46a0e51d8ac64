"""Opening of runs: data set, settings, folder and processes."""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from match_graph.config import SHARING, Config, FeatureSource, TrainConfig, parse_settings
from match_graph.datasets import CorpusDataset, Source, name_source, open_dataset
from match_graph.errors import CheckpointError, ConfigError, CorpusError, MatchGraphError
from match_graph.graph import DropFields
from match_graph.io.files import has_file
from match_graph.io.names import read_path
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import CONFIG, RECORD
from match_graph.own_code import shorten_code
from match_graph.runs.checks import check_model, check_word_vectors
from match_graph.runs.configure import locate_config, settle_config
from match_graph.runs.features import join_features, keep_features, write_features
from match_graph.runs.folder import (
    check_own_code,
    claim_run_folder,
    in_use,
    open_run_folder,
    verify_run_folder,
)
from match_graph.runs.inputs import check_inputs, hash_inputs
from match_graph.runs.known_graph import write_known_graph
from match_graph.runs.readers import check_has_data, read_record
from match_graph.runs.run import Run
from match_graph.runs.vocabulary import write_vocabulary
from match_graph.training.device import deterministic, make_fabric
from match_graph.training.heartbeat import shared
from match_graph.training.launch import count_processes
from match_graph.training.loggers import check_logger
from match_graph.training.models import find_model
from match_graph.training.processes import lead, lead_all
from match_graph.typing import DOCUMENT, MASKS, Split

#: Share of documents with a label that have its parent too, below which coherence is a mistake.
_MOSTLY_CLOSED = 0.5


@shared
def start_run(
    source: Source,
    config: Config,
    folder: str | Path | None = None,
    root: str | Path | None = None,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    features: Mapping[str, Any] | None = None,
) -> Run:
    """Opens the data set, settles the configuration, and makes or resumes the run folder.

    Args:
        source: Data set, as for `open_dataset`: a name, a folder, a class of one's own, or an
            object (`Corpus`, `HeteroData`, open data set), of which the run names the built folder.
        config: Configuration; what depends on the corpus is filled in.
        folder: Run folder; None takes `default_folder`.
        root: Root folder of built data; None takes the default.
        overwrite: Whether to delete an existing run folder.
        reporter: Progress reporter; None prints nothing.
        features: Features in memory by node type, beside those of ``config.data.features``: arrays
            or tensors [num_nodes, F] in the order of the graph, or data frames by id. They are kept
            below the root, so that the run can be opened without them.

    Raises:
        CorpusError: The data set or its features are broken, or a split that a run needs is empty.
        CheckpointError: The folder is of something else.
        ConfigError: The configuration or the reporter is none, ``overwrite`` is no truth value, or
            settings do not go together.
    """
    if not isinstance(config, Config):
        raise ConfigError(
            f"The configuration must be a match_graph.Config, found {config!r:.60}; make one with "
            f"match_graph.load_config."
        )
    if not isinstance(overwrite, bool):  # "false" would delete a run
        raise ConfigError(f"overwrite must be True or False, found {overwrite!r:.60}.")
    folder = None if folder is None else read_path(folder, "A run folder")
    train = count_processes(config.train)
    fabric, reporter = _launch(config, train, reporter)
    start = time.monotonic()
    name = lead_all(fabric, lambda: name_source(source, root, reporter.track))
    config = locate_config(name, config.model_copy(update={"train": train}))
    dataset, sources = _open_together(fabric, name, config, root, reporter, features)
    config = config.change("data", features=sources)
    elapsed = time.monotonic() - start
    _check_splits(dataset, source if isinstance(source, str) else dataset.name)
    config = settle_config(config, dataset)
    folder = default_folder(dataset.name, config) if folder is None else folder
    run = Run(folder, config, dataset, reporter, fabric)
    check_model(run)
    check_logger(config.train.logger)
    if overwrite or not (folder / CONFIG).is_file():
        check_word_vectors(config.model)
    lead(fabric, lambda: _claim(run, overwrite, elapsed))
    _check_is_seen(run)
    reporter.line(f"build: {dataset.graph.num_nodes(DOCUMENT):,} documents in {elapsed:.1f} s")
    if unread := [name for name in sources if not run.model.reads_features(name)]:
        reporter.warn(
            f"features of {unread} are read by no part of this model; choose one that reads them "
            f"(those of labels: model.head=label_graph), or leave them out of data.features"
        )
    if len(dataset.documents(MASKS["test"])) and not _has_labels(dataset, "test"):
        reporter.warn(
            "no test document has a label, so that measures of test are 0 and say nothing; check "
            "the labels of these documents where the data set is made"
        )
    if config.model.coherent:
        _tell_coherent(dataset.closed_share, reporter)
    return run


def _tell_coherent(share: float, reporter: Reporter) -> None:
    """Says that scores will be coherent; warns where few documents have a label's parent too."""
    if share < _MOSTLY_CLOSED:
        reporter.warn(
            f"a coherent output ranks no label above its parents, but of the training documents "
            f"with a label only {share:.0%} have its parent too (mean of the hierarchy's edges), "
            f"and most rankings will be wrong; leave model.coherent out"
        )
    else:
        reporter.line(
            f"coherent: no label will score below its descendants, as {share:.0%} of the training "
            f"documents with a label have its parent too"
        )


def _launch(
    config: Config, train: TrainConfig, reporter: Reporter | None
) -> tuple[Fabric, Reporter]:
    """Launches the processes; the reporter is quiet on all but the first.

    Parameters may be unused in a step of graph and custom encoders.

    Raises:
        ConfigError: The reporter is none.
    """
    if reporter and not isinstance(reporter, Reporter):
        raise ConfigError(
            f"A reporter must be a match_graph.Reporter, found {reporter!r:.60}; make one with "
            f"match_graph.Reporter(), or leave it out."
        )
    fabric = make_fabric(train, find_model(config).may_leave_unused)
    return fabric, reporter if reporter and fabric.is_global_zero else Reporter(quiet=True)


def _open_together(
    fabric: Fabric,
    name: str,
    config: Config,
    root: str | Path | None,
    reporter: Reporter,
    features: Mapping[str, Any] | None = None,
) -> tuple[CorpusDataset, dict[str, FeatureSource]]:
    """Opens the data set with its features, built by the first process if need be.

    Returns:
        The data set, and the sources of its features: those of the configuration, and the files
        that keep those in memory.
    """

    def open_data() -> tuple[CorpusDataset, dict[str, FeatureSource]]:
        options = config.data.dataset_options()
        dataset = open_dataset(name, root=root, track=reporter.track, **options)
        kept = keep_features(dataset, {} if features is None else features, root, reporter)
        sources = {**config.data.features, **kept}
        join_features(dataset, sources, root, reporter)
        return dataset, sources

    with deterministic(config.train, fabric.device):  # a language model computes features there
        dataset, sources = lead_all(fabric, open_data)
    for line in dataset.warnings if fabric.is_global_zero else ():
        reporter.warn(line)
    return dataset, sources


def default_folder(dataset_name: str, config: Config) -> Path:
    """Default run folder: ``runs/DATASET-ENCODER-seedN``, ablations after the encoder."""
    encoder = shorten_code(config.model.encoder).replace(".py:", ":").replace(":", ".")
    parts = [dataset_name, encoder, *config.ablation]
    return Path("runs") / "-".join([*parts, f"seed{config.seed}"])


def _check_splits(dataset: CorpusDataset, name: str) -> None:
    if not len(dataset.documents(MASKS["valid"])):
        raise CorpusError(
            f"A run chooses its weights on the validation split, but '{name}' has no "
            f"document there; move some of the training documents to it."
        )
    if not _has_labels(dataset, "train"):
        raise CorpusError(
            f"A run learns from labels, but no training document of '{name}' has one; "
            f"check the key 'label' of its documents."
        )
    if not _has_labels(dataset, "valid"):
        raise CorpusError(
            f"A run chooses its weights by labels of validation documents, but none of '{name}' "
            f"has one; check the key 'label' of its documents, export them with --include-labels "
            f"all, or, in a HeteroData, join them to their labels too."
        )


def _has_labels(dataset: CorpusDataset, split: Split) -> bool:
    return bool(dataset.targets.count(dataset.documents(MASKS[split])).any())


def _claim(run: Run, overwrite: bool, build_seconds: float) -> None:
    try:
        claim_run_folder(run.folder, run.config, overwrite)
    except CheckpointError:
        if _is_of_source(run):
            _check_data(run)  # settings that follow from the data differ where these do
        raise
    with in_use(run.folder):
        _check_data(run)
        run.record.seconds.setdefault("build", build_seconds)
        run.record.write()
        write_features(run.folder, run.dataset)
        write_vocabulary(run.folder, run.dataset, run.space, run.dataset.hierarchy)
        if run.graphs is not None:
            write_known_graph(run.folder, run.dataset, run.space, run.config.data.transductive)


def _is_of_source(run: Run) -> bool:
    """True if the run already in the folder was made from the same data set and options."""
    with suppress(MatchGraphError):
        there = open_run_folder(run.folder)
        return (there.dataset, there.data) == (run.config.dataset, run.config.data)
    return False


def _check_is_seen(run: Run) -> None:
    if not (run.folder / CONFIG).is_file():
        raise CheckpointError(
            f"All processes of a run must see its folder, but process {run.fabric.global_rank} "
            f"does not find '{run.shown}'; choose one on a disk that the machines share "
            f"(out, --out)."
        )


@shared
def open_run(
    folder: str | Path,
    root: str | Path | None = None,
    reporter: Reporter | None = None,
    encoder: str | None = None,
    head: str | None = None,
    dataset: str | None = None,
    sharing: Mapping[str, Any] | None = None,
    verify: bool = False,
) -> Run:
    """Opens an existing run with its data set.

    Args:
        folder: Run folder.
        root: Root folder of built data; None takes the default.
        reporter: Progress reporter; None prints nothing.
        encoder: Encoder; must be given if the run's is of one's own (``module:Class``,
            ``file.py:Class``), and equal it.
        head: Head; likewise.
        dataset: Data set; likewise.
        sharing: Device settings: ``devices``, ``num_nodes`` and ``strategy`` as in ``train``; None
            takes one process, however many trained the run.
        verify: Whether to verify all checksums, as for `load`.

    Raises:
        CheckpointError: The folder is not a run, or a shared one, its data set has changed, or it
            names code of one's own that the caller did not name.
    """
    folder = read_path(folder, "A run folder")
    if verify:
        verify_run_folder(folder)
    config = open_run_folder(folder)
    check_has_data(folder)
    check_own_code(folder, config, {"encoder": encoder, "head": head, "dataset": dataset})
    alone = TrainConfig().model_dump(include={*SHARING})
    content = {**config.train.model_dump(), **alone, **(sharing or {})}
    train = count_processes(parse_settings(TrainConfig, content, "The settings must be valid"))
    fabric, reporter = _launch(config, train, reporter)
    opened, _ = _open_together(fabric, config.dataset, config, root, reporter)
    opened.transform = DropFields(config.data.drop_fields)
    run = Run(folder, config, opened, reporter, fabric)
    _check_data(run)
    return run


def _check_data(run: Run) -> None:
    path = run.folder / RECORD
    if not has_file(path):
        return
    record = read_record(run.folder)
    if record["data_checksum"] != run.dataset.checksum:
        raise CheckpointError(
            f"The run in '{run.shown}' was made from other data than '{run.config.dataset}' holds "
            f"now; restore the data, or make the run again (overwrite=True, --overwrite)."
        )
    there, here = record.get("feature_checksums", {}), run.dataset.feature_digests
    if changed := sorted(name for name in {*there, *here} if there.get(name) != here.get(name)):
        raise CheckpointError(
            f"The run in '{run.shown}' was made with other features of {changed} than "
            f"data.features gives now; restore them, or make the run again (overwrite=True, "
            f"--overwrite)."
        )
    check_inputs(run.shown, record, hash_inputs(run.config))
