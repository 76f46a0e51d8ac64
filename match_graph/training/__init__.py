"""One model trained and evaluated: loop, checkpoints, optimizers, processes."""

from match_graph.training.evaluate import evaluate_model, label_prior
from match_graph.training.loop import train_model

__all__ = ["evaluate_model", "label_prior", "train_model"]
