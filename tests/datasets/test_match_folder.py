"""The MATCH format: what reads, what is refused and with which sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora import list_instances
from pydantic import ValidationError

from match_graph.corpus import Corpus
from match_graph.datasets import MatchFolder, MatchReader
from match_graph.datasets.match_folder import read_taxonomy
from match_graph.errors import ConfigError, CorpusError
from match_graph.graph import describe_graph
from match_graph.testing import toy_documents, write_match_folder

SUMMARY = "The folder '{folder}' must be in the MATCH format"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the toy folder, to be damaged."""
    return write_match_folder(tmp_path / "toy")


def change_line(path: Path, number: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the JSON object of one line, counted from 1."""
    lines = path.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[number - 1])
    change(record)
    lines[number - 1] = json.dumps(record, ensure_ascii=False)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def replace_line(path: Path, number: int, line: bytes) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = line
    path.write_bytes(b"\n".join(lines))


def refusal(folder: Path, **options: Any) -> str:
    """Message with which a folder is refused; only locks may be left."""
    root = folder.parent / "root"
    with pytest.raises(CorpusError) as caught:
        MatchFolder(folder, root=root, **options)
    left = [path for path in root.rglob("*") if path.is_file()]
    assert all(path.suffix == ".lock" for path in left), left
    assert [path.name for path in root.rglob("*") if path.is_dir()] in ([], ["built"])
    return str(caught.value)


# What is read --------------------------------------------------------------------------------


def test_Corpus_every_list_of_the_files_is_in_the_corpus(toy: Corpus) -> None:
    """Ids, splits, texts, metadata and labels equal the JSON objects."""
    records = [(split, record) for split, records in toy_documents().items() for record in records]
    assert toy.documents["id"].tolist() == [str(record["paper"]) for _, record in records]
    assert toy.documents["split"].tolist() == [split for split, _ in records]
    assert toy.documents["text"].tolist() == [record["text"] for _, record in records]
    assert list_instances(toy, "label") == [record["label"] for _, record in records]
    for field in ("venue", "author", "reference"):
        expected = []
        for _, record in records:
            value = record.get(field)
            values = value if isinstance(value, list) else [value]
            expected.append(list(dict.fromkeys(item for item in values if item)))
        assert list_instances(toy, field) == expected
    assert list_instances(toy, "word")[0] == [
        "learning",
        "graphs",
        "from",
        "small",
        "graphs",
        "in",
        "c++",
    ]
    assert toy.notes == {"repeated_values_dropped": 1}


def test_Corpus_toy_folder_is_as_dirty_as_it_says(toy: Corpus) -> None:
    """The toy folder has the oddities that it promises."""
    venues, authors, words, labels = (
        list_instances(toy, name) for name in ("venue", "author", "word", "label")
    )
    assert toy.num_documents == 12
    assert sum(not venue for venue in venues) == 3  # missing, empty and null
    assert [] in authors
    assert [] in words
    assert [] in labels
    in_hierarchy = set(toy.hierarchy["child"]) | set(toy.hierarchy["parent"])
    on_documents = {label for row in labels for label in row}
    assert on_documents - in_hierarchy == {"misc"}
    assert in_hierarchy - on_documents == {"methods"}
    parents = toy.hierarchy.groupby("child")["parent"].apply(set)
    assert parents["bridge"] == {"learning", "biology"}
    assert parents["learning"] & parents["biology"] == {"science"}  # the diamond
    assert any(not name.isascii() for name in toy.instances["author"]["id"])
    assert set(toy.instances["reference"]["id"]) & set(toy.documents["id"])


def test_MatchReader_bom_crlf_and_blank_lines_read_same(folder: Path, toy: Corpus) -> None:
    """A BOM, CRLF and blank lines do not change the corpus."""
    for path in folder.iterdir():
        lines = path.read_bytes().splitlines()
        path.write_bytes(b"\xef\xbb\xbf" + b"\r\n\r\n".join(lines) + b"\r\n \r\n")
    corpus = MatchReader(folder).read_corpus()
    assert corpus.documents.equals(toy.documents)
    assert corpus.fields == toy.fields
    for name in toy.edges:
        assert corpus.edges[name].equals(toy.edges[name])
        assert corpus.instances[name].equals(toy.instances[name])
    assert corpus.hierarchy[["child", "parent"]].equals(toy.hierarchy[["child", "parent"]])


def test_MatchReader_bom_on_a_blank_first_line_is_blank(folder: Path) -> None:
    """A first line of a BOM alone is blank."""
    for name in ("train.json", "taxonomy.txt"):
        path = folder / name
        path.write_bytes(b"\xef\xbb\xbf\r\n" + path.read_bytes())
    assert MatchReader(folder).read_corpus().num_documents == 12


def test_MatchReader_fields_choose_replace_metadata_file(folder: Path) -> None:
    """With the option fields, no meta_dict.json is needed."""
    (folder / "meta_dict.json").unlink()
    corpus = MatchReader(folder, MatchFolder.Config(fields=["author"])).read_corpus()
    assert corpus.fields == ["author"]
    assert len(corpus.edges["author"]) == 15


def test_MatchReader_field_may_be_on_no_document(folder: Path) -> None:
    """A field of meta_dict.json may be on no document."""
    write_match_folder(folder, fields=["author", "keyword"])
    corpus = MatchReader(folder).read_corpus()
    assert corpus.fields == ["author", "keyword"]
    assert len(corpus.edges["keyword"]) == 0


def test_MatchFolder_fields_given_must_be_on_some_document(folder: Path) -> None:
    """A field given by option must be on some document, as it may be misspelt."""
    assert refusal(folder, fields=["author", "nope", "keyword"]) == (
        f"{SUMMARY.format(folder=folder)}: no document has the metadata fields "
        f"['keyword', 'nope'] that data.fields names; the documents have "
        f"['author', 'reference', 'venue'], choose from these."
    )


def test_MatchReader_without_hierarchy_no_taxonomy_is_read(folder: Path) -> None:
    """hierarchy='ignore' needs no taxonomy.txt and leaves every label without a parent."""
    (folder / "taxonomy.txt").unlink()
    assert (
        len(MatchReader(folder, MatchFolder.Config(hierarchy="ignore")).read_corpus().hierarchy)
        == 0
    )


def test_MatchReader_label_names_are_read(folder: Path) -> None:
    """id2label.txt names labels; lines without a tab are ignored."""
    names = "deep\tDeep\tlearning\nno tab\n"
    (folder / "id2label.txt").write_text(names, encoding="utf-8")
    labels = MatchReader(folder).read_corpus().instances["label"].set_index("id")["name"]
    assert labels["deep"] == "Deep\tlearning"
    assert labels["misc"] == "misc"


def test_MatchReader_whitespace_tokenizer_is_used(folder: Path) -> None:
    """The tokenizer whitespace keeps case and punctuation."""
    words = list_instances(
        MatchReader(folder, MatchFolder.Config(tokenizer="whitespace")).read_corpus(), "word"
    )
    assert words[5] == ["Odds", "and", "ends."]


def test_MatchFolder_input_folder_is_left_untouched(folder: Path) -> None:
    """Building writes nothing beside the raw files, and changes none."""
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    MatchFolder(folder)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert after == before


# What is refused -----------------------------------------------------------------------------


def test_MatchFolder_no_such_folder(tmp_path: Path) -> None:
    """A path that is no folder is named."""
    with pytest.raises(CorpusError) as caught:
        MatchFolder(tmp_path / "nowhere")
    assert str(caught.value) == (
        f"A data set in the MATCH format must be a folder, but there is none at "
        f"'{tmp_path / 'nowhere'}'; check the path."
    )


def test_MatchFolder_missing_split_file(folder: Path) -> None:
    """A missing dev.json is refused, not read as an empty split."""
    (folder / "dev.json").unlink()
    assert refusal(folder) == (
        f"{SUMMARY.format(folder=folder)}, but it has no dev.json; "
        f"add what is missing, or check the path."
    )


def test_MatchFolder_missing_taxonomy_alone(folder: Path) -> None:
    """A missing taxonomy must be allowed by an option."""
    (folder / "taxonomy.txt").unlink()
    assert refusal(folder) == (
        f"{SUMMARY.format(folder=folder)}, but it has no taxonomy.txt; "
        f"add what is missing, or set data.hierarchy=ignore if there is none."
    )


def test_MatchFolder_all_missing_files_are_named(folder: Path) -> None:
    """Several missing files make one sentence."""
    for name in ("test.json", "meta_dict.json", "taxonomy.txt"):
        (folder / name).unlink()
    assert refusal(folder) == (
        f"{SUMMARY.format(folder=folder)}, but it has no test.json and no meta_dict.json and "
        f"no taxonomy.txt; add what is missing, or check the path."
    )


def test_MatchFolder_run_folder_is_none(folder: Path) -> None:
    """The message names a run folder, not the missing files of a data set."""
    (folder / "taxonomy.txt").unlink()
    for name in ("config.yaml", "record.json"):
        (folder / name).write_text("{}")
    assert refusal(folder) == (
        f"A data set must be named, but '{folder}' is a run folder; give the data set of the run, "
        f"which its record.json names."
    )


def test_MatchFolder_empty_training_split(folder: Path) -> None:
    """A corpus without training documents is refused."""
    (folder / "train.json").write_text("\n")
    assert refusal(folder) == (
        "The corpus 'toy' must be consistent: the training split must hold a document, found none."
    )


def test_MatchReader_word_that_is_no_choice(folder: Path) -> None:
    """Values that are no choice of an option are refused, all at once."""
    options = {"fields": "author", "tokenizer": "bpe", "hierarchy": "foo"}
    with pytest.raises(ConfigError) as caught:
        MatchFolder(folder, **options)
    assert sorted(str(caught.value).splitlines()) == [
        "  'fields': Input should be a list, found 'author'.",
        "  'hierarchy': Input should be 'use' or 'ignore', found 'foo'.",
        "  'tokenizer': Input should be 'regex', 'unicode' or 'whitespace', found 'bpe'.",
        "The options of MatchFolder must be valid, but 3 faults were found:",
    ]
    with pytest.raises(ValidationError):
        MatchFolder.Config(**options)


LINE_FAULTS = {
    "truncated": (
        b'{"paper": "t2", "text": "Deep',
        "a line must be one JSON object, but it breaks off or is malformed "
        "(Unterminated string starting at, column 25); mend or remove the line.",
    ),
    "number-too-long": (
        b'{"paper": ' + b"1" * 5000 + b"}",
        "a line must be one JSON object, but it breaks off or is malformed "
        "(a number with too many digits); "
        "mend or remove the line.",
    ),
    "too-deep": (
        b"[" * 200_000,
        "a line must be one JSON object, but it breaks off or is malformed "
        "(nested too deeply); mend or remove the line.",
    ),
    "lone-surrogate": (
        b'{"paper": "t2", "text": "\\ud800", "label": []}',
        "a line must be one JSON object, but it breaks off or is malformed "
        "(half a surrogate pair, which no text can hold); mend or remove the line.",
    ),
    "no-object": (
        b'["t2"]',
        'a line must be one JSON object, found the list ["t2"]; write one document a line.',
    ),
    "not-utf-8": (
        b'{"paper": "t2", "text": "\xe9"}',
        "the file must be UTF-8, but byte 25 of the line is 0xe9; convert the file.",
    ),
}


@pytest.mark.parametrize("name", LINE_FAULTS)
def test_MatchFolder_line_that_is_no_object(folder: Path, name: str) -> None:
    """A line that cannot be read is named by file:line, with what to do."""
    line, fault = LINE_FAULTS[name]
    replace_line(folder / "train.json", 2, line)
    assert refusal(folder) == f"{SUMMARY.format(folder=folder)}: train.json:2: {fault}"


VALUE_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "label-string": (
        {"label": "a"},
        "'label' must be a list of strings, found the string \"a\"; "
        "write [] for a document without labels.",
    ),
    "label-missing": (
        {"label": ...},
        "'label' must be a list of strings, found nothing; write [] for a document without labels.",
    ),
    "label-numbers": (
        {"label": [1, 2]},
        "'label' must be a list of strings, found the list [1, 2]; "
        "write [] for a document without labels.",
    ),
    "venue-object": (
        {"venue": {"id": 7}},
        "'venue' must be a string or a list of strings, found the object {\"id\": 7}.",
    ),
    "venue-fraction": (
        {"venue": 1.5},
        "'venue' must be a string or a list of strings, found the number 1.5.",
    ),
    "venue-truth": (
        {"venue": True},
        "'venue' must be a string or a list of strings, found the truth value true.",
    ),
    "author-nested": (
        {"author": ["Bo", ["Bo"]]},
        '\'author\' must be a string or a list of strings, found the list ["Bo", ["Bo"]].',
    ),
    "paper-missing": ({"paper": ...}, "'paper' must be the document's id, found nothing."),
    "paper-empty": ({"paper": ""}, "'paper' must be the document's id, found the string \"\"."),
    "paper-truth": (
        {"paper": False},
        "'paper' must be the document's id, found the truth value false.",
    ),
    "text-missing": (
        {"text": ...},
        "'text' must be a string, found nothing; give \"\" where there is none.",
    ),
    "text-list": (
        {"text": ["word"] * 20},
        "'text' must be a string, found the list " + json.dumps(["word"] * 20)[:57] + "....",
    ),
    "repeated-within": (
        {"paper": "t1"},
        "the document 't1' was given before (train.json:1); every document needs an id of its own.",
    ),
}


@pytest.mark.parametrize("name", VALUE_FAULTS)
def test_MatchFolder_value_of_the_wrong_type(folder: Path, name: str) -> None:
    """A wrong value is named by file:line and shown; ... stands for a missing key."""
    change, fault = VALUE_FAULTS[name]

    def spoil(record: dict[str, Any]) -> None:
        record.update(change)
        for key in [key for key, value in change.items() if value is ...]:
            del record[key]

    change_line(folder / "train.json", 2, spoil)
    assert refusal(folder) == f"{SUMMARY.format(folder=folder)}: train.json:2: {fault}"


def test_MatchFolder_document_in_two_splits(folder: Path) -> None:
    """A document in two splits is refused, as it would leak."""
    change_line(folder / "test.json", 1, lambda record: record.update(paper="t3"))
    assert refusal(folder) == (
        f"{SUMMARY.format(folder=folder)}: test.json:1: the document 't3' was given before "
        f"(train.json:3); every document needs an id of its own."
    )


def test_MatchFolder_number_and_a_string_are_the_same_id(folder: Path) -> None:
    """8 and "8" are the same id."""
    change_line(folder / "dev.json", 2, lambda record: record.update(paper="8"))
    assert refusal(folder) == (
        f"{SUMMARY.format(folder=folder)}: dev.json:2: the document '8' was given before "
        f"(train.json:8); every document needs an id of its own."
    )


def test_MatchFolder_cycle_in_the_hierarchy(folder: Path) -> None:
    """The cycle and the line that closes it are named."""
    with (folder / "taxonomy.txt").open("a") as file:
        file.write("deep science\n")
    assert refusal(folder) == (
        "The corpus 'toy' must be consistent: the label hierarchy must be acyclic, but "
        "learning -> science -> deep -> learning is a cycle (taxonomy.txt:2); "
        "remove one of these edges, or leave the hierarchy out (of files: data.hierarchy=ignore)."
    )


def test_MatchFolder_label_that_is_its_own_parent(folder: Path) -> None:
    """A line "a a" is a cycle."""
    with (folder / "taxonomy.txt").open("a") as file:
        file.write("misc misc\n")
    assert refusal(folder) == (
        "The corpus 'toy' must be consistent: the label hierarchy must be acyclic, but "
        "misc -> misc is a cycle (taxonomy.txt:5); "
        "remove one of these edges, or leave the hierarchy out (of files: data.hierarchy=ignore)."
    )


def test_MatchFolder_ignoring_the_hierarchy_accepts_its_cycle(folder: Path) -> None:
    """The option that the message advises accepts the folder."""
    with (folder / "taxonomy.txt").open("a") as file:
        file.write("deep science\n")
    assert MatchFolder(folder, hierarchy="ignore").hierarchy.num_edges == 0


def test_MatchFolder_metadata_field_called_label(folder: Path) -> None:
    """A field cannot have the name of a reserved node type."""
    write_match_folder(folder, fields=["venue", "label"])
    assert refusal(folder) == (
        f"{SUMMARY.format(folder=folder)}: a metadata field cannot be named 'label': "
        f"that node type is taken."
    )


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"fields": []}', b'{"metadata": "venue"}', b'{"metadata": [1]}', b"\xff", b""],
)
def test_MatchFolder_broken_metadata_file(folder: Path, content: bytes) -> None:
    """meta_dict.json must hold a list of names."""
    (folder / "meta_dict.json").write_bytes(content)
    assert refusal(folder) == (
        f'meta_dict.json must hold an object like {{"metadata": ["venue", "author"]}}, found '
        f"something else in '{folder / 'meta_dict.json'}'; "
        f"mend it, or name the fields (data.fields)."
    )


def test_MatchFolder_taxonomy_that_is_not_utf_8(folder: Path) -> None:
    """A line of the taxonomy that is not UTF-8 is named."""
    replace_line(folder / "taxonomy.txt", 3, b"biologie caf\xe9")
    assert refusal(folder) == (
        f"{SUMMARY.format(folder=folder)}: taxonomy.txt:3: the file must be UTF-8, but byte 12 "
        f"of the line is 0xe9; convert the file."
    )


def test_MatchFolder_all_faults_are_listed_with_their_places(folder: Path) -> None:
    """Faults of several files are one message, in the order of reading."""
    replace_line(folder / "train.json", 2, b'{"paper": "t2"')
    change_line(folder / "dev.json", 1, lambda record: record.update(label="a", text=3))
    change_line(folder / "test.json", 2, lambda record: record.update(paper="x1"))
    replace_line(folder / "taxonomy.txt", 1, b"\xff")
    assert refusal(folder).splitlines() == [
        f"{SUMMARY.format(folder=folder)}, but 5 faults were found:",
        "  train.json:2: a line must be one JSON object, but it breaks off or is malformed "
        "(Expecting ',' delimiter, column 15); mend or remove the line.",
        "  dev.json:1: 'text' must be a string, found the number 3.",
        "  dev.json:1: 'label' must be a list of strings, found the string \"a\"; "
        "write [] for a document without labels.",
        "  test.json:2: the document 'x1' was given before (test.json:1); "
        "every document needs an id of its own.",
        "  taxonomy.txt:1: the file must be UTF-8, but byte 0 of the line is 0xff; "
        "convert the file.",
    ]


def test_MatchFolder_file_another_kind_does_not_flood_terminal(folder: Path) -> None:
    """Twenty of many faults are listed, and reading stops early."""
    (folder / "train.json").write_text("no json\n" * 5000)
    lines = refusal(folder).splitlines()
    assert len(lines) == 22
    assert lines[-1].startswith("  ... and ")


# Real data -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "cacm",
            {
                "train documents": 1130,
                "valid documents": 131,
                "test documents": 163,
                "labels": 197,
                "labels / document": 2.74,
                "venue nodes": 12,
                "author nodes": 1614,
                "reference nodes": 1294,
                "hierarchy_edges_read": 200,
                "labels with several parents": 0,
                "P(parent | child) in training": 0.03,
            },
        ),
        (
            "biotools",
            {
                "train documents": 15563,
                "valid documents": 2008,
                "test documents": 1957,
                "labels": 797,
                "labels / document": 5.20,
                "venue nodes": 745,
                "author nodes": 38725,
                "reference nodes": 18903,
                "hierarchy_edges_read": 991,
                "labels with several parents": 198,
                "P(parent | child) in training": 0.05,
            },
        ),
    ],
)
def test_MatchFolder_real_folders_have_the_published_counts(
    data_folder: Path, name: str, expected: dict[str, float]
) -> None:
    """Counts equal the table of the data's own README."""
    dataset = MatchFolder(data_folder / name)
    rows = {**describe_graph(dataset[0], dataset.targets), **dataset.notes}
    assert {key: round(rows[key], 2) for key in expected} == expected


def test_read_taxonomy_lines_split_by_tab_or_else_by_white_space() -> None:
    """Labels between tabs may hold blanks; a line without children has no edge."""
    lines = [b"all\tdeep learning\tbiology\n", b"\n", b"a b  c\r\n", b"alone\n", b"x\t\n"]
    assert read_taxonomy(lines, "t.txt", pytest.fail) == [
        ("deep learning", "all", "t.txt:1"),
        ("biology", "all", "t.txt:1"),
        ("b", "a", "t.txt:3"),
        ("c", "a", "t.txt:3"),
    ]


def test_read_taxonomy_other_encodings_are_faults() -> None:
    """A line that is not UTF-8 is a fault with file:line."""
    faults: list[str] = []
    assert read_taxonomy([b"a caf\xe9\n"], "t.txt", faults.append) == []
    assert faults == [
        "t.txt:1: the file must be UTF-8, but byte 5 of the line is 0xe9; convert the file."
    ]
