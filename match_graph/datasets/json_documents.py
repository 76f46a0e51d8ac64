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
            f"build a smaller one."
        )
    ids = table["id"].iloc[[*documents]].astype(str)
    if "text" in table:
        texts = table["text"].iloc[[*documents]].astype(str).tolist()
    else:
        texts = [" ".join(words) for words in _list_names(dataset, CONTAINS, documents)]
    objects: list[dict[str, Any]] = [
        {"paper": name, "text": text} for name, text in zip(ids, texts, strict=True)
    ]
    if "time" in table:
        for content, time in zip(objects, table["time"].iloc[[*documents]], strict=True):
            content["time"] = int(time)
    for edge_type in dataset.graph.edge_types:
        if edge_type[:2] != (DOCUMENT, "has"):
            continue
        values = _list_names(dataset, edge_type, documents)
        for content, named in zip(objects, values, strict=True):
            content[edge_type[2]] = named
    labels = dataset.names(LABEL)
    ptr, index = dataset.targets.select(torch.tensor([*documents], dtype=torch.int64))
    for content, gold in zip(objects, index.split(ptr.diff().tolist()), strict=True):
        content["label"] = [str(labels.iloc[label]) for label in gold.tolist()]
    return objects


def _list_names(
    dataset: "CorpusDataset", edge_type: EdgeType, documents: Sequence[int]
) -> list[list[str]]:
    """Names of each document's neighbours, in the document's order."""
    names, lists = dataset.names(edge_type[2]), dataset.graph.adjacency(edge_type)
    ptr, node = select_rows(lists.ptr, lists.node, torch.tensor([*documents]).long())
    parts = node.split(ptr.diff().tolist())
    return [names.iloc[part.numpy()].astype(str).tolist() for part in parts]
