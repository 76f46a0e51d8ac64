"""Figures: places on the canvas by hand, the data behind them, and what fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.report.page import Bar, BarChart, LineChart, Series
from match_graph.report.page.charts import find_ticks, shorten, widen

numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


def test_points_lie_where_the_axes_say() -> None:
    """Left and right end, lowest and highest mark of the frame."""
    chart = LineChart("Loss", "epoch", "mean", [Series("a", [1, 2, 3], [0.0, 5.0, 10.0])])
    left, top, right, bottom = chart.frame
    assert [tick.text for tick in chart.x_ticks] == ["1", "2", "3"]
    assert [tick.place for tick in chart.x_ticks] == [left, (left + right) / 2, right]
    assert [tick.text for tick in chart.y_ticks] == ["0", "2", "4", "6", "8", "10"]
    assert (chart.y_ticks[0].place, chart.y_ticks[-1].place) == (bottom, top)
    [line] = chart.lines
    assert (
        line.points
        == f"{left:g},{bottom:g} {(left + right) / 2:g},{(top + bottom) / 2:g} {right:g},{top:g}"
    )
    assert [text for *_, text in line.dots] == [
        "a, epoch 1: 0", "a, epoch 2: 5", "a, epoch 3: 10",
    ]  # fmt: skip
    assert line.band == ""


@given(st.lists(st.tuples(numbers, st.floats(0, 100)), min_size=1, max_size=12))
def test_everything_stays_within_the_frame(points: list[tuple[float, float]]) -> None:
    """Also a single point, equal values, and bands."""
    values, spread = zip(*points, strict=True)
    chart = LineChart("", "x", "y", [Series("a", range(len(values)), values, spread)])
    left, top, right, bottom = chart.frame
    [line] = chart.lines
    for place in f"{line.points} {line.band}".split():
        x, y = map(float, place.split(","))
        assert left <= x <= right
        assert top - 0.1 <= y <= bottom + 0.1
    assert len(line.band.split()) == 2 * len(values)


def test_a_square_goes_from_zero_to_one() -> None:
    """Both axes, whatever the points."""
    chart = LineChart("", "p", "q", [Series("a", [0.2], [0.3])], is_square=True)
    assert [tick.text for tick in chart.x_ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert [tick.text for tick in chart.y_ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_the_data_of_lines_has_a_row_per_place() -> None:
    """Series that lack a place leave a gap."""
    chart = LineChart("", "epoch", "", [Series("a", [1, 2], [0.5, 0.25]), Series("b", [2], [1.0])])
    assert chart.data.columns == ["epoch", "a", "b"]
    assert chart.data.rows == [["1", "0.5", ""], ["2", "0.25", "1"]]


def test_bars_begin_at_zero_and_have_whiskers() -> None:
    """Lengths in proportion; a whisker never begins before zero; long names are cut."""
    long = "a name that is much too long for its place"
    chart = BarChart("", "fraction", [Bar("a", 10.0, "10"), Bar(long, 5.0, "5", spread=10.0)])
    first, second = chart.drawn
    assert first.length == pytest.approx(2 * second.length, abs=0.2)
    assert first.whisker is None
    assert second.whisker is not None
    assert second.whisker[0] == chart.start
    assert second.name.endswith("…")
    assert long.startswith(second.name[:-1])
    assert chart.data.columns == ["", "fraction", "±"]
    assert chart.data.rows == [["a", "10", "0"], [long, "5", "10"]]
    plain = BarChart("", "fraction", [Bar("a", 0.0, "0")])
    assert plain.drawn[0].length == 0
    assert plain.data.columns == ["", "fraction"]


@given(numbers, numbers)
def test_marks_cover_their_range(low: float, high: float) -> None:
    """Two to nine of them, ascending."""
    low, high = widen(*sorted((low, high)))
    ticks = find_ticks(low, high)
    assert ticks == sorted(ticks)
    assert 2 <= len(ticks) <= 9
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack


def test_short_texts_stay() -> None:
    """The ellipsis counts as a letter."""
    assert (shorten("abcd", 4), shorten("abcde", 4)) == ("abcd", "abc…")


@pytest.mark.parametrize("value", [1e308, -1e308, float("inf")])
def test_charts_draw_the_largest_numbers(value: float) -> None:
    """As far as they can: every place is on the canvas."""
    line = LineChart("", "", "", [Series("a", [1, 2, 3], [0.0, value, -value], [value] * 3)])
    for _, y, _ in line.lines[0].dots:
        assert 0 <= y <= line.height
    assert all(tick.text for tick in line.y_ticks)
    bars = BarChart("", "", [Bar("a", abs(value), "x", abs(value)), Bar("b", 1.0, "y")])
    assert all(0 <= bar.length <= bars.width for bar in bars.drawn)
