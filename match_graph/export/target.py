"""Base of export targets: write a folder, read it back; percent escapes for their strings."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote, unquote

from match_graph.export.inventory import Inventory
from match_graph.export.source import Features, IncludeLabels, Source, Text

#: Characters that XML 1.0 excludes, and the carriage return, which parsers turn into a line feed.
NOT_IN_XML = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]")
#: White space, which separates the labels of a taxonomy file, and the byte order mark.
NOT_IN_TAXONOMY = re.compile(r"[\s\ufeff]")


@dataclass(frozen=True)
class Reading:
    """Export as read back by the library that it is for.

    Args:
        files: Names of the files that were read, and the library that read them.
        inventory: Inventory of the files.
        left_out: Parts that the files lack, as patterns of `fnmatch` over the keys of the
            inventory, each with the reason, a sentence for ``EXPORT.md``.
    """

    files: str
    inventory: Inventory
    left_out: Mapping[str, str] = field(default_factory=dict)


class Target(ABC):
    """Export format of a data set.

    A subclass declares the options that it supports; `check` refuses what it cannot export, `write`
    fills a folder, `read` reads it by the format's own library, and `describe` documents it.
    """

    #: Values of `ExportOptions` that the format supports; the first text is the default.
    features: ClassVar[tuple[Features, ...]] = ("none", "data", "ids", "pretrained")
    include_labels: ClassVar[tuple[IncludeLabels, ...]] = ("none", "train", "all")
    texts: ClassVar[tuple[Text, ...]] = ("raw", "words", "none")
    #: Whether attributes of edges, and further ones of a pre_transform, are exported.
    has_attributes: ClassVar[bool] = False

    def check(self, source: Source) -> None:  # noqa: B027 (most formats take every graph)
        """Refuses a graph that the format cannot hold, before anything is written.

        Raises:
            ExportError: The graph does not fit, or an extra of the package is not installed.
        """

    @abstractmethod
    def write(self, source: Source, folder: Path, out: Path) -> None:
        """Writes the files.

        Args:
            source: Source of the export.
            folder: Empty folder, which is renamed after all is written and verified.
            out: Final path of the folder.
        """

    def expect(self, source: Source) -> Inventory:
        """Inventory that `read` must find."""
        return replace(source, has_edge_attr=self.has_attributes).take_inventory()

    @abstractmethod
    def read(self, source: Source, folder: Path) -> list[Reading]:
        """Reads the files back."""

    @abstractmethod
    def describe(self, source: Source) -> str:
        """Markdown on files, how to load them, and known faults of the format's library."""


def escape_all(values: Iterable[str], unsafe: re.Pattern[str]) -> list[str] | None:
    """Percent-escapes unsafe characters and "%" in all values; None if no value is unsafe.

    Either all values are escaped or none, so that `unescape` restores each of them.
    """
    listed = list(values)
    if not any(unsafe.search(value) for value in listed):
        return None
    pattern = re.compile(f"{unsafe.pattern}|%")
    return [pattern.sub(lambda found: quote(found.group(), safe=""), value) for value in listed]


def unescape(value: str) -> str:
    """Inverse of `escape_all` for one value."""
    return unquote(value, errors="strict")
