"""Measures of documents with gold labels as sums, which add up over files."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from match_graph.graph import Hierarchy
from match_graph.graph.csr import make_ptr
from match_graph.metrics import (
    CalibrationMeter,
    F1Meter,
    HierarchicalMeter,
    PropensityMeter,
    RankingMeter,
    SliceMeter,
    ViolationMeter,
    inverse_propensity,
    pack_predictions,
    rank_labels,
    slice_by_depth,
    slice_by_frequency,
)
from match_graph.metrics.meter import Meter
from match_graph.metrics.slices import LabelSlices
from match_graph.runs.measures import BenchmarkMeasures

_UNKNOWN = "unknown"


@dataclass(frozen=True)
class RunLabels:
    """Labels of a run with frequencies and thresholds, as measures need them.

    Args:
        row: Row of each label by name.
        hierarchy: Label hierarchy.
        train_count: Training documents of each label, [L], int64.
        num_train_documents: Number of training documents.
        thresholds: Least probability of each label, [L], float32.
        shared: Threshold that labels without one of their own share.
        rank: Rank of each label among equal scores, see `rank_labels`.
    """

    row: Mapping[str, int]
    hierarchy: Hierarchy
    train_count: Tensor
    num_train_documents: int
    thresholds: Tensor
    shared: float
    rank: Tensor | None = None

    @cached_property
    def weight(self) -> Tensor:
        """Inverse propensities, the last one that of labels the run does not know, [L + 1]."""
        return inverse_propensity(F.pad(self.train_count, (0, 1)), self.num_train_documents)

    def slices(self, num_unknown: int = 0) -> list[LabelSlices]:
        """Slices of the labels and of others, without training documents and hierarchy."""
        depth = slice_by_depth(self.hierarchy)
        return [
            slice_by_frequency(F.pad(self.train_count, (0, num_unknown))),
            LabelSlices(depth.names, F.pad(depth.slice_index, (0, num_unknown))),
        ]


class LabelSums:
    """Sums over documents, from which all measures of `Run.evaluate` on a split are computed.

    A gold label that the run does not know is one that it cannot predict: it counts in every
    denominator of gold labels, as a label without training documents, outside the hierarchy.
    Calibration and RankedSum are those of the labels which the run scores.

    Args:
        labels: Labels of the run.
    """

    def __init__(self, labels: RunLabels) -> None:
        self.labels = labels
        #: Documents of each gold label that the run does not know.
        self.unknown: Counter[str] = Counter()
        #: Numbers of documents, of documents without gold labels, and of gold labels.
        self.counts = torch.zeros(3, dtype=torch.int64)
        num_labels = len(labels.row)
        self.ranking, self.propensity = RankingMeter(), PropensityMeter(labels.weight)
        self.violations, self.calibration = ViolationMeter(labels.hierarchy), CalibrationMeter()
        self.f1, self.hierarchical = F1Meter(num_labels), HierarchicalMeter(labels.hierarchy)
        self.slices = SliceMeter(labels.slices())
        self.benchmark = BenchmarkMeasures(num_labels, labels.shared)

    def update(self, logits: Tensor, gold: Sequence[Sequence[str]]) -> None:
        """Adds a batch.

        Args:
            logits: Label scores before the sigmoid, [B, L], float32, CPU.
            gold: Names of the gold labels of each document, each once.
        """
        row, other = self.labels.row, len(self.labels.row)
        names = [name for labels in gold for name in labels]
        self.unknown.update(name for name in names if name not in row)
        size = torch.tensor([len(labels) for labels in gold])
        self.counts += torch.tensor([len(gold), int((size == 0).sum()), len(names)])
        every = make_ptr(size), torch.tensor([row.get(name, other) for name in names]).long()
        known = every[1] < other
        count = torch.zeros(len(gold), dtype=torch.int64)
        document = torch.repeat_interleave(torch.arange(len(gold)), size)
        count.index_add_(0, document[known], torch.ones(int(known.sum()), dtype=torch.int64))
        scored = make_ptr(count), every[1][known]
        ranked = rank_labels(logits, max(self.ranking.ks), self.labels.rank)
        packed = pack_predictions(logits, self.labels.thresholds)
        self.ranking.update(ranked, *every)
        self.propensity.update(ranked, *every)
        self.violations.update(logits)
        self.calibration.update(logits, *scored, ranked)
        self.f1.update(*packed, *scored)
        self.hierarchical.update(*packed, *scored)
        self.slices.update(ranked, *scored)
        self.benchmark.update(logits, ranked, every, scored)

    def state(self) -> dict[str, Tensor]:
        """Sums by name, without the labels that the run does not know."""
        tensors = {
            f"{name}.{key}": value
            for name, meter in self._meters.items()
            for key, value in meter.state().items()
        }
        return {"counts": self.counts, **tensors}

    @property
    def _meters(self) -> dict[str, Meter]:
        own = {name: one for name, one in vars(self).items() if isinstance(one, Meter)}
        return own | {f"benchmark.{name}": one for name, one in self.benchmark.meters.items()}

    def add(self, state: Mapping[str, Tensor], unknown: Mapping[str, int]) -> None:
        """Adds the sums of other documents."""
        self.counts += state["counts"]
        self.unknown.update(unknown)
        for name, meter in self._meters.items():
            meter.add({key: state[f"{name}.{key}"] for key in meter.state()})

    def write(self, path: Path) -> None:
        """Writes the sums as safetensors."""
        known = {_UNKNOWN: json.dumps(self.unknown, ensure_ascii=False, sort_keys=True)}
        tensors = {name: value.contiguous() for name, value in self.state().items()}
        save_file(tensors, str(path), metadata=known)

    def add_file(self, path: Path) -> None:
        """Adds the sums of a file that `write` wrote."""
        with safe_open(str(path), framework="pt") as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            unknown = json.loads(file.metadata()[_UNKNOWN])
        self.add(state, unknown)

    def compute(self) -> dict[str, float]:
        """Measures by name; those that are 0/0 are left out.

        Raises:
            GraphError: There is no document.
        """
        pairs = torch.tensor([count for _, count in sorted(self.unknown.items())]).long()  # [U]
        f1 = F1Meter(len(self.labels.row) + len(pairs))
        missed = torch.stack([torch.zeros_like(pairs), torch.zeros_like(pairs), pairs])
        f1.add({"counts": torch.cat([self.f1.counts, missed], dim=1)})
        hierarchical = HierarchicalMeter(self.labels.hierarchy)
        hierarchical.add(self.hierarchical.state())
        hierarchical.add({"counts": torch.tensor([0, 0, int(pairs.sum())])})
        slices = SliceMeter(self.labels.slices(len(pairs)))
        counts = self.slices.state()["counts"]  # [1 + ks, L]: gold, found
        missed = torch.zeros(len(counts), len(pairs), dtype=torch.int64)
        missed[0] = pairs
        slices.add({"counts": torch.cat([counts, missed], dim=1)})
        measures = {**self.ranking.compute(), **self.violations.compute()}
        measures |= {**self.calibration.compute(), **self.propensity.compute()}
        measures |= f1.compute() | hierarchical.compute() | slices.compute(f1)
        return measures | self.benchmark.compute(pairs)
