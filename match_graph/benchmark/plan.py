"""Plan of a benchmark: every cell with its resolved configuration, before anything starts."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from match_graph.benchmark.experiment import Experiment, PlannedRow, find_name_faults
from match_graph.benchmark.results import DatasetRecord
from match_graph.config import Config
from match_graph.datasets import CorpusDataset, open_dataset
from match_graph.errors import ConfigError, list_faults
from match_graph.graph import metadata_fields
from match_graph.io.names import check_file_name
from match_graph.io.progress import Reporter
from match_graph.runs.configure import locate_config, settle_config
from match_graph.runs.pretraining import describe_pretraining
from match_graph.training.models import find_model
from match_graph.typing import MASKS

EPOCHS = "train.epochs"
CELLS = "cells"


@dataclass(frozen=True)
class PlannedCell:
    """Planned run: a row on a data set with a seed.

    Args:
        dataset: Name of the data set.
        source: Data set as it was given.
        row: Row of the table.
        seed: Seed of all randomness.
        folder: Run folder, relative to that of the benchmark.
        config: Resolved configuration; None if the cell is refused.
        reason: Reason why the cell is refused, a sentence.
        checksum: Checksum of the data with the row's own options; empty if the cell is refused.
    """

    dataset: str
    source: str
    row: PlannedRow
    seed: int
    folder: str
    config: Config | None
    reason: str = ""
    checksum: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """Key of the cell."""
        return self.dataset, self.row.name, self.seed

    @property
    def title(self) -> str:
        """Display title of the cell."""
        return f"{self.dataset}, {self.row.name}, seed {self.seed}"

    @property
    def vectors_key(self) -> str | None:
        """Key shared by all cells that start from the same pre-trained vectors; None for none."""
        config = self.config
        if config is None or not find_model(config).is_pretrained:
            return None
        return json.dumps(describe_pretraining(config), sort_keys=True)


@dataclass(frozen=True)
class Plan:
    """Plan of a benchmark: experiment, data sets and cells.

    Args:
        experiment: Experiment, with the command line's changes.
        datasets: Data sets as they were found.
        cells: Cells in the order of work: all rows with the first seed, then all with the next one.
    """

    experiment: Experiment
    datasets: list[DatasetRecord]
    cells: list[PlannedCell]


def make_plan(experiment: Experiment, root: str | Path | None, reporter: Reporter) -> Plan:
    """Opens every data set, built if need be, and resolves every cell for it.

    A row that makes no sense for a data set, such as an ablation of a field that it lacks, becomes
    cells that say so.

    Args:
        experiment: Experiment to plan.
        root: Root folder of built data; None takes the default.
        reporter: Progress reporter.

    Raises:
        CorpusError: A data set is broken.
        ConfigError: Two data sets have one name, or two rows of a data set have.
    """
    records: list[DatasetRecord] = []
    cells: list[PlannedCell] = []
    for source in experiment.datasets:
        record, planned = _Planner(experiment, source, root, reporter).plan()
        if record.name in [other.name for other in records]:
            raise ConfigError(
                f"The data sets of a benchmark must have different names, found '{record.name}' "
                f"twice; rename one of the folders."
            )
        records.append(record)
        cells += planned
    return Plan(experiment, records, cells)


class _Planner:
    """Planner of the cells of one data set."""

    def __init__(
        self, experiment: Experiment, source: str, root: str | Path | None, reporter: Reporter
    ) -> None:
        self.experiment, self.source, self.root = experiment, source, root
        self.reporter = reporter
        self._opened: dict[str, CorpusDataset] = {}

    def plan(self) -> tuple[DatasetRecord, list[PlannedCell]]:
        experiment = self.experiment
        shared = experiment.configure(PlannedRow(name="any"), experiment.seed)
        dataset = self._open(locate_config(self.source, shared))
        dataset.transform = None
        _check_name(dataset.name)
        data = dataset[0]
        fields = metadata_fields(data)
        rows = experiment.expand(fields)
        if faults := find_name_faults(rows):
            raise ConfigError(
                list_faults(f"The experiment must be valid for '{dataset.name}'", faults)
            )
        settled = {row.name: self._settle(row) for row in rows}
        budget, settled = self._share_budget(rows, settled)
        sizes = {split: len(dataset.documents(mask)) for split, mask in MASKS.items()}
        record = DatasetRecord(
            name=dataset.name,
            source=self.source,
            checksum=dataset.checksum,
            documents={split: number for split, number in sizes.items() if number},
            num_labels=dataset.num_labels,
            fields=fields,
            epochs=budget,
            rows=rows,
        )
        return record, list(self._make_cells(record, settled))

    def _open(self, config: Config) -> CorpusDataset:
        """Data set with a row's options, which mostly are the same for all."""
        options = config.data.dataset_options()
        key = json.dumps(options, sort_keys=True, default=str)
        if key not in self._opened:
            self._opened[key] = open_dataset(
                config.dataset, root=self.root, track=self.reporter.track, **options
            )
        return self._opened[key]

    def _settle(self, row: PlannedRow) -> Config | str:
        """Resolved configuration with the first seed, or the reason why there is none."""
        try:
            config = self.experiment.configure(row, self.experiment.seed)
            if self.experiment.budget == "equal" and not self.experiment.sets(row, EPOCHS):
                config = config.change("train", epochs=None)
            _check_processes(config)
            config = locate_config(self.source, config)
            return settle_config(config, self._open(config))
        except ConfigError as error:
            return str(error)

    def _share_budget(
        self, rows: list[PlannedRow], settled: dict[str, Config | str]
    ) -> tuple[int | None, dict[str, Config | str]]:
        """Equal budget of epochs, and the configurations with it where a row sets none."""
        if self.experiment.budget == "own":
            return None, settled
        networks = {
            row.name: config
            for row in rows
            if isinstance(config := settled[row.name], Config) and find_model(config).is_neural
        }
        given = {**self.experiment.settings, **self.experiment.overrides}.get(EPOCHS)
        left = [row.name for row in rows if not self.experiment.sets(row, EPOCHS)]
        open_ones = {name: config for name, config in networks.items() if name in left}
        budget = given or max((one.train.epochs or 1 for one in open_ones.values()), default=None)
        changed = {
            name: config.change("train", epochs=budget) for name, config in open_ones.items()
        }
        return budget, {**settled, **changed}

    def _make_cells(
        self, record: DatasetRecord, settled: dict[str, Config | str]
    ) -> Iterator[PlannedCell]:
        for seed in self.experiment.seeds:
            for row in record.rows:
                found = settled[row.name]
                folder = f"{CELLS}/{record.name}/{row.folder_name}/seed{seed}"
                common = (record.name, self.source, row, seed, folder)
                if isinstance(found, str):
                    yield PlannedCell(*common, None, found)
                else:
                    config = found.model_copy(update={"seed": seed})
                    yield PlannedCell(*common, config, checksum=self._open(found).checksum)


def _check_name(dataset: str) -> None:
    try:
        check_file_name(dataset)
    except ValueError as error:
        raise ConfigError(
            f"The name of a data set {error} of cells, found {dataset!r}; rename its folder."
        ) from None


def _check_processes(config: Config) -> None:
    if config.train.devices * config.train.num_nodes != 1:
        raise ConfigError(
            f"A cell of a benchmark must be one process, found train.devices="
            f"{config.train.devices} and train.num_nodes={config.train.num_nodes}; leave them out "
            f"and use --parallel."
        )
