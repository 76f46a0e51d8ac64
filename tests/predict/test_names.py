"""Names of labels and metadata beside their ids."""

from pathlib import Path

import pytest

from match_graph import open_dataset
from match_graph.datasets import CorpusDataset
from match_graph.predict.names import (
    find_metadata_names,
    find_names,
    list_metadata,
    show_name,
)
from match_graph.testing import toy_documents, write_match_folder


@pytest.fixture
def dataset(tmp_path: Path) -> CorpusDataset:
    """The toy folder with names of authors."""
    folder = write_match_folder(tmp_path / "toy")
    authors = sorted({one for record in toy_documents()["train"] for one in record["author"]})
    (folder / "id2author.txt").write_text(f"{authors[0]}\tJane Doe\n{authors[1]}\t{authors[1]}\n")
    return open_dataset(folder, root=tmp_path / "root")


def test_show_name_gives_both() -> None:
    """A name is shown with its id, an id alone without a name."""
    assert show_name("C41008148", "Machine learning") == "Machine learning (C41008148)"
    assert show_name("C41008148", None) == "C41008148"


def test_find_names_leaves_out_ids(dataset: CorpusDataset) -> None:
    """Nodes without a name, or whose name is the id, are left out."""
    authors = dataset.names("author").tolist()
    (named,) = find_names(dataset, "author", authors).items()
    assert named[1] == "Jane Doe"
    assert find_names(dataset, "author", set(authors) - {named[0]}) == {}
    assert find_names(dataset, "label", dataset.names("label")) == {}


def test_find_metadata_names_by_field(dataset: CorpusDataset) -> None:
    """Names of all documents are collected by field; fields without names are left out."""
    records = toy_documents()["train"]
    found = find_metadata_names(dataset, map(list_metadata, records))
    assert [*found] == ["author"]
    assert [*found["author"].values()] == ["Jane Doe"]


def test_list_metadata_are_the_lists_of_a_document() -> None:
    """Metadata are the lists of a record without labels, features and time."""
    record = {"paper": "d", "text": "t", "label": ["l"], "author": ["a"], "time": 3, "x": [1.0]}
    assert list_metadata(record) == {"author": ["a"]}
