"""Cells of earlier calls that count in a benchmark: those of the same settings and data."""

from collections.abc import Callable

from match_graph.benchmark.plan import Plan, describe_result, list_free
from match_graph.benchmark.results import Cell, Results, is_missing
from match_graph.config import FeatureSource
from match_graph.predict.share import shorten_paths
from match_graph.runs.inputs import hash_inputs

#: What cells of data sets that are not planned now must have in common with the plan.
_SAME = ("settings", "overrides", "budget", "split", "grid")


class EarlierCells:
    """Results of an earlier call, measured against a plan.

    Args:
        plan: Plan of the benchmark.
        earlier: Its results.
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
        """True if row, settings and data of a cell match the plan and no measure is missing.

        Measures that its data set lacks (`find_measure`) are not missing.
        """
        if cell.status != "done" or any(is_missing(cell, self.split, one) for one in self.measures):
            return False
        if cell.dataset not in self.here:
            return self._has_row(cell)
        return cell.key[:2] in self.planned and self._is_of_data(cell) and self._is_planned(cell)

    def _is_of_data(self, cell: Cell) -> bool:
        """True if the data set of a cell is the planned one, or is not planned."""
        there = self.there[cell.dataset]
        return self.here.get(cell.dataset, there).checksum == there.checksum

    def _is_planned(self, cell: Cell) -> bool:
        """True if settings, features and files of a cell are those of its row, if that is planned.

        Seeds do not count, nor the precision where the device chose it.
        """
        planned = self.planned.get(cell.key[:2])
        if planned is None:
            return True
        sources = planned.config.data.features
        found = {name: self.identify(sources[name], name, planned.checksum) for name in sources}
        if found != cell.feature_checksums or hash_inputs(planned.config) != cell.input_checksums:
            return False
        left = list_free(self.plan.experiment, planned.row)
        mine = describe_result(planned.config.model_dump(mode="json"), left)
        return mine == describe_result(cell.config, left)

    def stays(self, cell: Cell) -> bool:
        """True if a failed or refused cell is of a row and data of the plan."""
        return self._is_of_data(cell) and self._has_row(cell)

    def _has_row(self, cell: Cell) -> bool:
        """True if the experiment has the cell's row as the file says it, whatever its data."""
        record = self.there[cell.dataset]
        mine, theirs = (
            {row.name: shorten_paths(row.model_dump(mode="json")) for row in rows}
            for rows in (self.plan.experiment.expand(record.fields), record.rows)
        )
        return self.is_same and mine.get(cell.row) == theirs[cell.row]
