"""MeSHProbeNet: a bidirectional recurrent network whose states several probes attend to."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from match_graph.graph import EgoBatch
from match_graph.nn.attention import RaggedLayout, unreached
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import (
    EncoderOutput,
    NumLayers,
    NumTokens,
    Rate,
    TextEncoder,
    Width,
)
from match_graph.nn.encoders.presets import read_presets
from match_graph.nn.layers import ByteDropout
from match_graph.nn.recurrent import run_recurrent

_NETWORKS: dict[str, Callable[..., nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class MeshProbeNetEncoder(TextEncoder):
    """Each probe, a learned vector, gives a weighted mean of a document's states; all are joined.

    Source: MeSHProbeNet (Xun et al., Bioinformatics 2019),
    https://doi.org/10.1093/bioinformatics/btz142. Its embedding of the journal beside the probes
    is left out: a journal is metadata, which ``metadata`` puts before the words. A document
    without tokens has the state zero.
    """

    class Config(TextEncoder.Config):
        """Settings; the defaults are smaller than the paper's, for speed without a GPU.

        Its release has no dropout on states and CorNet's port 0.5, which comes on top of dropout on
        embeddings here: 0.1 is better on validation of two of three corpora, and level on one.
        """

        rnn: Literal["lstm", "gru"] = Field("lstm", description="the recurrent cell")
        hidden_channels: Width = Field(128, description="width of each direction")
        num_layers: NumLayers = Field(1, description="number of recurrent layers")
        num_probes: NumTokens = Field(5, description="number of attention queries per document")
        dropout: Rate = Field(0.1, description="dropout rate on the states")

    paper: ClassVar[str] = (
        "Xun et al., Bioinformatics 2019, https://doi.org/10.1093/bioinformatics/btz142"
    )
    presets = read_presets("mesh_probe_net")

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.rnn = _NETWORKS[config.rnn](
            embedding.channels, config.hidden_channels, config.num_layers, bidirectional=True
        )
        self.probes = nn.Parameter(torch.empty(config.num_probes, 2 * config.hidden_channels))
        self.out_channels = self.probes.numel()
        self.dropout = ByteDropout(config.dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the parameters: the network as torch does, probes Xavier uniform."""
        self.rnn.reset_parameters()
        nn.init.xavier_uniform_(self.probes)

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, num_probes * 2 * hidden_channels]."""
        batch, tokens = self.embed(batch)
        states = self.dropout(run_recurrent(self.rnn, tokens, batch.ptr))
        return EncoderOutput(self.probe(states, batch.ptr), None, batch.ptr)

    def probe(self, states: Tensor, ptr: Tensor) -> Tensor:
        """Means of packed states [N, C] by the weights of each probe, [B, num_probes * C]."""
        document = states.new_zeros(ptr.numel() - 1, self.out_channels)
        if not states.size(0):
            return document + unreached(states, self.probes)
        layout = RaggedLayout.from_ptr(ptr)
        means = []
        for block, valid in layout.pad(states):
            scores = nn.functional.linear(block, self.probes)  # [B_g, T_g, num_probes]
            if valid is not None:
                scores = scores.masked_fill(~valid.unsqueeze(2), float("-inf"))
            weight = torch.softmax(scores, dim=1).to(block.dtype)
            means.append(torch.bmm(weight.transpose(1, 2), block).flatten(1))
        return document.index_copy(0, layout.order, torch.cat(means).to(document.dtype))
