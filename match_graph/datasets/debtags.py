"""Debian packages with debtags: the machine's own package index as a corpus.

Source: https://wiki.debian.org/Debtags; the index comes from the machine's own apt sources.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from filelock import FileLock

from match_graph.corpus import Corpus, Faults
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.deb_index import (
    DESCRIPTIONS,
    PACKAGES,
    fetch_index,
    no_tags,
    read_stanzas,
)
from match_graph.datasets.options import Card, TextConfig
from match_graph.datasets.partitions import PartitionReader, read_corpus
from match_graph.io.partition import Partition
from match_graph.io.source import Sources, Track
from match_graph.typing import LABEL, Split

_FIELDS = ("venue", "author", "reference")
_RELATIONS = ("depends", "recommends", "suggests")

#: Of a package, far above what any has; a tag of braces within braces could stand for millions.
MAX_TAGS, MAX_LEVELS = 1000, 100
_MAX_TAG_FIELD, _MAX_BRACED = 1 << 20, 2000  # characters

_find_tags = re.compile(r"(?:\{[^{}]*\}|[^\s,])+").findall
_find_braces = re.compile(r"\{([^{}]*)\}").search
#: The name at the start of a relation: before a version, an architecture, a qualifier, a profile.
_find_name = re.compile(r"\s*([^\s(\[<:|]+)").match


class DebTags(CorpusDataset):
    """The packages of a Debian machine's index that have tags, each with its candidate version.

    The text is the description, first line (synopsis) included: 65 words per document, 59 without.
    The venue is the section, the author the maintainer. References are the packages of Depends,
    Recommends and Suggests, in this order; of alternatives (``a | b``) the first, which apt
    prefers. Labels are the tags closed upwards: ``facet::tag:sub``, ``facet::tag``, ``facet``.

    Packages of one source share a split, drawn by the SHA-256 of the source's name: they share
    texts and tags, and a random split would give training a sibling of most test packages.

    The index is fetched once, by apt, and kept below the root; the machine's own state is neither
    read nor changed. Another day's index is another corpus: its checksum says so.

    Raises:
        CorpusError: There is no apt, it fails, no package has a tag, or the index is malformed.
    """

    class Config(TextConfig):
        """Options of the package index."""

    config: Config
    card = Card(
        "debtags", "that of each package", "29,795 documents; 85 MB", "fetched by the machine's apt"
    )

    @property
    def raw_file_names(self) -> list[str]:
        return [PACKAGES, DESCRIPTIONS]

    @classmethod
    def has_raw(cls, root: Path) -> bool:
        return all((root / "raw" / "debtags" / name).is_file() for name in (PACKAGES, DESCRIPTIONS))

    def download(self) -> None:
        """Fetches the index, unless another process has done so meanwhile."""
        with FileLock(f"{self.raw_dir}.lock"):
            if not all(Path(path).is_file() for path in self.raw_paths):
                fetch_index(Path(self.raw_dir))

    def reader(self) -> "DebTagsReader":
        return DebTagsReader(Path(self.raw_dir), self.config, self.faults_mode)


def read_package_index(
    folder: Path,
    config: DebTags.Config | None = None,
    track: Track | None = None,
    faults: Faults = "refuse",
) -> Corpus:
    """Reads the files of `fetch_index`; of a repeated package the first with tags counts.

    Args:
        folder: Folder with ``Packages`` and ``Translation-en``.
        config: Options; None takes the defaults.
        track: Progress tracker.
        faults: Policy for faulty documents, as for `CorpusDataset`.

    Raises:
        CorpusError: No package has a tag, or with every fault of the files, each with file:line.
    """
    return read_corpus(DebTagsReader(folder, config, faults), track)


class DebTagsReader(PartitionReader):
    """Reader of a package index as a whole: of a repeated package the first with tags counts.

    Arguments and errors as for `read_package_index`.
    """

    def __init__(
        self, folder: Path, config: DebTags.Config | None = None, faults: Faults = "refuse"
    ) -> None:
        summary = f"The folder '{folder}' must hold a package index"
        tokenizer = (config or DebTags.Config()).tokenizer
        self.texts, self.packages = folder / DESCRIPTIONS, folder / PACKAGES
        paths = [self.texts, self.packages]
        super().__init__("debtags", _FIELDS, summary, faults, tokenizer, paths)

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        return [Partition(self.packages)]

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        builder.notes["repeated_packages_dropped"] += 0
        texts = _read_descriptions(sources.lines(self.texts), builder)
        stanzas = read_stanzas(partition.lines(sources), PACKAGES, builder.fail)
        seen: set[str] = set()
        for place, stanza in builder.documents(stanzas):
            _add_package(builder, stanza, texts, seen, place)
        if not seen and not builder.faults:
            raise no_tags(f"'{self.packages}'")

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        for edge in builder.edges:
            for label in edge:
                builder.set_name(LABEL, label, label)


def _add_package(
    builder: CorpusBuilder,
    stanza: dict[str, str],
    texts: dict[tuple[str, str], str],
    seen: set[str],
    place: str,
) -> None:
    """Adds a package that has tags and was not seen before, or its faults."""
    package, tags = stanza.get("package", ""), split_tags(stanza.get("tag", ""))
    if not package:
        builder.fail(f"{place}: a stanza must have the field 'Package'; fetch the file again.")
    if tags is None:
        builder.fail(
            f"{place}: the field 'Tag' must stand for at most {MAX_TAGS:,} tags of at most "
            f"{MAX_LEVELS} levels, braces written out, found more; fetch the file again."
        )
    labels = close_tags(tags or [])
    if not package or not labels:
        return
    if package in seen:
        builder.notes["repeated_packages_dropped"] += 1
        return
    seen.add(package)
    for label in labels:
        parent = parent_tag(label)
        if parent is not None:
            builder.edges.setdefault((label, parent), place)
    text = texts.get((package, stanza.get("description-md5", "")))
    text = read_text(stanza.get("description", "")) if text is None else text
    metadata = {
        "venue": [value for value in [stanza.get("section")] if value],
        "author": [value for value in [stanza.get("maintainer")] if value],
        "reference": read_references(stanza),
    }
    split = split_by_source(stanza.get("source") or package)
    builder.add(package, split, text, metadata, labels, place)


def _read_descriptions(
    lines: Iterable[bytes], builder: CorpusBuilder
) -> dict[tuple[str, str], str]:
    """Descriptions by package and checksum; every version of a package has its own checksum."""
    texts = {}
    for _, stanza in read_stanzas(lines, DESCRIPTIONS, builder.fail):
        key = (stanza.get("package", ""), stanza.get("description-md5", ""))
        texts[key] = read_text(stanza.get("description-en", ""))
    return texts


def read_text(description: str) -> str:
    """Description without its markup: a lone full stop ends a paragraph."""
    return "\n".join("" if line == "." else line for line in description.split("\n")).strip()


def split_tags(value: str) -> list[str] | None:
    """Splits the tags of a field; ``role::{a,b}`` is ``role::a`` and ``role::b``.

    Returns:
        None where there are more than `MAX_TAGS`, or one has more than `MAX_LEVELS`.
    """
    waiting = _find_tags(value)[::-1] if len(value) <= _MAX_TAG_FIELD else []
    is_long = any(len(tag) > _MAX_BRACED and "{" in tag for tag in waiting)
    if len(value) > _MAX_TAG_FIELD or is_long:
        return None
    tags: list[str] = []
    for _ in range(10 * MAX_TAGS):
        if not waiting:
            return None if any(tag.count(":") > MAX_LEVELS for tag in tags) else tags
        tag = waiting.pop()
        braces = _find_braces(tag)
        if braces is None:
            tags.append(tag)
        else:
            before, after = tag[: braces.start()], tag[braces.end() :]
            parts = braces[1].split(",")
            waiting += [f"{before}{part.strip()}{after}" for part in reversed(parts)]
        if len(tags) + len(waiting) > MAX_TAGS:
            return None
    return None


def parent_tag(tag: str) -> str | None:
    """``facet::tag:sub`` -> ``facet::tag`` -> ``facet`` -> None."""
    facet, colons, rest = tag.partition("::")
    if not colons:
        return None
    above, colon, _ = rest.rpartition(":")
    return f"{facet}::{above.rstrip(':')}" if colon else facet


def close_tags(tags: list[str]) -> list[str]:
    """Tags with all of their ancestors, each once, ancestors first."""
    closed: dict[str, None] = {}
    for tag in tags:
        chain, above = [tag], parent_tag(tag)
        while above is not None:
            chain.append(above)
            above = parent_tag(above)
        closed.update(dict.fromkeys(reversed(chain)))
    return list(closed)


def read_references(stanza: dict[str, str]) -> list[str]:
    """References of a stanza: packages that it depends on, recommends or suggests, each once."""
    clauses = ",".join(stanza.get(name, "") for name in _RELATIONS).split(",")
    names = [match[1] for match in map(_find_name, clauses) if match]
    return list(dict.fromkeys(names))


def split_by_source(source: str) -> Split:
    """Split of a source package: SHA-256 of its name modulo 10; 0 is test, 1 is valid.

    Args:
        source: Source package name; a version in parentheses behind it does not count.
    """
    name = source.partition("(")[0].strip()
    digest = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 10
    return "test" if digest == 0 else "valid" if digest == 1 else "train"
