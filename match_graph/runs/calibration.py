"""``scaling.safetensors`` of a run folder: Platt scaling of a trained model's label scores."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from match_graph.errors import CheckpointError
from match_graph.graph import EgoBatch, LabelDAG
from match_graph.io.files import SCALING, has_file, read_tensors, write_tensors
from match_graph.metrics import PlattScaling, PlattSearch
from match_graph.nn.coherent import CoherentOutput
from match_graph.training.evaluate import WatchedBatches, evaluate_model

#: One-number tensors of the file, and those of all labels.
_NUMBERS, _TABLES = ("width", "before", "after"), ("scale", "shift", "fold_scale", "fold_shift")


class ScaledModel(nn.Module):
    """A trained model whose label scores are scaled.

    Args:
        model: Maps an `EgoBatch` to logits [B, L].
        scaling: Of its labels.
        label_dag: The hierarchy, where the output is coherent: scaled scores are made so again.
        fold: The fold of each document by its number in the graph, [documents], int64; None scales
            by all of the documents that were fitted. See `PlattScaling`.
    """

    def __init__(
        self,
        model: nn.Module,
        scaling: PlattScaling,
        label_dag: LabelDAG | None = None,
        fold: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.model, self.scaling, self.fold = model, scaling, fold
        self.coherent = None if label_dag is None else CoherentOutput(label_dag)

    def forward(self, batch: EgoBatch) -> Tensor:
        """Label scores before the sigmoid, [B, L], float32."""
        fold = None if self.fold is None else self.fold[batch.document.cpu()]
        logits = self.scaling(self.model(batch), fold)
        return logits if self.coherent is None else self.coherent.to(logits.device)(logits)


def assign_folds(documents: Tensor, num_nodes: int, num_folds: int) -> Tensor:
    """The fold of each document by its number in the graph, [num_nodes], int64.

    Folds are of documents that follow each other: where they are sorted by what makes them alike,
    such as the source of a package, few are told apart.

    Args:
        documents: Those to divide, ascending, [D], int64; the others are in fold 0.
        num_nodes: Documents of the graph.
        num_folds: K.
    """
    fold = torch.zeros(num_nodes, dtype=torch.int64)
    fold[documents] = torch.arange(len(documents)) * num_folds // max(len(documents), 1)
    return fold


@dataclass(frozen=True)
class Validation:
    """What a scaling is fitted and judged on.

    Args:
        batches: Of validation documents, with gold labels; read twice.
        fold: As `assign_folds` gives it.
        label_dag: The hierarchy.
        coherent: Whether the output is.
        device: Of the model.
        total: Sums a tensor over processes that share the batches; None is one process.
    """

    batches: Iterable[EgoBatch]
    fold: Tensor
    label_dag: LabelDAG
    coherent: bool = False
    device: torch.device | str = "cpu"
    total: Callable[[Tensor], Tensor] | None = None

    def ndcg(self, model: nn.Module, search: PlattSearch | None = None) -> float:
        """NDCG@5 of a model; shows its scores to a search."""
        watched = WatchedBatches(self.batches)

        def see(logits: Tensor, label_ptr: Tensor, label_index: Tensor) -> None:
            if search is not None:
                search.update(logits, label_ptr, label_index, self.fold[watched.document])

        rank = self.label_dag.rank if self.coherent else None
        no_edges = self.label_dag.edge_index[:, :0]  # violations are not asked for, and cost time
        measures = evaluate_model(
            model, watched, no_edges, self.device, observers=[see], total=self.total,
            label_rank=rank,
        )  # fmt: skip
        if search is not None and self.total is not None:
            search.reduce(self.total)
        return measures["NDCG@5"]


def fit_scaling(
    model: nn.Module, num_labels: int, num_folds: int, valid: Validation
) -> tuple[PlattScaling, float, float]:
    """The scaling of a model by documents that it was not trained on.

    It is kept where the ranking of held-out documents is no worse for it (NDCG@5, each document
    scaled by the other folds), as epochs are chosen; otherwise it changes nothing.

    Args:
        model: Maps an `EgoBatch` to logits [B, L].
        num_labels: L.
        num_folds: K.
        valid: Documents to fit it on.

    Returns:
        The scaling, and NDCG@5 on validation without and with the one that was fitted.
    """
    search = PlattSearch(num_labels, num_folds)
    before = valid.ndcg(model, search)
    scaling = search.compute()
    if not scaling.width:
        return scaling, before, before
    dag = valid.label_dag if valid.coherent else None
    after = valid.ndcg(ScaledModel(model, scaling, dag, valid.fold))
    return (scaling if after >= before else scaling.undo()), before, after


def write_scaling(folder: Path, scaling: PlattScaling) -> None:
    """Writes the tensors of a scaling by their names, and its numbers as tensors of one."""
    numbers = {name: torch.tensor(getattr(scaling, name), dtype=torch.float64) for name in _NUMBERS}
    tables = {name: getattr(scaling, name) for name in _TABLES}
    write_tensors(folder / SCALING, {**tables, **numbers})


def read_scaling(folder: Path, num_labels: int) -> PlattScaling | None:
    """The scaling of a run folder; None if there is none.

    Raises:
        CheckpointError: The file is broken, or of other labels.
    """
    path = folder / SCALING
    if not has_file(path):
        return None
    tensors = read_tensors(path)
    if tensors.keys() != {*_NUMBERS, *_TABLES}:
        raise _broken(path, f"it holds {sorted(tensors)}")
    if any(tensors[name].shape[-1:] != (num_labels,) for name in _TABLES):
        raise _broken(path, f"it is of {tensors['scale'].numel()} labels, not {num_labels}")
    scale, shift, fold_scale, fold_shift = (tensors[name] for name in _TABLES)
    if not (
        all(tensors[name].dim() == 0 for name in _NUMBERS)
        and scale.dim() == shift.dim() == 1
        and fold_scale.dim() == 2
        and fold_scale.shape == fold_shift.shape
        and all(tensors[name].dtype == torch.float32 for name in _TABLES)
    ):
        raise _broken(path, "its tensors have other shapes or types")
    if not bool((scale > 0).all() & (fold_scale > 0).all() & (tensors["width"] >= 0)):
        raise _broken(path, "a scale or the width is not positive")
    width, before, after = (float(tensors[name]) for name in _NUMBERS)
    return PlattScaling(scale, shift, fold_scale, fold_shift, width, before, after)


def _broken(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        f"'{path}' must hold a scale and a shift for each label of the run, but it cannot be used "
        f"({reason}); delete it and write it again with `match-graph evaluate`."
    )
