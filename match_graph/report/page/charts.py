"""SVG chart geometry."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from match_graph.report.tables import Table

#: Units of a canvas, of which a phone shows about one a pixel; and the margins of a chart.
WIDTH, HEIGHT = 340, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 10, 38
#: Styles that the page has for series; further ones begin again.
NUM_STYLES = 6
#: Height of a bar's row, where bars begin, letters of a name that fit before, width of a letter.
_ROW, _BARS, _LETTERS, _LETTER = 24, 132, 18, 6.9


#: What is drawn at most: ranges of larger numbers are beyond floating point.
_LARGEST = 1e30


@dataclass(frozen=True)
class Tick:
    """Axis tick: its label and its position."""

    text: str
    place: float


@dataclass(frozen=True)
class Series:
    """Data series: points joined by a line.

    Args:
        name: Name in the legend.
        x: Horizontal values, ascending.
        y: Vertical values, as many.
        spread: Half the height of a band around each point; empty for none.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()

    def __post_init__(self) -> None:
        for name in ("x", "y", "spread"):
            object.__setattr__(self, name, [_clip(value) for value in getattr(self, name)])


@dataclass(frozen=True)
class Line:
    """Series on the canvas; points and band in the syntax of SVG's ``points``.

    Args:
        name: Name of the series.
        style: Index of the line style.
        points: Points of the line.
        dots: Dots: x, y and tooltip of each.
        band: Outline of the band, empty for none.
    """

    name: str
    style: int
    points: str
    dots: list[tuple[float, float, str]]
    band: str


@dataclass(frozen=True)
class LineChart:
    """Line chart: series over one axis.

    Args:
        title: Title above the figure.
        x_label: Label of the horizontal axis.
        y_label: Label of the vertical axis.
        series: Data series, at least one, each of at least one point.
        is_square: Whether both axes go from 0 to 1, with a diagonal, as in a reliability diagram.
        table: Table of the data, where there is more to them than the points; None takes these.
    """

    kind: ClassVar[str] = "lines"
    width: ClassVar[int] = WIDTH
    height: ClassVar[int] = HEIGHT
    frame: ClassVar[tuple[int, int, int, int]] = (_LEFT, _TOP, WIDTH - _RIGHT, HEIGHT - _BOTTOM)
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    is_square: bool = False
    table: Table | None = None

    @cached_property
    def x_ticks(self) -> list[Tick]:
        """Ticks of the horizontal axis."""
        low, high = self._x_range
        values = find_ticks(low, high, whole=not self.is_square)
        return [Tick(f"{value:g}", self._x(value)) for value in values if low <= value <= high]

    @cached_property
    def y_ticks(self) -> list[Tick]:
        """Ticks of the vertical axis."""
        return [Tick(f"{value:g}", self._y(value)) for value in self._y_values]

    @cached_property
    def lines(self) -> list[Line]:
        """Series on the canvas."""
        return [self._draw(one, number % NUM_STYLES) for number, one in enumerate(self.series)]

    @property
    def data(self) -> Table:
        """Data table: a row for each place on the horizontal axis; or ``table``."""
        if self.table is not None:
            return self.table
        found = [dict(zip(one.x, one.y, strict=True)) for one in self.series]
        places = sorted({x for values in found for x in values})
        rows = [
            [f"{x:.4g}", *(f"{values[x]:.6g}" if x in values else "" for values in found)]
            for x in places
        ]
        return Table([self.x_label, *(one.name for one in self.series)], rows)

    def _draw(self, one: Series, style: int) -> Line:
        places = [(self._x(x), self._y(y)) for x, y in zip(one.x, one.y, strict=True)]
        dots = [
            (*place, f"{one.name}, {self.x_label} {x:.4g}: {y:.4g}")
            for place, x, y in zip(places, one.x, one.y, strict=True)
        ]
        band = ""
        if one.spread:
            rows = list(zip(one.x, one.y, one.spread, strict=True))
            upper = [(self._x(x), self._y(y + half)) for x, y, half in rows]
            lower = [(self._x(x), self._y(y - half)) for x, y, half in reversed(rows)]
            band = join_points([*upper, *lower])
        return Line(one.name, style, join_points(places), dots, band)

    @cached_property
    def _x_range(self) -> tuple[float, float]:
        values = [x for one in self.series for x in one.x]
        return (0.0, 1.0) if self.is_square else widen(min(values), max(values))

    @cached_property
    def _y_values(self) -> list[float]:
        if self.is_square:
            return find_ticks(0.0, 1.0)
        ends = []
        for one in self.series:
            spread = one.spread or [0.0] * len(one.y)
            ends += [
                y + sign * half for y, half in zip(one.y, spread, strict=True) for sign in (-1, 1)
            ]
        return find_ticks(*widen(min(ends), max(ends)))

    def _x(self, value: float) -> float:
        low, high = self._x_range
        return round(_LEFT + (value - low) / (high - low) * (WIDTH - _LEFT - _RIGHT), 1)

    def _y(self, value: float) -> float:
        low, high = self._y_values[0], self._y_values[-1]
        share = (value - low) / (high - low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)


@dataclass(frozen=True)
class Bar:
    """Bar of a chart.

    Args:
        name: Label before the bar.
        value: Length of the bar, at least 0.
        text: Text behind the bar.
        spread: Half the length of a whisker around its end; 0 for none.
    """

    name: str
    value: float
    text: str
    spread: float = 0.0

    def __post_init__(self) -> None:
        for name in ("value", "spread"):
            object.__setattr__(self, name, _clip(getattr(self, name)))


@dataclass(frozen=True)
class DrawnBar:
    """Bar on the canvas: its row, end, whisker, and its name as far as it fits."""

    bar: Bar
    y: float
    length: float
    whisker: tuple[float, float] | None
    name: str


@dataclass(frozen=True)
class BarChart:
    """Bar chart: horizontal bars from 0, one below the other.

    Args:
        title: Title above the figure.
        unit: Unit of the lengths, for the data table.
        bars: Bars, at least one.
    """

    kind: ClassVar[str] = "bars"
    width: ClassVar[int] = WIDTH
    start: ClassVar[int] = _BARS
    title: str
    unit: str
    bars: Sequence[Bar]

    @property
    def height(self) -> int:
        """Height of the canvas."""
        return _ROW * len(self.bars) + 4

    @cached_property
    def drawn(self) -> list[DrawnBar]:
        """Bars on the canvas."""
        longest = max((bar.value + bar.spread for bar in self.bars), default=0.0) or 1.0
        text = max((len(bar.text) for bar in self.bars), default=0)
        scale = (WIDTH - 10 - _LETTER * text - _BARS) / longest
        found = []
        for number, bar in enumerate(self.bars):
            whisker = None
            if bar.spread:
                ends = max(0.0, bar.value - bar.spread), bar.value + bar.spread
                whisker = round(_BARS + ends[0] * scale, 1), round(_BARS + ends[1] * scale, 1)
            length = round(bar.value * scale, 1)
            y = number * _ROW + 2
            found.append(DrawnBar(bar, y, length, whisker, shorten(bar.name, _LETTERS)))
        return found

    @property
    def data(self) -> Table:
        """Data table of all bars."""
        rows = [[bar.name, f"{bar.value:.6g}"] for bar in self.bars]
        if not any(bar.spread for bar in self.bars):
            return Table(["", self.unit], rows)
        rows = [[*row, f"{bar.spread:.4g}"] for row, bar in zip(rows, self.bars, strict=True)]
        return Table(["", self.unit, "±"], rows)


def _clip(value: float) -> float:
    return min(max(value, -_LARGEST), _LARGEST)


def find_ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Round tick values from at most ``low`` to at least ``high``, about five."""
    from matplotlib.ticker import MaxNLocator

    locator = MaxNLocator(nbins=5, integer=whole, steps=[1, 2, 2.5, 5, 10])
    return [round(float(value), 12) for value in locator.tick_values(low, high)]


def widen(low: float, high: float) -> tuple[float, float]:
    """Range widened where it is a single value but for rounding."""
    least = 1e-9 * max(1.0, abs(low), abs(high))
    return (low, high) if high - low > least else (low - 0.5, high + 0.5)


def join_points(places: Sequence[tuple[float, float]]) -> str:
    """Points in SVG syntax."""
    return " ".join(f"{x:g},{y:g}" for x, y in places)


def shorten(text: str, number: int) -> str:
    """Shortens text to a number of letters, with an ellipsis."""
    return text if len(text) <= number else f"{text[: number - 1]}…"
