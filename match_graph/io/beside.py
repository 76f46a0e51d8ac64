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

#: Longest name in bytes that the name of a temporary file contains.
_LONGEST = 160


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Temporary path beside a file or folder, renamed to it at the end of the block.

    It lies in a temporary folder on the same disk with a random name and permissions of the owner
    alone, so that nobody else can put a link there. The folder is removed after the block; that of
    a killed process is removed by `remove_dead` and `remove_leftovers`.

    Args:
        path: Final path of the file or folder; its parent is made if need be.

    Raises:
        OSError: The disk refuses, within the block too; names ``path``, whichever library wrote.
            Where the block could not read another file, it names that one.
    """
    folder: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_dead(path)
        prefix = f".{_shorten(path.name)}."
        folder = Path(tempfile.mkdtemp(f".{name_process()}.tmp", prefix, path.parent))
        yield folder / path.name
    except MatchGraphError:
        raise
    except Exception as error:
        number = find_errno(error)
        if number is None or _is_of_other_file(error, folder):
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _is_of_other_file(error: Exception, folder: Path | None) -> bool:
    """True for an `OSError` about a file outside of a temporary folder."""
    name = error.filename if isinstance(error, OSError) else None
    if folder is None or not isinstance(name, str):
        return False
    return not Path(name).resolve().is_relative_to(folder.resolve())


def find_errno(error: BaseException | None) -> int | None:
    """``errno`` of a disk fault; torch hides it in the exception's context, safetensors in text."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        if found := re.search(r"\bos error (\d+)", str(error)):
            return int(found[1])
        hidden = error.__suppress_context__  # raised "from None": the context is not its cause
        error = error.__cause__ or (None if hidden else error.__context__)
    return None


def finish(path: Path) -> None:
    """Flushes a file, or all files of a folder, to the disk; permissions become those of the umask.

    safetensors and others create files that their owner alone may read.
    """
    probe = _name_temporary(path)
    try:
        with probe.open("xb") as opened:
            mode = os.fstat(opened.fileno()).st_mode & 0o777
    finally:
        probe.unlink(missing_ok=True)
    for file in [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]:
        found = file.stat()
        if found.st_mode & 0o777 != mode and found.st_nlink == 1:  # else it is shared
            file.chmod(mode)
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def put_in_place(place: Path, out: Path) -> None:
    """Replaces a folder by a new one; the old one is restored if that fails.

    If the process is killed between the two renames, the old folder stays beside its place, hidden
    as ``.NAME.*.old``, until the next call succeeds.
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
    """Temporary path beside a file, renamed to it at the end of the block without an fsync.

    Processes that have the old file open keep reading it. Two processes may write the same file, if
    both write the same bytes: a task that Dask repeats because it took a process for lost.
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
    """Random path beside a file, by the naming scheme of `remove_dead`."""
    name = f".{_shorten(path.name)}.{secrets.token_hex(4)}.{name_process()}.tmp"
    return path.with_name(name)


def _shorten(name: str) -> str:
    """The name, or the hash of a long one: with a suffix it must fit into 255 bytes."""
    content = os.fsencode(name)
    return name if len(content) <= _LONGEST else hashlib.sha256(content).hexdigest()[:32]


def is_temporary(path: Path) -> bool:
    """True for a path with the name of a temporary file of this module."""
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
    """Id of a process, by default this one, unique among the machines that share a disk."""
    return f"{os.getpid() if process is None else process}@{_find_machine()}"


@cache
def _find_machine() -> str:
    """Hash of the host and its PID namespace, 8 digits: containers number processes anew."""
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
    try:  # a zombie, which its parent has not waited for, is still listed
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return state.rpartition(")")[2].split()[0] != "Z"
