"""Draws gaps to MATCH by the size of the corpus, with 95 % intervals.

python experiments/sizes/plot_sizes.py

Subsets are of ``experiments/sizes/results.json``, whole corpora of ``experiments/encoders``.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from match_graph.benchmark import Results, read_results
from match_graph.report.figures import COLOURS, make_panels, save_figure
from match_graph.report.summary import summarize
from match_graph.report.tables import write_csv

HERE = Path(__file__).resolve().parent
MEASURE = "NDCG@5"
#: So far below the others that they could not be distinguished beside it; tables have it.
LEFT_OUT = "MATCH (paper)"

#: Points by row, one per size: training documents, gap, and both ends of its interval.
Gaps = dict[str, list[list[float]]]


def list_gaps(results: Results, names: list[str]) -> Gaps:
    """Gaps of all rows to the reference, on some data sets of some results."""
    gaps: Gaps = {}
    for record in (one for one in results.datasets if one.name in names):
        done = [row for row in summarize(results, record.name) if row.runs]
        rows = {row.name: row.measured[MEASURE] for row in done}
        reference = rows.pop(results.experiment.reference, None)
        for name, value in rows.items():
            if reference and value.interval:
                point = [record.documents["train"], value.mean - reference.mean, *value.interval]
                gaps.setdefault(name, []).append(point)
    return gaps


def draw(panel: Any, gaps: Gaps, whole: list[int]) -> None:
    """Draws the gaps on a corpus, sizes side by side; ``whole`` has that of the whole corpus."""
    panel.axhline(0, color="0.5", linewidth=1)
    sizes = sorted({int(number) for points in gaps.values() for number, *_ in points})
    for place, (name, points) in enumerate(gaps.items()):
        numbers, gap, low, high = np.array(points).T
        x = np.searchsorted(sizes, numbers) + 0.15 * (place - (len(gaps) - 1) / 2)
        style = {"color": COLOURS[(place + 1) % len(COLOURS)], "fmt": "o", "capsize": 2}
        panel.errorbar(x, gap, [gap - low, high - gap], label=name, **style)
    ticks = [f"all {size:,}" if size in whole else f"{size:,}" for size in sizes]
    panel.set_xticks(range(len(sizes)), ticks)
    panel.set_xlim(-0.5, len(sizes) - 0.5)
    panel.set_xlabel("training documents")
    panel.set_ylabel(f"{MEASURE} minus that of MATCH")


def make_table(parts: dict[str, Gaps]) -> pd.DataFrame:
    """The points of all panels, a line each."""
    columns = ["corpus", "row", "documents", "gap", "low", "high"]
    lines = [
        (corpus, row, *point)
        for corpus, gaps in parts.items()
        for row, points in gaps.items()
        for point in points
    ]
    return pd.DataFrame(lines, columns=columns)


def main(target: Path = HERE, folder: Path = HERE, whole: Path = HERE.parent / "encoders") -> None:
    """Writes ``sizes.png``, a panel for each corpus, and its points as ``sizes.csv``."""
    subsets, corpora = read_results(folder / "results.json"), read_results(whole / "results.json")
    names: dict[str, list[str]] = {}
    for record in subsets.datasets:
        names.setdefault(record.name.rpartition("_")[0], []).append(record.name)
    parts: dict[str, Gaps] = {}
    for corpus in sorted(names):
        gaps, more = list_gaps(subsets, names[corpus]), list_gaps(corpora, [corpus])
        parts[corpus] = {row: [*gaps[row], *more.get(row, [])] for row in gaps if row != LEFT_OUT}
    figure, panels = make_panels(len(parts))
    for panel, (corpus, gaps) in zip(panels, parts.items(), strict=True):
        sizes = [one.documents["train"] for one in corpora.datasets if one.name == corpus]
        draw(panel, gaps, sizes)
        panel.set_title(corpus)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    write_csv(target / "sizes.csv", make_table(parts))
    save_figure(figure, target / "sizes.png")


if __name__ == "__main__":
    main()
