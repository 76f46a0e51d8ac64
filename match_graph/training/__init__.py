"""The loop, evaluation, and run folders."""

from match_graph.training.evaluate import evaluate_model, label_prior
from match_graph.training.loop import train_model
from match_graph.training.progress import Reporter
from match_graph.training.run import Run, open_run, start_run

__all__ = [
    "Reporter",
    "Run",
    "evaluate_model",
    "label_prior",
    "open_run",
    "start_run",
    "train_model",
]
