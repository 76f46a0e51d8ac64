"""Documents to predict and numbers of labels, as callers give them, and their checks."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeAlias

import pandas as pd

from match_graph.datasets.frames import iter_rows
from match_graph.errors import ConfigError, CorpusError, shorten

#: Takes the text of a warning.
Warn: TypeAlias = Callable[[str], None]
#: Keys of a document besides its metadata fields; `label` may be there and is not read, nor is
#: `time`, which exports write, where the run has no times.
KEYS = ("paper", "text", "label", "time")


def check_counts(**given: int) -> None:
    """Refuses what counts labels or documents and is no whole number of 1 or more."""
    for name, value in given.items():
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_whole or int(value) < 1:
            raise ConfigError(f"{name} must be a whole number of 1 or more, found {value!r}.")


def list_rows(documents: pd.DataFrame, name: str) -> list[dict[str, Any]]:
    """Documents of a frame, one a row; missing cells are left out.

    Args:
        documents: Frame with a column per key.
        name: What the caller calls it, for the message.

    Raises:
        CorpusError: Two columns have one name.
    """
    frame = documents.set_axis([*map(str, documents.columns)], axis=1)
    if not frame.columns.is_unique:
        raise CorpusError(f"{name} must name every column once, found {[*frame.columns]}.")
    rows = iter_rows(frame, frame.columns)
    return [{key: cell for key, cell in row.items() if cell is not None} for row in rows]


def name_documents(documents: Any) -> Iterator[tuple[str, Any]]:
    """(place, document) of an iterable of documents, or of a DataFrame with one a row.

    Raises:
        CorpusError: It is neither.
    """
    if not isinstance(documents, Iterable) or isinstance(documents, str | bytes | Mapping):
        raise CorpusError(
            f"The documents must be a list of them, a dict each, found {documents!r:.60}; put "
            f"them in a list."
        )
    if isinstance(documents, pd.DataFrame):
        documents = list_rows(documents, "The DataFrame of documents")
    return ((f"document {number}", one) for number, one in enumerate(documents, start=1))


def warn_of_unread(
    documents: Iterable[tuple[str, Any]],
    fields: Sequence[str],
    dropped: Iterable[str] = (),
    reads_x: bool = False,
    warn: Warn | None = None,
) -> Iterator[tuple[str, Any]]:
    """The same documents; after the last, one warning names the keys that nothing reads.

    A run that reads no metadata at all does so by choice, and no field can be misspelt: it warns of
    ``x`` alone, which other runs read.

    Args:
        documents: (place, document) pairs.
        fields: Metadata fields of the run.
        dropped: Fields that the run leaves out by its settings.
        reads_x: Whether it reads features of documents, ``x``.
        warn: Takes the warning; None makes it a UserWarning.
    """
    others = ["x"] if reads_x else []
    known, unread = {*fields, *dropped, *others, *KEYS}, dict[str, None]()
    for place, document in documents:
        if isinstance(document, Mapping):
            unread |= dict.fromkeys(str(key) for key in document if key not in known)
        yield place, document
    if not fields:
        unread = {key: None for key in unread if key == "x"}
    if unread:
        text = (
            f"the keys {shorten(sorted(unread))} of documents are not read; this run reads "
            f"{['text', *others, *fields]}"
        )
        warnings.warn(text, stacklevel=2) if warn is None else warn(text)
