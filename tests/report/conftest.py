"""Fixtures that tests of reports share with those of benchmarks and exports."""

from benchmark.conftest import (
    benchmark_folder,
    benchmark_results,
    make_experiment,
    toy_folder,
)
from export.conftest import toy_dataset

__all__ = ["benchmark_folder", "benchmark_results", "make_experiment", "toy_dataset", "toy_folder"]
