"""Raw files as lines or streams, plain or gzip, with progress by bytes read.

The memory of a reader is bounded, so that a small file that unpacks to gigabytes is refused: a
record (a line, a row of CSV, a stanza, a record of XML) has at most 16 MiB, or as many as the
environment variable ``MATCH_GRAPH_MAX_RECORD_MIB`` says; a file has at most a million blank lines
more than others.
"""

import errno
import gzip
import hashlib
import io
import math
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, TypeAlias

from match_graph.errors import CorpusError

#: Called with what is done so far and a short text.
Advance: TypeAlias = Callable[[int, str], None]
#: (name, total, unit) -> a context that gives `Advance`; ``Reporter.track`` is one.
Track: TypeAlias = Callable[[str, int, str], AbstractContextManager[Advance]]

#: Exceptions of a gzip file that is truncated, damaged, or of another format.
GZIP_FAULTS = (EOFError, gzip.BadGzipFile, zlib.error)

#: Excess of blank lines over others that a file may have: a bound on time.
MAX_BLANK_LINES = 1_000_000

_SETTLED = 2.0  # seconds after a change from which timestamps show the next one
_MEGABYTE = 1_000_000
_LINES = 256  # between two updates of the progress
_BUFFER = 1 << 20  # bytes


class Sources:
    """Raw files, opened one after another; made by `open_sources`.

    Args:
        advance: Called with the megabytes read so far, over all files and before unpacking.
    """

    def __init__(self, advance: Advance) -> None:
        self._advance = advance
        self._done = 0  # bytes of the files that are read to the end

    @contextmanager
    def stream(
        self, path: Path, start: int = 0, end: int | None = None
    ) -> Iterator[tuple[BinaryIO, Callable[[], None]]]:
        """Opens a file, unpacked where its name ends in ``.gz``; also yields a progress callback.

        The callback is cheap enough for every record of a file, not for every line.

        Args:
            path: Path of the file.
            start: Byte at which to begin; 0 for a packed file.
            end: Byte before which the caller stops; None reads to the end.

        Raises:
            CorpusError: It is no regular file that can be read.
        """
        with open_regular(path) as raw:
            raw.seek(start)

            def report() -> None:
                self._advance((self._done + raw.tell() - start) // _MEGABYTE, path.name)

            if is_packed(path):
                with gzip.GzipFile(fileobj=raw) as packed:
                    yield io.BufferedReader(packed, _BUFFER), report
            else:
                yield raw, report
            self._done += (os.fstat(raw.fileno()).st_size if end is None else end) - start

    def lines(
        self, path: Path, start: int = 0, end: int | None = None, first: int = 1
    ) -> Iterator[bytes]:
        """A file's lines, each with its line break.

        Args:
            path: Path of the file.
            start: Byte at which a line starts.
            end: Byte behind the last line to read; None reads to the end of the file.
            first: Number of the line at ``start``.

        Raises:
            CorpusError: It cannot be read, is a damaged gzip file, or a line is too long; with
                file:line.
        """
        number, most = first - 1, None if end is None else end - start
        with self.stream(path, start, end) as (stream, report):
            try:
                lines = bounded_lines(stream, path.name, first, most)
                for number, line in enumerate(lines, start=first):
                    if not number % _LINES:
                        report()
                    yield line
            except GZIP_FAULTS as error:
                raise broken_gzip(f"{path.name}:{number + 1}", error) from error

    def read_whole(self, path: Path, what: str) -> bytes:
        """Reads a small file whole.

        Args:
            path: Path of the file.
            what: Noun of its content, for the message.

        Raises:
            CorpusError: It cannot be read, is a damaged gzip file, or is larger than
                `max_record_bytes`.
        """
        with self.stream(path) as (stream, report):
            try:
                content = stream.read(max_record_bytes() + 1)
            except GZIP_FAULTS as error:
                raise broken_gzip(f"{path.name}:1", error) from error
            report()
        if len(content) > max_record_bytes():
            raise too_long(path.name, what)
        return content

    def skip(self, num_bytes: int) -> None:
        """Counts bytes as read, of a part that needs no reading."""
        self._done += num_bytes
        self._advance(self._done // _MEGABYTE, "")


def max_record_bytes() -> int:
    """Largest size in bytes of a line, a row, a stanza or an XML record.

    Raises:
        CorpusError: ``MATCH_GRAPH_MAX_RECORD_MIB`` is no whole number from 1 to 65,536.
    """
    value = os.environ.get("MATCH_GRAPH_MAX_RECORD_MIB") or "16"
    if not (value.isascii() and value.isdecimal() and len(value) < 6 and 0 < int(value) <= 65536):
        raise CorpusError(
            f"MATCH_GRAPH_MAX_RECORD_MIB must be a whole number of MiB from 1 to 65,536, "
            f"found '{value[:60]}'; set another, or unset it for 16."
        )
    return int(value) << 20


def too_long(place: str, what: str) -> CorpusError:
    """Error for a record that is larger than `max_record_bytes`."""
    return CorpusError(
        f"{place}: {what} must have at most {max_record_bytes() >> 20} MiB, but this one has more; "
        f"mend the file, or set MATCH_GRAPH_MAX_RECORD_MIB."
    )


def bounded_lines(
    stream: BinaryIO, name: str, first: int = 1, size: int | None = None
) -> Iterator[bytes]:
    """The lines of a stream.

    Args:
        stream: Binary stream.
        name: Name of the file, for places.
        first: Number of the first line.
        size: Bytes after which to stop; None reads to the end.

    Raises:
        CorpusError: A line is longer than `max_record_bytes`, or too many are blank.
    """
    most, num_blank, left = max_record_bytes(), 0, math.inf if size is None else size
    for number, line in enumerate(iter(lambda: stream.readline(most + 1), b""), start=first):
        if len(line) > most:
            raise too_long(f"{name}:{number}", "a line")
        num_blank += 1 if line.isspace() else -1  # less the others
        if num_blank > MAX_BLANK_LINES:
            raise CorpusError(
                f"{name}:{number}: a file must have at most {MAX_BLANK_LINES:,} blank lines more "
                f"than others, but this one has more; remove them."
            )
        yield line
        left -= len(line)
        if left <= 0:
            return


class BoundedStream(io.RawIOBase):
    """Stream of records, each of at most `max_record_bytes`.

    Args:
        stream: Binary stream.
        fail: Makes the error for a record that is too large.
    """

    def __init__(self, stream: BinaryIO, fail: Callable[[], CorpusError]) -> None:
        super().__init__()
        self._stream, self._fail, self._most = stream, fail, max_record_bytes()
        self._count = 0

    def end_record(self) -> None:
        """Marks the end of a record."""
        self._count = 0

    def read(self, size: int = -1, /) -> bytes:
        """Reads some bytes."""
        if self._count > self._most:
            raise self._fail()
        content = self._stream.read(size)
        self._count += len(content)
        return content


def open_regular(path: Path) -> io.BufferedReader:
    """Opens a regular file; pipes and devices, which could block or never end, are refused.

    Raises:
        CorpusError: It is not a regular file, or cannot be read.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(number)
            if not stat.S_ISREG(found.st_mode):
                kind = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
                raise OSError(
                    kind, "Is a directory" if kind == errno.EISDIR else "a pipe or device"
                )
            return os.fdopen(number, "rb")
        except BaseException:
            os.close(number)
            raise
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> CorpusError:
    """Error for a file that cannot be opened."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return CorpusError(
        f"Data are read from regular files, but {str(path)!a} is none that can be read "
        f"({reason}); check the path."
    )


def is_there(path: Path) -> bool:
    """Whether a path exists, if only as a broken link, which reading then refuses."""
    try:
        return os.path.lexists(path)
    except ValueError:  # a NUL in the name
        return False


def is_folder(path: str | Path) -> bool:
    """Whether a path is a folder; False also where it is invalid or may not be seen."""
    try:
        return Path(path).is_dir()
    except OSError:  # a name that is too long, a folder above that may not be read
        return False


def resolve_path(path: str | Path) -> Path:
    """Absolute path without links.

    Raises:
        CorpusError: Its links form a cycle, or it holds a NUL.
    """
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        reason = "its links lead in a circle" if isinstance(error, RuntimeError) else error
        raise CorpusError(
            f"A path must lead to a place, but {str(path)!a} does not ({reason}); check it."
        ) from error


@contextmanager
def open_sources(paths: Sequence[Path], name: str, track: Track | None) -> Iterator[Sources]:
    """Opens files for reading, with progress over all of them.

    Args:
        paths: Paths of all files that will be read; missing ones count nothing.
        name: Display name of the data set.
        track: Progress tracker; None shows none.
    """
    total = sum(path.stat().st_size for path in paths if path.is_file())
    shown = (
        nullcontext(_ignore) if track is None else track(f"read {name}", total // _MEGABYTE, "MB")
    )
    with shown as advance:
        yield Sources(advance)


def _ignore(_done: int, _text: str) -> None:
    """Progress tracker that shows nothing."""


def broken_gzip(place: str, error: Exception) -> CorpusError:
    """Error for a gzip file that cannot be unpacked to its end."""
    reason = str(error).rstrip(".")
    return CorpusError(
        f"{place}: a file named .gz must be whole and packed by gzip, but from here on it cannot "
        f"be read ({reason}); fetch it again."
    )


def is_packed(path: Path) -> bool:
    """Whether a file is packed by gzip, as its name says."""
    return path.suffix.lower() == ".gz"


def find_files(path: Path, suffixes: tuple[str, ...], dataset: str) -> list[Path]:
    """Files of a user's data set, sorted by name.

    Args:
        path: Path of a file, or of a folder whose files with one of the suffixes count.
        suffixes: File suffixes, such as ``.xml``; each also with ``.gz`` behind it, and in
            capitals.
        dataset: Registered name of the data set, for the message.

    Raises:
        CorpusError: There is none.
    """
    if is_there(path) and not is_folder(path):
        open_regular(path).close()
        return [path]
    endings = tuple(f"{suffix}{packed}" for suffix in suffixes for packed in ("", ".gz"))
    try:
        there = path.iterdir() if is_folder(path) else ()
        found = sorted(file for file in there if file.name.lower().endswith(endings))
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    files = [file for file in found if not file.is_dir()]
    for file in files:
        if not file.is_file():  # a link to nothing, a pipe: not to be passed over
            open_regular(file).close()
    if not files:
        raise CorpusError(
            f"The data set '{dataset}' reads files of yours ({', '.join(endings)}), but there is "
            f"none at '{path}'; put them there, or name a file or a folder with "
            f"--set data.options.path=PATH."
        )
    return files


class Snapshot:
    """State of files at one time: their SHA-256, and the metadata that show later changes.

    A file of the same inode, size and timestamps is unchanged. As the resolution of timestamps is
    coarse, a file that was modified just before it was hashed is hashed again.

    Args:
        paths: Paths of the files.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._keys = {path: _identify(path) for path in paths}
        self._are_settled = {
            path: time.time() - max(key[3:]) / 1e9 > _SETTLED for path, key in self._keys.items()
        }
        self.hashes = {path: hash_file(path) for path in self._keys}

    def name_hashes(self) -> dict[str, str]:
        """SHA-256 by file name; equal names from several folders are numbered."""
        named: dict[str, str] = {}
        for path, digest in self.hashes.items():
            name, number = Path(path).name, 2
            while name in named:
                name, number = f"{Path(path).name} ({number})", number + 1
            named[name] = digest
        return named

    def check_unchanged(self, paths: Iterable[str]) -> None:
        """Checks that the paths are those of the snapshot, and their files as they were.

        Raises:
            CorpusError: A file was replaced or changed.
        """
        now = {path: _identify(path) for path in paths}
        for path in sorted(self._keys.keys() | now.keys()):
            if self._keys.get(path) != now.get(path) or (
                not self._are_settled[path] and hash_file(path) != self.hashes[path]
            ):
                raise CorpusError(
                    f"The files of a data set must stay as they are while it is built, but "
                    f"'{path}' changed; build again when nothing writes there."
                )


def _identify(path: str | Path) -> tuple[int, ...]:
    """Device, inode, size, and times of the last changes of content and inode in nanoseconds."""
    with open_regular(Path(path)) as file:
        seen = os.fstat(file.fileno())
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def hash_file(path: str | Path) -> str:
    """SHA-256 of a file's content, as hexadecimal digits."""
    with open_regular(Path(path)) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
