"""The protocol of baselines: `fit` on batches with gold labels, then `predict` logits."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar, TypeAlias

from torch import Tensor, nn

from match_graph.config import StrictModel
from match_graph.graph import EgoBatch, TokenSpace

#: Called with how many labels are done.
Advance: TypeAlias = Callable[[int], None]


class Baseline(nn.Module):
    """Token sets and documents' features -> label scores, without gradients.

    It replaces embedding, encoder and head: ``model.encoder`` names it, and it gets the tokens that
    an encoder would get, within the same limits.

    Args:
        space: The token space.
        num_labels: Number of labels L.
        config: Settings of the baseline.
        seed: Random seed.
        width: Number of features of a document F; 0 without.
    """

    class Config(StrictModel):
        """Settings of the baseline."""

    needs: ClassVar[frozenset[str]] = frozenset({"tokens"})
    paper: ClassVar[str] = ""

    def __init__(
        self,
        space: TokenSpace,
        num_labels: int,
        config: StrictModel,
        seed: int = 0,
        width: int = 0,
    ) -> None:
        super().__init__()
        self.space, self.num_labels, self.seed = space, num_labels, seed
        self.config, self.width = config, width

    def fit(self, batches: Iterable[EgoBatch], advance: Advance = lambda _done: None) -> None:
        """Learns from the training documents.

        Args:
            batches: Batches of the training documents, with gold labels.
            advance: Callback for progress, called as labels are done.
        """
        raise NotImplementedError

    @property
    def metadata_weight(self) -> float | None:
        """Weight of metadata features relative to words; None if unweighted or not fitted."""
        return None

    def forward(self, batch: EgoBatch) -> Tensor:
        """`predict`, as a model is called."""
        return self.predict(batch)

    def predict(self, batch: EgoBatch) -> Tensor:
        """Log-odds of every label, [B, L], float32; sigmoid makes probabilities of them."""
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        """Writes what `fit` learned into an empty folder; nothing pickled."""
        raise NotImplementedError

    def load(self, folder: Path) -> None:
        """Reads what `save` wrote.

        Raises:
            CheckpointError: Files are missing, broken, or of other tokens or labels.
        """
        raise NotImplementedError
