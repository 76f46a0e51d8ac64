"""Documents as a caller gives them."""

import numpy as np
import pandas as pd
import pytest

from match_graph.errors import CorpusError
from match_graph.predict.documents import list_rows, name_documents, warn_of_unread


def test_list_rows_leaves_out_missing_cells() -> None:
    """One document a row, as JSON would have it."""
    frame = pd.DataFrame({"text": ["a", "b"], "venue": ["v", None], "year": [1999.0, np.nan]})
    expected = [{"text": "a", "venue": "v", "year": 1999}, {"text": "b"}]
    assert list_rows(frame, "X") == expected
    assert [*name_documents(frame)] == [("document 1", expected[0]), ("document 2", expected[1])]


def test_name_documents_refuses_what_is_no_list() -> None:
    """A single document, a path, and a frame with two columns of one name."""
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


def test_warn_of_unread_names_all_keys_once() -> None:
    """Known keys, and documents that are none, which reading refuses, say nothing."""
    good = [("1", {"text": "a", "paper": "p", "label": [], "time": 1, "x": [], "venue": "v"})]
    bad = [("2", {"text": "a", "venu": "v"}), ("3", {"authors": [], "venu": "w"}), ("4", None)]
    found: list[str] = []
    assert [*warn_of_unread(good, ["venue"], (), True, found.append)] == good
    assert found == []
    assert [*warn_of_unread(good + bad, ["venue"], (), True, found.append)] == good + bad
    sentence = (
        "the keys ['authors', 'venu'] of documents are not read; this run reads ['text', 'venue']"
    )
    assert found.pop() == sentence.replace("'text'", "'text', 'x'")
    assert [*warn_of_unread(bad, ["venue"], (), False, found.append)] == bad
    assert found == [sentence]
    assert [*warn_of_unread(bad, [], (), False, found.append)] == bad
    assert found == [sentence]  # a run without metadata
    assert [*warn_of_unread(bad, ["venue"], ["authors", "venu"], False, found.append)] == bad
    assert found == [sentence]  # a run that leaves them out
    vectors = [("1", {"text": "a", "time": 1, "x": [0.0], "venu": "v"})]
    assert [*warn_of_unread(vectors, [], (), False, found.append)] == vectors
    assert found.pop() == ("the keys ['x'] of documents are not read; this run reads ['text']")
    with pytest.warns(UserWarning) as warned:
        assert [*warn_of_unread(bad, ["venue"])] == bad
    assert [str(one.message) for one in warned] == [sentence]
