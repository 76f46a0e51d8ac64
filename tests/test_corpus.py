"""Corpora: validation of their tables, and the builder that readers call."""

from dataclasses import replace
from typing import Any, get_args
from unicodedata import normalize

import numpy as np
import pandas as pd
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from match_graph.config import parse_settings
from match_graph.corpus import (
    UNICODE_PATTERN,
    WORD_PATTERN,
    Corpus,
    TableLayout,
    count_texts,
    describe_oddities,
    describe_texts,
    hierarchy_frame,
    split_words,
    word_pattern,
)
from match_graph.corpus_builder import CorpusBuilder, Interner
from match_graph.errors import ConfigError, CorpusError
from match_graph.typing import Tokenizer


def edge_frame(pairs: list[tuple[int, int]]) -> pd.DataFrame:
    return pd.DataFrame(pairs, columns=["document", "instance"], dtype="int32")


def tables() -> dict[str, Any]:
    """A correct corpus of two documents."""
    return {
        "name": "little",
        "documents": pd.DataFrame({"id": ["a", "b"], "split": ["train", "test"]}),
        "instances": {
            "author": pd.DataFrame({"id": ["x"]}),
            "word": pd.DataFrame({"id": ["w"]}),
            "label": pd.DataFrame({"id": ["l", "m"]}),
        },
        "edges": {
            "author": edge_frame([(0, 0), (1, 0)]),
            "word": edge_frame([(0, 0)]),
            "label": edge_frame([(0, 1), (1, 0)]),
        },
        "hierarchy": hierarchy_frame([("l", "m", "f:1")]),
    }


def test_Corpus_correct_corpus_gives_its_fields_and_size() -> None:
    """Words and labels are not metadata fields."""
    corpus = Corpus(**tables())
    assert corpus.fields == ["author"]
    assert corpus.num_documents == 2


def test_Corpus_repr_is_one_line_of_counts(toy: Corpus) -> None:
    """The repr is one line of counts, without the tables."""
    splits = toy.documents["split"].value_counts()
    assert repr(toy) == (
        f"Corpus('{toy.name}', {len(toy.documents)} documents ({splits['train']} train, "
        f"{splits['valid']} valid, {splits['test']} test), {len(toy.instances['label'])} labels, "
        f"fields {toy.fields})"
    )


def test_Corpus_fields_keep_the_given_order(toy: Corpus) -> None:
    """The order of the metadata file is kept, not the alphabet's."""
    assert toy.fields == ["venue", "author", "reference"]


def _repeat_document(given: dict[str, Any]) -> None:
    given["documents"]["id"] = ["a", "a"]


def _repeat_label(given: dict[str, Any]) -> None:
    edges = given["edges"]["label"]
    given["edges"]["label"] = pd.concat([edges[:1], edges], ignore_index=True)


def _name_by_strings(given: dict[str, Any]) -> None:
    edges = given["edges"]["author"]
    given["edges"]["author"] = edges.assign(instance=edges["instance"].astype(str).astype(object))


def _name_tokenizer(given: dict[str, Any]) -> None:
    given["tokenizer"] = "Whitespace"


def _drop_children(given: dict[str, Any]) -> None:
    given["hierarchy"] = given["hierarchy"].drop(columns="child")


def _name_split_dev(given: dict[str, Any]) -> None:
    given["documents"]["split"] = ["train", "dev"]


def _leave_out_training(given: dict[str, Any]) -> None:
    given["documents"]["split"] = ["valid", "test"]


def _drop_column(given: dict[str, Any]) -> None:
    del given["documents"]["split"]


def _drop_words(given: dict[str, Any]) -> None:
    del given["instances"]["word"], given["edges"]["word"]


def _drop_edges(given: dict[str, Any]) -> None:
    del given["edges"]["author"]


def _repeat_instance(given: dict[str, Any]) -> None:
    given["instances"]["label"] = pd.DataFrame({"id": ["l", "l"]})


def _name_unknown_instance(given: dict[str, Any]) -> None:
    given["edges"]["author"] = edge_frame([(0, 0), (1, 3)])


def _name_unknown_document(given: dict[str, Any]) -> None:
    given["edges"]["author"] = edge_frame([(-1, 0), (1, 0)])


def _unsort(given: dict[str, Any]) -> None:
    given["edges"]["author"] = edge_frame([(1, 0), (0, 0)])


def _rename_column(given: dict[str, Any]) -> None:
    given["instances"]["author"] = pd.DataFrame({"name": ["x"]})


def _close_cycle(given: dict[str, Any]) -> None:
    given["hierarchy"] = hierarchy_frame([("l", "m", "f:1"), ("m", "l", "f:2")])


def _leave_out_times(given: dict[str, Any]) -> None:
    given["documents"]["time"] = [1.0, float("nan")]


def _name_attribute(given: dict[str, Any]) -> None:
    given["edges"]["author"]["role"] = ["first", "last"]


def _spoil_attribute(given: dict[str, Any]) -> None:
    given["edges"]["author"]["weight"] = [1.0, float("inf")]


def _featurize(name: str, values: Any) -> Any:
    def spoil(given: dict[str, Any]) -> None:
        given["features"] = {name: values}

    return spoil


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (
            _leave_out_times,
            "the time of documents must be int64, found float64; give every document one, or "
            "leave the column out.",
        ),
        (
            _name_attribute,
            f"the attribute 'role' of the author edges must be numbers, found "
            f"{pd.Series(['a']).dtype}; leave it out.",
        ),
        (_spoil_attribute, "the attribute 'weight' of the author edges must be finite."),
        (
            _featurize("venue", np.ones((1, 2))),
            "features must be of the types ['document', 'author', 'word', 'label'], found 'venue'.",
        ),
        (
            _featurize("label", np.ones((3, 2))),
            "the features of 'label' must be numbers [2, F], a row per node, found float64 [3, 2].",
        ),
        (
            _featurize("label", np.ones(2)),
            "the features of 'label' must be numbers [2, F], a row per node, found float64 [2].",
        ),
        (
            _featurize("label", [[1.0], [1.0, 2.0]]),
            "the features of 'label' must be numbers [2, F], a row per node, found list.",
        ),
        (
            _featurize("document", [["a"], ["b"]]),
            "the features of 'document' must be numbers [2, F], a row per node, found list.",
        ),
        (
            _featurize("document", [[0.0], [float("nan")]]),
            "the features of 'document' must be finite, but 1 rows are not, the first is 1.",
        ),
        (
            _featurize("document", [[1e300], [0.0]]),
            "the features of 'document' must be finite, but 1 rows are not, the first is 0.",
        ),
        (_repeat_document, "the document 'a' is given twice."),
        (
            _name_split_dev,
            "a split must be one of ('train', 'valid', 'test'), found ['dev'].",
        ),
        (_leave_out_training, "the training split must hold a document, found none."),
        (_drop_column, "the documents lack the columns ['split']."),
        (_drop_words, "the type 'word' is missing."),
        (
            _drop_edges,
            "instances are given for ['author', 'label', 'word'], edges for ['label', 'word'].",
        ),
        (_repeat_instance, "the label 'l' is given twice."),
        (
            _name_unknown_instance,
            "the author edges must name instances in [0, 1), found 0 to 3.",
        ),
        (
            _name_unknown_document,
            "the author edges must name documents in [0, 2), found -1 to 1.",
        ),
        (_unsort, "the author edges must be sorted by document."),
        (
            _repeat_label,
            "a document must have a gold label once, but the document 0 has the label 1 twice.",
        ),
        (_name_by_strings, "the author edges must name instances by integers, found object."),
        (
            _name_tokenizer,
            "the tokenizer must be one of ['regex', 'unicode', 'whitespace'], found 'Whitespace'.",
        ),
        (_drop_children, "the hierarchy lacks the columns ['child']."),
        (
            _rename_column,
            "the type 'author' needs a column id, its edges need document and instance.",
        ),
        (
            _close_cycle,
            "the label hierarchy must be acyclic, but l -> m -> l is a cycle (f:2); "
            "remove one of these edges, or leave the hierarchy out (of files: "
            "data.hierarchy=ignore).",
        ),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_Corpus_every_fault_of_the_tables_has_its_sentence(spoil: Any, fault: str) -> None:
    """One spoilt table gives exactly one fault."""
    given = tables()
    spoil(given)
    with pytest.raises(CorpusError) as caught:
        Corpus(**given)
    assert str(caught.value) == f"The corpus 'little' must be consistent: {fault}"


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("float16", "float16"), ("float32", "float32"), ("float64", "float32"), ("int8", "float32")],
)
def test_Corpus_features_become_float16_or_float32(dtype: str, kept: str) -> None:
    """Of every number type; float16 stays as small as it is."""
    given = tables() | {"features": {"label": np.array([[1, 2], [3, 4]], dtype=dtype)}}
    features = Corpus(**given).features["label"]
    assert features.dtype == kept
    assert features.tolist() == [[1, 2], [3, 4]]


def test_Corpus_edge_attr_has_a_column_per_attribute() -> None:
    """In the order of the table; None where there are none."""
    given = tables()
    given["edges"]["author"] = given["edges"]["author"].assign(weight=[0.5, 2.0], place=[1, 2])
    corpus = Corpus(**given)
    attributes = corpus.edge_attr("author")
    assert attributes is not None
    assert attributes.dtype == np.float32
    assert attributes.tolist() == [[0.5, 1.0], [2.0, 2.0]]
    assert corpus.edge_attr("label") is None


def test_CorpusBuilder_times_need_one_of_every_document() -> None:
    """Only a corpus whose documents all have a time has the column, int64."""
    dated, partly = make_builder(), make_builder()
    for builder, times in ((dated, (3, -1)), (partly, (3, None))):
        for name, time in zip("ab", times, strict=True):
            builder.add(name, "train", "", {"author": []}, [], name, time)
    assert dated.build([]).documents["time"].tolist() == [3, -1]
    assert dated.build([]).documents["time"].dtype == np.int64
    assert "time" not in partly.build([]).documents


def test_Corpus_all_faults_are_listed_at_once() -> None:
    """Two spoilt tables give two lines."""
    given = tables()
    _repeat_document(given)
    _unsort(given)
    with pytest.raises(CorpusError) as caught:
        Corpus(**given)
    assert str(caught.value).splitlines() == [
        "The corpus 'little' must be consistent, but 2 faults were found:",
        "  the document 'a' is given twice.",
        "  the author edges must be sorted by document.",
    ]


def test_hierarchy_frame_find_oddities_hierarchy_something_else() -> None:
    """A hierarchy of other labels and a field without values are read, and give warnings."""
    given = tables()
    given["hierarchy"] = hierarchy_frame([("x", "y", "f:1")])
    given["edges"]["author"] = edge_frame([])
    assert Corpus(**given).find_oddities() == [
        "no label of the hierarchy is on any document, so that none has a parent: the hierarchy "
        "has labels such as 'x', documents such as 'l'; check that both are of one data set",
        "no document has the metadata fields ['author'], which are read as empty ones; check their "
        "names",
    ]
    assert Corpus(**tables()).find_oddities() == []


def test_Corpus_find_oddities_labels_missing_in_the_hierarchy() -> None:
    """Several are counted and shown; a single one, or few of many, are usual."""

    def find(labels: list[str]) -> list[str]:
        hierarchy = hierarchy_frame([("child", "parent", "f:1")])
        return describe_oddities(hierarchy, ["child", "parent", *labels], [])

    assert find(["D", "B", "C", "A"]) == [
        "4 of 6 labels of documents are in no line of the hierarchy that has a parent and a child, "
        "such as 'A', 'B', 'C', so that they have neither; check that they are spelt there as in "
        "the documents"
    ]
    assert find(["A"]) == []
    many = hierarchy_frame([(f"child {one}", "parent", "f:1") for one in range(99)])
    assert describe_oddities(many, [*many["child"], "parent", "A", "B"], []) == []


def test_Corpus_find_oddities_documents_with_leaves_alone() -> None:
    """No edge of the hierarchy is kept, which is said with what to do about it."""
    given = tables()
    given["hierarchy"] = hierarchy_frame([("l", "above", "f:1"), ("above", "top", "f:2")])
    assert Corpus(**given).find_oddities() == [
        "no document carries a label that has children in the hierarchy, so that no edge of it is "
        "kept: documents carry leaves alone, such as 'l'; add the ancestors to the documents' "
        "labels to use the hierarchy"
    ]


def make_builder() -> CorpusBuilder:
    return CorpusBuilder("little", ["author"], "The source must be readable")


@given(st.lists(st.lists(st.sampled_from("abcdeé"), max_size=5), max_size=8))
def test_Interner_packs_lists_in_order(lists: list[list[str]]) -> None:
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


@pytest.mark.parametrize("texts", [["x y x", "", "z x"], None])
def test_CorpusBuilder_extend_adds_what_add_would(texts: list[str] | None) -> None:
    """Lists as arrays give the same edges by name, splits and texts; without texts no column."""
    one, other = make_builder(), make_builder()
    words, authors = [["x", "y", "x"], [], ["z", "x"]], [["b"], ["a", "b"], []]
    ids, splits = ["d", "e", "f"], ["train", "train", "test"]
    for number, name in enumerate(ids):
        text = " ".join(words[number])
        one.add(name, splits[number], text, {"author": authors[number]}, ["l"], "p")
    lists = {}
    for name, rows in {"word": words, "author": authors, "label": [["l"]] * 3}.items():
        strings = sorted({value for row in rows for value in row})
        index = np.array([strings.index(value) for row in rows for value in row])
        lists[name] = strings, index, np.array([len(row) for row in rows])
    for part in (slice(0, 2), slice(2, 3)):
        chosen = {}
        for name, (strings, index, lengths) in lists.items():
            ends = np.concatenate([[0], np.cumsum(lengths)])
            used, codes = np.unique(index[ends[part.start] : ends[part.stop]], return_inverse=True)
            chosen[name] = [strings[number] for number in used], codes, lengths[part]
        given = None if texts is None else texts[part]
        other.extend(ids[part], splits[part], given, chosen, "p")
    found, expected = other.build(), one.build()
    columns = ["id", "split", *["text"] * (texts is not None)]
    assert found.documents.columns.tolist() == columns
    assert found.documents.equals(expected.documents[columns])
    for name in expected.edges:
        tables = []
        for corpus in (found, expected):
            edges = corpus.edges[name]
            values = corpus.instances[name]["id"].to_numpy()[edges["instance"]]
            tables.append([*zip(edges["document"], values, strict=True)])
        assert tables[0] == tables[1], name


def test_CorpusBuilder_metadata_and_labels_sets_words_sequence() -> None:
    """A repeated author or label counts once and is counted in the notes; words repeat."""
    builder = make_builder()
    builder.add("d", "train", "x x", {"author": ["b", "a", "b"]}, ["l", "l"], "f:1")
    corpus = builder.build([])
    assert corpus.edges["author"]["instance"].tolist() == [0, 1]
    assert corpus.instances["author"]["id"].tolist() == ["b", "a"]
    assert corpus.edges["word"]["instance"].tolist() == [0, 0]
    assert len(corpus.edges["label"]) == 1
    assert corpus.notes == {"repeated_values_dropped": 2}


def test_CorpusBuilder_fields_that_are_missing_are_empty() -> None:
    """Values of the next document stay with it."""
    builder = make_builder()
    builder.add("d", "train", "x", {}, ["l"], "f:1")
    builder.add("e", "train", "y", {"author": ["b"]}, ["l"], "f:2")
    corpus = builder.build([])
    assert corpus.edges["author"]["document"].tolist() == [1]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"split": "dev"}, "a split must be one of ('train', 'valid', 'test'), found 'dev'."),
        (
            {"metadata": {"colour": ["red"], "author": []}},
            "the metadata of a document must be of the fields ['author'], found ['colour']; leave "
            "them out, or name them among the fields.",
        ),
        (
            {"metadata": {"author": "Ann"}},
            "the values of 'author' must be a list of strings, found the string 'Ann'; put it into "
            "a list.",
        ),
        (
            {"labels": "lab"},
            "the values of 'label' must be a list of strings, found the string 'lab'; put it into "
            "a list.",
        ),
    ],
    ids=["split", "field", "metadata", "label"],
)
def test_CorpusBuilder_add_refuses(changes: dict[str, Any], fault: str) -> None:
    """Wrong arguments of a custom reader, a sentence each."""
    given = {"document": "d", "split": "train", "text": "", "metadata": {}, "labels": ["l"]}
    with pytest.raises(CorpusError) as caught:
        make_builder().add(**{**given, **changes}, place="f:1")
    assert str(caught.value) == f"f:1: {fault}"


def test_a_repeated_document_is_a_fault_with_both_places() -> None:
    """The message names where the id was given first."""
    builder = make_builder()
    builder.add("d", "train", "", {"author": []}, [], "one:1")
    builder.add("d", "test", "", {"author": []}, [], "two:7")
    with pytest.raises(CorpusError) as caught:
        builder.build([])
    assert str(caught.value) == (
        "The source must be readable: two:7: the document 'd' was given before (one:1); "
        "every document needs an id of its own."
    )


def test_CorpusBuilder_build_lists_every_fault() -> None:
    """Several faults make one message."""
    builder = make_builder()
    builder.fail("a:1: first.")
    builder.fail("b:2: second.")
    with pytest.raises(CorpusError) as caught:
        builder.build([])
    assert str(caught.value) == (
        "The source must be readable, but 2 faults were found:\n  a:1: first.\n  b:2: second."
    )


def test_CorpusBuilder_label_names_fall_back_to_ids() -> None:
    """A label without a name is named by its id."""
    builder = make_builder()
    builder.add("d", "train", "", {"author": []}, ["l1", "l2"], "f:1")
    labels = builder.build([], {"l2": "Second"}).instances["label"]
    assert labels["name"].tolist() == ["l1", "Second"]


def test_CorpusBuilder_names_depths_stand_beside_ids_documents() -> None:
    """Others are passed over; an instance without a name is named by its id."""
    builder = make_builder()
    builder.add("d", "train", "", {"author": ["a1", "a2"]}, ["l1", "l2"], "f:1")
    builder.set_name("author", "a2", "Bo")
    builder.set_name("author", "a3", "Nobody")
    builder.set_depth("l1", 3)
    builder.set_depth("l9", 1)
    instances = builder.build([]).instances
    assert instances["author"]["name"].tolist() == ["a1", "Bo"]
    assert instances["label"]["depth"].isna().tolist() == [False, True]
    assert instances["label"]["depth"][0] == 3
    assert instances["label"].columns.tolist() == ["id", "depth"]


def test_CorpusBuilder_knows_its_documents_and_when_to_give_up() -> None:
    """Readers ask whether an id is known, and whether reading on is of use."""
    builder = make_builder()
    builder.add("d", "train", "", {"author": []}, [], "f:1")
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
def test_CorpusBuilder_field_names_must_be_node_types(fields: list[str], fault: str) -> None:
    """Names that PyG or the schema cannot take are refused."""
    with pytest.raises(CorpusError) as caught:
        CorpusBuilder("little", fields, "Fields must be good").build([])
    assert str(caught.value) == f"Fields must be good: {fault}"


def test_CorpusBuilder_skipped_documents_are_counted_and_listed() -> None:
    """Faults within `documents` keep their document out; others still refuse everything."""
    builder = CorpusBuilder("little", [], "The files must be good", "skip")
    for _ in builder.documents([0]):
        builder.add("a", "train", "", {}, [], "f:1")
        builder.add("a", "train", "", {}, [], "f:2")
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


def test_CorpusBuilder_skipping_every_document_is_refused() -> None:
    """The faults are listed as if nothing were skipped."""
    builder = CorpusBuilder("little", [], "The files must be good", "skip")
    for _ in builder.documents([0]):
        builder.fail("f:1: no document.")
    with pytest.raises(CorpusError) as caught:
        builder.build([])
    assert str(caught.value) == "The files must be good: f:1: no document."


ALNUM = "abcdefghijklmnopqrstuvwxyz0123456789"


def naive_words(text: str, alnum: str = ALNUM, signs: str = "", marks: str = "") -> list[str]:
    """A character at a time: the longest run that starts alphanumeric and ends so, or in + or #.

    Marks follow what they stand on, signs are words of their own.
    """
    words, start = [], 0
    while start < len(text):
        if text[start] not in alnum + signs:
            start += 1
            continue
        end = start + 1
        inner = marks if text[start] in signs else alnum + marks + "+#.-"
        while end < len(text) and text[end] in inner:
            end += 1
        while text[end - 1] in ".-":
            end -= 1
        words.append(text[start:end])
        start = end
    return words


@given(st.text(alphabet="abZ09+#.- ,é\n", max_size=30) | st.text(max_size=30))
def test_split_words_equals_a_scan_by_character(text: str) -> None:
    """The regular expression finds what a character loop finds."""
    assert split_words(text) == naive_words(text.lower())


@given(st.text(alphabet="aé9ß\u0436\u05d0\u0915\u30ab+#.- \u65e5\u672c\u3072\u0e44\u0301\u093f"))
def test_split_words_unicode_equals_a_scan_by_character(text: str) -> None:
    """Letters, digits and marks of scripts with blanks; signs of those without, each a word."""
    alnum, signs = "aáé9ßж\u05d0\u0915\u30abb", "\u65e5\u672c\u3072\u0e44"
    found = naive_words(normalize("NFKC", text), alnum, signs, marks="\u0301\u093f")
    assert split_words(text, "unicode") == found


@given(st.sampled_from(["жёй", "שלום", "कखि", "カタ", "日本ひ", "ไทกิ", "한국", "éü"]), st.data())
def test_split_words_unicode_breaks_as_the_standard(letters: str, data: st.DataObject) -> None:
    """In the letters of one script with blanks between, as the package `regex` by UAX #29."""
    text = data.draw(st.text(alphabet=letters + " "))
    found = regex.split(r"(?wV1)\b", normalize("NFKC", text))
    assert split_words(text, "unicode") == [one for one in found if regex.search(r"[\p{L}]", one)]


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_split_words_unicode_equals_regex_in_ascii(text: str) -> None:
    """So that one may change the tokenizer of English texts, also where one sign is beyond it."""
    assert split_words(text, "unicode") == split_words(text)
    assert split_words(text + " \u2014", "unicode") == split_words(text)


@given(st.text())
def test_split_words_unicode_does_not_see_the_form(text: str) -> None:
    """Composed and decomposed texts have the same words, and words are words again."""
    words = split_words(text, "unicode")
    assert split_words(normalize("NFD", text), "unicode") == words
    assert split_words(" ".join(words), "unicode") == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Über Größe, l'école", ["über", "größe", "l", "école"]),
        ("ΟΔΟΣ C++ и Node.js в", ["οδος", "c++", "и", "node.js", "в"]),
        ("標籤 2021年", ["標", "籤", "2021", "年"]),
        ("データの", ["データ", "の"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("hyphen\u00adation \u0645\u06cc\u200c\u062e", ["hyphenation", "\u0645\u06cc\u062e"]),
        ("\u0e44\u200b\u0e17, a\u200bb", ["\u0e44", "\u0e17", "a", "b"]),
        ("\uff26\uff35\uff2c\uff2c \ufb01le m\u00b2", ["full", "file", "m2"]),
        ("\u0301 \u2014 \U0001f600", []),
    ],
)
def test_split_words_unicode_on_examples(text: str, words: list[str]) -> None:
    """Case, ligatures, widths and invisible signs go, marks stay, blanks of width 0 divide."""
    assert split_words(text, "unicode") == words


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_Corpus_find_oddities_of_missing_texts(toy: Corpus, missing: Any) -> None:
    """A document without a text counts as one whose text is empty."""
    texts = pd.Series(["слово"] * toy.num_documents, dtype=object)
    texts[0] = missing
    with_gap = replace(toy, documents=toy.documents.assign(text=texts))
    empty = replace(toy, documents=toy.documents.assign(text=texts.fillna("")))
    assert with_gap.find_oddities() == empty.find_oddities()
    assert "letters beyond ASCII" in with_gap.find_oddities()[-1]


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0301\uff9e", "\u0301\u00ad\u0316"])
def test_split_words_unicode_of_thousands_of_marks(marks: str) -> None:
    """NFKC takes the square of their number to sort them; the first 30 stay."""
    limit = normalize("NFKC", "x" + marks.replace("\u00ad", "") * 15)
    assert split_words(f"x{marks * 5_000} y", "unicode") == [limit, "y"]
    assert split_words(f"{limit} y", "unicode") == [limit, "y"]


@pytest.mark.parametrize(
    ("texts", "num_words", "warning"),
    [
        (["слово", "слово"], [0, 0], "2 of 2 documents have a text in which no word was found, and "
         "10 of 10 characters are letters beyond ASCII"),
        (["слово", "a" * 990, "?", " "], [0, 1, 0, 0], "2 of 4 documents have a text in which no "
         "word was found"),
        (["größer" + "a" * 92], [2], "2 of 98 characters are letters beyond ASCII"),
        (["größer" + "a" * 194, "—" * 50], [2, 0], ""),
        (["é" + "a" * 99], [2], ""),
        ([""], [0], ""),
    ],
)  # fmt: skip
def test_describe_texts_of_letters_that_are_in_no_word(
    texts: list[str], num_words: list[int], warning: str
) -> None:
    """More than 1 % of the characters, or 5 % of the documents and two; for "regex" alone."""
    counts = count_texts(texts, np.array(num_words), "regex")
    advice = (
        ": the tokenizer 'regex' knows ASCII letters and digits alone; for others set the "
        "tokenizer to unicode"
    )
    assert describe_texts(counts, len(texts)) == ([warning + advice] if warning else [])
    assert describe_texts(count_texts(texts, np.array(num_words), "unicode"), len(texts)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("...", []),
        ("C++ and F# in Node.js.", ["c++", "and", "f#", "in", "node.js"]),
        ("X-rays, e.g. naïve", ["x-rays", "e.g", "na", "ve"]),
        ("a A", ["a", "a"]),
    ],
)
def test_split_words_on_examples(text: str, words: list[str]) -> None:
    """Names of languages and inner hyphens stay, case and final stops go."""
    assert split_words(text) == words


def test_split_words_whitespace_keeps_tokens_as_they_are() -> None:
    """Text that is tokenised already is only split."""
    assert split_words(" Über  [SEP]\tC++ .\n", "whitespace") == ["Über", "[SEP]", "C++", "."]


def test_WORD_PATTERN_pattern_is_the_one_of_the_design() -> None:
    """The pattern is saved with runs, so changing it breaks them."""
    assert WORD_PATTERN == r"[a-z0-9][a-z0-9+#.-]*[a-z0-9+#]|[a-z0-9]"
    assert [word_pattern(one) for one in get_args(Tokenizer)] == [
        WORD_PATTERN, UNICODE_PATTERN, WORD_PATTERN
    ]  # fmt: skip


@pytest.mark.parametrize("part", ["id", "split", "date"])
def test_TableLayout_ids_splits_and_dates_are_one_column(part: str) -> None:
    """Texts and metadata may be several; a file that says otherwise is refused."""
    columns = {"text": ["title", "body"], "author": ["first", "others"]}
    assert parse_settings(TableLayout, {"columns": {**columns, part: ["a"]}}, "X").separator == ";"
    with pytest.raises(ConfigError, match=f"'{part}' must be one column"):
        parse_settings(TableLayout, {"columns": {**columns, part: ["a", "b"]}}, "X")
