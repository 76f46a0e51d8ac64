"""Tests of a table's rows against its reference, and intervals over documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from match_graph.benchmark.experiment import Experiment
from match_graph.benchmark.results import Cell, DatasetRecord, StoredInterval, StoredTest
from match_graph.errors import CheckpointError
from match_graph.metrics import Comparison, DocumentBootstrap, compare_runs, correct_comparisons
from match_graph.runs.measures import SCORE_NAMES
from match_graph.runs.readers import read_record, read_scores
from match_graph.typing import Split

Key = tuple[str, str]
Unit = Literal["runs", "documents"]
#: What a `Comparison` and its `StoredTest` both have, beside the difference.
_SAME = ("num_pairs", "p_value", "p_holm", "reason")
_NO_INTERVALS = "no intervals over documents and no stars"


@dataclass(frozen=True)
class RowScores:
    """Scores of a row on every document, averaged over its seeds.

    Args:
        documents: Checksum of the data, and number of documents of the split: rows that differ in
            them were measured on other documents.
        table: Mean score by document and measure, [D, M], float64.
    """

    documents: tuple[str, int]
    table: Tensor


def read_row_scores(
    folders: Sequence[Path], split: Split, measures: Sequence[str]
) -> RowScores | None:
    """Scores of a row's run folders, averaged; None if their documents differ.

    Raises:
        CheckpointError: A folder lacks the scores or the record of its data.
    """
    found, total = set(), torch.zeros(())
    for folder in folders:
        columns = [read_scores(folder, split, measure) for measure in measures]
        found.add((str(read_record(folder)["data_checksum"]), len(columns[0])))
        if len(found) > 1:
            return None
        total = total + torch.stack(columns, dim=1).double()
    return RowScores(found.pop(), total / len(folders))


class RowTests:
    """Tests of the rows of a data set against the reference, corrected over the rows.

    Attributes:
        by_unit: Tests of row minus reference by row and measure: t-tests over "runs", and bootstrap
            tests over "documents".
        intervals: 95 % interval over documents of the difference to the reference, or, for the
            reference itself and without one, of the mean, by row and measure.
        notes: Sentences by row about what could not be compared.

    Args:
        experiment: Experiment, with measures and reference.
        done: Finished cells by row.
        values: Measures by row and measure, then by seed.
        folder: Folder of the benchmark; None for one without run folders.
    """

    def __init__(
        self,
        experiment: Experiment,
        done: Mapping[str, Sequence[Cell]],
        values: Mapping[Key, Mapping[int, float]],
        folder: Path | None,
    ) -> None:
        self.experiment, self.reference = experiment, experiment.reference
        self.rows = [row for row, cells in done.items() if cells]
        self.by_unit: dict[Unit, dict[Key, Comparison]] = {"runs": {}, "documents": {}}
        self.intervals: dict[Key, tuple[float, float]] = {}
        self.notes: dict[str, list[str]] = {row: [] for row in self.rows}
        self.scored = [one for one in experiment.measures if one in SCORE_NAMES]
        others = [row for row in self.rows if row != self.reference]
        if self.reference is not None:
            for measure in experiment.measures:
                theirs = values.get((self.reference, measure), {})
                tests = {row: compare_runs(values[row, measure], theirs) for row in others}
                self._keep("runs", measure, tests)
        if self.scored:
            for group in self._group(self._read(done, folder)):
                self._resample(group)
        self._note_tests()

    def store(self, record: DatasetRecord) -> DatasetRecord:
        """Record of the data set with these tests and intervals."""
        tests = [
            _store(*key, unit, test)
            for unit, tests in self.by_unit.items()
            for key, test in tests.items()
        ]
        intervals = [
            StoredInterval(row=row, measure=measure, low=low, high=high)
            for (row, measure), (low, high) in self.intervals.items()
        ]
        return record.model_copy(update={"tests": tests, "intervals": intervals})

    def restore(self, record: DatasetRecord) -> None:
        """Takes the tests and intervals that `store` put into the record of a data set."""
        self.by_unit["documents"] = {}
        for one in record.tests:
            difference = nan if one.difference is None else one.difference
            same = {name: getattr(one, name) for name in _SAME}
            self.by_unit[one.over][one.row, one.measure] = Comparison(difference, **same)
        self.intervals = {(one.row, one.measure): (one.low, one.high) for one in record.intervals}
        self.notes = {row: [] for row in self.rows}
        self._note_tests()

    def _keep(self, unit: Unit, measure: str, tests: Mapping[str, Comparison]) -> None:
        for row, test in correct_comparisons(tests).items():
            self.by_unit[unit][row, measure] = test

    def _read(
        self, done: Mapping[str, Sequence[Cell]], folder: Path | None
    ) -> dict[str, RowScores]:
        """Scores of the rows that have them; a note for each other row."""
        found = {}
        for row in self.rows:
            scores, reason = None, "the scores of its documents cannot be read from its run folders"
            if folder is not None:
                folders = [folder / cell.folder for cell in done[row]]
                try:
                    scores = read_row_scores(folders, self.experiment.split, self.scored)
                    reason = "its seeds were measured on different documents"
                except CheckpointError:  # the results were moved without their cells
                    pass
            if scores is None:
                self.notes[row].append(f"{_NO_INTERVALS}: {reason}.")
            else:
                found[row] = scores
        return found

    def _group(self, found: Mapping[str, RowScores]) -> list[dict[str, Tensor]]:
        """Score tables of rows on the same documents; with a reference those on its documents."""
        groups: dict[tuple[str, int], dict[str, Tensor]] = {}
        for row, scores in found.items():
            groups.setdefault(scores.documents, {})[row] = scores.table
        if self.reference is None:
            return [*groups.values()]
        base = found.get(self.reference)
        why = f"it was measured on other documents than '{self.reference}'"
        if base is None:
            why = f"the reference '{self.reference}' has no scores of documents"
        for row, scores in found.items():
            if base is None or scores.documents != base.documents:
                self.notes[row].append(f"{_NO_INTERVALS}: {why}.")
        return [] if base is None else [groups[base.documents]]

    def _resample(self, group: Mapping[str, Tensor]) -> None:
        """Tests and intervals of rows on the same documents, by one draw of resamples."""
        bootstrap = DocumentBootstrap(torch.cat([*group.values()], dim=1))  # [D, rows * M]
        first = {row: place * len(self.scored) for place, row in enumerate(group)}
        for offset, measure in enumerate(self.scored):
            place = {row: column + offset for row, column in first.items()}
            tests = {
                row: bootstrap.compare(column, place[self.reference])
                for row, column in place.items()
                if self.reference is not None and row != self.reference
            }
            self._keep("documents", measure, tests)
            for row, column in place.items():
                test = tests.get(row)
                interval = test.interval if test else bootstrap.find_interval(column)
                if interval is not None:
                    self.intervals[row, measure] = interval

    def _note_tests(self) -> None:
        """Adds why tests were left out, measures of the same reason together."""
        for unit, tests in self.by_unit.items():
            for row, notes in self.notes.items():
                mine = {measure: test for (name, measure), test in tests.items() if name == row}
                reasons: dict[str, list[str]] = {}
                for measure, test in mine.items():
                    if test.reason:
                        reasons.setdefault(test.reason, []).append(measure)
                for reason, measures in reasons.items():
                    some = f" of {', '.join(measures)}" if len(measures) < len(mine) else ""
                    notes.append(f"no test over {unit}{some} and no stars: {reason}.")


def _store(row: str, measure: str, over: Unit, test: Comparison) -> StoredTest:
    return StoredTest(
        row=row,
        measure=measure,
        over=over,
        difference=test.difference if isfinite(test.difference) else None,
        **{name: getattr(test, name) for name in _SAME},
    )
