"""Fragments of a corpus: what is left of one without some of its documents."""

from pathlib import Path

import numpy as np

from match_graph.corpus_builder import CorpusBuilder
from match_graph.graph.fragments import Fragment, drop_documents, write_fragment
from match_graph.typing import DOCUMENT


def test_drop_documents_leaves_the_others_their_places(tmp_path: Path) -> None:
    """Each document that is kept has its own row and place, whatever the order of ids."""
    builder = CorpusBuilder("it", [], "The file must hold documents")
    for number, name in enumerate("dbca"):
        builder.add(name, "train", "w", {}, ["l"], f"line {number}")
    write_fragment(tmp_path / "whole", builder, {})
    whole = Fragment(tmp_path / "whole")
    less = drop_documents(whole, np.array([1]), [*builder.types], tmp_path / "less")
    assert less.documents()["id"].to_pylist() == ["d", "c", "a"]
    assert less.strings(DOCUMENT).to_pylist() == [
        {"id": "a", "row": 2, "place": b"line 3"},
        {"id": "c", "row": 1, "place": b"line 2"},
        {"id": "d", "row": 0, "place": b"line 0"},
    ]
