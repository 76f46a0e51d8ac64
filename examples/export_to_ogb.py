"""
Export to OGB and train there
=============================

``export_dataset`` writes a built data set in another library's format, reads it back and compares
before the folder appears. Here it is the layout of OGB's node property prediction
(https://ogb.stanford.edu), so that code written for ``ogbn`` data sets runs on a corpus of yours.
"""

# %%
# The export
# ----------
# ``features="pretrained"`` gives every node a unit vector as ``x``. With ``include_labels="all"``
# the gold labels of all splits are in the label matrix; as edges there are those of training
# alone.

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

import match_graph as mg

workspace = TemporaryDirectory()
folder = Path(workspace.name)
options = {"num_documents": 600, "num_labels": 30, "num_words": 800}
settings = ["pretrain.samples=100000", "pretrain.channels=32", "model.channels=32"]
dataset = mg.open_dataset("synthetic", root=folder / "data", **options)
out = mg.export_dataset(
    dataset,
    to="ogb",
    out=folder / "ogb",
    options=mg.ExportOptions(features="pretrained", include_labels="all"),
    config=mg.load_config(settings=settings),
)
print(*sorted(path.name for path in out.iterdir()), sep="\n")

# %%
# From here on nothing is of match-graph
# --------------------------------------
# OGB's loader takes what ``meta_dict.pt`` holds. There is a binary task per label.

from ogb.nodeproppred import Evaluator, NodePropPredDataset

meta = torch.load(out / "meta_dict.pt", weights_only=True)
ogb_dataset = NodePropPredDataset("ogbn-synthetic", meta_dict=meta)
graph, labels = ogb_dataset[0]
split = {name: rows["document"] for name, rows in ogb_dataset.get_idx_split().items()}
gold = torch.from_numpy(labels["document"]).float()  # [documents, labels]
print(f"gold {list(gold.shape)}, node types {sorted(graph['num_nodes_dict'])}")

# %%
# A layer of PyG over the exported edges. ``("document", "tagged", "label")`` is the training
# gold: a model that is given it reads the answer, so it stays out.

x = {name: torch.from_numpy(array) for name, array in graph["node_feat_dict"].items()}
edges: dict[tuple[str, str, str], Tensor] = {}
for (source, relation, target), array in graph["edge_index_dict"].items():
    if relation in ("has", "contains"):
        edges[target, f"rev_{relation}", source] = torch.from_numpy(array).flip(0)

torch.manual_seed(0)
layers = nn.ModuleList(SAGEConv(32, 64) for _ in edges)
classify = nn.Linear(64, gold.size(1))
optimizer = torch.optim.Adam([*layers.parameters(), *classify.parameters()], lr=0.01)
evaluator = Evaluator("ogbn-proteins")  # OGB knows its own names alone; this one is ROC-AUC
evaluator.num_tasks = gold.size(1)


def score_documents() -> Tensor:
    """Logits, [documents, labels]."""
    messages = [
        layer((x[source], x["document"]), edge_index)  # [documents, 64]
        for layer, ((source, _, _), edge_index) in zip(layers, edges.items(), strict=True)
    ]
    return classify(torch.stack(messages).sum(0).relu())


for epoch in range(60):
    loss = nn.functional.binary_cross_entropy_with_logits(
        score_documents()[split["train"]], gold[split["train"]]
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 20 == 19:
        with torch.no_grad():
            scores = score_documents()[split["valid"]]
        found = evaluator.eval({"y_true": gold[split["valid"]].numpy(), "y_pred": scores.numpy()})
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, valid ROC-AUC {found['rocauc']:.3f}")

workspace.cleanup()
