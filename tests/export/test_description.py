"""EXPORT.md: whole, honest, and its code runs."""

import re
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch_geometric.data import HeteroData

from match_graph.datasets import MatchFolder
from match_graph.export import EXPORTS, ExportOptions, export_dataset
from match_graph.io import Reporter
from match_graph.testing import write_match_folder

LIBRARIES = {"ogb": "ogb", "relbench": "relbench"}


@pytest.mark.parametrize("target", sorted(EXPORTS))
def test_export_dataset_code_in_it_runs_in_its_folder(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """The code in EXPORT.md runs in the folder of the export."""
    if target in LIBRARIES:
        pytest.importorskip(LIBRARIES[target], reason=f"{target} needs match-graph[export]")
    out = export_dataset(toy_dataset, target, tmp_path / "out")
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    monkeypatch.chdir(out)
    for block in blocks:
        exec(compile(block.replace('"FOLDER"', f'"{out}"'), str(out / "EXPORT.md"), "exec"), {})


def test_describe_export_names_without_markup(tmp_path: Path) -> None:
    """Markup in the name of a data set is escaped."""
    dataset = MatchFolder(write_match_folder(tmp_path / "a*b*|c"), root=tmp_path / "root")
    out = export_dataset(dataset, "parquet", tmp_path / "out")
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert text.startswith("# a\\*b\\*\\|c as parquet\n")
    assert "the data set a\\*b\\*\\|c, whose" in text


def test_export_dataset_every_part_stands_in_it(toy_dataset: MatchFolder, tmp_path: Path) -> None:
    """Content, files, missing parts and verification are described."""
    out = export_dataset(toy_dataset, "networkx", tmp_path / "out", ExportOptions(features="ids"))
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    parts = ["# toy as networkx", "## Files", "## Not carried", "## Verified"]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    for sentence in (
        "Gold labels of training documents only",
        "No texts (`--text none`)",
        "`x` is the number of the node",
        "Features in graph.graphml: GraphML has no lists.",
        "Gold labels of 4 documents, left out on purpose.",
        "Raw texts, left out on purpose.",
        "| | source | graph.json, by NetworkX | graph.graphml, by NetworkX |",
    ):
        assert sentence in text
    for path in out.iterdir():
        assert path.name == "EXPORT.md" or f"`{path.name}`" in text


def test_export_dataset_nothing_left_out_is_said_so(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """With all labels and texts, nothing is missing from PyG's format."""
    out = export_dataset(toy_dataset, "pyg", tmp_path / "out", ExportOptions(include_labels="all"))
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert "## Not carried\n\n- Nothing was left out.\n" in text


@pytest.mark.parametrize("target", ["parquet", "pyg"])
def test_export_dataset_names_attributes_that_it_leaves_out(tmp_path: Path, target: str) -> None:
    """Attributes that a pre_transform added are named, unless the target carries them."""

    def add(data: HeteroData) -> HeteroData:
        data["author"].h_index = torch.arange(int(data["author"].num_nodes))
        edges = data["document", "has", "author"]
        edges.share = torch.rand(edges.edge_index.size(1))
        return data

    folder = write_match_folder(tmp_path / "toy")
    dataset = MatchFolder(folder, root=tmp_path, pre_transform=add)
    options = ExportOptions(include_labels="all")
    out = export_dataset(dataset, target, tmp_path / "out", options)
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    sentence = "- Nothing was left out."
    if target != "pyg":
        sentence = (
            "- Attributes of a `pre_transform`, author.h\\_index, ('document', 'has', "
            "'author').share; the target pyg carries them."
        )
    assert f"## Not carried\n\n{sentence}\n" in text


def test_export_dataset_type_that_a_format_leaves_out_has_a_dash(
    toy_dataset: MatchFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gold edges, which RelBench's database lacks, have a dash and a reason."""
    pytest.importorskip("relbench", reason="relbench needs match-graph[export]")
    out = export_dataset(toy_dataset, "relbench", tmp_path / "out", reporter=Reporter())
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert "| document tagged label | 15 | - |" in text
    assert (
        "export: verified 12 documents (8 train, 2 valid, 2 test), 58 other nodes of 5 types, "
        "116 edges of 6 types, 15 gold labels\n"
    ) in capsys.readouterr().err
    assert "Edges `document tagged label`: in RelBench a label is in the task's tables" in text


def test_describe_export_tells_what_the_order_of_labels_shows(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """The order of labels by training frequency is mentioned, without gold labels, too."""
    out = export_dataset(toy_dataset, "pyg", tmp_path / "out", ExportOptions(include_labels="none"))
    count = toy_dataset[0]["label"].train_count
    names = pd.read_parquet(out / "names" / "label.parquet")["id"].tolist()
    assert names == toy_dataset.names("label").tolist()
    assert (count.diff() <= 0).all()
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert "labels as nodes stand in the order of how many training documents have them" in text
