"""Measures of `evaluate` besides ranking: propensity, sets, slices, reliability, documents."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from match_graph.datasets import CorpusDataset
from match_graph.io.files import write_beside
from match_graph.io.run_folder import PER_DOCUMENT, RELIABILITY, THRESHOLDS
from match_graph.metrics import (
    CalibrationMeter,
    F1Meter,
    HierarchicalMeter,
    PropensityMeter,
    RankedSumMeter,
    RankingMeter,
    SliceMeter,
    Thresholds,
    ThresholdSearch,
    average_sets,
    find_hits,
    inverse_propensity,
    ndcg_at_k,
    pack_predictions,
    precision_at_k,
    slice_by_depth,
    slice_by_frequency,
)
from match_graph.metrics.meter import Meter
from match_graph.training.evaluate import ScoredBatch
from match_graph.typing import MASKS, Split

#: Cut-offs k of per-document measures, and their columns besides ``document`` and ``split``.
_KS = (1, 3, 5)
SCORE_NAMES = tuple(f"{name}@{k}" for name in ("P", "NDCG") for k in _KS)
#: How `RankingMeter` counts documents without labels in a run; said with every table.
ABOUT_POLICY = "Documents without labels count as 0 (policy 'zero')."
#: Offsets [B + 1] and gold labels of a batch.
Gold: TypeAlias = tuple[Tensor, Tensor]
#: Cut-offs k of the benchmark's tables.
_BENCHMARK_KS = (1, 2, 3)


class BenchmarkMeasures:
    """Measures of OAXMLC-Bench, https://github.com/eXascaleInfolab/oaxmlc-bench.

    ``at_least_k/P@k``, NDCG and RankedSum, for k of 1, 2 and 3, are means over the documents with
    at least k gold labels; ``shared_threshold/`` has `average_sets` of the labels at or above one
    threshold.

    Args:
        num_labels: Number of labels L.
        threshold: Decision threshold of all labels.
    """

    def __init__(self, num_labels: int, threshold: float) -> None:
        self.threshold = torch.full((num_labels,), threshold)
        self.ranking = RankingMeter(_BENCHMARK_KS, "at_least_k")
        self.ranked_sum = RankedSumMeter(_BENCHMARK_KS)
        self.sets = F1Meter(num_labels)

    @property
    def meters(self) -> dict[str, Meter]:
        """Meters by name."""
        return {"ranking": self.ranking, "ranked_sum": self.ranked_sum, "sets": self.sets}

    def update(
        self, logits: Tensor, ranked: Tensor, gold: Gold, scored: Gold | None = None
    ) -> None:
        """Adds a batch.

        Args:
            logits: Label scores before the sigmoid, [B, L], float32, CPU.
            ranked: Labels by score, [B, K].
            gold: Offsets [B + 1] and labels of the gold labels; L is one that has no score.
            scored: Those that have one, by which sets and RankedSum count; None if all have.
        """
        scored = gold if scored is None else scored
        self.ranking.update(ranked, *gold)
        self.ranked_sum.update(logits, *scored)
        self.sets.update(*pack_predictions(logits, self.threshold), *scored)

    def compute(self, missed: Tensor | None = None) -> dict[str, float]:
        """Measures by name, without those at a k for which no document has k gold labels.

        Args:
            missed: Number of documents of each gold label that has no score, [U], int64.
        """
        ranking = {**self.ranking.compute(), **self.ranked_sum.compute()}
        counts = self.sets.counts
        if missed is not None:
            none = torch.zeros_like(missed)
            counts = torch.cat([counts, torch.stack([none, none, missed])], dim=1)
        sets = average_sets(counts)
        return {
            f"at_least_k/{name}": value
            for name, value in ranking.items()
            if not name.startswith("R@")  # not of the benchmark's tables
        } | {f"shared_threshold/{name}": value for name, value in sets.items()}


class SplitMeasures:
    """Calibration, PSP@k and PSNDCG@k of a split; with thresholds also F1 and slices.

    At thresholds: micro and macro F1, hierarchical precision, recall and F1, and of slices of the
    labels by training frequency and by depth R@k and F1. Keys of slices are ``SLICE/MEASURE``.
    Those of `BenchmarkMeasures` stand beside them, at the threshold that labels share.
    Without thresholds ``search`` chooses them.

    Args:
        dataset: Data set, whose training documents give propensities and frequencies.
        split: Split of the documents.
        thresholds: Decision thresholds, chosen on the validation split; None on that split.
    """

    def __init__(
        self, dataset: CorpusDataset, split: Split, thresholds: Thresholds | None = None
    ) -> None:
        train, hierarchy = dataset.documents(MASKS["train"]), dataset.hierarchy
        count = dataset.targets.count(train)
        self.scores = DocumentScores(dataset.documents(MASKS[split]))
        self.search = ThresholdSearch(dataset.num_labels)
        self.calibration, self.thresholds = CalibrationMeter(), thresholds
        self.propensity = PropensityMeter(inverse_propensity(count, len(train)))
        self.f1, self.hierarchical = F1Meter(dataset.num_labels), HierarchicalMeter(hierarchy)
        self.slices = SliceMeter([slice_by_frequency(count), slice_by_depth(hierarchy)])
        shared = 0.5 if thresholds is None else thresholds.shared
        self.benchmark = BenchmarkMeasures(dataset.num_labels, shared)

    def update(self, batch: ScoredBatch) -> None:
        """Adds a batch; an observer of `evaluate_model`."""
        self.scores.update(batch)
        self.propensity.update(batch.ranked, *batch.gold)
        self.calibration.update(batch.logits, *batch.gold, batch.ranked)
        if self.thresholds is None:
            self.search.update(batch.logits, *batch.gold)
        else:
            packed = pack_predictions(batch.logits, self.thresholds.value)
            self.f1.update(*packed, *batch.gold)
            self.hierarchical.update(*packed, *batch.gold)
            self.slices.update(batch.ranked, *batch.gold)
            self.benchmark.update(batch.logits, batch.ranked, batch.gold)

    def reduce(self, total: Callable[[Tensor], Tensor]) -> None:
        """Sums the meters over processes, as `RankingMeter.reduce`."""
        sets = [self.f1, self.hierarchical, self.slices, *self.benchmark.meters.values()]
        self.scores.reduce(total)
        others: Sequence[Meter] = [self.search] if self.thresholds is None else sets
        for meter in (self.calibration, self.propensity, *others):
            meter.reduce(total)

    def compute(self) -> dict[str, float]:
        """Measures by name; those that are 0/0 on the split are left out, never 0."""
        measures = {**self.calibration.compute(), **self.propensity.compute()}
        if self.thresholds is None:
            return measures
        sets = {**self.f1.compute(), **self.hierarchical.compute()}
        return measures | sets | self.slices.compute(self.f1) | self.benchmark.compute()


class DocumentScores:
    """Ranking measures of each document of a split; 0 without gold labels.

    Args:
        documents: Document indices of the split, ascending, [D], int64.
    """

    def __init__(self, documents: Tensor) -> None:
        self.documents = documents
        self.table = torch.zeros(len(documents), len(SCORE_NAMES))

    def update(self, batch: ScoredBatch) -> None:
        """Adds a batch; an observer of `evaluate_model`."""
        hits, num_gold = find_hits(batch.ranked, *batch.gold), batch.gold[0].diff()
        columns = [precision_at_k(hits, k) for k in _KS]
        columns += [ndcg_at_k(hits, num_gold, k) for k in _KS]
        row = torch.searchsorted(self.documents, batch.document)
        self.table[row] = torch.stack(columns, dim=1).float()  # [B, 6]

    def reduce(self, total: Callable[[Tensor], Tensor]) -> None:
        """Joins the shares of all processes; ``total`` sums a tensor over them."""
        self.table = total(self.table)


def write_bins(folder: Path, measures: Mapping[Split, SplitMeasures]) -> None:
    """Writes reliability bins as CSV.

    Columns ``split``, ``labels`` ("ranked": the 5 best of each document; "all"), ``bin`` from 1,
    ``pairs``, ``probability`` (their mean) and ``gold`` (their share); empty where a bin is.
    """
    rows = [
        {"split": split, "labels": labels, "bin": number, "pairs": int(pairs)}
        | {"probability": probability, "gold": gold}
        for split, one in measures.items()
        for labels, bins in one.calibration.bins().items()
        for number, (pairs, probability, gold) in enumerate(bins.t().tolist(), start=1)
    ]
    table = pd.DataFrame(rows)
    write_beside(folder / RELIABILITY, lambda beside: table.to_csv(beside, index=False))


def write_thresholds(folder: Path, labels: Sequence[str], thresholds: Thresholds) -> None:
    """Writes ``label``, ``threshold``, ``num_positives``, ``is_own`` and ``shared``, a row a label.

    ``shared`` is the threshold of the labels without one of their own, the same in every row.
    """
    table = pd.DataFrame(
        {
            "label": list(labels),
            "threshold": thresholds.value.numpy(),
            "num_positives": thresholds.num_positives.numpy(),
            "is_own": thresholds.is_own.numpy(),
            "shared": np.float32(thresholds.shared),
        }
    )
    write_beside(folder / THRESHOLDS, table.to_parquet)


def write_scores(folder: Path, scores: Mapping[Split, DocumentScores]) -> None:
    """Writes a row per document: ``document`` (node index), ``split``, and `SCORE_NAMES`.

    Args:
        folder: Run folder.
        scores: Scores of the documents, by split.
    """
    tables = []
    for split, of_split in scores.items():
        table = pd.DataFrame(of_split.table.numpy(), columns=list(SCORE_NAMES))
        table.insert(0, "document", of_split.documents.numpy().astype("int32"))
        table.insert(1, "split", split)
        tables.append(table)
    whole = pd.concat(tables, ignore_index=True)
    write_beside(folder / PER_DOCUMENT, lambda beside: whole.to_parquet(beside, index=False))
