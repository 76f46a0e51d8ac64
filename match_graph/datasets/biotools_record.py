"""Records of bio.tools: text, publications, people and labels of a JSON object.

Source: https://biotools-schema.readthedocs.io.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from match_graph.io.json_lines import Fail, describe

#: Every field that a record can give.
FIELDS = ("venue", "author", "reference", "credit", "language", "tool_type")

_find_label = re.compile(r"https?://edamontology\.org/((?:topic|operation)_\d+)").fullmatch


class BioToolsRecord:
    """Fields of a record; a value of another type than the schema's is a fault.

    Args:
        record: JSON object.
        place: Name of its file.
        fail: Callback that takes the faults, with file and key.
    """

    def __init__(self, record: Mapping[str, Any], place: str, fail: Fail) -> None:
        self.record, self.place, self.fail = record, place, fail
        self.document = self._string(record, "biotoolsID")
        if not self.document:
            fail(f"{place}: 'biotoolsID' must be the record's id, found nothing; remove the file.")
        self.publications = self._objects(record, "publication")
        self.works = [work for one in self.publications if (work := self._work(one))]

    def read_text(self) -> str:
        """Name, description, and title and abstract of the first publication with metadata."""
        given = [(self.record, "name"), (self.record, "description")]
        given += [(work, key) for work in self.works[:1] for key in ("title", "abstract")]
        return " ".join(part for part in (self._string(*one) for one in given) if part)

    def read_labels(self) -> tuple[list[str], int]:
        """Ids of topics and operations, sorted, and the number of terms that are not EDAM's."""
        terms = self._objects(self.record, "topic")
        for function in self._objects(self.record, "function"):
            terms += self._objects(function, "operation", "function[].")
        uris = [self._string(term, "uri", "topic or operation.").strip() for term in terms]
        found = [match[1] for match in map(_find_label, uris) if match]
        return sorted(set(found)), len(terms) - len(found)

    def read_values(self, field: str) -> list[str]:
        """Instances of one of `FIELDS`, with ``_`` for blanks; sorted if unordered."""
        if field == "venue":
            journals = [self._string(work, "journal", "metadata.") for work in self.works[:1]]
            return _join_blanks(journals)
        if field == "language":
            return _join_blanks(self._strings("language"))
        if field == "tool_type":
            return _join_blanks(self._strings("toolType"))
        if field == "author":
            people = [
                one for work in self.works for one in self._objects(work, "authors", "metadata.")
            ]
            names = [self._string(one, "name", "authors[].") for one in people]
        elif field == "credit":
            people = self._objects(self.record, "credit")
            names = [self._string(one, "name", "credit[].") for one in people]
        else:
            names = [self._read_number(one) for one in self.publications]
            related = self._objects(self.record, "relation")
            names += [self._string(one, "biotoolsID", "relation[].") for one in related]
        return sorted(_join_blanks(names))

    def _read_number(self, publication: Mapping[str, Any]) -> str:
        """DOI, else PMID, else PMCID of a publication."""
        numbers = (self._string(publication, key, "publication[].") for key in ("doi", "pmid"))
        first = next((number for number in numbers if number.strip()), "")
        return first or self._string(publication, "pmcid", "publication[].")

    def _work(self, publication: Mapping[str, Any]) -> Mapping[str, Any]:
        """Metadata of a publication; empty without any."""
        work = publication.get("metadata")
        if isinstance(work, dict | None):
            return work or {}
        self._refuse("publication[].metadata", "an object", work)
        return {}

    def _objects(self, holder: Mapping[str, Any], key: str, above: str = "") -> list[Any]:
        value = holder.get(key)
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(one, dict) for one in value):
            return list(value)
        self._refuse(f"{above}{key}", "a list of objects", value)
        return []

    def _string(self, holder: Mapping[str, Any], key: str, above: str = "") -> str:
        value = holder.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str | None):
            return value or ""
        self._refuse(f"{above}{key}", "a string", value)
        return ""

    def _strings(self, key: str) -> Sequence[str]:
        value = self.record.get(key)
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return value
        self._refuse(key, "a list of strings", value)
        return []

    def _refuse(self, key: str, what: str, value: object) -> None:
        self.fail(
            f"{self.place}: '{key}' must be {what}, found {describe(value)}; mend or remove the "
            f"file."
        )


def _join_blanks(names: Iterable[str]) -> list[str]:
    """Distinct names without empty ones, blanks replaced by ``_``."""
    return list(dict.fromkeys("_".join(name.split()) for name in names if name.strip()))
