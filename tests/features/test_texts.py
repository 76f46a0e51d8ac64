"""Texts of nodes: columns, names, what is missing; their vectors in a store."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from match_graph.config import FeatureSource
from match_graph.datasets import Synthetic
from match_graph.errors import CorpusError
from match_graph.features import TextEmbedder, open_features
from match_graph.features.texts import choose_columns, list_texts


def test_choose_columns_depends_on_the_type() -> None:
    assert choose_columns("document", None) == ["text"]
    assert choose_columns("label", None) == choose_columns("author", []) == ["name"]
    assert choose_columns("label", ["name", "definition"]) == ["name", "definition"]


class Tables:
    """A data set of two tables."""

    def __init__(self) -> None:
        self.tables = {
            "label": pd.DataFrame(
                {
                    "id": ["l1", "l2", "l3"],
                    "name": ["Graphs", None, " "],
                    "definition": ["G", "", None],
                }
            ),
            "author": pd.DataFrame({"id": ["Ada", "Bo"]}),
        }

    def table(self, node_type: str, columns: list[str]) -> pd.DataFrame:
        return self.tables[node_type][columns]

    def iter_table(self, node_type: str, _size: int):
        import pyarrow as pa

        yield pa.RecordBatch.from_pandas(self.tables[node_type])


@pytest.mark.parametrize(
    ("node_type", "columns", "expected"),
    [
        ("label", ["name"], ["Graphs", "l2", "l3"]),
        ("label", ["name", "definition"], ["Graphs. G", "l2", "l3"]),
        ("label", ["id"], ["l1", "l2", "l3"]),
        ("author", ["name"], ["Ada", "Bo"]),
    ],
)
def test_list_texts_joins_columns(node_type: str, columns: list[str], expected: list[str]) -> None:
    """A name that is missing is the id."""
    assert list_texts(Tables(), node_type, columns) == expected  # type: ignore[arg-type]


def test_list_texts_names_the_columns_that_are_there() -> None:
    with pytest.raises(CorpusError) as caught:
        list_texts(Tables(), "author", ["biography"])  # type: ignore[arg-type]
    assert str(caught.value) == (
        "The text of nodes must be in columns of their table, but 'author' has no ['biography']; "
        "set column to some of ['id'] in data.features.author."
    )


def test_list_texts_gives_documents_as_they_were(synthetic: Synthetic) -> None:
    """Where no raw texts are kept, the words joined."""
    expected = [one["text"] for one in synthetic.as_json(range(5))]
    assert list_texts(synthetic, "document", ["text"])[:5] == expected


def test_open_features_embeds_texts_once(
    synthetic: Synthetic, sentence_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the nodes; a later call reads neither texts nor model."""
    source = FeatureSource(model=str(sentence_model))
    for node_type in ("document", "label"):
        features = open_features(source, synthetic, node_type, tmp_path)
        texts = list_texts(synthetic, node_type, choose_columns(node_type, None))
        expected = TextEmbedder(str(sentence_model), tmp_path / "other").embed(texts)
        assert np.array_equal(features.x.numpy(), expected)
        assert features.x.dtype == torch.float16
    monkeypatch.setattr(TextEmbedder, "prepare", None)
    assert open_features(source, synthetic, "label", tmp_path).digest == features.digest
    short = FeatureSource(model=str(sentence_model), max_pieces=4)
    with pytest.raises(TypeError):
        open_features(short, synthetic, "label", tmp_path)
