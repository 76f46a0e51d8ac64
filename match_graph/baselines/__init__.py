"""Non-neural baselines."""

from match_graph.baselines.base import Baseline
from match_graph.baselines.omikuji_trees import OmikujiTrees
from match_graph.baselines.prior import LabelPrior
from match_graph.baselines.tfidf_linear import TfidfLinear

#: Registered baselines; ``model.encoder`` takes their names too, none of them an encoder's.
BASELINES: dict[str, type[Baseline]] = {
    "omikuji": OmikujiTrees,
    "prior": LabelPrior,
    "tfidf_linear": TfidfLinear,
}

__all__ = ["BASELINES", "Baseline", "LabelPrior", "OmikujiTrees", "TfidfLinear"]
