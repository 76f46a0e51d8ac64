"""Tables, figures and pages of runs, benchmarks and built graphs."""

from match_graph.report.benchmark_tables import write_tables
from match_graph.report.graph_statistics import write_graph_report
from match_graph.report.html import write_report
from match_graph.report.plots import draw_bars, draw_grid, draw_training_curves
from match_graph.report.summary import RowSummary, Value, summarize
from match_graph.report.time_to_quality import (
    draw_time_to_quality,
    measure_time_to_quality,
    write_time_to_quality,
)

__all__ = [
    "RowSummary",
    "Value",
    "draw_bars",
    "draw_grid",
    "draw_time_to_quality",
    "draw_training_curves",
    "measure_time_to_quality",
    "summarize",
    "write_graph_report",
    "write_report",
    "write_tables",
    "write_time_to_quality",
]
