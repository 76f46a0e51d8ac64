"""Measuring: how good models are, over data sets, rows and seeds; how fast the stages are."""

from match_graph.benchmark.experiment import (
    MEASURES,
    Experiment,
    PlannedRow,
    Row,
    load_experiment,
)
from match_graph.benchmark.figures import (
    draw_bars,
    draw_grid,
    draw_time_to_quality,
    draw_training_curves,
)
from match_graph.benchmark.report import write_report_page
from match_graph.benchmark.results import (
    Cell,
    DatasetRecord,
    Machine,
    Results,
    find_measure,
    read_results,
    write_results,
)
from match_graph.benchmark.runner import run_benchmark
from match_graph.benchmark.speed import SPEED_SIZES, SPEED_STAGES, Bench, Speed, measure_speed
from match_graph.benchmark.summary import RowSummary, Value, summarize
from match_graph.benchmark.tables import write_tables
from match_graph.benchmark.time_to_quality import measure_time_to_quality, write_time_to_quality

__all__ = [
    "MEASURES",
    "SPEED_SIZES",
    "SPEED_STAGES",
    "Bench",
    "Cell",
    "DatasetRecord",
    "Experiment",
    "Machine",
    "PlannedRow",
    "Results",
    "Row",
    "RowSummary",
    "Speed",
    "Value",
    "draw_bars",
    "draw_grid",
    "draw_time_to_quality",
    "draw_training_curves",
    "find_measure",
    "load_experiment",
    "measure_speed",
    "measure_time_to_quality",
    "read_results",
    "run_benchmark",
    "summarize",
    "write_report_page",
    "write_results",
    "write_tables",
    "write_time_to_quality",
]
