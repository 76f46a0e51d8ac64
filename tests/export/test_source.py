"""What an export may show: batches of nodes and edges, texts, gold labels of some splits."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.transforms import ToUndirected

from match_graph.datasets import MatchFolder
from match_graph.errors import ConfigError, ExportError
from match_graph.export import ExportOptions, export_dataset, parse_options
from match_graph.export.source import GOLD, Source, open_source
from match_graph.typing import CONTAINS, DOCUMENT, LABEL, TAGGED


def open_with(dataset: MatchFolder, **options: str) -> Source:
    return open_source(dataset, ExportOptions(**{"text": "raw", **options}))


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_Source_batches_are_the_tables(
    toy_dataset: MatchFolder, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Batches of any size give the tables in order; progress counts nodes and edges."""
    monkeypatch.setattr("match_graph.export.source.NODE_BATCH", size)
    monkeypatch.setattr("match_graph.export.source.EDGE_BATCH", size)
    counted: list[int] = []
    source = replace(open_with(toy_dataset), advance=counted.append)
    for node_type in source.data.node_types:
        ids = [name for batch in source.nodes(node_type) for name in batch.column("id").to_pylist()]
        assert ids == toy_dataset.names(node_type).tolist()
    for edge_type in source.data.edge_types:
        batches = list(source.edges(edge_type))
        assert all(batch.num_rows <= size for batch in batches)
        edges = [
            pair for batch in batches for pair in zip(*batch.to_pydict().values(), strict=True)
        ]
        store = toy_dataset[0][edge_type]
        columns = [*store.edge_index.tolist()]
        columns += [store.position.tolist()] if edge_type == CONTAINS else []
        assert edges == [*zip(*columns, strict=True)]
    list(source.edges(GOLD))
    assert sum(counted) == source.num_items


def test_Source_columns_of_nodes(toy_dataset: MatchFolder) -> None:
    """Documents have split and text, other types training counts."""
    source = open_with(toy_dataset)
    (documents,) = source.nodes(DOCUMENT)
    assert documents.schema.names == ["id", "split", "text"]
    assert documents.column("split").to_pylist() == ["train"] * 8 + ["valid"] * 2 + ["test"] * 2
    (labels,) = source.nodes(LABEL)
    assert labels.schema.names == ["id", "train_count"]
    (names,) = source.names(DOCUMENT)
    assert names.schema.names == ["id", "text"]


def test_Source_words_with_spaces_between(toy_dataset: MatchFolder) -> None:
    """Words of each document are joined; an empty text is an empty string."""
    (batch,) = open_with(toy_dataset, text="words").nodes(DOCUMENT)
    texts = batch.column("text").to_pylist()
    assert texts[0] == "learning graphs from small graphs in c++"
    assert texts[3] == ""
    assert texts[11] == "unheard-of vocabulary"
    (batch,) = open_with(toy_dataset, text="none").nodes(DOCUMENT)
    assert "text" not in batch.schema.names


def test_Source_gold_labels_of_some_documents(toy_dataset: MatchFolder) -> None:
    """Gold labels are of none, training or all documents; edges of training alone."""
    train = toy_dataset[0][DOCUMENT].train_mask
    for include_labels, shown in (
        ("none", torch.zeros_like(train)), ("train", train), ("all", torch.ones_like(train))
    ):  # fmt: skip
        source = open_with(toy_dataset, include_labels=include_labels)
        assert torch.equal(source.shown, shown)
        lengths = toy_dataset.targets.ptr.diff() * shown
        assert torch.equal(source.targets.ptr.diff(), lengths)
        assert (TAGGED in source.data.edge_types) == (include_labels != "none")
        if include_labels != "none":
            tagged = source.data[TAGGED].edge_index
            assert torch.equal(tagged, toy_dataset[0][TAGGED].edge_index)
    assert TAGGED in toy_dataset[0].edge_types  # the data set itself is not touched
    assert "train_count" in toy_dataset[0][LABEL]


def test_Source_raw_texts_that_are_not_kept(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing raw texts are refused if asked for, else replaced by words."""
    monkeypatch.setattr(type(toy_dataset), "keeps_texts", property(lambda _self: False))
    with pytest.raises(ExportError) as caught:
        open_with(toy_dataset)
    assert str(caught.value) == (
        "--text raw needs raw texts, but 'toy' keeps none; choose --text words or --text none."
    )
    out = export_dataset(toy_dataset, "parquet", tmp_path / "out")
    assert "(`--text words`)" in (out / "EXPORT.md").read_text(encoding="utf-8")


def test_ExportOptions_defaults_cannot_leak() -> None:
    """By default only gold labels of training documents are exported."""
    options = ExportOptions()
    assert (options.features, options.include_labels, options.text) == (None, "train", None)
    assert parse_options(features="ids", include_labels="all", text=None).features == "ids"


def test_parse_options_all_wrong_words_at_once() -> None:
    """All invalid options are listed with their choices."""
    with pytest.raises(ConfigError) as caught:
        parse_options(features="x", include_labels="test", text=None)
    assert str(caught.value).splitlines() == [
        "The options of an export must be valid, but 2 faults were found:",
        "  'features': Input should be 'none', 'data', 'ids' or 'pretrained', found 'x'.",
        "  'include_labels': Input should be 'none', 'train' or 'all', found 'test'.",
    ]


def test_open_source_refuses_a_transform(toy_dataset: MatchFolder) -> None:
    """A transform is refused, as it may add edges."""
    turned = MatchFolder(toy_dataset.folder, root=toy_dataset.root, transform=ToUndirected())
    with pytest.raises(ExportError, match="as it is built, but 'toy' has a transform; leave it"):
        open_source(turned, ExportOptions())
