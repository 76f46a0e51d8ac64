"""The loop, evaluation, run folders, and prediction with them."""

from match_graph.training.case_study import CaseStudy
from match_graph.training.classifier import Classifier, load
from match_graph.training.evaluate import evaluate_model, label_prior
from match_graph.training.explain import Explainer
from match_graph.training.loop import train_model
from match_graph.training.predictions import predict_lines
from match_graph.training.run import Run
from match_graph.training.start import open_run, start_run
from match_graph.training.variants import compare_variants, study_document

__all__ = [
    "CaseStudy",
    "Classifier",
    "Explainer",
    "Run",
    "compare_variants",
    "evaluate_model",
    "label_prior",
    "load",
    "open_run",
    "predict_lines",
    "start_run",
    "study_document",
    "train_model",
]
