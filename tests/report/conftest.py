"""What tests of reports share with those of benchmarks: a benchmark that has been run."""

from benchmark.conftest import (
    benchmark_folder,
    benchmark_results,
    make_experiment,
    toy_folder,
)

__all__ = ["benchmark_folder", "benchmark_results", "make_experiment", "toy_folder"]
