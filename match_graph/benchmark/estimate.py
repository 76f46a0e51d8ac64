"""Time estimate of a benchmark, from finished cells or from probes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from match_graph.benchmark.plan import PlannedCell
from match_graph.benchmark.results import Cell
from match_graph.io.progress import format_seconds

#: (data set, row)
Kind = tuple[str, str]


@dataclass
class Estimate:
    """Time estimate of cells, in seconds; improves with the number of finished cells.

    The estimate of a cell is the mean over finished cells of its row on its data set, without what
    is done once: building the data set, and embedding texts. Before any is finished it is the
    probe's, scaled by the ratio of measured to probed seconds of the rows that have both; without
    a probe it is the mean over the finished rows of its data set.

    Args:
        probed: Seconds of a cell by data set and row, from a few measured steps.
        embedding: Seconds by data set of embedding texts by a language model, once for all rows.
    """

    probed: Mapping[Kind, float] = field(default_factory=dict)
    embedding: dict[str, float] = field(default_factory=dict)
    _measured: dict[Kind, list[float]] = field(default_factory=dict)

    def add(self, cell: Cell) -> None:
        """Adds a finished cell; an interrupted one is ignored."""
        if cell.status == "done" and not cell.resumed:
            kind = (cell.dataset, cell.row)
            seconds = sum(cell.seconds.values()) - cell.seconds.get("build", 0.0)
            self._measured.setdefault(kind, []).append(seconds)
        if cell.feature_checksums:
            self.embedding[cell.dataset] = 0.0

    def seconds_of(self, kind: Kind) -> float | None:
        """Estimated seconds of a cell; None if nothing is known."""
        if kind in self._measured:
            return fmean(self._measured[kind])
        if kind in self.probed:
            return self.probed[kind] * self._correction()
        same = [fmean(values) for other, values in self._measured.items() if other[0] == kind[0]]
        return fmean(same) if same else None

    def _correction(self) -> float:
        """Ratio of measured to probed seconds, over the rows that have both; 1 without any."""
        both = [kind for kind in self._measured if self.probed.get(kind)]
        probed = sum(self.probed[kind] for kind in both)
        return sum(fmean(self._measured[kind]) for kind in both) / probed if probed else 1.0

    def describe(self, cells: Iterable[PlannedCell], number: int) -> str:
        """Time left, with its source, such as "about 4 min left (from 3 finished cells)".

        Args:
            cells: Cells that are left.
            number: Number of cells that run at a time.
        """
        kinds = [cell.key[:2] for cell in cells]
        known = [seconds for kind in kinds if (seconds := self.seconds_of(kind)) is not None]
        finished = sum(map(len, self._measured.values()))
        if not known:
            return "no estimate yet: nothing is measured"
        names = {dataset for dataset, _ in kinds}
        once = sum(seconds for name, seconds in self.embedding.items() if name in names)
        total = (once + sum(known) + fmean(known) * (len(kinds) - len(known))) / number
        sources = [f"{finished} finished cell{'s' * (finished != 1)}"] if finished else []
        if any(kind in self.probed and kind not in self._measured for kind in kinds):
            sources.append("measured steps")
        return f"about {format_seconds(total)} left (from {' and '.join(sources)})"
