"""Measuring: how fast the stages are, against a named baseline in the same process."""

from match_graph.benchmark.figures import draw_time_to_quality, draw_training_curves
from match_graph.benchmark.speed import SPEED_SIZES, SPEED_STAGES, Bench, Speed, measure_speed
from match_graph.benchmark.time_to_quality import measure_time_to_quality, write_time_to_quality

__all__ = [
    "SPEED_SIZES",
    "SPEED_STAGES",
    "Bench",
    "Speed",
    "draw_time_to_quality",
    "draw_training_curves",
    "measure_speed",
    "measure_time_to_quality",
    "write_time_to_quality",
]
