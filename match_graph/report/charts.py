"""Line and bar charts of a page, drawn by matplotlib, with their data as tables."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, ClassVar

from match_graph.report.figures import PALETTE, clean, draw_svg, tooltip
from match_graph.report.tables import Table

#: Size of a canvas in its units, about a pixel of a phone; and the margins of a chart.
WIDTH, _HEIGHT = 340, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 10, 38
#: Colours and dashes of series, used in turn.
_STYLES: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("c0", ()),
    ("c1", (7, 3)),
    ("c2", (2, 2)),
    ("c3", (7, 3, 2, 3)),
    ("c4", (4, 2)),
    ("c5", (1, 3)),
)
NUM_STYLES = len(_STYLES)
#: Height of a bar's row, left end of bars, letters of a name that fit before it, width of a letter.
_ROW, _BARS, _LETTERS, _LETTER = 24, 132, 18, 6.9
#: Largest number of points of a series that are drawn as dots; more would cover the line.
_DOTS = 200
#: Font sizes of names and of ticks.
NAME_SIZE, TICK_SIZE = 11, 10.5
#: Larger numbers are clipped, as axis ranges of them overflow.
_LARGEST = 1e30


class Chart(ABC):
    """Figure of a page with a table of its data.

    Attributes:
        title: Title above the figure.
        about: Text after the title, such as the unit.
        note: Explanation of the marks.
    """

    kind: ClassVar[str] = "chart"
    note: ClassVar[str] = ""
    title: str
    about: str

    @property
    @abstractmethod
    def data(self) -> Table:
        """Data table."""

    @abstractmethod
    def draw(self, figure: Any) -> None:
        """Draws on an empty matplotlib figure."""

    @property
    def height(self) -> float:
        """Height of the canvas."""
        return _HEIGHT

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Names of the series, each with the CSS style of its line."""
        return []

    @property
    def svg(self) -> str:
        """Figure as an SVG element."""
        return draw_svg(self.draw, WIDTH, self.height, self.title)


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

    @property
    def band(self) -> tuple[list[float], list[float]]:
        """Lower and upper end of the band; the points where there is none."""
        spread = self.spread or [0.0] * len(self.y)
        pairs = list(zip(self.y, spread, strict=True))
        return [y - half for y, half in pairs], [y + half for y, half in pairs]


@dataclass(frozen=True)
class LineChart(Chart):
    """Line chart: series over one axis.

    Args:
        title: Title above the figure.
        x_label: Label of the horizontal axis.
        about: Label of the vertical axis.
        series: Data series, at least one, each of at least one point.
        is_square: Whether both axes go from 0 to 1, with a diagonal, as in a reliability diagram.
        table: Table of the data, if it holds more than the points; None makes it from them.
    """

    title: str
    x_label: str
    about: str
    series: Sequence[Series]
    is_square: bool = False
    table: Table | None = None

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Names of the series, each with the CSS style of its line."""
        return [
            (one.name, f"stroke: var(--{colour}); stroke-dasharray: {' '.join(map(str, dash))}")
            for one, (colour, dash) in zip(self.series, cycle(_STYLES), strict=False)
        ]

    @property
    def data(self) -> Table:
        """Data table: a row for each horizontal value; or ``table``."""
        if self.table is not None:
            return self.table
        found = [dict(zip(one.x, one.y, strict=True)) for one in self.series]
        places = sorted({x for values in found for x in values})
        rows = [
            [f"{x:.4g}", *(f"{values[x]:.6g}" if x in values else "" for values in found)]
            for x in places
        ]
        return Table([self.x_label, *(one.name for one in self.series)], rows)

    def draw(self, figure: Any) -> None:
        """Draws bands, lines and dots over horizontal grid lines."""
        size = WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        axis = figure.add_axes(
            (_LEFT / WIDTH, _BOTTOM / _HEIGHT, size[0] / WIDTH, size[1] / _HEIGHT)
        )
        x_range, y_ticks = self._measure()
        x_ticks = find_ticks(*x_range, whole=not self.is_square)
        x_ticks = [tick for tick in x_ticks if x_range[0] <= tick <= x_range[1]]
        axis.set(xlim=x_range, ylim=(y_ticks[0], y_ticks[-1]))
        axis.set_xticks(x_ticks, [f"{tick:g}" for tick in x_ticks])
        axis.set_yticks(y_ticks, [f"{tick:g}" for tick in y_ticks])
        muted = {"labelcolor": PALETTE["muted"], "labelsize": TICK_SIZE}
        axis.tick_params("x", length=4, width=1, color=PALETTE["ink"], **muted)
        axis.tick_params("y", length=0, pad=5, **muted)
        axis.set_xlabel(clean(self.x_label), color=PALETTE["muted"], size=TICK_SIZE)
        axis.grid(axis="y", color=PALETTE["rule"], linewidth=0.7)
        axis.set_axisbelow(True)
        axis.spines[["left", "top", "right"]].set_visible(False)
        axis.spines["bottom"].set(color=PALETTE["ink"], linewidth=1)
        if self.is_square:
            axis.plot([0, 1], [0, 1], color=PALETTE["muted"], lw=1, dashes=(3, 3))
        for one, (colour, dash) in zip(self.series, cycle(_STYLES), strict=False):
            self._draw_series(axis, one, PALETTE[colour], dash)

    def _draw_series(self, axis: Any, one: Series, colour: str, dash: tuple[int, ...]) -> None:
        if one.spread:
            axis.fill_between(one.x, *one.band, color=colour, alpha=0.18, linewidth=0)
        axis.plot(one.x, one.y, color=colour, linewidth=2, linestyle=(0, dash) if dash else "-")
        if len(one.x) > _DOTS:
            return
        for x, y in zip(one.x, one.y, strict=True):
            text = tooltip(f"{one.name}, {self.x_label} {x:.4g}: {y:.4g}")
            axis.plot(
                [x, x], [y, y], color=colour, linewidth=5, solid_capstyle="round", gid=text
            )  # a dot, as a line of no length

    def _measure(self) -> tuple[tuple[float, float], list[float]]:
        """Range of the horizontal axis, and ticks of the vertical one, which cover all values."""
        if self.is_square:
            return (0.0, 1.0), find_ticks(0.0, 1.0)
        x = [value for one in self.series for value in one.x]
        y = [value for one in self.series for ends in one.band for value in ends]
        return widen(min(x), max(x)), find_ticks(*widen(min(y), max(y)))


@dataclass(frozen=True)
class Bar:
    """Bar of a chart.

    Args:
        name: Label before the bar.
        value: Length of the bar, at least 0.
        text: Text after the bar.
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
class BarChart(Chart):
    """Bar chart: horizontal bars from 0, one below the other.

    Args:
        title: Title above the figure.
        about: Unit of the lengths.
        bars: Bars, at least one.
    """

    title: str
    about: str
    bars: Sequence[Bar]

    @property
    def height(self) -> float:
        """Height of the canvas."""
        return _ROW * len(self.bars) + 4

    @property
    def data(self) -> Table:
        """Data table of all bars."""
        rows = [[bar.name, f"{bar.value:.6g}"] for bar in self.bars]
        if not any(bar.spread for bar in self.bars):
            return Table(["", self.about], rows)
        rows = [[*row, f"{bar.spread:.4g}"] for row, bar in zip(rows, self.bars, strict=True)]
        return Table(["", self.about, "±"], rows)

    def draw(self, figure: Any) -> None:
        """Draws a row per bar: its name, the bar with a whisker, its text."""
        axis = add_canvas(figure, self.height)
        longest = max((bar.value + bar.spread for bar in self.bars), default=0.0) or 1.0
        letters = max((len(bar.text) for bar in self.bars), default=0)
        scale = (WIDTH - 10 - _LETTER * letters - _BARS) / longest
        for number, bar in enumerate(self.bars):
            y = number * _ROW + 12
            text = tooltip(f"{bar.name}: {bar.text}")
            add_text(axis, _BARS - 6, y + 5, shorten(bar.name, _LETTERS), ha="right", gid=text)
            axis.barh(y, bar.value * scale, 16, left=_BARS, color=PALETTE["c0"], gid=text)
            if bar.spread:
                ends = max(0.0, bar.value - bar.spread), bar.value + bar.spread
                left, right = (_BARS + end * scale for end in ends)
                for colour, width, more in (("ground", 5, 1.5), ("ink", 2, 0)):
                    axis.plot(
                        [left - more, right + more], [y, y], color=PALETTE[colour],
                        linewidth=width, solid_capstyle="butt",
                    )  # fmt: skip
            add_text(axis, WIDTH - 2, y + 5, bar.text, "muted", TICK_SIZE, ha="right", gid=text)
        axis.plot([_BARS, _BARS], [0, self.height], color=PALETTE["ink"], linewidth=1)


def add_canvas(figure: Any, height: float) -> Any:
    """Axes over a whole figure in the units of its canvas, y downwards."""
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    axis.set(xlim=(0, WIDTH), ylim=(height, 0), autoscale_on=False)
    return axis


def add_text(
    axis: Any,
    x: float,
    y: float,
    text: str,
    colour: str = "ink",
    size: float = NAME_SIZE,
    **options: Any,
) -> None:
    """Writes text on a canvas with its baseline at y."""
    axis.text(x, y, clean(text), color=PALETTE[colour], size=size, **options)


def _clip(value: float) -> float:
    return min(max(value, -_LARGEST), _LARGEST)


def find_ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Round tick values from at most ``low`` to at least ``high``, about five."""
    from matplotlib.ticker import MaxNLocator

    locator = MaxNLocator(nbins=5, integer=whole, steps=[1, 2, 2.5, 5, 10])
    return [round(float(value), 12) for value in locator.tick_values(low, high)]


def widen(low: float, high: float) -> tuple[float, float]:
    """Range, widened if it is a single value up to rounding."""
    least = 1e-9 * max(1.0, abs(low), abs(high))
    return (low, high) if high - low > least else (low - 0.5, high + 0.5)


def shorten(text: str, number: int) -> str:
    """Shortens text to a number of letters, with an ellipsis."""
    return text if len(text) <= number else f"{text[: number - 1]}…"
