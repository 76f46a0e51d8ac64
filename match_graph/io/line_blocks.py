"""Blocks of a file, split at line ends and read independently, without counting lines.

Line numbers, which `match_graph.io.partition` counts as it splits, are counted here only where a
message names a line.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from match_graph.errors import CorpusError
from match_graph.io.source import is_packed, max_record_bytes, open_regular, open_sources

_CHUNK = 1 << 20  # bytes


@dataclass(frozen=True)
class Block:
    """Lines of a file that start within a range of its bytes.

    Args:
        path: Path of the file; one that ends in ``.gz`` is one block.
        start: Offset of the first line in bytes.
        end: Offset behind the last line in bytes.
        file_bytes: Size of the file when it was split.
        modified: Its modification time then, in nanoseconds.
    """

    path: Path
    start: int
    end: int
    file_bytes: int
    modified: int

    @property
    def num_bytes(self) -> int:
        """Size in bytes, before unpacking."""
        return self.end - self.start

    def lines(self, first: int = 1) -> Iterator[bytes]:
        """Lines of the block, unpacked.

        Args:
            first: Number of the first line in the file, for messages; see `count_lines_before`.

        Raises:
            CorpusError: The file cannot be read, a line is too long, or the file has changed since
                it was split.
        """
        end = None if is_packed(self.path) else self.end
        with open_sources([self.path], self.path.name, None) as sources:
            if self.start != end:
                yield from sources.lines(self.path, self.start, end, first)
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        found = self.path.stat() if self.path.exists() else None
        if found is None or (found.st_size, found.st_mtime_ns) != (self.file_bytes, self.modified):
            raise CorpusError(
                f"The documents must stay as they are while they are read, but '{self.path}' "
                f"changed; start again when nothing writes there."
            )

    def count_lines_before(self) -> int:
        """Number of lines of the file before the block; reads the file up to there."""
        count, left = 0, self.start
        with open_regular(self.path) as file:
            while left and (chunk := file.read(min(_CHUNK, left))):
                count += chunk.count(b"\n")
                left -= len(chunk)
        return count


def cut_file(path: Path, block_bytes: int) -> list[Block]:
    """Splits a file at line ends into blocks of about equal size; reads one line for each.

    Args:
        path: Path of a regular file.
        block_bytes: Least distance between the starts of two blocks.

    Returns:
        At least one block; together they hold all lines of the file.

    Raises:
        CorpusError: It is no regular file that can be read.
    """
    with open_regular(path) as file:
        found = os.fstat(file.fileno())
        starts, most = [0], max_record_bytes()
        places = range(block_bytes, found.st_size, block_bytes) if not is_packed(path) else ()
        for place in places:
            if place <= starts[-1]:
                continue
            file.seek(place - 1)
            file.readline(most + 1)  # a longer one is a fault of the block in which it starts
            if starts[-1] < file.tell() < found.st_size:
                starts.append(file.tell())
    ends = [*starts[1:], found.st_size]
    return [
        Block(path, start, end, found.st_size, found.st_mtime_ns)
        for start, end in zip(starts, ends, strict=True)
    ]
