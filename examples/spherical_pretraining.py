"""
Spherical pre-training on any HeteroData
========================================

``SphericalTrainer`` learns a unit vector for every node of a heterogeneous graph, by margin ranking
with Riemannian gradient descent (section 3.1 of MATCH, https://arxiv.org/abs/2102.07349). The graph
need not be one of documents.
"""

# %%
# A graph with communities
# ------------------------
# Users buy items and write tags; nine out of ten edges stay within one of four communities. Nodes
# have no features: all that can be learned is in the edges.

import matplotlib.pyplot as plt
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

import match_graph as mg
from match_graph.pretrain import find_neighbours

generator = torch.Generator().manual_seed(0)
num_communities, sizes = 4, {"user": 400, "item": 200, "tag": 80}
community = {name: torch.arange(size) % num_communities for name, size in sizes.items()}


def draw_edges(source: str, target: str, num_edges: int) -> Tensor:
    """Edges of which about a tenth leaves its community, [2, num_edges]."""
    row = torch.randint(sizes[source], (num_edges,), generator=generator)
    col = torch.randint(sizes[target], (num_edges,), generator=generator)
    inside = col - community[target][col] + community[source][row]
    stays = torch.rand(num_edges, generator=generator) < 0.9
    return torch.stack([row, torch.where(stays, inside, col)])


data = HeteroData()
for name, size in sizes.items():
    data[name].num_nodes = size
data["user", "buys", "item"].edge_index = draw_edges("user", "item", 4000)
data["user", "writes", "tag"].edge_index = draw_edges("user", "tag", 2000)
data.validate()
print(data)

# %%
# Training
# --------
# Each edge type is a kind of proximity, and the kinds take turns. Negatives are of the positive's
# own type, sampled by degree to the power of 0.75. Three channels suffice to look at the vectors;
# for use, take more. If a node type has a ``train_mask``, no other of its nodes is sampled.

config = mg.PretrainConfig(channels=3, negatives=8, chunk_size=256, learning_rate=0.2)
trainer = mg.SphericalTrainer(data, config, seed=0)
trainer.fit(samples=100_000)
for name, table in trainer.tables.items():
    print(f"{name}: {list(table.shape)}, norms {table.norm(dim=1).mean():.3f}")

# %%
# Near is alike
# -------------
# The nearest other items of an item, by cosine, are of its community.

neighbours = find_neighbours(trainer.tables["item"], torch.arange(sizes["item"]), number=5)
same = community["item"][neighbours] == community["item"].unsqueeze(1)
print(f"{same.float().mean():.0%} of the 5 nearest items share the community")

# %%
# Anchors and targets live on the same sphere.

figure = plt.figure(figsize=(5, 5), layout="constrained")
axes = figure.add_subplot(projection="3d")
for name, marker in (("user", "."), ("item", "^")):
    axes.scatter(
        *trainer.tables[name].t(), c=community[name], marker=marker, cmap="tab10", label=name
    )
axes.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1), zticks=(-1, 0, 1), box_aspect=(1, 1, 1))
axes.legend()
plt.show()
