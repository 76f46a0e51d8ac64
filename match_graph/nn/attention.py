"""Self-attention over packed documents of different lengths, without padding to the longest."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

#: Documents of a batch are cut into so many groups by length, each padded to its own longest.
_NUM_GROUPS = 4


@dataclass(frozen=True)
class RaggedLayout:
    """Where the tokens of packed documents lie in padded blocks of similar length.

    Args:
        blocks: Per group: place of each token in the packed tokens, [B_g, T_g], int64 (padding
            repeats the first token), and which are tokens, [B_g, T_g], bool.
        inverse: Place of each packed token in the concatenated blocks, [N], int64.
        num_tokens: N.
    """

    blocks: list[tuple[Tensor, Tensor]]
    inverse: Tensor

    @classmethod
    def from_ptr(cls, ptr: Tensor, num_groups: int = _NUM_GROUPS) -> "RaggedLayout":
        """The layout of packed documents with offsets [B + 1], each with at least one token."""
        lengths = ptr.diff()
        order = torch.argsort(lengths, stable=True)
        inverse = torch.empty(int(ptr[-1]), dtype=torch.int64, device=ptr.device)
        blocks = []
        base = 0
        for rows in order.tensor_split(min(num_groups, max(1, order.numel()))):
            if not rows.numel():
                continue
            longest = int(lengths[rows].max())
            step = torch.arange(longest, device=ptr.device)
            valid = step < lengths[rows].unsqueeze(1)  # [B_g, T_g]
            place = torch.where(valid, ptr[rows].unsqueeze(1) + step, ptr[rows].unsqueeze(1))
            blocks.append((place, valid))
            slots = torch.arange(base, base + valid.numel(), device=ptr.device).view_as(valid)
            inverse[place[valid]] = slots[valid]
            base += valid.numel()
        return cls(blocks, inverse)


class RaggedAttention(nn.Module):
    """Multi-head attention of tokens to the tokens of their own document.

    Source: equations 17 and 18 of MATCH, https://arxiv.org/abs/2102.07349, after Vaswani et al.
    2017. The paper prints the scale as the root of the whole width; here it is the root of a
    head's width, as in its source.

    Args:
        channels: Width of the tokens; must be a multiple of ``num_heads``.
        num_heads: The paper's k.
        dropout: On the attention weights.
    """

    def __init__(self, channels: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.channels, self.num_heads, self.dropout = channels, num_heads, dropout
        self.project = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def reset_parameters(self) -> None:
        """Draws the weights anew: Xavier uniform, biases zero."""
        for linear in (self.project, self.out):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, tokens: Tensor, layout: RaggedLayout, num_queries: int = 0) -> Tensor:
        """Attended tokens.

        Args:
            tokens: Packed documents, [N, C].
            layout: Of the documents.
            num_queries: If positive, only the first so many tokens of each document attend.

        Returns:
            [N, C]; with ``num_queries`` [B * num_queries, C] in the order of the layout's rows.
        """
        projected = self.project(tokens)  # [N, 3 C]
        width = self.channels // self.num_heads
        attended = []
        for place, valid in layout.blocks:
            num_rows, longest = place.shape
            block = projected[place].view(num_rows, longest, 3, self.num_heads, width)
            query, key, value = block.permute(2, 0, 3, 1, 4)  # [B_g, num_heads, T_g, width] each
            if num_queries:
                query = query[:, :, :num_queries]
            mask = None if bool(valid.all()) else valid[:, None, None, :]
            block = nn.functional.scaled_dot_product_attention(
                query, key, value, mask, self.dropout if self.training else 0.0
            )
            attended.append(block.transpose(1, 2).reshape(-1, self.channels))
        packed = torch.cat(attended)
        return self.out(packed if num_queries else packed[layout.inverse])
