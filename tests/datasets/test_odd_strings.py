"""Odd ids, names and texts survive reading from each format, and the files of a built data set."""

import csv
import io
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from match_graph.corpus import Corpus
from match_graph.datasets import (
    Custom,
    CustomReader,
    DebTags,
    DebTagsReader,
    MagCs,
    Maple,
    MapleReader,
    MatchReader,
    OpenAlex,
    OpenAlexReader,
    PubMedReader,
    PubMedXml,
)
from match_graph.datasets.match_folder import read_taxonomy
from match_graph.datasets.pubmed_xml import read_trees
from match_graph.testing import write_match_folder, write_release_folder

CONTROLS = "\x00\x01\x0b\x1b\x1c\x7f"
ALPHABET = " \t\n\r\"'\\,;|<&>-_09eaé李\u0085\u00a0\u2028\u2029\ufeff\U0001f9f8" + CONTROLS
#: What XML 1.0 cannot hold.
NOT_IN_XML = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"
LOOK_ALIKES = ["007", "1e5", "-0", "NaN", "nan", "null", "None", "True", "inf", "x" * 100_000]
odd = st.one_of(st.text(ALPHABET, min_size=1, max_size=8), st.sampled_from(LOOK_ALIKES))
#: (document, author, label, text); ids of a document must show something.
record = st.tuples(odd.filter(str.strip), odd, odd, odd)
few = settings(max_examples=30)
awkward = example(
    [("\u2028x", "\ufeff", '"', "\t"), ("007", "7", "07", "NaN"), ("\x00\r", "\n", "\x1c", '"\r\n')]
)
records = st.lists(record, min_size=1, max_size=4, unique_by=lambda item: item[0])

#: Some of these a random split puts into training, as a corpus needs one there.
ANCHOR = [(f"anchor{n}", "a", "b", f"anchor {n}") for n in range(20)]


def read_back(corpus: Corpus) -> list[tuple[str, str, str, str]]:
    """The documents as they were given, with one author and one label each."""
    columns = [corpus.documents["id"].tolist()]
    for name in ("author", "label"):
        ids = corpus.instances[name]["id"].tolist()
        assert corpus.edges[name]["document"].tolist() == list(range(corpus.num_documents))
        columns.append([ids[code] for code in corpus.edges[name]["instance"]])
    columns.append(corpus.documents["text"].tolist())
    return list(zip(*columns, strict=True))


def write_lines(folder: str, name: str, lines: list[str]) -> Path:
    path = Path(folder, name)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


@few
@awkward
@given(records)
def test_MatchReader(items: list[tuple[str, str, str, str]]) -> None:
    """JSON holds every string."""
    documents = [{"paper": d, "author": [a], "label": [b], "text": t} for d, a, b, t in items]
    with TemporaryDirectory() as folder:
        write_match_folder(folder, {"train": documents}, taxonomy=[], fields=["author"])
        assert read_back(MatchReader(Path(folder)).read_corpus()) == items


@few
@awkward
@given(records)
def test_MapleReader(items: list[tuple[str, str, str, str]]) -> None:
    """The title is the text."""
    lines = [
        json.dumps({"paper": d, "author": [a], "label": [b], "title": t, "year": "2000"})
        for d, a, b, t in [*ANCHOR, *items]
    ]
    with TemporaryDirectory() as folder:
        write_lines(folder, "papers.json", lines)
        corpus = MapleReader(Path(folder), Maple.Config(fields=["author"])).read_corpus()
    assert read_back(corpus)[len(ANCHOR) :] == items


@few
@awkward
@given(records)
def test_OpenAlexReader(items: list[tuple[str, str, str, str]]) -> None:
    """Ids of authors, topics and works must not be blank."""
    items = [(d, a if a.strip() else "a", b if b.strip() else "b", t) for d, a, b, t in items]
    lines = [
        json.dumps(
            {"id": f"https://openalex.org/{d}", "title": t, "topics": [{"id": b}],
             "authorships": [{"author": {"id": a}}]},
            ensure_ascii=False,
        )
        for d, a, b, t in [*ANCHOR, *items]
    ]  # fmt: skip
    with TemporaryDirectory() as folder:
        corpus = OpenAlexReader(
            [write_lines(folder, "w.jsonl", lines)], OpenAlex.Config(fields=["author"])
        ).read_corpus()
    assert read_back(corpus)[len(ANCHOR) :] == items


@few
@awkward
@given(records)
def test_custom_json(items: list[tuple[str, str, str, str]]) -> None:
    """Lines may hold Unicode line separators."""
    lines = [
        json.dumps(
            {"id": d, "author": [a], "label": [b], "text": t, "s": "train"}, ensure_ascii=False
        )
        for d, a, b, t in items
    ]
    with TemporaryDirectory() as folder:
        path = write_lines(folder, "t.jsonl", lines)
        assert (
            read_back(
                CustomReader(
                    [path], Custom.Config(fields=["author"], columns={"split": "s"})
                ).read_corpus()
            )
            == items
        )


@few
@awkward
@given(records)
def test_custom_csv(items: list[tuple[str, str, str, str]]) -> None:
    """Without a separator a cell is one value, whatever it holds."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["id", "author", "label", "text", "s"])
    writer.writerows([*item, "train"] for item in items)
    with TemporaryDirectory() as folder:
        path = Path(folder, "t.csv")
        path.write_bytes(file.getvalue().encode())
        config = Custom.Config(fields=["author"], columns={"split": "s"}, separator="")
        assert read_back(CustomReader([path], config).read_corpus()) == items


@few
@awkward
@given(records)
def test_MapleReader_graph(items: list[tuple[str, str, str, str]]) -> None:
    """Only texts may hold tabs, which separate columns; nothing may hold line breaks."""
    items = [
        (*(re.sub("[\t\r\n]", " ", part) for part in item[:3]), re.sub("[\r\n]", " ", item[3]))
        for item in items
    ]
    items = list({item[0]: item for item in items}.values())
    rows = [*ANCHOR, *items]
    with TemporaryDirectory() as folder:
        write_lines(folder, "papers.txt", [f"PAPER_{d}\t{t}" for d, _, _, t in rows])
        write_lines(folder, "paper-label.txt", [f"PAPER_{d}\tLABEL_{b}" for d, _, b, _ in rows])
        write_lines(folder, "paper-author.txt", [f"PAPER_{d}\tAUTHOR_{a}" for d, a, _, _ in rows])
        corpus = MapleReader(
            Path(folder), Maple.Config(release="graph", fields=["author"])
        ).read_corpus()
    assert read_back(corpus)[len(ANCHOR) :] == items


@few
@awkward
@given(records)
def test_PubMedReader(items: list[tuple[str, str, str, str]]) -> None:
    """White space of XML is normalised and stripped; control characters are excluded.

    XML 1.0 cannot hold these, except the last, DEL.
    """
    clean = [
        tuple(re.sub("[ \t\r\n]+", " ", re.sub(NOT_IN_XML, "", part)).strip(" ") for part in item)
        for item in items
    ]
    items = [(d, a or "a", b or "b", t) for d, a, b, t in clean if d]
    rows = list({item[0]: item for item in [*ANCHOR, *items]}.values())
    xml = "".join(
        f"<PubmedArticle><MedlineCitation><PMID>{escape(d)}</PMID><Article><ArticleTitle>"
        f"{escape(t)}</ArticleTitle><AuthorList><Author><LastName>{escape(a)}</LastName></Author>"
        f"</AuthorList></Article><MeshHeadingList><MeshHeading><DescriptorName UI={quoteattr(b)}>"
        f"{escape(b)}</DescriptorName></MeshHeading></MeshHeadingList></MedlineCitation>"
        f"</PubmedArticle>"
        for d, a, b, t in rows
    )
    with TemporaryDirectory() as folder:
        text = f"<PubmedArticleSet>{xml}</PubmedArticleSet>"
        corpus = PubMedReader(
            [write_lines(folder, "p.xml", [text])], PubMedXml.Config(fields=["author"])
        ).read_corpus()
    assert read_back(corpus) == rows


@few
@awkward
@given(records)
def test_MatchReader_of_a_release(items: list[tuple[str, str, str, str]]) -> None:
    """Words, labels and authors are ids that other files name, one a line."""
    items = [(d, *(_one_line(part) or "x" for part in (a, b)), t) for d, a, b, t in items]
    documents = [{"paper": d, "author": [a], "label": [b], "text": t} for d, a, b, t in items]
    with TemporaryDirectory() as folder:
        write_release_folder(folder, {"train": documents}, taxonomy=[])
        corpus = MatchReader(
            Path(folder), MagCs.Config(fields=["author"], hierarchy="ignore")
        ).read_corpus()
    for name in ("author", "label"):
        table = corpus.instances[name]
        table["id"] = table["name"]
    assert read_back(corpus) == [(d, a, b, " ".join(t.split())) for d, a, b, t in items]


@few
@awkward
@given(records)
def test_DebTagsReader(items: list[tuple[str, str, str, str]]) -> None:
    """Values are stripped lines; tags end at white space and commas."""
    clean = [tuple(_one_line(part) for part in item) for item in items]
    items = [(d, a or "a", re.sub(r"[\s,{}:]", "", b) or "b", t) for d, a, b, t in clean if d]
    rows = list({item[0]: item for item in [*ANCHOR, *items]}.values())
    rows = [(d, a, b, "" if t == "." else t) for d, a, b, t in rows]
    stanzas = [
        f"Package: {d}\nTag: {b}\nMaintainer: {a}\nDescription: {t}\n" for d, a, b, t in rows
    ]
    with TemporaryDirectory() as folder:
        write_lines(folder, "Packages", stanzas)
        write_lines(folder, "Translation-en", [])
        corpus = DebTagsReader(Path(folder), DebTags.Config(twins="keep")).read_corpus()
    assert read_back(corpus) == rows


@few
@example(["\u2028", "\x00", '"', "a b", "1e5"])
@given(st.lists(odd.map(lambda name: re.sub("[\t\r\n]", " ", name)), min_size=2, unique=True))
def test_read_taxonomy_by_tabs(labels: list[str]) -> None:
    """A label may hold blanks; a line is not blank, and its BOM is dropped."""
    first, *others = ["root", *labels]
    found = read_taxonomy([f"{first}\t{chr(9).join(others)}\n".encode()], "t", pytest.fail)
    assert found == [(label, "root", "t:1") for label in others]


@few
@example(["\x00;", ";", '"'])
@given(st.lists(odd, min_size=1))
def test_read_trees_mesh_trees(names: list[str]) -> None:
    """A descriptor is what precedes the last semicolon, stripped."""
    names = list(dict.fromkeys(name for name in map(_one_line, names) if name))
    lines = [f"{name};A{number}\n".encode() for number, name in enumerate(names)]
    assert list(read_trees(lines, "t", "A", pytest.fail).categories) == names


def _one_line(value: str) -> str:
    """Without line breaks, and without white space at the ends."""
    return re.sub("[\t\r\n]", " ", value).strip().strip("\ufeff").strip()


def test_Custom_built_data_set_gives_them_back(tmp_path: Path) -> None:
    """Strings survive the graph and its Parquet tables."""
    strings = [*LOOK_ALIKES, *ALPHABET[1:], "a b", ' "q" ', "\u2028line\u2029"]
    rows = [{"id": f"{s}.", "author": [s], "label": [s], "text": s} for s in strings if s.strip()]
    path = write_lines(str(tmp_path), "t.jsonl", [json.dumps(row) for row in rows])
    dataset = Custom(path=str(path), fields=["author"], root=tmp_path)
    kept = {row["text"] for row in rows}
    assert set(dataset.names("author")) == set(dataset.names("label")) == kept
    assert set(dataset.names("document")) == {f"{s}." for s in kept}
    assert dataset.table("document")["text"].tolist() == [row["text"] for row in rows]


@pytest.mark.parametrize("string", LOOK_ALIKES[:-1])
def test_CustomReader_ids_like_numbers_stay_as_written(string: str, tmp_path: Path) -> None:
    """Ids that look like numbers stay strings."""
    path = write_lines(str(tmp_path), "t.csv", ["id,text,label,s", f"{string},x,{string},train"])
    corpus = CustomReader([path], Custom.Config(columns={"split": "s"})).read_corpus()
    assert corpus.documents["id"].tolist() == [string]
    assert corpus.instances["label"]["id"].tolist() == [string]
