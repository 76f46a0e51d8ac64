"""Transformer layers over packed documents."""

import torch
from torch import Tensor, nn

from match_graph.errors import ConfigError
from match_graph.graph.csr import make_ptr, ragged_arange
from match_graph.nn.attention import RaggedAttention, RaggedLayout, count_rows
from match_graph.nn.dropout import ByteDropout


class TransformerLayer(nn.Module):
    """Post-norm: attention, then a feed-forward network, each added and normalised.

    Source: equation 19 of MATCH; LayerNorm is that of Ba et al. 2016.

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
        """Draws the weights anew: Xavier uniform, biases zero."""
        self.attention.reset_parameters()
        for linear in (self.linear1, self.linear2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
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
        """Draws the weights of all layers anew."""
        for layer in self._typed():
            layer.reset_parameters()

    def forward(self, tokens: Tensor, ptr: Tensor) -> Tensor:
        """Packed tokens [N, C] -> [N, C].

        Args:
            tokens: Packed documents, [N, C].
            ptr: Offsets of the documents, [B + 1], int64.
        """
        rows, layout = _lay_out(tokens, ptr)
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
        rows, layout = _lay_out(tokens, ptr)
        *lower, last = self._typed()
        for layer in lower:
            rows = layer(rows, layout)
        return last.forward_first(rows, layout, ptr, number)

    def _typed(self) -> list[TransformerLayer]:
        return [layer for layer in self if isinstance(layer, TransformerLayer)]


def _lay_out(tokens: Tensor, ptr: Tensor) -> tuple[Tensor, RaggedLayout]:
    """Packed tokens [N, C] with spare rows after them where those pay, and their layout."""
    num_rows = count_rows(len(tokens), tokens.device)
    layout = RaggedLayout.of_few_shapes(ptr, num_rows)
    return nn.functional.pad(tokens, (0, 0, 0, num_rows - len(tokens))), layout


def prepend(first: Tensor, tokens: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    """Packed documents with more tokens before those of each.

    Args:
        first: Tokens to put before those of each document, [B, K, C].
        tokens: Packed documents, [N, C].
        ptr: Offsets of the documents, [B + 1], int64.

    Returns:
        Tokens [N + B K, C] and their offsets [B + 1].
    """
    number, lengths = first.size(1), ptr.diff()
    joined_ptr = make_ptr(lengths + number)
    joined = tokens.new_empty(tokens.size(0) + first.size(0) * number, tokens.size(1))
    place = ragged_arange(joined_ptr[:-1] + number, lengths)
    joined = joined.index_copy(0, place, tokens)
    place = ragged_arange(joined_ptr[:-1], torch.full_like(lengths, number))
    return joined.index_copy(0, place, first.to(tokens.dtype).flatten(0, 1)), joined_ptr


def check_heads(channels: int, num_heads: int, what: str) -> None:
    """Checks that heads share the width evenly.

    Args:
        channels: Width of the encoder.
        num_heads: Number of attention heads.
        what: Terms that make up the width, for the message.

    Raises:
        ConfigError: They do not.
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
