"""Strings for formats that cannot hold every character: percent escapes, only where needed."""

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

#: What XML 1.0 cannot hold, and the carriage return, which every reader takes for a line feed.
NOT_IN_XML = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]")
#: What separates the labels of a taxonomy file, and the mark that is dropped at a file's start.
NOT_IN_TAXONOMY = re.compile(r"[\s\ufeff]")


def escape_all(values: Iterable[str], unsafe: re.Pattern[str]) -> list[str] | None:
    """All values with percent escapes for the unsafe characters and "%"; None if none is needed.

    Either all values are escaped or none, so that `urllib.parse.unquote` gives each of them back.
    """
    listed = list(values)
    if not any(unsafe.search(value) for value in listed):
        return None
    pattern = re.compile(f"{unsafe.pattern}|%")
    return [pattern.sub(lambda found: quote(found.group(), safe=""), value) for value in listed]


def unescape(value: str) -> str:
    """The inverse of `escape_all`, of one value."""
    return unquote(value, errors="strict")
