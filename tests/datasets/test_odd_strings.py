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

from match_graph.datasets import (
    Corpus,
    Table,
    read_maple_graph,
    read_maple_json,
    read_match_folder,
    read_openalex,
    read_pubmed_xml,
    read_table,
)
from match_graph.testing import write_match_folder

ALPHABET = " \t\"'\\,;|<&>-_09eaé李\u0085\u00a0\u2028\u2029\ufeff\U0001f9f8"
LOOK_ALIKES = ["007", "1e5", "-0", "NaN", "nan", "null", "None", "True", "inf", "x" * 100_000]
odd = st.one_of(st.text(ALPHABET, min_size=1, max_size=8), st.sampled_from(LOOK_ALIKES))
#: (document, author, label, text); ids of a document must show something.
record = st.tuples(odd.filter(str.strip), odd, odd, odd)
few = settings(max_examples=30)
awkward = example([("\u2028x", "\ufeff", '"', "\t"), ("007", "7", "07", "NaN")])
records = st.lists(record, min_size=1, max_size=4, unique_by=lambda item: item[0])

#: Some of these a random split puts into training, as a corpus needs one there.
ANCHOR = [(f"anchor{n}", "a", "b", f"anchor {n}") for n in range(20)]


def read_back(corpus: Corpus) -> list[tuple[str, str, str, str]]:
    """What went in: each document has one author and one label."""
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
def test_match_folder(items: list[tuple[str, str, str, str]]) -> None:
    """JSON holds every string."""
    documents = [{"paper": d, "author": [a], "label": [b], "text": t} for d, a, b, t in items]
    with TemporaryDirectory() as folder:
        write_match_folder(folder, {"train": documents}, taxonomy=[], fields=["author"])
        assert read_back(read_match_folder(Path(folder))) == items


@few
@awkward
@given(records)
def test_maple_json(items: list[tuple[str, str, str, str]]) -> None:
    """Here the text is a title."""
    lines = [
        json.dumps({"paper": d, "author": [a], "label": [b], "title": t, "year": "2000"})
        for d, a, b, t in [*ANCHOR, *items]
    ]
    with TemporaryDirectory() as folder:
        write_lines(folder, "papers.json", lines)
        corpus = read_maple_json(Path(folder), ["author"])
    assert read_back(corpus)[len(ANCHOR) :] == items


@few
@awkward
@given(records)
def test_openalex(items: list[tuple[str, str, str, str]]) -> None:
    """Ids of authors and topics must show something, as those of works."""
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
        corpus = read_openalex([write_lines(folder, "w.jsonl", lines)], fields=["author"])
    assert read_back(corpus)[len(ANCHOR) :] == items


@few
@awkward
@given(records)
def test_table_json(items: list[tuple[str, str, str, str]]) -> None:
    """Lines may hold Unicode's line separators as they are."""
    lines = [
        json.dumps(
            {"id": d, "author": [a], "label": [b], "text": t, "s": "train"}, ensure_ascii=False
        )
        for d, a, b, t in items
    ]
    with TemporaryDirectory() as folder:
        path = write_lines(folder, "t.jsonl", lines)
        assert read_back(read_table([path], ["author"], {"split": "s"})) == items


@few
@awkward
@given(records)
def test_table_csv(items: list[tuple[str, str, str, str]]) -> None:
    """Without a separator a cell is one value, whatever is in it."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["id", "author", "label", "text", "s"])
    writer.writerows([*item, "train"] for item in items)
    with TemporaryDirectory() as folder:
        path = Path(folder, "t.csv")
        path.write_bytes(file.getvalue().encode())
        assert read_back(read_table([path], ["author"], {"split": "s"}, separator="")) == items


@few
@awkward
@given(records)
def test_maple_graph(items: list[tuple[str, str, str, str]]) -> None:
    """Columns are separated by tabs, so that only a text can hold them."""
    items = [(*(part.replace("\t", " ") for part in item[:3]), item[3]) for item in items]
    items = list({item[0]: item for item in items}.values())
    rows = [*ANCHOR, *items]
    with TemporaryDirectory() as folder:
        write_lines(folder, "papers.txt", [f"PAPER_{d}\t{t}" for d, _, _, t in rows])
        write_lines(folder, "paper-label.txt", [f"PAPER_{d}\tLABEL_{b}" for d, _, b, _ in rows])
        write_lines(folder, "paper-author.txt", [f"PAPER_{d}\tAUTHOR_{a}" for d, a, _, _ in rows])
        corpus = read_maple_graph(Path(folder), ["author"])
    assert read_back(corpus)[len(ANCHOR) :] == items


@few
@awkward
@given(records)
def test_pubmed_xml(items: list[tuple[str, str, str, str]]) -> None:
    """White space of XML counts as one blank, and at the ends not at all."""
    clean = [tuple(re.sub("[ \t]+", " ", part).strip(" ") for part in item) for item in items]
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
        corpus = read_pubmed_xml([write_lines(folder, "p.xml", [text])], None, ["author"])
    assert read_back(corpus) == rows


def test_a_built_data_set_gives_them_back(tmp_path: Path) -> None:
    """Through the graph and its Parquet tables."""
    strings = [*LOOK_ALIKES, *ALPHABET[1:], "a b", ' "q" ', "\u2028line\u2029"]
    rows = [{"id": f"{s}.", "author": [s], "label": [s], "text": s} for s in strings if s.strip()]
    path = write_lines(str(tmp_path), "t.jsonl", [json.dumps(row) for row in rows])
    dataset = Table(str(path), fields=["author"], root=tmp_path)
    kept = {row["text"] for row in rows}
    assert set(dataset.names("author")) == set(dataset.names("label")) == kept
    assert set(dataset.names("document")) == {f"{s}." for s in kept}
    assert dataset.table("document")["text"].tolist() == [row["text"] for row in rows]


@pytest.mark.parametrize("string", LOOK_ALIKES[:-1])
def test_ids_that_look_like_numbers_stay_as_written(string: str, tmp_path: Path) -> None:
    """No reader guesses types."""
    path = write_lines(str(tmp_path), "t.csv", ["id,text,label,s", f"{string},x,{string},train"])
    corpus = read_table([path], columns={"split": "s"})
    assert corpus.documents["id"].tolist() == [string]
    assert corpus.instances["label"]["id"].tolist() == [string]
