"""The NetworkX export: a directed multigraph from JSON and GraphML."""

import json
from pathlib import Path

import networkx as nx
import pytest

from match_graph.datasets import MatchFolder, Synthetic
from match_graph.errors import ExportError
from match_graph.export import ExportOptions, export_dataset


def load(folder: Path) -> nx.MultiDiGraph:
    with (folder / "graph.json").open(encoding="utf-8") as file:
        return nx.node_link_graph(json.load(file), edges="edges")


def test_export_dataset_both_files_hold_the_same_graph(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """JSON and GraphML hold the same multigraph, with parallel edges for repeated words."""
    out = export_dataset(toy_dataset, "networkx", tmp_path / "out")
    graph = load(out)
    other = nx.read_graphml(out / "graph.graphml", force_multigraph=True)
    assert dict(graph.nodes(data=True)) == dict(other.nodes(data=True))

    def edges(given: nx.MultiDiGraph) -> list:
        return sorted((a, b, sorted(edge.items())) for a, b, edge in given.edges(data=True))

    assert edges(graph) == edges(other)
    assert graph.nodes["document/0"] == {"type": "document", "name": "t1", "split": "train"}
    names = toy_dataset.names("word").tolist()
    word = f"word/{names.index('graphs')}"
    found = graph.get_edge_data("document/0", word).values()
    assert sorted(edge["position"] for edge in found) == [1, 4]
    assert {edge["type"] for edge in found} == {"contains"}


def test_ExportOptions_texts_come_on_request(toy_dataset: MatchFolder, tmp_path: Path) -> None:
    """Texts are exported on request, raw or as words."""
    for text, expected in (
        ("raw", "Kernels for graphs."),
        ("words", "kernels for graphs"),
    ):
        options = ExportOptions(text=text)
        out = export_dataset(toy_dataset, "networkx", tmp_path / text, options)
        assert load(out).nodes["document/6"]["text"] == expected


def test_export_dataset_large_graphs_no_graphml_larger_ones(
    synthetic: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large graphs have no GraphML, larger ones are refused.

    EXPORT.md says so; the refusal has the size in it.
    """
    data = synthetic[0]
    items = data.num_nodes + sum(
        data[edge_type].edge_index.size(1) for edge_type in data.edge_types
    )
    items += data["document", "tagged", "label"].edge_index.size(1)  # the gold labels once more
    monkeypatch.setattr("match_graph.export.networkx.MAX_GRAPHML_ITEMS", items - 1)
    out = export_dataset(synthetic, "networkx", tmp_path / "out")
    assert not (out / "graph.graphml").exists()
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert f"`graph.graphml` is not written: {items:,} nodes and edges are above" in text
    monkeypatch.setattr("match_graph.export.networkx.MAX_ITEMS", items - 1)
    with pytest.raises(ExportError) as caught:
        export_dataset(synthetic, "networkx", tmp_path / "more")
    assert str(caught.value) == (
        f"NetworkX holds every node and edge as a Python object, here {items:,} of them or about "
        f"0 GiB, above the limit of {items - 1:,}; export to pyg or parquet."
    )


def test_export_dataset_control_characters_escaped_graphml_alone(
    given_dataset, tmp_path: Path
) -> None:
    """Control characters are escaped in GraphML alone, in columns that it lists."""
    from match_graph.corpus_builder import CorpusBuilder

    builder = CorpusBuilder("control", ["author"], "control")
    builder.add("50%", "train", "w", {"author": ["a\x00b c%"]}, ["l"], "1")
    dataset = given_dataset(builder.build([]), tmp_path)
    out = export_dataset(dataset, "networkx", tmp_path / "out")
    other = nx.read_graphml(out / "graph.graphml", force_multigraph=True)
    assert other.graph["percent_escaped"] == "author.name"
    assert other.nodes["author/0"]["name"] == "a%00b c%25"
    assert other.nodes["document/0"]["name"] == "50%"
    assert load(out).nodes["author/0"]["name"] == "a\x00b c%"
