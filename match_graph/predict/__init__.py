"""Predictions of a trained run, their explanations, and comparisons of runs on a document."""

from match_graph.predict.case_study import CaseStudy
from match_graph.predict.classifier import Classifier, load
from match_graph.predict.estimator import MatchClassifier
from match_graph.predict.explain import Explainer
from match_graph.predict.many import evaluate_files, predict_files
from match_graph.predict.streams import predict_lines
from match_graph.predict.variants import compare_variants, study_document

__all__ = [
    "CaseStudy",
    "Classifier",
    "Explainer",
    "MatchClassifier",
    "compare_variants",
    "evaluate_files",
    "load",
    "predict_files",
    "predict_lines",
    "study_document",
]
