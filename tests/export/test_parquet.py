"""The Parquet export: one table per node and edge type, and a schema file that fits them."""

import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from match_graph.datasets import MatchFolder
from match_graph.export import ExportOptions, export_dataset


def test_export_dataset_tables_are_the_graph_in_order(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Names, splits, texts and edges are those of the graph, in order; int32 stays."""
    out = export_dataset(toy_dataset, "parquet", tmp_path / "out", ExportOptions(features="ids"))
    data = toy_dataset[0]
    for node_type in data.node_types:
        table = pd.read_parquet(out / "nodes" / f"{node_type}.parquet")
        assert table["id"].tolist() == toy_dataset.names(node_type).tolist()
        assert table["x"].str[0].tolist() == list(range(len(table)))
    documents = pd.read_parquet(out / "nodes" / "document.parquet")
    assert documents[["split", "text"]].equals(toy_dataset.table("document")[["split", "text"]])
    for edge_type in data.edge_types:
        table = pd.read_parquet(out / "edges" / f"{'__'.join(edge_type)}.parquet")
        assert (
            table[["source", "target"]].to_numpy().T.tolist() == data[edge_type].edge_index.tolist()
        )
        assert set(table.dtypes.astype(str)) <= {"int32", "int16"}
    gold = pd.read_parquet(out / "edges" / "document__gold__label.parquet")
    tagged = pd.read_parquet(out / "edges" / "document__tagged__label.parquet")
    rows = [sorted(table.to_numpy().tolist()) for table in (gold, tagged)]
    assert rows[0] == rows[1]


def test_export_dataset_schema_file_fits_the_tables(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """The schema lists every file with its rows and types, and no other file exists."""
    out = export_dataset(toy_dataset, "parquet", tmp_path / "out")
    schema = json.loads((out / "schema.json").read_text(encoding="utf-8"))
    tables = [*schema["nodes"].values(), *schema["edges"].values()]
    assert {table["file"] for table in tables} == {
        path.relative_to(out).as_posix() for path in out.rglob("*.parquet")
    }
    for table in tables:
        found = pq.read_schema(out / table["file"])
        assert table["columns"] == {column.name: str(column.type) for column in found}
        assert table["rows"] == pq.read_metadata(out / table["file"]).num_rows
    assert schema["edges"]["document__cites__document"]["target"] == "document"


def test_export_dataset_batches_of_one_row_are_the_same_tables(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of batches does not change the tables."""
    whole = export_dataset(toy_dataset, "parquet", tmp_path / "whole")
    monkeypatch.setattr("match_graph.export.source.NODE_BATCH", 1)
    monkeypatch.setattr("match_graph.export.source.EDGE_BATCH", 7)
    parts = export_dataset(toy_dataset, "parquet", tmp_path / "parts")
    for path in whole.rglob("*.parquet"):
        assert pq.read_table(parts / path.relative_to(whole)).equals(pq.read_table(path))
