"""PubMed records as the NLM publishes them, XML or gzipped XML, with the MeSH trees.

Source: https://www.nlm.nih.gov/bsd/licensee/elements_descriptions.html (elements),
https://ftp.ncbi.nlm.nih.gov/pubmed/baseline (files).
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse
from pydantic import Field

from match_graph.corpus import Corpus, CorpusBuilder, Faults
from match_graph.datasets.dataset import Card, default_root
from match_graph.datasets.match_folder import Hierarchy
from match_graph.datasets.mesh import CATEGORIES, MeshTrees, read_trees
from match_graph.datasets.pubmed_article import (
    read_authors,
    read_date,
    read_references,
    read_string,
    read_text,
    read_venue,
)
from match_graph.datasets.splits import DateOption, SplitOptions, SplitRule
from match_graph.datasets.text import WORD_PATTERN, Tokenizer, split_words
from match_graph.datasets.user_files import UserFiles
from match_graph.errors import CorpusError
from match_graph.io.source import (
    GZIP_FAULTS,
    BoundedStream,
    Track,
    broken_gzip,
    open_sources,
    too_long,
)

PubMedField = Literal["venue", "author", "reference"]
FIELDS: tuple[PubMedField, ...] = ("venue", "author", "reference")

#: Descriptors without a place in the trees that are no sign of wrong trees, and their share.
_UNKNOWN_HEADINGS, _UNKNOWN_SHARE = 10, 0.05

_RECORDS = 16  # between two looks at how much is read


class PubMedXml(UserFiles):
    """PubMed records with MeSH headings, as the NLM publishes them.

    The text is title and abstract. The venue is the journal, by its NLM number; authors are names,
    as PubMed tells no two people of one name apart; references are PMIDs. Labels are the
    descriptors of the headings, by their ids, not closed upwards.

    Args:
        path: Path of XML files, packed by gzip or not; None takes ``raw/pubmed-xml`` below the
            root.
        trees: Path of ``mtreesYEAR.bin``; None takes the last by name that lies beside the files.
        fields: Metadata fields, among venue, author, reference.
        tokenizer: Text tokenization: "regex" for raw text, "whitespace" keeps case and punctuation.
        hierarchy: Use of the hierarchy: "use" reads the trees, "ignore" leaves every label without
            a parent and keeps the headings of all categories.
        categories: First letters of tree numbers; the paper's A to H by default.
        train_until: Last date of journal issues in train, as for `SplitRule`.
        valid_until: Last date of journal issues in valid, as for `SplitRule`.
        seed: Seed of a random split.
        **kwargs: Arguments of `CorpusDataset`.

    Raises:
        CorpusError: There are no files or no trees, or with every fault of them, each with its
            place.
        ConfigError: With every option that is none.
    """

    class Options(SplitOptions):
        """Arguments that settings may give."""

        path: str | None = None
        trees: str | None = None
        fields: Sequence[PubMedField] = FIELDS
        tokenizer: Tokenizer = "regex"
        hierarchy: Hierarchy = "use"
        categories: Annotated[str, Field(pattern="^[A-Z]+$")] = CATEGORIES

    card = Card(
        "pubmed-xml",
        "the NLM's terms; abstracts may be their publishers'",
        "about 37 million records",
        "XML of the NLM and its MeSH trees",
    )
    suffixes = (".xml",)
    path_options = ("path", "trees")

    def __init__(
        self,
        path: str | None = None,
        trees: str | None = None,
        fields: Sequence[PubMedField] = FIELDS,
        tokenizer: Tokenizer = "regex",
        hierarchy: Hierarchy = "use",
        categories: str = CATEGORIES,
        train_until: DateOption = None,
        valid_until: DateOption = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        self.check_options(
            {
                "path": path,
                "trees": trees,
                "fields": fields,
                "tokenizer": tokenizer,
                "hierarchy": hierarchy,
                "categories": categories,
                "train_until": train_until,
                "valid_until": valid_until,
                "seed": seed,
            }
        )
        self.fields, self.tokenizer = list(fields), tokenizer
        self.hierarchy_mode, self.categories = hierarchy, categories
        if hierarchy == "use" and trees is None:
            root = Path(kwargs.get("root") or default_root())
            trees = _find_trees(root / "raw" / "pubmed-xml" if path is None else Path(path))
        rule = SplitRule.from_options(train_until, valid_until, seed)
        super().__init__(path, {"trees": trees if hierarchy == "use" else None}, rule, **kwargs)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "fields": self.fields,
            "tokenizer": self.tokenizer,
            "word_pattern": WORD_PATTERN,
            "hierarchy": self.hierarchy_mode,
            "categories": self.categories,
            **self.rule.to_dict(),
        }

    def read(self) -> Corpus:
        return read_pubmed_xml(
            self.files,
            self.extra.get("trees"),
            self.fields,
            self.tokenizer,
            self.categories,
            self.rule,
            self.track,
            self.faults_mode,
        )


def _find_trees(path: Path) -> str | None:
    """Last file of MeSH trees beside the records; missing records are another error."""
    folder = path if path.is_dir() else path.parent
    found = sorted(folder.glob("mtrees*.bin"))
    if not found and folder.is_dir():
        raise CorpusError(
            f"The hierarchy of 'pubmed-xml' is read from the MeSH trees, but there is no "
            f"mtrees*.bin in '{folder}'; take it from https://www.nlm.nih.gov/mesh/filelist.html, "
            f"name it by data.options.trees, or set data.hierarchy=ignore."
        )
    return str(found[-1]) if found else None


def read_pubmed_xml(
    files: Sequence[Path],
    trees: Path | None,
    fields: Sequence[str] = FIELDS,
    tokenizer: Tokenizer = "regex",
    categories: str = CATEGORIES,
    rule: SplitRule | None = None,
    track: Track | None = None,
    faults: Faults = "refuse",
) -> Corpus:
    """Reads PubMed records; memory grows with the corpus, not with the files.

    Args:
        files: Paths of XML files, each a ``PubmedArticleSet``.
        trees: Path of the MeSH trees; None leaves every label without a parent and keeps all
            headings.
        fields: Metadata fields, among `FIELDS`.
        tokenizer: Text tokenization: "regex" for raw text.
        categories: First letters of tree numbers; headings that lie in no such tree are left out.
        rule: Split rule; None takes the defaults.
        track: Progress tracker.
        faults: Policy for faulty documents, as for `CorpusDataset`.

    Raises:
        CorpusError: With every fault of the files, each with file:record or file:line.
    """
    rule = rule or SplitRule()
    summary = "The files of 'pubmed-xml' must hold PubMed records"
    builder = CorpusBuilder("pubmed-xml", fields, summary, faults)
    reader = _Reader(builder, None, rule, tokenizer, categories)
    with open_sources([*files, *([trees] if trees else [])], "pubmed-xml", track) as sources:
        if trees is not None:
            lines = sources.lines(trees)
            reader.trees = read_trees(lines, trees.name, categories, builder.fail)
            if not reader.trees.categories and not builder.faults:
                builder.fail(
                    f"{trees.name}: the MeSH trees must hold descriptors, found none; fetch the "
                    f"file again, or set data.hierarchy=ignore."
                )
        for path in files:
            with sources.stream(path) as (stream, look), builder.documents():
                for place, article in read_articles(stream, path.name, look):
                    if builder.is_hopeless:
                        break
                    reader.add(article, place)
    if trees is not None:
        reader.check_trees(trees.name)
    return reader.build()


def read_articles(
    stream: BinaryIO, name: str, look: Callable[[], None]
) -> Iterator[tuple[str, Element]]:
    """(file:record, element) per ``PubmedArticle``; each is freed when the next is asked for.

    Args:
        stream: Binary stream of XML.
        name: Name of the file, for messages.
        look: Progress callback, called every few records.

    Raises:
        CorpusError: The XML is malformed, breaks off, declares entities, or a record is larger
            than `max_record_bytes`.
    """
    number = 0
    try:
        records = BoundedStream(stream, lambda: too_long(f"{name}:record {number + 1}", "a record"))
        events = iterparse(records, events=("start", "end"), forbid_dtd=False)
        _, root = next(events)
        for event, element in events:
            if event == "end" and element.tag in ("PubmedArticle", "PubmedBookArticle"):
                number += 1
                if not number % _RECORDS:
                    look()
                if element.tag == "PubmedArticle":
                    yield f"{name}:record {number}", element
                root.clear()  # all that was read lies below it
                records.end_record()
    except ParseError as error:
        line, column = error.position
        reason = str(error).partition(":")[0]
        raise CorpusError(
            f"{name}:{line}: XML must be well-formed, but here it is not ({reason}, column "
            f"{column + 1}; {number} records were whole); fetch the file again."
        ) from error
    except DefusedXmlException as error:
        raise CorpusError(
            f"{name}: PubMed records declare no entities of their own, but this file does after "
            f"{number} records ({type(error).__name__}), as files do that are made to fill the "
            f"memory or to read other files; fetch it from the NLM."
        ) from error
    except (LookupError, ValueError) as error:
        raise CorpusError(
            f"{name}: XML must be in an encoding that can be read, but this is not ({error}); "
            f"convert the file to UTF-8."
        ) from error
    except GZIP_FAULTS as error:
        raise broken_gzip(f"{name}:record {number + 1}", error) from error


class _Reader:
    """Reader of articles: adds them to a builder, and gathers what makes the hierarchy."""

    def __init__(
        self,
        builder: CorpusBuilder,
        trees: MeshTrees | None,
        rule: SplitRule,
        tokenizer: Tokenizer,
        categories: str,
    ) -> None:
        self.builder, self.trees, self.rule, self.tokenizer = builder, trees, rule, tokenizer
        self.categories = frozenset(categories)
        self.descriptors: dict[str, str] = {}  # id by name
        self.headings: set[str] = set()
        self.counts = dict.fromkeys(
            ("headings_outside_categories", "references_without_pmid", "later_versions_dropped",
             "undated_documents_in_train"), 0,
        )  # fmt: skip

    def add(self, article: Element, place: str) -> None:
        """Adds one article, or its fault."""
        pmid = article.find("MedlineCitation/PMID")
        document = read_string(pmid)
        if pmid is None or not document:
            self.builder.fail(
                f"{place}: a record must have its PMID in MedlineCitation, found none; "
                f"remove the record."
            )
            return
        if pmid.get("Version", "1") != "1" and document in self.builder:
            self.counts["later_versions_dropped"] += 1
            return
        before = self.builder.num_faults
        metadata, names = self._read_metadata(article)
        labels = self._read_labels(article, place)
        if self.builder.num_faults > before:
            return
        text, day = read_text(article), read_date(article)
        self.counts["undated_documents_in_train"] += self.rule.undated(day)
        split = self.rule.choose(document, text, day)
        words = split_words(text, self.tokenizer)
        self.builder.add(document, split, text, words, metadata, labels, place)
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
                self.counts["references_without_pmid"] += missing
        return metadata, names

    def _read_labels(self, article: Element, place: str) -> list[str]:
        labels = []
        for heading in article.iterfind("MedlineCitation/MeshHeadingList/MeshHeading"):
            descriptor = heading.find("DescriptorName")
            name = read_string(descriptor)
            if descriptor is None or not name:
                self.builder.fail(f"{place}: a MeshHeading must name its descriptor, found none.")
                continue
            self.headings.add(name)
            if self.trees and not self.categories & self.trees.categories.get(name, frozenset()):
                self.counts["headings_outside_categories"] += 1
                continue
            labels.append(self.descriptors.setdefault(name, descriptor.get("UI") or name))
        return labels

    def check_trees(self, name: str) -> None:
        """Warns where the MeSH trees do not fit the records.

        All but few descriptors have a tree number (check tags such as Female have none); trees
        that break off, or of another year, lack many, and their headings would be lost silently.
        """
        assert self.trees is not None
        unknown = self.headings - self.trees.categories.keys()
        if len(unknown) > max(_UNKNOWN_HEADINGS, _UNKNOWN_SHARE * len(self.headings)):
            self.builder.warn(
                f"{len(unknown):,} of {len(self.headings):,} descriptors of the records, such as "
                f"'{min(unknown)}', are not in '{name}' and were left out; check that the file is "
                f"whole and of the records' year"
            )

    def build(self) -> Corpus:
        """Builds the corpus; descriptors without a record stand in the hierarchy by their names."""
        edges = [] if self.trees is None else self.trees.edges
        ids = self.descriptors
        hierarchy = [(ids.get(a, a), ids.get(b, b), place) for a, b, place in edges]
        corpus = self.builder.build(hierarchy, {ids[name]: name for name in ids})
        corpus.notes.update(self.counts)
        return corpus
