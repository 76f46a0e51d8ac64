"""A RelBench database with a task: https://relbench.stanford.edu, manifests of RelBench 3."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from match_graph.corpus import Array
from match_graph.errors import ExportError, import_extra
from match_graph.export.inventory import Inventory
from match_graph.export.parquet import write_batches
from match_graph.export.source import GOLD, NONE, Source, split_ends
from match_graph.export.target import Reading, Target
from match_graph.typing import CITES, DOCUMENT, IS_A, LABEL, SPLITS, TAGGED, EdgeType, Split

TASK, TIME = "document-label", "split_time"
#: RelBench's names of the splits, and the artificial date of each.
_DAYS: dict[Split, tuple[str, str]] = {
    "train": ("train", "1970-01-01"),
    "valid": ("val", "1970-01-02"),
    "test": ("test", "1970-01-03"),
}
_EVAL_K = 5


class RelbenchTarget(Target):
    """``manifest.yaml``, ``db/TABLE.parquet``, and the task ``tasks/document-label``.

    Documents are renumbered by split, training first, as RelBench takes prefixes by time.
    """

    def check(self, source: Source) -> None:
        _import_relbench()

    def write(self, source: Source, folder: Path, out: Path) -> None:
        tables: dict[str, Any] = {}
        for node_type in source.graph.node_types:
            batches = _document_rows(source) if node_type == DOCUMENT else source.nodes(node_type)
            write_batches(folder, _table(node_type), _number(batches, f"{node_type}_id"))
            tables[node_type] = {"pkey": f"{node_type}_id", "time_col": None, "fkeys": {}}
        tables[DOCUMENT]["time_col"] = TIME
        for edge_type in _link_types(source):
            columns = _link_columns(edge_type)
            write_batches(folder, _table(_link_name(edge_type)), _link_rows(source, edge_type))
            keys = dict(zip(columns, (edge_type[0], edge_type[2]), strict=True))
            time = TIME if edge_type[0] == DOCUMENT else None
            tables[_link_name(edge_type)] = {"pkey": None, "time_col": time, "fkeys": keys}
        manifest = {
            "name": source.dataset.name,
            "manifest_version": 1,
            "description": f"{TIME} is no date: its day stands for the split alone.",
            "val_timestamp": _DAYS["valid"][1],
            "test_timestamp": _DAYS["test"][1],
            "tables": tables,
        }
        _write_yaml(folder / "manifest.yaml", manifest)
        if source.has_gold:
            _write_task(source, folder / "tasks" / TASK)

    def read(self, source: Source, folder: Path) -> list[Reading]:
        dataset = _import_relbench().load_dataset(folder)
        tables = dataset.get_db().table_dict
        inventory = Inventory()
        for node_type in source.graph.node_types:
            frame = tables[node_type].df
            held = [name for name in frame.columns if name not in (f"{node_type}_id", TIME, "id")]
            columns = {name: _fill(frame[name]) for name in held}
            if "x" in columns and len(frame):
                columns["x"] = np.stack(list(columns["x"]))
            inventory.add_nodes(node_type, frame["id"].to_numpy(), columns)
        for edge_type in _link_types(source):
            frame = tables[_link_name(edge_type)].df
            ends = [frame[name].to_numpy() for name in _link_columns(edge_type)]
            more = {"position": frame["position"].to_numpy()} if "position" in frame else {}
            inventory.add_edges(edge_type, ends, more)
        if source.has_gold:
            self._read_task(source, dataset.load_task(TASK), inventory)
        left_out = {
            f"{' '.join(TAGGED)}*": (
                f"Edges `{' '.join(TAGGED)}`: in RelBench a label is in the task's tables, not in "
                f"the database; those of the task's training table are the same pairs."
            )
        }
        return [Reading("all tables, by RelBench", inventory, left_out)]

    def _read_task(self, source: Source, task: Any, inventory: Inventory) -> None:
        for split in _shown_splits(source):
            frame = task.get_table(_DAYS[split][0], mask_input_cols=False).df
            lists = frame[f"{LABEL}_id"].to_numpy()
            number = np.array([len(labels) for labels in lists], dtype=np.int64)
            document = np.repeat(frame[f"{DOCUMENT}_id"].to_numpy(), number)
            label = np.concatenate([np.empty(0, np.int64), *lists]).astype(np.int64)
            inventory.add_edges(GOLD, (document, label))

    def describe(self, source: Source) -> str:
        hidden = [name for name in SPLITS if name not in _shown_splits(source)]
        empty = int((source.targets.ptr.diff()[source.shown] == 0).sum())
        text = f"""\
- `manifest.yaml`: tables, keys, split times.
- `db/TABLE.parquet`: one table per node type, one per edge type. Features are its column `x` of
  lists, which PyTorch Frame takes as `stype.embedding`.

`{TIME}` is not a date. RelBench splits by time, which the split of a source need not follow; so
each training document has {_DAYS["train"][1]}, each validation document {_DAYS["valid"][1]}, each
test document {_DAYS["test"][1]}, whatever its own time. This gives the split of the source, and
nothing else: do not read it as a feature. Links have the time of their document.

`document_id` counts training documents first, then validation, then test, as RelBench takes
prefixes by time; it is not the row of another export, `id` is the name in all.
"""
        if not source.has_gold:
            return text + "\nNo task is written, as gold labels are left out.\n"
        text += f"""
- `tasks/{TASK}`: labels of documents as a recommendation task, scored by MAP@{_EVAL_K}, because
  RelBench has an evaluator for that, but none for several labels per entity, and lists are sparse.
- {_count_documents(empty)} not in the task, as RelBench drops empty lists.

```python
import relbench

dataset = relbench.load_dataset("FOLDER")  # a path with a slash in it
task = dataset.load_task("{TASK}")
database, train = dataset.get_db(), task.get_table("train")
```
"""
        if hidden:
            text += (
                f"\nThe tables of {' and '.join(hidden)} list the documents without labels, so "
                f"that nothing can leak; `--include-labels all` writes them, which "
                f"`task.evaluate` needs.\n"
            )
        return text


def _count_documents(number: int) -> str:
    """Phrase for a number of documents without gold labels, with the verb."""
    return (
        "1 document without gold labels is"
        if number == 1
        else f"{number:,} documents without gold labels are"
    )


def _import_relbench() -> Any:
    return import_extra("relbench", "The target 'relbench'", "export", ExportError)


def _table(name: str) -> Path:
    return Path("db") / f"{name}.parquet"


def _link_name(edge_type: EdgeType) -> str:
    """Table name of an edge type; never a field's, which has no double underscore."""
    return "__".join(edge_type)


def _link_types(source: Source) -> list[EdgeType]:
    return [edge_type for edge_type in source.graph.edge_types if edge_type != TAGGED]


def _link_columns(edge_type: EdgeType) -> tuple[str, str]:
    head, _, tail = edge_type
    second = {CITES: "cited_document_id", IS_A: "parent_id"}
    return f"{head}_id", second.get(edge_type, f"{'other_' * (head == tail)}{tail}_id")


def _shown_splits(source: Source) -> tuple[Split, ...]:
    shown: dict[str, tuple[Split, ...]] = {"none": (), "train": ("train",), "all": SPLITS}
    return shown[source.options.include_labels]


def _new_numbers(source: Source) -> Array:
    """New index of every document, sorted by split, [D], int64."""
    order = np.concatenate([np.flatnonzero(source.split == name) for name in SPLITS])
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.arange(len(order))
    return numbers


def _times(split: Split, number: int) -> pa.Array:
    day = np.datetime64(_DAYS[split][1], "us")
    return pa.array(np.full(number, day), pa.timestamp("us"))


def _document_rows(source: Source) -> Iterator[pa.RecordBatch]:
    for split in SPLITS:
        for batch in source.nodes(DOCUMENT):
            part = batch.filter(pc.equal(batch.column("split"), split))
            yield part.append_column(TIME, _times(split, part.num_rows))


def _link_rows(source: Source, edge_type: EdgeType) -> Iterator[pa.RecordBatch]:
    """Yields the edges of a type; those of documents are sorted by split."""
    numbers = _new_numbers(source)
    columns = _link_columns(edge_type)
    for split in SPLITS if edge_type[0] == DOCUMENT else (None,):
        for batch in source.edges(edge_type):
            (head, tail), ends = split_ends(batch)
            if split is not None:
                kept = source.split[head] == split
                head, tail = numbers[head[kept]], tail[kept]
                ends = {name: values[kept] for name, values in ends.items()}
                ends[TIME] = _times(split, len(head))
            tail = numbers[tail] if edge_type[2] == DOCUMENT else tail
            arrays = [pa.array(values.astype(np.int64)) for values in (head, tail)]
            yield pa.RecordBatch.from_pydict(dict(zip(columns, arrays, strict=True)) | ends)


def _fill(column: pd.Series) -> Array:
    """Integers with missing values, floats in pandas, as int64 with `NONE`; else unchanged."""
    return (column.fillna(NONE).astype(np.int64) if column.dtype.kind == "f" else column).to_numpy()


def _number(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
    """Adds a row-number key before the other columns."""
    start = 0
    for batch in batches:
        keys = pa.array(np.arange(start, start + batch.num_rows))
        start += batch.num_rows
        yield batch.add_column(0, column, keys)


def _write_task(source: Source, folder: Path) -> None:
    folder.mkdir(parents=True)
    document, label = f"{DOCUMENT}_id", f"{LABEL}_id"
    ptr, index = source.targets.ptr.numpy(), source.targets.index.numpy().astype(np.int64)
    before = 0
    for split, (name, _) in _DAYS.items():
        rows = np.flatnonzero(source.split == split)
        keys = np.arange(before, before + len(rows))
        before += len(rows)
        columns = {TIME: _times(split, len(rows)), document: pa.array(keys)}
        table = pa.table(columns)
        if split in _shown_splits(source):
            lists = pa.ListArray.from_arrays(pa.array(ptr.astype(np.int32)), pa.array(index))
            table = table.append_column(label, lists.take(pa.array(rows)))
            table = table.filter(pc.greater(pc.list_value_length(table.column(label)), 0))
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
    manifest = {
        "name": TASK,
        "kind": "external",
        "task_type": "recommendation",
        "description": "The labels of each document.",
        "time_col": TIME,
        "src_entity_table": DOCUMENT,
        "src_entity_col": document,
        "dst_entity_table": LABEL,
        "dst_entity_col": label,
        "eval_k": _EVAL_K,
        "timedelta": "1 days",
        "manifest_version": 1,
    }
    _write_yaml(folder / "manifest.yaml", manifest)


def _write_yaml(path: Path, content: dict[str, Any]) -> None:
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    path.write_text(text, encoding="utf-8")
