"""Tables and lines of a benchmark's page, by hand."""

import pandas as pd
import pytest

from match_graph.report.page import Series
from match_graph.report.page_tables import (
    average_histories,
    cut,
    tabulate_best,
    tabulate_grid,
)


def test_a_grid_is_a_table_per_measure() -> None:
    """The first setting down, the second across; points that are not finished leave gaps."""
    points = pd.DataFrame(
        [
            {"row": "a", "x": 0.1, "y": 1, "measure": "P@1", "mean": 0.5},
            {"row": "b", "x": 0.1, "y": 2, "measure": "P@1", "mean": 0.75},
            {"row": "c", "x": 0.2, "y": 1, "measure": "P@1", "mean": 0.25},
        ]
    )
    [table] = tabulate_grid(points, ["x", "y"], ["P@1"])
    assert table.columns == ["P@1", "y=1", "y=2"]
    assert [list(row) for row in table.rows] == [
        ["x=0.1", "0.5000", "0.7500"],
        ["x=0.2", "0.2500", "-"],
    ]
    assert table.best == {(0, 1), (0, 2)}
    assert not [*tabulate_grid(pd.DataFrame(), ["x", "y"], ["P@1"])]


def test_the_least_is_best_where_less_is_better() -> None:
    """As for violations of the hierarchy."""
    table = tabulate_best({"a": {"x": 0.5}, "b": {"x": 0.25}}, ["x"], "", lower_is_better=True)
    assert table.best == {(1, 1)}


def test_histories_are_averaged_by_epoch() -> None:
    """Over the runs that reached it; without a band where there is one run."""
    first = pd.DataFrame({"epoch": [1, 2], "loss": [1.0, 0.5]})
    second = pd.DataFrame({"epoch": [1], "loss": [2.0]})
    [several, single] = average_histories({"a": [first, second], "b": [first]}, "loss")
    assert (several.x, several.y) == ([1, 2], [1.5, 0.5])
    assert several.spread == pytest.approx([0.5**0.5, 0.0])
    assert single.spread == []
    assert average_histories({"a": [first]}, "other") == []


def test_a_figure_has_no_more_lines_than_styles() -> None:
    """Seven lines are two figures."""
    lines = [Series(str(number), [1], [1]) for number in range(7)]
    assert [len(part) for part in cut(lines)] == [6, 1]
    assert cut([]) == []
