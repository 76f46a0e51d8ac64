"""Documents to predict as callers give them: rows, columns, checks."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from match_graph.corpus import TableLayout
from match_graph.datasets.frames import iter_rows
from match_graph.datasets.options import count_days
from match_graph.datasets.table_rows import RowReader
from match_graph.errors import ConfigError, CorpusError, shorten
from match_graph.io.csv_lines import find_delimiter, read_csv_rows
from match_graph.io.json_lines import read_json_lines
from match_graph.runs.vocabulary import TextSettings, fail_document

#: Takes the text of a warning.
Warn: TypeAlias = Callable[[str], None]
#: Keys of a document besides its metadata fields; `label` may be there and is not read, nor is
#: `time`, which exports write, where the run has no times.
KEYS = ("paper", "text", "label", "time")


class Cells(dict[str, Any]):
    """Cells of a row of CSV by column; those of lists are strings with a separator between."""


class OwnColumns:
    """Columns of the table that a run was trained on, so that new documents may be its rows.

    A document is a row of that table if it has a column of it that the MATCH format lacks; any
    other is in the MATCH format.

    Args:
        settings: Text settings of the run.
        dropped: Fields that the run leaves out by its settings.
        reads_x: Whether it reads features of documents, ``x``.
    """

    def __init__(
        self, settings: TextSettings, dropped: Iterable[str] = (), reads_x: bool = False
    ) -> None:
        fields, layout = settings.fields, settings.layout
        keys = {"id": ["paper"]} | {name: [name] for name in ("text", "label", *fields)}
        self._match = RowReader(TableLayout(columns=keys), fields, fail_document)
        self._own = self._match
        if layout is not None:
            layout = layout.model_copy(update={"columns": {**keys, **layout.columns}})
            self._own = RowReader(layout, fields, fail_document)
        names = {column for columns in self._own.columns.values() for column in columns}
        self._distinctive = names - {column for (column,) in keys.values()} - {*dropped, *KEYS}
        self._others = ["x"] if reads_x else []
        self._known = {*fields, *dropped, *self._others, *KEYS}
        self._known_own = {*names, *dropped, *self._others}
        if "date" not in self._own.columns:
            self._known_own |= {"time"}

    def translate(self, row: Any, place: str, with_gold: bool = False) -> Any:
        """A document in the MATCH format.

        Args:
            row: Row of the run's table, or document in the MATCH format; what is neither is left
                for its reader to refuse.
            place: Where it stands, for faults.
            with_gold: Whether its labels must be there.

        Raises:
            CorpusError: A column holds a value of the wrong type, none of CSV has the text, or none
                of a row the labels that must be there.
        """
        is_cells = isinstance(row, Cells)
        is_own = self._is_row(row)
        if not (is_own or is_cells):
            return row
        reader = self._own if is_own else self._match
        text, (column,) = reader.columns["text"], reader.columns["id"]
        if is_cells:
            _check_there(row, text, "a text", place, "name the columns so")
        if with_gold:
            remedy = "give an empty one for a document without labels"
            _check_there(row, reader.columns["label"], "labels", place, remedy)
        known = self._known_own if is_own else self._known
        found: dict[str, Any] = {
            key: row[key] for key in ("x", "time") if key in row and key in known
        }
        if not _is_missing(row.get(column)):
            found["paper"] = reader.read_id(row, place)
        if is_own or is_cells:
            found["text"] = reader.read_text(row, place)
        separator = reader.layout.separator if is_cells else None
        for name in ("label", *reader.fields):
            if not row.keys().isdisjoint(reader.columns[name]):
                found[name] = reader.read_list(row, name, place, separator)
        if day := reader.read_day(row, place):
            found["time"] = count_days(day)
        elif is_cells and "time" in found and "time" not in reader.fields:
            found["time"] = _as_number(found["time"])
        return found

    def _is_row(self, document: Any) -> bool:
        """True if a document has a column of the run's table that the MATCH format lacks."""
        return isinstance(document, Mapping) and not self._distinctive.isdisjoint(document)

    def warn_of_unread(
        self, documents: Iterable[tuple[str, Any]], warn: Warn | None = None
    ) -> Iterator[tuple[str, Any]]:
        """The same documents; after the last, one warning names the keys that nothing reads.

        A run that reads no metadata at all does so by choice, and no field can be misspelt: it
        warns of ``x`` alone, which other runs read.

        Args:
            documents: (place, document) pairs.
            warn: Takes the warning; None makes it a UserWarning.
        """
        unread, reader, fields = dict[str, None](), self._match, self._own.fields
        for place, document in documents:
            if isinstance(document, Mapping):
                known = self._known
                if self._is_row(document):
                    known, reader = self._known_own, self._own
                unread |= dict.fromkeys(str(key) for key in document if key not in known)
            yield place, document
        if not fields:
            unread = {key: None for key in unread if key == "x"}
        if unread:
            read = ("text", *self._others, *fields)
            columns = chain(*(reader.columns.get(key, [key]) for key in read))
            text = (
                f"the keys {shorten(sorted(unread))} of documents are not read; this run reads "
                f"{list(dict.fromkeys(columns))}"
            )
            warnings.warn(text, stacklevel=2) if warn is None else warn(text)


def _check_there(
    row: Mapping[str, Any], columns: Sequence[str], part: str, place: str, remedy: str
) -> None:
    """Refuses a row that has none of the columns of a part."""
    if row.keys().isdisjoint(columns):
        fail_document(
            f"{place}: there must be {part} in the columns {columns}, found {[*row]}; {remedy}."
        )


def _is_missing(cell: Any) -> bool:
    return cell is None or cell is pd.NA or (isinstance(cell, str) and not cell)


def _as_number(cell: str) -> float | str | None:
    """Number in a cell; None of an empty one, and what is no number as it is."""
    with suppress(ValueError):
        return float(cell) if cell.strip() else None
    return cell


def read_rows(
    lines: Iterable[bytes], path: Path, first: int = 1
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file:line, document) of CSV where the path ends so, packed or not, else of JSON lines.

    Args:
        lines: Lines, unpacked; of CSV all of the file.
        path: Path of the file.
        first: Number of the first line.

    Raises:
        CorpusError: A line is no JSON object, or a row no CSV.
    """
    delimiter = find_delimiter(path)
    if delimiter is None:
        return read_json_lines(lines, path.name, fail_document, first)
    rows = read_csv_rows(lines, path.name, delimiter, fail_document, fail_document)
    return ((place, Cells(row)) for place, row in rows)


def describe_empty(names: str, paths: Sequence[Path]) -> CorpusError:
    """Error for files that hold no document.

    Args:
        names: Names of the files, as the message has them.
        paths: Their paths.
    """
    is_table = all(find_delimiter(path) is not None for path in paths)
    kind = "row a document" if is_table else "JSON object a line"
    return CorpusError(
        f"There must be at least one document, found none in {names}; write one {kind}."
    )


def check_counts(**given: int) -> None:
    """Refuses numbers of labels or documents that are no whole number of 1 or more."""
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
