"""Safe extraction of archives: nothing outside the folder, no links, no absolute paths."""

import errno
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, NamedTuple, TypeAlias

from match_graph.errors import CorpusError
from match_graph.io.beside import beside
from match_graph.io.source import open_regular

SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar")

#: Maps a member's path to a path below the target folder; None leaves the member out.
Choose: TypeAlias = Callable[[PurePosixPath], PurePosixPath | None]

#: Limit on the total size of the chosen files in GiB, unless MATCH_GRAPH_MAX_ARCHIVE_GIB is set.
MAX_ARCHIVE_GIB = 64

_CHUNK = 1 << 20  # bytes
_MAX_HEADER = 1 << 20  # bytes of a long name or of extended attributes in a tar archive
#: Error numbers of a full disk, an exhausted quota and a limit on the size of files.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Types of tar members of whose content tarfile reads nothing while it lists them.
_PLAIN_TYPES = {*tarfile.SUPPORTED_TYPES} - {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
_MAX_MEMBERS = 10**6  # the description of each is kept in memory
#: Exceptions of zipfile and tarfile; RuntimeError for encryption and for nested headers.
_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, RuntimeError, ValueError),
)


class _Member(NamedTuple):
    name: str
    size: int
    is_file: bool
    is_folder: bool
    open: Callable[[], IO[bytes] | None]


def list_archives(folder: Path) -> list[Path]:
    """Archives in a folder."""
    return [path for path in sorted(folder.glob("*")) if path.name.endswith(SUFFIXES)]


def unpack_archive(archive: Path, folder: Path, choose: Choose) -> list[Path]:
    """Extracts files of a zip or tar archive, each written atomically.

    Args:
        archive: Zip or tar archive, of one of the `SUFFIXES`.
        folder: Target folder, made if need be.
        choose: Maps a member's name to its target, or to None to leave it out.

    Returns:
        Paths of the extracted files.

    Raises:
        CorpusError: It is damaged, some member of it (chosen or not) is a link, a device or lies
            outside the folder, or the disk has no room for the chosen ones. Then nothing was
            written, or, where damage shows late, only complete files.
    """
    try:
        with _open_archive(archive) as members:
            chosen = _choose_members(archive, members, choose)
            need = sum(member.size for member, _ in chosen)
            most = _max_archive_gib()
            if need > most << 30:
                raise CorpusError(
                    f"The files of '{archive.name}' may have {most:,} GiB together, but they need "
                    f"{need:,} bytes; if the archive is what it should be, set "
                    f"MATCH_GRAPH_MAX_ARCHIVE_GIB."
                )
            folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(folder).free
            if need > free:
                raise CorpusError(
                    f"The files of '{archive.name}' need {need:,} bytes, but '{folder}' has room "
                    f"for {free:,}; make room, or choose another root (--root)."
                )
            return [_write(member, folder / target) for member, target in chosen]
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise CorpusError(
                f"The files of '{archive.name}' must fit on the disk, but in '{folder}' there is "
                f"no room ({error.strerror}); make room, or choose another root (--root)."
            ) from error
        raise CorpusError(
            f"An archive must be whole, but '{archive}' cannot be unpacked ({error}); "
            f"delete it and fetch it again."
        ) from error


def _max_archive_gib() -> int:
    value = os.environ.get("MATCH_GRAPH_MAX_ARCHIVE_GIB") or str(MAX_ARCHIVE_GIB)
    if not (value.isascii() and value.isdecimal() and len(value) < 7):
        raise CorpusError(
            f"MATCH_GRAPH_MAX_ARCHIVE_GIB must be a whole number of GiB, found '{value[:60]}'; set "
            f"another, or unset it for {MAX_ARCHIVE_GIB}."
        )
    return int(value)


class _BoundedHeader(tarfile.TarInfo):
    """Tar member with a bound on its headers, which tarfile reads into memory.

    A negative size, which headers and extended attributes may claim, is refused: tarfile would read
    the same position for ever.
    """

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        _check_size(self)
        if self.type not in _PLAIN_TYPES and self.size > _MAX_HEADER:
            raise CorpusError(
                f"A name or an attribute in an archive must have at most {_MAX_HEADER:,} bytes, "
                f"found {self.size:,}; do not use this archive."
            )
        found: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
        _check_size(found)
        return found


def _check_size(member: tarfile.TarInfo) -> None:
    if member.size < 0:
        raise CorpusError(
            f"A member of an archive must have a size of 0 or more, but '{member.name[:60]}' has "
            f"{member.size:,} bytes; do not use this archive."
        )


@contextmanager
def _open_archive(path: Path) -> Iterator[list[_Member]]:
    if path.name.endswith(".zip"):
        with open_regular(path) as file, zipfile.ZipFile(file) as packed:
            yield [
                _Member(
                    info.filename,
                    info.file_size,
                    not info.is_dir() and (info.external_attr >> 28) in (0, 0o10),
                    info.is_dir(),
                    lambda info=info: packed.open(info),  # type: ignore[misc]
                )
                for info in packed.infolist()
            ]
    else:
        with (
            open_regular(path) as file,
            tarfile.open(fileobj=file, tarinfo=_BoundedHeader) as packed_tar,
        ):
            found = [*islice(packed_tar, _MAX_MEMBERS + 1)]
            if len(found) > _MAX_MEMBERS:
                raise CorpusError(
                    f"An archive must have at most {_MAX_MEMBERS:,} members, but '{path}' has "
                    f"more; do not use it."
                )
            assert packed_tar.fileobj is not None
            while packed_tar.fileobj.read(_CHUNK):
                pass  # to the end, where gzip verifies its checksum
            yield [
                _Member(
                    info.name,
                    info.size,
                    info.isfile(),
                    info.isdir(),
                    lambda info=info: packed_tar.extractfile(info),  # type: ignore[misc]
                )
                for info in found
            ]


def _choose_members(
    archive: Path, members: list[_Member], choose: Choose
) -> list[tuple[_Member, PurePosixPath]]:
    """The chosen files with their targets, after a check of every member."""
    chosen = []
    for member in members:
        path = PurePosixPath(member.name)
        reason = _find_danger(member, path)
        if reason:
            raise CorpusError(
                f"An archive must hold files and folders below its own folder, but "
                f"'{member.name}' of '{archive}' {reason}; do not use this archive."
            )
        target = choose(path) if member.is_file else None
        if target is not None:
            chosen.append((member, target))
    return chosen


def _find_danger(member: _Member, path: PurePosixPath) -> str:
    if path.is_absolute() or PureWindowsPath(member.name).anchor:
        return "is an absolute path"
    if ".." in path.parts or ".." in PureWindowsPath(member.name).parts:
        return "leads out of it"
    if not member.is_file and not member.is_folder:
        return "is a link or a device"
    return ""


def _write(member: _Member, target: Path) -> Path:
    source = member.open()
    assert source is not None
    with source, beside(target) as place:
        with place.open("wb") as file:
            shutil.copyfileobj(source, file)
        place.replace(target)
    return target
