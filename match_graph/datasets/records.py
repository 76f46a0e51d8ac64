"""Documents of a built data set -> objects of the MATCH format, as prediction takes them."""

from collections.abc import Sequence
from typing import Any

import torch

from match_graph.datasets.dataset import CorpusDataset
from match_graph.errors import CorpusError
from match_graph.typing import DOCUMENT, LABEL


def make_records(dataset: CorpusDataset, documents: Sequence[int]) -> list[dict[str, Any]]:
    """Some documents of a data set as they would stand in its files.

    Args:
        dataset: Built, with raw texts.
        documents: Their numbers in the graph.

    Returns:
        For each document ``paper``, ``text``, the metadata fields as lists, and ``label``.

    Raises:
        CorpusError: The data set keeps no raw texts.
    """
    table = dataset.table(DOCUMENT)
    if "text" not in table:
        raise CorpusError(
            f"Documents can be shown where raw texts are kept, but '{dataset.name}' has none; "
            f"build a smaller one."
        )
    records: list[dict[str, Any]] = [
        {"paper": str(table["id"].iloc[document]), "text": str(table["text"].iloc[document])}
        for document in documents
    ]
    data = dataset[0]
    for _, relation, field in data.edge_types:
        if relation != "has":
            continue
        names = dataset.names(field)
        row, col = data[DOCUMENT, relation, field].edge_index
        for record, document in zip(records, documents, strict=True):
            start, end = torch.searchsorted(row, torch.tensor([document, document + 1]).int())
            record[field] = [str(names.iloc[index]) for index in col[start:end].tolist()]
    labels = dataset.names(LABEL)
    ptr, index = dataset.targets.select(torch.tensor([*documents], dtype=torch.int64))
    for record, gold in zip(records, index.split(ptr.diff().tolist()), strict=True):
        record["label"] = [str(labels.iloc[label]) for label in gold.tolist()]
    return records
