"""Summary of a benchmark: means over seeds, best rows, tests, published values."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, mode, stdev
from typing import Any, Literal

from match_graph.benchmark.experiment import LOWER_IS_BETTER
from match_graph.benchmark.results import Cell, DatasetRecord, Results, write_results
from match_graph.benchmark.scores import CellScores
from match_graph.errors import CheckpointError
from match_graph.metrics import Comparison, find_stars
from match_graph.predict.share import shorten_paths, shorten_told
from match_graph.report.row_tests import RowTests
from match_graph.runs.measures import ABOUT_POLICY
from match_graph.runs.record import describe_twins


@dataclass(frozen=True)
class Value:
    """Value of a table: a measure of a row over its finished runs.

    Args:
        mean: Mean over seeds, a fraction.
        std: Standard deviation over seeds, with n - 1; None for one run.
        is_best: Whether no row has a better mean.
        runs: t-test of the row minus the reference over common seeds; None without a reference.
        documents: Bootstrap test of the row minus the reference over documents; None without a
            reference or without scores of documents.
        interval: 95 % interval over documents of the difference to the reference, or, for the
            reference itself and without one, of the mean; None without scores of documents.
        expected: Published mean and, if known, standard deviation; empty without any.
        lower_is_better: Whether lower values are better.
    """

    mean: float
    std: float | None
    is_best: bool
    runs: Comparison | None
    documents: Comparison | None
    interval: tuple[float, float] | None
    expected: tuple[float, ...]
    lower_is_better: bool

    @property
    def stars(self) -> str:
        """Significance by both tests: ``*`` or ``**`` if worse, ``+`` or ``++`` if better."""
        stars = find_stars(self.runs, self.documents)
        if self.runs is None or not stars:
            return ""
        is_worse = (self.runs.difference < 0) != self.lower_is_better
        return stars if is_worse else "+" * len(stars)

    @property
    def difference(self) -> float | None:
        """Difference of the mean to the published one."""
        return self.mean - self.expected[0] if self.expected else None


@dataclass(frozen=True)
class RowSummary:
    """Summary of a table row.

    Args:
        name: Name of the row.
        measured: Values by measure, except those that the data set lacks; empty if no run is
            finished.
        runs: Number of finished runs.
        blend: Whether a network is blended with a linear classifier, or "tree" if with one of
            clustered labels; None for a baseline, or if unknown.
        features: Node types with features.
        start: Initialization of token embeddings (``model.init``); None as for ``blend``.
        parameters: Number of parameters of a network; None if unknown.
        train_seconds: Seconds of training or fitting, with a blend, without pre-training; the mean
            over uninterrupted runs on the device that most runs of the data set used (CPU or a
            model of GPU; on a tie the first row's). None without any.
        seconds_per_epoch: Seconds per epoch, the mean over the same runs; None without any.
        peak_mib: Peak memory in MiB over all runs on that device, of the GPU if it is one; None
            without any.
        notes: Sentences on why the row was left out, and on runs that failed, in which the network
            has no share of its blend, or that used another device, and on missing tests.
    """

    name: str
    measured: Mapping[str, Value]
    runs: int
    blend: bool | Literal["tree"] | None
    features: tuple[str, ...]
    start: str | None
    parameters: int | None
    train_seconds: float | None
    seconds_per_epoch: float | None
    peak_mib: float | None
    notes: tuple[str, ...]


def summarize(results: Results, dataset: str, folder: Path | None = None) -> list[RowSummary]:
    """Row summaries of a data set's table, in order.

    Args:
        results: Results, finished or not.
        dataset: Name of the data set.
        folder: Folder of the benchmark, whose run folders have the scores of documents; None uses
            published intervals and tests, if there are any.

    Raises:
        CheckpointError: A finished cell lacks a measure, or the data set is not in the results.
    """
    names = [record.name for record in results.datasets]
    if dataset not in names:
        raise CheckpointError(
            f"The results must have the data set that is asked for, but there is no '{dataset}' "
            f"among {names}."
        )
    record = results.datasets[names.index(dataset)]
    summarizer = _Summarizer(results, record, folder)
    return [summarizer.summarize(row.name) for row in record.rows]


def publish(results: Results, folder: Path, out: Path) -> None:
    """Writes results for publication without run folders, and the scores of their documents.

    ``results.json`` has tests and no histories, and data sets by their names. Absolute paths, also
    in the reasons of failures, are reduced to their last part, and waiting cells are left out. With
    ``scores.parquet`` beside it, the folder is that of a benchmark, which can be continued.

    Args:
        results: Results of a benchmark.
        folder: Folder of the benchmark.
        out: Folder to write to.

    Raises:
        CheckpointError: A finished cell lacks a measure.
    """
    records = [
        _Summarizer(results, record, folder)
        .tests.publish(record)
        .model_copy(update={"source": record.name})
        for record in results.datasets
    ]
    names = [record.name for record in records]
    experiment = results.experiment.model_copy(update={"datasets": names})
    done = [cell for cell in results.cells if cell.status != "waiting"]
    cells = [
        cell.model_copy(
            update={"history": [], "published": True, "reason": shorten_told(cell.reason)}
        )
        for cell in done
    ]
    update = {"experiment": experiment, "datasets": records, "cells": cells}
    found = results.model_copy(update=update)
    finished = [cell for cell in done if cell.status == "done"]
    CellScores(folder, results.experiment.split).write(out, finished)
    content = json.dumps(shorten_paths(found.model_dump(mode="json")))
    write_results(out, Results.model_validate_json(content))


class _Summarizer:
    """Builder of the row summaries of a data set."""

    def __init__(self, results: Results, record: DatasetRecord, folder: Path | None) -> None:
        self.experiment, self.dataset = results.experiment, record.name
        self.cells = {row.name: results.find_cells(record.name, row.name) for row in record.rows}
        self.done = {
            row: [cell for cell in cells if cell.status == "done"]
            for row, cells in self.cells.items()
        }
        #: Value by seed, by row and measure; without measures that the data set lacks.
        self.values = {
            (row, measure): found
            for row in self.done
            for measure in self.experiment.measures
            if (found := results.find_values(record.name, row, measure))
        }
        devices = [_name_device(cell) for cells in self.done.values() for cell in cells]
        #: Device of the most runs; seconds and memory of others are not comparable.
        self.device = mode(devices) if devices else ""
        scores = None if folder is None else CellScores(folder, results.experiment.split)
        self.tests = RowTests(self.experiment, self.done, self.values, scores, record.tests)

    def summarize(self, row: str) -> RowSummary:
        done = self.done[row]
        measures = [one for one in self.experiment.measures if (row, one) in self.values]
        values = {measure: self._make_value(row, measure) for measure in measures}
        here = [cell for cell in done if _name_device(cell) == self.device]
        whole = [cell for cell in here if not cell.resumed]
        epochs = [cell.seconds_per_epoch for cell in whole if cell.seconds_per_epoch is not None]
        parameters = [cell.parameters for cell in done if cell.parameters is not None]
        return RowSummary(
            name=row,
            measured=values,
            runs=len(done),
            **_describe_model(self.cells[row]),
            parameters=max(parameters, default=None),
            train_seconds=_mean(
                [cell.seconds["train"] + cell.seconds.get("blend", 0.0) for cell in whole]
            ),
            seconds_per_epoch=_mean(epochs),
            peak_mib=max((_peak(cell) for cell in here), default=None),
            notes=(
                *_describe_status(self.cells[row]),
                *_describe_shares(done),
                *_describe_devices(done, self.device),
                *self.tests.notes.get(row, ()),
            ),
        )

    def _make_value(self, row: str, measure: str) -> Value:
        mine, mean = self.values[row, measure], self.tests.means[row, measure]
        lower_is_better = measure in LOWER_IS_BETTER
        means = [one for key, one in self.tests.means.items() if key[1] == measure]
        expected = self.experiment.expected.get(self.dataset, {}).get(row, {})
        return Value(
            mean=mean,
            std=stdev(mine.values()) if len(mine) > 1 else None,
            is_best=mean == (min(means) if lower_is_better else max(means)),
            runs=self.tests.by_unit["runs"].get((row, measure)),
            documents=self.tests.by_unit["documents"].get((row, measure)),
            interval=self.tests.intervals.get((row, measure)),
            expected=tuple(expected.get(measure, ())),
            lower_is_better=lower_is_better,
        )


def _describe_model(cells: Sequence[Cell]) -> dict[str, Any]:
    """Blend, features and initialization of embeddings in a row's resolved settings."""
    config = next((cell.config for cell in cells if cell.config), {})
    model, data = config.get("model", {}), config.get("data", {})
    is_neural = model.get("head") is not None  # resolved for networks alone
    return {
        "blend": model.get("blend") if is_neural else None,
        "features": tuple(data.get("features", {})),
        "start": model.get("init") if is_neural else None,
    }


def _describe_status(cells: Sequence[Cell]) -> Iterator[str]:
    """Sentences on cells that are not finished, grouping seeds by reason."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for cell in cells:
        seeds.setdefault((cell.status, cell.reason), []).append(cell.seed)
    for (status, reason), found in seeds.items():
        of_seeds = _name_seeds(found)
        if status == "refused":
            yield f"left out. {reason}"
        elif status == "failed":
            yield f"{of_seeds} failed. {reason}"
        elif status == "waiting":
            yield f"{of_seeds}: not finished."


def _describe_shares(done: Sequence[Cell]) -> Iterator[str]:
    """Sentence on finished cells with the scores of the linear classifier alone."""
    if seeds := [cell.seed for cell in done if cell.network_share == 0]:
        yield (
            f"the network's share of its blend is 0 with {_name_seeds(seeds)}: there the linear "
            f"classifier is measured by itself."
        )


def _describe_devices(done: Sequence[Cell], device: str) -> Iterator[str]:
    """Sentences on finished cells that used another device than the one of the costs."""
    seeds: dict[str, list[int]] = {}
    for cell in done:
        seeds.setdefault(_name_device(cell), []).append(cell.seed)
    for other, found in seeds.items():
        if other != device:
            yield (
                f"{_name_seeds(found)} ran on {other}: their seconds and memory are left out, "
                f"those of the table are of {device}."
            )


def _name_device(cell: Cell) -> str:
    threads = cell.device.get("threads", 1)
    return str(cell.device.get("cuda", "CPU" if threads == 1 else f"CPU with {threads} threads"))


def _name_seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def describe_policies(measures: Sequence[str]) -> str:
    """Sentences on how documents with few labels count, and on groups of measures."""
    about = ABOUT_POLICY
    found = [name for name in measures if name.startswith("at_least_k/")]
    if found:
        about = about if len(found) < len(measures) else ""
        about += (
            " at_least_k/: means over the documents with at least k labels (policy 'at_least_k')"
        )
        ranks = any("RankedSum" in name for name in found)
        about += "; RankedSum@k is the rank of the k-th gold label, lower is better." * ranks or "."
    if any(name.startswith("shared_threshold/") for name in measures):
        about += " shared_threshold/: at one threshold of all labels, chosen on valid."
    return about.strip()


def describe_dataset_twins(record: DatasetRecord, split: str) -> str:
    """Sentence on the documents of a split with a training document's word sequence.

    Empty if results of an older version have no such number.
    """
    twins, total = (record.twins or {}).get(split), record.documents.get(split, 0)
    return "" if twins is None or not total else describe_twins(split, twins, total)


def collect_notes(rows: Sequence[RowSummary]) -> list[str]:
    """Notes of all rows, each once, after the names of its rows."""
    names: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            names.setdefault(note, []).append(row.name)
    return [f"{', '.join(found)}: {note}" for note, found in names.items()]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _peak(cell: Cell) -> float:
    return cell.peak_mib.get("cuda") or cell.peak_mib["host"]
