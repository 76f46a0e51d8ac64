"""Names of nodes to be shown, where a data set has some besides ids."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from match_graph.datasets import CorpusDataset
from match_graph.typing import LABEL


def show_name(identifier: str, name: str | None) -> str:
    """Name and id, such as "Machine learning (C41008148)"; the id alone without a name."""
    return f"{name} ({identifier})" if name else identifier


def find_names(dataset: CorpusDataset, node_type: str, ids: Iterable[str]) -> dict[str, str]:
    """Names of some nodes by id; those whose name is unknown or the id itself are left out."""
    table = dataset.table(node_type)
    if "name" not in table:
        return {}
    chosen = table[table["id"].isin(set(ids))]
    pairs = zip(chosen["id"].tolist(), chosen["name"].tolist(), strict=True)
    return {one: name for one, name in pairs if name and name != one}


def list_metadata(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """Metadata instances of a data set's document in the MATCH format, by field."""
    lists = {field: values for field, values in record.items() if isinstance(values, list)}
    return {field: values for field, values in lists.items() if field not in (LABEL, "x")}


def find_metadata_names(
    dataset: CorpusDataset, documents: Iterable[Mapping[str, Sequence[str]]]
) -> dict[str, dict[str, str]]:
    """Names of metadata instances of documents, by field and id, where there are any.

    Args:
        dataset: Data set.
        documents: Instances of each document by field, fields of the data set.
    """
    ids: dict[str, set[str]] = {}
    for metadata in documents:
        for field, values in metadata.items():
            ids.setdefault(field, set()).update(values)
    found = {field: find_names(dataset, field, values) for field, values in ids.items()}
    return {field: names for field, names in found.items() if names}
