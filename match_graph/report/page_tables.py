"""Tables and line charts on the page of a benchmark."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import pandas as pd

from match_graph.report.page import Series, Table, fraction
from match_graph.report.page.charts import NUM_STYLES
from match_graph.report.summary import LOWER_IS_BETTER, RowSummary, Value

T = TypeVar("T")


def tabulate_rows(rows: Sequence[RowSummary], measures: Sequence[str]) -> Table:
    """Table rows: measures, number of runs, parameters, time and memory."""
    lines, best = [], set()
    for number, row in enumerate(rows):
        values = [row.measured.get(measure) for measure in measures]
        best |= {(number, place) for place, one in enumerate(values, 1) if one and one.is_best}
        lines.append(
            [
                row.name,
                *("-" if value is None else format_value(value, 4) for value in values),
                str(row.runs),
                "-" if row.parameters is None else f"{row.parameters:,}",
                "-" if row.seconds_per_epoch is None else f"{row.seconds_per_epoch:.3g}",
                "-" if row.peak_mib is None else f"{row.peak_mib:,.0f}",
            ]
        )
    columns = ["", *measures, "runs", "parameters", "s / epoch", "peak MiB"]
    return Table(columns, lines, frozenset(best))


def tabulate_expected(rows: Sequence[RowSummary], measures: Sequence[str]) -> Table | None:
    """Published figures and the difference to them; None without any."""
    lines = []
    for row in rows:
        values = [row.measured.get(measure) for measure in measures]
        if any(value is not None and value.expected for value in values):
            lines.append([row.name, *map(_format_expected, values)])
    caption = "What the paper reports, and in brackets the difference of ours"
    return Table(["", *measures], lines, caption=caption) if lines else None


def tabulate_best(
    found: Mapping[str, Mapping[str, float]],
    columns: Sequence[str],
    name: str,
    lower_is_better: bool = False,
) -> Table:
    """Table of fractions, the best of each column marked; "-" for what is missing."""
    best = set()
    choose = min if lower_is_better else max
    for place, column in enumerate(columns, start=1):
        values = [values.get(column) for values in found.values()]
        first = choose((value for value in values if value is not None), default=None)
        best |= {(row, place) for row, value in enumerate(values) if value == first is not None}
    lines = [
        [row, *(fraction(values.get(column)) for column in columns)]
        for row, values in found.items()
    ]
    return Table([name, *columns], lines, frozenset(best))


def tabulate_grid(
    points: pd.DataFrame, keys: Sequence[str], measures: Sequence[str]
) -> Iterator[Table]:
    """Table per measure with the first setting down and the second across."""
    if points.empty:
        return
    down, across = keys
    for measure in measures:
        of_measure = points[points["measure"] == measure]
        found: dict[str, dict[str, float]] = {}
        for first, second, mean in of_measure[[down, across, "mean"]].itertuples(index=False):
            found.setdefault(f"{down}={first}", {})[f"{across}={second}"] = mean
        columns = list(dict.fromkeys(name for values in found.values() for name in values))
        yield tabulate_best(found, columns, measure, measure in LOWER_IS_BETTER)


def average_histories(histories: Mapping[str, Sequence[pd.DataFrame]], name: str) -> list[Series]:
    """Mean of a column over runs by epoch, with a band where there are several runs."""
    series = []
    for row, tables in histories.items():
        if not all(name in table for table in tables):
            continue
        groups = pd.concat(tables).dropna(subset=[name]).groupby("epoch")[name]
        mean, spread = groups.mean(), groups.std().fillna(0.0)
        band = spread.tolist() if len(tables) > 1 else ()
        series += [Series(row, mean.index.tolist(), mean.tolist(), band)] if len(mean) else []
    return series


def cut(lines: Sequence[T]) -> list[Sequence[T]]:
    """Splits lines into figures, each with as many as there are styles."""
    return [lines[start : start + NUM_STYLES] for start in range(0, len(lines), NUM_STYLES)]


def format_value(value: Value, digits: int = 3) -> str:
    """Formats a mean with its deviation and stars."""
    spread = "" if value.std is None else f" ± {fraction(value.std, digits)}"
    return f"{fraction(value.mean, digits)}{spread}{value.stars}"


def _format_expected(value: Value | None) -> str:
    if value is None or value.difference is None:
        return "-"
    return f"{fraction(value.expected[0])} ({value.difference:+.4f})"
