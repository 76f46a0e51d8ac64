"""Fields of an OpenAlex work: ids, text from the inverted index, metadata instances.

Source: https://docs.openalex.org/api-entities/works/work-object.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from match_graph.io.json_lines import Fail, describe

#: The deepest level that a concept may have; OpenAlex has 5.
MAX_LEVEL = 999

_PREFIX = "https://openalex.org/"


def read_id(value: Any, kind: str = "") -> str | None:
    """OpenAlex id without its URL prefix; a number is prefixed by its kind. None if malformed.

    Args:
        value: Id as found, such as ``https://openalex.org/W1``, ``W1``, or 17 for a field.
        kind: Kind of numbered entity, such as ``fields``.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    short = value.removeprefix(_PREFIX) if isinstance(value, str) else ""
    if not short.strip():
        return None
    return f"{kind}/{short}" if kind and short.isdecimal() else short


def is_level(value: Any) -> TypeGuard[int]:
    """Whether a value is a valid level of a concept."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_LEVEL


def read_text(work: Mapping[str, Any], place: str, fail: Fail) -> str:
    """Title and abstract, joined; either may be missing."""
    title = work.get("title") or work.get("display_name") or ""
    if not isinstance(title, str):
        fail(f"{place}: 'title' must be a string, found {describe(title)}.")
        title = ""
    abstract = read_abstract(work.get("abstract_inverted_index"))
    if abstract is None:
        fail(
            f"{place}: 'abstract_inverted_index' must give each word a list of positions, "
            f"found {describe(work.get('abstract_inverted_index'))}."
        )
    return " ".join(part for part in (title, abstract) if part)


def read_abstract(index: Any) -> str | None:
    """Text of an inverted index, empty without one; None if it is malformed.

    Words are sorted by position, gaps ignored, so that memory does not depend on the positions.
    """
    if index is None:
        return ""
    if not isinstance(index, dict):
        return None
    placed: list[tuple[int, str]] = []
    for word, positions in index.items():
        if not isinstance(positions, list) or not all(isinstance(n, int) for n in positions):
            return None
        placed += [(position, word) for position in positions]
    placed.sort()
    return " ".join([word for _, word in placed])


def _read_venue(work: Mapping[str, Any], place: str, fail: Fail) -> Iterator[tuple[str, str]]:
    location = work.get("primary_location") or work.get("host_venue") or {}
    source = location.get("source", location) if isinstance(location, dict) else location
    if not isinstance(source, dict | None):
        fail(f"{place}: 'primary_location' must hold a source, found {describe(location)}.")
    elif source and (venue := read_id(source.get("id"))) is not None:
        yield venue, read_name(source)


def _read_authors(work: Mapping[str, Any], place: str, fail: Fail) -> Iterator[tuple[str, str]]:
    for item in read_objects(work, "authorships", place, fail):
        author = item.get("author") or {}
        if not isinstance(author, dict):
            fail(f"{place}: 'author' must be an object, found {describe(author)}.")
        elif (name := read_id(author.get("id"))) is not None:
            yield name, read_name(author)


def _read_institutions(
    work: Mapping[str, Any], place: str, fail: Fail
) -> Iterator[tuple[str, str]]:
    for item in read_objects(work, "authorships", place, fail):
        for institution in read_objects(item, "institutions", place, fail):
            if (name := read_id(institution.get("id"))) is not None:
                yield name, read_name(institution)


def _read_references(work: Mapping[str, Any], place: str, fail: Fail) -> Iterator[tuple[str, str]]:
    values = work.get("referenced_works") or []
    references = [read_id(value) for value in values] if isinstance(values, list) else [None]
    if None in references:
        fail(f"{place}: 'referenced_works' must be a list of ids, found {describe(values)}.")
    for reference in references:
        if reference is not None:
            yield reference, ""


#: (id, name) of the instances of a work by field.
INSTANCES = {
    "venue": _read_venue,
    "author": _read_authors,
    "institution": _read_institutions,
    "reference": _read_references,
}


def read_objects(
    record: Mapping[str, Any], key: str, place: str, fail: Fail
) -> Iterator[Mapping[str, Any]]:
    """Yields the objects of a list, which may be missing."""
    values = record.get(key)
    if values is None:
        return
    if not isinstance(values, list) or not all(isinstance(item, dict) for item in values):
        fail(f"{place}: '{key}' must be a list of objects, found {describe(values)}.")
        return
    yield from values


def read_name(item: Mapping[str, Any]) -> str:
    """Name of an object; empty where it has none."""
    name = item.get("display_name")
    return name if isinstance(name, str) else ""
