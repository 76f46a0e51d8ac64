"""Cells of earlier calls that a benchmark keeps: those of the same settings and data."""

from collections.abc import Callable

from match_graph.benchmark.plan import Plan, describe_result, list_free
from match_graph.benchmark.results import Cell, Results, is_missing
from match_graph.config import FeatureSource
from match_graph.predict.share import shorten_paths
from match_graph.runs.inputs import hash_inputs

#: Fields of the experiment that must be equal to keep cells of data sets that are not planned now.
_SAME = ("settings", "overrides", "budget", "split", "grid")


class EarlierCells:
    """Results of an earlier call, compared with a plan.

    Args:
        plan: Plan of the benchmark.
        earlier: Its results.
        identify: Gives the checksum of features from their source, node type and the checksum of
            the data; None if they are not available.
    """

    def __init__(
        self,
        plan: Plan,
        earlier: Results,
        identify: Callable[[FeatureSource, str, str], str | None],
    ) -> None:
        self.plan, self.identify = plan, identify
        self.split, self.measures = plan.experiment.split, {*plan.experiment.measures}
        self.records = {record.name: record for record in plan.datasets}
        self.earlier_records = {record.name: record for record in earlier.datasets}
        self.planned = {one.key[:2]: one for one in plan.cells}  # any seed stands for the row
        mine, theirs = (
            shorten_paths(one.model_dump(mode="json", include={*_SAME}))
            for one in (plan.experiment, earlier.experiment)
        )
        self.is_same = mine == theirs

    def matches(self, cell: Cell) -> bool:
        """True if a cell is finished, of the plan's row, settings and data, and no measure missing.

        Measures that its data set lacks (`find_measure`) are not missing.
        """
        if cell.status != "done" or any(is_missing(cell, self.split, one) for one in self.measures):
            return False
        if cell.dataset not in self.records:
            return self._has_row(cell)
        return cell.key[:2] in self.planned and self._is_of_data(cell) and self._is_planned(cell)

    def _is_of_data(self, cell: Cell) -> bool:
        """True if the data set of a cell is the planned one, or is not planned."""
        there = self.earlier_records[cell.dataset]
        return self.records.get(cell.dataset, there).checksum == there.checksum

    def _is_planned(self, cell: Cell) -> bool:
        """True if settings, features and files of a cell are those of its planned row.

        Seeds are not compared, nor the precision where the device chose it.
        """
        planned = self.planned[cell.key[:2]]
        sources = planned.config.data.features
        found = {name: self.identify(sources[name], name, planned.checksum) for name in sources}
        if found != cell.feature_checksums or hash_inputs(planned.config) != cell.input_checksums:
            return False
        left = list_free(self.plan.experiment, planned.row)
        mine = describe_result(planned.config.model_dump(mode="json"), left)
        return mine == describe_result(cell.config, left)

    def matches_row(self, cell: Cell) -> bool:
        """True if a cell, failed or refused too, is of a row and data of the plan."""
        return self._is_of_data(cell) and self._has_row(cell)

    def _has_row(self, cell: Cell) -> bool:
        """True if the experiment has the same row, as its file writes it, on whatever data."""
        record = self.earlier_records[cell.dataset]
        mine, theirs = (
            {row.name: shorten_paths(row.model_dump(mode="json")) for row in rows}
            for rows in (self.plan.experiment.expand(record.fields), record.rows)
        )
        return self.is_same and mine.get(cell.row) == theirs[cell.row]
