"""The encoder of MATCH: a Transformer over [CLS] tokens, metadata and words."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from match_graph.config import StrictModel
from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch
from match_graph.graph.csr import make_ptr, ragged_arange
from match_graph.nn.attention import RaggedAttention, RaggedLayout
from match_graph.nn.dropout import ByteDropout
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import Encoder, EncoderOutput
from match_graph.typing import WORD


class MatchEncoder(Encoder):
    """[CLS] tokens, metadata and words attend to each other; the final [CLS] states are joined.

    Source: section 3.2 and equations 16 to 20 of MATCH, https://arxiv.org/abs/2102.07349.

    The paper is silent on the following, and this is what stands here: the position code has 28
    channels, so that the width is 128 with delta = 100; metadata are a set, so their code is zero;
    a learned vector of its type is added to every token, so that a venue can be told from an
    author and both from a word; the feed-forward layer is 4 times as wide, with ReLU; [CLS] tokens
    are learned at full width; dropout acts on the residual branches and not on attention weights,
    which costs most of the time on CPU. Dropout is 0.2 by default against the paper's 0.1, which
    overfits on corpora of a few thousand documents.

    Args:
        embedding: Embeds tokens.
        config: Settings.
    """

    class Config(StrictModel):
        """Settings; the defaults are the paper's where it gives one, but for dropout."""

        num_cls: int = Field(8, ge=1, description="[CLS] tokens; the paper's C")
        num_layers: int = Field(3, ge=1, description="the paper's L")
        num_heads: int = Field(2, ge=1, description="the paper's k")
        position_channels: int = Field(28, ge=2)
        feed_forward: int = Field(4, ge=1, description="times the width")
        dropout: float = Field(0.2, ge=0, lt=1)

    needs: ClassVar[frozenset[str]] = frozenset({"tokens"})
    gives: ClassVar[Literal["document", "tokens"]] = "document"

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.num_cls = config.num_cls
        self.channels = embedding.channels + config.position_channels
        check_heads(self.channels, config.num_heads)
        self.out_channels = self.channels * config.num_cls
        self.word_field = embedding.space.field_index(WORD)
        self.cls = nn.Parameter(torch.empty(config.num_cls, self.channels))
        self.field = nn.Parameter(torch.empty(len(embedding.space.types), self.channels))
        self.dropout = ByteDropout(config.dropout)
        self.position_channels = config.position_channels
        self.layers = nn.ModuleList(
            TransformerLayer(self.channels, config.num_heads, config.feed_forward, config.dropout)
            for _ in range(config.num_layers)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters anew."""
        nn.init.normal_(self.cls)
        nn.init.normal_(self.field, std=0.1)
        for layer in self._stack():
            layer.reset_parameters()

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, num_cls * (delta + position_channels)]."""
        tokens, ptr = self.join(batch)  # [N + B num_cls, C]
        layout = RaggedLayout.from_ptr(ptr)
        *lower, last = self._stack()
        for layer in lower:
            tokens = layer(tokens, layout)
        # only the [CLS] states are read, so only they pass the last layer
        document = last.forward_first(tokens, layout, ptr, self.num_cls)
        return EncoderOutput(document, None, ptr)

    def _stack(self) -> list["TransformerLayer"]:
        return [layer for layer in self.layers if isinstance(layer, TransformerLayer)]

    def join(self, batch: EgoBatch) -> tuple[Tensor, Tensor]:
        """The layer input H: packed [CLS] tokens, metadata, words, and its offsets [B + 1]."""
        embedded = self.embedding(batch.token_id, batch.field)  # [N, delta]
        is_word = (batch.field == self.word_field).unsqueeze(1)
        code = sinusoids(batch.position, self.position_channels)
        content = torch.cat([embedded, (code * is_word).to(embedded.dtype)], dim=1)  # [N, C]
        content = content + nn.functional.embedding(batch.field, self.field)
        lengths = batch.ptr.diff()
        ptr = make_ptr(lengths + self.num_cls)
        place = ragged_arange(ptr[:-1] + self.num_cls, lengths)
        first = ragged_arange(ptr[:-1], torch.full_like(lengths, self.num_cls))
        tokens = content.new_empty(int(ptr[-1]), self.channels)
        tokens = tokens.index_copy(0, place, content)
        cls = self.dropout(self.cls).to(content.dtype).repeat(batch.num_documents, 1)
        return tokens.index_copy(0, first, cls), ptr


class TransformerLayer(nn.Module):
    """Post-norm: attention, then a feed-forward network, each added and normalised.

    Source: equation 19 of MATCH; LayerNorm is that of Ba et al. 2016.

    Args:
        channels: Width of the tokens.
        num_heads: Of the attention.
        feed_forward: Width of the hidden layer, times ``channels``.
        dropout: On both residual branches.
    """

    def __init__(self, channels: int, num_heads: int, feed_forward: int, dropout: float) -> None:
        super().__init__()
        self.attention = RaggedAttention(channels, num_heads)
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.linear1 = nn.Linear(channels, feed_forward * channels)
        self.linear2 = nn.Linear(feed_forward * channels, channels)
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
        attended = self.attention(tokens, layout, number)  # documents in the layout's order
        states = self._transform(tokens.index_select(0, first), attended)
        back = torch.argsort(layout.order)
        return states.view(-1, number * states.size(1)).index_select(0, back)

    def _transform(self, tokens: Tensor, attended: Tensor) -> Tensor:
        tokens = self.norm1(tokens + self.dropout(attended))
        hidden = torch.relu(self.linear1(tokens))
        return self.norm2(tokens + self.dropout(self.linear2(hidden)))


def check_heads(channels: int, num_heads: int) -> None:
    """Checks that heads share the width evenly.

    Raises:
        ConfigError: They do not.
    """
    if channels % num_heads:
        raise ConfigError(
            f"The width of the encoder must be a multiple of num_heads, found {channels} "
            f"(embedding plus position channels) and {num_heads}; change model.encoder_config."
        )


def sinusoids(position: Tensor, channels: int) -> Tensor:
    """Position codes of Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), section 3.5.

    Args:
        position: [N], int64.
        channels: Even channels hold sines, odd ones cosines.

    Returns:
        [N, channels], float32.
    """
    index = torch.arange(channels, device=position.device)
    exponent = (index - index % 2) / channels
    angle = position.unsqueeze(1) / 10000.0**exponent
    return torch.where(index % 2 == 0, angle.sin(), angle.cos())
