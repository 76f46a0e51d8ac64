"""The RelBench export: its database, its task and its evaluator, and times that are no dates."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets import MatchFolder, Synthetic
from match_graph.errors import ExportError
from match_graph.export import ExportOptions, export_dataset
from match_graph.testing import write_match_folder

relbench = pytest.importorskip("relbench", reason="relbench needs match-graph[export]")


def test_export_dataset_relbench_loads_database_and_task(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Keys count from 0, foreign keys name tables, labels are in the task alone."""
    out = export_dataset(toy_dataset, "relbench", tmp_path / "out")
    dataset = relbench.load_dataset(out)
    database = dataset.get_db()
    documents = database.table_dict["document"]
    assert documents.pkey_col == "document_id"
    assert documents.time_col == "split_time"
    assert documents.df["id"].tolist() == toy_dataset.names("document").tolist()
    assert "document__tagged__label" not in database.table_dict
    authors = database.table_dict["document__has__author"]
    assert authors.fkey_col_to_pkey_table == {"document_id": "document", "author_id": "author"}
    edges = toy_dataset[0]["document", "has", "author"].edge_index
    assert authors.df[["document_id", "author_id"]].to_numpy().T.tolist() == edges.tolist()
    assert dataset.get_task_names() == ["document-label"]
    train = dataset.load_task("document-label").get_table("train").df
    assert len(train) == 7  # one training document has no label
    names = toy_dataset.names("label")
    assert sorted(names[train["label_id"].iloc[0]]) == ["learning", "science"]


def test_export_dataset_documents_are_ordered_by_split(
    synthetic: Synthetic, tmp_path: Path
) -> None:
    """Documents are sorted by split, as RelBench takes prefixes by time."""
    out = export_dataset(synthetic, "relbench", tmp_path / "out", ExportOptions(text="none"))
    dataset = relbench.load_dataset(out)
    frame = dataset.get_db().table_dict["document"].df
    assert frame["document_id"].tolist() == list(range(400))
    assert frame["split_time"].is_monotonic_increasing
    days = {"1970-01-01": "train", "1970-01-02": "valid", "1970-01-03": "test"}
    assert frame["split_time"].dt.strftime("%Y-%m-%d").map(days).tolist() == frame["split"].tolist()
    seen = dataset.get_db().upto(dataset.val_timestamp)
    assert set(seen.table_dict["document"].df["split"]) == {"train", "valid"}
    words = seen.table_dict["document__contains__word"].df
    assert words["document_id"].max() < len(seen.table_dict["document"])


def test_ExportOptions_relbench_evaluates_a_prediction(
    synthetic: Synthetic, tmp_path: Path
) -> None:
    """MAP@5 of RelBench is 1 for the gold labels first, 0 for none."""
    options = ExportOptions(include_labels="all")
    out = export_dataset(synthetic, "relbench", tmp_path / "out", options)
    task = relbench.load_dataset(out).load_task("document-label")
    assert list(task.get_table("test").df.columns) == ["split_time", "document_id"]  # masked
    gold = task.get_table("test", mask_input_cols=False).df["label_id"]
    right = np.full((len(gold), task.eval_k), -1)
    for row, labels in enumerate(gold):
        right[row, : len(labels)] = labels[: task.eval_k]
    assert task.evaluate(right) == {"map": 1.0}
    assert task.evaluate(np.full_like(right, -1)) == {"map": 0.0}
    valid = task.get_table("val")
    assert len(valid) == len(task.get_table("val", mask_input_cols=False))


def test_export_dataset_hidden_splits_list_their_documents(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Tables of hidden splits list documents without a label column."""
    out = export_dataset(toy_dataset, "relbench", tmp_path / "out")
    task = relbench.load_dataset(out).load_task("document-label")
    for split, documents in (("val", [8, 9]), ("test", [10, 11])):
        frame = task.get_table(split, mask_input_cols=False).df
        assert list(frame.columns) == ["split_time", "document_id"]
        assert frame["document_id"].tolist() == documents
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert "`split_time` is not a date." in text
    assert "1 document without gold labels is not in the task" in text


def test_ExportOptions_vectors_are_a_column(toy_dataset: MatchFolder, tmp_path: Path) -> None:
    """`x` is a list per row, for embedding columns."""
    options = ExportOptions(features="ids", include_labels="none")
    out = export_dataset(toy_dataset, "relbench", tmp_path / "out", options)
    dataset = relbench.load_dataset(out)
    assert dataset.get_db().table_dict["word"].df["x"].iloc[3].tolist() == [3]
    assert dataset.get_task_names() == []


def test_export_dataset_without_relbench_there_is_one_sentence(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without RelBench the message names the extra."""
    monkeypatch.setitem(sys.modules, "relbench", None)
    with pytest.raises(ExportError) as caught:
        export_dataset(toy_dataset, "relbench", tmp_path / "out")
    assert str(caught.value) == (
        "The target 'relbench' needs the package relbench, which is not installed; "
        "run: pip install 'match-graph[export]'"
    )


def test_export_dataset_field_named_as_a_link_keeps_its_table(
    given_dataset, tmp_path: Path
) -> None:
    """A field ``document_has_author`` and the edges of ``author`` have a table each."""
    builder = CorpusBuilder("names", ["author", "document_has_author"], "names")
    builder.add("d", "train", "w", {"author": ["a"], "document_has_author": ["b"]}, ["l"], "1")
    dataset = given_dataset(builder.build([]), tmp_path)
    out = export_dataset(dataset, "relbench", tmp_path / "out", ExportOptions(text="none"))
    tables = relbench.load_dataset(out).get_db().table_dict
    assert tables["document_has_author"].df["id"].tolist() == ["b"]
    assert len(tables["document__has__author"].df) == 1


def test_export_dataset_edges_within_a_type_keep_both_ends(tmp_path: Path) -> None:
    """Edges within one node type have a column for each end."""

    def join(data: HeteroData) -> HeteroData:
        data["author", "knows", "author"].edge_index = torch.tensor([[0, 1], [1, 2]])
        data["document", "like", "document"].edge_index = torch.tensor([[0, 3], [2, 1]])
        return data

    folder = write_match_folder(tmp_path / "toy")
    dataset = MatchFolder(folder, root=tmp_path, pre_transform=join)
    out = export_dataset(dataset, "relbench", tmp_path / "out")
    tables = relbench.load_dataset(out).get_db().table_dict
    knows = tables["author__knows__author"].df
    assert knows[["author_id", "other_author_id"]].to_numpy().tolist() == [[0, 1], [1, 2]]
    ids = tables["document"].df.set_index("document_id")["id"]
    like, names = tables["document__like__document"].df, dataset.names("document")
    found = zip(ids[like["document_id"]], ids[like["other_document_id"]], strict=True)
    assert {*found} == {(names[0], names[2]), (names[3], names[1])}
