"""Estimates: from finished cells, from probes corrected by them, and what they say."""

import pytest

from match_graph.benchmark import Cell, PlannedRow
from match_graph.benchmark.estimate import Estimate
from match_graph.benchmark.plan import PlannedCell
from match_graph.config import Config


def planned(row: str, dataset: str = "toy") -> PlannedCell:
    return PlannedCell(dataset, dataset, PlannedRow(name=row), 0, "cells", Config(), "")


def done(row: str, seconds: float, resumed: bool = False) -> Cell:
    return Cell(
        dataset="toy", row=row, seed=0, status="done", folder="x",
        seconds={"train": seconds - 1.0, "evaluate": 1.0}, resumed=resumed,
    )  # fmt: skip


def test_Estimate_finished_cells_correct_what_probes_said() -> None:
    """MATCH took twice the seconds of its probe, so those of the other network are doubled."""
    estimate = Estimate({("toy", "MATCH"): 5.0, ("toy", "other"): 20.0})
    cells = [planned("MATCH"), planned("other"), planned("prior")]
    assert estimate.describe(cells, 1) == "about 38 s left (from measured steps)"
    estimate.add(done("MATCH", 10.0))
    assert estimate.seconds_of(("toy", "other")) == pytest.approx(40.0)
    assert estimate.seconds_of(("toy", "prior")) == pytest.approx(10.0)  # as its data set's others
    assert estimate.describe(cells, 1) == (
        "about 60 s left (from 1 finished cell and measured steps)"
    )
    estimate.add(done("MATCH", 20.0))
    estimate.add(done("other", 3.0))
    assert estimate.describe(cells[:2], 2) == "about 9.0 s left (from 3 finished cells)"


def test_Estimate_nothing_known_is_said() -> None:
    """Resumed cells and those of other data sets do not count."""
    estimate = Estimate()
    estimate.add(done("MATCH", 10.0, resumed=True))
    assert estimate.describe([planned("MATCH")], 1) == "no estimate yet: nothing is measured"
    estimate.add(done("MATCH", 10.0))
    assert estimate.seconds_of(("far", "MATCH")) is None


def test_Estimate_builds_once() -> None:
    """Embedding texts counts once per data set, not for every cell."""
    estimate = Estimate({("toy", "MATCH"): 5.0}, embedding={"toy": 60.0, "far": 600.0})
    cells = [planned("MATCH"), planned("MATCH")]
    assert estimate.describe(cells, 1) == "about 70 s left (from measured steps)"
    first = done("MATCH", 7.0).model_copy(update={"feature_checksums": {"document": "ab"}})
    first.seconds["build"] = 55.0
    estimate.add(first)
    assert estimate.describe(cells, 1) == "about 14 s left (from 1 finished cell)"
    assert estimate.embedding == {"toy": 0.0, "far": 600.0}


def test_Estimate_is_of_means_over_finished_cells_alone() -> None:
    """Failed cells do not count; rows without a cell take the mean of the others."""
    estimate = Estimate({("toy", "a"): 1.0, ("toy", "b"): 3.0, ("toy", "c"): 10.0})
    estimate.add(done("a", 4.0))
    estimate.add(done("a", 90.0).model_copy(update={"status": "failed"}))
    estimate.add(done("b", 8.0))
    assert estimate.seconds_of(("toy", "a")) == pytest.approx(4.0)
    assert estimate.seconds_of(("toy", "new")) == pytest.approx(6.0)
    assert estimate.seconds_of(("toy", "c")) == pytest.approx(10.0 * (4.0 + 8.0) / (1.0 + 3.0))
