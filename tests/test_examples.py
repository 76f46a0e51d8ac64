"""The scripts of examples/ are pages of a gallery, and run as they stand."""

import ast
import os
import re
import runpy
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from match_graph import build_graph, from_frames
from match_graph.typing import IS_A

FOLDER = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def read_title(source: str) -> str | None:
    """The title of a gallery page: the first line of the docstring, underlined."""
    docstring = ast.get_docstring(ast.parse(source)) or ""
    found = re.match(r"(.+)\n(=+)\n\n\S", docstring)
    return found[1] if found and len(found[2]) >= len(found[1]) else None


@pytest.mark.parametrize(
    ("docstring", "title"),
    [
        ("A page\n======\n\nText.", "A page"),
        ("A page\n=====\n\nText.", None),  # underlined too short
        ("A page\n======", None),  # no text
        ("Text alone.", None),
        ("", None),
    ],
)
def test_read_title(docstring: str, title: str | None) -> None:
    """As sphinx-gallery and docutils want it."""
    assert read_title(f'"""{docstring}"""\n') == title


def test_examples_are_gallery_pages() -> None:
    """Each has a title of its own, text and blocks of prose; the gallery has a header."""
    assert SCRIPTS
    sources = [path.read_text(encoding="utf-8") for path in SCRIPTS]
    titles = [read_title(source) for source in sources]
    for path, title, source in zip(SCRIPTS, titles, sources, strict=True):
        assert title, f"{path.name} must begin with a docstring of a title, '===' and a text"
        assert len(re.findall(r"^# %%\n# \S", source, re.MULTILINE)) >= 2, path.name
    assert len(set(titles)) == len(titles)
    header = (FOLDER / "GALLERY_HEADER.rst").read_text(encoding="utf-8")
    assert re.match(r"(.+)\n=+\n\n\S", header)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A temporary folder in which sockets of processes can lie: their paths must be short."""
    with tempfile.TemporaryDirectory(prefix="mg") as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(
    path: Path,
    tmp_path: Path,
    match_graph_home: Path,
    short_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As ``python SCRIPT``: no warning, something printed, and no file left behind.

    Warnings of this process are errors by the settings of pytest; those of processes that a script
    starts would be on standard error.
    """
    place = tmp_path / "place"
    place.mkdir()
    temporary = short_folder
    monkeypatch.chdir(place)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(plt, "show", lambda: None)
    before = list_files(FOLDER)
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        plt.close("all")
    printed = capfd.readouterr()
    assert printed.out.strip()
    assert "Warning" not in printed.err, printed.err
    assert list_files(tmp_path, match_graph_home, short_folder) == []
    assert list_files(FOLDER) == before


def test_from_pandas_keeps_its_hierarchy() -> None:
    """The frames of the page have a hierarchy among the labels of documents, and no warning."""
    source = (FOLDER / "from_pandas.py").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(source.partition("# A corpus\n")[0], names)
    corpus = from_frames(names["documents"], names["labels"], fields=["author"])
    assert build_graph(corpus).data[IS_A].edge_index.shape == (2, 4)
    assert not corpus.warnings


def list_files(*folders: Path) -> list[str]:
    """The files below folders, but for compiled modules, PyG's layers and measured coverage."""
    others = ("torch_geometric.", "__main___", ".coverage")  # layers of the script itself too
    return [
        os.path.relpath(file, folder)
        for folder in folders
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.suffix != ".pyc" and not file.name.startswith(others)
    ]
