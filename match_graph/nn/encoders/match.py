"""The encoder of MATCH: a Transformer over [CLS] tokens, metadata and words."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from match_graph.config import MAX_CHANNELS, StrictModel
from match_graph.graph import EgoBatch
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import Encoder, EncoderOutput, NumLayers, NumTokens, Rate
from match_graph.nn.encoders.presets import read_presets
from match_graph.nn.layers import ByteDropout, TransformerStack, check_heads, prepend, sinusoids
from match_graph.typing import WORD


class MatchEncoder(Encoder):
    """[CLS] tokens, metadata and words attend to each other; the final [CLS] states are joined.

    Source: section 3.2 and equations 12 to 15 of MATCH, https://arxiv.org/abs/2102.07349.

    The paper is silent on the following, and this is what stands here: the position code has 28
    channels, so that the width is 128 with delta = 100; metadata are a set, so their code is zero;
    a learned vector of its type is added to every token, so that a venue can be told from an
    author and both from a word; the feed-forward layer is 4 times as wide, with ReLU; [CLS] tokens
    are learned at full width, and one mask of dropout is drawn for those of a batch; dropout acts
    on the residual branches and not on attention weights, which costs most of the time on CPU.
    Dropout is 0.2 by default against the paper's 0.1, which overfits on corpora of a few thousand
    documents. So do its 3 layers on corpora of 20,000: by default there is one, in which the [CLS]
    tokens read all others (experiments/defaults).

    The preset "paper" is the paper and, where it is silent, the authors' release
    (https://github.com/yuzhimanhua/MATCH): no type vectors among other things. It was made for half
    a million documents; of 1,130 it sees 75 batches and learns no more than which labels are
    frequent. What it does not keep:

    - ``pretrain.samples``: by the size of the corpus; the release draws 5 billion pairs.
    - ``pretrain.chunk_size``: pairs that move vectors at once; in the release each moves them by
      itself.
    - ``data.max_metadata``: 500 beside 500 words; the release cuts both together at 500 tokens. It
      knows the 500,000 most frequent tokens, here all are known.
    - ``train.valid_documents``: 10,000 at most, after every epoch; the release validates on all,
      after every 100 steps.
    - ``train.patience``: all 15 epochs are trained; the release stops after 100 validations without
      a better one, which are 5 epochs of MAG-CS.
    - ``train.clip_norm``: the highest bound of the release, whose bound is 5 times the largest of
      the last five norms.
    - ``position_channels``: not given; the release adds learned codes instead. A code has length
      3.7 beside words and metadata of length 1; the release's start at .6, beside words of less.
      With ``model.scale_embedding=true`` learning starts earlier (experiments/encoders).
    - sign: minus the Riemannian gradient; the paper prints plus, which would raise the loss.
    - step: without the release's factor, 1 minus a cosine, which the paper does not have.
    - vectors: training starts from the pre-trained ones; the release overwrites them at random.
    - LayerNorm: as the paper has it; in the release it does nothing.
    - layers: 3, then equation 16; the release has a fourth and a linear layer with ELU after it.
    - hypernymy: both terms, as the paper has it; in the release that of parameters is commented out
      and the other has no gradient.
    - dropout: not on attention weights and position codes, on which the release has it too.
    - draws: queries, keys and values as one matrix, 30 % smaller than the release's three.
    """

    class Config(StrictModel):
        """Settings; the defaults are the paper's where it gives one, but for layers and dropout."""

        num_cls: NumTokens = Field(8, description="number of [CLS] tokens; the paper's C")
        num_layers: NumLayers = Field(
            1, description="number of layers, the paper's L, which is 3 there"
        )
        num_heads: NumTokens = Field(2, description="number of attention heads, the paper's k")
        position_channels: int = Field(
            28,
            ge=0,
            le=MAX_CHANNELS,
            description="width of the sinusoidal code joined to each word; 0: words are a set",
        )
        feed_forward: NumTokens = Field(
            4, description="width of the hidden layer, as a factor of the encoder's"
        )
        dropout: Rate = Field(
            0.2, description="dropout rate on residual branches; the paper's is 0.1"
        )
        field_vectors: bool = Field(
            True, description="whether every token gets a learned vector of its type"
        )

    paper: ClassVar[str] = "Zhang et al., WWW 2021, https://arxiv.org/abs/2102.07349"
    presets = read_presets("match")

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.num_cls = config.num_cls
        self.channels = embedding.channels + config.position_channels
        check_heads(self.channels, config.num_heads, "embedding plus position channels")
        self.out_channels = self.channels * config.num_cls
        self.word_field = embedding.space.field_index(WORD)
        self.cls = nn.Parameter(torch.empty(config.num_cls, self.channels))
        self.field: nn.Parameter | None = None
        if config.field_vectors:
            self.field = nn.Parameter(torch.empty(embedding.num_fields, self.channels))
        self.dropout = ByteDropout(config.dropout)
        self.position_channels = config.position_channels
        self.layers = TransformerStack(
            config.num_layers,
            self.channels,
            config.num_heads,
            config.feed_forward * self.channels,
            config.dropout,
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the parameters."""
        nn.init.normal_(self.cls, std=self.embedding.scale / self.embedding.channels**0.5)
        if self.field is not None:
            nn.init.normal_(self.field, std=0.1)
        self.layers.reset_parameters()

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, num_cls * (delta + position_channels)]."""
        tokens, ptr = self.join(batch)  # [N + B num_cls, C]
        document = self.layers.forward_first(tokens, ptr, self.num_cls)
        return EncoderOutput(document, None, ptr)

    def join(self, batch: EgoBatch) -> tuple[Tensor, Tensor]:
        """The layer input H: packed [CLS] tokens, metadata, words, and its offsets [B + 1]."""
        embedded = self.embedding(batch)  # [N, delta]
        is_word = (batch.field == self.word_field).unsqueeze(1).to(embedded.dtype)
        code = sinusoids(batch.position, self.position_channels).to(embedded.dtype)
        content = torch.cat([embedded, code * is_word], dim=1)  # [N, C]
        if self.field is not None:
            content = content + nn.functional.embedding(batch.field, self.field)
        cls = self.dropout(self.cls).expand(batch.num_documents, -1, -1)
        return prepend(cls, content, batch.ptr)
