"""Fitting of baselines, and the registry of encoders and baselines."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from match_graph.baselines import BASELINES, Baseline
from match_graph.config import Config, ModelConfig, parse_settings
from match_graph.errors import CheckpointError
from match_graph.graph import EgoBatch, TokenSpace
from match_graph.io.files import FITTED, has_folder, write_folder
from match_graph.io.progress import Reporter
from match_graph.nn import ENCODERS, Encoder
from match_graph.nn.contract import check_encoder_class
from match_graph.nn.model import find_class


class FittedModel(nn.Module):
    """A baseline where a model is expected: batches of ego-networks -> label scores [B, L].

    Args:
        baseline: A fitted baseline.
    """

    def __init__(self, baseline: Baseline) -> None:
        super().__init__()
        self.baseline = baseline

    def forward(self, batch: EgoBatch) -> Tensor:
        """Log-odds of every label, [B, L]."""
        return self.baseline.predict(batch)


def find_encoder(name: str) -> type[Encoder] | type[Baseline]:
    """The class that ``model.encoder`` names: an encoder or a baseline.

    Raises:
        ConfigError: There is none, or it does not keep the contract of encoders.
    """
    registered: dict[str, type[Any]] = {**ENCODERS, **BASELINES}
    found: type[Any] = find_class(name, registered, (Encoder, Baseline), "encoder")
    if issubclass(found, Encoder):
        check_encoder_class(found, name)
    return found


def is_baseline(config: ModelConfig) -> bool:
    """Whether ``model.encoder`` names a baseline.

    Raises:
        ConfigError: It names nothing.
    """
    return issubclass(find_encoder(config.encoder), Baseline)


def make_baseline(space: TokenSpace, num_labels: int, config: Config) -> Baseline:
    """A baseline that is not fitted yet.

    Raises:
        ConfigError: A setting is unknown, or a package is missing.
    """
    cls = find_encoder(config.model.encoder)
    assert issubclass(cls, Baseline)
    summary = "model.encoder_config must be valid"
    settings = parse_settings(cls.Config, config.model.encoder_config, summary)
    return cls(space, num_labels, settings, config.seed)


def fit_baseline(
    baseline: Baseline, batches: Iterable[EgoBatch], folder: Path, reporter: Reporter
) -> None:
    """Fits a baseline and writes it into a run folder as a whole.

    Args:
        baseline: Baseline to fit.
        batches: Batches of the training documents, with gold labels.
        folder: Run folder.
        reporter: Reporter of progress.
    """
    with reporter.track("fit", baseline.num_labels, "labels") as advance:
        baseline.fit(batches, lambda done: advance(done, ""))
    write_folder(folder / FITTED, baseline.save)


def load_baseline(space: TokenSpace, num_labels: int, config: Config, folder: Path) -> FittedModel:
    """The fitted baseline of a run folder.

    Raises:
        CheckpointError: There is none, or it cannot be read.
    """
    baseline = make_baseline(space, num_labels, config)
    if not has_folder(folder / FITTED):
        raise CheckpointError(
            f"A trained run of a baseline holds a folder '{FITTED}', but '{folder}' has none; "
            f"train it with `match-graph train {config.dataset} --out {folder}`."
        )
    baseline.load(folder / FITTED)
    return FittedModel(baseline)
