"""Partitions of raw files: a whole file, or a block of the lines of a large one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from match_graph.io.source import Sources, is_packed, max_record_bytes, open_regular

#: Bytes of a block of lines, if no line is longer. It is no setting, as a build depends on the
#: files alone.
BLOCK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Partition:
    """Part of a raw file that is read independently of the others.

    Args:
        path: Path of the file.
        kind: Kind of content, for the reader.
        start: Offset of its first byte.
        end: Offset behind its last byte; None is the end of the file.
        line: Number of its first line.
    """

    path: Path
    kind: str = "documents"
    start: int = 0
    end: int | None = None
    line: int = 1

    @property
    def num_bytes(self) -> int:
        """Size in bytes, before unpacking; 0 where there is no such file."""
        if self.end is not None:
            return self.end - self.start
        return self.path.stat().st_size - self.start if self.path.is_file() else 0

    def lines(self, sources: Sources) -> Iterator[bytes]:
        """Lines of the partition."""
        return sources.lines(self.path, self.start, self.end, self.line)


def split_lines(path: Path, kind: str = "documents", size: int | None = None) -> list[Partition]:
    """Splits a file into blocks of whole lines; a small or a packed one is a single block.

    Args:
        path: Path of the file.
        kind: Kind of the partitions.
        size: Bytes of a block, extended to the end of its last line; None makes one block.

    Raises:
        CorpusError: It is no regular file that can be read.
    """
    if size is None or is_packed(path) or not path.is_file() or path.stat().st_size <= size:
        return [Partition(path, kind)]
    parts, start, line, most = [], 0, 1, max_record_bytes()
    with open_regular(path) as file:
        # a line that is too long is split here, and a fault of the block in which it starts
        while block := file.read(size - 1) + file.readline(most + 1):
            parts.append(Partition(path, kind, start, file.tell(), line))
            start, line = file.tell(), line + block.count(b"\n")
    return parts
