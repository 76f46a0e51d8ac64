"""Plan of a benchmark: every cell with its resolved configuration, before anything starts."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from match_graph.benchmark.experiment import Experiment, PlannedRow, find_name_faults
from match_graph.benchmark.results import Cell, DatasetRecord, find_doubled
from match_graph.config import SHARING, Config
from match_graph.datasets import CorpusDataset, open_dataset
from match_graph.errors import ConfigError, list_faults
from match_graph.graph import count_twins, metadata_fields
from match_graph.io.names import check_file_name
from match_graph.io.progress import Reporter
from match_graph.predict.share import shorten_paths
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
        source: Data set as the experiment names it.
        row: Row of the table.
        seed: Seed of all randomness.
        folder: Run folder, relative to that of the benchmark.
        config: Resolved configuration.
        checksum: Checksum of the data with the row's own options.
    """

    dataset: str
    source: str
    row: PlannedRow
    seed: int
    folder: str
    config: Config
    checksum: str

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
        """Key shared by all cells with the same pre-trained vectors; None without pre-training."""
        if not find_model(self.config).is_pretrained:
            return None
        return json.dumps(describe_pretraining(self.config), sort_keys=True)


@dataclass(frozen=True)
class Plan:
    """Plan of a benchmark: experiment, data sets and cells.

    Args:
        experiment: Experiment, with the command line's changes.
        datasets: Records of the data sets.
        cells: Cells in the order of work: all rows with the first seed, then all with the next one.
        refused: Cells of rows that do not fit their data set, with the reason.
        planners: Planner of each data set, by name.
    """

    experiment: Experiment
    datasets: list[DatasetRecord]
    cells: list[PlannedCell]
    refused: list[Cell]
    planners: dict[str, "DatasetPlanner"] = field(default_factory=dict)


def make_plan(experiment: Experiment, root: str | Path | None, reporter: Reporter) -> Plan:
    """Opens every data set, built if need be, and resolves every cell for it.

    The cells of a row that does not fit a data set, such as an ablation of a field that it lacks,
    are refused, with the reason.

    Args:
        experiment: Experiment to plan.
        root: Root folder of built data; None takes the default.
        reporter: Progress reporter.

    Raises:
        CorpusError: A data set is broken.
        ConfigError: Two data sets have the same name, or two rows of a data set.
    """
    plan = Plan(experiment, [], [], [])
    for source in experiment.datasets:
        DatasetPlanner(plan, source, root, reporter).plan_dataset()
    if doubled := find_doubled(record.name for record in plan.datasets):
        raise ConfigError(
            f"The data sets of a benchmark must have different names, found '{doubled}' "
            f"twice; rename one of the folders."
        )
    return plan


class DatasetPlanner:
    """Planner of the cells of one data set.

    Args:
        plan: Plan that they are added to.
        source: Data set as the experiment names it.
        root: Root folder of built data; None takes the default.
        reporter: Progress reporter.
    """

    def __init__(
        self, plan: Plan, source: str, root: str | Path | None, reporter: Reporter
    ) -> None:
        self.plan, self.source, self.root, self.reporter = plan, source, root, reporter
        self.experiment = plan.experiment
        self._opened: dict[str, CorpusDataset] = {}

    def plan_dataset(self) -> None:
        """Adds the data set and its cells to the plan."""
        experiment = self.experiment
        encoder = experiment.rows[0].encoder  # settings of all rows must be valid for it too
        shared = experiment.configure(PlannedRow(name="any", encoder=encoder), experiment.seed)
        dataset = self._open(locate_config(self.source, shared))
        _check_name(dataset.name)
        fields = metadata_fields(dataset.graph)
        rows = experiment.expand(fields)
        if faults := find_name_faults(rows):
            raise ConfigError(
                list_faults(f"The experiment must be valid for '{dataset.name}'", faults)
            )
        settled: dict[str, Config] = {}
        reasons: dict[str, str] = {}
        for row in rows:
            try:
                settled[row.name] = self._settle(row)
            except ConfigError as error:
                reasons[row.name] = str(error)
        sizes = {split: len(dataset.documents(mask)) for split, mask in MASKS.items()}
        record = DatasetRecord(
            name=dataset.name,
            source=self.source,
            checksum=dataset.checksum,
            documents={split: number for split, number in sizes.items() if number},
            twins=count_twins(dataset.graph),
            num_labels=dataset.num_labels,
            fields=fields,
            epochs=self._share_budget(rows, settled),
            rows=rows,
        )
        self.plan.datasets.append(record)
        self.plan.planners[dataset.name] = self
        self._add_cells(record, settled, reasons)

    def _open(self, config: Config) -> CorpusDataset:
        """Data set with a row's options; opened once for all rows of the same options."""
        options = config.data.dataset_options()
        key = json.dumps(options, sort_keys=True, default=str)
        if key not in self._opened:
            self._opened[key] = open_dataset(
                config.dataset, root=self.root, track=self.reporter.track, **options
            )
        return self._opened[key]

    def _settle(self, row: PlannedRow) -> Config:
        """Resolved configuration with the first seed.

        Raises:
            ConfigError: The row does not fit the data set.
        """
        config = self.experiment.configure(row, self.experiment.seed)
        if self.experiment.budget == "equal" and not self.experiment.sets(row, EPOCHS):
            config = config.change("train", epochs=None)
        _check_processes(config)
        config = locate_config(self.source, config)
        return settle_config(config, self._open(config))

    def _share_budget(self, rows: list[PlannedRow], settled: dict[str, Config]) -> int | None:
        """Equal budget of epochs; sets it in the configurations of rows without their own."""
        experiment = self.experiment
        if experiment.budget == "own":
            return None
        names = [
            row.name
            for row in rows
            if row.name in settled
            and find_model(settled[row.name]).is_neural
            and not experiment.sets(row, EPOCHS)
        ]
        epochs = [settled[name].train.epochs or 1 for name in names]
        given = {**experiment.settings, **experiment.overrides}.get(EPOCHS)
        budget: int | None = given or max(epochs, default=None)
        for name in names:
            settled[name] = settled[name].change("train", epochs=budget)
        return budget

    def _add_cells(
        self, record: DatasetRecord, settled: dict[str, Config], reasons: dict[str, str]
    ) -> None:
        for seed, row in product(self.experiment.seeds, record.rows):
            folder = f"{CELLS}/{record.name}/{row.folder_name}/seed{seed}"
            if row.name in reasons:
                self.plan.refused.append(
                    Cell(
                        dataset=record.name, row=row.name, seed=seed, folder=folder,
                        status="refused", reason=reasons[row.name],
                    )
                )  # fmt: skip
            else:
                config = settled[row.name].model_copy(update={"seed": seed})
                self.plan.cells.append(self._make_cell(record.name, row, folder, config))

    def plan_trial(self, record: DatasetRecord, row: PlannedRow, folder: str) -> PlannedCell:
        """Cell of a row with other settings than the plan's, with the first seed.

        Args:
            record: Data set, with the equal budget of its rows.
            row: Row with its settings.
            folder: Run folder, relative to that of the search.

        Raises:
            ConfigError: The settings do not fit the data set.
        """
        config = self._settle(row)
        is_equal = record.epochs is not None and find_model(config).is_neural
        if is_equal and not self.experiment.sets(row, EPOCHS):
            config = config.change("train", epochs=record.epochs)
        return self._make_cell(record.name, row, folder, config)

    def _make_cell(self, name: str, row: PlannedRow, folder: str, config: Config) -> PlannedCell:
        checksum = self._open(config).checksum
        return PlannedCell(name, self.source, row, config.seed, folder, config, checksum)


def list_free(experiment: Experiment, row: PlannedRow) -> set[str]:
    """Settings of training that may differ between cells of a row.

    They are how processes share the work, and the precision where the device chooses it.
    """
    is_chosen = experiment.configure(row, experiment.seed).train.precision == "auto"
    return {*SHARING, "precision"} if is_chosen else {*SHARING}


def describe_result(config: dict[str, Any], left: Collection[str]) -> dict[str, Any]:
    """Settings that determine a cell's measures, as `describe_work`, without seed and folders.

    Args:
        config: Resolved settings of the cell.
        left: Settings of training to leave out, see `list_free`.
    """
    config = shorten_paths(config)
    train = {name: value for name, value in config["train"].items() if name not in left}
    return {name: value for name, value in config.items() if name != "seed"} | {"train": train}


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
            f"and use --workers."
        )
