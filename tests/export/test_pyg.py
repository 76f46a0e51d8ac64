"""The PyG export: tensors that load without unpickling and train a plain model."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HGTConv
from torch_geometric.transforms import ToUndirected

from match_graph.config import load_config
from match_graph.datasets import MatchFolder, Synthetic
from match_graph.export import ExportOptions, export_dataset
from match_graph.export.inventory import find_differences
from match_graph.export.pyg import PygTarget
from match_graph.export.source import open_source
from match_graph.graph import Targets
from match_graph.metrics import RankingMeter, rank_labels
from match_graph.testing import toy_corpus


def load(folder: Path) -> HeteroData:
    return HeteroData.from_dict(torch.load(folder / "data.pt", weights_only=True))


def test_export_dataset_graph_is_the_built_one(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors and names equal those of the data set, edges in int64; names are read in batches."""
    monkeypatch.setattr("match_graph.export.parquet.NODE_BATCH", 5)
    out = export_dataset(toy_dataset, "pyg", tmp_path / "out", ExportOptions(include_labels="all"))
    data, built = load(out), toy_dataset[0]
    assert data.node_types == built.node_types
    assert data.edge_types == built.edge_types
    for store, expected in zip(data.stores, built.stores, strict=True):
        assert set(store.keys()) == set(expected.keys())
        for key, value in expected.items():
            found = store[key]
            same = torch.equal(found, value) if isinstance(value, torch.Tensor) else found == value
            assert same, key
            if isinstance(value, torch.Tensor):
                assert found.dtype == (torch.int64 if key == "edge_index" else value.dtype)
    targets = Targets(**torch.load(out / "targets.pt", weights_only=True))
    assert torch.equal(targets.ptr, toy_dataset.targets.ptr)
    assert torch.equal(targets.index, toy_dataset.targets.index)
    for node_type in data.node_types:
        names = pd.read_parquet(out / "names" / f"{node_type}.parquet")
        assert names["id"].tolist() == toy_dataset.names(node_type).tolist()


def test_export_dataset_gold_labels_other_splits_are_empty_lists(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Gold labels outside of training are empty lists; without labels there are none."""
    out = export_dataset(toy_dataset, "pyg", tmp_path / "train")
    targets = Targets(**torch.load(out / "targets.pt", weights_only=True))
    train = toy_dataset[0]["document"].train_mask
    assert not targets.ptr.diff()[~train].any()
    assert torch.equal(targets.index, toy_dataset.targets.select(train.nonzero().view(-1))[1].int())
    out = export_dataset(
        toy_dataset, "pyg", tmp_path / "none", ExportOptions(include_labels="none")
    )
    assert not (out / "targets.pt").exists()
    assert ("document", "tagged", "label") not in load(out).edge_types
    assert "train_count" not in load(out)["label"]


def test_export_dataset_compares_attributes_of_edges(given_dataset: type, tmp_path: Path) -> None:
    """Edge attributes that were changed in the exported file are reported as a difference."""
    corpus = toy_corpus()
    edges = {**corpus.edges, "author": corpus.edges["author"].assign(edge_attr_0=1.5)}
    dataset = given_dataset(replace(corpus, edges=edges), tmp_path / "root")
    options = ExportOptions(text="words", features="none")
    out = export_dataset(dataset, "pyg", tmp_path / "out", options)
    target, source = PygTarget(), open_source(dataset, options)
    [reading] = target.read(source, out)
    assert find_differences(target.expect(source), reading.inventory) == {}
    data = load(out)
    data["document", "has", "author"].edge_attr.zero_()
    torch.save(data.to_dict(), out / "data.pt")
    [reading] = target.read(source, out)
    assert find_differences(target.expect(source), reading.inventory) == {
        "document has author.edge_attr": "document has author: 'edge_attr' has other values."
    }


class PlainHGT(nn.Module):
    """PyG's own layer between two linear ones, as a user would write it."""

    def __init__(self, data: HeteroData, num_labels: int) -> None:
        super().__init__()
        self.inner = nn.ModuleDict({node_type: nn.Linear(16, 16) for node_type in data.node_types})
        self.conv = HGTConv(16, 16, data.metadata(), heads=2)
        self.out = nn.Linear(16, num_labels)

    def forward(self, data: HeteroData) -> torch.Tensor:
        x = {node_type: self.inner[node_type](x).relu() for node_type, x in data.x_dict.items()}
        return self.out(self.conv(x, data.edge_index_dict)["document"])


def test_ExportOptions_exported_graph_trains_a_plain_hgt(
    synthetic: Synthetic, tmp_path: Path
) -> None:
    """A plain HGT learns from the export: its loss falls, and it beats the prior."""
    settings = ["pretrain.samples=300000", "pretrain.channels=16", "model.channels=16"]
    config = load_config(None, settings)
    options = ExportOptions(features="pretrained")
    out = export_dataset(synthetic, "pyg", tmp_path / "out", options, config=config)
    data = load(out)
    targets = torch.load(out / "targets.pt", weights_only=True)
    del data["document", "tagged", "label"]
    data = ToUndirected(merge=False)(data)
    train = data["document"].train_mask
    rows = torch.repeat_interleave(torch.arange(len(train)), targets["ptr"].diff())
    gold = torch.zeros(len(train), targets["num_labels"])
    gold[rows, targets["index"].long()] = 1

    torch.manual_seed(0)
    model = PlainHGT(data, targets["num_labels"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(70):
        loss = nn.functional.binary_cross_entropy_with_logits(model(data)[train], gold[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.4 * losses[0]

    valid = data["document"].val_mask.nonzero().view(-1)
    with torch.no_grad():
        scores = model(data)[valid]
    prior = gold[train].sum(dim=0).expand_as(scores)
    assert measure(synthetic, valid, scores) > measure(synthetic, valid, prior) + 0.15


def measure(dataset: Synthetic, documents: torch.Tensor, scores: torch.Tensor) -> float:
    meter = RankingMeter(ks=[5])
    meter.update(rank_labels(scores, 5), *dataset.targets.select(documents))
    return meter.compute()["NDCG@5"]
