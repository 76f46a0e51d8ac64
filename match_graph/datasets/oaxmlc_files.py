"""Files of OAXMLC-Bench, and the values of a document's fields.

Source: https://github.com/eXascaleInfolab/oaxmlc-bench.
"""

from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from match_graph.datasets.match_folder import TAXONOMY
from match_graph.datasets.openalex_work import read_id
from match_graph.io.source import is_there

DOCUMENTS, ONTOLOGY = "documents.json", "ontology.json"
TAXONOMIES = ("topics", "concepts")


class OaXmlcFiles(NamedTuple):
    """Files of a data set of the benchmark with one of its taxonomies."""

    documents: Path
    taxonomy: Path
    ontology: Path

    @classmethod
    def find(cls, folder: Path, taxonomy: str) -> "OaXmlcFiles":
        """Files of a folder; packed documents if there are no others."""
        packed = folder / f"{DOCUMENTS}.gz"
        documents = folder / DOCUMENTS
        beside = folder if is_there(folder / TAXONOMY) else folder / taxonomy
        found = packed if is_there(packed) and not is_there(documents) else documents
        return cls(found, beside / TAXONOMY, beside / ONTOLOGY)


def place_member(archive: Path, path: PurePosixPath) -> PurePosixPath | None:
    """Target path of a member of an archive, which is named by its taxonomy."""
    if path.name == DOCUMENTS:
        return PurePosixPath(DOCUMENTS)
    names = [name for name in TAXONOMIES if name in (archive.name.split(".")[0], *path.parts)]
    return (
        PurePosixPath(names[0], path.name) if names and path.name in (TAXONOMY, ONTOLOGY) else None
    )


def read_instances(value: Any) -> dict[str, str] | None:
    """Names of instances or labels by id, each empty if unknown; None if malformed.

    Args:
        value: An id, or a list of ids, or of objects with an id and perhaps a name, as of OpenAlex;
            the id of an object without one is its name.
    """
    items = value if isinstance(value, list) else [] if value is None else [value]
    found: dict[str, str] = {}
    for item in items:
        if item is None or item == "":
            continue
        inner = item.get("author", item) if isinstance(item, dict) else {"id": item}
        one = inner if isinstance(inner, dict) else {"id": inner}
        name = one.get("display_name") or one.get("name") or ""
        instance = read_id(one.get("id") or name)
        if instance is None or not isinstance(name, str):
            return None
        found.setdefault(instance, name)
    return found
