"""Stages and sizes by name, and the measurement of one or all."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from match_graph.config import Config
from match_graph.datasets import CorpusDataset
from match_graph.errors import ConfigError, MatchGraphError
from match_graph.io.progress import Reporter
from match_graph.runs.configure import resolve_config
from match_graph.speed.build import measure_build
from match_graph.speed.export import measure_export
from match_graph.speed.hypernymy import measure_hypernymy
from match_graph.speed.measure import Bench, Speed
from match_graph.speed.predict import measure_predict
from match_graph.speed.pretrain import measure_pretrain
from match_graph.speed.read import measure_read
from match_graph.speed.sample import measure_sample
from match_graph.speed.scaling import measure_scaling
from match_graph.speed.sharding import measure_sharding
from match_graph.speed.step import measure_step
from match_graph.speed.targets import measure_targets

#: Functions that measure a stage, by name.
SPEED_STAGES: dict[str, Callable[[Bench], Iterator[Speed]]] = {
    "build": measure_build,
    "sample": measure_sample,
    "pretrain": measure_pretrain,
    "step": measure_step,
    "targets": measure_targets,
    "hypernymy": measure_hypernymy,
    "predict": measure_predict,
    "scaling": measure_scaling,
    "sharding": measure_sharding,
    "read": measure_read,
    "export": measure_export,
}
#: Sizes by name: a registered data set and its options.
SPEED_SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "debtags": ("debtags", {}),
    "50k": (
        "synthetic",
        {"num_documents": 50_000, "num_labels": 1000, "num_layers": 5, "num_words": 50_000},
    ),
    "mag-cs": ("synthetic", {"like": "mag-cs"}),
    "pubmed": ("synthetic", {"like": "pubmed"}),
}
#: Stages that ``all`` leaves out: they take minutes, or start processes of their own.
_ALONE = frozenset({"scaling", "sharding", "read", "export"})
#: Stages that are measured once, by processor time, on corpora of their own.
OWN_CORPORA = frozenset({"scaling"})


def check_stage(stage: str, busy: int = 0) -> None:
    """Checks that a stage, or ``all``, exists and can be measured beside busy processes, if any.

    Raises:
        ConfigError: There is no such stage, or it has no baseline to take turns with.
    """
    if stage != "all" and stage not in SPEED_STAGES:
        raise ConfigError(
            f"A stage must be one of {sorted(SPEED_STAGES)} or 'all', found '{stage}'."
        )
    if busy and stage in OWN_CORPORA:
        raise ConfigError(
            f"A stage that is measured beside busy processes must take turns with a baseline, but "
            f"'{stage}' does not; leave out --busy."
        )


def measure_speed(
    stage: str,
    dataset: CorpusDataset,
    config: Config,
    seconds: float,
    device: torch.device,
    busy: int = 0,
    reporter: Reporter | None = None,
) -> Iterator[Speed]:
    """Measures one stage, or with ``all`` every stage that the data set and the model have.

    Args:
        stage: Name in `SPEED_STAGES`, or ``all`` except those that take minutes or start processes:
            scaling, sharding, read, export.
        dataset: Data set to measure on.
        config: Configuration; the settings of the stage count.
        seconds: Approximate seconds per measured stage.
        device: Device of the measurement.
        busy: Number of busy processes beside which each stage is measured again.
        reporter: Reporter, warned of stages that ``all`` leaves out; None prints nothing.

    Raises:
        ConfigError: There is no such stage, it is not measured beside busy processes, or the data
            set or the model has nothing to measure there.
    """
    check_stage(stage, busy)
    bench = Bench(dataset, resolve_config(config, dataset), seconds, device, busy)
    for name in SPEED_STAGES if stage == "all" else [stage]:
        if stage != name and name in _ALONE:
            continue
        try:
            yield from SPEED_STAGES[name](bench)
        except MatchGraphError as error:
            if stage != "all":
                raise
            if reporter is not None:
                reporter.warn(f"'{name}' is left out: {error}")
