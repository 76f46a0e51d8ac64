"""Documents of a built data set as records of the MATCH format."""

from collections.abc import Sequence
from typing import Any

import torch

from match_graph.datasets.dataset import CorpusDataset
from match_graph.errors import CorpusError
from match_graph.typing import CONTAINS, DOCUMENT, LABEL, EdgeType


def make_records(dataset: CorpusDataset, documents: Sequence[int]) -> list[dict[str, Any]]:
    """Documents of a data set as records of the MATCH format.

    Args:
        dataset: Built data set with raw texts.
        documents: Document indices in the graph.

    Returns:
        For each document ``paper``, ``text``, the metadata fields as lists, and ``label``. Where no
        raw texts are kept and texts are split at white space, the words joined are the text.

    Raises:
        CorpusError: The data set keeps no raw texts, and words alone do not give them back.
    """
    table, data = dataset.table(DOCUMENT), dataset[0]
    if "text" not in table and dataset.tokenizer != "whitespace":
        raise CorpusError(
            f"Documents can be shown where raw texts are kept, but '{dataset.name}' has none; "
            f"build a smaller one."
        )
    ids = table["id"].iloc[[*documents]].astype(str)
    if "text" in table:
        texts = table["text"].iloc[[*documents]].astype(str).tolist()
    else:
        texts = [" ".join(words) for words in _names(dataset, CONTAINS, documents)]
    records: list[dict[str, Any]] = [
        {"paper": name, "text": text} for name, text in zip(ids, texts, strict=True)
    ]
    for _, relation, field in data.edge_types:
        if relation != "has":
            continue
        values = _names(dataset, (DOCUMENT, relation, field), documents)
        for record, named in zip(records, values, strict=True):
            record[field] = named
    labels = dataset.names(LABEL)
    ptr, index = dataset.targets.select(torch.tensor([*documents], dtype=torch.int64))
    for record, gold in zip(records, index.split(ptr.diff().tolist()), strict=True):
        record["label"] = [str(labels.iloc[label]) for label in gold.tolist()]
    return records


def _names(
    dataset: CorpusDataset, edge_type: EdgeType, documents: Sequence[int]
) -> list[list[str]]:
    """Names of each document's neighbours, in the document's order."""
    names = dataset.names(edge_type[2])
    row, col = dataset[0][edge_type].edge_index
    first = torch.tensor([*documents], dtype=torch.int32)
    start, end = torch.searchsorted(row, torch.stack([first, first + 1])).tolist()
    return [
        names.iloc[col[begin:stop].numpy()].astype(str).tolist()
        for begin, stop in zip(start, end, strict=True)
    ]
