"""Raw files as lines or streams, plain or gzip, with progress by how much of them is read."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, TypeAlias

from match_graph.errors import CorpusError

#: Called with what is done so far and a short text.
Advance: TypeAlias = Callable[[int, str], None]
#: (name, total, unit) -> a context that gives `Advance`; ``Reporter.track`` is one.
Track: TypeAlias = Callable[[str, int, str], AbstractContextManager[Advance]]

#: What a gzip file raises that breaks off, is damaged, or is something else.
GZIP_FAULTS = (EOFError, gzip.BadGzipFile, zlib.error)

_MEGABYTE = 1_000_000
_LINES = 256  # between two looks at how much is read
_BUFFER = 1 << 20  # bytes


class Sources:
    """Raw files, opened one after another; made by `open_sources`.

    Args:
        advance: Called with the megabytes read so far, of all files and as they lie on the disk.
    """

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._done = 0  # bytes of the files that are read to the end

    @contextmanager
    def stream(self, path: Path) -> Iterator[tuple[BinaryIO, Callable[[], None]]]:
        """A file's content, unpacked where its name ends in ``.gz``, and a function for progress.

        The function is cheap enough for every record of a file, not for every line.
        """
        with path.open("rb") as raw:

            def look() -> None:
                self._advance((self._done + raw.tell()) // _MEGABYTE, path.name)

            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw) as packed:
                    yield io.BufferedReader(packed, _BUFFER), look
            else:
                yield raw, look
            self._done += path.stat().st_size

    def lines(self, path: Path) -> Iterator[bytes]:
        """A file's lines, each with its line break.

        Raises:
            CorpusError: It is a damaged gzip file; with file:line.
        """
        number = 0
        with self.stream(path) as (stream, look):
            try:
                for number, line in enumerate(stream, start=1):
                    if not number % _LINES:
                        look()
                    yield line
            except GZIP_FAULTS as error:
                raise broken_gzip(f"{path.name}:{number + 1}", error) from error


@contextmanager
def open_sources(paths: Sequence[Path], name: str, track: Track | None) -> Iterator[Sources]:
    """Files to be read, with progress over all of them.

    Args:
        paths: Every file that will be read; those that are missing count nothing.
        name: Of the data set, for people.
        track: Shows progress; None shows none.
    """
    total = sum(path.stat().st_size for path in paths if path.is_file())
    shown = (
        nullcontext(_ignore) if track is None else track(f"read {name}", total // _MEGABYTE, "MB")
    )
    with shown as advance:
        yield Sources(advance)


def _ignore(_done: int, _text: str) -> None:
    """Progress that nobody sees."""


def broken_gzip(place: str, error: Exception) -> CorpusError:
    """The error of a gzip file that cannot be unpacked to its end."""
    reason = str(error).rstrip(".")
    return CorpusError(
        f"{place}: a file named .gz must be whole and packed by gzip, but from here on it cannot "
        f"be read ({reason}); fetch it again."
    )


def find_files(path: Path, suffixes: tuple[str, ...], dataset: str) -> list[Path]:
    """The files of a data set that its user puts somewhere, in the order of their names.

    Args:
        path: A file, or a folder of which the files with one of the suffixes count.
        suffixes: Such as ``.xml``; each also with ``.gz`` behind it.
        dataset: Registered name, for the message.

    Raises:
        CorpusError: There is none.
    """
    if path.is_file():
        return [path]
    endings = tuple(f"{suffix}{packed}" for suffix in suffixes for packed in ("", ".gz"))
    files = sorted(
        file for file in path.glob("*") if file.name.endswith(endings) and file.is_file()
    )
    if not files:
        raise CorpusError(
            f"The data set '{dataset}' reads files of yours ({', '.join(endings)}), but there is "
            f"none at '{path}'; put them there, or name a file or a folder with "
            f"--set data.options.path=PATH."
        )
    return files
