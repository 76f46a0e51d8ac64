"""XML-CNN: convolutions of several widths over the words, dynamic max pooling, a bottleneck."""

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch_geometric.utils import segment

from match_graph.graph import EgoBatch
from match_graph.graph.csr import make_ptr, open_gaps, ragged_arange
from match_graph.nn.attention import reset_layers
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import EncoderOutput, Rate, TextEncoder, Width
from match_graph.nn.encoders.presets import read_presets
from match_graph.nn.layers import ByteDropout


class XmlCnnEncoder(TextEncoder):
    """The largest responses of filters in each of p chunks of a document, through a bottleneck.

    Source: section 3 of XML-CNN (Liu et al., SIGIR 2017), https://doi.org/10.1145/3077136.3080834.

    Every document has as many responses as tokens, whatever the filter's width: it is zero beyond
    both ends. Chunks are those of `torch.nn.AdaptiveMaxPool1d` over the document's true length, so
    they overlap in documents shorter than p; the paper's public implementations pool over padding
    up to a fixed length, and CorNet draws filters a seventh as large. A document without tokens
    pools zeros. ReLU follows the maximum, which gives the same and costs less.
    """

    class Config(TextEncoder.Config):
        """Settings; the defaults are those of the implementation in hedwig and CorNet, but for
        dropout: their 0.5 comes on top of dropout on embeddings here, and learned too slowly on a
        corpus of 1,000 documents (cacm, validation NDCG@5 .285 with 0.5 and .378 with 0.2).
        """

        widths: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
            default_factory=lambda: [2, 4, 8],
            min_length=1,
            max_length=256,
            description="widths of filters, in tokens",
        )
        num_filters: Width = Field(128, description="number of filters of each width")
        num_chunks: int = Field(8, ge=1, le=10_000, description="number of chunks, the paper's p")
        bottleneck: Width = Field(512, description="width of the document's state")
        dropout: Rate = Field(0.2, description="dropout rate on the document's state")

    paper: ClassVar[str] = "Liu et al., SIGIR 2017, https://doi.org/10.1145/3077136.3080834"
    presets = read_presets("xml_cnn")

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.num_chunks, self.out_channels = config.num_chunks, config.bottleneck
        self.filters = nn.ModuleList(
            nn.Conv1d(embedding.channels, config.num_filters, width) for width in config.widths
        )
        pooled = len(config.widths) * config.num_filters * config.num_chunks
        self.bottleneck = nn.Linear(pooled, config.bottleneck)
        self.dropout = ByteDropout(config.dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the parameters."""
        reset_layers(*self.filters, self.bottleneck)

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, bottleneck]."""
        batch, tokens = self.embed(batch)
        pooled = torch.relu(self.pool(self.convolve(tokens, batch.ptr), batch.ptr))
        document = self.dropout(torch.relu(self.bottleneck(pooled)))
        return EncoderOutput(document, None, batch.ptr)

    def convolve(self, tokens: Tensor, ptr: Tensor) -> Tensor:
        """Responses of all filters around each token, [N, widths * num_filters].

        All documents lie in one row, with as many zeros between them as the widest filter reads.
        """
        widths = [layer.kernel_size[0] for layer in self._typed_filters()]
        gap = max(widths) // 2
        _, place = open_gaps(ptr, gap, tokens.size(0))
        length = max(tokens.size(0), 1) + gap * ptr.numel()  # no less than the widest filter
        spread = tokens.new_zeros(length, tokens.size(1)).index_copy(0, place, tokens)
        row = spread.t().unsqueeze(0)  # [1, C, length]
        responses = []
        for layer, width in zip(self._typed_filters(), widths, strict=True):
            first = place - (width - 1) // 2  # of each token's window
            responses.append(layer(row)[0].t().index_select(0, first))
        return torch.cat(responses, dim=1)

    def pool(self, responses: Tensor, ptr: Tensor) -> Tensor:
        """The maxima of each chunk, [B, num_chunks * C], of responses [N, C]."""
        chunk = torch.arange(self.num_chunks, device=ptr.device)
        lengths = ptr.diff().unsqueeze(1)
        start = chunk * lengths // self.num_chunks  # [B, num_chunks]
        stop = ((chunk + 1) * lengths + self.num_chunks - 1) // self.num_chunks
        number = (stop - start).view(-1)
        index = ragged_arange((ptr[:-1].unsqueeze(1) + start).view(-1), number)
        maxima: Tensor = segment(responses.index_select(0, index), make_ptr(number), "max")
        return maxima.view(ptr.numel() - 1, -1)

    def _typed_filters(self) -> list[nn.Conv1d]:
        return [layer for layer in self.filters if isinstance(layer, nn.Conv1d)]
