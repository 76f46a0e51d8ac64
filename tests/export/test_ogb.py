"""The OGB export: OGB's reader, its evaluator, its faults, and the limit of dense labels."""

import sys
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import pytest
import torch

from match_graph.datasets import MatchFolder
from match_graph.errors import ExportError
from match_graph.export import ExportOptions, export_dataset
from match_graph.export.ogb import load_ogb

pytest.importorskip("ogb", reason="ogb needs match-graph[export]")


def load(folder: Path):
    meta = torch.load(folder / "meta_dict.pt", weights_only=True)
    assert meta["dir_path"] == str(folder)
    return load_ogb("toy", meta)


def test_load_ogb_reads_graph_labels_and_splits(toy_dataset: MatchFolder, tmp_path: Path) -> None:
    """OGB's reader gives edges, labels (NaN if hidden) and splits."""
    out = export_dataset(toy_dataset, "ogb", tmp_path / "out", ExportOptions(features="ids"))
    dataset, data = load(out), toy_dataset[0]
    assert (dataset.num_tasks, dataset.num_classes) == (8, 2)
    graph, labels = dataset[0]
    assert graph["num_nodes_dict"] == {name: data[name].num_nodes for name in data.node_types}
    for edge_type in data.edge_types:
        assert np.array_equal(graph["edge_index_dict"][edge_type], data[edge_type].edge_index)
    position = graph["edge_position"]["document", "contains", "word"]
    assert np.array_equal(position[:, 0], data["document", "contains", "word"].position)
    assert np.array_equal(graph["node_feat_dict"]["word"][:, 0], np.arange(data["word"].num_nodes))
    train = data["document"].train_mask.numpy()
    assert np.isnan(labels["document"][~train]).all()
    document, label = np.nonzero(labels["document"][train])
    tagged = data["document", "tagged", "label"].edge_index.numpy()
    assert {*zip(document, label, strict=True)} == {*zip(*tagged, strict=True)}
    split = dataset.get_idx_split()
    assert {name: rows["document"].tolist() for name, rows in split.items()} == {
        "train": [*range(8)], "valid": [8, 9], "test": [10, 11]
    }  # fmt: skip


def test_load_ogb_evaluates_a_prediction(toy_dataset: MatchFolder, tmp_path: Path) -> None:
    """ROC-AUC of OGB's evaluator is 1 for the gold labels, 0 for the opposite."""
    from ogb.nodeproppred import Evaluator

    out = export_dataset(toy_dataset, "ogb", tmp_path / "out", ExportOptions(include_labels="all"))
    dataset = load(out)
    labels, rows = dataset[0][1]["document"], dataset.get_idx_split()["train"]["document"]
    evaluator = Evaluator("ogbn-proteins")
    evaluator.num_tasks = dataset.num_tasks
    gold = labels[rows]
    assert evaluator.eval({"y_true": gold, "y_pred": gold.astype(float)}) == {"rocauc": 1.0}
    assert evaluator.eval({"y_true": gold, "y_pred": -gold.astype(float)}) == {"rocauc": 0.0}


def start_ogb(folder: Path) -> list[str]:
    """Program of a user: OGB's class twice, then its PyG class."""
    from ogb.nodeproppred import NodePropPredDataset, PygNodePropPredDataset

    meta, found = torch.load(folder / "meta_dict.pt", weights_only=True), []
    for cls in (NodePropPredDataset, NodePropPredDataset, PygNodePropPredDataset):
        try:
            dataset = cls("ogbn-toy", meta_dict=meta)
        except UnpicklingError as error:
            found.append(f"{cls.__name__} {str(error).split('.', 1)[0]}")
        else:
            found.append(f"{cls.__name__} works")
            if cls is PygNodePropPredDataset:
                assert dataset[0].y_dict["document"].shape == (12, 8)
                assert dataset[0].num_nodes_dict["author"] == 5
    return found


@pytest.mark.filterwarnings("ignore:Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
@pytest.mark.filterwarnings("ignore:Detected pickle protocol 4")
def test_load_ogb_fault_that_export_md_names_is_real(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault of OGB and its workaround in EXPORT.md are real."""
    out = export_dataset(toy_dataset, "ogb", tmp_path / "out", ExportOptions(include_labels="all"))
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert start_ogb(out) == [
        "NodePropPredDataset works",
        "NodePropPredDataset works",
        "PygNodePropPredDataset works",
    ]
    for path in (out / "processed").iterdir():
        path.unlink()
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    assert start_ogb(out) == [
        "NodePropPredDataset works",
        "NodePropPredDataset Weights only load failed",
        "PygNodePropPredDataset Weights only load failed",
    ]
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1" in text
    assert "Weights only load failed" in text


def test_load_ogb_nothing_pickled_is_handed_over(toy_dataset: MatchFolder, tmp_path: Path) -> None:
    """OGB's pickled cache is removed; arrays hold no objects."""
    out = export_dataset(toy_dataset, "ogb", tmp_path / "out")
    assert list((out / "processed").iterdir()) == []
    for path in (out / "raw").glob("*.npz"):
        with np.load(path, allow_pickle=False) as arrays:
            assert all(arrays[name].dtype.kind in "if" for name in arrays)
    assert torch.load(out / "split/given/split_dict.pt", weights_only=True)["test"]


def test_dense_labels_that_do_not_fit_are_refused_with_size(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dense label matrix above the limit is refused with its size."""
    monkeypatch.setattr("match_graph.export.ogb.MAX_LABEL_BYTES", 12 * 8 * 8)
    export_dataset(toy_dataset, "ogb", tmp_path / "out")
    monkeypatch.setattr("match_graph.export.ogb.MAX_LABEL_BYTES", 12 * 8 * 8 - 1)
    with pytest.raises(ExportError) as caught:
        export_dataset(toy_dataset, "ogb", tmp_path / "more")
    assert str(caught.value) == (
        "OGB's layout holds labels as a dense matrix, here 12 documents x 8 labels = 0.0 GiB when "
        "loaded, above the limit of 0 GiB; export to pyg or parquet, which keep them sparse."
    )
    assert not (tmp_path / "more").exists()


def test_export_dataset_without_ogb_there_is_one_sentence(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without OGB the message names the extra."""
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(ExportError) as caught:
        export_dataset(toy_dataset, "ogb", tmp_path / "out")
    assert str(caught.value) == (
        "The target 'ogb' needs the package ogb, which is not installed; "
        "run: pip install 'match-graph[export]'"
    )
    assert not list(tmp_path.iterdir())
