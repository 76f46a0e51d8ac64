"""PubMed records: what is read, what is refused and with which sentence."""

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from match_graph.corpus import Corpus
from match_graph.datasets import PubMedReader, PubMedXml, open_dataset
from match_graph.datasets.pubmed_article import read_articles
from match_graph.datasets.pubmed_xml import read_trees
from match_graph.errors import CorpusError

HEAD = (
    '<?xml version="1.0"?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, '
    '1st January 2019//EN" "https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_190101.dtd">\n'
)
TREES = "Head;A01\nEar;A01.1\nSense Organs;A02\nEar;A02.1\nPersons;M01\n"
SUMMARY = "The files of 'pubmed-xml' must hold PubMed records"


def make_record(pmid: str, headings: str = "", version: str = "1", year: str = "2000") -> str:
    """One record on one line; headings are descriptors with ids, such as ``D1:Ear,D2:Head``."""
    meshes = "".join(
        '<MeshHeading><DescriptorName UI="{}">{}</DescriptorName></MeshHeading>'.format(
            *heading.split(":")
        )
        for heading in headings.split(",")
        if heading
    )
    return (
        f'<PubmedArticle><MedlineCitation><PMID Version="{version}">{pmid}</PMID><Article><Journal>'
        f"<JournalIssue><PubDate><Year>{year}</Year></PubDate></JournalIssue><Title>J</Title>"
        f"</Journal><ArticleTitle>Text of {pmid}</ArticleTitle><AuthorList><Author><LastName>Li"
        f"</LastName></Author></AuthorList></Article><MeshHeadingList>{meshes}</MeshHeadingList>"
        f"</MedlineCitation><PubmedData><ReferenceList><Reference><ArticleIdList><ArticleId IdType="
        f'"pubmed">1</ArticleId></ArticleIdList></Reference></ReferenceList></PubmedData>'
        f"</PubmedArticle>\n"
    )


def wrap(*records: str) -> str:
    return f"{HEAD}<PubmedArticleSet>\n{''.join(records)}</PubmedArticleSet>\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files and trees in the default folder of a root."""
    folder = tmp_path / "raw" / "pubmed-xml"
    folder.mkdir(parents=True)
    (folder / "mtrees2020.bin").write_text(TREES)
    many = [make_record(str(n), "D1:Ear,D2:Persons,D9:Male") for n in range(2, 40)]
    (folder / "a.xml").write_text(wrap(make_record("1", "D1:Ear,D3:Head", year="1990"), *many))
    packed = gzip.compress(wrap(make_record("99", "D3:Head", year="2010")).encode())
    (folder / "b.xml.gz").write_bytes(packed)
    return folder


def refusal(folder: Path, **options: Any) -> str:
    """Message of the refusal; no build may be left."""
    root = folder.parents[1]
    with pytest.raises(CorpusError) as caught:
        PubMedXml(root=root, **options)
    assert [path for path in root.glob("built/*") if path.suffix != ".lock"] == []
    return str(caught.value)


def read(folder: Path, name: str = "a.xml", **options: Any) -> Corpus:
    config = PubMedXml.Config(trees=str(folder / "mtrees2020.bin"), **options)
    return PubMedReader([folder / name], config).read_corpus()


def test_PubMedXml_records_become_documents_with_metadata_labels(folder: Path) -> None:
    """Headings outside of the categories are left out and counted."""
    dataset = open_dataset("pubmed-xml", root=folder.parents[1])
    assert isinstance(dataset, PubMedXml)
    assert dataset.table("document")["id"].tolist()[-1] == "99"
    labels = dataset.table("label")
    assert dict(zip(labels["id"], labels["name"], strict=True)) == {"D1": "Ear", "D3": "Head"}
    assert dataset.notes["headings_outside_categories"] == 2 * 38
    assert dataset.hierarchy.num_edges == 1  # "Sense Organs" is on no document
    assert dataset.table("venue")["name"].tolist() == ["J"]
    assert dataset.names("author").tolist() == ["Li"]
    data = dataset[0]
    assert data["document", "cites", "document"].num_edges == 39  # all but its own


def test_open_dataset_options_reach_the_reader(folder: Path) -> None:
    """Fields, categories, hierarchy and dates reach the reader."""
    root = folder.parents[1]
    dataset = open_dataset(
        "pubmed-xml", root=root, path=str(folder / "a.xml"), fields=["author"], categories="M",
        train_until=1999, valid_until=2005,
    )  # fmt: skip
    assert dataset.names("label").tolist() == ["D2"]
    assert dataset[0].node_types == ["document", "author", "word", "label"]
    assert dataset.documents("train_mask").tolist() == [0]
    assert len(dataset.documents("val_mask")) == 38
    plain = open_dataset("pubmed-xml", root=root, hierarchy="ignore")
    assert set(plain.names("label")) == {"D1", "D2", "D3", "D9"}
    assert plain.hierarchy.num_edges == 0


def test_PubMedReader_later_version_record_dropped_counted(folder: Path) -> None:
    """Later versions of a record under its PMID are dropped and counted."""
    records = [make_record(str(n)) for n in range(9)]
    (folder / "a.xml").write_text(wrap(*records, make_record("1", version="2")))
    corpus = read(folder)
    assert corpus.num_documents == 9
    assert corpus.notes["later_versions_dropped"] == 1


@pytest.mark.parametrize("num_apart", [0, 1])
def test_PubMedXml_names_beside_later_versions(folder: Path, num_apart: int) -> None:
    """A later version names its journal, in whichever file."""
    number = (
        "<MedlineJournalInfo><NlmUniqueID>9</NlmUniqueID></MedlineJournalInfo><MeshHeadingList>"
    )
    records = [make_record(str(n), "D1:Ear") for n in range(30)]
    records.append(make_record("1", "D1:Ear", version="2").replace("<Title>J<", "<Title>New<"))
    records = [record.replace("<MeshHeadingList>", number) for record in records]
    (folder / "a.xml").write_text(wrap(*records[: 31 - num_apart]))
    apart = wrap(*records[31 - num_apart :]).encode()
    (folder / "b.xml.gz").write_bytes(gzip.compress(apart))
    dataset = open_dataset("pubmed-xml", root=folder.parents[1])
    assert dataset.notes["later_versions_dropped"] == 1
    assert dataset.table("venue").to_numpy().tolist() == [["9", "New"]]


def test_PubMedReader_deletions_are_counted(folder: Path) -> None:
    """Deleted PMIDs of updates are counted, but no record is removed."""
    deleted = "<DeleteCitation><PMID>1</PMID><PMID>7</PMID></DeleteCitation>"
    (folder / "a.xml").write_text(wrap(*[make_record(str(n)) for n in range(9)], deleted))
    corpus = read(folder)
    assert corpus.num_documents == 9
    assert corpus.notes["deletions_not_applied"] == 2


def test_PubMedReader_records_without_date_text_headings(folder: Path) -> None:
    """Records without date text and headings are carried through.

    None of these is a fault; books are no articles.
    """
    bare = "<PubmedArticle><MedlineCitation><PMID>5</PMID></MedlineCitation></PubmedArticle>"
    book = "<PubmedBookArticle><BookDocument><PMID>6</PMID></BookDocument></PubmedBookArticle>"
    (folder / "a.xml").write_text(wrap(book, bare, make_record("7")))
    corpus = read(folder, train_until="2001")
    assert corpus.documents["id"].tolist() == ["5", "7"]
    assert corpus.documents["text"].tolist()[0] == ""
    assert corpus.notes["undated_documents_in_train"] == 1


def test_PubMedXml_repeated_pmid_is_named_with_both_places(folder: Path) -> None:
    """A record that is repeated in another file is named with both places."""
    (folder / "b.xml.gz").write_bytes(gzip.compress(wrap(make_record("3")).encode()))
    assert refusal(folder) == (
        f"{SUMMARY}: b.xml.gz:record 1: the document '3' was given before (a.xml:record 3); "
        f"every document needs an id of its own."
    )


def test_PubMedXml_malformed_xml_in_the_middle_is_named_by_line(folder: Path) -> None:
    """Malformed XML is named by line and column."""
    text = (folder / "a.xml").read_text().splitlines(keepends=True)
    text[20] = text[20].replace("</Article>", "</Artikel>")
    (folder / "a.xml").write_text("".join(text))
    assert refusal(folder) == (
        "a.xml:21: XML must be well-formed, but here it is not (mismatched tag, column 275); "
        "fetch the file again."
    )


def test_PubMedXml_file_that_breaks_off_is_named(folder: Path) -> None:
    """A truncated file is named by its last line."""
    text = (folder / "a.xml").read_text()
    (folder / "a.xml").write_text(text[: len(text) // 2])
    assert refusal(folder) == (
        "a.xml:23: XML must be well-formed, but here it is not (unclosed token, column 313); "
        "fetch the file again."
    )


def test_PubMedXml_file_of_something_else_is_named(folder: Path) -> None:
    """Other XML is refused; a set without records is accepted."""
    (folder / "b.xml").write_text("<html><body>Not found</body></html>")
    assert refusal(folder) == (
        "b.xml: a file of PubMed must hold PubmedArticle records in a PubmedArticleSet, found "
        "'html' without any; remove the file, or fetch it again."
    )
    (folder / "b.xml").write_text(wrap())
    assert len(open_dataset("pubmed-xml", root=folder.parents[1]).table("document")) == 40


def test_PubMedXml_wrong_encoding_is_named(folder: Path) -> None:
    """Invalid bytes and an unknown encoding are named."""
    (folder / "a.xml").write_bytes(wrap(make_record("caf")).encode().replace(b"caf", b"caf\xe9"))
    assert refusal(folder) == (
        "a.xml:4: XML must be well-formed, but here it is not (not well-formed (invalid token), "
        "column 54); fetch the file again."
    )
    (folder / "a.xml").write_text('<?xml version="1.0" encoding="latin-99"?><PubmedArticleSet/>')
    assert refusal(folder) == (
        "a.xml: XML must be in an encoding that can be read, but this is not (unknown encoding: "
        "latin-99); convert the file to UTF-8."
    )


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    "<PubmedArticleSet><x>&b;</x></PubmedArticleSet>"
)
FOREIGN = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    "<PubmedArticleSet><x>&a;</x></PubmedArticleSet>"
)


@pytest.mark.parametrize("content", [BOMB, FOREIGN])
def test_PubMedXml_entities_are_refused(folder: Path, content: str) -> None:
    """Entity expansion and external entities are refused."""
    (folder / "a.xml").write_text(content)
    assert refusal(folder) == (
        "a.xml: XML must declare no entities of its own, but this file does (EntitiesForbidden), "
        "as files do that are made to fill the memory or to read other files; fetch it from where "
        "it is published."
    )


def test_PubMedXml_truncated_gzip_file_is_named_by_record(folder: Path) -> None:
    """A truncated gzip file is named by record, whether XML or gzip ends first."""
    whole = gzip.compress((folder / "a.xml").read_bytes(), 1)
    (folder / "a.xml").unlink()
    (folder / "b.xml.gz").write_bytes(whole[: len(whole) - 20])
    assert refusal(folder) == (
        "b.xml.gz:record 1: a file named .gz must be whole and packed by gzip, but from here on it "
        "cannot be read (Compressed file ended before the end-of-stream marker was reached); "
        "fetch it again."
    )


def test_PubMedXml_record_without_pmid_heading_without_name(folder: Path) -> None:
    """A record without pmid and a heading without name are named.

    All faults come in one message.
    """
    heading = "<MeshHeadingList><MeshHeading/></MeshHeadingList>"
    bare = "<PubmedArticle><MedlineCitation>{}</MedlineCitation></PubmedArticle>"
    (folder / "a.xml").write_text(wrap(bare.format(""), bare.format(f"<PMID>1</PMID>{heading}")))
    assert refusal(folder).splitlines() == [
        f"{SUMMARY}, but 2 faults were found:",
        "  a.xml:record 1: a record must have its PMID in MedlineCitation, found none; "
        "remove the record.",
        "  a.xml:record 2: a MeshHeading must name its descriptor, found none.",
    ]


def test_PubMedXml_without_trees_the_message_says_where_they_are(folder: Path) -> None:
    """Missing trees are named with their source, and may be left out."""
    (folder / "mtrees2020.bin").unlink()
    assert refusal(folder) == (
        f"The hierarchy of 'pubmed-xml' is read from the MeSH trees, but there is no mtrees*.bin "
        f"in '{folder}'; take it from https://www.nlm.nih.gov/mesh/filelist.html, name it by "
        f"data.options.trees, or set data.hierarchy=ignore."
    )
    assert len(PubMedXml(root=folder.parents[1], hierarchy="ignore")) == 1


def test_PubMedXml_hierarchy_with_a_self_loop_is_refused(folder: Path) -> None:
    """A descriptor above itself is refused."""
    with (folder / "mtrees2020.bin").open("a") as file:
        file.write("Ear;A01.1.1\n")
    assert refusal(folder) == (
        "The corpus 'pubmed-xml' must be consistent: the label hierarchy must be acyclic, but "
        "D1 -> D1 is a cycle (mtrees2020.bin:6); remove one of these edges, or leave the "
        "hierarchy out (of files: data.hierarchy=ignore)."
    )


def test_read_articles_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Elements are freed: the peak memory does not depend on the number of records."""
    peaks = []
    for count in (400, 1200):
        path = tmp_path / f"{count}.xml"
        path.write_text(wrap(*(make_record(str(n), "D1:Ear") * 2 for n in range(count // 2))))
        tracemalloc.start()
        with path.open("rb") as file:
            assert sum(1 for _ in read_articles(file, path.name, lambda: None)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2


def test_PubMedReader_real_records_are_read(data_folder: Path) -> None:
    """Counts of real records equal those of another parser."""
    folder = data_folder / "pubmed"
    corpus = read(folder, "pubmed_result.xml")
    counts = {name: len(edges) for name, edges in corpus.edges.items() if name != "word"}
    assert corpus.num_documents == 93
    assert counts == {"venue": 93, "author": 828, "reference": 1925, "label": 1550}
    assert corpus.notes["headings_outside_categories"] == 1622 - 1550
    assert all(corpus.documents["text"])


def test_PubMedXml_record_past_the_limit_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of 3 MiB in a packed file of 4 KB is refused."""
    monkeypatch.setenv("MATCH_GRAPH_MAX_RECORD_MIB", "1")
    big = wrap(make_record("7"), make_record("8").replace("Text", "x" * (3 << 20)))
    (folder / "b.xml.gz").write_bytes(gzip.compress(big.encode()))
    assert refusal(folder) == (
        "b.xml.gz:record 2: a record must have at most 1 MiB, but this one has more; mend the "
        "file, or set MATCH_GRAPH_MAX_RECORD_MIB."
    )


def test_PubMedXml_empty_trees_are_refused(folder: Path) -> None:
    """Empty trees are refused, as they would leave out every heading."""
    (folder / "mtrees2020.bin").write_text("\n")
    assert refusal(folder) == (
        f"{SUMMARY}: mtrees2020.bin: the MeSH trees must hold descriptors, found none; fetch the "
        f"file again, or set data.hierarchy=ignore."
    )


def test_PubMedReader_trees_lack_many_descriptors_said_aloud(folder: Path) -> None:
    """Trees that lack many descriptors are warned of."""
    headings = ",".join(f"D{number}:Heading {number}" for number in range(100, 120))
    records = [make_record(str(number), f"D1:Ear,{headings}") for number in range(30)]
    (folder / "a.xml").write_text(wrap(*records))
    assert read(folder).warnings == [
        "20 of 21 descriptors of the records, such as 'Heading 100', are not in 'mtrees2020.bin' "
        "and were left out; check that the file is whole and of the records' year"
    ]


MESH = b"""Body Regions;A01
Head;A01.456
Ear;A01.456.313
Sense Organs;A09
Ear;A09.246
Persons;M01
Head; of State;M01.001
"""


def read_faults(content: bytes) -> list[str]:
    faults: list[str] = []
    read_trees(content.splitlines(keepends=True), "mtrees.bin", "AM", faults.append)
    return faults


def test_read_trees_descriptor_with_two_numbers_has_two_parents() -> None:
    """Edges are by name, with their lines; a name may hold a semicolon."""
    trees = read_trees(MESH.splitlines(keepends=True), "mtrees.bin", "AM", pytest.fail)
    assert trees.edges == [
        ("Head", "Body Regions", "mtrees.bin:2"),
        ("Ear", "Head", "mtrees.bin:3"),
        ("Ear", "Sense Organs", "mtrees.bin:5"),
        ("Head; of State", "Persons", "mtrees.bin:7"),
    ]
    assert trees.categories["Ear"] == {"A"}
    assert trees.categories["Persons"] == {"M"}


def test_read_trees_edges_of_other_categories_are_left_out() -> None:
    """Edges of other categories are left out, their descriptors stay known."""
    trees = read_trees(MESH.splitlines(keepends=True), "mtrees.bin", "M", pytest.fail)
    assert [child for child, _, _ in trees.edges] == ["Head; of State"]
    assert "Ear" in trees.categories


def test_read_trees_faults_name_their_lines() -> None:
    """A missing, a repeated and an orphaned tree number are named by line."""
    assert read_faults(MESH + b"no number\nHair;A01.456\nToe;A02.1\n") == [
        "mtrees.bin:8: a line must be a descriptor, a semicolon and a tree number, found "
        "'no number'; fetch the file again.",
        "mtrees.bin:9: a tree number must be that of one descriptor, but A01.456 is given to "
        "'Hair' and to 'Head' (mtrees.bin:2); fetch the file again.",
        "mtrees.bin:10: the tree number A02.1 must lie under A02, which no line has; "
        "fetch the file again.",
    ]


def test_read_trees_real_trees_are_a_dag(data_folder: Path) -> None:
    """The real trees have 29,638 descriptors, and 36,221 edges in A to H without a cycle."""
    with (data_folder / "pubmed" / "mtrees2020.bin").open("rb") as file:
        trees = read_trees(file, "mtrees2020.bin", "ABCDEFGH", pytest.fail)
    graph = nx.DiGraph((child, parent) for child, parent, _ in trees.edges)
    assert len(trees.categories) == 29_638
    assert graph.number_of_edges() == 36_221
    assert nx.is_directed_acyclic_graph(graph)
