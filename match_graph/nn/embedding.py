"""Token ids -> vectors: the embedding layer that every encoder shares."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from match_graph.errors import GraphError
from match_graph.graph import TokenSpace
from match_graph.graph.csr import check_not_nan
from match_graph.graph.tokens import PAD_ID
from match_graph.nn.layers import ByteDropout
from match_graph.nn.neighbors import mean_rows


class TokenEmbedding(nn.Module):
    """Vectors of a token space, multiplied by the root of their size unless asked otherwise.

    Rows start uniform on the unit sphere, or from pre-trained unit vectors by `load_vectors`;
    the factor (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762) brings either to unit
    variance per channel. MATCH does not name it; its settings leave it out. [UNK] rows are trained
    by token dropout: in training a share of the tokens is shown as the [UNK] of its type.

    Args:
        space: The token space.
        channels: Width of the embeddings, the paper's delta.
        dropout: Dropout rate on the channels of embedded tokens.
        token_dropout: Share of tokens shown as [UNK] in training.
        scaled: Whether vectors are multiplied by the root of ``channels``.
    """

    def __init__(
        self,
        space: TokenSpace,
        channels: int = 100,
        dropout: float = 0.0,
        token_dropout: float = 0.0,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        self.scale = channels**0.5 if scaled else 1.0
        self.space, self.channels, self.token_dropout = space, channels, token_dropout
        self.weight = nn.Parameter(torch.empty(space.num_tokens, channels))
        self.dropout = ByteDropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws every row anew; [PAD] is zero."""
        with torch.no_grad():
            self.weight.normal_()
            self.weight.copy_(nn.functional.normalize(self.weight, dim=1))
            self.weight[PAD_ID] = 0

    def load_vectors(self, vectors: Mapping[str, Tensor]) -> dict[str, int]:
        """Starts the kept nodes of some types from given vectors.

        The [UNK] of a type starts from the mean of the type's vectors, shorter than a unit vector:
        it says little. Types without vectors keep theirs.

        Args:
            vectors: Vectors of nodes by node type, at least the kept ones, [num_nodes, C].

        Returns:
            Node type -> how many rows were set.

        Raises:
            GraphError: Vectors have another width, are fewer than the kept nodes, or hold NaN.
        """
        loaded = {}
        for node_type in (name for name in self.space.types if name in vectors):
            span = self.space.span(node_type)
            kept, given = span.stop - span.start, vectors[node_type]
            if given.size(1) != self.channels or given.size(0) < kept:
                raise GraphError(
                    f"Vectors of '{node_type}' must be [{kept} or more, {self.channels}], found "
                    f"{list(given.shape)}; train them with the same settings as the model."
                )
            check_not_nan(given, f"Vectors of '{node_type}'")
            if kept:
                with torch.no_grad():
                    self.weight[span] = given[:kept].to(self.weight)
                    self.weight[self.space.unk_id(node_type)] = self.weight[span].mean(dim=0)
            loaded[node_type] = kept
        return loaded

    def forward(self, token_id: Tensor, field: Tensor) -> Tensor:
        """Embedded tokens, [N, C].

        Args:
            token_id: Token ids, [N], int64.
            field: Index of each token's type, [N], int64.
        """
        embedded = nn.functional.embedding(self._hide(token_id, field), self.weight)
        return self.dropout(embedded * self.scale)

    def mean(self, token_id: Tensor, field: Tensor, ptr: Tensor) -> Tensor:
        """Means of packed lists of tokens, zero for empty ones, [B, C]; channels dropped after.

        Args:
            token_id: Token ids, [N], int64.
            field: Index of each token's type, [N], int64.
            ptr: Offsets of the lists, [B + 1], int64.
        """
        means = mean_rows(self.weight, self._hide(token_id, field), ptr)
        return self.dropout(means * self.scale)

    def _hide(self, token_id: Tensor, field: Tensor) -> Tensor:
        """In training, shows a share of the tokens as the [UNK] of their type."""
        if not (self.training and self.token_dropout):
            return token_id
        hidden = torch.rand(token_id.shape, device=token_id.device) < self.token_dropout
        return torch.where(hidden, 1 + field, token_id)  # [UNK] ids follow [PAD]
