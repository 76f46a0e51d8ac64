"""Documents one by one -> `Corpus`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.datasets import CorpusBuilder
from match_graph.datasets.builder import Interner
from match_graph.errors import CorpusError


def make_builder() -> CorpusBuilder:
    return CorpusBuilder("little", ["author"], "The source must be readable")


@given(st.lists(st.lists(st.sampled_from("abcdeé"), max_size=5), max_size=8))
def test_interner_packs_lists_in_order(lists: list[list[str]]) -> None:
    """Rows and codes give back every list; codes count up by first appearance."""
    interner = Interner()
    for values in lists:
        interner.append(values)
    ids, edges = interner.instances()["id"].tolist(), interner.edges()
    restored: list[list[str]] = [[] for _ in lists]
    for document, instance in zip(edges["document"], edges["instance"], strict=True):
        restored[document].append(ids[instance])
    assert restored == lists
    assert ids == list(dict.fromkeys(value for values in lists for value in values))
    assert edges.dtypes.astype(str).tolist() == ["int32", "int32"]


def test_metadata_and_labels_are_sets_and_words_a_sequence() -> None:
    """A repeated author or label counts once and is counted in the notes; words repeat."""
    builder = make_builder()
    builder.add("d", "train", "x x", ["x", "x"], {"author": ["b", "a", "b"]}, ["l", "l"], "f:1")
    corpus = builder.build([])
    assert corpus.edges["author"]["instance"].tolist() == [0, 1]
    assert corpus.instances["author"]["id"].tolist() == ["b", "a"]
    assert corpus.edges["word"]["instance"].tolist() == [0, 0]
    assert len(corpus.edges["label"]) == 1
    assert corpus.notes == {"repeated_values_dropped": 2}


def test_a_repeated_document_is_a_fault_with_both_places() -> None:
    """The message names where the id was given first."""
    builder = make_builder()
    builder.add("d", "train", "", [], {"author": []}, [], "one:1")
    builder.add("d", "test", "", [], {"author": []}, [], "two:7")
    with pytest.raises(CorpusError) as caught:
        builder.build([])
    assert str(caught.value) == (
        "The source must be readable: two:7: the document 'd' was given before (one:1); "
        "every document needs an id of its own."
    )


def test_build_lists_every_fault() -> None:
    """Several faults make one message."""
    builder = make_builder()
    builder.fail("a:1: first.")
    builder.fail("b:2: second.")
    with pytest.raises(CorpusError) as caught:
        builder.build([])
    assert str(caught.value) == (
        "The source must be readable, but 2 faults were found:\n  a:1: first.\n  b:2: second."
    )


def test_label_names_fall_back_to_ids() -> None:
    """A label without a name is named by its id."""
    builder = make_builder()
    builder.add("d", "train", "", [], {"author": []}, ["l1", "l2"], "f:1")
    labels = builder.build([], {"l2": "Second"}).instances["label"]
    assert labels["name"].tolist() == ["l1", "Second"]


def test_names_and_depths_stand_beside_the_ids_that_documents_have() -> None:
    """Others are passed over; an instance without a name is named by its id."""
    builder = make_builder()
    builder.add("d", "train", "", [], {"author": ["a1", "a2"]}, ["l1", "l2"], "f:1")
    builder.set_name("author", "a2", "Bo")
    builder.set_name("author", "a3", "Nobody")
    builder.set_depth("l1", 3)
    builder.set_depth("l9", 1)
    instances = builder.build([]).instances
    assert instances["author"]["name"].tolist() == ["a1", "Bo"]
    assert instances["label"]["depth"].isna().tolist() == [False, True]
    assert instances["label"]["depth"][0] == 3
    assert instances["label"].columns.tolist() == ["id", "depth"]


def test_a_builder_knows_its_documents_and_when_to_give_up() -> None:
    """Readers ask both."""
    builder = make_builder()
    builder.add("d", "train", "", [], {"author": []}, [], "f:1")
    assert "d" in builder
    assert "e" not in builder
    for number in range(100):
        assert not builder.is_hopeless
        builder.fail(f"f:{number}: wrong.")
    assert builder.is_hopeless


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        (
            ["label"],
            "a metadata field cannot be named 'label': that node type is taken.",
        ),
        (
            ["context"],
            "a metadata field cannot be named 'context': pre-training keeps the context vectors "
            "of words under that name; rename it.",
        ),
        (
            ["author", "author"],
            "the metadata field 'author' is listed twice.",
        ),
        (
            ["co author"],
            "a metadata field must be named by letters, digits and single underscores, "
            "found 'co author'.",
        ),
        (
            ["co__author"],
            "a metadata field must be named by letters, digits and single underscores, "
            "found 'co__author'.",
        ),
    ],
)
def test_field_names_must_be_node_types(fields: list[str], fault: str) -> None:
    """Names that PyG or the schema cannot take are refused."""
    with pytest.raises(CorpusError) as caught:
        CorpusBuilder("little", fields, "Fields must be good").build([])
    assert str(caught.value) == f"Fields must be good: {fault}"


def test_skipped_documents_are_counted_and_listed() -> None:
    """Faults within `documents` keep their document out; others still refuse everything."""
    builder = CorpusBuilder("little", [], "The files must be good", "skip")
    with builder.documents():
        builder.add("a", "train", "", [], {}, [], "f:1")
        builder.add("a", "train", "", [], {}, [], "f:2")
        builder.fail("f:3: 'label' must be a list of strings, found the number 3.")
        builder.fail("f:4: 'label' must be a list of strings, found nothing.")
        assert builder.num_faults == 3
        assert not builder.is_hopeless
    corpus = builder.build([])
    assert corpus.documents["id"].tolist() == ["a"]
    assert corpus.skipped.to_dict("list") == {
        "place": ["f:2", "f:3", "f:4"],
        "reason": [
            "the document 'a' was given before (f:1); every document needs an id of its own.",
            "'label' must be a list of strings, found the number 3.",
            "'label' must be a list of strings, found nothing.",
        ],
    }
    assert corpus.find_oddities() == [
        "left out documents for 3 faults, 1 documents remain: 2 x 'label' must be a list of "
        "strings; 1 x the document '...' was given before"
    ]
    builder.fail("taxonomy.txt:1: no edge.")
    with pytest.raises(CorpusError) as caught:
        builder.build([])
    assert str(caught.value) == "The files must be good: taxonomy.txt:1: no edge."


def test_skipping_every_document_is_refused() -> None:
    """The faults are listed as if nothing were skipped."""
    builder = CorpusBuilder("little", [], "The files must be good", "skip")
    with builder.documents():
        builder.fail("f:1: no document.")
    with pytest.raises(CorpusError) as caught:
        builder.build([])
    assert str(caught.value) == "The files must be good: f:1: no document."
