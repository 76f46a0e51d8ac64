"""Token and label names of a run, its tokenizer, and documents as it reads them."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from match_graph.config import StrictModel, parse_settings
from match_graph.corpus import TableLayout, split_words, word_pattern
from match_graph.datasets import CorpusDataset
from match_graph.errors import CorpusError, list_faults
from match_graph.graph import Hierarchy, TokenSpace
from match_graph.graph.build import MAX_POSITIONS
from match_graph.graph.csr import row_index
from match_graph.io.files import DamagedError, read_json, reading, write_beside, write_json
from match_graph.io.json_lines import (
    describe,
    read_id,
    read_labels,
    read_metadata,
    read_text,
    read_time,
    read_vector,
)
from match_graph.io.run_folder import TEXT, TOKENS
from match_graph.typing import CONTAINS, DOCUMENT, LABEL, MASKS, WORD, Tokenizer, has_edge

#: Table of the hierarchy's edges; no metadata field has two underscores in a row.
HIERARCHY = "label__is_a"
#: Remedy for a broken file that a run writes where it is missing.
WRITE_AGAIN = "delete it and go on with the run by `match-graph train`, which writes it again"
#: Requirement of documents to predict, for messages.
READABLE = "The documents must be readable"


class TextSettings(StrictModel):
    """``tokens/text.json``: text settings, by which a document becomes tokens."""

    fields: list[str]
    tokenizer: Tokenizer
    word_pattern: str
    layout: TableLayout | None = None


@dataclass(frozen=True)
class ReadDocument:
    """Document as read, before token lookup.

    Args:
        id: Id of the document, if it has one.
        text: Raw text.
        metadata: Metadata instances by field, in the document's order.
        time: Time as in the graph, if it is known.
        x: Features, if they are given, [F].
        gold: Gold labels, if they are asked for.
    """

    id: str | None
    text: str
    metadata: Mapping[str, Sequence[str]]
    time: float | None = None
    x: Sequence[float] | None = None
    gold: Sequence[str] = ()


def read_document(
    content: Any,
    fields: Sequence[str],
    place: str,
    has_time: bool = False,
    width: int = 0,
    with_gold: bool = False,
) -> ReadDocument:
    """Reads an object of the MATCH format.

    Args:
        content: Object to read.
        fields: Metadata fields to read.
        place: Where it stands, for the message.
        has_time: Whether to read ``time``, unless a metadata field is called so.
        width: Number of features ``x`` of a document to read, likewise; 0 for none.
        with_gold: Whether to read ``label``, which must be there then.

    Raises:
        CorpusError: It is no object, has no text, or a field is of the wrong type.
    """
    if not isinstance(content, Mapping):
        fail_document(f"{place}: a document must be one object, found {describe(content)}.")
    name = read_id(content, place, fail_document, required=False)
    text = read_text(content, place, fail_document)
    assert text is not None
    metadata = read_metadata(content, fields, place, fail_document)
    time = read_time(content, place, fail_document) if has_time and "time" not in fields else None
    has_x = width and "x" not in fields
    x = read_vector(content, width, place, fail_document) if has_x else None
    gold = read_labels(content, place, fail_document) if with_gold else None
    return ReadDocument(name, text, metadata, time, x, tuple(dict.fromkeys(gold or ())))


def list_times(documents: Sequence[ReadDocument], latest: int) -> Tensor:
    """Times of documents, [B], int64; one without a time has the latest."""
    times = [latest if one.time is None else math.floor(one.time) for one in documents]
    return torch.tensor(times, dtype=torch.int64)


def fail_document(fault: str) -> NoReturn:
    """Raises the first fault of the documents to predict.

    Raises:
        CorpusError: Always.
    """
    raise CorpusError(list_faults(READABLE, [fault]))


@dataclass(frozen=True)
class Vocabulary:
    """Kept tokens of a run by name, its labels, and how texts are read.

    Args:
        settings: Text settings: fields, tokenizer, word pattern, columns of a table.
        rows: Row of each kept name, per node type; fields first and words last.
        labels: Label table: columns ``id``, ``train_count`` (training documents) and, where the
            data set names labels, ``name``.
    """

    settings: TextSettings
    rows: dict[str, dict[str, int]]
    labels: pd.DataFrame

    @cached_property
    def space(self) -> TokenSpace:
        """Token space of the run."""
        return TokenSpace(tuple(self.rows), tuple(map(len, self.rows.values())))

    def build_graph(self, documents: Sequence[ReadDocument]) -> HeteroData:
        """Graph of a few documents, as `graph.build_graph` makes it, without labels.

        Names that are not kept are nodes past the kept ones, which the token space reads as the
        [UNK] of their type. Repeated values within a field count once.
        """
        data = HeteroData()
        data[DOCUMENT].num_nodes = len(documents)
        for name, rows in self.rows.items():
            unknown: dict[str, int] = {}
            found: list[int | None] = []
            ends = [0]
            for document in documents:  # lists that live on would wake the garbage collector
                values = self.names(document, name)
                numbers = list(map(rows.get, values))
                if None in numbers:
                    numbers = [
                        len(rows) + unknown.setdefault(value, len(unknown))
                        if number is None
                        else number
                        for value, number in zip(values, numbers, strict=True)
                    ]
                found += numbers
                ends.append(len(found))
            ptr = torch.tensor(ends)
            edge_index = torch.stack([row_index(ptr), torch.tensor(found, dtype=torch.int64)])
            data[name].num_nodes = len(rows) + len(unknown)
            if name == WORD:
                data[CONTAINS].edge_index = edge_index
                data[CONTAINS].position = torch.arange(len(found)) - ptr[edge_index[0]]
            else:
                data[has_edge(name)].edge_index = edge_index
        return data

    def names(self, document: ReadDocument, node_type: str) -> list[str]:
        """Words of a document in order, or its instances of a field, each once."""
        if node_type == WORD:
            settings = self.settings
            words = split_words(document.text, settings.tokenizer)
            return words[:MAX_POSITIONS]
        return list(dict.fromkeys(document.metadata.get(node_type, ())))


def write_vocabulary(
    folder: Path, dataset: CorpusDataset, space: TokenSpace, hierarchy: Hierarchy
) -> None:
    """Writes ``tokens/`` of a run folder, leaving what is there.

    One table per node type with the names of its kept nodes, ``label.parquet`` with all labels,
    ``label__is_a.parquet`` (child, parent) by their rows, and ``text.json``.
    """
    tables = {
        name: dataset.table(name).head(kept)
        for name, kept in zip(space.types, space.num_kept, strict=True)
    }
    count = dataset.targets.count(dataset.documents(MASKS["train"])).numpy()
    tables[LABEL] = dataset.table(LABEL).assign(train_count=count)
    child, parent = hierarchy.edge_index.tolist()
    tables[HIERARCHY] = pd.DataFrame({"child": child, "parent": parent})
    write_names(folder / TOKENS, tables)
    if not (folder / TOKENS / TEXT).is_file():
        fields = [name for name in space.types if name != WORD]
        settings = TextSettings(
            fields=fields,
            tokenizer=dataset.tokenizer,
            word_pattern=word_pattern(dataset.tokenizer),
            layout=dataset.layout,
        )
        write_json(folder / TOKENS / TEXT, settings.model_dump())


def write_names(folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Writes tables of names as ``NAME.parquet`` into a folder, leaving what is there."""
    for name, table in tables.items():
        path = folder / f"{name}.parquet"
        if not path.is_file():
            write_beside(path, table.to_parquet)


def read_vocabulary(folder: Path) -> Vocabulary:
    """Reads ``tokens/`` of a run folder.

    Raises:
        CheckpointError: A file is missing or broken.
        ConfigError: ``text.json`` holds something else.
    """
    path = folder / TOKENS / TEXT
    settings = parse_settings(TextSettings, read_json(path), f"'{path}' must be valid")
    with _reading(path):
        if settings.word_pattern != (known := word_pattern(settings.tokenizer)):
            # another pattern could backtrack for ever
            raise DamagedError(f"word_pattern must be {known!r}")
    types = (*settings.fields, WORD)
    rows = {name: read_rows(folder / TOKENS / f"{name}.parquet") for name in types}
    path = folder / TOKENS / f"{LABEL}.parquet"
    labels = read_names(path)
    with _reading(path):
        if "train_count" not in labels or not pd.api.types.is_integer_dtype(labels["train_count"]):
            raise DamagedError("its column 'train_count' does not hold whole numbers")
    return Vocabulary(settings, rows, labels)


def read_hierarchy(folder: Path, num_labels: int) -> Hierarchy:
    """Reads the label hierarchy from ``tokens/`` of a run folder.

    Raises:
        CheckpointError: The file is missing or broken.
    """
    path = folder / TOKENS / f"{HIERARCHY}.parquet"
    with _reading(path):
        edges = pd.read_parquet(path, columns=["child", "parent"]).to_numpy(dtype="int64")
        return Hierarchy(torch.from_numpy(edges.T.copy()), num_labels)


def read_names(path: Path) -> pd.DataFrame:
    """Reads a table of nodes: ``id``, distinct strings; optionally ``name``, strings or nulls.

    Raises:
        CheckpointError: The file is missing or broken, or holds something else.
    """
    with _reading(path):
        table = pd.read_parquet(path)
        if "id" not in table or not _holds_strings(table["id"]):
            raise DamagedError("its column 'id' does not hold strings")
        if not table["id"].is_unique:
            raise DamagedError("an id stands there twice")
        if "name" in table and not _holds_strings(table["name"].dropna()):
            raise DamagedError("its column 'name' does not hold strings")
    return table


def read_rows(path: Path) -> dict[str, int]:
    """Row of each name in a table of nodes; errors as `read_names`."""
    return {name: row for row, name in enumerate(read_names(path)["id"].tolist())}


def _holds_strings(values: pd.Series) -> bool:
    return all(isinstance(value, str) for value in values)


def _reading(path: Path) -> AbstractContextManager[None]:
    must, found = "A run folder keeps how its documents are read", f"'{path}' cannot be used"
    return reading(path, must, WRITE_AGAIN, found)
