"""
Encoders of your own from PyG convolutions
==========================================

``GraphEncoder`` samples neighbourhoods of documents, embeds their nodes, adds reverse edges and
joins the states of all layers. What a subclass gives is the layer: here graph attention (GATv2,
Brody et al., ICLR 2022, https://arxiv.org/abs/2105.14491) and heterogeneous attention (HAN, Wang
et al., WWW 2019, https://arxiv.org/abs/1903.07293).
"""

# %%
# GATv2
# -----
# A layer is called with the states of the nodes by type and the edges by edge type, and gives the
# new states of the nodes that these edge types lead to. The settings of the encoder are a
# pydantic model, so that a misspelt or impossible one is refused in a sentence.

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from pydantic import Field
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, HANConv

import match_graph as mg
from match_graph.testing import assert_encoder


class GatLayer(nn.Module):
    """The sum over edge types of what attention gathers from their sources."""

    def __init__(self, channels: int, num_heads: int, edge_types: list[tuple[str, str, str]]):
        super().__init__()
        self.edge_types = edge_types
        self.convs = nn.ModuleList(
            GATv2Conv(channels, channels // num_heads, num_heads, add_self_loops=False)
            for _ in edge_types
        )

    def reset_parameters(self) -> None:
        for conv in self.convs:
            conv.reset_parameters()

    def forward(self, states: dict[str, Tensor], edges: dict) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for edge_type, conv in zip(self.edge_types, self.convs, strict=True):
            source, _, target = edge_type
            message = conv((states[source], states[target]), edges[edge_type])  # [n, channels]
            found[target] = found[target] + message if target in found else message
        return found


class Gatv2Encoder(mg.GraphEncoder):
    """Graph attention over the neighbourhoods of documents."""

    class Config(mg.GraphEncoder.Config):
        num_heads: int = Field(2, ge=1)

    def make_layer(self, config: Config, edge_types: list[tuple[str, str, str]]) -> nn.Module:
        return GatLayer(config.channels, config.num_heads, edge_types)


# %%
# HAN
# ---
# ``HANConv`` takes states and edges by type as it stands, so that ``make_layer`` could return it.
# But it weighs edge types by a mean over all nodes at hand: a document's state would depend on the
# other documents of its batch, and prediction on how the request is cut into batches. So the layer
# weighs them for each node, by the same parameters.


class HanLayer(HANConv):
    """Attention to the neighbours by each edge type, then of each node to its edge types."""

    def forward(self, states: dict[str, Tensor], edges: dict) -> dict[str, Tensor]:
        shape = -1, self.heads, self.out_channels // self.heads
        mapped = {name: self.proj[name](x).view(shape) for name, x in states.items()}
        found: dict[str, list[Tensor]] = {}
        for (source, relation, target), edge_index in edges.items():
            name = "__".join((source, relation, target))
            pair = mapped[source], mapped[target]
            score = (pair[0] * self.lin_src[name]).sum(2), (pair[1] * self.lin_dst[name]).sum(2)
            message = self.propagate(edge_index, x=pair, alpha=score).relu()  # [n, channels]
            found.setdefault(target, []).append(message)
        return {name: self.weigh(torch.stack(parts)) for name, parts in found.items()}

    def weigh(self, parts: Tensor) -> Tensor:  # [edge types, n, channels]
        weight = (self.q * self.k_lin(parts).tanh()).sum(2, keepdim=True).softmax(0)
        return (weight * parts).sum(0)


class HanEncoder(Gatv2Encoder):
    """Heterogeneous attention over the neighbourhoods of documents."""

    def make_layer(self, config: Gatv2Encoder.Config, edge_types: list) -> nn.Module:
        metadata = self.node_types, edge_types
        return HanLayer(config.channels, config.channels, metadata, config.num_heads)


# %%
# The contract
# ------------
# One call checks it on a toy corpus that is dirty on purpose: documents without any token, new
# documents, permuted batches, a gradient for every parameter, and so on. A fault is one sentence:
# here that of ``HANConv`` as it stands.

assert_encoder(Gatv2Encoder, {"channels": 16})
assert_encoder(HanEncoder, {"channels": 16})


class PlainHanEncoder(HanEncoder):
    def make_layer(self, config: Gatv2Encoder.Config, edge_types: list) -> nn.Module:
        return HANConv(config.channels, config.channels, (self.node_types, edge_types))


try:
    assert_encoder(PlainHanEncoder, {"channels": 16})
except AssertionError as fault:
    print(fault)

# %%
# Training
# --------
# An encoder is named by ``module:Class``. This script is the module ``__main__``; a class in
# ``my_encoder.py`` is ``my_encoder:Gatv2Encoder``, on the command line as well: ``match-graph run
# DATASET --encoder my_encoder:Gatv2Encoder``. A convolution between two types of nodes needs no
# code: ``pyg_conv`` takes it by name.

workspace = TemporaryDirectory()
folder = Path(workspace.name)
settings = [
    "data.options={num_documents: 400, num_labels: 24, num_words: 600}",
    "pretrain.samples=50000",
    "pretrain.channels=32",
    "model.channels=32",
    "model.encoder_config={channels: 32, neighborhood: {words: [16, 0]}}",
    "train.epochs=2",
    "train.batch_size=32",
]
names = {"GATv2": "__main__:Gatv2Encoder", "HAN": "__main__:HanEncoder", "GraphConv": "pyg_conv"}
for name, encoder in names.items():
    chosen = [f"model.encoder={encoder}"]
    if encoder == "pyg_conv":
        chosen.append(f"model.encoder_config.conv={name}")
    config = mg.load_config(settings=[*settings, *chosen])
    run = mg.start_run("synthetic", config, folder=folder / name, root=folder / "data")
    run.train()
    print(f"{name}: validation NDCG@5 {run.evaluate()['valid']['NDCG@5']:.3f}")

# %%
# A run folder alone makes nobody import code: whoever loads the run names the encoder too.

classifier = mg.load(folder / "HAN", encoder=names["HAN"])
[result] = classifier.predict([{"text": "w17 w3 w250 w17", "venue": "venue3"}], top_k=3)
print(result["labels"])

workspace.cleanup()
