"""Documents of a built data set as objects of the MATCH format."""

from pathlib import Path

import pytest

from match_graph.datasets import MatchFolder, Synthetic
from match_graph.errors import CorpusError
from match_graph.testing import toy_documents, write_match_folder


def test_as_json_give_back_what_was_read(tmp_path: Path) -> None:
    """Ids, texts, metadata in order and labels equal those of the toy folder."""
    write_match_folder(tmp_path / "toy")
    dataset = MatchFolder(tmp_path / "toy", root=tmp_path / "root")
    given = [record for split in ("train", "valid", "test") for record in toy_documents()[split]]
    records = dataset.as_json(range(len(given)))
    for record, expected in zip(records, given, strict=True):
        assert record["paper"] == str(expected["paper"])
        assert record["text"] == expected["text"]
        assert set(record["label"]) == set(expected["label"])
        for field in ("venue", "author", "reference"):
            values = expected.get(field) or []
            values = values if isinstance(values, list) else [values]
            assert record[field] == list(dict.fromkeys(value for value in values if value))


def test_as_json_any_selection_in_any_order(synthetic: Synthetic) -> None:
    """A selection gives its documents in its own order; an empty one gives none."""
    whole = synthetic.as_json(range(10))
    assert synthetic.as_json([7, 2]) == [whole[7], whole[2]]
    assert synthetic.as_json([]) == []


def test_as_json_without_raw_texts_the_words_are_joined(synthetic: Synthetic, monkeypatch) -> None:
    """Without raw texts words are joined, or refused if white space does not separate them."""
    whole = synthetic.as_json([3, 399, 0])
    table = synthetic.table("document").drop(columns="text")
    names = synthetic.table
    monkeypatch.setattr(
        synthetic, "table", lambda name, *rest: table if name == "document" else names(name, *rest)
    )
    assert synthetic.as_json([3, 399, 0]) == whole
    monkeypatch.setattr(synthetic, "tokenizer", "regex")
    with pytest.raises(CorpusError) as caught:
        synthetic.as_json([0])
    assert str(caught.value) == (
        "Documents can be shown where raw texts are kept, but 'synthetic' has none; "
        "keep the texts where its corpus is made."
    )
