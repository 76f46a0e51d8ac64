"""
An encoder of your own from a PyG convolution
=============================================

``GraphEncoder`` samples neighbourhoods of documents, embeds their nodes, adds reverse edges and
joins the states of all layers. What a subclass gives is the layer: here one ``GATv2Conv`` per edge
type (Brody et al., ICLR 2022, https://arxiv.org/abs/2105.14491).
"""

# %%
# The encoder
# -----------
# A layer is called with the states of the nodes by type and the edges by edge type, and gives the
# new states of the nodes that these edge types lead to. The settings of the encoder are a
# pydantic model, so that a misspelt or impossible one is refused in a sentence.

from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv

import match_graph as mg
from match_graph.testing import assert_encoder


class AttentionLayer(nn.Module):
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
        return AttentionLayer(config.channels, config.num_heads, edge_types)


# %%
# The contract
# ------------
# One call checks it on a toy corpus that is dirty on purpose: documents without any token, new
# documents, permuted batches, a gradient for every parameter, and so on. A fault is one sentence.

assert_encoder(Gatv2Encoder, {"channels": 16})

# %%
# Training
# --------
# An encoder is named by ``module:Class``. This script is the module ``__main__``; a class in
# ``my_encoder.py`` is ``my_encoder:Gatv2Encoder``, on the command line as well: ``match-graph run
# DATASET --encoder my_encoder:Gatv2Encoder``.

workspace = TemporaryDirectory()
folder = Path(workspace.name)
settings = [
    "data.options={num_documents: 400, num_labels: 24, num_words: 600}",
    "pretrain.samples=50000",
    "pretrain.channels=32",
    "model.channels=32",
    "model.encoder_config={channels: 32, neighborhood: {words: [16, 0]}}",
    "train.epochs=3",
    "train.batch_size=32",
]
names = {"GATv2": "__main__:Gatv2Encoder", "RGCN": "rgcn"}
for name, encoder in names.items():
    config = mg.load_config(settings=[*settings, f"model.encoder={encoder}"])
    run = mg.start_run("synthetic", config, folder=folder / name, root=folder / "data")
    run.train()
    print(f"{name}: validation NDCG@5 {run.evaluate()['valid']['NDCG@5']:.3f}")

# %%
# A run folder alone makes nobody import code: whoever loads the run names the encoder too.

classifier = mg.load(folder / "GATv2", encoder=names["GATv2"])
[result] = classifier.predict([{"text": "w17 w3 w250 w17", "venue": "venue3"}], top_k=3)
print(result["labels"])

workspace.cleanup()
