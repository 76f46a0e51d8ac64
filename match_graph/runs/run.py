"""Run: pre-training, training, calibration and evaluation in a run folder; each stage resumes."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from match_graph.baselines import Baseline
from match_graph.config import Config
from match_graph.datasets import CorpusDataset
from match_graph.errors import CorpusError
from match_graph.graph import (
    EgoGraphs,
    EgoLoader,
    EgoSampler,
    Hierarchy,
    LengthBucketSampler,
    Targets,
    TokenSpace,
)
from match_graph.io.beside import remove_leftovers
from match_graph.io.files import has_folder, has_state, remove_files, write_json
from match_graph.io.progress import Reporter
from match_graph.io.run_folder import (
    CALIBRATION,
    FITTED,
    METRICS,
    PER_DOCUMENT,
    RELIABILITY,
    REPORT,
    STATE,
    THRESHOLDS,
)
from match_graph.metrics import PlattScaling, ThresholdSearch
from match_graph.nn import Encoder, MatchModel
from match_graph.runs.calibration import (
    CalibratedModel,
    Validation,
    assign_folds,
    fit_calibration,
    write_calibration,
)
from match_graph.runs.folder import describe_work, in_use
from match_graph.runs.known_graph import make_graphs
from match_graph.runs.levels import Level, plan_levels
from match_graph.runs.measures import SplitMeasures, write_bins, write_thresholds
from match_graph.runs.per_document import DocumentScores, write_scores
from match_graph.runs.pretraining import Pretraining
from match_graph.runs.readers import read_calibration, read_metrics
from match_graph.runs.record import RunRecord
from match_graph.training.checkpoint import close_training
from match_graph.training.evaluate import Observer, evaluate_model, label_prior
from match_graph.training.heartbeat import shared
from match_graph.training.loop import train_model
from match_graph.training.models import (
    Model,
    NeuralModel,
    count_parameters,
    find_model,
    fit_baseline,
)
from match_graph.training.processes import lead, sum_up
from match_graph.typing import DOCUMENT, LABEL, MASKS, Split

#: Documents per batch where nothing is learned.
_EVAL_BATCH = 256
#: Validation documents from which label scores are scaled, and the folds of these. On the 131 of
#: cacm what held-out documents chose made test documents worse (experiments/defaults).
_MIN_DOCUMENTS, _FOLDS = 1000, 5


@dataclass
class Run:
    """Run folder with its data set; made by `start_run` or `open_run`.

    Where several processes share the work, each has a `Run`, and all call the same methods; the
    first one writes.

    Args:
        folder: Run folder.
        config: Resolved configuration.
        dataset: Built data set.
        reporter: Progress reporter.
        fabric: Lightning Fabric: devices and processes.
    """

    folder: Path
    config: Config
    dataset: CorpusDataset
    reporter: Reporter
    fabric: Fabric

    @property
    def leads(self) -> bool:
        """Whether this is the first process, which writes and prints."""
        return bool(self.fabric.is_global_zero)

    @cached_property
    def origin(self) -> str:
        """SHA-256 of the data and of all settings that determine the result."""
        content = {"data": self.dataset.checksum, "settings": describe_work(self.config)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @cached_property
    def space(self) -> TokenSpace:
        """Token space of the run."""
        return self.dataset.token_space(self.config.data.min_count, self.config.data.min_word_count)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Nodes on each level of the label tree, the labels last; one level for a flat model."""
        return self.model.level_sizes(self.dataset.num_labels)

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """Label hierarchy, with the edge weights of training."""
        hierarchy = self.dataset.hierarchy
        if self.config.train.edge_weight == "none":
            return hierarchy
        train_documents = self.dataset.documents(MASKS["train"])
        return hierarchy.weighted(
            hierarchy.parent_given_child(self.dataset.targets, train_documents)
        )

    def loader(
        self,
        split: Split,
        training: bool = False,
        shared: bool = True,
        sample: int | None = None,
        targets: Targets | None = None,
    ) -> EgoLoader:
        """Batches of a split: shuffled and sampled anew every epoch for training, else in full.

        Several processes have a part of each, unless they are not ``shared``. A ``sample`` is of
        so many documents, always the same ones. The gold labels are the data set's, unless other
        ``targets`` are given.
        """
        data, config = self.dataset[0], self.config
        documents = self.dataset.documents(MASKS[split])
        if sample is not None and sample < len(documents):
            generator = torch.Generator().manual_seed(config.seed)
            chosen = torch.randperm(len(documents), generator=generator)[:sample]
            documents = documents[chosen.sort().values]
        sampler = EgoSampler(
            data, config.data.max_metadata, config.data.max_words, training, config.seed
        )
        rank, number = (self.fabric.global_rank, self.fabric.world_size) if shared else (0, 1)
        size = config.train.batch_size if training else _EVAL_BATCH * number
        assert size is not None
        order = LengthBucketSampler(
            sampler.lengths(documents), size, training, config.seed,
            rank=rank, num_processes=number,
        )  # fmt: skip
        return EgoLoader(
            data,
            sampler,
            self.space,
            documents,
            targets or self.dataset.targets,
            with_graph="graph" in self.needs,
            graphs=None if self.graphs is None else self.graphs.with_random(training),
            texts=self.texts if "text" in self.needs else None,
            batch_sampler=order,
        )

    @cached_property
    def needs(self) -> frozenset[str]:
        """Inputs that the encoder needs."""
        return self.model.needs

    @cached_property
    def model(self) -> Model:
        """What ``model.encoder`` names, with its settings."""
        return find_model(self.config)

    @cached_property
    def graphs(self) -> EgoGraphs | None:
        """Sampler of the encoder's neighbourhoods, through training documents only."""
        return make_graphs(self.config, self.dataset[0], self.space)

    @cached_property
    def texts(self) -> list[str]:
        """Raw texts by document.

        Raises:
            CorpusError: The data set keeps none.
        """
        table = self.dataset.table(DOCUMENT)
        if "text" not in table:
            raise CorpusError(
                f"The encoder '{self.config.model.encoder}' needs raw texts, but "
                f"'{self.config.dataset}' keeps none; choose another encoder or data set."
            )
        return [str(text) for text in table["text"]]

    def make_model(self) -> MatchModel:
        """Model of the configuration, with parameters initialized by the run's seed."""
        model = self.model.build(self.space, self.sizes, self.dataset.hierarchy)
        assert isinstance(model, MatchModel)
        return model

    def load_model(self) -> nn.Module:
        """Loads the trained model or the fitted baseline, not calibrated; see `scale`.

        Raises:
            CheckpointError: There is none, or it is of another configuration.
        """
        return self.model.load(
            self.folder, self.space, self.dataset.num_labels, self.dataset.hierarchy
        )

    @cached_property
    def pretraining(self) -> Pretraining:
        """Pre-training in this run's folder; one process trains the vectors."""
        return Pretraining(
            self.folder, self.config, self.dataset, self.space, self.reporter, self.origin
        )

    def take_vectors(self, source: Path) -> None:
        """Takes the pre-trained vectors of another run, named in the record.

        Args:
            source: Run folder of the vectors; seed, data and settings of its pre-training must be
                this run's.

        Raises:
            CheckpointError: They are not, or it has no vectors.
        """
        with in_use(self.folder):
            self.pretraining.adopt(source)
            self.record.note("vectors_from", os.path.relpath(source, self.folder))

    @shared
    def pretrain(self) -> dict[str, Tensor]:
        """Trains unit vectors once and saves them as ``vectors.safetensors``."""
        with self._alone():
            vectors = lead(self.fabric, self._pretrain_once)
        return self.pretraining.train() if vectors is None else vectors

    def _pretrain_once(self) -> dict[str, Tensor] | None:
        """Trains the vectors; None if they exist."""
        if self.pretraining.is_done():
            self.pretraining.close()
            return None
        if self.fabric.world_size > 1:
            self.reporter.line(
                f"pretrain: by one process so far, {self.fabric.world_size - 1} wait for it"
            )
        with self.record.timed("pretrain"):
            vectors = self.pretraining.train()
        seconds = self.record.seconds["pretrain"]
        self.reporter.line(f"pretrain: {self.config.pretrain.samples:,} pairs in {seconds:.1f} s")
        return vectors

    @shared
    def train(self) -> None:
        """Trains the model; the best weights on validation become ``model.safetensors``.

        A baseline is fitted instead; nothing is pre-trained for it. At the end label scores are
        scaled on validation, if `is_calibrated`: ``calibration.safetensors``.
        """
        with self._alone():
            if self.model.is_neural:
                self._train_levels()
            else:
                lead(self.fabric, self._fit_baseline)
            if self.is_calibrated:
                with self.record.timed("calibrate"):
                    self._calibrate(self._set_up_model())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks the run folder within the block; removes what a killed process left.

        Raises:
            CheckpointError: Another process changes it.
        """
        with ExitStack() as stack:
            lead(self.fabric, lambda: stack.enter_context(in_use(self.folder)))
            lead(self.fabric, lambda: remove_leftovers(self.folder))
            yield

    def _train_levels(self) -> None:
        config = self.config
        if self.model.is_pretrained:
            lead(self.fabric, self._pretrain_once)
        levels = plan_levels(self.sizes, self.dataset, self.folder, config.seed)
        for number, level in enumerate(levels, start=1):
            if len(levels) > 1:
                self.reporter.line(
                    f"train: level {number} of {len(levels)}, {level.sizes[-1]:,} nodes"
                )
            with self.record.timed("train"):
                self._train_level(level)

    def _train_level(self, level: Level) -> None:
        config, is_last = self.config, level.folder == self.folder
        settings = config.model if is_last else config.model.model_copy(update={"coherent": False})
        model = level.make_model(self.space, settings, self.dataset.hierarchy, config.seed)
        if level.above is None:
            self.pretraining.initialise(model)
        train_documents = self.dataset.documents(MASKS["train"])
        if settings.label_prior:
            level.set_prior(model, train_documents)
        if is_last:
            self.record.note("parameters", count_parameters(model))
        if model.wide is not None:
            count = self.space.document_count(self.dataset[0], train_documents)
            model.wide.set_frequencies(count, len(train_documents))
        if is_last:
            lead(self.fabric, lambda: self._prepare_folder(model.encoder))
        train_model(
            model,
            self.loader("train", training=True, targets=level.targets),
            self.loader("valid", sample=config.train.valid_documents, targets=level.targets),
            self.hierarchy if is_last else Hierarchy.without_edges(level.sizes[-1]),
            config.train,
            level.folder,
            config.seed,
            self.reporter,
            self.fabric,
            self.origin,
        )
        if not is_last:  # what the next level starts from are its weights alone
            lead(self.fabric, lambda: close_training(level.folder, config.train))

    def _prepare_folder(self, encoder: Encoder) -> None:
        if not has_state(self.folder / STATE):  # a new training: older results are not its own
            names = (METRICS, CALIBRATION, THRESHOLDS, RELIABILITY, PER_DOCUMENT, REPORT)
            remove_files(*(self.folder / name for name in names))
        NeuralModel.write_files(encoder, self.folder)

    def _fit_baseline(self) -> None:
        if has_folder(self.folder / FITTED):
            return
        baseline = self.model.build(self.space, self.sizes)
        assert isinstance(baseline, Baseline)
        with self.record.timed("train"):
            fit_baseline(baseline, self.loader("train", shared=False), self.folder, self.reporter)
        self.reporter.line(
            f"train: {self.config.model.encoder} fitted in {self.record.seconds['train']:.1f} s"
        )

    @property
    def is_calibrated(self) -> bool:
        """Whether logits are calibrated: by ``train.calibrate``, given enough documents."""
        number = len(self.dataset.documents(MASKS["valid"]))
        return self.config.train.calibrate and number >= _MIN_DOCUMENTS

    def _set_up_model(self) -> nn.Module:
        """Trained model on its device."""
        return self.model.set_up(self.load_model(), self.fabric)

    def _calibrate(self, model: nn.Module) -> PlattScaling:
        """Fits the calibration on the validation documents of training."""
        valid = Validation(
            self.loader("valid", sample=self.config.train.valid_documents),
            self._valid_folds(),
            self._coherent,
            self.fabric.device,
            partial(sum_up, self.fabric),
        )
        with self.fabric.autocast():
            calibration, before, after = fit_calibration(
                model, self.dataset.num_labels, _FOLDS, valid
            )
        lead(self.fabric, lambda: write_calibration(self.folder, calibration))
        self.reporter.line(
            f"calibrate: validation NDCG@5 {before:.4f} -> {after:.4f}, "
            + (f"prior width {calibration.width:g}" if calibration.width else "label scores stay")
        )
        return calibration

    def _valid_folds(self) -> Tensor:
        """Folds of the validation documents."""
        num_nodes = int(self.dataset[0][DOCUMENT].num_nodes)
        return assign_folds(self.dataset.documents(MASKS["valid"]), num_nodes, _FOLDS)

    @shared
    def evaluate(self) -> dict[str, dict[str, float]]:
        """Evaluates the trained model on valid and test; writes ``metrics.json``.

        Label scores are scaled, if `is_calibrated`: on valid each document's by the others', so
        that it is judged as a new one. A run of an older version gets its calibration here.

        On both: ranking, also by propensity, violations of the hierarchy, calibration. A threshold
        per label is chosen on valid and written as ``thresholds.parquet``; on test, F1 at these
        thresholds, the same with ancestors, and slices of the labels as ``SLICE/MEASURE``. The
        bins of reliability diagrams are ``reliability.csv``, P@k and NDCG@k of every document
        ``per_document.parquet``.

        Raises:
            CheckpointError: The run is not trained, or another process changes it.
        """
        with self._alone():
            return self._evaluate()

    def _evaluate(self) -> dict[str, dict[str, float]]:
        fabric = self.fabric
        model = self._set_up_model()
        models: dict[Split, nn.Module] = {
            "valid": self.scale(model, held_out=True),
            "test": self.scale(model),
        }
        lead(fabric, lambda: close_training(self.folder, self.config.train))
        search = ThresholdSearch(self.dataset.num_labels)
        scores: dict[Split, DocumentScores] = {}

        def total(values: Tensor) -> Tensor:
            return sum_up(fabric, values)

        def measure(split: Split, others: SplitMeasures, *observers: Observer) -> dict[str, float]:
            of_documents = scores[split] = DocumentScores(self.dataset.documents(MASKS[split]))
            measures = evaluate_model(
                models[split], of_documents.watch(self.loader(split)), self.dataset.hierarchy,
                fabric.device, observers=[*others.observers(), *observers],
                rank_observers=[*others.rank_observers(), of_documents.update],
                total=total, label_rank=None if self._coherent is None else self._coherent.rank,
            )  # fmt: skip
            others.reduce(total)
            of_documents.reduce(total)
            return {**measures, **others.compute()}

        def write() -> None:
            write_thresholds(self.folder, self.dataset.names(LABEL).tolist(), thresholds)
            write_bins(self.folder / RELIABILITY, meters)
            write_scores(self.folder, scores)
            write_json(self.folder / METRICS, metrics)

        with self.record.timed("evaluate"), fabric.autocast():
            meters = {"valid": SplitMeasures(self.dataset)}
            metrics = {"valid": measure("valid", meters["valid"], search.update)}
            search.reduce(total)
            thresholds = search.compute()
            if len(self.dataset.documents(MASKS["test"])):
                meters["test"] = SplitMeasures(self.dataset, thresholds)
                metrics["test"] = measure("test", meters["test"])
        lead(fabric, write)
        return metrics

    def scale(self, model: nn.Module, held_out: bool = False) -> nn.Module:
        """Model with calibrated logits, as predictions have them.

        Args:
            model: Model from `load_model`, on the run's device.
            held_out: Whether to calibrate each validation document by the other folds
                (cross-fitting).
        """
        if not self.is_calibrated:
            return model
        calibration = None
        if self._all_see(CALIBRATION):
            calibration = read_calibration(self.folder, self.dataset.num_labels)
        calibration = calibration or self._calibrate(model)
        if not calibration.width:
            return model
        folds = self._valid_folds() if held_out else None
        return CalibratedModel(model, calibration, self._coherent, folds)

    @property
    def is_finished(self) -> bool:
        """Whether the run is trained and evaluated; every process must ask."""
        return self._all_see(METRICS)

    def _all_see(self, name: str) -> bool:
        """Whether all processes see a file, as each may see a shared disk differently."""
        missing = torch.tensor(int(not (self.folder / name).is_file()))
        return not bool(sum_up(self.fabric, missing))

    def read_metrics(self) -> dict[str, dict[str, float]]:
        """Reads the measures that `evaluate` wrote."""
        return read_metrics(self.folder)

    def prior(self, split: Split) -> dict[str, float]:
        """Measures of the ranking by training frequency, for comparison."""
        documents = self.dataset.documents(MASKS[split])
        count = self.dataset.targets.count(self.dataset.documents(MASKS["train"]))
        return label_prior(count, *self.dataset.targets.select(documents))

    @property
    def _coherent(self) -> Hierarchy | None:
        """Label hierarchy, where the output is coherent."""
        return self.dataset.hierarchy if self.config.model.coherent else None

    @cached_property
    def record(self) -> RunRecord:
        """Provenance of the run; written by the first process."""
        content = {
            "dataset": self.dataset.name,
            "data_checksum": self.dataset.checksum,
            "seed": self.config.seed,
            "processes": self.fabric.world_size,
        }
        return RunRecord(self.folder, self.config.train, content, self.leads)
