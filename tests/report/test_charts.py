"""Charts: what is drawn, read back from matplotlib's axes, and the data behind them."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from match_graph.report.charts import (
    Bar,
    BarChart,
    Chart,
    LineChart,
    Series,
    find_ticks,
    shorten,
    widen,
)

numbers = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


def draw(chart: Chart):
    """Axes that a chart is drawn on."""
    figure = Figure()
    chart.draw(figure)
    [axis] = figure.axes
    return axis


def list_texts(chart: Chart) -> list[str]:
    """Texts of a chart's SVG."""
    return [one.text or "" for one in ET.fromstring(chart.svg).iter("text")]


def test_LineChart_draw() -> None:
    """A line has a dot per point, and ticks cover all values."""
    chart = LineChart("Loss", "epoch", "mean", [Series("a", [1, 2, 3], [0.0, 5.0, 10.0])])
    axis = draw(chart)
    assert [label.get_text() for label in axis.get_xticklabels()] == ["1", "2", "3"]
    ticks = [label.get_text() for label in axis.get_yticklabels()]
    assert ticks == ["0", "2", "4", "6", "8", "10"]
    assert (axis.get_xlim(), axis.get_ylim(), axis.get_xlabel()) == ((1, 3), (0, 10), "epoch")
    line, *dots = axis.lines
    assert line.get_xydata().tolist() == [[1, 0], [2, 5], [3, 10]]
    assert [dot.get_gid() for dot in dots] == [
        "tooltip: a, epoch 1: 0", "tooltip: a, epoch 2: 5", "tooltip: a, epoch 3: 10",
    ]  # fmt: skip
    assert not axis.collections
    long = Series("a", range(1000), [0.5] * 1000)
    assert len(draw(LineChart("", "epoch", "", [long])).lines) == 1
    assert chart.legend == [("a", "stroke: var(--c0); stroke-dasharray: ")]


@given(st.lists(st.tuples(numbers, st.floats(0, 100)), min_size=1, max_size=12))
def test_LineChart_covers_its_bands(points: list[tuple[float, float]]) -> None:
    """Ticks also cover a single point, and equal values."""
    values, spread = zip(*points, strict=True)
    axis = draw(LineChart("", "x", "y", [Series("a", range(len(values)), values, spread)]))
    (left, right), (low, high) = axis.get_xlim(), axis.get_ylim()
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    [band] = axis.collections
    for x, y in band.get_paths()[0].vertices.tolist():
        assert left <= x <= right
        assert low - slack <= y <= high + slack


def test_LineChart_square() -> None:
    """Both axes go from 0 to 1 for any points, with a diagonal."""
    axis = draw(LineChart("", "p", "q", [Series("a", [0.2], [0.3])], is_square=True))
    for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
        assert [one.get_text() for one in labels] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert axis.lines[0].get_xydata().tolist() == [[0, 0], [1, 1]]


def test_LineChart_data() -> None:
    """There is a row per horizontal value; series without it have an empty cell."""
    chart = LineChart("", "epoch", "", [Series("a", [1, 2], [0.5, 0.25]), Series("b", [2], [1.0])])
    assert chart.data.columns == ["epoch", "a", "b"]
    assert chart.data.rows == [["1", "0.5", ""], ["2", "0.25", "1"]]


def test_BarChart_draw() -> None:
    """Lengths are proportional, whiskers never begin below zero, long names are shortened."""
    long = "a name that is much too long for its place"
    chart = BarChart("", "fraction", [Bar("a", 10.0, "10"), Bar(long, 5.0, "5", spread=10.0)])
    axis = draw(chart)
    first, second = axis.patches
    assert first.get_width() == pytest.approx(2 * second.get_width())
    halo, whisker, ground = axis.lines
    assert whisker.get_xdata()[0] == second.get_x() == ground.get_xdata()[0]
    assert halo.get_xdata()[0] < whisker.get_xdata()[0]
    name = axis.texts[2].get_text()
    assert name.endswith("…")
    assert long.startswith(name[:-1])
    assert second.get_gid() == f"tooltip: {long}: 5"
    assert draw(BarChart("", "", [Bar("a", 0.0, "0")])).patches[0].get_width() == 0


def test_BarChart_data() -> None:
    """Deviations have a column if there are any."""
    chart = BarChart("", "fraction", [Bar("a", 10.0, "10"), Bar("b", 5.0, "5", spread=10.0)])
    assert chart.data.columns == ["", "fraction", "±"]
    assert chart.data.rows == [["a", "10", "0"], ["b", "5", "10"]]
    assert BarChart("", "fraction", [Bar("a", 0.0, "0")]).data.columns == ["", "fraction"]


@pytest.mark.parametrize("value", [1e308, -1e308, float("inf")])
def test_LineChart_svg_of_the_largest_numbers(value: float) -> None:
    """All coordinates are finite."""
    line = LineChart("", "", "", [Series("a", [1, 2, 3], [0.0, value, -value], [value] * 3)])
    bars = BarChart("", "", [Bar("a", abs(value), "x", abs(value)), Bar("b", 1.0, "y")])
    for chart in (line, bars):
        assert not re.search("nan|inf", chart.svg)
    assert all(label.get_text() for label in draw(line).get_yticklabels())


def test_BarChart_svg_keeps_text_as_text() -> None:
    """Mathematics, control characters and other scripts are shown as text, without warnings."""
    names = ["$x_1$ & <b>", "文書", "line\nbreak", "bell\x07"]
    texts = list_texts(BarChart("", "", [Bar(name, 1.0, "1") for name in names]))
    assert texts[::2] == ["$x_1$ & <b>", "文書", "line break", "bell\ufffd"]


@given(numbers, numbers)
def test_find_ticks_covers_the_range(low: float, high: float) -> None:
    """There are two to nine ascending ticks."""
    low, high = widen(*sorted((low, high)))
    ticks = find_ticks(low, high)
    assert ticks == sorted(ticks)
    assert 2 <= len(ticks) <= 9
    slack = 1e-9 * max(1.0, abs(low), abs(high))
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack


def test_shorten() -> None:
    """The ellipsis counts as a letter."""
    assert (shorten("abcd", 4), shorten("abcde", 4)) == ("abcd", "abc…")
