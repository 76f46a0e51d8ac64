"""Data sets made from files that the user has."""

from pathlib import Path

import pytest

from match_graph.datasets import DATASETS, Table
from match_graph.datasets.user_files import UserFiles
from match_graph.errors import CorpusError

LINE = '{"id": 1, "text": "x", "label": ["a"], "s": "train"}\n'
COLUMNS = {"split": "s"}


def test_Table_nothing_is_written_beside_the_users_files(tmp_path: Path) -> None:
    """Nor is a folder made that the user has not."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "a.jsonl").write_text(LINE)
    before = [(path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")]
    dataset = Table(str(folder), columns=COLUMNS, root=tmp_path / "root")
    assert not Path(dataset.processed_dir).is_relative_to(folder)
    mine = [(path, path.stat().st_mtime_ns) for path in tmp_path.glob("mine/*")]
    assert [item for item in before if item[0].parent == folder] == mine
    with pytest.raises(CorpusError, match=r"but there is none at '.*nowhere'"):
        Table(str(tmp_path / "nowhere"), root=tmp_path / "root")
    assert not (tmp_path / "nowhere").exists()


def test_Table_build_follows_the_content_not_the_place(tmp_path: Path) -> None:
    """The same file elsewhere is the same build; another content is another."""
    checksums = []
    for name, content in (("one", LINE), ("two", LINE), ("three", LINE.replace('"x"', '"y"'))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text(content)
        dataset = Table(str(tmp_path / name), columns=COLUMNS, root=tmp_path / "root")
        checksums.append(dataset.checksum)
    assert checksums[0] == checksums[1] != checksums[2]


def test_UserFiles_every_class_of_users_files_says_what_it_reads() -> None:
    """Suffixes, and a card by its registered name."""
    classes = {name: cls for name, cls in DATASETS.items() if issubclass(cls, UserFiles)}
    assert sorted(classes) == ["openalex", "pubmed-xml", "table"]
    for name, cls in classes.items():
        assert cls.card is not None
        assert cls.card.name == name
        assert all(suffix.startswith(".") for suffix in cls.suffixes)
        assert "path" in cls.path_options
        assert set(cls.path_options) <= set(cls.Options.model_fields)
