"""Debian packages with debtags: the machine's own package index as a corpus.

Source: https://wiki.debian.org/Debtags; the index comes from the machine's own apt sources.
"""

import hashlib
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from filelock import FileLock
from pydantic import Field

from match_graph.corpus import Faults, split_words
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.deb_index import (
    DESCRIPTIONS,
    PACKAGES,
    fetch_index,
    no_tags,
    read_stanzas,
)
from match_graph.datasets.options import Card, TextConfig, split_by_text
from match_graph.datasets.partitions import PartitionReader
from match_graph.io.partition import Partition
from match_graph.io.source import Sources
from match_graph.typing import LABEL, SPLITS, Split

_FIELDS = ("venue", "author", "reference")
_RELATIONS = ("depends", "recommends", "suggests")

#: Limits for a package, far above what any has: nested braces could expand to millions of tags.
MAX_TAGS, MAX_LEVELS = 1000, 100
_MAX_TAG_FIELD, _MAX_BRACED = 1 << 20, 2000  # characters

_find_tags = re.compile(r"(?:\{[^{}]*\}|[^\s,])+").findall
_find_braces = re.compile(r"\{([^{}]*)\}").search
#: Name of a relation, which ends at a version, architecture, qualifier or profile.
_find_name = re.compile(r"\s*([^\s(\[<:|]+)").match


class DebTags(CorpusDataset):
    """The packages of a Debian machine's release that have tags.

    The text is the description, first line (synopsis) included: 65 words per document, 59 without.
    The venue is the section, the author the maintainer. References are the packages of Depends,
    Recommends and Suggests, in this order; of alternatives (``a | b``) the first, which apt
    prefers. Labels are the tags closed upwards: ``facet::tag:sub``, ``facet::tag``, ``facet``.

    Packages of one source share a split, drawn by the SHA-256 of the source's name: they share
    texts and tags, and with a random split most test packages would have a sibling in training.
    Twins, which have the same words as a package of another source, are left out of valid and test;
    see `find_twins`.

    The index is fetched once, by apt, and kept below the root; the machine's own state is neither
    read nor changed. Updates are left out, so that two machines of one point release have the same
    corpus; that of another release differs, as its checksum shows.

    Raises:
        CorpusError: apt is missing or fails, no package has a tag, or the index is malformed.
    """

    class Config(TextConfig):
        """Options of the package index."""

        twins: Literal["drop", "keep"] = Field(
            "drop",
            description="drop: documents with the words of one of train, or of test with those of "
            "one of valid, are left out; keep: they stay",
        )

    config: Config
    card = Card(
        "debtags", "that of each package", "30,039 documents; 79 MB", "fetched by the machine's apt"
    )
    raw_pattern = PACKAGES  # written last

    @property
    def raw_file_names(self) -> list[str]:
        return [PACKAGES, DESCRIPTIONS]

    def download(self) -> None:
        """Fetches the index, unless another process has done so meanwhile."""
        with FileLock(f"{self.raw_dir}.lock"):
            if not all(Path(path).is_file() for path in self.raw_paths):
                fetch_index(Path(self.raw_dir))

    def reader(self) -> "DebTagsReader":
        return DebTagsReader(Path(self.raw_dir), self.config, self.faults_mode)


class DebTagsReader(PartitionReader):
    """Reader of a package index as a whole; of a repeated package the first with tags is kept.

    Args:
        folder: Folder with the files of `fetch_index`, ``Packages`` and ``Translation-en``.
        config: Options; None takes the defaults.
        faults: Policy for faulty documents, as for `CorpusDataset`.
    """

    def __init__(
        self, folder: Path, config: DebTags.Config | None = None, faults: Faults = "refuse"
    ) -> None:
        summary = f"The folder '{folder}' must hold a package index"
        config = config or DebTags.Config()
        self.keeps_twins = config.twins == "keep"
        self.texts, self.packages = folder / DESCRIPTIONS, folder / PACKAGES
        paths = [self.texts, self.packages]
        super().__init__("debtags", _FIELDS, summary, faults, config.tokenizer, paths)

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        return [Partition(self.packages)]

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        left_out = {split: f"twins_left_out_of_{split}" for split in SPLITS[1:]}
        builder.notes.update(dict.fromkeys(["repeated_packages_dropped", *left_out.values()], 0))
        texts = _read_descriptions(sources.lines(self.texts), builder)
        stanzas = read_stanzas(partition.lines(sources), PACKAGES, builder.fail)
        packages: dict[str, _Package] = {}
        for place, stanza in builder.documents(stanzas):
            _read_package(builder, stanza, texts, packages, place)
        if not packages and not builder.faults:
            raise no_tags(f"'{self.packages}'")
        twins = set() if self.keeps_twins else find_twins(packages.values())
        for package in packages.values():
            if package.name in twins:
                builder.notes[left_out[package.split]] += 1
            else:
                package.add(builder)

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        for edge in builder.edges:
            for label in edge:
                builder.set_name(LABEL, label, label)


class _Package(NamedTuple):
    """A package that has tags."""

    name: str
    split: Split
    text: str
    metadata: dict[str, list[str]]
    labels: list[str]
    place: str

    def add(self, builder: CorpusBuilder) -> None:
        """Adds the package as a document, and the hierarchy's edges above its labels."""
        for label in self.labels:
            parent = parent_tag(label)
            if parent is not None:
                builder.edges.setdefault((label, parent), self.place)
        name, split, text, metadata, labels, place = self
        builder.add(name, split, text, metadata, labels, place)


def find_twins(packages: Collection[_Package]) -> set[str]:
    """Packages with the same words as one of an earlier split, in the order train, valid, test.

    Words are those of the tokenizer "regex", whichever the corpus has: twins are equal texts and
    those that differ in case, punctuation or white space alone. Texts without words are no twins.
    Models are selected on valid, so that test must not repeat its texts either: of twins in valid
    and test, the one in valid is kept.
    """
    twins: set[str] = set()
    known: set[bytes] = set()
    for split in SPLITS:
        prints = {
            package.name: hashlib.sha256(" ".join(words).encode()).digest()
            for package in packages
            if package.split == split and (words := split_words(package.text, "regex"))
        }
        twins.update(name for name, words in prints.items() if words in known)
        known.update(prints.values())
    return twins


def _read_package(
    builder: CorpusBuilder,
    stanza: dict[str, str],
    texts: dict[tuple[str, str], str],
    packages: dict[str, _Package],
    place: str,
) -> None:
    """Adds a package that has tags and is not repeated to ``packages``, or notes its faults."""
    package, tags = stanza.get("package", ""), split_tags(stanza.get("tag", ""))
    if not package:
        builder.fail(f"{place}: a stanza must have the field 'Package'; fetch the file again.")
    if tags is None:
        builder.fail(
            f"{place}: the field 'Tag' must stand for at most {MAX_TAGS:,} tags of at most "
            f"{MAX_LEVELS} levels, braces written out, found more; fetch the file again."
        )
    broken = [tag for tag in tags or [] if "{" in tag or "}" in tag]
    if broken:
        builder.fail(
            f"{place}: the braces of the field 'Tag' must be in pairs, none within others, found "
            f"'{broken[0][:60]}'; fetch the file again."
        )
    labels = close_tags(tags or [])
    if not package or not labels or broken:
        return
    if package in packages:
        builder.notes["repeated_packages_dropped"] += 1
        return
    text = texts.get((package, stanza.get("description-md5", "")))
    text = read_text(stanza.get("description", "")) if text is None else text
    metadata = {
        "venue": [value for value in [stanza.get("section")] if value],
        "author": [value for value in [stanza.get("maintainer")] if value],
        "reference": read_references(stanza),
    }
    split = split_by_source(stanza.get("source") or package)
    packages[package] = _Package(package, split, text, metadata, labels, place)


def _read_descriptions(
    lines: Iterable[bytes], builder: CorpusBuilder
) -> dict[tuple[str, str], str]:
    """Descriptions by package and checksum, which differs between versions of a package."""
    texts = {}
    for _, stanza in read_stanzas(lines, DESCRIPTIONS, builder.fail):
        key = (stanza.get("package", ""), stanza.get("description-md5", ""))
        texts[key] = read_text(stanza.get("description-en", ""))
    return texts


def read_text(description: str) -> str:
    """Description without its markup: a lone full stop ends a paragraph."""
    return "\n".join("" if line == "." else line for line in description.split("\n")).strip()


def split_tags(value: str) -> list[str] | None:
    """Splits the tags of a field; ``role::{a,b}`` is expanded to ``role::a`` and ``role::b``.

    Tags without a facet or without a name (``::a``, ``role::``) are left out.

    Returns:
        The tags; None if there are more than `MAX_TAGS`, or one has more than `MAX_LEVELS`.
    """
    waiting = _find_tags(value)[::-1] if len(value) <= _MAX_TAG_FIELD else []
    is_long = any(len(tag) > _MAX_BRACED and "{" in tag for tag in waiting)
    if len(value) > _MAX_TAG_FIELD or is_long:
        return None
    tags: list[str] = []
    for _ in range(10 * MAX_TAGS):
        if not waiting:
            tags = [tag for tag in tags if _is_whole(tag)]
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


def _is_whole(tag: str) -> bool:
    facet, colons, rest = tag.partition("::")
    return bool(facet) and (not colons or rest.strip(":") == rest != "")


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
    return split_by_text(source.partition("(")[0].strip())
