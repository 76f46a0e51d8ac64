"""Tests of a table's rows against its reference, and intervals over documents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor

from match_graph.benchmark.experiment import Experiment
from match_graph.benchmark.results import Cell, DatasetRecord, PublishedTest
from match_graph.benchmark.scores import CellScores
from match_graph.errors import CheckpointError
from match_graph.metrics import Comparison, DocumentBootstrap, compare_runs, correct_comparisons
from match_graph.runs.measures import SCORE_NAMES

Key = tuple[str, str]
Unit = Literal["runs", "documents"]
_NO_INTERVALS = "no intervals over documents and no stars"
#: Largest difference of a published value to that of the cells that is due to rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class RowScores:
    """Scores of a row on every document, averaged over its seeds.

    Args:
        documents: Checksum of the data, and number of documents of the split; rows that differ in
            either were measured on different documents.
        table: Mean score by document and measure, [D, M], float64.
    """

    documents: tuple[str, int]
    table: Tensor


def read_row_scores(
    cells: Sequence[Cell], scores: CellScores, measures: Sequence[str]
) -> RowScores | None:
    """Scores of a row's cells, averaged; None if their documents differ.

    Raises:
        CheckpointError: A cell has no scores.
    """
    found, total = set(), torch.zeros(())
    columns = [SCORE_NAMES.index(measure) for measure in measures]
    for cell in cells:
        checksum, table = scores.read(cell)
        found.add((checksum, len(table)))
        if len(found) > 1:
            return None
        total = total + table[:, columns].double()
    return RowScores(found.pop(), total / len(cells))


class RowTests:
    """Tests of the rows of a data set against the reference, corrected over the rows.

    Attributes:
        by_unit: Tests of row minus reference by row and measure: t-tests over "runs", and bootstrap
            tests over "documents".
        intervals: 95 % interval over documents of the difference to the reference, or, for the
            reference itself and without one, of the mean, by row and measure.
        notes: Sentences by row on missing tests and intervals.

    Args:
        experiment: Experiment, with measures and reference.
        done: Finished cells by row.
        values: Measures by row and measure, then by seed.
        scores: Scores of the cells' documents; None if they are not available.
        published: Published tests, used for rows without scores if the means are still the same.
    """

    def __init__(
        self,
        experiment: Experiment,
        done: Mapping[str, Sequence[Cell]],
        values: Mapping[Key, Mapping[int, float]],
        scores: CellScores | None,
        published: Sequence[PublishedTest] = (),
    ) -> None:
        self.experiment, self.reference = experiment, experiment.reference
        self.rows = [row for row, cells in done.items() if cells]
        self.by_unit: dict[Unit, dict[Key, Comparison]] = {"runs": {}, "documents": {}}
        self.intervals: dict[Key, tuple[float, float]] = {}
        self.notes: dict[str, list[str]] = {row: [] for row in self.rows}
        self.scored = [one for one in experiment.measures if one in SCORE_NAMES]
        self.means = {key: fmean(by_seed.values()) for key, by_seed in values.items()}
        if self.reference is not None:
            for measure in experiment.measures:
                theirs = values.get((self.reference, measure), {})
                rows = [row for row in self._others if (row, measure) in values]
                tests = {row: compare_runs(values[row, measure], theirs) for row in rows}
                self._keep("runs", measure, tests)
        if self.scored:
            found = self._read(done, scores)
            tested = self._take_published(published, found)
            self._note_missing(found)
            for group in self._group(found):
                tested |= self._resample(group)
            for measure in self.scored:
                rows = [row for row in self._others if (row, measure) in tested]
                self._keep("documents", measure, {row: tested[row, measure] for row in rows})
        self._note_tests()

    @property
    def _others(self) -> list[str]:
        return [row for row in self.rows if row != self.reference]

    def publish(self, record: DatasetRecord) -> DatasetRecord:
        """Record of the data set with the tests over documents added."""
        number = record.documents.get(self.experiment.split, 0)
        tests = [
            PublishedTest(
                row=row,
                measure=measure,
                value=self._find_value(row, measure),
                num_documents=test.num_pairs if test else number,
                p_value=test.p_value if test else None,
                reason=test.reason if test else "",
                interval=self.intervals.get((row, measure)),
            )
            for row in self.rows
            for measure in self.scored
            for test in [self.by_unit["documents"].get((row, measure))]
            if test or (row, measure) in self.intervals
        ]
        return record.model_copy(update={"tests": tests})

    def _find_value(self, row: str, measure: str) -> float:
        """Mean difference to the reference; of the reference, or without one, the mean."""
        is_mean = self.reference in (None, row)
        return self.means[row, measure] - (
            0.0 if is_mean else self.means.get((str(self.reference), measure), 0.0)
        )

    def _keep(self, unit: Unit, measure: str, tests: Mapping[str, Comparison]) -> None:
        for row, test in correct_comparisons(tests).items():
            self.by_unit[unit][row, measure] = test

    def _read(
        self, done: Mapping[str, Sequence[Cell]], scores: CellScores | None
    ) -> dict[str, RowScores | None]:
        """Scores by row, if all of its cells have them; None if their documents differ."""
        found: dict[str, RowScores | None] = {}
        if scores is None:
            return found
        for row in self.rows:
            try:
                found[row] = read_row_scores(done[row], scores, self.scored)
            except CheckpointError:  # the results were moved without their cells
                continue
        return found

    def _take_published(
        self, published: Sequence[PublishedTest], found: Mapping[str, RowScores | None]
    ) -> dict[Key, Comparison]:
        """Keeps the published intervals of rows without scores, and returns their tests."""
        tests = {}
        for one in published:
            key = one.row, one.measure
            if one.row not in self.rows or one.row in found or one.measure not in self.scored:
                continue
            if abs(self._find_value(*key) - one.value) > _ROUNDING:
                continue
            if self.reference not in (None, one.row):
                tests[key] = Comparison(one.value, one.num_documents, one.p_value, one.reason)
            if one.interval is not None:
                self.intervals[key] = one.interval
        return tests

    def _note_missing(self, found: Mapping[str, RowScores | None]) -> None:
        """Adds notes on rows that have neither scores nor published intervals."""
        for row in self.rows:
            missing = [one for one in self.scored if (row, one) not in self.intervals]
            if row not in found and missing:
                some = f" of {', '.join(missing)}" if len(missing) < len(self.scored) else ""
                reason = "the scores of its documents cannot be read from its run folders"
                self.notes[row].append(f"no intervals over documents{some} and no stars: {reason}.")
            elif row in found and found[row] is None:
                reason = "its seeds were measured on different documents"
                self.notes[row].append(f"{_NO_INTERVALS}: {reason}.")

    def _group(self, found: Mapping[str, RowScores | None]) -> list[dict[str, Tensor]]:
        """Score tables by group of rows on the same documents; only the reference's, if any."""
        groups: dict[tuple[str, int], dict[str, Tensor]] = {}
        there = {row: scores for row, scores in found.items() if scores is not None}
        for row, scores in there.items():
            groups.setdefault(scores.documents, {})[row] = scores.table
        if self.reference is None:
            return [*groups.values()]
        base = there.get(self.reference)
        why = f"it was measured on other documents than '{self.reference}'"
        if base is None:
            why = f"the reference '{self.reference}' has no scores of documents"
        for row, scores in there.items():
            if base is None or scores.documents != base.documents:
                self.notes[row].append(f"{_NO_INTERVALS}: {why}.")
        return [] if base is None else [groups[base.documents]]

    def _resample(self, group: Mapping[str, Tensor]) -> dict[Key, Comparison]:
        """Tests and intervals of rows on the same documents, by the same bootstrap resamples."""
        bootstrap = DocumentBootstrap(torch.cat([*group.values()], dim=1))  # [D, rows * M]
        found = {}
        for offset, measure in enumerate(self.scored):
            place = {row: number * len(self.scored) + offset for number, row in enumerate(group)}
            for row, column in place.items():
                if self.reference in (None, row):
                    interval = bootstrap.find_interval(column)
                else:
                    found[row, measure] = bootstrap.compare(column, place[str(self.reference)])
                    interval = found[row, measure].interval
                if interval is not None:
                    self.intervals[row, measure] = interval
        return found

    def _note_tests(self) -> None:
        """Adds notes on tests that were left out, grouping measures by reason."""
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
