"""Quality of pre-trained vectors against training time, by kind of negative sampling."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd
import torch

from match_graph.config import Config
from match_graph.datasets import CorpusDataset
from match_graph.errors import ConfigError
from match_graph.pretrain import SphericalTrainer, evaluate_vectors, hold_out
from match_graph.report.figures import COLOURS, LINE_STYLES, make_panels, save_figure
from match_graph.report.tables import write_csv
from match_graph.runs.pretraining import HELD_OUT
from match_graph.speed.pretrain import time_training

#: Pairs of the training that measures how many fit into a budget.
_PROBE_PAIRS = 100_000
#: Points of a curve.
_BUDGETS = 5
#: Measures of `evaluate_vectors` in the table.
MEASURES = ("mrr", "mrr_filtered")
#: Changes to the settings of pre-training by name of the mode: ours, with negatives shared by a
#: chunk; independent negatives of each positive, as many; and 5 of them, as the authors' release.
MODES: Mapping[str, Mapping[str, bool | int]] = {
    "shared negatives": {},
    "independent negatives": {"shared_negatives": False},
    "independent negatives, 5 each": {"shared_negatives": False, "negatives": 5},
}


def measure_time_to_quality(
    dataset: CorpusDataset,
    config: Config,
    budgets: Sequence[float],
    device: torch.device,
    modes: Mapping[str, Mapping[str, bool | int]] = MODES,
    report: Callable[[str], None] = lambda line: None,
) -> pd.DataFrame:
    """Measures the ranks of held-out pairs after trainings of several lengths.

    Every point is a training of its own, whose learning rate falls to 0 within its budget, as for a
    user who trains that long. Only sampling and steps are timed.

    Args:
        dataset: Built data set.
        config: Configuration; ``pretrain`` and ``seed`` count.
        budgets: Training budgets in seconds.
        device: Device of the training.
        modes: Modes to compare, as `MODES`; they take turns, budget by budget.
        report: Callback, called with one line per point.

    Returns:
        A row per mode, budget and node type, and one for the mean over types: ``mode``, ``seconds``
        (as measured), ``pairs``, ``type``, ``mrr``, ``mrr_filtered``.
    """
    num_rows = dataset.token_space(config.data.min_count, config.data.min_word_count).kept_by_type
    held = hold_out(dataset.graph, num_rows, HELD_OUT, config.seed)

    def make(mode: str) -> SphericalTrainer:
        settings = config.pretrain.model_copy(update=modes[mode])
        return SphericalTrainer(held.data, settings, config.seed, num_rows, device=device)

    rates = {mode: _PROBE_PAIRS / time_training(make(mode), _PROBE_PAIRS) for mode in modes}
    rows = []
    for budget in budgets:
        for mode in modes:
            trainer = make(mode)
            seconds = time_training(trainer, max(1, int(budget * rates[mode])))
            rates[mode] = trainer.num_seen / seconds
            found = evaluate_vectors(trainer.tables, held, config.pretrain.margin)
            point = {"mode": mode, "seconds": seconds, "pairs": trainer.num_seen}
            means = {measure: fmean(one[measure] for one in found.values()) for measure in MEASURES}
            rows += [
                {**point, "type": name, **{measure: one[measure] for measure in MEASURES}}
                for name, one in {**found, "mean": means}.items()
            ]
            report(
                f"{mode}: {seconds:.1f} s, {trainer.num_seen:,} pairs, "
                f"mean reciprocal rank {means['mrr']:.4f}"
            )
    return pd.DataFrame(rows)


def check_curve(stage: str) -> None:
    """Checks that a stage has a quality to be measured, before a data set is built for it.

    Raises:
        ConfigError: It has none; only ``pretrain`` has.
    """
    if stage != "pretrain":
        raise ConfigError(
            f"Only the stage 'pretrain' has a quality against seconds, found '{stage}'; leave out "
            f"--curve."
        )


def write_time_to_quality(
    folder: Path,
    dataset: CorpusDataset,
    config: Config,
    seconds: float,
    device: torch.device,
    report: Callable[[str], None],
) -> None:
    """Writes ``time_to_quality-DATASET`` as CSV and PNG; budgets double up to ``seconds``.

    Args:
        folder: Target folder, made if need be.
        dataset: Built data set.
        config: Configuration; ``pretrain`` and ``seed`` count.
        seconds: Longest training of each mode, in seconds.
        device: Device of the training.
        report: Callback, called with one line per point.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    budgets = [seconds / 2**step for step in reversed(range(_BUDGETS))]
    table = measure_time_to_quality(dataset, config, budgets, device, report=report)
    stem = folder / f"time_to_quality-{dataset.name}"
    write_csv(stem.with_suffix(".csv"), table)
    draw_time_to_quality(stem.with_suffix(".png"), table)


def draw_time_to_quality(path: Path, table: pd.DataFrame) -> None:
    """Quality of pre-trained vectors against seconds, a curve per mode, a panel per node type.

    Args:
        path: Path of the PNG file.
        table: Table from `measure_time_to_quality`.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    types = sorted(table["type"].unique(), key=lambda name: (name != "mean", name))
    figure, axes = make_panels(len(types))
    for axis, name in zip(axes, types, strict=True):
        of_type = table[table["type"] == name]
        for number, (mode, points) in enumerate(of_type.groupby("mode", sort=False)):
            axis.plot(
                points["seconds"], points["mrr"], LINE_STYLES[number % 4], marker="o",
                markersize=3, color=COLOURS[number % 6], label=mode,
            )  # fmt: skip
        axis.set(xscale="log", xlabel="seconds", ylabel="held-out mrr", title=name)
    axes[0].legend(fontsize=7)
    save_figure(figure, path)
