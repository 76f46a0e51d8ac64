"""Draws learning curves of ``experiments/sizes/results.json``: 95 % intervals of gaps to MATCH.

python experiments/sizes/plot_sizes.py
"""

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from match_graph.benchmark import read_results
from match_graph.benchmark.results import DatasetRecord, Results
from match_graph.report.figures import COLOURS, make_panels, save_figure
from match_graph.report.summary import summarize

HERE = Path(__file__).resolve().parent
MEASURE = "NDCG@5"
#: So far below the others that they could not be distinguished beside it; tables have it.
LEFT_OUT = "MATCH (paper)"


def find_corpus(record: DatasetRecord) -> str:
    """Name of the data set of a subset."""
    return record.name.rpartition("_")[0] or record.name


def list_gaps(results: Results, records: list[DatasetRecord]) -> dict[str, list[list[float]]]:
    """Points by row, one per subset: training documents, gap, and both ends of its interval."""
    gaps: dict[str, list[list[float]]] = {}
    for record in records:
        done = [row for row in summarize(results, record.name) if row.runs]
        rows = {row.name: row.measured[MEASURE] for row in done}
        reference = rows.pop(results.experiment.reference, None)
        rows.pop(LEFT_OUT, None)
        for name, value in rows.items():
            if reference and value.interval:
                point = [record.documents["train"], value.mean - reference.mean, *value.interval]
                gaps.setdefault(name, []).append(point)
    return gaps


def draw(panel: Any, gaps: dict[str, list[list[float]]]) -> None:
    """Draws the gaps on a corpus; rows are shifted, so that none hides another."""
    panel.axhline(0, color="0.5", linewidth=1)
    for place, (name, points) in enumerate(gaps.items()):
        numbers, gap, low, high = np.array(points).T
        style = {"color": COLOURS[(place + 1) % len(COLOURS)], "fmt": "o", "capsize": 2}
        x = numbers * 1.06 ** (place - len(gaps) / 2)
        panel.errorbar(x, gap, [gap - low, high - gap], label=name, **style)
    panel.set_xscale("log")
    numbers = sorted({int(number) for points in gaps.values() for number, *_ in points})
    panel.set_xticks(numbers, [f"{number:,}" for number in numbers])
    panel.set_xticks([], minor=True)
    panel.set_xlabel("training documents")
    panel.set_ylabel(f"{MEASURE} minus that of MATCH")


def main(folder: Path = HERE) -> None:
    """Writes ``sizes.png``: a panel for each corpus."""
    results = read_results(folder / "results.json")
    records = sorted(results.datasets, key=lambda one: (find_corpus(one), one.documents["train"]))
    corpora = [(name, list(parts)) for name, parts in groupby(records, find_corpus)]
    figure, panels = make_panels(len(corpora))
    for panel, (name, parts) in zip(panels, corpora, strict=True):
        draw(panel, list_gaps(results, parts))
        panel.set_title(name)
    panels[0].legend()
    save_figure(figure, folder / "sizes.png")


if __name__ == "__main__":
    main()
