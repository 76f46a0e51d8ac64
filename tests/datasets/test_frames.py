"""Corpora of pandas frames."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array

from match_graph.corpus import Corpus
from match_graph.datasets import Custom, CustomReader, from_frames, open_dataset
from match_graph.errors import ConfigError, CorpusError

SUMMARY = "The frames must hold documents: "


def make_documents(number: int = 12) -> pd.DataFrame:
    """Documents with missing cells, arrays, and strings instead of lists."""
    return pd.DataFrame(
        {
            "key": range(number),
            "title": [f"title {one}" for one in range(number)],
            "body": [None if one == 3 else f"body {one % 3}" for one in range(number)],
            "tags": [["deep", "all"] if one % 2 else np.array(["all"]) for one in range(number)],
            "who": [("Bo", f"a{one % 4}") if one % 3 else "Bo" for one in range(number)],
            "where": [float("nan") if one == 1 else "J" for one in range(number)],
            "fold": (["train"] * 8 + ["dev", "val", "test", "Test"])[:number],
            "day": pd.to_datetime([f"20{one:02}-01-01" for one in range(number)]),
        }
    )


COLUMNS = {"id": "key", "text": ["title", "body"], "label": "tags", "author": "who"}
OPTIONS: dict[str, Any] = {"fields": ["author"], "columns": COLUMNS}


def test_from_frames_equals_the_same_rows_of_a_file(tmp_path: Path) -> None:
    """Frames give the corpus of the same rows as JSON lines, with metadata, splits and dates."""
    frame = make_documents()
    columns = {**COLUMNS, "venue": "where", "split": "fold", "date": "day"}
    options: dict[str, Any] = {"fields": ["author", "venue"], "columns": columns}
    path = tmp_path / "rows.jsonl"
    frame.assign(day=frame["day"].dt.strftime("%Y-%m-%d")).to_json(
        path, orient="records", lines=True
    )
    expected = CustomReader([path], Custom.Config(**options)).read_corpus()
    corpus = from_frames(frame, **options)
    assert corpus.documents.equals(expected.documents)
    for name in expected.instances:
        assert corpus.instances[name].equals(expected.instances[name])
        assert corpus.edges[name].equals(expected.edges[name])
    assert corpus.documents["time"][4] == (date(2004, 1, 1) - date(1970, 1, 1)).days


def test_from_frames_labels_have_names_definitions_and_parents() -> None:
    """Labels without documents join the hierarchy; further edges are added."""
    labels = pd.DataFrame(
        {
            "id": ["all", "deep", "top"],
            "name": ["All", None, "Top"],
            "definition": ["all of it", "deep ones", None],
            "parent": ["top", ["all"], None],
        }
    )
    corpus = from_frames(make_documents(), labels, [("deep", "top")], **OPTIONS)
    table = corpus.instances["label"].set_index("id")
    assert table.loc["all"].tolist() == ["All", "all of it"]
    assert table.loc["deep"].tolist() == ["deep", "deep ones"]
    edges = corpus.hierarchy[["child", "parent"]].to_numpy().tolist()
    assert edges == [["deep", "top"], ["all", "top"], ["deep", "all"]]
    fewer = from_frames(make_documents(), labels.iloc[:1], **OPTIONS)
    assert fewer.warnings[1:] == ["1 labels of documents are not in labels, such as 'deep'"]
    frame = pd.DataFrame({"child": ["deep"], "parent": ["all"]})
    assert from_frames(make_documents(), None, frame, **OPTIONS).hierarchy["child"][0] == "deep"


def test_from_frames_columns_that_are_not_read_are_named() -> None:
    """A column that no option names is warned of."""
    labels = pd.DataFrame({"id": ["all", "deep"], "parents": [None, "all"]})
    assert from_frames(make_documents(), labels, **OPTIONS).warnings == [
        "the columns ['day', 'fold', 'where'] are not read; name metadata in the option fields, "
        "and a column of splits or dates in the option columns",
        "the columns ['parents'] of labels are not read",
    ]
    assert (
        from_frames(make_documents().drop(columns=["day", "fold", "where"]), **OPTIONS).warnings
        == []
    )


def test_from_frames_warns_of_lists_in_strings() -> None:
    """A column is warned of if most of its strings look like lists."""
    documents = make_documents()[["key", "title", "body", "tags", "who"]]
    assert from_frames(documents.assign(who=["a; b", *["a"] * 11]), **OPTIONS).warnings == []
    joined = documents.assign(tags="all; deep")
    corpus = from_frames(joined, **OPTIONS)
    assert corpus.instances["label"]["id"].tolist() == ["all; deep"]
    assert corpus.warnings == [
        "most values of the column 'tags' look like lists but are strings, such as 'all; deep', "
        "and a string is one value as it stands; make lists of them, in CSV with the option "
        "separator between values"
    ]
    written = from_frames(documents.assign(tags="['all', 'deep']"), **OPTIONS)
    assert ["such as '['all', 'deep']'," in one for one in written.warnings] == [True]
    split = joined.assign(tags=joined["tags"].str.split("; "))
    assert from_frames(split, **OPTIONS).warnings == []


@pytest.mark.parametrize("make", [list, np.array, lambda row: np.array(row, dtype=float)])
def test_from_frames_refuses_rows_of_a_multi_hot_matrix(make: Any) -> None:
    """Rows of 0 and 1 are refused; lists of labels whose ids are 0 and 1 are kept."""
    documents = make_documents()
    rows = [make([1, 0, 0]), *[make([0, 1, 1])] * (len(documents) - 1)]
    with pytest.raises(CorpusError, match="row 0: 'tags' must hold the ids of labels"):
        from_frames(documents.assign(tags=rows), **OPTIONS)
    lists = [[1], [0, 1], *[[0]] * (len(documents) - 2)]
    named = from_frames(documents.assign(tags=lists), **OPTIONS)
    assert sorted(named.instances["label"]["id"]) == ["0", "1"]


def test_from_frames_missing_column_of_ids_is_one_fault() -> None:
    """A missing column of ids is one fault, not one per row."""
    with pytest.raises(CorpusError) as error:
        from_frames(make_documents(), columns={"text": "title", "label": "tags"})
    assert str(error.value) == (
        f"{SUMMARY}no document has the columns ['id'], but they have ['body', 'day', 'fold', "
        f"'key', 'tags', 'title', 'where', 'who']; say by columns={{...}} which is which."
    )


def test_from_frames_features_follow_their_ids(tmp_path: Path) -> None:
    """Arrays follow the rows, frames their index; features reach the graph."""
    labels = pd.DataFrame({"id": ["none", "deep", "all"]})
    authors = pd.DataFrame(np.eye(5), index=["Bo", "a3", "a2", "a1", "a0"])
    x = np.arange(24.0).reshape(12, 2)
    order = np.random.default_rng(0).permutation(12)
    features = {"document": x, "label": np.eye(3), "author": authors}
    corpus = from_frames(make_documents(), labels, features=features, **OPTIONS)
    shuffled = {**features, "document": pd.DataFrame(x[order], index=order)}
    again = from_frames(make_documents(), labels, features=shuffled, **OPTIONS)
    assert np.array_equal(again.features["document"], corpus.features["document"])
    for name, table in {"label": labels, "author": authors.reset_index(names="id")}.items():
        ids = corpus.instances[name]["id"]
        row = dict(zip(table["id"], np.eye(len(table)).tolist(), strict=True))
        assert corpus.features[name].tolist() == [row[one] for one in ids]
    dataset = open_dataset(corpus, root=tmp_path)
    assert dataset[0]["document"].x.tolist() == x.tolist()
    assert dataset.layout == corpus.layout
    assert corpus.layout is not None
    assert corpus.layout.columns.keys() >= {"id", "text", "label", "author"}


def spoil(**columns: Any) -> pd.DataFrame:
    return make_documents(4).assign(**columns)


@pytest.mark.parametrize(
    ("documents", "fault"),
    [
        ([1], "documents must be a DataFrame, found list."),
        (make_documents(0), "documents must have rows, found none."),
        (
            make_documents()[["key", "title", "body", "tags"]],
            "no document has the columns ['who'], but they have ['body', 'key', 'tags', 'title']; "
            "say by columns={...} which is which.",
        ),
        (
            spoil(key=["a", "b", "a", "c"]),
            "documents, row 2: the document 'a' was given before (documents, row 0); every "
            "document needs an id of its own.",
        ),
        (
            spoil(key=[0, 1, 2, None]),
            "documents, row 3: 'key' must be the document's id, found nothing.",
        ),
        (
            spoil(tags=["a", "b", "c", 1.5]),
            "documents, row 3: 'tags' must be a string or a list of strings, found the number 1.5.",
        ),
        (
            spoil(title=pd.Series(["a", "b", "c", "\ud800"], dtype=object)),
            "all strings must be Unicode text ('utf-8' codec can't encode character",
        ),
        (
            pd.concat([make_documents(4)] * 2, axis=1).iloc[:, :10],
            "documents must name every column once, found ['key', 'title'] twice.",
        ),
    ],
)
def test_from_frames_fault_of_documents_is_one_sentence(documents: Any, fault: str) -> None:
    """A fault of documents is one sentence with its row."""
    with pytest.raises(CorpusError) as caught:
        from_frames(documents, **OPTIONS)
    text = str(caught.value)
    assert fault in text
    assert text.startswith(SUMMARY.removesuffix(": "))


def test_from_frames_unknown_split_is_one_sentence() -> None:
    """An unknown split is one sentence with the known names."""
    columns = {**COLUMNS, "split": "fold"}
    with pytest.raises(CorpusError, match=r"row 0: 'fold' must be one of \['train', .* found 'x'"):
        from_frames(spoil(fold="x").iloc[:1], fields=["author"], columns=columns)
    with pytest.raises(ConfigError, match="The options of from_frames must be valid: 'shares' is"):
        from_frames(make_documents(), shares=[0.5])


@pytest.mark.parametrize(
    ("labels", "hierarchy", "fault"),
    [
        (pd.DataFrame({"name": ["a"]}), None, "labels must have a column id, found ['name']."),
        (pd.DataFrame({"id": []}), None, "labels must have rows, found none."),
        (
            pd.DataFrame({"id": ["a", "a"]}),
            None,
            "labels must name every label once, found 'a' twice.",
        ),
        (
            pd.DataFrame({"id": ["a"], "parent": [1.5]}),
            None,
            "labels, row 0: parent must be an id or a list of ids, found 1.5.",
        ),
        (
            None,
            pd.DataFrame({"a": ["b"]}),
            "hierarchy must have the columns child and parent, found ['a'].",
        ),
        (
            None,
            [("a", None)],
            "hierarchy, row 0: an edge must be the ids of a child and a parent, found ('a', None).",
        ),
    ],
)
def test_from_frames_fault_of_labels_is_one_sentence(
    labels: Any, hierarchy: Any, fault: str
) -> None:
    """A fault of labels is one sentence with its row."""
    with pytest.raises(CorpusError) as caught:
        from_frames(make_documents(), labels, hierarchy, **OPTIONS)
    assert str(caught.value) == SUMMARY + fault


def test_from_frames_cycle_is_one_sentence() -> None:
    """A cycle is one sentence with its labels."""
    with pytest.raises(CorpusError, match="must be acyclic, but a -> b -> a is a cycle"):
        from_frames(make_documents(), None, [("a", "b"), ("b", "a")], **OPTIONS)


@pytest.mark.parametrize(
    ("features", "fault"),
    [
        ({"document": np.full((12, 2), np.nan)}, "must be finite, but 12 rows are not"),
        ({"document": np.ones((11, 2))}, "must be numbers [12, F], a row per node, found"),
        ({"document": [[1.0], [1.0, 2.0]]}, "must be numbers [12, F], a row per node, found list"),
        ([1.0], "The features must be arrays by node type, found list."),
        ({"label": None}, "or an array with a row per row of labels, found NoneType."),
        ({"label": [[1.0], [1.0, 2.0]]}, "an array with a row per row of labels, found list."),
        ({"label": csr_array((2, 2))}, "an array with a row per row of labels, found csr_array."),
        ({"venue": np.ones((3, 2))}, "features must be of the types ['document', 'author',"),
        (
            {"author": np.ones((5, 2))},
            "the features of 'author' must be a DataFrame with the ids in its index, found ndarray",
        ),
        (
            {"author": pd.DataFrame(np.ones((2, 2)), index=["Bo", "a1"])},
            "the features of 'author' must have a row for each id, but 3 have none, such as 'a2'.",
        ),
        (
            {"author": pd.DataFrame(np.ones((2, 2)), index=["Bo", "Bo"])},
            "the features of 'author' must name every id once, found 'Bo' twice.",
        ),
    ],
)
def test_from_frames_fault_of_features_is_one_sentence(features: Any, fault: str) -> None:
    """Missing ids, NaN, and wrong numbers of rows or columns are one sentence each."""
    with pytest.raises(CorpusError) as caught:
        from_frames(make_documents(), features=features, **OPTIONS)
    assert fault in str(caught.value)


def test_from_frames_features_may_have_a_column_of_ids() -> None:
    """Features may name their documents in a column, also by numbers."""
    documents = pd.DataFrame({"id": [3, 1, 0], "text": ["a", "b", "c"], "label": ["x", "x", "y"]})
    table = pd.DataFrame({"id": [1, 0, 3], "x": [10.0, 0.0, 30.0]}, index=[0, 1, 3])
    corpus = from_frames(documents, features={"document": table})
    assert corpus.features["document"].tolist() == [[30], [10], [0]]


def test_from_frames_features_may_be_a_column_of_lists() -> None:
    """A column of lists or arrays of one length is a matrix of features."""
    documents = make_documents()
    ids = documents["key"].rename("id")
    lists = pd.DataFrame({"vector": [*map(list, np.eye(len(ids)))]}, index=ids)
    arrays = lists.assign(vector=[*map(np.array, lists["vector"])])[::-1].reset_index()
    for given in (lists, arrays):
        corpus = from_frames(documents, features={"document": given}, **OPTIONS)
        assert corpus.features["document"].tolist() == np.eye(len(documents)).tolist()
    lists.iloc[0, 0] = [1.0]
    with pytest.raises(CorpusError, match="features of 'document' must be numbers"):
        from_frames(documents, features={"document": lists}, **OPTIONS)


def test_from_frames_features_may_be_tensors() -> None:
    """Tensors with a gradient or in bfloat16 are features, too."""
    labels = pd.DataFrame({"id": ["all", "deep"]})
    rows = torch.arange(2.0 * len(labels)).view(-1, 2)
    expected = from_frames(make_documents(), labels, features={"label": rows.numpy()}, **OPTIONS)
    for tensor in (rows.clone().requires_grad_(), rows.bfloat16()):
        found = from_frames(make_documents(), labels, features={"label": tensor}, **OPTIONS)
        assert found.features["label"].tolist() == expected.features["label"].tolist()
        of_documents = tensor.detach()[:1].repeat(12, 1).requires_grad_()
        given = {"document": of_documents}
        corpus = from_frames(make_documents(), features=given, **OPTIONS)
        assert corpus.features["document"].tolist() == of_documents.float().tolist()


def test_from_frames_columns_may_be_numbers() -> None:
    """Columns named by numbers are given to options as strings."""
    options = {**OPTIONS, "columns": {**COLUMNS, "text": ["0", "body"]}}
    renamed = make_documents().rename(columns={"title": 0})
    found = from_frames(renamed, **options)
    assert found.documents.equals(from_frames(make_documents(), **OPTIONS).documents)
    with pytest.raises(CorpusError, match=r"must name every column once, found \['0'\] twice"):
        from_frames(renamed.assign(**{"0": "b"}), **options)


def test_from_frames_hierarchy_must_be_pairs() -> None:
    """A hierarchy that is no list of pairs is one sentence."""
    for wrong in (5, "ab"):
        with pytest.raises(CorpusError, match=r"hierarchy must be a DataFrame or \(child, parent"):
            from_frames(make_documents(), None, wrong, **OPTIONS)


def test_from_frames_splits_as_custom_does() -> None:
    """Documents are split by text and seed, or by date."""
    corpus: Corpus = from_frames(
        make_documents(), columns={**COLUMNS, "date": "day"} | {"author": "who"},
        fields=["author"], train_until=2005, valid_until=2008,
    )  # fmt: skip
    assert corpus.documents["split"].tolist() == ["train"] * 6 + ["valid"] * 3 + ["test"] * 3


def test_from_frames_whole_numbers_beside_missing_ones() -> None:
    """Integers that pandas stores as floats are read as integers."""
    documents = pd.DataFrame(
        {"id": [1.0, 2.0, 3.0], "text": ["a", "b", "c"], "label": [[1], [2.0], None]}
    ).assign(year=[2015, 2016, None])
    labels = pd.DataFrame({"id": [1, 2], "parent": [None, 1]})
    assert documents["year"].dtype == labels["parent"].dtype == float
    corpus = from_frames(documents, labels, columns={"date": "year"}, train_until=2015)
    assert corpus.documents["id"].tolist() == ["1", "2", "3"]
    assert corpus.documents["split"].tolist() == ["train", "test", "train"]
    assert corpus.instances["label"]["id"].tolist() == ["1", "2"]
    assert corpus.hierarchy[["child", "parent"]].to_numpy().tolist() == [["2", "1"]]
    with pytest.raises(CorpusError, match=r"'id' must be the document's id, found the number 1\.5"):
        from_frames(documents.assign(id=[1.5, 2.0, 3.0]))


def test_from_frames_hierarchy_as_an_array() -> None:
    """Rows of an array are pairs, too."""
    pairs = [("x", "y"), ("z", "y")]
    documents = pd.DataFrame({"id": [1, 2], "text": ["a", "b"], "label": [["x", "z"], ["y"]]})
    found = [from_frames(documents, None, given).hierarchy for given in (pairs, np.array(pairs))]
    assert found[0].equals(found[1]) and len(found[0]) == 2
