"""Predictions of a trained run, explanations, comparisons of runs, shared folders, the hub."""

from match_graph.predict.case_study import CaseStudy
from match_graph.predict.classifier import Classifier, load
from match_graph.predict.estimator import MatchClassifier
from match_graph.predict.explain import Explainer
from match_graph.predict.hub import HubMixin, push_run
from match_graph.predict.many import evaluate_files, predict_files
from match_graph.predict.share import share_run
from match_graph.predict.streams import predict_lines
from match_graph.predict.variants import compare_variants, open_explainers

__all__ = [
    "CaseStudy",
    "Classifier",
    "Explainer",
    "HubMixin",
    "MatchClassifier",
    "compare_variants",
    "evaluate_files",
    "load",
    "open_explainers",
    "predict_files",
    "predict_lines",
    "push_run",
    "share_run",
]
