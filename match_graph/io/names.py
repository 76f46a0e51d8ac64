"""Validation of file names and paths that users give."""

from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator

from match_graph.errors import ConfigError


def check_file_name(name: str) -> str:
    """Validates a file or folder name: a single printable component.

    Raises:
        ValueError: It is not valid, such as one that leads out of the folder; a clause.
    """
    if name in (".", "..") or "/" in name or "\\" in name:
        raise ValueError("must be a name without / and \\, as it names a folder")
    if len(name.encode(errors="replace")) > 200 or not name.isprintable():
        raise ValueError("must be a printable name of at most 200 bytes, as it names a folder")
    return name


def check_inner_path(path: str) -> str:
    """Validates a relative path: it stays below the folder that it is relative to.

    Raises:
        ValueError: It is absolute, empty, or leads out of the folder; a clause.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not path or "\0" in path:
        raise ValueError("must be a path below the folder")
    return path


def read_path(given: Any, what: str) -> Path:
    """Path of a user's argument.

    Args:
        given: Argument.
        what: Description of the path, for the message, at the start of a sentence.

    Raises:
        ConfigError: It is no path.
    """
    try:
        path = Path(given)
    except TypeError:
        path = None
    if path is None or "\0" in str(path):
        raise ConfigError(f"{what} must be a path, found {given!r:.60}; give a string or a Path.")
    return path


#: A valid name of a file or folder.
FileName = Annotated[str, AfterValidator(check_file_name)]
#: A path within a folder.
InnerPath = Annotated[str, AfterValidator(check_inner_path)]
