"""Label-tree models: each level scores the children of the best nodes above."""

import torch
from torch import Tensor, nn

from match_graph.config import ModelConfig
from match_graph.graph import EgoBatch, Hierarchy, NodeFeatures, TokenSpace
from match_graph.graph.csr import make_ptr, row_index, select_rows
from match_graph.nn.heads import LabelAttentionHead
from match_graph.nn.model import MatchModel, find_head, head_settings

#: Log-odds of nodes outside the beam, a probability of 1e-13; none inside has less.
OUTSIDE = -30.0


class TreeModel(MatchModel):
    r"""One level of a probabilistic label tree, with the trained levels above it.

    .. math:: P(n \mid b) = P(parent(n) \mid b) \; \sigma(z_{bn})

    The children of the ``beam`` best nodes above are scored, in training those of the gold nodes
    too; all others count as impossible. In training the scores are z, which learn P(n | parent);
    otherwise they are the log-odds of P(n). The levels above are already trained and frozen.

    Source: section 3.3 of AttentionXML (You et al., NeurIPS 2019),
    https://arxiv.org/abs/1811.01727. Scores are given as [B, nodes], as every model gives them,
    while attention, which costs hundreds of times as much, is computed for candidates alone.

    Args:
        space: The token space.
        sizes: Number of nodes of each level from the top to this one, two at least.
        config: Settings of the model; the head is `LabelAttentionHead` or a subclass.
        hierarchy: Label hierarchy, for the head; None where the last level is not of the labels.
        features: Features of documents and other nodes.
        sharded: Whether processes share the tables of tokens, where there are several.

    Raises:
        ConfigError: As for `MatchModel`.
    """

    parent: Tensor
    child_ptr: Tensor
    child: Tensor

    def __init__(
        self,
        space: TokenSpace,
        sizes: tuple[int, ...],
        config: ModelConfig,
        hierarchy: Hierarchy | None = None,
        features: NodeFeatures | None = None,
        sharded: bool = False,
    ) -> None:
        super().__init__(space, sizes[-1], config, hierarchy, features, sharded)
        self.above = make_levels(space, sizes[:-1], config, None, features, sharded)
        self.above.requires_grad_(False)
        self.register_buffer("parent", torch.zeros(sizes[-1], dtype=torch.int64))
        self.register_buffer("child_ptr", torch.zeros(sizes[-2] + 1, dtype=torch.int64))
        self.register_buffer("child", torch.zeros(sizes[-1], dtype=torch.int64))

    def reset_parameters(self) -> None:
        """Reinitializes every parameter, those of the levels above too."""
        super().reset_parameters()
        self.above.reset_parameters()

    def set_parents(self, parent: Tensor) -> None:
        """Sets the parent of each node, [nodes], int64."""
        self.parent.copy_(parent)
        self.child.copy_(torch.argsort(parent, stable=True))
        num_above = self.child_ptr.numel() - 1
        self.child_ptr.copy_(make_ptr(torch.bincount(parent, minlength=num_above)))

    def start_from_above(self) -> None:
        """Initializes embedding, encoder and the head's shared layers from the level above."""
        self.embedding.load_state_dict(self.above.embedding.state_dict())
        self.encoder.load_state_dict(self.above.encoder.state_dict())
        self.head.start_from(self.above.head)

    def train(self, mode: bool = True) -> "TreeModel":
        """Sets the mode of this level; those above only predict."""
        super().train(mode)
        self.above.eval()
        return self

    def forward(self, batch: EgoBatch) -> Tensor:
        """Label scores before the sigmoid, [B, L]."""
        with torch.no_grad():
            above = self.above(batch).float()
        beam = self._choose_nodes(above, batch)
        candidates, valid, node = self._list_children(beam)
        assert isinstance(self.head, LabelAttentionHead)
        scores: Tensor = self.head(self.encode(batch), candidates)
        scores = scores[valid]
        row = valid.nonzero()[:, 0]
        if not self.training:
            scores = join_log_odds(above[row, node], scores.float()).clamp(min=OUTSIDE)
        shape = self.parent.numel(), above.size(0)
        outside = torch.full(shape, OUTSIDE, dtype=scores.dtype, device=scores.device)
        return outside.index_put((candidates[valid], row), scores).t()

    def _choose_nodes(self, above: Tensor, batch: EgoBatch) -> Tensor:
        """The nodes above whose children are scored, [B, nodes above], bool."""
        assert isinstance(self.head.config, LabelAttentionHead.Config)
        number = min(self.head.config.beam, above.size(1))
        chosen = torch.zeros_like(above, dtype=torch.bool)
        chosen.scatter_(1, above.topk(number, dim=1).indices, True)
        if self.training:
            label_ptr, label_index = batch.gold
            chosen[row_index(label_ptr), self.parent[label_index]] = True
        return chosen

    def _list_children(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Children of the chosen nodes.

        Returns:
            Children per document, [B, M], padded with node 0; mask of those that are not padding,
            [B, M], bool; and their parents, packed.
        """
        row, node = chosen.nonzero(as_tuple=True)
        ptr, children = select_rows(self.child_ptr, self.child, node)
        lengths = ptr.diff()
        totals = torch.zeros(len(chosen), dtype=torch.int64, device=row.device)
        totals.index_add_(0, row, lengths)
        most = int(totals.max()) if totals.numel() else 0
        valid = torch.arange(most, device=row.device) < totals.unsqueeze(1)
        candidates = torch.zeros(valid.shape, dtype=torch.int64, device=row.device)
        candidates[valid] = children  # both ordered by document
        return candidates, valid, torch.repeat_interleave(node, lengths)


def join_log_odds(above: Tensor, below: Tensor) -> Tensor:
    """The log-odds of the product of two probabilities, given by log-odds, elementwise."""
    joint = nn.functional.logsigmoid(above) + nn.functional.logsigmoid(below)
    # log(1 - p q) by the terms (1 - p) + p (1 - q), which are exact where p q is near 1
    other = torch.logaddexp(
        nn.functional.logsigmoid(-above),
        nn.functional.logsigmoid(above) + nn.functional.logsigmoid(-below),
    )
    return joint - other


def make_levels(
    space: TokenSpace,
    sizes: tuple[int, ...],
    config: ModelConfig,
    hierarchy: Hierarchy | None = None,
    features: NodeFeatures | None = None,
    sharded: bool = False,
) -> MatchModel:
    """A model of the last level with the levels above it; a flat model for a single level."""
    if len(sizes) == 1:
        return MatchModel(space, sizes[0], config, hierarchy, features, sharded)
    return TreeModel(space, sizes, config, hierarchy, features, sharded)


def level_sizes(num_labels: int, config: ModelConfig) -> tuple[int, ...]:
    """Nodes on each level of the configuration's label tree; (L,) where it has none.

    Raises:
        ConfigError: The head or one of its settings is unknown.
    """
    head_cls = find_head(config)
    return head_cls.level_sizes(num_labels, head_settings(head_cls, config))
