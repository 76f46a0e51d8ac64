"""Documents to predict as callers give them."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from match_graph.corpus import WORD_PATTERN, TableLayout
from match_graph.datasets import Custom, CustomReader
from match_graph.errors import CorpusError
from match_graph.predict.documents import Cells, OwnColumns, list_rows, name_documents, read_rows
from match_graph.runs.vocabulary import TextSettings, read_document


def own_columns(
    fields: list[str],
    layout: TableLayout | None = None,
    dropped: Sequence[str] = (),
    reads_x: bool = False,
) -> OwnColumns:
    settings = TextSettings(
        fields=fields, tokenizer="regex", word_pattern=WORD_PATTERN, layout=layout
    )
    return OwnColumns(settings, dropped, reads_x)


def test_list_rows_leaves_out_missing_cells() -> None:
    """A DataFrame gives one document a row, without its missing cells."""
    frame = pd.DataFrame({"text": ["a", "b"], "venue": ["v", None], "year": [1999.0, np.nan]})
    expected = [{"text": "a", "venue": "v", "year": 1999}, {"text": "b"}]
    assert list_rows(frame, "X") == expected
    assert [*name_documents(frame)] == [("document 1", expected[0]), ("document 2", expected[1])]


def test_name_documents_refuses_what_is_no_list() -> None:
    """A single document and a frame with two columns of one name are refused."""
    with pytest.raises(CorpusError) as caught:
        name_documents({"text": "a"})
    assert str(caught.value) == (
        "The documents must be a list of them, a dict each, found {'text': 'a'}; put them in a "
        "list."
    )
    frame = pd.DataFrame([["a", "b"]], columns=["text", "text"])
    with pytest.raises(CorpusError) as caught:
        name_documents(frame)
    assert str(caught.value) == (
        "The DataFrame of documents must name every column once, found ['text', 'text']."
    )


def test_OwnColumns_warn_of_unread_names_all_keys_once() -> None:
    """One warning names all unread keys; known keys and wrong documents add none."""
    good = [("1", {"text": "a", "paper": "p", "label": [], "time": 1, "x": [], "venue": "v"})]
    bad = [("2", {"text": "a", "venu": "v"}), ("3", {"authors": [], "venu": "w"}), ("4", None)]
    found: list[str] = []
    venue, bare = own_columns(["venue"]), own_columns([])
    with_x = own_columns(["venue"], reads_x=True)
    assert [*with_x.warn_of_unread(good, found.append)] == good
    assert found == []
    assert [*with_x.warn_of_unread(good + bad, found.append)] == good + bad
    sentence = (
        "the keys ['authors', 'venu'] of documents are not read; this run reads ['text', 'venue']"
    )
    assert found.pop() == sentence.replace("'text'", "'text', 'x'")
    assert [*venue.warn_of_unread(bad, found.append)] == bad
    assert found == [sentence]
    assert [*bare.warn_of_unread(bad, found.append)] == bad
    assert found == [sentence]  # a run without metadata
    without = own_columns(["venue"], dropped=["authors", "venu"])
    assert [*without.warn_of_unread(bad, found.append)] == bad
    assert found == [sentence]  # a run that leaves them out
    vectors = [("1", {"text": "a", "time": 1, "x": [0.0], "venu": "v"})]
    assert [*bare.warn_of_unread(vectors, found.append)] == vectors
    assert found.pop() == ("the keys ['x'] of documents are not read; this run reads ['text']")
    with pytest.warns(UserWarning) as warned:
        assert [*venue.warn_of_unread(bad)] == bad
    assert [str(one.message) for one in warned] == [sentence]


OPTIONS = {
    "fields": ["author", "title"],
    "columns": {
        "id": "key", "text": ["title", "body"], "author": ["first", "others"], "label": "tags",
        "split": "fold", "date": "day",
    },
    "separator": "|",
}  # fmt: skip
LAYOUT = Custom.Config(**OPTIONS).make_layout().model_copy(update={"separator": "|"})
ROWS: list[dict[str, Any]] = [
    {"key": f"p{n}", "title": f"Title {n}", "body": body, "first": "Bo", "others": others,
     "tags": ["deep learning", "all"], "fold": "train", "day": f"20{n:02}-02", "note": "unread"}
    for n, (body, others) in enumerate([("of one; and two", ["a|b", "Li"]), ("", []), ("x", "Å")])
]  # fmt: skip


@pytest.mark.parametrize("name", ["new.csv", "new.tsv", "new.jsonl"])
def test_OwnColumns_reads_documents_as_Custom_does(tmp_path: Path, name: str) -> None:
    """Prediction reads text, metadata, labels and times of a file as training does."""
    path = tmp_path / name
    if name == "new.jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="," if name == "new.csv" else "\t")
            writer.writerow(ROWS[0])
            for row in ROWS:
                joined = ("|".join(v) if isinstance(v, list) else v for v in row.values())
                writer.writerow(joined)
    corpus = CustomReader([path], Custom.Config(**OPTIONS)).read_corpus()
    columns = own_columns(OPTIONS["fields"], LAYOUT)
    with path.open("rb") as lines:
        named = [*read_rows(lines, path)]
    found = [
        read_document(columns.translate(row, place), OPTIONS["fields"], place, True, 0, True)
        for place, row in named
    ]
    documents = corpus.documents
    assert [one.id for one in found] == documents["id"].tolist()
    assert [one.text for one in found] == documents["text"].tolist()
    assert [one.time for one in found] == documents["time"].tolist()
    for field in (*OPTIONS["fields"], "label"):
        names, edges = corpus.instances[field]["id"].tolist(), corpus.edges[field]
        expected = [
            [names[one] for one in edges[edges["document"] == number].iloc[:, 1]]
            for number in range(len(found))
        ]
        assert [
            [*one.gold] if field == "label" else [*one.metadata[field]] for one in found
        ] == expected


def test_OwnColumns_takes_the_MATCH_format_too() -> None:
    """Documents in either form are read; keys of the other form are named as unread."""
    columns = own_columns(OPTIONS["fields"], LAYOUT)
    document = {"paper": 3, "text": "of one", "author": ["Bo"], "label": ["all"]}
    assert columns.translate(document, "1") is document
    assert columns.translate(["text"], "1") == ["text"]
    cells = Cells({"paper": "3", "text": "of one", "author": "Bo;Li", "label": "all"})
    assert columns.translate(cells, "1") == {**document, "paper": "3", "author": ["Bo", "Li"]}
    row = {"key": 3, "body": "of one", "others": "Bo", "label": 5, "author": ["Li"], "time": "x"}
    expected = {"paper": "3", "text": "of one", "author": ["Bo"]}
    assert columns.translate(row, "1") == expected
    found: list[str] = []
    assert [*columns.warn_of_unread([("1", row), ("2", {**ROWS[0]})], found.append)]
    assert found == [
        "the keys ['author', 'label', 'note', 'time'] of documents are not read; this run reads "
        "['title', 'body', 'first', 'others']"
    ]


def test_OwnColumns_dropped_fields_are_of_the_MATCH_format() -> None:
    """A field that the run leaves out does not make a document a row of the run's table."""
    layout = TableLayout(columns={"text": ["title", "body"], "author": ["author"]})
    columns = own_columns([], layout, dropped=["author"])
    document = {"paper": "3", "text": "of one", "author": ["Bo"]}
    assert columns.translate(document, "1") is document
    assert columns.translate({"title": "of one", "author": ["Bo"]}, "1") == {"text": "of one"}


def test_OwnColumns_labels_that_must_be_there() -> None:
    """A missing label column is named as the run calls it; an empty cell has no labels."""
    columns = own_columns(OPTIONS["fields"], LAYOUT)
    row = {"key": "3", "title": "of one", "tags": ""}
    assert columns.translate(Cells(row), "1", with_gold=True)["label"] == []
    del row["tags"]
    for one in (row, Cells(row)):
        assert "label" not in columns.translate(one, "1")
        with pytest.raises(CorpusError) as caught:
            columns.translate(one, "new.csv:2", with_gold=True)
        assert str(caught.value) == (
            "The documents must be readable: new.csv:2: there must be labels in the columns "
            "['tags'], found ['key', 'title']; give an empty one for a document without labels."
        )


def test_OwnColumns_missing_cells_are_empty() -> None:
    """Missing cells are empty as in training; CSV without any text column is refused."""
    columns = own_columns(OPTIONS["fields"], LAYOUT)
    for missing in (None, pd.NA, ""):
        row = {"key": missing, "first": ["Bo"], 5: "a"}
        assert columns.translate(row, "1") == {"text": "", "author": ["Bo"]}
    assert columns.translate(Cells({"key": "3", "title": "", "body": ""}), "1") == {
        "paper": "3", "text": "", "title": [],
    }  # fmt: skip
    with pytest.raises(CorpusError) as caught:
        columns.translate(Cells({"key": "3", "Body": "of one"}), "new.csv:2")
    assert str(caught.value) == (
        "The documents must be readable: new.csv:2: there must be a text in the columns "
        "['title', 'body'], found ['key', 'Body']; name the columns so."
    )


def test_OwnColumns_reads_CSV_by_the_keys_of_MATCH() -> None:
    """CSV has the keys of the MATCH format where the run's data set has no own columns."""
    columns = own_columns(["author"])
    row = {"paper": "3", "text": "of one", "author": "Bo;Li", "label": "a; b", "time": "2015"}
    assert columns.translate(row, "1") is row
    expected = {
        "paper": "3", "text": "of one", "author": ["Bo", "Li"], "label": ["a", "b"], "time": 2015,
    }  # fmt: skip
    assert columns.translate(Cells(row), "1") == expected
    odd = columns.translate(Cells({**row, "paper": "", "time": "May"}), "1")
    assert odd == {name: one for name, one in expected.items() if name != "paper"} | {"time": "May"}
    assert columns.translate(Cells({**row, "time": " "}), "1")["time"] is None
