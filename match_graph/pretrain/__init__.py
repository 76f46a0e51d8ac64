"""`HeteroData` -> unit vectors: pair sampling, objective, Riemannian gradient descent."""

from match_graph.pretrain.checkpoint import PretrainCheckpoint
from match_graph.pretrain.evaluation import (
    HeldOut,
    evaluate_vectors,
    find_neighbours,
    hold_out,
    rank_pairs,
)
from match_graph.pretrain.objective import margin_gradients, margin_tangents, margin_violations
from match_graph.pretrain.pairs import Chunk, PairFeed, Relation, find_relations
from match_graph.pretrain.sharded import ShardedTrainer
from match_graph.pretrain.sphere import (
    random_unit_rows,
    retract_rows_,
    riemannian_gradient,
    riemannian_step_,
)
from match_graph.pretrain.trainer import SphericalTrainer
from match_graph.pretrain.vectors import (
    escape_name,
    read_word_vectors,
    spread_label_vectors,
    write_word2vec,
)
from match_graph.typing import CONTEXT

__all__ = [
    "CONTEXT",
    "Chunk",
    "HeldOut",
    "PairFeed",
    "PretrainCheckpoint",
    "Relation",
    "ShardedTrainer",
    "SphericalTrainer",
    "escape_name",
    "evaluate_vectors",
    "find_neighbours",
    "find_relations",
    "hold_out",
    "margin_gradients",
    "margin_tangents",
    "margin_violations",
    "random_unit_rows",
    "rank_pairs",
    "read_word_vectors",
    "retract_rows_",
    "riemannian_gradient",
    "riemannian_step_",
    "spread_label_vectors",
    "write_word2vec",
]
