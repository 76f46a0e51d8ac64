"""Input files of predictions and evaluations, cut into blocks of lines."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from match_graph.errors import CorpusError
from match_graph.io.csv_lines import find_delimiter
from match_graph.io.line_blocks import Block, cut_file
from match_graph.predict.documents import read_rows

_KINDS = (".jsonl", ".csv", ".tsv")
#: Suffixes of the files of a folder that are read, also in capitals.
SUFFIXES = tuple(kind + packed for kind in _KINDS for packed in ("", ".gz"))
#: Suffix of a file that the name of its results leaves out.
_SUFFIX = re.compile(rf"({'|'.join(map(re.escape, _KINDS))})?(\.gz)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Input:
    """A file of documents.

    Args:
        name: Name of the file without its suffix, one of `SUFFIXES`; unique among the inputs.
        blocks: Its lines, in order; of CSV one block, as a cell may hold line breaks.
    """

    name: str
    blocks: tuple[Block, ...]

    @property
    def path(self) -> Path:
        """Absolute path of the file."""
        return self.blocks[0].path

    def describe(self) -> dict[str, Any]:
        """Path, size, time and blocks of the file; results of others are outdated."""
        first = self.blocks[0]
        return {
            "input": str(first.path),
            "bytes": first.file_bytes,
            "modified_ns": first.modified,
            "blocks": len(self.blocks),
        }


def find_inputs(sources: Sequence[str | Path], block_bytes: int) -> list[Input]:
    """Inputs in the order given, those of a folder by name.

    Args:
        sources: Paths of files of JSON lines, or of CSV by their suffix, packed by gzip where they
            end in ``.gz``, and of folders, of which `SUFFIXES` count.
        block_bytes: Size of blocks, as for `cut_file`.

    Raises:
        CorpusError: There is none, one cannot be read, or two have the same name.
    """
    paths = [path for source in sources for path in _list_files(Path(source))]
    found: dict[str, Input] = {}
    for path in paths:
        name = _SUFFIX.sub("", path.name)
        if name in found:
            raise CorpusError(
                f"Each file of documents must have a name of its own, as its results get it, but "
                f"'{found[name].path}' and '{path}' are both '{name}'; rename one."
            )
        size = block_bytes if find_delimiter(path) is None else sys.maxsize
        found[name] = Input(name, tuple(cut_file(path.absolute(), size)))
    return list(found.values())


def _list_files(source: Path) -> list[Path]:
    try:
        if not source.is_dir():
            return [source]
        files = sorted(path for path in source.iterdir() if path.name.lower().endswith(SUFFIXES))
    except (OSError, ValueError) as error:
        raise CorpusError(
            f"The documents must be files or folders that can be read, but {str(source)!r} cannot "
            f"({error.strerror if isinstance(error, OSError) else error}); check the path."
        ) from error
    if not files:
        raise CorpusError(
            f"A folder of documents must hold files that end in {', '.join(_KINDS)} or these with "
            f".gz, but '{source}' has none; name the files one by one."
        )
    return files


def read_documents(block: Block, first: int | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file:line, document) of each line of a block that is not blank, or each row of CSV.

    Args:
        block: Block to read.
        first: Number of its first line in the file; None where nobody has counted, and places are
            wrong unless the block is the file's first.

    Raises:
        CorpusError: A line is no JSON object, a row no CSV, or the file cannot be read.
    """
    first = first or (2 if block.start else 1)  # 1 may have a byte order mark
    return read_rows(block.lines(first), block.path, first)
