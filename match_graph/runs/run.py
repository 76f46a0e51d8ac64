"""Run: pre-training, training, calibration and evaluation in a run folder; each stage resumes."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from match_graph.baselines import Baseline
from match_graph.errors import ConfigError
from match_graph.graph import Hierarchy, count_twins
from match_graph.io.beside import remove_leftovers
from match_graph.io.files import has_state, remove_files, write_json
from match_graph.io.run_folder import (
    CALIBRATION,
    METRICS,
    PER_DOCUMENT,
    PROFILE,
    RELIABILITY,
    REPORT,
    SHARES,
    STATE,
    THRESHOLDS,
)
from match_graph.metrics import Thresholds
from match_graph.nn import Encoder, MatchModel
from match_graph.runs.finish import RunFinish
from match_graph.runs.folder import flatten, in_use
from match_graph.runs.levels import Level, plan_levels
from match_graph.runs.measures import SplitMeasures, write_bins, write_scores, write_thresholds
from match_graph.runs.pretraining import Pretraining
from match_graph.runs.readers import read_history, read_metrics
from match_graph.training.checkpoint import check_over, close_training
from match_graph.training.device import deterministic
from match_graph.training.evaluate import evaluate_model, label_prior
from match_graph.training.heartbeat import shared
from match_graph.training.loggers import check_logger, open_tracker
from match_graph.training.loop import FitInputs, Watch, watch_nothing
from match_graph.training.models import NeuralModel, count_parameters
from match_graph.training.processes import lead, sum_up
from match_graph.typing import DOCUMENT, LABEL, MASKS, Split


class Run(RunFinish):
    """Run folder with its data set; made by `start_run` or `open_run`.

    Where several processes share the work, each has a `Run`, and all call the same methods; the
    first one writes.
    """

    #: Whether `train` writes a profile of some steps into ``profile/``.
    profiled: bool = False

    @property
    def pretraining(self) -> Pretraining:
        """Pre-training in this run's folder."""
        return Pretraining(self)

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
        """Trains unit vectors once and saves them as ``vectors.safetensors``.

        Several processes train them together, each with a part of the tables.

        Raises:
            ConfigError: The model does not start from them.
        """
        if not self.model.is_pretrained:
            raise ConfigError(
                f"Vectors are pre-trained for networks that start from them, but the encoder "
                f"'{self.config.model.encoder}' with model.init={self.config.model.init} does not; "
                f"choose another encoder, or model.init=spherical for a network."
            )
        with self._locked():
            self._pretrain_once()
        return self.pretraining.train()

    @shared
    def evaluate_pretraining(self) -> dict[str, Any]:
        """Ranks held-out pairs by vectors trained without them; writes ``pretrain.json``."""
        with self._locked():
            return self.pretraining.evaluate()

    def _pretrain_once(self) -> None:
        if self.pretraining.is_done():
            lead(self.fabric, self.pretraining.close)
            return
        with self.record.timed("pretrain"):
            self.pretraining.train()
        seconds = self.record.seconds["pretrain"]
        self.reporter.line(f"pretrain: {self.config.pretrain.samples:,} pairs in {seconds:.1f} s")

    @shared
    def train(self, watch: Watch = watch_nothing) -> None:
        """Trains the model; the best weights on validation become ``model.safetensors``.

        A baseline is fitted instead; nothing is pre-trained for it. At the end, on validation, a
        network is blended with a linear classifier, where ``model.blend`` says so: ``blend/``;
        and label scores are scaled, if `is_calibrated`: ``calibration.safetensors``.

        Args:
            watch: Called after each epoch of a network with its row of the history; what it raises
                ends the training, which the next call continues.
        """
        with self._locked():
            self._train_levels(watch)
            if self.config.model.blend or self.is_calibrated:
                self.finish_model(self._set_up_model())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Locks the run folder within the block, which computes as ``train.deterministic`` says;
        removes what a killed process left.

        Raises:
            CheckpointError: Another process changes it.
        """
        with ExitStack() as stack:
            lead(self.fabric, lambda: stack.enter_context(in_use(self.folder)))
            lead(self.fabric, lambda: remove_leftovers(self.folder))
            stack.enter_context(deterministic(self.config.train, self.fabric.device))
            yield

    def _train_levels(self, watch: Watch) -> None:
        config = self.config
        if self.model.is_pretrained:
            self._pretrain_once()
        levels = plan_levels(self.sizes, self.dataset, self.folder, config.seed)
        for number, level in enumerate(levels, start=1):
            if len(levels) > 1:
                self.reporter.line(
                    f"train: level {number} of {len(levels)}, {level.sizes[-1]:,} nodes"
                )
            with self.record.timed("train"):
                self._train_level(level, watch)

    def _train_level(self, level: Level, watch: Watch) -> None:
        config, is_last = self.config, level.folder == self.folder
        hierarchy = self.dataset.hierarchy if is_last else None
        module = level.build(self.model, self.space, hierarchy, self.features)
        if isinstance(module, MatchModel):
            self._initialise(level, module, is_last)
        by_steps = self.model.is_neural
        inputs = FitInputs(
            self.loader("train", training=by_steps, shared=by_steps, targets=level.targets),
            self.loader("valid", sample=config.train.valid_documents, targets=level.targets),
            self.hierarchy if by_steps and is_last else Hierarchy.without_edges(level.sizes[-1]),
            level.folder,
            self.reporter,
            self.fabric,
            self.origin,
            watch if is_last else watch_nothing,
            self._settings if is_last else None,
            self.folder / PROFILE if is_last and self.profiled and self.leads else None,
        )
        self.model.fit(module, inputs)
        if isinstance(module, Baseline) and module.metadata_weight is not None:
            self.record.note("metadata_weight", module.metadata_weight)
        if not is_last:  # the next level starts from its weights alone
            lead(self.fabric, lambda: close_training(level.folder, config.train))

    def _initialise(self, level: Level, model: MatchModel, is_last: bool) -> None:
        """Initializes a network; the last level also prepares the run folder for its training."""
        train_documents = self.dataset.documents(MASKS["train"])
        if level.above is None:
            self.pretraining.initialise(model)
            x = self.dataset.graph.node_tensor(DOCUMENT, "x")
            model.set_moments(x, train_documents)
        if self.config.model.label_prior:
            level.set_prior(model, train_documents)
        if is_last:
            self.record.note("parameters", count_parameters(model))
            lead(self.fabric, lambda: self._prepare_folder(model.encoder))

    def _prepare_folder(self, encoder: Encoder) -> None:
        if not has_state(self.folder / STATE):  # a new training: older results are not its own
            names = (METRICS, SHARES, CALIBRATION, THRESHOLDS, RELIABILITY, PER_DOCUMENT, REPORT)
            remove_files(*(self.folder / name for name in names))
        NeuralModel.write_files(encoder, self.folder)

    @shared
    def evaluate(self, with_test: bool = True) -> dict[str, dict[str, float]]:
        """Evaluates the trained model on valid and test; writes ``metrics.json``.

        Label scores are blended and calibrated by `finish_model`, which fits what is missing; on
        valid by cross-fitting, so that each document is scored as a new one.

        On both: ranking, also by propensity, violations of the hierarchy, calibration. A threshold
        per label is chosen on valid and written as ``thresholds.parquet``; on test, F1 at these
        thresholds, the same with ancestors, and slices of the labels as ``SLICE/MEASURE``. The
        bins of reliability diagrams are ``reliability.csv``, P@k and NDCG@k of every document
        ``per_document.parquet``.

        Args:
            with_test: Whether to read test at all; a search of settings does not.

        Raises:
            CheckpointError: The run is not trained, or another process changes it.
        """
        with self._locked():
            return self._evaluate(with_test)

    def _evaluate(self, with_test: bool) -> dict[str, dict[str, float]]:
        fabric = self.fabric
        check_logger(self.config.train.logger)
        lead(fabric, lambda: check_over(self.folder, self.config.train))
        model = self._set_up_model()
        models: dict[Split, nn.Module] = {
            "valid": self.finish_model(model, held_out=True),
            "test": self.finish_model(model),
        }
        lead(fabric, lambda: close_training(self.folder, self.config.train))
        total = partial(sum_up, fabric)

        def measure(split: Split, thresholds: Thresholds | None = None) -> dict[str, float]:
            own = measures[split] = SplitMeasures(self.dataset, split, thresholds)
            ranking = evaluate_model(
                models[split], self.loader(split), self.dataset.hierarchy, fabric.device,
                observers=[own.update], total=total,
                label_rank=self.dataset.hierarchy.rank if self.config.model.coherent else None,
            )  # fmt: skip
            own.reduce(total)
            return {**ranking, **own.compute()}

        def write() -> None:
            write_thresholds(self.folder, self.dataset.names(LABEL).tolist(), thresholds)
            write_bins(self.folder, measures)
            write_scores(self.folder, {split: one.scores for split, one in measures.items()})
            write_json(self.folder / METRICS, metrics)
            self._log(metrics)

        measures: dict[Split, SplitMeasures] = {}
        with self.record.timed("evaluate"), fabric.autocast():
            metrics = {"valid": measure("valid")}
            thresholds = measures["valid"].search.compute()
            if with_test and len(self.dataset.documents(MASKS["test"])):
                metrics["test"] = measure("test", thresholds)
            lead(fabric, lambda: self._note_twins(metrics))
        lead(fabric, write)
        return metrics

    def _note_twins(self, splits: Collection[str]) -> None:
        """Notes how many documents of each split have the words of a training document."""
        found = count_twins(self.dataset.graph)
        twins = {
            split: {"documents": found[split], "of": len(self.dataset.documents(mask))}
            for split, mask in MASKS.items()
            if split in splits and split in found
        }
        self.record.note("twins", twins)

    def _log(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        """Logs final measures beside settings and history."""
        history = read_history(self.folder)
        history = pd.DataFrame() if history is None else history
        logger = self.config.train.logger
        with open_tracker(logger, self.folder, self._settings, history) as tracker:
            tracker.log_measures(metrics, len(history))

    @property
    def _settings(self) -> dict[str, Any]:
        """Resolved settings by dotted key."""
        return dict(flatten(self.config.model_dump(mode="json")))

    @property
    def is_finished(self) -> bool:
        """Whether the run is trained and evaluated; every process must ask."""
        return self._all_see(METRICS)

    def read_metrics(self) -> dict[str, dict[str, float]]:
        """Reads the measures that `evaluate` wrote."""
        return read_metrics(self.folder)

    def prior(self, split: Split) -> dict[str, float]:
        """Measures of the ranking by training frequency, for comparison.

        Raises:
            ConfigError: There is no such split.
        """
        if split not in MASKS:
            raise ConfigError(f"A split must be one of {[*MASKS]}, found {split!r:.60}.")
        documents = self.dataset.documents(MASKS[split])
        count = self.dataset.targets.count(self.dataset.documents(MASKS["train"]))
        return label_prior(count, *self.dataset.targets.select(documents))
