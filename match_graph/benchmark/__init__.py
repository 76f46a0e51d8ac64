"""Measuring: how fast the stages are, against a named baseline in the same process."""

from match_graph.benchmark.speed import SPEED_SIZES, SPEED_STAGES, Bench, Speed, measure_speed

__all__ = ["SPEED_SIZES", "SPEED_STAGES", "Bench", "Speed", "measure_speed"]
