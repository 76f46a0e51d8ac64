"""Trained model of a run as predictions have it: blended, calibrated, coherent."""

from functools import cached_property, partial

import torch
from torch import Tensor, nn

from match_graph.baselines import TfidfLinear
from match_graph.graph import Hierarchy
from match_graph.io.run_folder import BLEND, CALIBRATION, SHARES
from match_graph.metrics import Blend, BlendSearch, PlattScaling
from match_graph.nn.coherent import CoherentOutput
from match_graph.runs.blend import (
    BlendedModel,
    find_linear_model,
    fit_blend,
    load_linear,
    write_blend,
)
from match_graph.runs.calibration import (
    CalibratedModel,
    Validation,
    assign_folds,
    fit_calibration,
    write_calibration,
)
from match_graph.runs.inputs import RunInputs
from match_graph.runs.readers import read_blend, read_calibration
from match_graph.training.loop import FitInputs
from match_graph.training.processes import any_of, lead, sum_up
from match_graph.typing import DOCUMENT, MASKS

#: Validation documents from which label scores are scaled, and the folds of these. On the 131 of
#: cacm what held-out documents chose made test documents worse (experiments/defaults).
_MIN_DOCUMENTS, _FOLDS = 1000, 5


def compose_model(
    model: nn.Module,
    device: torch.device,
    linear: TfidfLinear | None = None,
    blend: Blend | None = None,
    calibration: PlattScaling | None = None,
    hierarchy: Hierarchy | None = None,
    fold: Tensor | None = None,
) -> nn.Module:
    """Trained model whose logits are blended, calibrated and made coherent, as far as given.

    Args:
        model: Model that maps an `EgoBatch` to logits [B, L], on its device.
        device: Device of the model.
        linear: Linear classifier beside the model.
        blend: Shares of the model and the linear classifier; None without a blend.
        calibration: Calibration of the logits; None without one.
        hierarchy: Label hierarchy, where the output is coherent.
        fold: Fold of each document, [documents], as for `BlendedModel` and `CalibratedModel`.
    """
    if linear is not None and blend is not None:
        model = BlendedModel(model, linear, blend, fold)
    if calibration is not None and calibration.width:
        model = CalibratedModel(model, calibration, fold)
    if hierarchy is not None:
        model = nn.Sequential(model, CoherentOutput(hierarchy).to(device))
    return model


class RunFinish(RunInputs):
    """Run whose trained model is blended and calibrated as its settings say."""

    def finish_model(self, model: nn.Module, held_out: bool = False) -> nn.Module:
        """Model with blended, calibrated and coherent logits; fits what is missing of it.

        Args:
            model: Model from `load_model`, on the run's device.
            held_out: Whether to blend and calibrate each validation document by the other folds
                (cross-fitting). The folds' calibrations are of logits that are blended by the share
                of all documents, one number, which is in steps of .1.
        """
        linear = blend = calibration = None
        device = self.fabric.device
        if self.config.model.blend:
            with self.record.timed("blend"):
                blend = read_blend(self.folder) if self._all_see(SHARES) else self._blend(model)
            linear = self._linear
        if self.is_calibrated:
            with self.record.timed("calibrate"):
                if self._all_see(CALIBRATION):
                    calibration = read_calibration(self.folder, self.dataset.num_labels)
                else:
                    blended = compose_model(model, device, linear, blend)
                    calibration = self._calibrate(blended)
        hierarchy = self.dataset.hierarchy if self.config.model.coherent else None
        fold = self._valid_folds() if held_out else None
        return compose_model(model, device, linear, blend, calibration, hierarchy, fold)

    @property
    def is_calibrated(self) -> bool:
        """True if `train.calibrate` is set and training validates on 1,000 documents or more."""
        train = self.config.train
        documents = self.dataset.documents(MASKS["valid"])[: train.valid_documents]
        return train.calibrate and len(documents) >= _MIN_DOCUMENTS

    def _set_up_model(self) -> nn.Module:
        """Trained model on its device."""
        return self.model.set_up(self.load_model(), self.fabric)

    @property
    def _validation(self) -> Validation:
        """Validation documents of training."""
        return Validation(
            self.loader("valid", sample=self.config.train.valid_documents),
            self._valid_folds(),
            self.fabric.device,
            partial(sum_up, self.fabric),
        )

    @cached_property
    def _linear(self) -> TfidfLinear:
        """The fitted linear classifier beside the network."""
        return load_linear(
            self.folder, self.config, self.space, self.dataset.num_labels, self.features
        )

    def _blend(self, model: nn.Module) -> Blend:
        """Fits a linear classifier, and the shares of both on the validation of training."""
        linear = find_linear_model(self.config)
        module = linear.build(self.space, (self.dataset.num_labels,), None, self.features)
        train = self.loader("train", shared=False, needs=linear.needs)
        no_edge, folder = Hierarchy.without_edges(self.dataset.num_labels), self.folder / BLEND
        inputs = FitInputs(train, train, no_edge, folder, self.reporter, self.fabric, self.origin)
        linear.fit(module, inputs)
        with self.fabric.autocast():
            blend = fit_blend(model, self._linear, BlendSearch(_FOLDS), self._validation)
        lead(self.fabric, lambda: write_blend(self.folder, blend))
        self.record.note("network_share", blend.share)
        self.record.note("metadata_weight", self._linear.metadata_weight)
        self.reporter.line(f"blend: {blend.share:.0%} network, the rest linear")
        return blend

    def _calibrate(self, model: nn.Module) -> PlattScaling:
        """Fits the calibration on the validation documents of training."""
        with self.fabric.autocast():
            calibration, before, after = fit_calibration(
                model, self.dataset.num_labels, _FOLDS, self._validation
            )
        lead(self.fabric, lambda: write_calibration(self.folder, calibration))
        self.reporter.line(
            f"calibrate: validation NDCG@5 {before:.4f} -> {after:.4f}, "
            + (f"prior width {calibration.width:g}" if calibration.width else "label scores stay")
        )
        return calibration

    def _valid_folds(self) -> Tensor:
        """Folds of the validation documents."""
        num_nodes = self.dataset.graph.num_nodes(DOCUMENT)
        return assign_folds(self.dataset.documents(MASKS["valid"]), num_nodes, _FOLDS)

    def _all_see(self, name: str) -> bool:
        """Whether a file exists for every process; a shared disk may show it to some late."""
        return not any_of(self.fabric, not (self.folder / name).is_file())
