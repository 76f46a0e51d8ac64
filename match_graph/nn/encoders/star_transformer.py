"""Star-Transformer: every token attends to its neighbours in a ring and to one relay node."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch_geometric.utils import segment

from match_graph.graph import EgoBatch
from match_graph.graph.csr import row_index
from match_graph.nn.attention import RaggedAttention, RaggedLayout, reset_layers
from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders.base import EncoderOutput, NumHeads, NumLayers, Rate, TextEncoder
from match_graph.nn.encoders.presets import read_presets
from match_graph.nn.layers import ByteDropout, add_positions, check_heads, prepend


class StarTransformerEncoder(TextEncoder):
    """Satellite nodes (the tokens) and a relay node, updated in turn for some cycles.

    Source: section 3 and algorithm 1 of Star-Transformer (Guo et al., NAACL 2019),
    https://arxiv.org/abs/1902.09113. The relay starts from the mean of the tokens; a document's
    state is the relay plus the maximum of the satellites. Each cycle has weights of its own, as in
    the public implementations. The first and the last token are neighbours, as in the paper; the
    implementations put zeros there. Position codes are sinusoidal, where the paper's are learned,
    and part of the relay's start, which has none in NeuralClassifier. The head is linear; the
    authors' has a hidden layer. A document without tokens is a relay alone, which starts from zero.
    """

    class Config(TextEncoder.Config):
        """Settings."""

        num_cycles: NumLayers = Field(2, description="number of update cycles, the paper's T")
        num_heads: NumHeads = 4
        dropout: Rate = Field(0.2, description="dropout rate on the attention output")

    paper: ClassVar[str] = "Guo et al., NAACL 2019, https://arxiv.org/abs/1902.09113"
    presets = read_presets("star_transformer")

    def __init__(self, embedding: TokenEmbedding, config: Config) -> None:
        super().__init__(embedding, config)
        self.channels = self.out_channels = embedding.channels
        check_heads(self.channels, config.num_heads, "model.channels")
        self.cycles = nn.ModuleList(
            StarCycle(self.channels, config.num_heads, config.dropout)
            for _ in range(config.num_cycles)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitializes the parameters."""
        for cycle in self.cycles:
            assert isinstance(cycle, StarCycle)
            cycle.reset_parameters()

    def forward(self, batch: EgoBatch) -> EncoderOutput:
        """Document states [B, delta]."""
        batch, tokens = self.embed(batch)
        embedded = add_positions(tokens, batch.position, batch.field == self.word_field)
        ring = Ring(batch.ptr)
        nodes, relay = embedded, segment(embedded, batch.ptr, "mean")
        for cycle in self.cycles:
            nodes, relay = cycle(nodes, embedded, relay, ring)
        document = relay + segment(nodes, batch.ptr, "max")
        return EncoderOutput(document, None, batch.ptr)


class Ring:
    """Neighbours in the ring of each packed document, and places of the relays.

    Args:
        ptr: Offsets of the documents, [B + 1], int64.
    """

    def __init__(self, ptr: Tensor) -> None:
        self.ptr = ptr
        self.row = row_index(ptr)  # the document of each token, [N]
        start, length = ptr[self.row], ptr.diff()[self.row]
        place = torch.arange(self.row.numel(), device=ptr.device) - start
        self.before = start + (place - 1) % length
        self.after = start + (place + 1) % length
        step = torch.arange(ptr.numel(), device=ptr.device)
        self.layout = RaggedLayout.from_ptr(ptr + step)  # with one relay before each document
        self.back = torch.argsort(self.layout.order)


class StarCycle(nn.Module):
    """One update of all satellites, then one of the relays.

    Args:
        channels: Width of the nodes.
        num_heads: Number of heads of both attentions.
        dropout: Dropout rate on the attention output.
    """

    def __init__(self, channels: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.out = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.key_value = nn.Linear(channels, 2 * channels)
        self.relay_attention = RaggedAttention(channels, num_heads)
        self.node_norm, self.relay_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.dropout = ByteDropout(dropout)

    def reset_parameters(self) -> None:
        """Reinitializes the weights."""
        reset_layers(self.query, self.key_value, self.out)
        self.relay_attention.reset_parameters()
        self.node_norm.reset_parameters()
        self.relay_norm.reset_parameters()

    def forward(
        self, nodes: Tensor, embedded: Tensor, relay: Tensor, ring: Ring
    ) -> tuple[Tensor, Tensor]:
        """Nodes [N, C] and relays [B, C] after the cycle.

        Args:
            nodes: Satellites, [N, C].
            embedded: Embedded tokens before the first cycle, [N, C].
            relay: Relay nodes, [B, C].
            ring: Rings of the documents.
        """
        attended = self.attend_ring(nodes, embedded, relay, ring)
        nodes = self.node_norm(self.dropout(torch.relu(attended)))
        joined, _ = prepend(relay.unsqueeze(1), nodes, ring.ptr)
        queries = relay.index_select(0, ring.layout.order)
        attended = self.relay_attention(joined, ring.layout, queries)
        attended = attended.index_select(0, ring.back)
        return nodes, self.relay_norm(self.dropout(torch.relu(attended)))

    def attend_ring(self, nodes: Tensor, embedded: Tensor, relay: Tensor, ring: Ring) -> Tensor:
        """Each node attends to its neighbours, itself, its token and its relay, [N, C]."""
        of_nodes, of_tokens = self.key_value(nodes), self.key_value(embedded)
        context = torch.stack(
            [
                of_nodes.index_select(0, ring.before),
                of_nodes,
                of_nodes.index_select(0, ring.after),
                of_tokens,
                self.key_value(relay).index_select(0, ring.row),
            ],
            dim=1,
        )  # [N, 5, 2 C]
        context = context.unflatten(2, (2, self.num_heads, -1))
        key, value = context.unbind(2)  # [N, 5, num_heads, width] each
        query = self.query(nodes).unflatten(1, (1, self.num_heads, -1))
        scores = (query * key).sum(dim=3, keepdim=True) * key.size(3) ** -0.5
        states = (torch.softmax(scores, dim=1).to(value.dtype) * value).sum(dim=1)
        attended: Tensor = self.out(states.flatten(1))
        return attended
