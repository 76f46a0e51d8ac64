"""Ranking, set, hierarchy and calibration measures, and significance tests."""

from match_graph.metrics.blend import Blend, BlendSearch
from match_graph.metrics.calibration import CalibrationMeter
from match_graph.metrics.evaluator import Evaluator
from match_graph.metrics.hierarchical import HierarchicalMeter, ViolationMeter
from match_graph.metrics.platt import PlattScaling, PlattSearch
from match_graph.metrics.propensity import (
    PROPENSITY_PARAMETERS,
    PropensityMeter,
    inverse_propensity,
)
from match_graph.metrics.ranked_sum import RankedSumMeter, ranked_sum_at_k
from match_graph.metrics.ranking import (
    RankingMeter,
    find_hits,
    ndcg_at_k,
    precision_at_k,
    rank_labels,
    recall_at_k,
)
from match_graph.metrics.sets import F1Meter, average_sets, find_common
from match_graph.metrics.significance import (
    Comparison,
    DocumentBootstrap,
    adjust_holm,
    compare_runs,
    correct_comparisons,
    find_stars,
)
from match_graph.metrics.slices import (
    FREQUENCY_CUTS,
    LabelSlices,
    SliceMeter,
    slice_by_depth,
    slice_by_frequency,
)
from match_graph.metrics.threshold import Thresholds, ThresholdSearch, pack_predictions

__all__ = [
    "FREQUENCY_CUTS",
    "PROPENSITY_PARAMETERS",
    "Blend",
    "BlendSearch",
    "CalibrationMeter",
    "Comparison",
    "DocumentBootstrap",
    "Evaluator",
    "F1Meter",
    "HierarchicalMeter",
    "LabelSlices",
    "PlattScaling",
    "PlattSearch",
    "PropensityMeter",
    "RankedSumMeter",
    "RankingMeter",
    "SliceMeter",
    "ThresholdSearch",
    "Thresholds",
    "ViolationMeter",
    "adjust_holm",
    "average_sets",
    "compare_runs",
    "correct_comparisons",
    "find_common",
    "find_hits",
    "find_stars",
    "inverse_propensity",
    "ndcg_at_k",
    "pack_predictions",
    "precision_at_k",
    "rank_labels",
    "ranked_sum_at_k",
    "recall_at_k",
    "slice_by_depth",
    "slice_by_frequency",
]
