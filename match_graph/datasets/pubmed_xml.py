"""PubMed records as the NLM publishes them, XML or gzipped XML, with the MeSH trees.

Source: https://ftp.ncbi.nlm.nih.gov/pubmed/baseline (records), and ``mtreesYEAR.bin`` of
https://www.nlm.nih.gov/mesh/filelist.html (trees), a descriptor's name, a semicolon and one of its
tree numbers a line.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree.ElementTree import Element

from pydantic import Field

from match_graph.corpus import Faults
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.custom import UserFiles
from match_graph.datasets.options import UNDATED, Card, count_days
from match_graph.datasets.partitions import PartitionReader
from match_graph.datasets.pubmed_article import (
    DELETIONS,
    read_articles,
    read_authors,
    read_date,
    read_references,
    read_string,
    read_text,
    read_venue,
)
from match_graph.errors import CorpusError
from match_graph.io.json_lines import Fail, read_lines
from match_graph.io.partition import Partition
from match_graph.io.source import Sources

PubMedField = Literal["venue", "author", "reference"]
FIELDS: tuple[PubMedField, ...] = ("venue", "author", "reference")

#: Number and share of descriptors without a tree number up to which the trees seem right.
_UNKNOWN_HEADINGS, _UNKNOWN_SHARE = 10, 0.05

#: Notes that count within records, and those of dropped records.
_OF_RECORDS = ("headings_outside_categories", "references_without_pmid", UNDATED)
_LATER = "later_versions_dropped"
_DELETED = "deletions_not_applied"
#: Kinds of strings noted over all records: descriptors' ids by name, and names of headings.
_DESCRIPTOR, _HEADING = "descriptor", "heading"

#: The categories that the paper keeps, https://arxiv.org/abs/2102.07349, section 4.1.
CATEGORIES = "ABCDEFGH"


class PubMedXml(UserFiles):
    """PubMed records with MeSH headings, as the NLM publishes them.

    The text is title and abstract. The venue is the journal, by its NLM number; authors are names,
    as PubMed does not disambiguate people of one name; references are PMIDs. Labels are the
    descriptors of the headings, by their ids, not closed upwards.

    The files are XML, packed by gzip or not.
    """

    class Config(UserFiles.Config):
        """Options of PubMed records."""

        trees: str | None = Field(
            None,
            description="mtreesYEAR.bin; none: the last by name beside the files; where the "
            "hierarchy is ignored, headings of all categories are kept",
        )
        fields: Sequence[PubMedField] = Field(
            FIELDS, description="metadata fields: venue, author, reference"
        )
        categories: str = Field(
            CATEGORIES,
            pattern="^[A-Z]+$",
            description="first letters of tree numbers: headings in no such tree are left out",
        )

    config: Config
    card = Card(
        "pubmed-xml",
        "the NLM's terms; abstracts may be their publishers'",
        "about 37 million records",
        "XML of the NLM and its MeSH trees",
    )
    suffixes = (".xml",)
    path_options = ("path", "trees")

    def find_extra(self) -> dict[str, str | None]:
        found = super().find_extra()
        return {name: path or _find_trees(self.path) for name, path in found.items()}

    def reader(self) -> "PubMedReader":
        trees = {name: str(path) for name, path in self.extra.items()}
        return PubMedReader(self.files, self.config.model_copy(update=trees), self.faults_mode)


def _find_trees(path: Path) -> str | None:
    """Last file of MeSH trees beside the records; None if there is no such folder."""
    folder = path if path.is_dir() else path.parent
    found = sorted(folder.glob("mtrees*.bin"))
    if not found and folder.is_dir():
        raise CorpusError(
            f"The hierarchy of 'pubmed-xml' is read from the MeSH trees, but there is no "
            f"mtrees*.bin in '{folder}'; take it from https://www.nlm.nih.gov/mesh/filelist.html, "
            f"name it by data.options.trees, or set data.hierarchy=ignore."
        )
    return str(found[-1]) if found else None


class PubMedReader(PartitionReader):
    """Reader of PubMed records, by files; memory grows with the corpus, not with the files.

    Args:
        files: Paths of XML files, each a ``PubmedArticleSet``.
        config: Options; without ``trees`` every label is without a parent, and all headings are
            kept.
        faults: Policy for faulty documents, as for `CorpusDataset`.
    """

    def __init__(
        self, files: Sequence[Path], config: PubMedXml.Config, faults: Faults = "refuse"
    ) -> None:
        self.files, self.config = list(files), config
        self.tree_files = config.list_hierarchy_files(config.trees)
        self.trees: MeshTrees | None = None
        summary = "The files of 'pubmed-xml' must hold PubMed records"
        paths = [*files, *self.tree_files]
        super().__init__("pubmed-xml", config.fields, summary, faults, config.tokenizer, paths)

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        return [Partition(path) for path in self.files]

    def prepare(self, builder: CorpusBuilder, sources: Sources) -> None:
        for path in self.tree_files:
            lines = sources.lines(path)
            self.trees = read_trees(lines, path.name, self.config.categories, builder.fail)
            if not self.trees.categories and not builder.faults:
                builder.fail(
                    f"{path.name}: the MeSH trees must hold descriptors, found none; fetch the "
                    f"file again, or set data.hierarchy=ignore."
                )

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        reader = _Reader(builder, self.config, self.trees)
        with sources.stream(partition.path) as (stream, report):
            articles = read_articles(stream, partition.path.name, report)
            for place, article in builder.documents(articles):
                reader.add(article, place)

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        ids = builder.seen.get(_DESCRIPTOR, {})
        for name, ui in ids.items():
            builder.set_name("label", ui, name)
        if self.trees is None:
            return
        _check_trees(self.trees, builder, self.tree_files[-1].name)
        for below, above, place in self.trees.edges:
            builder.edges.setdefault((ids.get(below, below), ids.get(above, above)), place)


@dataclass(frozen=True)
class MeshTrees:
    """MeSH descriptors by name and their places in the trees; made by `read_trees`.

    Args:
        categories: First letters of each descriptor's tree numbers.
        edges: Hierarchy edges by name, (descriptor, its parent in some tree, file:line); they make
            a DAG, as a descriptor may have several tree numbers.
    """

    categories: dict[str, frozenset[str]]
    edges: list[tuple[str, str, str]]


def read_trees(lines: Iterable[bytes], name: str, categories: str, fail: Fail) -> MeshTrees:
    """Reads a file of tree numbers.

    Args:
        lines: Lines of the file.
        name: Name of the file, for messages.
        categories: First letters of the trees whose edges are kept; all categories are noted.
        fail: Callback that takes the faults: a line without a tree number, a number that is given
            twice or lies under none.
    """
    descriptors: dict[str, tuple[str, str]] = {}  # by tree number, with the place
    letters: dict[str, set[str]] = {}
    for place, line in read_lines(lines, name, fail):
        descriptor, semicolon, number = line.strip().rpartition(";")
        if not semicolon or not descriptor or not number:
            fail(
                f"{place}: a line must be a descriptor, a semicolon and a tree number, "
                f"found '{line.strip()[:60]}'; fetch the file again."
            )
            continue
        if number in descriptors:
            fail(
                f"{place}: a tree number must be that of one descriptor, but {number} is given to "
                f"'{descriptor}' and to '{descriptors[number][0]}' ({descriptors[number][1]}); "
                f"fetch the file again."
            )
            continue
        descriptors[number] = (descriptor, place)
        letters.setdefault(descriptor, set()).add(number[0])
    edges = []
    for number, (descriptor, place) in descriptors.items():
        above = number.rpartition(".")[0]
        if above and above not in descriptors:
            fail(
                f"{place}: the tree number {number} must lie under {above}, which no line has; "
                f"fetch the file again."
            )
        elif above and number[0] in categories:
            edges.append((descriptor, descriptors[above][0], place))
    return MeshTrees({name: frozenset(found) for name, found in letters.items()}, edges)


class _Reader:
    """Adds articles to a builder, and notes the descriptors for the hierarchy."""

    def __init__(
        self, builder: CorpusBuilder, config: PubMedXml.Config, trees: MeshTrees | None
    ) -> None:
        self.builder, self.config, self.trees = builder, config, trees
        self.categories = frozenset(config.categories)
        for note in (*_OF_RECORDS, _LATER, _DELETED):
            builder.notes[note] += 0

    def add(self, article: Element, place: str) -> None:
        """Adds one article, or its fault; counts the PMIDs of a ``DeleteCitation``."""
        if article.tag == DELETIONS:
            self.builder.notes[_DELETED] += len(article.findall("PMID"))
            return
        pmid = article.find("MedlineCitation/PMID")
        document = read_string(pmid)
        if pmid is None or not document:
            self.builder.fail(
                f"{place}: a record must have its PMID in MedlineCitation, found none; "
                f"remove the record."
            )
            return
        is_later = pmid.get("Version", "1") != "1"
        before = self.builder.num_faults
        counted = {note: self.builder.notes[note] for note in _OF_RECORDS}
        metadata, names = self._read_metadata(article)
        labels = self._read_labels(article, place)
        if self.builder.num_faults > before:
            return
        text, day = read_text(article), read_date(article)
        split = self.config.choose_split(document, text, day, self.builder.notes)
        undone = {note: number - self.builder.notes[note] for note, number in counted.items()}
        self.builder.add(
            document, split, text, metadata, labels, place, count_days(day),
            replaceable={_LATER: 1, **undone} if is_later else None,
        )  # fmt: skip
        for instance, name in names.items():
            self.builder.set_name("venue", instance, name)

    def _read_metadata(self, article: Element) -> tuple[dict[str, list[str]], dict[str, str]]:
        """Metadata instances by field, and names of venues."""
        metadata: dict[str, list[str]] = {}
        names: dict[str, str] = {}
        for name in self.builder.fields:
            if name == "venue":
                names = read_venue(article)
                metadata[name] = list(names)
            elif name == "author":
                metadata[name] = read_authors(article)
            else:
                metadata[name], missing = read_references(article)
                self.builder.notes["references_without_pmid"] += missing
        return metadata, names

    def _read_labels(self, article: Element, place: str) -> list[str]:
        labels = []
        for heading in article.iterfind("MedlineCitation/MeshHeadingList/MeshHeading"):
            descriptor = heading.find("DescriptorName")
            name = read_string(descriptor)
            if descriptor is None or not name:
                self.builder.fail(f"{place}: a MeshHeading must name its descriptor, found none.")
                continue
            self.builder.note_seen(_HEADING, {name: ""})
            if self.trees and not self.categories & self.trees.categories.get(name, frozenset()):
                self.builder.notes["headings_outside_categories"] += 1
                continue
            labels.append(descriptor.get("UI") or name)
            self.builder.note_seen(_DESCRIPTOR, {name: labels[-1]})
        return labels


def _check_trees(trees: MeshTrees, builder: CorpusBuilder, name: str) -> None:
    """Warns if the MeSH trees do not fit the records.

    Nearly all descriptors have a tree number (check tags such as Female have none); trees that are
    truncated or of another year lack many, whose headings would be lost silently.
    """
    headings = builder.seen.get(_HEADING, {}).keys()
    unknown = headings - trees.categories.keys()
    if len(unknown) > max(_UNKNOWN_HEADINGS, _UNKNOWN_SHARE * len(headings)):
        builder.warnings.append(
            f"{len(unknown):,} of {len(headings):,} descriptors of the records, such as "
            f"'{min(unknown)}', are not in '{name}' and were left out; check that the file is "
            f"whole and of the records' year"
        )
