"""Measures of ranked labels, of scores against the hierarchy, and of probabilities."""

from match_graph.metrics.calibration import CalibrationMeter
from match_graph.metrics.hierarchical import ViolationMeter
from match_graph.metrics.ranking import (
    RankingMeter,
    find_hits,
    ndcg_at_k,
    precision_at_k,
    rank_labels,
)
from match_graph.metrics.threshold import F1Meter, Thresholds, ThresholdSearch

__all__ = [
    "CalibrationMeter",
    "F1Meter",
    "RankingMeter",
    "ThresholdSearch",
    "Thresholds",
    "ViolationMeter",
    "find_hits",
    "ndcg_at_k",
    "precision_at_k",
    "rank_labels",
]
