"""Debian packages by debtags: what is read, and how the machine's own index comes out."""

import hashlib
import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.corpus import split_words
from match_graph.datasets import DATASETS, DebTags, debtags, open_dataset
from match_graph.datasets.assemble import assemble
from match_graph.datasets.built import write_build
from match_graph.datasets.deb_index import fetch_index
from match_graph.datasets.debtags import (
    DebTagsReader,
    close_tags,
    parent_tag,
    read_references,
    read_text,
    split_by_source,
    split_tags,
)
from match_graph.errors import CorpusError
from match_graph.graph import build_graph
from match_graph.io.source import hash_file

PACKAGES = """\
Package: moss
Source: moss (1:2.0-1)
Version: 2.0-1+b1
Maintainer: A. Gardener <a@example.org>
Depends: libfern (>= 1.0), willow:any | algae, stone [amd64] <!nocheck>
Recommends: willow, water
Suggests: moss-doc
Description: grows on stones
Description-md5: m1
Tag: use::growing, role::{program,app-data},
 devel::lang:c
Section: garden

Package: moss
Version: 1.0-1
Tag: use::other
Section: garden

Package: moss-doc
Source: moss
Maintainer: A. Gardener <a@example.org>
Description: about moss
 Read from the index itself.
 .
 Twice.
Tag: role::documentation
Section: doc

Package: untagged
Section: garden

Package: willow
Description-md5: none
Tag: role::program

Package: flint
Maintainer: A. Gardener <a@example.org>
Description-md5: t1
Tag: works
Section: stones
"""
DESCRIPTIONS = """\
Package: moss
Description-md5: old
Description-en: an older text

Package: moss
Description-md5: m1
Description-en: grows on stones
 Moss is green.
 .
  * it has no roots

Package: flint
Description-md5: t1
Description-en: a stone
 Kept out of the sun.
"""


def write_index(folder: Path, packages: str = PACKAGES, descriptions: str = DESCRIPTIONS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Packages").write_text(packages, encoding="utf-8")
    (folder / "Translation-en").write_text(descriptions, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return DebTagsReader(write_index(tmp_path_factory.mktemp("index"))).read_corpus()


def values(corpus, field: str, package: str) -> list[str]:
    row = corpus.documents["id"].tolist().index(package)
    edges = corpus.edges[field]
    chosen = edges.loc[edges["document"] == row, "instance"]
    return corpus.instances[field]["id"].iloc[chosen].tolist()


def test_DebTagsReader_documents_are_tagged_packages_once(corpus):
    assert corpus.documents["id"].tolist() == ["moss", "moss-doc", "willow", "flint"]
    assert corpus.documents["split"].tolist() == ["train", "train", "valid", "test"]
    assert corpus.notes["repeated_packages_dropped"] == 1


def test_DebTagsReader_reading_shows_its_progress(tmp_path):
    seen = []

    @contextmanager
    def track(*given):
        seen.append(given)
        yield lambda _done, _text: None

    DebTagsReader(write_index(tmp_path)).read_corpus(track)
    assert seen == [("read debtags", 0, "MB")]


def test_DebTagsReader_fields_of_a_package(corpus):
    assert corpus.fields == ["venue", "author", "reference"]
    assert values(corpus, "venue", "moss") == ["garden"]
    assert values(corpus, "author", "moss") == ["A. Gardener <a@example.org>"]
    references = ["libfern", "willow", "stone", "water", "moss-doc"]
    assert values(corpus, "reference", "moss") == references
    assert [values(corpus, field, "willow") for field in corpus.fields] == [[], [], []]


def test_DebTagsReader_text_is_the_description_of_version(corpus):
    texts = corpus.documents.set_index("id")["text"]
    assert texts["moss"] == "grows on stones\nMoss is green.\n\n * it has no roots"
    assert texts["moss-doc"] == "about moss\nRead from the index itself.\n\nTwice."
    assert texts["willow"] == ""
    assert values(corpus, "word", "flint") == ["a", "stone", "kept", "out", "of", "the", "sun"]


def test_DebTagsReader_labels_are_closed_upwards(corpus):
    labels = ["use", "use::growing", "role", "role::program", "role::app-data"]
    labels += ["devel", "devel::lang", "devel::lang:c"]
    assert values(corpus, "label", "moss") == labels
    assert values(corpus, "label", "flint") == ["works"]
    assert (corpus.instances["label"]["name"] == corpus.instances["label"]["id"]).all()
    edges = corpus.hierarchy.set_index("child")["parent"].to_dict()
    assert edges == {
        "use::growing": "use",
        "role::program": "role",
        "role::app-data": "role",
        "role::documentation": "role",
        "devel::lang": "devel",
        "devel::lang:c": "devel::lang",
    }
    assert corpus.hierarchy["origin"].iloc[0] == "Packages:1"


@pytest.mark.parametrize(
    ("value", "tags"),
    [
        ("", []),
        ("a::b", ["a::b"]),
        ("a::b, a::c,\n d::e", ["a::b", "a::c", "d::e"]),
        ("a::{b,c}, d::e", ["a::b", "a::c", "d::e"]),
        ("a::{b, c}:d", ["a::b:d", "a::c:d"]),
        ("a::{b,c}:{d,e}", ["a::b:d", "a::b:e", "a::c:d", "a::c:e"]),
        ("a::b:{c,d}", ["a::b:c", "a::b:d"]),
        ("a::b::c, ::x, a::, a::{b,}, a:::b, a::b:", ["a::b::c", "a::b"]),
    ],
)
def test_split_tags(value, tags):
    assert split_tags(value) == tags


def test_parent_tag():
    assert [parent_tag(tag) for tag in ("a::b:c:d", "a::b:c", "a::b", "a")] == [
        "a::b:c",
        "a::b",
        "a",
        None,
    ]
    assert parent_tag("a::b::c") == "a::b"
    assert close_tags(["a::b:c", "a::b", "d::e"]) == ["a", "a::b", "a::b:c", "d", "d::e"]


def test_read_references_takes_the_first_alternative_in_order():
    stanza = {"suggests": "z", "depends": "a (>= 1) | b, c:any(= 2),a", "pre-depends": "no"}
    assert read_references(stanza) == ["a", "c", "z"]
    assert read_references({}) == []


def test_read_text_takes_only_a_lone_full_stop_for_a_mark():
    assert read_text("x\n.\n..\n .\ny") == "x\n\n..\n .\ny"


def test_split_by_source_split_is_the_hash_of_the_source():
    # by sha256sum and Perl's bigint: the hash modulo 10
    digits = {"flint": 0, "willow": 1, "granite": 2, "moss": 7}
    assert [split_by_source(name) for name in digits] == ["test", "valid", "train", "train"]
    assert split_by_source("flint (1:2.0)") == split_by_source("flint(2)") == "test"


def test_DebTagsReader_siblings_of_a_source_share_a_split(tmp_path):
    stanzas = [
        f"Package: p{i}-{j}\nSource: s{i}{' (1.0)' * j}\nTag: a::b\n"
        for i in range(40)
        for j in range(2)
    ]
    documents = DebTagsReader(write_index(tmp_path, "\n".join(stanzas), "")).read_corpus().documents
    splits = documents.groupby(documents["id"].str.split("-").str[0])["split"]
    assert len(splits) == 40
    assert (splits.nunique() == 1).all()
    assert set(documents["split"]) == {"train", "valid", "test"}


#: Source packages by split.
SOURCES = {"train": "moss", "valid": "willow", "test": "flint"}


def write_texts(folder: Path, texts: list[tuple[str, str]]) -> Path:
    """An index of packages p0, p1, ... of given splits and texts, each with its own label."""
    stanzas = [
        f"Package: p{number}\nSource: {SOURCES[split]}\nDescription: {text}\nTag: a::b{number}\n"
        for number, (split, text) in enumerate(texts)
    ]
    return write_index(folder, "\n".join(stanzas), "")


def test_DebTagsReader_twins_of_other_splits_are_left_out(tmp_path):
    """Twins of an earlier split are left out, whatever their order; others stay."""
    texts = [
        ("test", "A Wall, of stone"),
        ("test", "twice"),
        ("test", "of stone a wall"),
        ("test", "aw allofstone"),
        ("valid", "a wall of stone"),
        ("train", "a wall of stone"),
        ("train", "a wall of stone"),
        ("valid", "twice"),
        ("valid", "twice"),
        *((split, "..") for split in SOURCES),
        *((split, "") for split in SOURCES),
    ]
    folder = write_texts(tmp_path, texts)
    corpus = DebTagsReader(folder).read_corpus()
    left_out = {"twins_left_out_of_valid": 1, "twins_left_out_of_test": 2}
    kept = [f"p{number}" for number in range(len(texts)) if number not in {0, 1, 4}]
    assert corpus.documents["id"].tolist() == kept
    assert corpus.notes.items() >= left_out.items()
    assert not {"a::b0", "a::b1", "a::b4"} & {*corpus.hierarchy["child"]}
    assert (
        DebTagsReader(folder, DebTags.Config(tokenizer="whitespace")).read_corpus().notes
        == corpus.notes
    )

    corpus = DebTagsReader(folder, DebTags.Config(twins="keep")).read_corpus()
    assert len(corpus.documents) == len(texts)
    assert corpus.notes.items() >= dict.fromkeys(left_out, 0).items()


@given(st.lists(st.tuples(st.sampled_from([*SOURCES]), st.sampled_from(["", "!", "a", "A.", "b"]))))
def test_DebTagsReader_keeps_no_twin_and_nothing_else_goes(tmp_path_factory, texts):
    """By a naive loop: exactly the documents with a twin in an earlier split are left out."""
    texts = [("train", "first"), *texts]
    corpus = DebTagsReader(write_texts(tmp_path_factory.mktemp("index"), texts)).read_corpus()
    kept = {*corpus.documents["id"]}
    words = [text.lower().strip("!.") for _, text in texts]
    for number, (split, _) in enumerate(texts):
        earlier = [*SOURCES][: [*SOURCES].index(split)]
        is_twin = any(
            words[number] and words[number] == words[other] and texts[other][0] in earlier
            for other in range(len(texts))
        )
        assert (f"p{number}" in kept) == (not is_twin)


@pytest.mark.parametrize("twins", ["drop", "keep"])
def test_DebTagsReader_fragments_give_the_same_bytes(tmp_path, twins):
    texts = [("test", "x y"), ("train", "x y"), ("valid", "x y"), ("test", "z"), ("valid", "y")]
    config = DebTags.Config(twins=twins)
    folder = write_texts(tmp_path / "raw", texts)
    about = {"name": "debtags", "tokenizer": "regex", "source": {}}
    assemble(tmp_path / "parts", DebTagsReader(folder, config), about, lambda: None)
    corpus = DebTagsReader(folder, config).read_corpus()
    graph = build_graph(corpus)
    about |= {"notes": graph.notes, "warnings": corpus.find_oddities()}
    write_build(tmp_path / "whole", graph, corpus.skipped, about)
    parts, whole = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file() and path.name not in {"corpus.json", "manifest.json"}
        }
        for name in ("parts", "whole")
    )
    assert parts == whole
    found = [
        json.loads((tmp_path / name / "corpus.json").read_text()) for name in ("parts", "whole")
    ]
    assert found[0] == found[1]
    assert graph.notes["twins_left_out_of_test"] == (twins == "drop")


def test_DebTagsReader_faults_are_named_with_file_and_line(tmp_path):
    folder = write_index(tmp_path, PACKAGES + "\nTag: a::b\n")
    with (folder / "Translation-en").open("ab") as file:
        file.write(b"\nPackage: fern\nDescription-en: foug\xe8re\n")
    with pytest.raises(CorpusError) as caught:
        DebTagsReader(folder).read_corpus()
    assert str(caught.value).splitlines() == [
        f"The folder '{folder}' must hold a package index, but 2 faults were found:",
        "  Translation-en:18: the file must be UTF-8, but byte 20 of the line is 0xe8; "
        "convert the file.",
        "  Packages:42: a stanza must have the field 'Package'; fetch the file again.",
    ]


def test_DebTagsReader_faults_are_listed_up_to_a_limit(tmp_path):
    with pytest.raises(CorpusError, match=r"but at least 100 faults were found"):
        DebTagsReader(write_index(tmp_path, "Tag: a::b\n\n" * 500)).read_corpus()


def test_DebTagsReader_without_tags_says_so(tmp_path):
    folder = write_index(tmp_path, "Package: fern\nSection: garden\n")
    with pytest.raises(CorpusError) as caught:
        DebTagsReader(folder).read_corpus()
    assert str(caught.value) == (
        f"The package index must hold tags (the field 'Tag', which Debian's main archive has), but "
        f"'{folder / 'Packages'}' gave none; mend that, or take the data set 'synthetic' or a "
        f"folder in the MATCH format."
    )


def test_DebTags_dataset_is_fetched_once_and_opened_offline(tmp_path, monkeypatch):
    monkeypatch.setattr(debtags, "fetch_index", write_index)
    dataset = open_dataset("debtags", root=tmp_path)
    assert DATASETS["debtags"] is DebTags is type(dataset)
    assert dataset.names("document").tolist() == ["moss", "moss-doc", "willow", "flint"]
    assert dataset.source["files"].keys() == {"Packages", "Translation-en"}
    packages = hashlib.sha256(PACKAGES.encode()).hexdigest()
    assert dataset.source["files"]["Packages"] == packages

    monkeypatch.delattr(debtags, "fetch_index")
    assert DebTags(root=tmp_path).checksum == dataset.checksum
    other = DebTags(tokenizer="whitespace", root=tmp_path)
    assert other.checksum != dataset.checksum
    assert "Moss" in set(other.names("word"))


# The index of the card; another release's differs
CARD = "58a8cd7012dea6de9ad98ebad3fb7a0778e38c6f3782db56291d67423dfd257b"


@pytest.mark.slow
def test_DebTagsReader_machines_own_index(tmp_path):
    try:
        fetch_index(tmp_path)
    except CorpusError as error:
        pytest.skip(f"no package index on this machine: {error}")
    corpus = DebTagsReader(tmp_path).read_corpus()
    lines = (tmp_path / "Packages").read_text(encoding="utf-8").splitlines()
    left_out = [corpus.notes[f"twins_left_out_of_{split}"] for split in ("valid", "test")]
    tagged = sum(line.startswith("Tag:") for line in lines)
    repeated = corpus.notes["repeated_packages_dropped"]
    assert corpus.num_documents == tagged - sum(left_out) - repeated > 10_000
    words = corpus.documents["text"].map(lambda text: " ".join(split_words(text)))
    known = {*words[corpus.documents["split"] == "train"]} - {""}
    assert not words[corpus.documents["split"] != "train"].isin(known).any()
    assert (corpus.documents["text"] == "").mean() < 0.01

    label = corpus.instances["label"]["id"]
    above = {**dict.fromkeys(label), **corpus.hierarchy.set_index("child")["parent"].to_dict()}
    edges = corpus.edges["label"]
    carried = set(zip(edges["document"], label.iloc[edges["instance"]], strict=True))
    assert all(above[name] is None or (doc, above[name]) in carried for doc, name in carried)

    if hash_file(tmp_path / "Packages") == CARD:
        counts = {name: len(table) for name, table in corpus.instances.items()}
        counts.pop("word")
        assert counts == {"venue": 57, "author": 1844, "reference": 28_318, "label": 635}
        assert len(corpus.edges["reference"]) == 172_390
        assert len(corpus.hierarchy) == 604
        splits = corpus.documents["split"].value_counts().to_dict()
        assert splits == {"train": 24_195, "valid": 2829, "test": 3015}
        assert (left_out, repeated) == ([191, 70], 3)
        assert round(len(edges) / corpus.num_documents, 2) == 6.92
        assert round(len(corpus.edges["word"]) / corpus.num_documents) == 66


@pytest.mark.parametrize(
    "value",
    ["a::" + "{a,b}" * 25, "{" * 30_000 + "a" + "}" * 30_000, "a::b" + ":c" * 200, "x" * (2 << 20)],
    ids=["expands", "nested", "long", "huge"],
)
def test_split_tags_refuses_what_expands_without_end(value):
    """Nested braces that expand to 2^25 tags, or a tag of 200 levels, are refused at once."""
    assert split_tags(value) is None


def test_split_tags_keeps_the_most_that_is_allowed():
    """1,000 tags and a tag of 100 colons are kept; one more is refused."""
    tags = [f"a::b{number}" for number in range(1001)]
    assert split_tags(", ".join(tags[:1000])) == tags[:1000]
    assert split_tags(", ".join(tags)) is None
    tag = "a::b" + ":c" * 98
    assert split_tags(tag) == [tag]
    assert split_tags(f"{tag}:c") is None


@pytest.mark.parametrize(
    ("value", "found"), [("x::{a,{b,c}}", "x::{a"), ("x::{a", "x::{a"), ("x::y, x::a}", "x::a}")]
)
def test_DebTagsReader_braces_not_in_pairs(tmp_path, value, found):
    packages = PACKAGES.rstrip() + f"\n\nPackage: odd\nTag: {value}\n"
    (tmp_path / "Packages").write_text(packages)
    (tmp_path / "Translation-en").write_text(DESCRIPTIONS)
    line = packages[: packages.index("Package: odd")].count("\n") + 1
    with pytest.raises(CorpusError) as caught:
        DebTagsReader(tmp_path).read_corpus()
    assert str(caught.value) == (
        f"The folder '{tmp_path}' must hold a package index: Packages:{line}: the braces of the "
        f"field 'Tag' must be in pairs, none within others, found '{found}'; fetch the file again."
    )


def test_DebTagsReader_braces_without_end_fault_with_place(tmp_path):
    """A package with too many braces is one fault with its place."""
    packages = PACKAGES.rstrip() + "\n\nPackage: evil\nTag: x::" + "{a,b}" * 25 + "\n"
    with pytest.raises(CorpusError) as caught:
        DebTagsReader(write_index(tmp_path, packages)).read_corpus()
    line = packages[: packages.index("Package: evil")].count("\n") + 1
    assert str(caught.value) == (
        f"The folder '{tmp_path}' must hold a package index: Packages:{line}: the field 'Tag' must "
        f"stand for at most 1,000 tags of at most 100 levels, braces written out, found more; "
        f"fetch the file again."
    )
