"""Fields of PubMed articles as XML elements: text, date, journal, authors, references.

Source: https://www.nlm.nih.gov/bsd/licensee/elements_descriptions.html.
"""

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import iterparse

from match_graph.datasets.options import count_days
from match_graph.errors import CorpusError
from match_graph.io.source import GZIP_FAULTS, BoundedStream, broken_gzip, too_long
from match_graph.io.xml import reading_xml

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

#: White space of XML, which is normalised; other blanks are part of a name.
_blanks = re.compile(r"[ \t\r\n]+")

#: A year and, if it follows directly, the first letters of a month.
_year = re.compile(r"(?<!\d)(\d{4})(?!\d)(?: ([A-Za-z]{3}))?", re.ASCII)

#: Element of an update that lists the PMIDs of deleted records.
DELETIONS = "DeleteCitation"

#: Root element of files of PubMed, also of one without records.
_ROOT = "PubmedArticleSet"

_READ = ("PubmedArticle", DELETIONS)
_RECORDS = 16  # between two updates of the progress


def read_articles(
    stream: BinaryIO, name: str, report: Callable[[], None]
) -> Iterator[tuple[str, Element]]:
    """(file:record, element) per ``PubmedArticle`` or `DELETIONS`; freed before the next.

    Args:
        stream: Binary stream of XML.
        name: Name of the file, for messages.
        report: Progress callback, called every few records.

    Raises:
        CorpusError: The XML is malformed, breaks off, declares entities, is not of PubMed, or a
            record is larger than `max_record_bytes`.
    """
    number = 0
    try:
        with reading_xml(name):
            records = BoundedStream(
                stream, lambda: too_long(f"{name}:record {number + 1}", "a record")
            )
            events = iterparse(records, events=("start", "end"), forbid_dtd=False)
            _, root = next(events)
            for event, element in events:
                if event == "start" or element.tag not in (*_READ, "PubmedBookArticle"):
                    continue
                number += 1
                if not number % _RECORDS:
                    report()
                if element.tag in _READ:
                    yield f"{name}:record {number}", element
                root.clear()  # all that was read lies below it
                records.end_record()
            if not number and root.tag != _ROOT:
                raise CorpusError(
                    f"{name}: a file of PubMed must hold PubmedArticle records in a {_ROOT}, found "
                    f"'{root.tag}' without any; remove the file, or fetch it again."
                )
    except GZIP_FAULTS as error:
        raise broken_gzip(f"{name}:record {number + 1}", error) from error


def read_string(element: Element | None) -> str:
    """Text of an element, that of markup such as ``<i>`` included; empty if None."""
    return "" if element is None else _blanks.sub(" ", "".join(element.itertext())).strip(" ")


def read_text(article: Element) -> str:
    """Title and abstract; of a structured abstract, all sections without headings."""
    citation = article.find("MedlineCitation/Article")
    if citation is None:
        return ""
    parts = [*citation.iterfind("ArticleTitle"), *citation.iterfind("Abstract/AbstractText")]
    return " ".join(text for text in map(read_string, parts) if text)


def read_date(article: Element) -> str | None:
    """Date of the journal issue as an ISO day, month or year, as precise as it is valid."""
    date = article.find("MedlineCitation/Article/Journal/JournalIssue/PubDate")
    if date is None:
        return None
    year, month, day = (read_string(date.find(name)) for name in ("Year", "Month", "Day"))
    if not year:  # such as "1998 Dec-1999 Jan", or "Winter 1998"
        found = _year.search(read_string(date.find("MedlineDate")))
        year, month = (found[1], found[2] or "") if found else ("", "")
    month = str(_MONTHS.index(month[:3].lower()) + 1) if month[:3].lower() in _MONTHS else month
    given = (f"{year}-{month:0>2}-{day:0>2}", f"{year}-{month:0>2}", year)
    return next((one for one in given if count_days(one) is not None), None)


def read_venue(article: Element) -> dict[str, str]:
    """Title of the journal by its id; empty if the record has neither."""
    title = read_string(article.find("MedlineCitation/Article/Journal/Title"))
    short = read_string(article.find("MedlineCitation/MedlineJournalInfo/MedlineTA"))
    number = read_string(article.find("MedlineCitation/MedlineJournalInfo/NlmUniqueID"))
    name = title or short or number
    return {number or name: name} if name else {}


def read_authors(article: Element) -> list[str]:
    """Names as "Last, Fore", or of a group; PubMed does not disambiguate people of one name."""
    names = []
    for author in article.iterfind("MedlineCitation/Article/AuthorList/Author"):
        last, fore, initials, group = (
            read_string(author.find(name))
            for name in ("LastName", "ForeName", "Initials", "CollectiveName")
        )
        name = ", ".join(part for part in (last, fore or initials) if part) or group
        if name and author.get("ValidYN", "Y") == "Y":
            names.append(name)
    return names


def read_references(article: Element) -> tuple[list[str], int]:
    """PMIDs of the references in order, and the number of references without one."""
    found, missing = [], 0
    for reference in article.iterfind("PubmedData/ReferenceList//Reference"):
        pmids = [
            read_string(number)
            for number in reference.iterfind("ArticleIdList/ArticleId")
            if number.get("IdType") == "pubmed" and read_string(number)
        ]
        found += pmids[:1]
        missing += not pmids
    return found, missing
