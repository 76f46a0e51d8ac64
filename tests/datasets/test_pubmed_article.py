"""The parts of a PubMed article."""

from xml.etree.ElementTree import Element, fromstring

import pytest

from match_graph.datasets.pubmed_article import (
    read_authors,
    read_date,
    read_references,
    read_text,
    read_venue,
)


def article(citation: str = "", data: str = "", journal: str = "") -> Element:
    text = (
        f"<PubmedArticle><MedlineCitation><Article>{citation}</Article>{journal}"
        f"</MedlineCitation><PubmedData>{data}</PubmedData></PubmedArticle>"
    )
    return fromstring(text)


def test_read_text_is_title_and_abstract_without_marks() -> None:
    """Markup is removed, sections are joined, abstracts of other languages left out."""
    found = read_text(article(
        "<ArticleTitle>Of <i>E. coli</i>.</ArticleTitle><Abstract>"
        '<AbstractText Label="AIM">To\n  count.</AbstractText><AbstractText/>'
        "<AbstractText>H<sub>2</sub>O.</AbstractText></Abstract>"
        "<OtherAbstract><AbstractText>Zählen.</AbstractText></OtherAbstract>"
    ))  # fmt: skip
    assert found == "Of E. coli. To count. H2O."
    assert read_text(article()) == ""
    assert read_text(fromstring("<PubmedArticle/>")) == ""


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("<Year>2019</Year><Month>01</Month><Day>5</Day>", "2019-01-05"),
        ("<Year>2019</Year><Month>Dec</Month>", "2019-12"),
        ("<Year>2019</Year><Season>Spring</Season>", "2019"),
        ("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", "1998-12"),
        ("<MedlineDate>2000 May 26-Jun 1</MedlineDate>", "2000-05"),
        ("<MedlineDate>2000 Spring-Summer</MedlineDate>", "2000"),
        ("<MedlineDate>2000-2001</MedlineDate>", "2000"),
        ("<MedlineDate>Winter</MedlineDate>", None),
        ("<MedlineDate>Winter 1998</MedlineDate>", "1998"),
        ("<Year>2019</Year><Month>Jun</Month><Day>31</Day>", "2019-06"),
        ("<Year>2019</Year><Month>13</Month><Day>1</Day>", "2019"),
        ("", None),
    ],
)
def test_read_date_dates_are_as_precise_as_they_are_given(date: str, expected: str | None) -> None:
    """Months may be names or numbers; a range counts from its first month."""
    issue = f"<Journal><JournalIssue><PubDate>{date}</PubDate></JournalIssue></Journal>"
    assert read_date(article(issue)) == expected
    assert read_date(article()) is None


def test_read_venue_is_the_journals_number_with_its_title() -> None:
    """Title and number of a journal stand in for each other."""
    title = "<Journal><Title>Nature</Title></Journal>"
    info = "<MedlineJournalInfo><MedlineTA>Nat</MedlineTA>{}</MedlineJournalInfo>"
    number = "<NlmUniqueID>0410462</NlmUniqueID>"
    assert read_venue(article(title, journal=info.format(number))) == {"0410462": "Nature"}
    assert read_venue(article(journal=info.format(number))) == {"0410462": "Nat"}
    assert read_venue(article(title)) == {"Nature": "Nature"}
    assert read_venue(article()) == {}


def test_read_authors_are_people_and_groups() -> None:
    """Initials replace a missing forename; invalid authors are left out."""
    people = "".join((
        "<Author><LastName>Li</LastName><ForeName>Bo  An</ForeName></Author>",
        "<Author><LastName>Ek</LastName><Initials>C</Initials></Author>",
        "<Author><LastName>Solo</LastName></Author>",
        '<Author ValidYN="N"><LastName>Wrong</LastName></Author>',
        "<Author><CollectiveName>The Group</CollectiveName></Author><Author/>",
    ))  # fmt: skip
    names = read_authors(article(f"<AuthorList>{people}</AuthorList>"))
    assert names == ["Li, Bo An", "Ek, C", "Solo", "The Group"]


def test_read_references_are_pmids_also_of_nested_lists() -> None:
    """A reference has one PMID, or is counted as without."""
    ids = '<ArticleIdList><ArticleId IdType="{}">{}</ArticleId></ArticleIdList>'
    data = (
        f"<ReferenceList><Reference>{ids.format('pubmed', 7)}</Reference><ReferenceList>"
        f"<Reference>{ids.format('doi', 'x')}</Reference>"
        f"<Reference>{ids.format('pubmed', 8)}</Reference></ReferenceList></ReferenceList>"
    )
    assert read_references(article(data=data)) == (["7", "8"], 1)
    assert read_references(article()) == ([], 0)
