"""Speed of each stage against named baselines, in the same process and on the same data."""

from match_graph.speed.measure import Bench, Speed
from match_graph.speed.stages import (
    OWN_CORPORA,
    SPEED_SIZES,
    SPEED_STAGES,
    check_stage,
    measure_speed,
)

__all__ = [
    "OWN_CORPORA",
    "SPEED_SIZES",
    "SPEED_STAGES",
    "Bench",
    "Speed",
    "check_stage",
    "measure_speed",
]
