"""Features of nodes: the data's, numbers, and pre-trained vectors that tell no label."""

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from match_graph.config import Config, FeatureSource, load_config
from match_graph.corpus import Corpus
from match_graph.datasets import MatchFolder
from match_graph.errors import CheckpointError, ConfigError, ExportError
from match_graph.export import EXPORTS, ExportOptions, export_dataset
from match_graph.export.features import number_nodes, spread_vectors, train_vectors
from match_graph.export.ogb import load_ogb
from match_graph.export.source import open_source
from match_graph.features import open_features
from match_graph.graph import BuiltGraph
from match_graph.io import Reporter
from match_graph.runs import Run

CHANNELS = 8
SETTINGS = ["pretrain.samples=20000", f"pretrain.channels={CHANNELS}", f"model.channels={CHANNELS}"]


def read(folder: Path) -> dict[str, torch.Tensor]:
    content = torch.load(folder / "data.pt", weights_only=True)
    return {key: store["x"] for key, store in content.items() if "x" in store}


def test_number_nodes_numbers_are_rows(toy_graph: BuiltGraph) -> None:
    """Node indices count within each type."""
    numbers = number_nodes(toy_graph.data)
    for name in toy_graph.data.node_types:
        assert numbers[name].tolist() == [[row] for row in range(toy_graph.data[name].num_nodes)]


def test_spread_vectors_documents_are_means_words_and_metadata(
    toy_graph: BuiltGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of documents equal a naive loop in float64, in one block and in several."""
    data = toy_graph.data
    generator = torch.Generator().manual_seed(0)
    kept = {"venue": 2, "author": 3, "reference": 4, "word": 20, "label": 8, "document": 12}
    vectors = {
        name: torch.randn(rows, CHANNELS, generator=generator) for name, rows in kept.items()
    }
    vectors["context"] = torch.randn(20, CHANNELS, generator=generator)
    expected = torch.zeros(12, CHANNELS, dtype=torch.float64)
    for edge_type in data.edge_types:
        if edge_type[1] in ("has", "contains"):
            for document, node in data[edge_type].edge_index.t().tolist():
                if node < kept[edge_type[2]]:
                    expected[document] += vectors[edge_type[2]][node].double()
    expected = torch.nn.functional.normalize(expected, dim=1)
    for size in (50_000, 5):
        monkeypatch.setattr("match_graph.export.features._DOCUMENTS", size)
        features = spread_vectors(data, vectors)
        assert torch.allclose(features["document"].double(), expected, atol=1e-6)
    assert set(features) == set(data.node_types)
    assert torch.equal(features["author"][:3], vectors["author"])
    assert not features["author"][3:].any()
    assert features["author"].shape == (5, CHANNELS)


def test_ExportOptions_vectors_are_trained_where_no_run_is_given(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Without a run vectors are trained, reproducibly for a seed."""
    options = ExportOptions(features="pretrained")
    found = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        config = load_config(None, [*SETTINGS, f"seed={seed}"])
        out = export_dataset(toy_dataset, "pyg", tmp_path / name, options, config=config)
        found.append(read(out)["word"])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert f"pre-trained unit vectors of {CHANNELS} channels, trained for this export" in text
    assert "training documents only, with their labels" in text


@pytest.mark.parametrize(
    "target", [name for name, target in EXPORTS.items() if "pretrained" in target.features]
)
def test_ExportOptions_every_target_with_features_holds_vectors(
    trained_run: Run, tmp_path: Path, target: str
) -> None:
    """Every target with features makes a round trip of vectors."""
    if target in ("ogb", "relbench"):
        pytest.importorskip(target, reason=f"{target} needs match-graph[export]")
    options = ExportOptions(features="pretrained", text="none")
    out = export_dataset(trained_run.dataset, target, tmp_path / "out", options, trained_run.folder)
    assert "pre-trained unit vectors of 32 channels" in (out / "EXPORT.md").read_text("utf-8")


def test_train_vectors_without_labels_no_label_is_seen(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Without labels, pre-training has no (document, label) pair."""
    options = ExportOptions(features="pretrained", include_labels="none")
    data = open_source(toy_dataset, options).data
    vectors = train_vectors(toy_dataset, data, load_config(None, SETTINGS), Reporter(quiet=True))
    assert "label" not in vectors
    config = load_config(None, SETTINGS)
    out = export_dataset(toy_dataset, "pyg", tmp_path / "out", options, config=config)
    assert not read(out)["label"].any()
    assert "without their labels" in (out / "EXPORT.md").read_text(encoding="utf-8")


def test_ExportOptions_vectors_of_a_run(trained_run: Run, tmp_path: Path) -> None:
    """Vectors of a run are exported; those of another data set are refused."""
    options = ExportOptions(features="pretrained")
    out = export_dataset(trained_run.dataset, "pyg", tmp_path / "out", options, trained_run.folder)
    features, vectors = read(out), trained_run.pretrain()
    for name in ("venue", "author", "reference", "word", "label"):
        assert torch.equal(features[name][: len(vectors[name])], vectors[name])
        assert not features[name][len(vectors[name]) :].any()
    assert "channels, of a run" in (out / "EXPORT.md").read_text(encoding="utf-8")


def test_ExportOptions_run_of_other_data_is_refused(
    trained_run: Run, toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """A run of other data is refused, as its rows are other nodes."""
    options = ExportOptions(features="pretrained")
    with pytest.raises(ExportError) as caught:
        export_dataset(toy_dataset, "pyg", tmp_path / "out", options, trained_run.folder)
    assert str(caught.value) == (
        f"Features come from vectors of the same data, but the run in '{trained_run.folder}' was "
        f"made from other data than 'toy' holds now; choose another run, or leave out --run."
    )
    with pytest.raises(CheckpointError, match="A run must be a folder"):
        export_dataset(toy_dataset, "pyg", tmp_path / "out", options, tmp_path / "none")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def featured(toy_dataset: MatchFolder, tmp_path: Path) -> Config:
    """Features of documents in float16, and of labels by id, shuffled."""
    documents = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float16)
    np.save(tmp_path / "document.npy", documents)
    labels = toy_dataset.names("label")[::-1]
    frame = pd.DataFrame({"id": labels, "x": [[float(len(name)), 0.5] for name in labels]})
    frame.to_parquet(tmp_path / "label.parquet")
    settings = [f"data.features.document={tmp_path / 'document.npy'}"]
    return load_config(None, [*settings, f"data.features.label={tmp_path / 'label.parquet'}"])


def read_pyg(out: Path, node_type: str) -> dict[str, list[float]]:
    ids = pd.read_parquet(out / "names" / f"{node_type}.parquet")["id"]
    return dict(zip(ids, read(out)[node_type].tolist(), strict=True))


def read_parquet(out: Path, node_type: str) -> dict[str, list[float]]:
    frame = pd.read_parquet(out / "nodes" / f"{node_type}.parquet")
    return {name: x.tolist() for name, x in zip(frame["id"], frame["x"], strict=True)}


def read_networkx(out: Path, node_type: str) -> dict[str, list[float]]:
    content = json.loads((out / "graph.json").read_text(encoding="utf-8"))
    graph = nx.node_link_graph(content, edges="edges")
    nodes = (node for _, node in graph.nodes(data=True) if node["type"] == node_type)
    return {node["name"]: node["x"] for node in nodes}


def read_ogb(out: Path, node_type: str) -> dict[str, list[float]]:
    pytest.importorskip("ogb", reason="ogb needs match-graph[export]")
    meta = torch.load(out / "meta_dict.pt", weights_only=True)
    graph, _ = load_ogb("toy", meta)[0]
    for path in (out / "processed").iterdir():
        path.unlink()
    assert set(graph["node_feat_dict"]) == {"document", "label"}
    ids = pd.read_parquet(out / "mapping" / f"{node_type}.parquet")["id"]
    return dict(zip(ids, graph["node_feat_dict"][node_type].tolist(), strict=True))


def read_relbench(out: Path, node_type: str) -> dict[str, list[float]]:
    relbench = pytest.importorskip("relbench", reason="relbench needs match-graph[export]")
    frame = relbench.load_dataset(out).get_db().table_dict[node_type].df
    return {name: x.tolist() for name, x in zip(frame["id"], frame["x"], strict=True)}


def read_match(out: Path, node_type: str) -> dict[str, list[float]]:
    dataset = MatchFolder(out, root=out.parent / "root")
    source = FeatureSource(path=str(out / "features" / f"{node_type}.parquet"))
    x = open_features(source, dataset, node_type, dataset.root).x
    return dict(zip(dataset.names(node_type), x.tolist(), strict=True))


READERS = {
    "match": read_match, "networkx": read_networkx, "ogb": read_ogb, "parquet": read_parquet,
    "pyg": read_pyg, "relbench": read_relbench,
}  # fmt: skip


@pytest.mark.parametrize("target", sorted(EXPORTS))
def test_collect_features_load_in_every_library(
    toy_dataset: MatchFolder, featured: Config, tmp_path: Path, match_graph_home: Path, target: str
) -> None:
    """Features of the configuration are the default x, float32, of the right nodes.

    They are kept below the root of the data set.
    """
    if target in ("ogb", "relbench"):
        pytest.importorskip(target, reason=f"{target} needs match-graph[export]")
    out = export_dataset(toy_dataset, target, tmp_path / "out", config=featured)
    assert not (match_graph_home / "features").exists()
    documents = np.load(tmp_path / "document.npy").astype(np.float32).tolist()
    expected = dict(zip(toy_dataset.names("document"), documents, strict=True))
    assert READERS[target](out, "document") == expected
    found = READERS[target](out, "label")
    assert found == {name: [float(len(name)), 0.5] for name in found}
    labels = {*toy_dataset.names("label")}
    assert set(found) == labels - ({"cells"} if target == "match" else set())
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert f"features of the data, float32: `document` [12, 3], `label` [{len(labels)}, 2]." in text


def test_collect_features_takes_those_of_the_build(
    toy: Corpus, given_dataset: type, tmp_path: Path
) -> None:
    """Features of the build are exported, or left out with a note in EXPORT.md."""
    features = {"document": np.arange(24, dtype=np.float16).reshape(12, 2)}
    dataset = given_dataset(replace(toy, features=features), tmp_path / "root")
    out = export_dataset(dataset, "pyg", tmp_path / "out")
    assert torch.equal(read(out)["document"], torch.arange(24.0).view(12, 2))
    none = ExportOptions(features="none")
    out = export_dataset(dataset, "pyg", tmp_path / "out", none, overwrite=True)
    assert not read(out)
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert "Features of the data set, left out on purpose." in text
    plain = given_dataset(toy, tmp_path / "other")
    with pytest.raises(ConfigError) as caught:
        export_dataset(plain, "pyg", tmp_path / "new", ExportOptions(features="data"))
    assert str(caught.value) == (
        "The options of an export must fit its target: --features data needs features, but 'toy' "
        "has none; set data.features."
    )
