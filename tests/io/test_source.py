"""Raw files as lines: plain and gzip read the same, damage is named by file:line."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from match_graph.errors import CorpusError
from match_graph.io import Reporter
from match_graph.io.source import find_files, open_regular, open_sources, resolve_path

LINES = [b"one\n", b"\n", b"two \xe2\x80\xa8 same line\r\n", b"three"]


def read_lines(*paths: Path) -> list[bytes]:
    with open_sources(paths, "little", None) as sources:
        return [line for path in paths for line in sources.lines(path)]


def test_open_sources_plain_and_gzip_give_the_same_lines(tmp_path: Path) -> None:
    """Plain and gzip give the same lines; a Unicode line separator ends none."""
    plain, packed, capitals = (tmp_path / name for name in ("a.txt", "a.txt.gz", "B.TXT.GZ"))
    plain.write_bytes(b"".join(LINES))
    for path in (packed, capitals):
        path.write_bytes(gzip.compress(b"".join(LINES)))
    assert read_lines(plain) == read_lines(packed) == read_lines(capitals) == LINES


def test_open_sources_truncated_gzip_file_is_named_by_line(tmp_path: Path) -> None:
    """The lines before the truncation are read, and the message names the next one."""
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


def test_open_sources_file_that_is_no_gzip_is_named(tmp_path: Path) -> None:
    """A page saved under the name of a file is no gzip file."""
    (tmp_path / "a.gz").write_bytes(b"<html>")
    with pytest.raises(CorpusError) as caught:
        read_lines(tmp_path / "a.gz")
    assert str(caught.value) == (
        "a.gz:1: a file named .gz must be whole and packed by gzip, but from here on it cannot be "
        "read (Not a gzipped file (b'<h')); fetch it again."
    )


def test_open_sources_damaged_gzip_file_is_named(tmp_path: Path) -> None:
    """A wrong byte is found by deflate or by the checksum."""
    whole = bytearray(gzip.compress(b"".join(b"%d\n" % number for number in range(1000))))
    whole[len(whole) // 2] ^= 0xFF
    (tmp_path / "a.gz").write_bytes(whole)
    with pytest.raises(CorpusError, match=r"^a\.gz:\d+: a file named \.gz must be whole"):
        read_lines(tmp_path / "a.gz")


def test_open_sources_progress_counts_megabytes_of_all_files(tmp_path: Path) -> None:
    """Progress rises to the total of all files, measured before unpacking."""
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


def test_open_sources_reporter_shows_the_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`Reporter.track` is a `Track`; without a terminal it prints lines."""
    path = tmp_path / "a"
    path.write_bytes(b"0123456789\n" * 150_000)
    with open_sources([path], "little", Reporter(seconds=0).track) as sources:
        assert sum(1 for _ in sources.lines(path)) == 150_000
    assert "read little: 1 of 1 MB (" in capsys.readouterr().err


def test_find_files_of_a_folder_by_suffix(tmp_path: Path) -> None:
    """Files of a folder are found by suffix, packed or not; a file is taken as it is."""
    for name in ("b.xml", "a.xml.gz", "c.txt", "d.xml.bak", "f.XML"):
        (tmp_path / name).touch()
    (tmp_path / "e.xml").mkdir()
    assert find_files(tmp_path / "c.txt", (".xml",), "little") == [tmp_path / "c.txt"]
    found = find_files(tmp_path, (".xml",), "little")
    assert [path.name for path in found] == ["a.xml.gz", "b.xml", "f.XML"]


def test_find_files_no_file_says_where_to_put_it(tmp_path: Path) -> None:
    """The message names suffixes, folder and option."""
    with pytest.raises(CorpusError) as caught:
        find_files(tmp_path / "none", (".xml",), "little")
    assert str(caught.value) == (
        f"The data set 'little' reads files of yours (.xml, .xml.gz), but there is none at "
        f"'{tmp_path / 'none'}'; put them there, or name a file or a folder with "
        f"--set data.options.path=PATH."
    )


def test_bounded_lines_refuses_a_line_past_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gzip of a few KB that unpacks to a line of 40 MiB is refused; the limit can be changed."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}\n" + b"x" * (40 << 20)))
    with pytest.raises(CorpusError) as caught:
        read_lines(path)
    assert str(caught.value) == (
        "a.jsonl.gz:2: a line must have at most 16 MiB, but this one has more; mend the file, or "
        "set MATCH_GRAPH_MAX_RECORD_MIB."
    )
    monkeypatch.setenv("MATCH_GRAPH_MAX_RECORD_MIB", "41")
    assert len(read_lines(path)) == 2
    monkeypatch.setenv("MATCH_GRAPH_MAX_RECORD_MIB", "many")
    with pytest.raises(CorpusError) as caught:
        read_lines(path)
    assert str(caught.value) == (
        "MATCH_GRAPH_MAX_RECORD_MIB must be a whole number of MiB from 1 to 65,536, found 'many'; "
        "set another, or unset it for 16."
    )


def test_bounded_lines_refuses_endless_blank_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of blank lines is bounded."""
    monkeypatch.setattr("match_graph.io.source.MAX_BLANK_LINES", 2)
    (tmp_path / "a.txt").write_bytes(b"\n \nx\n\t\n\r\n")
    with pytest.raises(CorpusError) as caught:
        read_lines(tmp_path / "a.txt")
    assert str(caught.value) == (
        "a.txt:5: a file must have at most 2 blank lines more than others, but this one has more; "
        "remove them."
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pipe", "a pipe or device"),
        ("folder", "Is a directory"),
        ("nothing", "No such file or directory"),
        ("circle", "Too many levels of symbolic links"),
        ("nul\0", "embedded null byte"),
    ],
)
def test_open_regular_refuses_what_would_block_or_is_not_there(
    tmp_path: Path, name: str, reason: str
) -> None:
    """Pipes, devices and missing files are refused at once, with the reason."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    path = tmp_path / name
    with pytest.raises(CorpusError) as caught:
        open_regular(path)
    assert str(caught.value) == (
        f"Data are read from regular files, but {str(path)!a} is none that can be read "
        f"({reason}); check the path."
    )


def test_find_files_refuses_a_link_to_nothing(tmp_path: Path) -> None:
    """A dangling link is refused, not skipped."""
    (tmp_path / "a.jsonl").write_text("{}")
    (tmp_path / "b.jsonl").symlink_to(tmp_path / "gone")
    with pytest.raises(CorpusError, match=r"b\.jsonl' is none that can be read"):
        find_files(tmp_path, (".jsonl",), "table")


def test_resolve_path_refuses_circles_and_nul(tmp_path: Path) -> None:
    """Cyclic links and a NUL are one sentence each."""
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for path, reason in (
        (tmp_path / "circle", "its links lead in a circle"),
        (tmp_path / "nul\0", "embedded null byte"),
    ):
        with pytest.raises(CorpusError) as caught:
            resolve_path(path)
        assert str(caught.value) == (
            f"A path must lead to a place, but {str(path)!a} does not ({reason}); check it."
        )


def test_Sources_read_whole_plain_and_gzip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncated file, and one that is too large, are named."""
    monkeypatch.setenv("MATCH_GRAPH_MAX_RECORD_MIB", "1")
    plain, packed = tmp_path / "a.json", tmp_path / "a.json.gz"
    plain.write_bytes(b"{}")
    packed.write_bytes(gzip.compress(b"{}"))
    with open_sources([plain, packed], "little", None) as sources:
        assert sources.read_whole(plain, "a file") == sources.read_whole(packed, "a file") == b"{}"
        plain.write_bytes(b" " * (2**20 + 1))
        with pytest.raises(
            CorpusError, match=r"^a\.json: a file must have at most 1 MiB, but this"
        ):
            sources.read_whole(plain, "a file")
        packed.write_bytes(packed.read_bytes()[:-9])
        with pytest.raises(CorpusError, match=r"^a\.json\.gz:1: a file named \.gz must be whole"):
            sources.read_whole(packed, "a file")
