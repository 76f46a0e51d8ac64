"""Raw files as lines: plain and gzip read the same, damage is named by file:line."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from match_graph.datasets.source import find_files, open_sources
from match_graph.errors import CorpusError
from match_graph.training import Reporter

LINES = [b"one\n", b"\n", b"two \xe2\x80\xa8 same line\r\n", b"three"]


def read_lines(*paths: Path) -> list[bytes]:
    with open_sources(paths, "little", None) as sources:
        return [line for path in paths for line in sources.lines(path)]


def test_plain_and_gzip_give_the_same_lines(tmp_path: Path) -> None:
    """Only a line feed ends a line; a Unicode line separator does not."""
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    plain.write_bytes(b"".join(LINES))
    packed.write_bytes(gzip.compress(b"".join(LINES)))
    assert read_lines(plain) == read_lines(packed) == LINES


def test_a_truncated_gzip_file_is_named_by_line(tmp_path: Path) -> None:
    """The lines before are read; the message says where it breaks off."""
    path = tmp_path / "papers.jsonl.gz"
    whole = gzip.compress(b"".join(b"%d\n" % number for number in range(100_000)))
    path.write_bytes(whole[: len(whole) // 2])
    seen = []
    with pytest.raises(CorpusError) as caught, open_sources([path], "little", None) as sources:
        seen += sources.lines(path)
    assert str(caught.value) == (
        f"papers.jsonl.gz:{len(seen) + 1}: a file named .gz must be whole and packed by gzip, but "
        f"from here on it cannot be read (Compressed file ended before the end-of-stream marker "
        f"was reached); fetch it again."
    )


def test_a_file_that_is_no_gzip_is_named(tmp_path: Path) -> None:
    """A page saved under the name of a file is no gzip file."""
    (tmp_path / "a.gz").write_bytes(b"<html>")
    with pytest.raises(CorpusError) as caught:
        read_lines(tmp_path / "a.gz")
    assert str(caught.value) == (
        "a.gz:1: a file named .gz must be whole and packed by gzip, but from here on it cannot be "
        "read (Not a gzipped file (b'<h')); fetch it again."
    )


def test_a_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    """A wrong byte in the middle is found by the packing itself or by its checksum."""
    whole = bytearray(gzip.compress(b"".join(b"%d\n" % number for number in range(1000))))
    whole[len(whole) // 2] ^= 0xFF
    (tmp_path / "a.gz").write_bytes(whole)
    with pytest.raises(CorpusError, match=r"^a\.gz:\d+: a file named \.gz must be whole"):
        read_lines(tmp_path / "a.gz")


def test_progress_counts_megabytes_of_all_files(tmp_path: Path) -> None:
    """The total is known, what is done rises to it; compressed files count as they lie there."""
    seen: list[tuple[object, ...]] = []

    @contextmanager
    def track(name: str, total: int, unit: str) -> Iterator[object]:
        seen.append((name, total, unit))
        yield lambda done, text: seen.append((done, text))

    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"0123456789\n" * 150_000)
    paths = [tmp_path / "a", tmp_path / "b"]
    with open_sources(paths, "little", track) as sources:
        for path in paths:
            for _ in sources.lines(path):
                pass
    assert seen[0] == ("read little", 3, "MB")
    steps = [step for step in seen[1:] if isinstance(step[0], int)]
    assert steps == sorted(steps)
    assert (steps[0][1], steps[-1]) == ("a", (3, "b"))


def test_a_reporter_shows_the_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`Reporter.track` is a `Track`; without a terminal it prints lines."""
    path = tmp_path / "a"
    path.write_bytes(b"0123456789\n" * 150_000)
    with open_sources([path], "little", Reporter(seconds=0).track) as sources:
        assert sum(1 for _ in sources.lines(path)) == 150_000
    assert "read little: 1 of 1 MB (" in capsys.readouterr().err


def test_files_of_a_folder_by_suffix(tmp_path: Path) -> None:
    """A file is taken as it is; of a folder those with the suffix, packed or not, by name."""
    for name in ("b.xml", "a.xml.gz", "c.txt", "d.xml.bak"):
        (tmp_path / name).touch()
    (tmp_path / "e.xml").mkdir()
    assert find_files(tmp_path / "c.txt", (".xml",), "little") == [tmp_path / "c.txt"]
    found = find_files(tmp_path, (".xml",), "little")
    assert [path.name for path in found] == ["a.xml.gz", "b.xml"]


def test_no_file_says_where_to_put_it(tmp_path: Path) -> None:
    """The message names suffixes, folder and option."""
    with pytest.raises(CorpusError) as caught:
        find_files(tmp_path / "none", (".xml",), "little")
    assert str(caught.value) == (
        f"The data set 'little' reads files of yours (.xml, .xml.gz), but there is none at "
        f"'{tmp_path / 'none'}'; put them there, or name a file or a folder with "
        f"--set data.options.path=PATH."
    )
