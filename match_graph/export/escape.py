"""Percent escapes for strings in formats that cannot hold every character, only where needed."""

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

#: What XML 1.0 cannot hold, and the carriage return, which every reader takes for a line feed.
NOT_IN_XML = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]")
#: What separates the labels of a taxonomy file, and the mark that is dropped at a file's start.
NOT_IN_TAXONOMY = re.compile(r"[\s\ufeff]")


def escape_all(values: Iterable[str], unsafe: re.Pattern[str]) -> list[str] | None:
    """Escapes unsafe characters and "%" in all values; None if no value needs it.

    Either all values are escaped or none, so that `urllib.parse.unquote` gives each of them back.
    """
    listed = list(values)
    if not any(unsafe.search(value) for value in listed):
        return None
    pattern = re.compile(f"{unsafe.pattern}|%")
    return [pattern.sub(lambda found: quote(found.group(), safe=""), value) for value in listed]


def unescape(value: str) -> str:
    """Inverse of `escape_all` for one value."""
    return unquote(value, errors="strict")
