"""MATCH format, that of the paper's release: a folder that `MatchFolder` reads."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from match_graph.config import FeatureSource
from match_graph.corpus import Array, split_words
from match_graph.datasets.match_folder import (
    FIELDS,
    SPLIT_FILES,
    TAXONOMY,
    MatchFolder,
    MatchReader,
    write_lines,
)
from match_graph.errors import ExportError
from match_graph.export.inventory import Inventory
from match_graph.export.parquet import write_batches
from match_graph.export.source import Source, add_graph_edges
from match_graph.export.target import NOT_IN_TAXONOMY, Reading, Target, escape_all, unescape
from match_graph.features.store import find_nodes
from match_graph.features.table import open_table
from match_graph.graph import BuiltGraph, build_graph
from match_graph.graph.build import MAX_POSITIONS, contract_hierarchy
from match_graph.typing import (
    CITES,
    CONTAINS,
    DOCUMENT,
    IS_A,
    LABEL,
    TAGGED,
    WORD,
    Split,
    Tokenizer,
    token_edge,
)

#: Number of documents whose words are compared with their texts before anything is written.
_CHECKED = 1000


class MatchTarget(Target):
    """``train.json``, ``dev.json``, ``test.json``, ``taxonomy.txt``, ``meta_dict.json``.

    Label lists outside of training are empty unless all labels are exported. Labels with white
    space, which ``taxonomy.txt`` would split, are percent-escaped, and ``id2label.txt`` gives their
    names. The format has no features: they are in files beside it, by id, for ``data.features``.
    """

    features = ("none", "data")
    texts = ("raw", "words")

    def check(self, source: Source) -> None:
        """Checks edge types, and for some documents that tokenizing the text gives their words."""
        _check_edge_types(source)
        tokenizer = find_tokenizer(source)
        batch = next(source.nodes(DOCUMENT)).slice(0, _CHECKED)
        texts, ids = (batch.column(name).to_pylist() for name in ("text", "id"))
        known = source.list_words(0, len(texts))
        for name, text, words in zip(ids, texts, known, strict=True):
            if split_words(text, tokenizer)[:MAX_POSITIONS] != words.tolist():
                instead = "" if source.options.text == "words" else "--text words or "
                raise ExportError(
                    f"The format 'match' holds texts of which a reader makes the words, but the "
                    f"words of document '{name}' are not those of its text by the tokenizer "
                    f"'{tokenizer}'; choose {instead}another target."
                )

    def write(self, source: Source, folder: Path, out: Path) -> None:
        ids = source.dataset.names(LABEL).tolist()
        written = escape_all(ids, NOT_IN_TAXONOMY) or ids
        with ExitStack() as stack:
            files = {
                split: stack.enter_context((folder / name).open("w", encoding="utf-8", newline=""))
                for split, name in SPLIT_FILES.items()
            }
            for split, record in _make_records(source, written):
                files[split].write(json.dumps(record, ensure_ascii=False) + "\n")
        lines = [" ".join(line) for line in _taxonomy(source, written)]
        write_lines(folder / TAXONOMY, lines)
        for node_type in (LABEL, *source.fields):
            table = source.dataset.table(node_type)
            if "name" in table or (node_type == LABEL and written is not ids):
                keys = written if node_type == LABEL else table["id"].tolist()
                pairs = zip(keys, table.get("name", table["id"]), strict=True)
                lines = [f"{key}\t{_one_line(name)}" for key, name in pairs if _is_key(key)]
                write_lines(folder / f"id2{node_type}.txt", lines)
        for node_type in source.features:
            new_ids = dict(zip(ids, written, strict=True)) if node_type == LABEL else {}
            rows = _feature_rows(source, node_type, new_ids)
            write_batches(folder, _feature_file(node_type), rows)
        fields = json.dumps({"metadata": source.fields}, ensure_ascii=False)
        (folder / FIELDS).write_text(fields + "\n", encoding="utf-8")

    def expect(self, source: Source) -> Inventory:
        """Inventory without nodes that no exported document has; the hierarchy is contracted."""
        masks = {name: _find_carried(source, name) for name in (LABEL, WORD, *source.fields)}
        inventory, kept = source.take_inventory(masks), masks[LABEL]
        ids = source.dataset.names(LABEL).to_numpy(dtype=object)
        child, parent = source.graph.edge_index(IS_A).numpy()
        hierarchy = pd.DataFrame({"child": ids[child], "parent": ids[parent]})
        carried = ids[kept.numpy()].tolist()
        number = {name: row for row, name in enumerate(carried)}
        pairs, _ = contract_hierarchy(hierarchy, carried)
        ends = np.array([(number[low], number[high]) for low, high in pairs], dtype=np.int64)
        inventory.add_edges(IS_A, ends.reshape(-1, 2).T)
        return inventory

    def read(self, source: Source, folder: Path) -> list[Reading]:
        config = MatchFolder.Config(tokenizer=find_tokenizer(source))
        built = build_graph(MatchReader(folder, config).read_corpus())
        for node_type in source.features:
            path = folder / _feature_file(node_type)
            built.data[node_type].x = _read_features(path, built.tables[node_type]["id"], node_type)
        if escape_all(source.dataset.names(LABEL), NOT_IN_TAXONOMY) is not None:
            built.tables[LABEL]["id"] = [unescape(value) for value in built.tables[LABEL]["id"]]
        left_out = {
            "label.depth": "The depth of labels: the format has no place for it.",
            "*.definition": "Definitions: the format has no place for them.",
            "document.time": "The time of documents: the format has no place for it.",
        }
        for node_type in (LABEL, *source.fields):
            table = source.dataset.table(node_type)
            pairs = zip(table["id"], table.get("name", table["id"]), strict=True)
            escaped = node_type == LABEL  # its ids have no tabs then
            if any(_one_line(name) != name or not (escaped or _is_key(key)) for key, name in pairs):
                left_out[f"{node_type}.name"] = (
                    f"White space at the ends of names and line breaks in them, and names of "
                    f"instances whose id holds a tab or a line break: id2{node_type}.txt has one "
                    f"name a line."
                )
        return [Reading("all files, by match-graph", _take_inventory(built), left_out)]

    def describe(self, source: Source) -> str:
        tokenizer = find_tokenizer(source)
        features = "".join(
            f" --set data.features.{name}=FOLDER/{_feature_file(name)}" for name in source.features
        )
        setting = "" if tokenizer == "regex" else f" --set data.tokenizer={tokenizer}"
        argument = "" if tokenizer == "regex" else f', tokenizer="{tokenizer}"'
        carried = int(_find_carried(source, LABEL).sum())
        alone = {name: int((~_find_carried(source, name)).sum()) for name in (*source.fields, WORD)}
        text = f"""\
- `{"`, `".join(SPLIT_FILES.values())}`: one document a line, in the order of the graph.
- `{TAXONOMY}`: a parent and its children a line; nodes that no document of the source carries were
  contracted when it was built and are not in it.
- `{FIELDS}`: the metadata fields.
- {carried:,} of {source.targets.num_labels:,} labels are on an exported document; a reader knows no
  others.

```
match-graph build FOLDER{setting}
```

```python
import match_graph as mg

dataset = mg.open_dataset("FOLDER"{argument})
```
"""
        if left := [f"{number:,} of {name}" for name, number in alone.items() if number]:
            text += f"\nNodes that no document carries are not in it: {', '.join(left)}.\n"
        if features:
            text += (
                f"\nFeatures stand in `features/TYPE.parquet`, by id; a run takes them:\n\n```\n"
                f"match-graph run FOLDER{setting}{features}\n```\n"
            )
        if escape_all(source.dataset.names(LABEL), NOT_IN_TAXONOMY) is not None:
            text += (
                f"\nSome labels hold white space, which separates labels in `{TAXONOMY}`: every "
                f"label is written with percent escapes for white space and `%` "
                f"(`urllib.parse.unquote` turns it back), and `id2label.txt` names it.\n"
            )
        return text


def _check_edge_types(source: Source) -> None:
    """Refuses edge types other than those of documents' metadata and the label hierarchy.

    Raises:
        ExportError: A pre_transform added such edges, or a node type that no document has.
    """
    needed = [*map(token_edge, source.fields)]
    known = {*needed, CONTAINS, CITES, TAGGED, IS_A}
    others: list[object] = [one for one in source.graph.edge_types if one not in known]
    others += [one[2] for one in needed if one not in source.graph.edge_types]
    if others:
        raise ExportError(
            f"The format 'match' has a place for documents, what they have, and the hierarchy of "
            f"labels, but the graph has {others} too; choose another target."
        )


def find_tokenizer(source: Source) -> Tokenizer:
    """Tokenizer that gives the words of the graph from the exported texts."""
    return "whitespace" if source.options.text == "words" else source.dataset.tokenizer


def _make_records(source: Source, labels: list[str]) -> Iterator[tuple[Split, dict[str, Any]]]:
    """Split and JSON object of every document."""
    lists = {field: _pack(source, field) for field in source.fields}
    lists["label"] = (
        source.targets.ptr.numpy(), source.targets.index.numpy(), np.array(labels, dtype=object)
    )  # fmt: skip
    document = 0
    for batch in source.nodes(DOCUMENT):
        rows = zip(
            *(batch.column(name).to_pylist() for name in ("id", "split", "text")), strict=True
        )
        for name, split, text in rows:
            record: dict[str, Any] = {"paper": name, "text": text}
            for key, (ptr, index, names) in lists.items():
                record[key] = names[index[ptr[document] : ptr[document + 1]]].tolist()
            document += 1
            yield split, record


def _pack(source: Source, field: str) -> tuple[Array, Array, Array]:
    """Offsets per document, instances and instance names of a field."""
    lists = source.graph.adjacency(token_edge(field))
    return lists.ptr.numpy(), lists.node.numpy(), source.dataset.names(field).to_numpy(dtype=object)


def _taxonomy(source: Source, labels: list[str]) -> Iterator[list[str]]:
    """Yields each label that has children, followed by them."""
    child, parent = source.graph.edge_index(IS_A).tolist()
    children: dict[int, list[str]] = {}
    for low, high in zip(child, parent, strict=True):
        children.setdefault(high, []).append(labels[low])
    for high, names in sorted(children.items()):
        yield [labels[high], *names]


def _feature_file(node_type: str) -> Path:
    return Path("features") / f"{node_type}.parquet"


def _feature_rows(
    source: Source, node_type: str, new_ids: dict[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yields ids, as they are written, and features of the nodes of a type."""
    for batch in source.nodes(node_type):
        ids = [new_ids.get(name, name) for name in batch.column("id").to_pylist()]
        yield pa.RecordBatch.from_pydict({"id": pa.array(ids), "x": batch.column("x")})


def _read_features(path: Path, ids: pd.Series, node_type: str) -> torch.Tensor:
    """Features of nodes, read as by a run, [num_nodes, F]."""
    table = open_table(FeatureSource(path=str(path)))
    node = find_nodes(table, pa.array(ids, pa.large_string()), node_type)
    rows = np.concatenate([*table.read()])
    return torch.from_numpy(rows[np.argsort(node)[(node < 0).sum() :]])


def _find_carried(source: Source, node_type: str) -> torch.Tensor:
    """Mask of the nodes of a type that are on an exported document, bool."""
    is_label = node_type == LABEL
    node = source.targets.index if is_label else source.graph.adjacency(token_edge(node_type)).node
    carried = torch.zeros(source.graph.num_nodes(node_type), dtype=torch.bool)
    carried[node.long()] = True
    return carried


def _take_inventory(built: BuiltGraph) -> Inventory:
    inventory = Inventory()
    for node_type, table in built.tables.items():
        columns = {name: table[name].to_numpy(dtype=object) for name in table.columns}
        if "train_count" in built.data[node_type]:
            columns["train_count"] = built.data[node_type].train_count.numpy()
        if "x" in built.data[node_type]:
            columns["x"] = built.data[node_type].x.numpy()
        inventory.add_nodes(node_type, columns.pop("id"), columns)
    add_graph_edges(inventory, built.data, built.targets.to_dict())
    return inventory


def _is_key(key: str) -> bool:
    """True if an id has no tab, line break or byte order mark, which its line would lose."""
    return not re.search(r"[\t\r\n\ufeff]", key)


def _one_line(name: str) -> str:
    return re.sub(r"[\r\n]+", " ", name).strip()
