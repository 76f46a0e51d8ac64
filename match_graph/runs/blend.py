"""Blend of a run's network with a linear classifier, in ``blend/``."""

from pathlib import Path

import torch
from torch import Tensor, nn

from match_graph.baselines import TfidfLinear
from match_graph.config import Config
from match_graph.graph import EgoBatch, NodeFeatures, TokenSpace
from match_graph.io.files import write_json
from match_graph.io.run_folder import BLEND, SHARES
from match_graph.metrics import Blend, BlendSearch
from match_graph.runs.calibration import Validation
from match_graph.training.models import Model, find_model


def find_linear_model(config: Config) -> Model:
    """The linear classifier beside a network: over words, and metadata where the network reads any.

    Args:
        config: Configuration of the network's run.
    """
    settings = {
        "metadata": find_model(config).reads_metadata,
        "metadata_weight": config.model.blend_metadata_weight,
        "tree": config.model.blend == "tree",
    }
    return find_model(config.change("model", encoder="tfidf_linear", encoder_config=settings))


def load_linear(
    folder: Path,
    config: Config,
    space: TokenSpace,
    num_labels: int,
    features: NodeFeatures | None = None,
) -> TfidfLinear:
    """The fitted linear classifier beside a network; arguments as for `Model.load`.

    Raises:
        CheckpointError: There is none, or it cannot be read.
    """
    linear = find_linear_model(config).load(folder / BLEND, space, num_labels, None, features)
    assert isinstance(linear, TfidfLinear)
    return linear


class BlendedModel(nn.Module):
    """Network whose logits are blended with those of a linear classifier over the same tokens.

    Args:
        network: Trained network, maps an `EgoBatch` to logits [B, L].
        linear: Fitted linear classifier, likewise, on the CPU.
        blend: Shares of the two.
        fold: Fold of each document by its number in the graph, [documents], int64; None blends by
            all of the documents that were fitted. See `Blend`.
    """

    def __init__(
        self,
        network: nn.Module,
        linear: nn.Module,
        blend: Blend,
        fold: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.network, self.linear, self.blend, self.fold = network, linear, blend, fold

    def forward(self, batch: EgoBatch) -> Tensor:
        """Label scores before the sigmoid, [B, L], float32."""
        network = self.network(batch)
        linear = self.linear(batch).to(network.device)
        fold = None if self.fold is None else self.fold[batch.document.cpu()]
        return self.blend(network, linear, fold)


@torch.no_grad()
def fit_blend(
    network: nn.Module, linear: nn.Module, search: BlendSearch, valid: Validation
) -> Blend:
    """The shares of network and linear classifier with the best ranking of validation documents.

    Args:
        network: Trained network, maps an `EgoBatch` to logits [B, L].
        linear: Fitted linear classifier, likewise, on the CPU.
        search: Search for the shares.
        valid: Validation documents.
    """
    network.eval()
    for batch in valid.batches:
        scores = network(batch.to(valid.device)).float().cpu()
        if batch.share:  # another process counts it; a model in parts needs all to step
            gold = batch.gold[0].cpu(), batch.gold[1].cpu()
            search.update(scores, linear(batch), gold, valid.fold[batch.document.cpu()])
    if valid.total is not None:
        search.reduce(valid.total)
    return search.compute()


def write_blend(folder: Path, blend: Blend) -> None:
    """Writes the shares of a blend."""
    write_json(folder / SHARES, {"share": blend.share, "fold_share": blend.fold_share.tolist()})
