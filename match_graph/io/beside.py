"""Atomic writing: files and folders are written beside their place and renamed."""

import glob
import hashlib
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from match_graph.errors import MatchGraphError

#: Bytes of a name up to which it stands in that of a temporary file.
_LONGEST = 160


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Temporary path beside a file or folder, renamed to it at the end of the block.

    It lies in a folder of the same disk that has a random name and that nobody else may enter, so
    that nobody can put a link there. Afterwards it is gone; what a killed process left is removed
    by `remove_dead` and `remove_leftovers`.

    Args:
        path: Final path of the file or folder; its parent is made if need be.

    Raises:
        OSError: The disk refuses, within the block too; names ``path``, whatever wrote. Where the
            block could not read another file, it names that one.
    """
    room: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_dead(path)
        prefix = f".{_shorten(path.name)}."
        room = Path(tempfile.mkdtemp(f".{name_process()}.tmp", prefix, path.parent))
        yield room / path.name
    except MatchGraphError:
        raise
    except Exception as error:
        number = find_errno(error)
        if number is None or _is_of_other_file(error, room):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        if room is not None:
            shutil.rmtree(room, ignore_errors=True)


def _is_of_other_file(error: Exception, room: Path | None) -> bool:
    """True for an `OSError` about a file outside of the temporary folder ``room``."""
    name = error.filename if isinstance(error, OSError) else None
    if room is None or not isinstance(name, str):
        return False
    return not Path(name).resolve().is_relative_to(room.resolve())


def find_errno(error: BaseException | None) -> int | None:
    """Error number of a disk fault; torch hides it in the context, safetensors in text."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        if found := re.search(r"\bos error (\d+)", str(error)):
            return int(found[1])
        hidden = error.__suppress_context__  # by "from None": the context is not its reason
        error = error.__cause__ or (None if hidden else error.__context__)
    return None


def finish(path: Path) -> None:
    """Flushes a file, or all files of a folder, to the disk with the permissions of umask.

    safetensors and others make files that their owner alone may read.
    """
    probe = _name_temporary(path)
    try:
        with probe.open("xb") as opened:
            mode = os.fstat(opened.fileno()).st_mode & 0o777
    finally:
        probe.unlink(missing_ok=True)
    for file in [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]:
        found = file.stat()
        if found.st_mode & 0o777 != mode and found.st_nlink == 1:  # another name: not ours alone
            file.chmod(mode)
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def put_in_place(place: Path, out: Path) -> None:
    """Renames a folder into its place; the folder that was there comes back if that fails.

    Where a process is killed between both renames, the old folder stays beside its place, hidden as
    ``.NAME.*.old``, until another one is in place.
    """
    if out.is_dir():
        old = Path(
            tempfile.mkdtemp(f".{name_process()}.old", f".{_shorten(out.name)}.", out.parent)
        )
        try:
            out.rename(old)
        except BaseException:
            old.rmdir()
            raise
        try:
            place.rename(out)
        except BaseException:
            old.rename(out)
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        place.rename(out)
    remove_dead(out, "old")


@contextmanager
def renamed(path: Path) -> Iterator[Path]:
    """Temporary path beside a file, renamed to it at the end without being flushed to the disk.

    Who has the old file open goes on with it. Two processes may write one file, both the same
    bytes: one that was thought to be lost.
    """
    place = _name_temporary(path)
    try:
        yield place
        place.replace(path)
    except BaseException:
        with suppress(OSError):
            place.unlink(missing_ok=True)
        raise


def write_text_beside(path: Path, text: str) -> None:
    """Writes UTF-8 text atomically, with the permissions of umask.

    Raises:
        OSError: The disk refuses; names ``path``.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_dead(path)
        # "x" refuses a link that somebody put there
        with renamed(path) as place, place.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _name_temporary(path: Path) -> Path:
    """Random name beside a file, as `remove_dead` finds it."""
    name = f".{_shorten(path.name)}.{secrets.token_hex(4)}.{name_process()}.tmp"
    return path.with_name(name)


def _shorten(name: str) -> str:
    """A name that leaves room for more, as file systems take 255 bytes; of a long one its hash."""
    content = os.fsencode(name)
    return name if len(content) <= _LONGEST else hashlib.sha256(content).hexdigest()[:32]


def is_temporary(path: Path) -> bool:
    """True for the name of a temporary file, as `beside` gives it."""
    return path.name.startswith(".") and path.suffix == ".tmp"


def remove_leftovers(folder: Path) -> None:
    """Deletes temporary files that killed processes of this machine left below a folder."""
    _remove_all_dead(folder.rglob(".*.tmp"))


def remove_dead(path: Path, ending: str = "tmp") -> None:
    """Deletes temporary files that killed processes of this machine left beside a path."""
    _remove_all_dead(path.parent.glob(f".{glob.escape(_shorten(path.name))}.*.{ending}"))


def _remove_all_dead(paths: Iterable[Path]) -> None:
    for path in list(paths):
        process, _, machine = path.name.split(".")[-2].partition("@")
        if machine != _find_machine() or not process.isdecimal() or _is_alive(int(process)):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def name_process(process: int | None = None) -> str:
    """Name of a process of this machine, or of this one, among those of all that share a disk."""
    return f"{os.getpid() if process is None else process}@{_find_machine()}"


@cache
def _find_machine() -> str:
    """Name of what numbers processes: a machine, or a container on it; 8 digits."""
    with suppress(OSError):
        numbers = Path("/proc/self/ns/pid").stat().st_ino
        return hashlib.sha256(f"{socket.gethostname()} {numbers}".encode()).hexdigest()[:8]
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass
    try:  # one that has ended and that nobody has asked about is still listed
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return state.rpartition(")")[2].split()[0] != "Z"
