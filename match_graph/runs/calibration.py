"""Per-label Platt scaling of a run's logits, in ``calibration.safetensors``."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from match_graph.graph import EgoBatch
from match_graph.io.files import write_tensors
from match_graph.io.run_folder import CALIBRATION
from match_graph.metrics import PlattScaling, PlattSearch
from match_graph.runs.readers import NUMBERS, TABLES
from match_graph.training.evaluate import ScoredBatch, evaluate_model


class CalibratedModel(nn.Module):
    """Trained model with calibrated logits.

    Args:
        model: Model that maps an `EgoBatch` to logits [B, L].
        calibration: Calibration of the model's labels.
        fold: Fold of each document by its number in the graph, [documents], int64; None calibrates
            by all of the documents that were fitted. See `PlattScaling`.
    """

    def __init__(
        self, model: nn.Module, calibration: PlattScaling, fold: Tensor | None = None
    ) -> None:
        super().__init__()
        self.model, self.calibration, self.fold = model, calibration, fold

    def forward(self, batch: EgoBatch) -> Tensor:
        """Label scores before the sigmoid, [B, L], float32."""
        fold = None if self.fold is None else self.fold[batch.document.cpu()]
        return self.calibration(self.model(batch), fold)


def assign_folds(documents: Tensor, num_nodes: int, num_folds: int) -> Tensor:
    """Fold of each document by its number in the graph, [num_nodes], int64.

    Folds are of documents that follow each other: where they are sorted by what makes them alike,
    such as the source of a package, few are told apart.

    Args:
        documents: Documents to divide into folds, ascending, [D], int64; the others are in fold 0.
        num_nodes: Number of documents in the graph.
        num_folds: Number of folds, K.
    """
    fold = torch.zeros(num_nodes, dtype=torch.int64)
    fold[documents] = torch.arange(len(documents)) * num_folds // max(len(documents), 1)
    return fold


@dataclass(frozen=True)
class Validation:
    """Validation documents on which a calibration is fitted and judged.

    Args:
        batches: Batches of validation documents, with gold labels; read twice.
        fold: Fold of each document, as given by `assign_folds`.
        device: Device of the model.
        total: Sums a tensor over the processes that share the batches; None for a single process.
    """

    batches: Iterable[EgoBatch]
    fold: Tensor
    device: torch.device | str = "cpu"
    total: Callable[[Tensor], Tensor] | None = None

    def ndcg(self, model: nn.Module, search: PlattSearch | None = None) -> float:
        """NDCG@5 of a model; passes its logits to ``search`` if given."""

        def see(batch: ScoredBatch) -> None:
            if search is not None:
                search.update(batch.logits, *batch.gold, self.fold[batch.document])

        measures = evaluate_model(
            model, self.batches, None, self.device, observers=[see], total=self.total
        )
        if search is not None and self.total is not None:
            search.reduce(self.total)
        return measures["NDCG@5"]


def fit_calibration(
    model: nn.Module, num_labels: int, num_folds: int, valid: Validation
) -> tuple[PlattScaling, float, float]:
    """Fits the calibration of a model on documents that it was not trained on.

    It is kept where the ranking of held-out documents is no worse for it (NDCG@5, each document
    scaled by the other folds), as epochs are chosen; otherwise it changes nothing.

    Args:
        model: Model that maps an `EgoBatch` to logits [B, L].
        num_labels: Number of labels, L.
        num_folds: Number of folds, K.
        valid: Validation documents to fit it on.

    Returns:
        The calibration, and NDCG@5 on validation without and with the one that was fitted.
    """
    search = PlattSearch(num_labels, num_folds)
    before = valid.ndcg(model, search)
    calibration = search.compute()
    if not calibration.width:
        return calibration, before, before
    after = valid.ndcg(CalibratedModel(model, calibration, valid.fold))
    return (calibration if after >= before else calibration.undo()), before, after


def write_calibration(folder: Path, calibration: PlattScaling) -> None:
    """Writes the tensors of a calibration by name, its scalars as one-element tensors."""
    numbers = {
        name: torch.tensor(getattr(calibration, name), dtype=torch.float64) for name in NUMBERS
    }
    tables = {name: getattr(calibration, name) for name in TABLES}
    write_tensors(folder / CALIBRATION, {**tables, **numbers})
