"""``manifest.json`` at the top of a folder: bytes and SHA-256 of the files in it.

While a file is replaced, its old and its new digest are both listed, so that the folder is valid at
whatever moment the process is killed.
"""

import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias

from match_graph.errors import shorten
from match_graph.io.beside import write_text_beside

MANIFEST, FORMAT_VERSION = "manifest.json", 1
#: Files from this size on are compared by their sizes, and by SHA-256 only on request.
LARGE_BYTES = 256 * 2**20
#: Size of the largest manifest that is read, in bytes.
_MAX_BYTES = 64 * 2**20
_THREADS = 4  # that hash files


class Digest(NamedTuple):
    """Size and SHA-256 of a file.

    Args:
        bytes: Size in bytes.
        sha256: SHA-256 of the content, as hexadecimal digits.
    """

    bytes: int
    sha256: str


#: Allowed digests of a file, several while it is replaced; None is an absent file.
States: TypeAlias = list[Digest | None]


def compute_digest(path: Path) -> Digest:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Digest(file.tell(), digest)


def list_digests(folder: Path) -> dict[str, Digest]:
    """Digests of all regular files below a folder by relative path, except its manifest."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    names.pop(MANIFEST, None)
    with ThreadPoolExecutor(_THREADS) as pool:  # hashing holds no lock of Python's
        return dict(zip(names, pool.map(compute_digest, names.values()), strict=True))


def write_manifest(folder: Path, files: Mapping[str, States] | None = None) -> None:
    """Writes the manifest of a folder.

    Args:
        folder: Folder that gets the manifest.
        files: States of the files by relative path; None hashes all that is there.
    """
    if files is None:
        files = {name: [digest] for name, digest in list_digests(folder).items()}
    listed = {
        name: [None if state is None else state._asdict() for state in states]
        for name, states in sorted(files.items())
    }
    content = {"format": FORMAT_VERSION, "files": listed}
    write_text_beside(folder / MANIFEST, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_manifest(folder: Path) -> dict[str, States]:
    """Allowed states of each file of a folder, by relative path.

    Raises:
        OSError: There is no manifest, or it cannot be read.
        ValueError: It is damaged, or of another format; says why.
    """
    return {name: [*states] for name, states in _read_listed(folder).items()}


def _read_listed(folder: Path) -> Mapping[str, States]:
    """As `read_manifest`, cached and not to be changed: every file of a folder is checked by it."""
    return _parse_manifest(read_bytes(folder / MANIFEST, _MAX_BYTES))


@lru_cache(maxsize=1)
def _parse_manifest(text: bytes) -> Mapping[str, States]:
    content = parse_json(text)
    if not isinstance(content, dict) or content.keys() != {"format", "files"}:
        raise ValueError("it holds no list of files")
    if content["format"] != FORMAT_VERSION:
        raise ValueError(f"it is of format {content['format']!r:.50}, not {FORMAT_VERSION}")
    if not isinstance(content["files"], dict):
        raise ValueError("it holds no list of files")
    return {name: _read_states(name, states) for name, states in content["files"].items()}


def _read_states(name: str, states: Any) -> States:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise ValueError(f"it lists {name!r:.200}, which is no path within the folder")
    if not isinstance(states, list) or not states:
        raise ValueError(f"it does not say what '{name:.200}' is")
    return [None if state is None else _read_digest(name, state) for state in states]


def _read_digest(name: str, state: Any) -> Digest:
    if isinstance(state, dict) and state.keys() == {"bytes", "sha256"}:
        size, digest = state["bytes"], state["sha256"]
        if type(size) is int and size >= 0 and isinstance(digest, str) and len(digest) == 64:
            return Digest(size, digest)
    raise ValueError(f"it does not say what '{name:.200}' is")


@contextmanager
def changing(folder: Path, becomes: Mapping[str, States]) -> Iterator[None]:
    """Lists new states of files beside the old ones within the block, and alone after it.

    One process at a time may change a folder. If it is killed within the block, each file is in its
    old or its new state, and both are listed.

    Args:
        folder: Folder with a manifest.
        becomes: States after the block, by relative path; [None] is absent.

    Raises:
        OSError: There is no manifest, or it cannot be read or written.
        ValueError: It is damaged.
    """
    files = read_manifest(folder)
    both = {
        name: list(dict.fromkeys([*files.get(name, [None]), *states]))
        for name, states in becomes.items()
    }
    write_manifest(folder, files | both)
    yield
    files.update(becomes)
    write_manifest(folder, {name: states for name, states in files.items() if states != [None]})


def find_damage(folder: Path, name: str, whole: bool = False) -> str:
    """Fault of a file of a folder as a clause; empty if there is none.

    The manifest is read again where a file differs, as another process may be replacing it.

    Args:
        folder: Folder with a manifest.
        name: Relative path of the file, "/" between its parts.
        whole: Whether to compare the SHA-256 of files of `LARGE_BYTES` and more, too.
    """
    before: States | None = None
    while True:
        try:
            states = _read_listed(folder).get(name, [None])
            damage = _compare(folder / name, states, whole)
        except ValueError as error:
            return f"{MANIFEST} cannot be used: {error}"
        except OSError as error:
            return describe_fault(error)
        if not damage or states == before:
            return damage
        before = states


def _compare(path: Path, states: States, whole: bool) -> str:
    """Difference between a file and its allowed states."""
    try:
        size = check_regular(path)
    except FileNotFoundError:
        return "" if None in states else f"it is missing, though {MANIFEST} lists it"
    digests = [state for state in states if state is not None]
    if not digests:
        return f"{MANIFEST} does not list it"
    if size not in {digest.bytes for digest in digests}:
        sizes = " or ".join(f"{digest.bytes:,}" for digest in digests)
        return f"it has {size:,} bytes, not {sizes} as {MANIFEST} says"
    if size >= LARGE_BYTES and not whole:
        return ""
    if compute_digest(path) not in digests:
        return f"its content is not what was written, as its SHA-256 in {MANIFEST} shows"
    return ""


def check_regular(path: Path) -> int:
    """The size of a regular file in bytes.

    Raises:
        OSError: It is none, or cannot be read; a pipe, which could block, is not opened.
    """
    try:
        found = path.stat()
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path)) from error
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return found.st_size


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """The content of a regular file.

    Args:
        path: Path of the file.
        most: Largest size in bytes.

    Raises:
        OSError: It is none, cannot be read, or has more.
    """
    size = check_regular(path)
    if most is not None and size > most:
        raise OSError(errno.EFBIG, f"It has {size:,} bytes, more than {most:,}", str(path))
    return path.read_bytes()


def parse_json(content: bytes) -> Any:
    """Parses JSON text in UTF-8.

    Raises:
        ValueError: It is malformed, nested too deep, or holds a number of too many digits, NaN or
            an infinity, which JSON does not have.
    """
    try:
        return json.loads(
            content.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_parse_float
        )
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _parse_float(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"it holds {shorten(digits)}, which is too large")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}, which is no JSON number")


def describe_fault(error: OSError) -> str:
    """Reason why a file cannot be read, as a clause."""
    return f"{error.strerror or error}".lower() if error.errno else str(error)
