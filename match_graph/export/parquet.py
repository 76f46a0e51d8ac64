"""Parquet: one table per node and edge type, and a schema file."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from match_graph.export.inventory import Inventory
from match_graph.export.source import GOLD, NODE_BATCH, Source, split_columns, split_ends
from match_graph.export.target import Reading, Target
from match_graph.typing import TAGGED

SCHEMA = "schema.json"
_ROWS = {
    "nodes": "row i is node i of its type",
    "edges": "source and target are rows of the tables of their types",
}


class ParquetTarget(Target):
    """``nodes/TYPE.parquet``, ``edges/SOURCE__RELATION__TARGET.parquet``, ``schema.json``."""

    def write(self, source: Source, folder: Path, out: Path) -> None:
        schema: dict[str, Any] = {"format": 1, "rows": _ROWS, "nodes": {}, "edges": {}}
        for node_type in source.graph.node_types:
            path = Path("nodes") / f"{node_type}.parquet"
            schema["nodes"][node_type] = write_batches(folder, path, source.nodes(node_type))
        for edge_type in source.edge_types:
            path = Path("edges") / f"{'__'.join(edge_type)}.parquet"
            table = write_batches(folder, path, source.edges(edge_type))
            schema["edges"]["__".join(edge_type)] = {
                "source": edge_type[0],
                "target": edge_type[2],
                **table,
            }
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        (folder / SCHEMA).write_text(text, encoding="utf-8")

    def read(self, source: Source, folder: Path) -> list[Reading]:
        schema = json.loads((folder / SCHEMA).read_text(encoding="utf-8"))
        inventory = Inventory()
        for node_type, table in schema["nodes"].items():
            add_node_table(inventory, node_type, folder / table["file"])
        for name, table in schema["edges"].items():
            head, relation, tail = name.split("__")
            for batch in _read_batches(folder / table["file"]):
                inventory.add_edges((head, relation, tail), *split_ends(batch))
        return [Reading("all tables, by pyarrow", inventory)]

    def describe(self, source: Source) -> str:
        text = f"""\
- `{SCHEMA}`: the tables with their columns and numbers of rows.
- `nodes/TYPE.parquet`: row i is node i; `id`, of documents `split` and `text`, and features as `x`,
  lists of one length: `--set data.features.TYPE=nodes/TYPE.parquet` takes them again.
- `edges/SOURCE__RELATION__TARGET.parquet`: `source` and `target` are rows of the node tables.

```python
import pandas as pd

documents = pd.read_parquet("nodes/document.parquet")
edges = pd.read_parquet("edges/document__contains__word.parquet")
```
"""
        if not source.has_gold:
            return text
        return (
            text
            + f"""
`edges/{"__".join(GOLD)}.parquet` holds the gold labels; `{"__".join(TAGGED)}` repeats those of
training. Take neither into the graph that a model is given, or it reads the answer.
"""
        )


def write_batches(
    folder: Path, path: Path, batches: Iterable[pa.RecordBatch]
) -> dict[str, str | int | dict[str, str]]:
    """Writes a table batch by batch.

    Args:
        folder: Folder of the export.
        path: Relative path of the table.
        batches: Record batches, at least one, all of one schema.

    Returns:
        ``file``, ``rows`` and the types of the ``columns``.
    """
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    writer, rows = None, 0
    try:
        for batch in batches:
            if writer is None:
                schema = batch.schema
                writer = pq.ParquetWriter(folder / path, schema, compression="zstd")
            writer.write_batch(batch)
            rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    columns = {column.name: str(column.type) for column in schema}
    return {"file": path.as_posix(), "rows": rows, "columns": columns}


def add_node_table(inventory: Inventory, node_type: str, path: Path, **more: Any) -> None:
    """Adds a table of nodes to an inventory.

    Args:
        inventory: Inventory to add to.
        node_type: Node type of the table.
        path: Path of the table.
        **more: Attributes that stand elsewhere, for all rows, [N] or [N, C].
    """
    start = 0
    for batch in _read_batches(path):
        rows = slice(start, start + batch.num_rows)
        ids, columns = split_columns(batch)
        others = {name: values[rows] for name, values in more.items()}
        inventory.add_nodes(node_type, ids, {**columns, **others})
        start = rows.stop


def _read_batches(path: Path) -> Iterable[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        if not file.metadata.num_rows:
            yield pa.RecordBatch.from_pylist([], file.schema_arrow)
        yield from file.iter_batches(NODE_BATCH)
