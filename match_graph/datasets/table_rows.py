"""Documents in the rows of a table, whose columns are named by options."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypeAlias

from pydantic import Field, model_validator

from match_graph.corpus import TableLayout
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.options import UNDATED, SplitConfig, TextConfig, count_days
from match_graph.io.csv_lines import split_cell
from match_graph.io.json_lines import Fail, as_id, as_whole, describe, read_values
from match_graph.typing import Split

#: A column, or several that are put together.
Columns: TypeAlias = Mapping[str, str | Sequence[str]]

#: Values of a column of splits.
SPLIT_NAMES: dict[str, Split] = {
    "train": "train", "training": "train",
    "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
    "test": "test", "testing": "test",
}  # fmt: skip

_BINARY = {"0", "1"}


class TableConfig(TextConfig, SplitConfig):
    """Options of documents in the rows of a table."""

    fields: Sequence[str] = Field((), description="metadata fields, by the names they get")
    columns: Columns = Field(
        default_factory=dict,
        description="columns of id, text, label, split, date and the fields; what is not named "
        "stands in the column of its own name, split and date in none; several columns may "
        "make one text, or one field",
    )

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        known = ["id", "text", "label", "split", "date", *self.fields]
        unknown = sorted(set(self.columns) - set(known))
        faults = []
        if unknown:
            faults.append(
                f"columns must be those of {known}, found {unknown}; name a field in fields too."
            )
        faults += [
            f"columns.{name} must be one column, found {self.columns[name]}."
            for name in ("id", "split", "date")
            if not isinstance(self.columns.get(name, ""), str)
        ]
        if "split" in self.columns and self.train_until is not None:
            faults.append("a column of splits leaves nothing to train_until; remove one.")
        if self.train_until is not None and "date" not in self.columns:
            faults.append("train_until needs a date; name its column in columns.date.")
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def make_layout(self) -> TableLayout:
        """Columns by part, defaults included."""
        named = {name: name for name in ("id", "text", "label", *self.fields)}
        columns = {
            name: [column] if isinstance(column, str) else list(column)
            for name, column in {**named, **self.columns}.items()
        }
        return TableLayout(columns=columns)


class RowReader:
    """Reader of a document's parts (id, text, labels, ...) from the columns of a row.

    Args:
        layout: Columns by part, metadata fields included.
        fields: Metadata fields.
        fail: Callback that takes faults.
    """

    def __init__(self, layout: TableLayout, fields: Sequence[str], fail: Fail) -> None:
        self.layout, self.columns = layout, layout.columns
        self.fields, self.fail = list(fields), fail

    def read_id(self, row: Mapping[str, Any], place: str) -> str | None:
        """Id of the document; None and a fault if missing or malformed."""
        (column,) = self.columns["id"]
        document = as_id(row.get(column))
        if document is None:
            self.fail(
                f"{place}: '{column}' must be the document's id, found {describe(row.get(column))}."
            )
        return document

    def read_text(self, row: Mapping[str, Any], place: str) -> str:
        """Text of the document: its non-empty columns joined by blanks."""
        parts = [row.get(name) for name in self.columns["text"]]
        for name, part in zip(self.columns["text"], parts, strict=True):
            if not isinstance(part, str | None):
                self.fail(f"{place}: '{name}' must be a string, found {describe(part)}.")
        return " ".join(part for part in parts if isinstance(part, str) and part)

    def read_list(
        self, row: Mapping[str, Any], name: str, place: str, separator: str | None = None
    ) -> list[str]:
        """Labels of the document, or instances of a field; arguments as of `TableReader.add`."""
        found: list[str] = []
        for column in self.columns[name]:
            value = row.get(column)
            values = read_values(split_cell(value, separator) if separator and value else value)
            if values is None:
                self.fail(
                    f"{place}: '{column}' must be a string or a list of strings, "
                    f"found {describe(value)}."
                )
            found += values or []
        return found

    def read_day(self, row: Mapping[str, Any], place: str) -> str:
        """Date of the document; empty if there is none."""
        day = self.read_cell(row, "date", place).removesuffix(".0")  # pandas, with a year missing
        if day and count_days(day) is None:
            self.fail(
                f"{place}: '{self.columns['date'][0]}' must be a year, a month or a day, such as "
                f"2015, 2015-06 or 2015-06-30, found '{day}'."
            )
        return day

    def read_cell(self, row: Mapping[str, Any], name: str, place: str) -> str:
        """Text of a cell; empty if it is missing or has no column."""
        value = row.get(self.columns[name][0]) if name in self.columns else None
        value = as_whole(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            self.fail(
                f"{place}: '{self.columns[name][0]}' must be a string, found {describe(value)}."
            )
            return ""
        return "" if value is None else str(value).strip()


class TableReader(RowReader):
    """Adds rows to a builder as documents.

    Args:
        builder: Builder of the corpus.
        config: Options.
        option: Name of the option ``columns``, for messages.
    """

    def __init__(self, builder: CorpusBuilder, config: TableConfig, option: str) -> None:
        super().__init__(config.make_layout(), builder.fields, builder.fail)
        self.builder, self.config, self.option = builder, config, option
        builder.notes[UNDATED] += 0
        self.seen: set[str] = set()
        self.num_cells, self.num_unsplit = Counter[str](), Counter[str]()
        self.unsplit: dict[str, str] = {}
        self.label_rows: dict[str, str] = {}

    def add(self, row: Mapping[str, Any], place: str, separator: str | None = None) -> None:
        """Adds one row as a document, or its faults.

        Args:
            row: Row.
            place: Position of the row, for faults.
            separator: Separator of values in a cell of CSV, where "" makes a cell one value; None
                for rows whose cells may hold lists.
        """
        before = self.builder.num_faults
        self.seen.update(row)
        document, text = self.read_id(row, place), self.read_text(row, place)
        lists = {
            name: self.read_list(row, name, place, separator) for name in ("label", *self.fields)
        }
        self._count_cells(row, separator)
        day = self.read_day(row, place)
        split = self.read_cell(row, "split", place)
        if "split" in self.columns and split.lower() not in SPLIT_NAMES:
            self.fail(
                f"{place}: '{self.columns['split'][0]}' must be one of {list(SPLIT_NAMES)}, "
                f"found '{split}'."
            )
        if self.builder.num_faults > before or document is None:
            return
        chosen = SPLIT_NAMES.get(split.lower()) or self.config.choose_split(
            document, text, day, self.builder.notes
        )
        labels = lists.pop("label")
        self._note_multi_hot(labels, place)
        self.builder.add(document, chosen, text, lists, labels, place, count_days(day))

    def _note_multi_hot(self, labels: Sequence[str], place: str) -> None:
        """Notes the first multi-hot row, and a row with other labels than 0 and 1.

        A multi-hot row holds only 0 and 1, one of them repeatedly, unlike a list of ids.
        """
        found = {*labels}
        if not found <= _BINARY:
            self.label_rows["ids"] = place
        elif len(labels) > len(found):
            self.label_rows.setdefault("multi_hot", place)

    def _count_cells(self, row: Mapping[str, Any], separator: str | None) -> None:
        """Counts non-empty cells by column, and those that look like a list but are one value."""
        for name in ("label", *self.fields):
            for column in self.columns[name]:
                value = row.get(column)
                self.num_cells[column] += bool(value)
                if not isinstance(value, str) or separator == "":
                    continue
                if separator and separator in value:
                    continue
                is_list = value.startswith("[") and value.endswith("]")
                if is_list or any(sign in value for sign in ";|\t"):
                    self.num_unsplit[column] += 1
                    self.unsplit.setdefault(column, value)

    def note_columns(self) -> None:
        """Notes the columns of the rows, and those whose cells mostly look like unsplit lists."""
        self.builder.note_seen("column", dict.fromkeys(sorted(self.seen), ""))
        self.builder.note_seen("label_rows", self.label_rows)
        for column, number in sorted(self.num_cells.items()):
            if 2 * self.num_unsplit[column] > number:
                self.builder.note_seen("unsplit", {column: self.unsplit[column]})
            elif number:
                self.builder.note_seen("split", {column: ""})

    def check_columns(self) -> None:
        """Refuses missing columns, and warns of columns that are not read."""
        wanted = {column for columns in self.columns.values() for column in columns}
        seen = self.builder.seen.get("column", {}).keys()
        absent = sorted(wanted - seen)
        needed = {*self.columns["id"], *self.columns.get("split", [])} & {*absent}
        stopped = self.builder.is_hopeless
        faults = [
            fault
            for fault in self.builder.faults
            if not any(f": '{column}' must be " in fault for column in needed)
        ]
        if absent and seen and (needed or not faults):
            read = " that was read" if stopped else ""
            fault = (
                f"no document{read} has the columns {absent}, but they have {sorted(seen)}; "
                f"say by {self.option} which is which."
            )
            self.builder.faults[:] = [fault, *faults]  # in the place of one by document
        elif others := sorted(seen - wanted):
            self.builder.warnings.append(
                f"the columns {others} are not read; name metadata in the option fields, and a "
                f"column of splits or dates in the option columns"
            )

    def check_lists(self) -> None:
        """Refuses multi-hot labels, and warns of columns whose cells mostly look like lists."""
        rows = self.builder.seen.get("label_rows", {})
        if "multi_hot" in rows and "ids" not in rows:
            self.fail(
                f"{rows['multi_hot']}: '{self.columns['label'][0]}' must hold the ids of labels, "
                f"found 0 and 1 alone, as in rows of a multi-hot matrix; give the ids of the "
                f"columns that are 1."
            )
        unsplit, split = (self.builder.seen.get(kind, {}) for kind in ("unsplit", "split"))
        for column in sorted(unsplit.keys() - split.keys()):
            self.builder.warnings.append(
                f"most values of the column '{column}' look like lists but are strings, such as "
                f"'{unsplit[column]:.60}', and a string is one value as it stands; make lists of "
                f"them, in CSV with the option separator between values"
            )
