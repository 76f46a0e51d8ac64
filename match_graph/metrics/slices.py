"""Measures by slices of the labels: training frequency, depth."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.labels import Hierarchy
from match_graph.metrics.meter import Meter
from match_graph.metrics.ranking import DEFAULT_KS, find_hits
from match_graph.metrics.sets import F1Meter

#: Training documents: fewer than the first is tail, more than the second is head.
FREQUENCY_CUTS = (20, 100)


@dataclass(frozen=True)
class LabelSlices:
    """A partition of the labels.

    Args:
        names: Names of the slices.
        slice_index: Slice of each label, [L], int64.
    """

    names: tuple[str, ...]
    slice_index: Tensor

    def labels(self) -> dict[str, Tensor]:
        """Mask of each slice's labels by name, [L], bool; empty slices are left out."""
        masks = {name: self.slice_index == place for place, name in enumerate(self.names)}
        return {name: mask for name, mask in masks.items() if bool(mask.any())}


def slice_by_frequency(train_count: Tensor) -> LabelSlices:
    """``head``, ``torso`` and ``tail`` by training documents.

    Tail: fewer than 20, labels never seen in training among them; torso: 20 to 100; head: more.

    Source: the few-, medium- and many-shot classes of Liu et al., CVPR 2019,
    https://arxiv.org/abs/1904.05160.

    Args:
        train_count: Number of training documents of each label, [L].
    """
    low, high = FREQUENCY_CUTS
    place = (train_count <= high).long() + (train_count < low).long()
    return LabelSlices(("head", "torso", "tail"), place)


def slice_by_depth(hierarchy: Hierarchy) -> LabelSlices:
    """``depth_0``, ``depth_1``, ...: see `Hierarchy.depth`; labels outside the hierarchy are in 0.

    Without any edge there is no slice.
    """
    names = tuple(f"depth_{depth}" for depth in range(hierarchy.num_layers))
    return LabelSlices(names, hierarchy.depth)


class SliceMeter(Meter):
    r"""R@k of slices over batches, by pairs of a document and a gold label.

    .. math:: R_S@k = \frac{\sum_d |rank_{d, k} \cap gold_d \cap S|}{\sum_d |gold_d \cap S|}

    Ranks are those among all labels. Summed over pairs, since most documents have no label of a
    small slice; so the values of slices average, by their pairs, to that of all labels.

    Args:
        slices: Partitions of the labels.
        ks: Cut-offs k.
    """

    summed = ("_counts",)

    def __init__(self, slices: Sequence[LabelSlices], ks: Sequence[int] = DEFAULT_KS) -> None:
        self.slices, self.ks = tuple(slices), tuple(ks)
        sizes = {len(part.slice_index) for part in self.slices}
        if len(sizes) != 1:
            raise GraphError(
                f"Slices must be of the same labels, found {sorted(sizes)} as numbers of labels."
            )
        self.num_labels = sizes.pop()
        # gold pairs of each label, and those among the k best
        self._counts = torch.zeros(1 + len(self.ks), self.num_labels, dtype=torch.int64)

    def update(self, ranked: Tensor, label_ptr: Tensor, label_index: Tensor) -> None:
        """Adds a batch; arguments as for `RankingMeter.update`."""
        hits = find_hits(ranked, label_ptr, label_index)
        self._counts[0] += torch.bincount(label_index, minlength=self.num_labels)
        for place, k in enumerate(self.ks, start=1):
            found = ranked[:, :k][hits[:, :k]]
            self._counts[place] += torch.bincount(found, minlength=self.num_labels)

    def compute(self, f1: F1Meter | None = None) -> dict[str, float]:
        """``SLICE/num_labels``, ``SLICE/num_gold`` (pairs), ``SLICE/R@k`` in 0..1.

        R@k is left out where the slice has no gold pair (0/0).

        Args:
            f1: Meter of the same documents, which adds ``SLICE/F1_micro`` and ``SLICE/F1_macro``.
        """
        measures: dict[str, float] = {}
        for part in self.slices:
            for name, labels in part.labels().items():
                gold, *found = self._counts[:, labels].sum(dim=1).tolist()
                values: dict[str, float] = {"num_labels": int(labels.sum()), "num_gold": gold}
                if gold:
                    values |= {f"R@{k}": n / gold for k, n in zip(self.ks, found, strict=True)}
                if f1 is not None:
                    values |= f1.compute(labels)
                measures |= {f"{name}/{key}": value for key, value in values.items()}
        return measures
