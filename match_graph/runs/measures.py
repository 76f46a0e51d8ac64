"""Meters of `evaluate` besides ranking: propensity, sets, slices, reliability."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from torch import Tensor

from match_graph.datasets import CorpusDataset
from match_graph.io.files import write_beside
from match_graph.io.run_folder import THRESHOLDS
from match_graph.metrics import (
    CalibrationMeter,
    F1Meter,
    HierarchicalMeter,
    PropensityMeter,
    SliceMeter,
    Thresholds,
    inverse_propensity,
    pack_predictions,
    slice_by_depth,
    slice_by_frequency,
)
from match_graph.training.evaluate import Observer, RankObserver
from match_graph.typing import MASKS


class SplitMeasures:
    """Calibration, PSP@k and PSNDCG@k of a split; with thresholds also F1 and slices.

    At thresholds: micro and macro F1, hierarchical precision, recall and F1, and of slices of the
    labels by training frequency and by depth R@k and F1. Keys of slices are ``SLICE/MEASURE``.

    Args:
        dataset: Data set, whose training documents give propensities and frequencies.
        thresholds: Decision thresholds, chosen on the validation split; None on that split.
    """

    def __init__(self, dataset: CorpusDataset, thresholds: Thresholds | None = None) -> None:
        train = dataset.documents(MASKS["train"])
        count = dataset.targets.count(train)
        self._calibration = CalibrationMeter()
        self._propensity = PropensityMeter(inverse_propensity(count, len(train)))
        self._at_thresholds = None
        if thresholds is not None:
            self._at_thresholds = _AtThresholds(dataset, thresholds, count)

    def observers(self) -> list[Observer]:
        """Observers of logits, for `evaluate_model`."""
        found: list[Observer] = [self._calibration.update]
        return found if self._at_thresholds is None else [*found, self._at_thresholds.update]

    def rank_observers(self) -> list[RankObserver]:
        """Observers of ranked labels, for `evaluate_model`."""
        found: list[RankObserver] = [self._propensity.update]
        return found if self._at_thresholds is None else [*found, self._at_thresholds.slices.update]

    def reduce(self, total: Callable[[Tensor], Tensor]) -> None:
        """Sums the meters over processes, as `RankingMeter.reduce`."""
        self._calibration.reduce(total)
        self._propensity.reduce(total)
        if self._at_thresholds is not None:
            self._at_thresholds.reduce(total)

    def compute(self) -> dict[str, float]:
        """Measures by name; those that are 0/0 on the split are left out, never 0."""
        measures = {**self._calibration.compute(), **self._propensity.compute()}
        return measures if self._at_thresholds is None else measures | self._at_thresholds.compute()

    def bins(self) -> dict[str, Tensor]:
        """Reliability bins, as `CalibrationMeter.bins`."""
        return self._calibration.bins()


def write_bins(path: Path, measures: Mapping[str, SplitMeasures]) -> None:
    """Writes reliability bins as CSV.

    Columns ``split``, ``labels`` ("ranked": the 5 best of each document; "all"), ``bin`` from 1,
    ``pairs``, ``probability`` (their mean) and ``gold`` (their share); empty where a bin is.
    """
    rows = [
        {"split": split, "labels": labels, "bin": number, "pairs": int(pairs)}
        | {"probability": probability, "gold": gold}
        for split, one in measures.items()
        for labels, bins in one.bins().items()
        for number, (pairs, probability, gold) in enumerate(bins.t().tolist(), start=1)
    ]
    table = pd.DataFrame(rows)
    write_beside(path, lambda beside: table.to_csv(beside, index=False))


def write_thresholds(folder: Path, labels: Sequence[str], thresholds: Thresholds) -> None:
    """Writes columns ``label``, ``threshold``, ``num_positives`` and ``is_own``, a row a label."""
    table = pd.DataFrame(
        {
            "label": list(labels),
            "threshold": thresholds.value.numpy(),
            "num_positives": thresholds.num_positives.numpy(),
            "is_own": thresholds.is_own.numpy(),
        }
    )
    write_beside(folder / THRESHOLDS, table.to_parquet)


class _AtThresholds:
    """Meters of label sets at decision thresholds, packed once, and of label slices."""

    def __init__(self, dataset: CorpusDataset, thresholds: Thresholds, train_count: Tensor) -> None:
        dag = dataset.hierarchy
        self.threshold = thresholds.value
        self.f1, self.hierarchical = F1Meter(dataset.num_labels), HierarchicalMeter(dag)
        self.slices = SliceMeter([slice_by_frequency(train_count), slice_by_depth(dag)])

    def update(self, logits: Tensor, label_ptr: Tensor, label_index: Tensor) -> None:
        predicted = pack_predictions(logits, self.threshold)
        self.f1.update(*predicted, label_ptr, label_index)
        self.hierarchical.update(*predicted, label_ptr, label_index)

    def reduce(self, total: Callable[[Tensor], Tensor]) -> None:
        for meter in (self.f1, self.hierarchical, self.slices):
            meter.reduce(total)

    def compute(self) -> dict[str, float]:
        measures = {**self.f1.compute(), **self.hierarchical.compute()}
        return measures | self.slices.compute(self.f1)
