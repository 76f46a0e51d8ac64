"""Published cells that count in a benchmark: those of the same settings and data."""

from collections.abc import Callable, Collection
from typing import Any

from match_graph.benchmark.plan import Plan, PlannedCell
from match_graph.benchmark.results import Cell, Results
from match_graph.config import SHARING, FeatureSource
from match_graph.predict.share import shorten_paths
from match_graph.runs.inputs import hash_inputs

#: What cells of data sets that are not planned now must have in common with the plan.
_SAME = ("settings", "overrides", "budget", "split", "grid")


class Published:
    """Published results, measured against a plan.

    Args:
        plan: Plan of the benchmark.
        earlier: Results with published cells.
        identify: Gives the checksum of features from their source, node type and the checksum of
            the data; None where they are not to be had.
    """

    def __init__(
        self,
        plan: Plan,
        earlier: Results,
        identify: Callable[[FeatureSource, str, str], str | None],
    ) -> None:
        self.plan, self.identify = plan, identify
        self.split, self.measures = plan.experiment.split, {*plan.experiment.measures}
        self.here = {record.name: record for record in plan.datasets}
        self.there = {record.name: record for record in earlier.datasets}
        self.planned = {one.key[:2]: one for one in plan.cells}  # any seed stands for the row
        mine, theirs = (
            shorten_paths(one.model_dump(mode="json", include={*_SAME}))
            for one in (plan.experiment, earlier.experiment)
        )
        self.is_same = mine == theirs

    def counts(self, cell: Cell) -> bool:
        """True if row, settings and data of a cell match the plan and no measure is missing."""
        if cell.status != "done" or not self.measures <= cell.metrics.get(self.split, {}).keys():
            return False
        if cell.dataset not in self.here:
            return self._is_row(cell)
        planned = self.planned.get(cell.key[:2])
        is_of_it = self.here[cell.dataset].checksum == self.there[cell.dataset].checksum
        return planned is not None and is_of_it and self._is_planned(cell, planned)

    def _is_planned(self, cell: Cell, planned: PlannedCell) -> bool:
        config = planned.config
        sources = config.data.features
        found = {name: self.identify(sources[name], name, planned.checksum) for name in sources}
        is_same = found == cell.feature_checksums and hash_inputs(config) == cell.input_checksums
        asked = self.plan.experiment.configure(planned.row, planned.seed).train.precision
        left = {*SHARING, "precision"} if asked == "auto" else {*SHARING}
        mine = shorten_paths(config.model_dump(mode="json"))
        return is_same and _describe(mine, left) == _describe(cell.config, left)

    def _is_row(self, cell: Cell) -> bool:
        """True if the experiment has the cell's row, for data sets outside the plan."""
        record = self.there[cell.dataset]
        mine, theirs = (
            {row.name: shorten_paths(row.model_dump(mode="json")) for row in rows}
            for rows in (self.plan.experiment.expand(record.fields), record.rows)
        )
        return self.is_same and mine.get(cell.row) == theirs[cell.row]


def _describe(config: dict[str, Any], left: Collection[str]) -> dict[str, Any]:
    """Settings that determine a cell's measures, as `describe_work`, without the seed.

    Args:
        config: Resolved settings.
        left: Settings of training to leave out: how processes share the work, and the precision
            where the device of the cell chose it.
    """
    train = {name: value for name, value in config["train"].items() if name not in left}
    return {name: value for name, value in config.items() if name != "seed"} | {"train": train}
