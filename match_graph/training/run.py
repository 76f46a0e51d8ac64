"""The whole line for one run folder: open, pre-train, train, evaluate; each stage resumes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from match_graph.config import Config
from match_graph.datasets import DATASETS, CorpusDataset, open_dataset, resolve_paths
from match_graph.errors import CheckpointError, CorpusError
from match_graph.graph import (
    DropFields,
    EgoLoader,
    EgoSampler,
    LabelDAG,
    LengthBucketSampler,
    TokenSpace,
)
from match_graph.metrics import CalibrationMeter, F1Meter, ThresholdSearch
from match_graph.nn import MatchModel
from match_graph.training.ablations import resolve_ablations
from match_graph.training.defaults import resolve_config
from match_graph.training.device import choose_device, make_fabric
from match_graph.training.encoder_files import with_encoder_files, write_encoder_files
from match_graph.training.evaluate import Observer, evaluate_model, label_prior
from match_graph.training.files import (
    FITTED,
    METRICS,
    RECORD,
    STATE,
    check_own_code,
    claim_run_folder,
    load_weights,
    open_run_folder,
    read_json,
    write_json,
)
from match_graph.training.fitting import (
    find_encoder,
    fit_baseline,
    is_baseline,
    load_baseline,
    make_baseline,
)
from match_graph.training.loop import Hierarchy, close_training, train_model
from match_graph.training.pretraining import Pretraining
from match_graph.training.progress import Reporter
from match_graph.training.record import describe_process, read_record
from match_graph.training.thresholds import THRESHOLDS, write_thresholds
from match_graph.training.vocabulary import write_vocabulary
from match_graph.typing import DOCUMENT, LABEL, MASKS, Split

#: Documents per batch where nothing is learned.
_EVAL_BATCH = 256


@dataclass
class Run:
    """A run folder with its data set; made by `start_run` or `open_run`.

    Args:
        folder: Of the run.
        config: Resolved.
        dataset: Built.
        reporter: For progress.
    """

    folder: Path
    config: Config
    dataset: CorpusDataset
    reporter: Reporter

    @cached_property
    def space(self) -> TokenSpace:
        """The tokens."""
        return self.dataset.token_space(self.config.data.min_count, self.config.data.min_word_count)

    @cached_property
    def label_dag(self) -> LabelDAG:
        """The label hierarchy."""
        return self.dataset.label_dag

    def loader(self, split: Split, training: bool = False) -> EgoLoader:
        """Batches of a split: shuffled and drawn anew every epoch for training, else in full."""
        data, config = self.dataset[0], self.config
        documents = self.dataset.documents(MASKS[split])
        sampler = EgoSampler(
            data, config.data.max_metadata, config.data.max_words, training, config.seed
        )
        size = config.train.batch_size if training else _EVAL_BATCH
        assert size is not None
        order = LengthBucketSampler(sampler.lengths(documents), size, training, config.seed)
        return EgoLoader(
            data,
            sampler,
            self.space,
            documents,
            self.dataset.targets,
            with_graph="graph" in self.needs,
            texts=self._texts if "text" in self.needs else None,
            batch_sampler=order,
        )

    @cached_property
    def needs(self) -> frozenset[str]:
        """What the encoder needs of a batch."""
        return find_encoder(self.config.model.encoder).needs

    @cached_property
    def _texts(self) -> list[str]:
        table = self.dataset.table(DOCUMENT)
        if "text" not in table:
            raise CorpusError(
                f"The encoder '{self.config.model.encoder}' needs raw texts, but "
                f"'{self.config.dataset}' keeps none; choose another encoder or data set."
            )
        return [str(text) for text in table["text"]]

    def check_model(self) -> None:
        """Wires the model over no tokens and one label, so that a fault shows before work starts.

        Raises:
            ConfigError: As `MatchModel`.
        """
        none_kept = TokenSpace(self.space.types, (0,) * len(self.space.types))
        if is_baseline(self.config.model):
            make_baseline(none_kept, 1, self.config)
        else:
            MatchModel(none_kept, 1, self.config.model)
        choose_device(self.config.train.accelerator)

    def make_model(self) -> MatchModel:
        """A model of the configuration, its parameters drawn by the run's seed."""
        torch.manual_seed(self.config.seed)
        return MatchModel(self.space, self.dataset.num_labels, self.config.model)

    def load_model(self) -> nn.Module:
        """The trained model, or the fitted baseline.

        Raises:
            CheckpointError: There is none, or it is of another configuration.
        """
        if is_baseline(self.config.model):
            num_labels = self.dataset.num_labels
            return load_baseline(self.space, num_labels, self.config, self.folder)
        torch.manual_seed(self.config.seed)
        settings = with_encoder_files(self.config.model, self.folder)
        model = MatchModel(self.space, self.dataset.num_labels, settings)
        load_weights(model, self.folder, self.config.dataset)
        return model

    @cached_property
    def pretraining(self) -> Pretraining:
        """Unit vectors in this run's folder."""
        return Pretraining(self.folder, self.config, self.dataset, self.space, self.reporter)

    def pretrain(self) -> dict[str, Tensor]:
        """Unit vectors of this run, trained once and saved as ``vectors.safetensors``."""
        if self.pretraining.is_done():
            return self.pretraining.train()
        with self._timed("pretrain"):
            vectors = self.pretraining.train()
        self.reporter.line(
            f"pretrain: {self.config.pretrain.samples:,} pairs in {self._seconds['pretrain']:.1f} s"
        )
        return vectors

    def train(self) -> None:
        """Trains the model; the best weights on validation are ``model.safetensors``.

        A baseline is fitted instead; nothing is pre-trained for it.
        """
        config = self.config
        if is_baseline(config.model):
            self._fit_baseline()
            return
        model = self.make_model()
        if config.model.init.startswith("spherical") and not self.pretraining.is_done():
            self.pretrain()
        self.pretraining.initialise(model)
        train_documents = self.dataset.documents(MASKS["train"])
        count = self.dataset.targets.count(train_documents)
        model.head.set_prior(count, len(train_documents))
        if model.wide is not None:
            count = self.space.document_count(self.dataset[0], train_documents)
            model.wide.set_frequencies(count, len(train_documents))
        if not (self.folder / STATE).is_file():  # a new training: older results are not its own
            for name in (METRICS, THRESHOLDS):
                (self.folder / name).unlink(missing_ok=True)
        write_encoder_files(model.encoder, self.folder)
        with self._timed("train"):
            train_model(
                model,
                self.loader("train", training=True),
                self.loader("valid"),
                self._hierarchy(train_documents),
                config.train,
                self.folder,
                config.seed,
                self.reporter,
            )

    def _fit_baseline(self) -> None:
        if (self.folder / FITTED).is_dir():
            return
        baseline = make_baseline(self.space, self.dataset.num_labels, self.config)
        with self._timed("train"):
            fit_baseline(baseline, self.loader("train"), self.folder, self.reporter)
        self.reporter.line(
            f"train: {self.config.model.encoder} fitted in {self._seconds['train']:.1f} s"
        )

    def evaluate(self) -> dict[str, dict[str, float]]:
        """Measures of the trained model on valid and test; written as ``metrics.json``.

        On both: ranking, violations of the hierarchy, calibration. A threshold per label is chosen
        on valid and written as ``thresholds.parquet``; F1 at these thresholds is measured on test.
        """
        model = self.load_model()
        close_training(self.folder, self.config.train)
        fabric = make_fabric(self.config.train)
        model = fabric.setup_module(model)
        search = ThresholdSearch(self.dataset.num_labels)

        def measure(split: Split, *observers: Observer) -> dict[str, float]:
            calibration = CalibrationMeter()
            measures = evaluate_model(
                model, self.loader(split), self.label_dag.edge_index, fabric.device,
                observers=(calibration.update, *observers),
            )  # fmt: skip
            return {**measures, **calibration.compute()}

        with self._timed("evaluate"), fabric.autocast():
            metrics = {"valid": measure("valid", search.update)}
            thresholds = search.compute()
            write_thresholds(self.folder, self.dataset.names(LABEL).tolist(), thresholds)
            if len(self.dataset.documents(MASKS["test"])):
                f1 = F1Meter(thresholds.value)
                metrics["test"] = {**measure("test", f1.update), **f1.compute()}
        write_json(self.folder / METRICS, metrics)
        return metrics

    def read_metrics(self) -> dict[str, dict[str, float]]:
        """What `evaluate` wrote."""
        return read_json(self.folder / METRICS)

    def prior(self, split: Split) -> dict[str, float]:
        """Measures of the ranking by training frequency, for comparison."""
        documents = self.dataset.documents(MASKS[split])
        count = self.dataset.targets.count(self.dataset.documents(MASKS["train"]))
        return label_prior(count, *self.dataset.targets.select(documents))

    def _hierarchy(self, train_documents: Tensor) -> Hierarchy:
        dag, weight = self.label_dag, None
        if self.config.train.edge_weight == "parent_given_child":
            given = dag.parent_given_child(self.dataset.targets, train_documents)
            weight = given.nan_to_num(0.0).float()
        return Hierarchy(dag.edge_index, weight)

    @cached_property
    def _seconds(self) -> dict[str, float]:
        path = self.folder / RECORD
        return dict(read_record(self.folder)["seconds"]) if path.is_file() else {}

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + time.monotonic() - start
            self._write_record()

    def _write_record(self) -> None:
        content = {
            "dataset": self.dataset.name,
            "data_checksum": self.dataset.checksum,
            "seed": self.config.seed,
            "seconds": {name: round(value, 3) for name, value in self._seconds.items()},
        }
        write_json(self.folder / RECORD, {**content, **describe_process(self.config.train)})


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
        dataset_name: A registered name, or a folder in the MATCH format.
        config: Settings; what is left to the corpus is filled in.
        folder: None takes `default_folder`.
        root: Of built data; None takes the default.
        overwrite: Deletes a run folder that is there.
        reporter: For progress; None prints nothing.

    Raises:
        CorpusError: The data set is broken, or a split that a run needs is empty.
        CheckpointError: The folder is of something else.
    """
    reporter = reporter or Reporter(quiet=True)
    start = time.monotonic()
    options = resolve_paths(dataset_name, config.data.options)
    data = config.data.model_copy(update={"options": options})
    config = config.model_copy(update={"data": data})
    dataset = open_dataset(
        dataset_name, root=root, track=reporter.track, **config.data.dataset_options()
    )
    elapsed = time.monotonic() - start
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
    where = dataset_name if dataset_name in DATASETS else str(Path(dataset_name).resolve())
    config = resolve_ablations(config.model_copy(update={"dataset": where}), dataset[0])
    dataset.transform = DropFields(config.data.drop_fields)
    config = resolve_config(config, dataset)
    folder = default_folder(dataset.name, config) if folder is None else Path(folder)
    run = Run(folder, config, dataset, reporter)
    run.check_model()
    claim_run_folder(folder, config, overwrite)
    _check_data(run)
    run._seconds.setdefault("build", elapsed)
    run._write_record()
    write_vocabulary(run.folder, dataset, run.space, run.label_dag)
    reporter.line(f"build: {dataset[0][DOCUMENT].num_nodes:,} documents in {elapsed:.1f} s")
    return run


def default_folder(dataset_name: str, config: Config) -> Path:
    """``runs/DATASET-ENCODER-seedN``, with the ablations after the encoder."""
    parts = [dataset_name, config.model.encoder.replace(":", "."), *config.ablation]
    return Path("runs") / "-".join([*parts, f"seed{config.seed}"])


def open_run(
    folder: str | Path,
    root: str | Path | None = None,
    reporter: Reporter | None = None,
    encoder: str | None = None,
    head: str | None = None,
) -> Run:
    """An existing run with its data set.

    Args:
        folder: Of the run.
        root: Of built data; None takes the default.
        reporter: For progress; None prints nothing.
        encoder: Must be given if the run's encoder is ``package.module:Class``, and equal it.
        head: Likewise.

    Raises:
        CheckpointError: The folder is not a run, its data set has changed, or its encoder or head
            is code that was not named.
    """
    folder = Path(folder)
    config = open_run_folder(folder)
    check_own_code(folder, config, encoder, head)
    reporter = reporter or Reporter(quiet=True)
    dataset = open_dataset(
        config.dataset, root=root, track=reporter.track, **config.data.dataset_options()
    )
    dataset.transform = DropFields(config.data.drop_fields)
    run = Run(folder, config, dataset, reporter)
    _check_data(run)
    return run


def _check_data(run: Run) -> None:
    path = run.folder / RECORD
    if path.is_file() and read_record(run.folder)["data_checksum"] != run.dataset.checksum:
        raise CheckpointError(
            f"The run in '{run.folder}' was made from other data than '{run.config.dataset}' holds "
            f"now; restore the data, or start again with --overwrite."
        )
