"""Input files: named, in order, or refused."""

import gzip
from pathlib import Path

import pytest

from match_graph.errors import CorpusError
from match_graph.predict.files import find_inputs, read_documents


def test_find_inputs_files_and_folders_in_order(tmp_path: Path) -> None:
    """Files of a folder are sorted by name; those with other suffixes are read only by name."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("b.jsonl", "a.JSONL", "readme.txt"):
        (folder / name).write_text("{}\n")
    (tmp_path / "docs.json").write_text("{}\n{}\n")
    found = find_inputs([tmp_path / "docs.json", folder], 3)
    assert [one.name for one in found] == ["docs.json", "a", "b"]
    assert [len(one.blocks) for one in found] == [2, 1, 1]


def test_find_inputs_of_one_name_or_none(tmp_path: Path) -> None:
    """Two inputs of one name are refused, as their results would have the same name."""
    for name in ("a.jsonl", "a.jsonl.gz"):
        (tmp_path / name).touch()
    with pytest.raises(CorpusError) as caught:
        find_inputs([tmp_path], 100)
    assert str(caught.value) == (
        f"Each file of documents must have a name of its own, as its results get it, but "
        f"'{tmp_path / 'a.jsonl'}' and '{tmp_path / 'a.jsonl.gz'}' are both 'a'; rename one."
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError) as caught:
        find_inputs([tmp_path / "empty"], 100)
    assert str(caught.value) == (
        f"A folder of documents must hold files that end in .jsonl, .csv, .tsv or these with .gz, "
        f"but '{tmp_path / 'empty'}' has none; name the files one by one."
    )


def test_find_inputs_does_not_cut_a_table(tmp_path: Path) -> None:
    """CSV is one block, as a cell may hold line breaks; a row is named by its first line."""
    path = tmp_path / "a.csv.gz"
    content = b'id,text\n1,"of\none"\n2,b\n'
    path.write_bytes(gzip.compress(content))
    (tmp_path / "b.TSV").write_bytes(content.replace(b",", b"\t"))
    packed, plain = find_inputs([tmp_path], 4)
    assert [packed.name, plain.name] == ["a", "b"]
    expected = [{"id": "1", "text": "of\none"}, {"id": "2", "text": "b"}]
    for one in (packed, plain):
        [block] = one.blocks
        name = one.path.name
        found = [*zip([f"{name}:2", f"{name}:4"], expected, strict=True)]
        assert list(read_documents(block)) == found


def test_read_documents_byte_order_mark_of_a_file_alone(tmp_path: Path) -> None:
    """A byte order mark is dropped at the start of a file, not of a later block."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\xef\xbb\xbf{"a": 2}\n')
    [one] = find_inputs([path], 4)
    first, second = one.blocks
    assert list(read_documents(first)) == [("a.jsonl:1", {"a": 1})]
    with pytest.raises(CorpusError, match="a line must be one JSON object"):
        list(read_documents(second))
