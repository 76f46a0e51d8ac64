"""Measures of ranked labels and of scores against the hierarchy."""

from match_graph.metrics.hierarchical import ViolationMeter
from match_graph.metrics.ranking import (
    RankingMeter,
    find_hits,
    ndcg_at_k,
    precision_at_k,
    rank_labels,
)

__all__ = [
    "RankingMeter",
    "ViolationMeter",
    "find_hits",
    "ndcg_at_k",
    "precision_at_k",
    "rank_labels",
]
