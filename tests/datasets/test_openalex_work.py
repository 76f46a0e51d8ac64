"""The parts of an OpenAlex work."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.datasets.openalex_work import INSTANCES, read_abstract, read_id, read_text


@given(st.lists(st.text("abc,.é", min_size=1)))
def test_read_abstract_inverted_index_gives_back_words_in_order(words: list[str]) -> None:
    """An inverted index is turned back into text, with repeated words."""
    index: dict[str, list[int]] = {}
    for position, word in enumerate(words):
        index.setdefault(word, []).append(position)
    assert read_abstract(index) == " ".join(words)


@pytest.mark.parametrize("index", [5, ["a"], {"a": 0}, {"a": ["0"]}, {"a": [0.5]}])
def test_read_abstract_what_is_no_inverted_index(index: Any) -> None:
    """A malformed index is a fault, not an empty text."""
    faults: list[str] = []
    assert read_abstract(index) is None
    assert read_text({"abstract_inverted_index": index}, "w:1", faults.append) == ""
    assert faults[0].startswith(
        "w:1: 'abstract_inverted_index' must give each word a list of positions, found the "
    )


def test_read_abstract_huge_position_costs_nothing() -> None:
    """Memory does not depend on the positions of words."""
    assert read_abstract({"b": [10**18], "a": [-1]}) == "a b"
    assert read_abstract(None) == read_abstract({}) == ""


def test_read_text_is_title_and_abstract() -> None:
    """Title or abstract may be missing."""
    index = {"one": [0], "two": [1]}
    work = {"title": "Title", "abstract_inverted_index": index}
    assert read_text(work, "w:1", pytest.fail) == "Title one two"
    assert read_text({"title": None, "display_name": "Name"}, "w:1", pytest.fail) == "Name"
    assert read_text({"abstract_inverted_index": index}, "w:1", pytest.fail) == "one two"
    assert read_text({}, "w:1", pytest.fail) == ""


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("https://openalex.org/W1", "", "W1"),
        ("W1", "", "W1"),
        ("https://openalex.org/fields/17", "fields", "fields/17"),
        (17, "fields", "fields/17"),
        ("17", "fields", "fields/17"),
        (None, "", None),
        ("", "", None),
        (True, "", None),
        ([], "", None),
    ],
)
def test_read_id_ids_lose_their_address(value: Any, kind: str, expected: str | None) -> None:
    """Ids lose their URL prefix; plain numbers get their kind."""
    assert read_id(value, kind) == expected


def test_INSTANCES_come_with_names() -> None:
    """Venue, authors, institutions and references are read, with names."""
    place = {"id": "https://openalex.org/I1", "display_name": "U"}
    work = {
        "primary_location": {"source": {"id": "https://openalex.org/S1", "display_name": "J"}},
        "authorships": [
            {"author": {"id": "https://openalex.org/A1", "display_name": "Bo"},
             "institutions": [place]},
            {"author": {"id": None, "display_name": "Unknown"}, "institutions": [place]},
        ],
        "referenced_works": ["https://openalex.org/W2"],
    }  # fmt: skip
    found = {name: list(read(work, "w:1", pytest.fail)) for name, read in INSTANCES.items()}
    assert found == {
        "venue": [("S1", "J")],
        "author": [("A1", "Bo")],
        "institution": [("I1", "U"), ("I1", "U")],
        "reference": [("W2", "")],
    }
    empty: dict[str, Any] = {"primary_location": {"source": None}, "authorships": None}
    assert all(not list(read(empty, "w:1", pytest.fail)) for read in INSTANCES.values())


@pytest.mark.parametrize(
    ("field", "work", "fault"),
    [
        (
            "author",
            {"authorships": {}},
            "w:1: 'authorships' must be a list of objects, found the object {}.",
        ),
        (
            "author",
            {"authorships": [{"author": "A1"}]},
            "w:1: 'author' must be an object, found the string \"A1\".",
        ),
        (
            "reference",
            {"referenced_works": ["W1", {}]},
            "w:1: 'referenced_works' must be a list of ids, found the list [\"W1\", {}].",
        ),
        (
            "venue",
            {"primary_location": "J"},
            "w:1: 'primary_location' must hold a source, found the string \"J\".",
        ),
    ],
)
def test_INSTANCES_wrong_types_are_faults(field: str, work: dict[str, Any], fault: str) -> None:
    """Wrong types are faults with place and value."""
    faults: list[str] = []
    list(INSTANCES[field](work, "w:1", faults.append))
    assert faults == [fault]


@pytest.mark.parametrize("value", ["", "  ", "https://openalex.org/", None, True, 1.0])
def test_read_id_refuses_what_names_nothing(value: Any) -> None:
    """Blank ids and a bare URL are refused."""
    assert read_id(value) is None
