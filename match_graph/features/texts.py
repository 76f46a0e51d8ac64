"""Texts of nodes."""

from collections.abc import Mapping, Sequence

import pandas as pd

from match_graph.datasets import CorpusDataset
from match_graph.errors import CorpusError
from match_graph.typing import DOCUMENT

TEXT, NAME, ID = "text", "name", "id"


def choose_columns(node_type: str, column: Sequence[str] | None) -> list[str]:
    """Columns that are the text of a node: of documents the text, of other nodes the name."""
    return list(column or [TEXT if node_type == DOCUMENT else NAME])


def list_texts(dataset: CorpusDataset, node_type: str, columns: Sequence[str]) -> list[str]:
    """Text of each node of a type, in the order of the graph.

    Several columns are joined as sentences; where a node has no name, its id is the name.

    Args:
        dataset: Built data set.
        node_type: Node type.
        columns: Columns of the node table.

    Raises:
        CorpusError: The table has no such column, or the data set keeps no raw texts.
    """
    known = next(dataset.iter_table(node_type, 1)).schema.names
    if TEXT in columns and TEXT not in known and node_type == DOCUMENT:
        documents = dataset.as_json(range(dataset.graph.num_nodes(DOCUMENT)))
        texts = {TEXT: pd.Series([one["text"] for one in documents], dtype=str)}
    else:
        texts = {}
    missing = [name for name in columns if name not in {*known, *texts, NAME}]
    if missing:
        raise CorpusError(
            f"The text of nodes must be in columns of their table, but '{node_type}' has no "
            f"{missing}; set column to some of {known} in data.features.{node_type}."
        )
    read = dataset.table(node_type, [name for name in {*columns, ID} if name in known])
    ids = read[ID].astype(str)
    for name in columns:
        if name not in texts:
            texts[name] = read[name].fillna("").astype(str) if name in read else ids
        if name == NAME:
            texts[name] = texts[name].where(texts[name].str.strip() != "", ids)
    return join_texts({name: column.tolist() for name, column in texts.items()}, columns)


def join_texts(texts: Mapping[str, Sequence[str]], columns: Sequence[str]) -> list[str]:
    """The text of each node: several columns joined as sentences, empty ones left out.

    Args:
        texts: Texts of the nodes by column.
        columns: Columns in their order.
    """
    if len(columns) == 1:
        return list(texts[columns[0]])
    parts = zip(*(texts[name] for name in columns), strict=True)
    return [". ".join(filter(None, row)) for row in parts]
