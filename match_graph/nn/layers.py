"""Layers over packed documents: dropout, Transformer layers, [CLS] tokens, position codes."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from match_graph.errors import ConfigError
from match_graph.graph.csr import open_gaps
from match_graph.nn.attention import RaggedAttention, RaggedLayout, lay_out, reset_layers


class ByteDropout(nn.Module):
    """Dropout with a rate rounded to 1/256, at most 255/256; kept values keep the mean.

    On CPU `torch.nn.Dropout` draws a Bernoulli variable for each value from one sequential
    generator; eight values here share a draw of 64 bits (measured 7 times faster on 2 million
    values). On other devices it is `torch.nn.Dropout`.

    Args:
        p: Dropout rate.
    """

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.p = p
        self.threshold = min(round(p * 256), 255)

    def forward(self, values: Tensor) -> Tensor:
        """Values of any shape; as they are in evaluation mode."""
        if not self.training or not self.threshold:
            return values
        if values.device.type != "cpu":
            return nn.functional.dropout(values, self.p)
        dropped: Tensor = _Drop.apply(values, self.threshold)
        return dropped

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _Drop(torch.autograd.Function):
    """Multiplies by bytes of 0 and 1 that are converted to the values' own type.

    Never by booleans: torch compares into them, converts them and multiplies by them 5 to 20 times
    slower on CPU (measured on 0.7 million values).
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, threshold: int) -> Tensor:
        words = torch.empty((values.numel() + 7) // 8, dtype=torch.int64)
        words.random_(-(2**63), None)  # all 64 bits
        kept = words.view(torch.uint8)[: values.numel()].ge_(threshold)
        ctx.kept = kept.view(values.shape)
        ctx.scale = 256 / (256 - threshold)
        return ctx.kept.to(values.dtype).mul_(values).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outgoing: Tensor) -> tuple[Tensor, None]:
        return ctx.kept.to(outgoing.dtype).mul_(outgoing).mul_(ctx.scale), None


class TransformerLayer(nn.Module):
    """Post-norm: attention, then a feed-forward network, each added and normalised.

    Source: equation 14 of MATCH; LayerNorm is that of Ba et al. 2016.

    Args:
        channels: Width of the tokens.
        num_heads: Number of attention heads.
        hidden_channels: Width of the feed-forward network's hidden layer.
        dropout: Dropout rate on both residual branches.
    """

    def __init__(self, channels: int, num_heads: int, hidden_channels: int, dropout: float) -> None:
        super().__init__()
        self.attention = RaggedAttention(channels, num_heads)
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.linear1 = nn.Linear(channels, hidden_channels)
        self.linear2 = nn.Linear(hidden_channels, channels)
        self.dropout = ByteDropout(dropout)

    def reset_parameters(self) -> None:
        """Reinitializes the weights."""
        self.attention.reset_parameters()
        reset_layers(self.linear1, self.linear2)
        self.norm1.reset_parameters()
        self.norm2.reset_parameters()

    def forward(self, tokens: Tensor, layout: RaggedLayout) -> Tensor:
        """Packed tokens [N, C] -> [N, C]."""
        return self._transform(tokens, self.attention(tokens, layout))

    def forward_first(
        self, tokens: Tensor, layout: RaggedLayout, ptr: Tensor, number: int
    ) -> Tensor:
        """The first ``number`` tokens of each document only, joined, [B, number * C]."""
        start = ptr[:-1][layout.order]
        first = (start.unsqueeze(1) + torch.arange(number, device=ptr.device)).view(-1)
        queries = tokens.index_select(0, first)  # documents in the layout's order
        states = self._transform(queries, self.attention(tokens, layout, queries))
        back = torch.argsort(layout.order)
        return states.view(-1, number * states.size(1)).index_select(0, back)

    def _transform(self, tokens: Tensor, attended: Tensor) -> Tensor:
        tokens = self.norm1(tokens + self.dropout(attended))
        hidden = torch.relu_(self.linear1(tokens))
        return self.norm2(tokens + self.dropout(self.linear2(hidden)))


class TransformerStack(nn.ModuleList):
    """Layers one after the other.

    Args:
        num_layers: Number of layers.
        channels: Width of the tokens.
        num_heads: Number of attention heads.
        hidden_channels: Width of the feed-forward networks' hidden layers.
        dropout: Dropout rate on all residual branches.
    """

    def __init__(
        self, num_layers: int, channels: int, num_heads: int, hidden_channels: int, dropout: float
    ) -> None:
        super().__init__(
            TransformerLayer(channels, num_heads, hidden_channels, dropout)
            for _ in range(num_layers)
        )

    def reset_parameters(self) -> None:
        """Reinitializes the weights of all layers."""
        for layer in self._typed():
            layer.reset_parameters()

    def forward(self, tokens: Tensor, ptr: Tensor) -> Tensor:
        """Packed tokens [N, C] -> [N, C].

        Args:
            tokens: Packed documents, [N, C].
            ptr: Offsets of the documents, [B + 1], int64.
        """
        rows, layout = lay_out(tokens, ptr)
        for layer in self._typed():
            rows = layer(rows, layout)
        return rows[: len(tokens)]

    def forward_first(self, tokens: Tensor, ptr: Tensor, number: int) -> Tensor:
        """The first ``number`` tokens of each document only, joined, [B, number * C].

        Args:
            tokens: Packed documents of at least so many tokens, [N, C].
            ptr: Offsets of the documents, [B + 1], int64.
            number: Number of first tokens to read; only these pass the last layer.
        """
        rows, layout = lay_out(tokens, ptr)
        *lower, last = self._typed()
        for layer in lower:
            rows = layer(rows, layout)
        return last.forward_first(rows, layout, ptr, number)

    def _typed(self) -> list[TransformerLayer]:
        return [layer for layer in self if isinstance(layer, TransformerLayer)]


def prepend(first: Tensor, tokens: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    """Packed documents with more tokens before those of each.

    Args:
        first: Tokens to put before those of each document, [B, K, C].
        tokens: Packed documents, [N, C].
        ptr: Offsets of the documents, [B + 1], int64.

    Returns:
        Tokens [N + B K, C] and their offsets [B + 1].
    """
    number = first.size(1)
    joined_ptr, place = open_gaps(ptr, number, len(tokens))
    joined = tokens.new_empty(tokens.size(0) + first.size(0) * number, tokens.size(1))
    joined = joined.index_copy(0, place, tokens)
    place = (joined_ptr[:-1, None] + torch.arange(number, device=ptr.device)).flatten()
    return joined.index_copy(0, place, first.to(tokens.dtype).flatten(0, 1)), joined_ptr


def check_heads(channels: int, num_heads: int, what: str) -> None:
    """Checks that the width is a multiple of the number of heads.

    Args:
        channels: Width of the encoder.
        num_heads: Number of attention heads.
        what: Terms that make up the width, for the message.

    Raises:
        ConfigError: It is not.
    """
    if channels % num_heads:
        raise ConfigError(
            f"The width of the encoder must be a multiple of num_heads, found {channels} "
            f"({what}) and {num_heads}; change model.encoder_config."
        )


def sinusoids(position: Tensor, channels: int) -> Tensor:
    """Position codes of Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), section 3.5.

    Args:
        position: Positions, [N], int64.
        channels: Number of channels; even ones hold sines, odd ones cosines.

    Returns:
        [N, channels], float32.
    """
    index = torch.arange(channels, device=position.device)
    exponent = (index - index % 2) / channels
    angle = position.unsqueeze(1) / 10000.0**exponent
    return torch.where(index % 2 == 0, angle.sin(), angle.cos())


def add_positions(tokens: Tensor, position: Tensor, is_word: Tensor) -> Tensor:
    """Tokens [N, C] with the position codes of the words added; metadata are a set.

    Args:
        tokens: Packed tokens, [N, C].
        position: Positions, [N], int64.
        is_word: Mask of words, [N], bool.
    """
    code = sinusoids(position, tokens.size(1)) * is_word.unsqueeze(1)
    return tokens + code.to(tokens.dtype)
