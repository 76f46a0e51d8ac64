"""Summary of a benchmark: means over seeds, best rows, tests, published figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from match_graph.benchmark.results import Cell, DatasetRecord, Results
from match_graph.errors import CheckpointError
from match_graph.metrics import Comparison, compare_documents, compare_runs
from match_graph.runs.measures import SCORE_NAMES
from match_graph.runs.readers import read_scores

#: Measures of which less is better.
LOWER_IS_BETTER = frozenset({"violation_rate", "violation_size", "ECE", "ECE@5"})
#: Of the bootstrap over documents; its smallest p-value is .001.
_RESAMPLES = 999


@dataclass(frozen=True)
class Value:
    """Value of a table: a measure of a row over its finished runs.

    Args:
        mean: Mean over seeds, a fraction.
        std: Standard deviation over seeds, with n - 1; None for one run.
        is_best: Whether no row has a better mean.
        test: Test of the reference against this row, paired by seed; None without a reference.
        documents: Test over documents, where one seed is all there is; None otherwise.
        expected: Expected mean and, if known, standard deviation, as another source reports them.
        lower_is_better: Whether lower values are better.
    """

    mean: float
    std: float | None
    is_best: bool
    test: Comparison | None
    documents: Comparison | None
    expected: tuple[float, ...]
    lower_is_better: bool

    @property
    def stars(self) -> str:
        """Significance as in the paper: ``*`` or ``**`` if worse, ``+`` or ``++`` if better."""
        if self.test is None or not self.test.stars:
            return ""
        is_worse = (self.test.difference > 0) != self.lower_is_better
        return self.test.stars if is_worse else "+" * len(self.test.stars)

    @property
    def difference(self) -> float | None:
        """Difference of the mean to the expected one."""
        return self.mean - self.expected[0] if self.expected else None


@dataclass(frozen=True)
class RowSummary:
    """Summary of a table row.

    Args:
        name: Name of the row.
        measured: Values by measure; empty if no run is finished.
        runs: Number of finished runs.
        parameters: Number of parameters of a network; None where none is known.
        train_seconds: Seconds of training or fitting, without pre-training; the mean over runs,
            None where none is known, as of interrupted runs.
        seconds_per_epoch: Seconds per epoch, the mean over runs; None where none is known.
        peak_mib: Peak memory in MiB of all runs, of the GPU if one is used; None where none is
            known.
        notes: Notes, as sentences: why it was left out, which runs failed, why there is no test.
    """

    name: str
    measured: Mapping[str, Value]
    runs: int
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
        folder: Folder of the benchmark, to compare single runs over documents; None leaves that
            out.

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


class _Summarizer:
    """Builder of the row summaries of a data set."""

    def __init__(self, results: Results, record: DatasetRecord, folder: Path | None) -> None:
        self.experiment, self.dataset, self.folder = results.experiment, record.name, folder
        self.cells = {row.name: results.find_cells(record.name, row.name) for row in record.rows}
        self.done = {
            row: [cell for cell in cells if cell.status == "done"]
            for row, cells in self.cells.items()
        }
        #: Row and measure -> value by seed.
        self.values = {
            (row, measure): results.find_values(record.name, row, measure)
            for row, done in self.done.items()
            for measure in (self.experiment.measures if done else [])
        }
        self.means = {key: fmean(values.values()) for key, values in self.values.items()}

    def summarize(self, row: str) -> RowSummary:
        done = self.done[row]
        measures = self.experiment.measures if done else []
        values = {measure: self._make_value(row, measure) for measure in measures}
        whole = [cell for cell in done if not cell.resumed]
        epochs = [cell.seconds_per_epoch for cell in whole if cell.seconds_per_epoch is not None]
        parameters = [cell.parameters for cell in done if cell.parameters is not None]
        return RowSummary(
            name=row,
            measured=values,
            runs=len(done),
            parameters=max(parameters, default=None),
            train_seconds=_mean([cell.seconds["train"] for cell in whole]),
            seconds_per_epoch=_mean(epochs),
            peak_mib=max((_peak(cell) for cell in done), default=None),
            notes=tuple(dict.fromkeys(_make_notes(self.cells[row], values))),
        )

    def _make_value(self, row: str, measure: str) -> Value:
        mine, mean = self.values[row, measure], self.means[row, measure]
        lower_is_better = measure in LOWER_IS_BETTER
        means = [self.means[key] for key in self.means if key[1] == measure]
        expected = self.experiment.expected.get(self.dataset, {}).get(row, {})
        test = self._test(row, measure)
        single = test is not None and test.p_value is None and test.num_pairs == 1
        return Value(
            mean=mean,
            std=stdev(mine.values()) if len(mine) > 1 else None,
            is_best=mean == (min(means) if lower_is_better else max(means)),
            test=test,
            documents=self._test_documents(row, measure) if single else None,
            expected=tuple(expected.get(measure, ())),
            lower_is_better=lower_is_better,
        )

    def _test(self, row: str, measure: str) -> Comparison | None:
        """Test of the reference against a row; None for the reference itself."""
        reference = self.experiment.reference
        if reference in (None, row):
            return None
        mine, other = self.values[row, measure], self.values.get((str(reference), measure), {})
        seeds = mine.keys() & other.keys()
        if not seeds:
            reason = f"it has no run with a seed of '{reference}'"
            return Comparison(float("nan"), 0, None, reason)
        return compare_runs(
            {seed: other[seed] for seed in seeds}, {seed: mine[seed] for seed in seeds}
        )

    def _test_documents(self, row: str, measure: str) -> Comparison | None:
        """Test over the documents of the one seed that a row and the reference have."""
        if self.folder is None or measure not in SCORE_NAMES:
            return None
        theirs = {cell.seed: cell for cell in self.done[str(self.experiment.reference)]}
        mine = next(cell for cell in self.done[row] if cell.seed in theirs)
        try:
            first, second = (
                read_scores(self.folder / cell.folder, self.experiment.split, measure)
                for cell in (theirs[mine.seed], mine)
            )
        except CheckpointError:  # the results were moved without their cells
            return None
        if first.shape != second.shape:  # the row's own options have other documents
            return None
        return compare_documents(first, second, num_resamples=_RESAMPLES)


def _make_notes(cells: Sequence[Cell], values: Mapping[str, Value]) -> Iterator[str]:
    seeds: dict[tuple[str, str], list[int]] = {}
    for cell in cells:
        seeds.setdefault((cell.status, cell.reason), []).append(cell.seed)
    for (status, reason), found in seeds.items():
        of_seeds = f"seed{'s' * (len(found) > 1)} {', '.join(map(str, found))}"
        if status == "refused":
            yield f"left out. {reason}"
        elif status == "failed":
            yield f"{of_seeds} failed. {reason}"
        elif status == "waiting":
            yield f"{of_seeds}: not finished."
    without: dict[str, list[str]] = {}
    for measure, value in values.items():
        if value.test is not None and value.test.reason:
            without.setdefault(value.test.reason, []).append(measure)
    for reason, names in without.items():
        of_measures = f" of {', '.join(names)}" if len(names) < len(values) else ""
        yield f"no test over runs{of_measures}, as {reason}."
    over_documents = [
        (measure, value.documents)
        for measure, value in values.items()
        if value.documents is not None and value.documents.p_value is not None
    ]
    if over_documents:
        shown = ", ".join(f"{measure} {test.p_value:.3f}" for measure, test in over_documents)
        yield (
            f"p-values of one run over its {over_documents[0][1].num_pairs:,} documents: "
            f"{shown} (paired bootstrap; other seeds may differ)."
        )


def collect_notes(rows: Sequence[RowSummary]) -> list[str]:
    """Notes of all rows, each once, preceded by the names of its rows."""
    names: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            names.setdefault(note, []).append(row.name)
    return [f"{', '.join(found)}: {note}" for note, found in names.items()]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _peak(cell: Cell) -> float:
    return cell.peak_mib.get("cuda") or cell.peak_mib["host"]
