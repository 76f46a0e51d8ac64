"""`build --report`: Markdown with every table, and the pictures that it names."""

import re
import sys
from pathlib import Path

import pytest

from match_graph.cli import main
from match_graph.datasets import MatchFolder, open_dataset
from match_graph.graph.statistics import describe_parents
from match_graph.io import Reporter
from match_graph.report import graph_statistics, write_graph_report
from match_graph.testing import write_match_folder
from match_graph.testing.toy import toy_documents
from match_graph.typing import CONTAINS, TAGGED

PICTURES = ["degrees.png", "labels.png", "coverage.png", "parents.png"]


@pytest.fixture(scope="module")
def report(toy_dataset: MatchFolder, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of the report on the toy corpus."""
    pytest.importorskip("matplotlib", reason="pictures need match-graph[report]")
    return write_graph_report(toy_dataset, tmp_path_factory.mktemp("toy") / "report")


def test_write_graph_report_has_every_table_and_picture(report: list[Path]) -> None:
    """Figures are PNG and linked; all rows of a table have as many cells."""
    paths = report
    assert [path.name for path in paths] == ["REPORT.md", *PICTURES]
    text = paths[0].read_text(encoding="utf-8")
    assert re.findall(r"!\[.*\]\((.*)\)", text) == PICTURES
    for path in paths[1:]:
        assert path.read_bytes().startswith(b"\x89PNG")
    for line in (
        "| train documents | 8 |",
        r"| P(parent \| child) in training | 0.90 |",
        "| document has author, per document | 12 | 0.0833 | 1.25 | 1 | 2 | 2 | 2 |",
        "| venue | train | 8 | 0.6250 | 0.75 | 0.0000 | 0.0000 |",
        "| child never in training | 1 |",
        "| test in train | 0 | 0.0000 |",
    ):
        assert line in text
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 6
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block}) == 1


def test_write_graph_report_draws_what_it_says(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shares of nodes with at least as many edges, training documents of labels, and parents."""
    pytest.importorskip("matplotlib", reason="pictures need match-graph[report]")
    figures: dict = {}

    def keep(figure, path: Path, dpi: int) -> None:
        figures[path.name] = figure

    monkeypatch.setattr(graph_statistics, "save_figure", keep)
    write_graph_report(toy_dataset, tmp_path)
    graph = toy_dataset.graph
    documents, others = figures["degrees.png"].axes
    assert (documents.get_title(), others.get_title()) == (
        "per document", "per node at the other end",
    )  # fmt: skip
    [line] = [one for one in documents.get_lines() if one.get_label() == "document contains word"]
    degree = graph.adjacency(CONTAINS).ptr.diff()
    degree = degree[degree > 0].double()
    number, share = line.get_data()
    assert number.tolist() == degree.unique().tolist()
    assert share.tolist() == pytest.approx([float((degree >= n).double().mean()) for n in number])
    frequency, depths = figures["labels.png"].axes
    [line] = frequency.get_lines()
    count = graph.edge_index(TAGGED)[1].bincount().sort(descending=True).values
    assert line.get_ydata().tolist() == count[count > 0].tolist()
    bars = [bar.get_height() for bar in depths.patches]
    assert bars == toy_dataset.hierarchy.depth.bincount().tolist()
    [parents] = figures["parents.png"].axes
    bars = [bar.get_height() for bar in parents.patches]
    never, *tenths = describe_parents(graph, toy_dataset.targets)["edges"]
    assert (never, bars) == (1, tenths)


def test_write_graph_report_without_gold_labels_of_training(tmp_path: Path) -> None:
    """Figures are drawn, though no label has a training document."""
    pytest.importorskip("matplotlib", reason="pictures need match-graph[report]")
    documents = toy_documents()
    train = [{**one, "label": []} for one in documents["train"]]
    folder = write_match_folder(tmp_path / "toy", {**documents, "train": train})
    paths = write_graph_report(open_dataset(str(folder), root=tmp_path), tmp_path / "report")
    assert [path.name for path in paths] == ["REPORT.md", *PICTURES]


def test_write_graph_report_without_matplotlib(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """The missing extra is named in the file and by a warning."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    paths = write_graph_report(toy_dataset, tmp_path / "report", Reporter(quiet=True))
    assert [path.name for path in paths] == ["REPORT.md"]
    assert [path.name for path in (tmp_path / "report").iterdir()] == ["REPORT.md"]
    sentence = (
        "A figure needs the package matplotlib, which is not installed; run: "
        "pip install 'match-graph[report]'"
    )
    assert sentence in paths[0].read_text(encoding="utf-8")
    assert "![" not in paths[0].read_text(encoding="utf-8")
    assert sentence in capsys.readouterr().err


def test_write_graph_report_by_the_command(
    toy_dataset: MatchFolder,
    report: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    """`match-graph build FOLDER --report DIR` prints what it wrote: the same files to the byte."""
    command = ["build", str(toy_dataset.folder), "--report", str(tmp_path / "r"), "--quiet"]
    monkeypatch.setattr(sys, "argv", ["match-graph", *command])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    printed = capsys.readouterr().out.splitlines()
    assert printed[-len(PICTURES) - 1 :] == [
        str(tmp_path / "r" / name) for name in ("REPORT.md", *PICTURES)
    ]
    for path in report:
        assert (tmp_path / "r" / path.name).read_bytes() == path.read_bytes()
