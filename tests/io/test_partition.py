"""Blocks of lines of raw files."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.errors import CorpusError
from match_graph.io.partition import Partition, split_lines
from match_graph.io.source import open_sources


def read_numbered(parts: list[Partition]) -> list[tuple[int, bytes]]:
    """(number, line) of the lines of partitions."""
    with open_sources([], "x", None) as sources:
        return [pair for part in parts for pair in enumerate(part.lines(sources), start=part.line)]


@given(
    st.lists(st.sampled_from([b"a\n", b"\n", b"longer\r\n", b"x" * 40 + b"\n"]), max_size=30),
    st.sampled_from([b"", b"end"]),
    st.integers(1, 50),
)
def test_split_lines_blocks_hold_every_line_once(lines, end, size) -> None:
    """Blocks hold every line once, in order, with its number."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "a.jsonl"
        path.write_bytes(b"".join(lines) + end)
        parts = split_lines(path, "works", size)
        expected = [*lines, *([end] if end else [])]
        assert read_numbered(parts) == [*enumerate(expected, start=1)]
        assert sum(part.num_bytes for part in parts) == path.stat().st_size
        assert all(part.num_bytes >= size for part in parts[:-1])
        assert {part.kind for part in parts} == {"works"}


def test_split_lines_packed_file_is_one(tmp_path: Path) -> None:
    """A gzip file is one partition, as it cannot be read from the middle."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"a\nb\n"))
    assert split_lines(path, size=1) == [Partition(path)]
    assert read_numbered(split_lines(path, size=1)) == [(1, b"a\n"), (2, b"b\n")]


def test_split_lines_refuses_no_line_that_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is too long is split here, and refused by the reader of its block."""
    monkeypatch.setenv("MATCH_GRAPH_MAX_RECORD_MIB", "1")
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"a\n" + b"x" * (3 * 2**20) + b"\nb\n")
    for size in (2, 3, 100, 2**20, 2**21):
        parts = split_lines(path, size=size)
        assert sum(part.num_bytes for part in parts) == path.stat().st_size
        with pytest.raises(CorpusError, match=r"^a\.jsonl:2: a line must have at most 1 MiB, but"):
            read_numbered(parts)
