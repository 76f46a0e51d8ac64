"""Evaluators in the manner of OGB: by name, one call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from match_graph.errors import GraphError
from match_graph.graph.csr import row_index
from match_graph.graph.labels import Hierarchy
from match_graph.metrics.hierarchical import HierarchicalMeter, ViolationMeter
from match_graph.metrics.propensity import PropensityMeter, inverse_propensity
from match_graph.metrics.ranked_sum import RankedSumMeter
from match_graph.metrics.ranking import DEFAULT_KS, EmptyPolicy, RankingMeter
from match_graph.metrics.sets import F1Meter, average_sets

#: Inputs by key: meaning and shape in words, number of dimensions, whether they are integers.
_INPUTS: dict[str, tuple[str, int, bool]] = {
    "ranked": ("label indices, best first, [B, K], K at least the largest k", 2, True),
    "label_ptr": ("offsets of the documents' gold labels, [B + 1]", 1, True),
    "label_index": ("gold labels, packed, [sum of gold labels]", 1, True),
    "predicted_ptr": ("offsets of the documents' predicted labels, [B + 1]", 1, True),
    "predicted_index": ("predicted labels, packed, [sum of predicted labels]", 1, True),
    "train_count": ("training documents of each label, [L]", 1, True),
    "num_train_documents": ("training documents, []", 0, True),
    "num_labels": ("labels, L, []", 0, True),
    "label_edge_index": ("'child is_a parent', [2, E]; row 0 child, row 1 parent", 2, True),
    "logits": ("label scores before the sigmoid, [B, L]", 2, False),
}
_GOLD = ("label_ptr", "label_index")
_PREDICTED = ("predicted_ptr", "predicted_index")


@dataclass(frozen=True)
class _Task:
    """Inputs, measures (those that end in @ at each k), how to compute them, what they need."""

    inputs: tuple[str, ...]
    measures: tuple[str, ...]
    compute: Callable[["Evaluator", dict[str, Tensor]], dict[str, float]]
    needs: str = "documents with gold and predicted labels"


class Evaluator:
    """Measures by name, from tensors or NumPy arrays, checked.

    In the manner of ``ogb.graphproppred.Evaluator``: ``expected_input_format`` and
    ``expected_output_format`` say what goes in and comes out, ``eval`` does it. All documents are
    given at once; the meters do the same batch by batch.

    Args:
        name: Set of measures: ``ranking``, ``ranked_sum``, ``propensity``, ``f1``, ``sets``,
            ``hierarchical`` or ``violation``.
        ks: Cut-offs k of ranking measures.
        empty: Policy for documents with few gold labels in ``ranking``, see `RankingMeter`.

    Raises:
        GraphError: There is no evaluator of this name or no such policy, or a cut is below 1.
    """

    def __init__(
        self, name: str, ks: Sequence[int] = DEFAULT_KS, empty: EmptyPolicy = "zero"
    ) -> None:
        if name not in _TASKS:
            raise GraphError(
                f"The name of an evaluator must be one of {', '.join(_TASKS)}, found '{name}'."
            )
        cuts = list(ks) if isinstance(ks, Sequence) and not isinstance(ks, str) else []
        if not cuts or not all(isinstance(cut, Integral) and int(cut) >= 1 for cut in cuts):
            raise GraphError(
                f"Cuts must be a list of whole numbers of 1 or more, found {ks!r:.60}."
            )
        if empty not in get_args(EmptyPolicy):
            raise GraphError(
                f"The policy of empty documents must be one of {', '.join(get_args(EmptyPolicy))}, "
                f"found '{empty}'."
            )
        self.name, self.ks, self.empty = name, tuple(ks), empty
        self._task = _TASKS[name]

    @property
    def measures(self) -> tuple[str, ...]:
        """The keys that `eval` gives."""
        return tuple(
            f"{name}{k}" if k else name
            for name in self._task.measures
            for k in (self.ks if name.endswith("@") else (0,))
        )

    @property
    def expected_input_format(self) -> str:
        """The keys that `eval` takes, a line each."""
        lines = [f"Evaluator('{self.name}').eval takes a mapping of tensors or NumPy arrays:"]
        for key in self._task.inputs:
            words, _, integer = _INPUTS[key]
            lines.append(f"  {key}: {words}; {'integers' if integer else 'floating point'}")
        return "\n".join(lines)

    @property
    def expected_output_format(self) -> str:
        """The keys that `eval` gives."""
        values = "ranks from 1" if self.name == "ranked_sum" else "floats in 0..1"
        return (
            f"Evaluator('{self.name}').eval gives a dict of {values}:\n  {', '.join(self.measures)}"
        )

    def eval(self, inputs: Mapping[str, Tensor | np.ndarray | int]) -> dict[str, float]:
        """All measures of the evaluator: fractions in 0..1, or ranks.

        Args:
            inputs: Tensors, arrays and numbers by key; see `expected_input_format`.

        Raises:
            GraphError: A key, shape, type or value is wrong, or a measure is not defined for
                these documents, as F1 where nothing is gold or predicted.
        """
        tensors = _check_inputs(self.name, self._task.inputs, inputs)
        found = self._task.compute(self, tensors)
        missing = [name for name in self.measures if name not in found]
        if missing:
            raise GraphError(
                f"Every measure of '{self.name}' must be defined, but {', '.join(missing)} would "
                f"be 0/0 for these documents; give {self._task.needs}."
            )
        return {name: found[name] for name in self.measures}


def _check_inputs(
    name: str, keys: tuple[str, ...], inputs: Mapping[str, Tensor | np.ndarray | int]
) -> dict[str, Tensor]:
    if set(inputs) != set(keys):
        raise GraphError(
            f"Evaluator('{name}') must get exactly {', '.join(keys)}, found "
            f"{', '.join(map(str, inputs)) or 'nothing'}."
        )
    tensors = {key: _check_input(key, inputs[key]) for key in keys}
    for ptr, index in (_GOLD, _PREDICTED):
        if ptr in tensors:
            _check_packed(ptr, tensors[ptr], index, tensors[index])
    return tensors


def _check_input(key: str, value: Tensor | np.ndarray | int) -> Tensor:
    words, dimensions, integer = _INPUTS[key]
    if not isinstance(value, Tensor | np.ndarray | int | np.integer) or isinstance(value, bool):
        raise GraphError(
            f"'{key}' must be a tensor or a NumPy array, found {type(value).__name__}."
        )
    try:  # copies arrays of negative strides, such as [:, ::-1] of an argsort
        given = np.asarray(value, order="C") if isinstance(value, np.ndarray) else value
        tensor = torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError) as error:
        found = getattr(value, "dtype", type(value).__name__)
        raise GraphError(f"'{key}' must hold numbers, found an array of {found}.") from error
    fits = tensor.dtype in (torch.int32, torch.int64) if integer else tensor.is_floating_point()
    if tensor.dim() != dimensions or not fits:
        kind = "int64 or int32" if integer else "floating point"
        raise GraphError(
            f"'{key}' must be {kind}: {words}, found {list(tensor.shape)} {tensor.dtype}."
        )
    if integer:
        tensor = tensor.to(torch.int64)
        if tensor.numel() and int(tensor.min()) < 0:
            raise GraphError(f"'{key}' must hold no negative number, found {int(tensor.min())}.")
    elif not bool(torch.isfinite(tensor).all()):
        raise GraphError(f"'{key}' must be finite, found NaN or infinity.")
    return tensor


def _check_packed(ptr_name: str, ptr: Tensor, index_name: str, index: Tensor) -> None:
    rising = ptr.numel() > 0 and int(ptr[0]) == 0 and bool((ptr.diff() >= 0).all())
    if not rising or int(ptr[-1]) != index.numel():
        raise GraphError(
            f"'{ptr_name}' must rise from 0 to the {index.numel()} entries of '{index_name}', "
            f"found {_shorten(ptr)}."
        )
    _check_repetition(index_name, row_index(ptr), index)


def _check_repetition(key: str, row: Tensor, label: Tensor) -> None:
    if not label.numel():
        return
    pairs = torch.sort(row * (int(label.max()) + 1) + label).values
    again = pairs[1:][pairs.diff() == 0]
    if again.numel():
        place, found = divmod(int(again[0]), int(label.max()) + 1)
        raise GraphError(
            f"'{key}' must name a label once per document, but document {place} has label {found} "
            f"twice."
        )


def _shorten(values: Tensor) -> str:
    shown = values.tolist()
    return str(shown) if len(shown) <= 6 else f"{shown[:3]} ... {shown[-3:]}"


def _check_ranked(evaluator: Evaluator, tensors: Mapping[str, Tensor]) -> None:
    ranked = tensors["ranked"]
    if ranked.size(1) < max(evaluator.ks):
        raise GraphError(
            f"'ranked' must hold at least {max(evaluator.ks)} labels per document, found "
            f"{ranked.size(1)}; rank more, or give ks up to the number of labels."
        )
    rows = torch.arange(ranked.size(0)).repeat_interleave(ranked.size(1))
    _check_repetition("ranked", rows, ranked.reshape(-1))


def _eval_ranking(evaluator: Evaluator, tensors: dict[str, Tensor]) -> dict[str, float]:
    _check_ranked(evaluator, tensors)
    meter = RankingMeter(evaluator.ks, evaluator.empty)
    meter.update(*(tensors[key] for key in ("ranked", *_GOLD)))
    return meter.compute()


def _eval_ranked_sum(evaluator: Evaluator, tensors: dict[str, Tensor]) -> dict[str, float]:
    meter = RankedSumMeter(evaluator.ks)
    meter.update(*(tensors[key] for key in ("logits", *_GOLD)))
    return meter.compute()


def _eval_propensity(evaluator: Evaluator, tensors: dict[str, Tensor]) -> dict[str, float]:
    _check_ranked(evaluator, tensors)
    number = int(tensors["num_train_documents"])
    meter = PropensityMeter(inverse_propensity(tensors["train_count"], number), evaluator.ks)
    meter.update(*(tensors[key] for key in ("ranked", *_GOLD)))
    return meter.compute()


def _count_sets(tensors: dict[str, Tensor]) -> F1Meter:
    meter = F1Meter(int(tensors["num_labels"]))
    meter.update(*(tensors[key] for key in (*_PREDICTED, *_GOLD)))
    return meter


def _eval_f1(_evaluator: Evaluator, tensors: dict[str, Tensor]) -> dict[str, float]:
    return _count_sets(tensors).compute()


def _eval_sets(_evaluator: Evaluator, tensors: dict[str, Tensor]) -> dict[str, float]:
    return average_sets(_count_sets(tensors).counts)


def _eval_hierarchical(_evaluator: Evaluator, tensors: dict[str, Tensor]) -> dict[str, float]:
    hierarchy = Hierarchy(tensors["label_edge_index"], int(tensors["num_labels"]))
    meter = HierarchicalMeter(hierarchy)
    meter.update(*(tensors[key] for key in (*_PREDICTED, *_GOLD)))
    return meter.compute()


def _eval_violation(_evaluator: Evaluator, tensors: dict[str, Tensor]) -> dict[str, float]:
    logits = tensors["logits"]
    meter = ViolationMeter(Hierarchy(tensors["label_edge_index"], logits.size(1)))
    meter.update(logits)
    # without a pair the rate is 0/0: the meter says 0, since a flat label set cannot be violated
    return meter.compute() if meter.num_pairs else {}


_MANY = "smaller ks, or documents with as many gold labels"
_TASKS: dict[str, _Task] = {
    "ranking": _Task(("ranked", *_GOLD), ("P@", "NDCG@", "R@"), _eval_ranking, _MANY),
    "ranked_sum": _Task(("logits", *_GOLD), ("RankedSum@",), _eval_ranked_sum, _MANY),
    "propensity": _Task(
        ("ranked", *_GOLD, "train_count", "num_train_documents"),
        ("PSP@", "PSNDCG@"),
        _eval_propensity,
        "documents with gold labels",
    ),
    "f1": _Task((*_PREDICTED, *_GOLD, "num_labels"), ("F1_micro", "F1_macro"), _eval_f1),
    "sets": _Task(
        (*_PREDICTED, *_GOLD, "num_labels"),
        ("P_micro", "R_micro", "F1_micro", "P_macro", "R_macro", "F1_of_macro"),
        _eval_sets,
    ),
    "hierarchical": _Task(
        (*_PREDICTED, *_GOLD, "num_labels", "label_edge_index"),
        ("hierarchical_P", "hierarchical_R", "hierarchical_F1"),
        _eval_hierarchical,
    ),
    "violation": _Task(
        ("logits", "label_edge_index"),
        ("violation_rate", "violation_size"),
        _eval_violation,
        "label_edge_index with an edge",
    ),
}
