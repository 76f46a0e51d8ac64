"""Blocks of a file join to it, start at its lines, and know their numbers when asked."""

import gzip
import random
from pathlib import Path

import pytest

from match_graph.errors import CorpusError
from match_graph.io.line_blocks import cut_file


@pytest.mark.parametrize("end", [b"\n", b""])
def test_cut_file_blocks_are_the_lines_in_order(tmp_path: Path, end: bytes) -> None:
    """Blocks of any size join to the file, also with long lines and without a final newline."""
    generator, path = random.Random(0), tmp_path / "a.jsonl"
    lines = [b"x" * generator.choice([0, 1, 5, 40]) + b"\n" for _ in range(60)] + [b"last" + end]
    path.write_bytes(b"".join(lines))
    for size in (1, 2, 7, 30, 200, 10**6):
        blocks = cut_file(path, size)
        assert [line for block in blocks for line in block.lines()] == lines
        assert blocks[0].start == 0
        assert blocks[-1].end == path.stat().st_size
        before = 0
        for block, following in zip(blocks, [*blocks[1:], None], strict=True):
            assert block.count_lines_before() == before
            before += len(list(block.lines()))
            if following is not None:
                assert block.end == following.start >= block.start + min(size, 1)
    assert len(cut_file(path, 200)) == pytest.approx(path.stat().st_size / 200, abs=1)


def test_cut_file_packed_and_empty_files_are_one_block(tmp_path: Path) -> None:
    """A packed file is one block, as it cannot be read from the middle."""
    packed, empty = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl"
    packed.write_bytes(gzip.compress(b"one\ntwo\n" * 100))
    empty.touch()
    [block] = cut_file(packed, 10)
    assert list(block.lines()) == [b"one\n", b"two\n"] * 100
    [block] = cut_file(empty, 10)
    assert list(block.lines()) == []


def test_Block_lines_of_a_file_that_has_changed(tmp_path: Path) -> None:
    """A file that changed since it was split is refused after it is read."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\ntwo\n")
    [block] = cut_file(path, 100)
    path.write_bytes(b"one\ntwo\nthree\n")
    with pytest.raises(CorpusError) as caught:
        list(block.lines())
    assert str(caught.value) == (
        f"The documents must stay as they are while they are read, but '{path}' changed; start "
        f"again when nothing writes there."
    )
    path.unlink()
    with pytest.raises(CorpusError, match=f"but '{path}' changed; start again"):
        block._check_unchanged()


def test_Block_lines_too_long_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is too long is named by its number in the file, if it is counted."""
    monkeypatch.setenv("MATCH_GRAPH_MAX_RECORD_MIB", "1")
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"one\ntwo\n" + b"x" * 2**21 + b"\nfour\n")
    block = cut_file(path, 8)[1]
    assert block.start == 8
    with pytest.raises(CorpusError, match=r"^a\.jsonl:3: a line must have at most 1 MiB"):
        list(block.lines(1 + block.count_lines_before()))
