"""`HeteroData` -> unit vectors: pair sampling, objective, Riemannian gradient descent."""

from match_graph.pretrain.feed import Chunk, PairFeed
from match_graph.pretrain.objective import margin_gradients, margin_tangents, margin_violations
from match_graph.pretrain.pairs import CONTEXT, Relation, find_relations
from match_graph.pretrain.sphere import (
    random_unit_rows,
    retract_rows_,
    riemannian_gradient,
    riemannian_step_,
)
from match_graph.pretrain.trainer import SphericalTrainer

__all__ = [
    "CONTEXT",
    "Chunk",
    "PairFeed",
    "Relation",
    "SphericalTrainer",
    "find_relations",
    "margin_gradients",
    "margin_tangents",
    "margin_violations",
    "random_unit_rows",
    "retract_rows_",
    "riemannian_gradient",
    "riemannian_step_",
]
