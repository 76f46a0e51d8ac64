"""Experiments: rows x data sets x seeds, planned, run and kept in results.json."""

from match_graph.benchmark.experiment import MEASURES, Experiment, PlannedRow, Row
from match_graph.benchmark.experiment_file import load_experiment
from match_graph.benchmark.results import (
    Cell,
    DatasetRecord,
    Machine,
    Results,
    find_measure,
    read_results,
    write_results,
)
from match_graph.benchmark.row_search import RowSearch
from match_graph.benchmark.runner import run_benchmark
from match_graph.benchmark.search import run_search

__all__ = [
    "MEASURES",
    "Cell",
    "DatasetRecord",
    "Experiment",
    "Machine",
    "PlannedRow",
    "Results",
    "Row",
    "RowSearch",
    "find_measure",
    "load_experiment",
    "read_results",
    "run_benchmark",
    "run_search",
    "write_results",
]
