"""Paths that arguments name."""

from pathlib import Path
from typing import Any

import pytest

from match_graph.errors import ConfigError
from match_graph.io.names import read_path


@pytest.mark.parametrize("given", ["a/b", Path("a/b")])
def test_read_path_takes_strings_and_paths(given: str | Path) -> None:
    """Strings and paths give a path."""
    assert read_path(given, "A folder") == Path("a", "b")


@pytest.mark.parametrize("given", [None, 3, b"a", ["a"], "a\0b"])
def test_read_path_refuses_what_is_no_path(given: Any) -> None:
    """Another type, or a name with NUL, is refused with what was found."""
    with pytest.raises(ConfigError) as caught:
        read_path(given, "A folder")
    assert str(caught.value) == (
        f"A folder must be a path, found {given!r}; give a string or a Path."
    )
