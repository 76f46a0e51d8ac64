"""Documents of a built data set as JSON objects of the MATCH format."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from match_graph.errors import CorpusError
from match_graph.graph.csr import select_rows
from match_graph.typing import CONTAINS, DOCUMENT, LABEL, EdgeType

if TYPE_CHECKING:
    from match_graph.datasets.dataset import CorpusDataset


def list_json(dataset: "CorpusDataset", documents: Sequence[int]) -> list[dict[str, Any]]:
    """Documents as JSON objects; see `CorpusDataset.as_json`.

    Raises:
        CorpusError: The data set keeps no raw texts, and words alone do not give them back.
    """
    table = dataset.table(DOCUMENT)
    if "text" not in table and dataset.tokenizer != "whitespace":
        raise CorpusError(
            f"Documents can be shown where raw texts are kept, but '{dataset.name}' has none; "
            f"keep the texts where its corpus is made."
        )
    shown = table.iloc[[*documents]]
    columns: dict[str, Sequence[Any]] = {"paper": shown["id"].astype(str).tolist()}
    if "text" in table:
        columns["text"] = shown["text"].astype(str).tolist()
    else:
        columns["text"] = [" ".join(words) for words in _list_names(dataset, CONTAINS, documents)]
    if "time" in table:
        columns["time"] = shown["time"].astype(int).tolist()
    for edge_type in dataset.graph.edge_types:
        if edge_type[:2] == (DOCUMENT, "has"):
            columns[edge_type[2]] = _list_names(dataset, edge_type, documents)
    labels = dataset.names(LABEL)
    ptr, index = dataset.targets.select(torch.tensor([*documents], dtype=torch.int64))
    gold = index.split(ptr.diff().tolist())
    columns["label"] = [labels.iloc[part.numpy()].astype(str).tolist() for part in gold]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _list_names(
    dataset: "CorpusDataset", edge_type: EdgeType, documents: Sequence[int]
) -> list[list[str]]:
    """Names of each document's neighbours, in the order of its list."""
    names, lists = dataset.names(edge_type[2]), dataset.graph.adjacency(edge_type)
    ptr, node = select_rows(lists.ptr, lists.node, torch.tensor([*documents]).long())
    parts = node.split(ptr.diff().tolist())
    return [names.iloc[part.numpy()].astype(str).tolist() for part in parts]
