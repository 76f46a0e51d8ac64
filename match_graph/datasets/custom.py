"""A user's own files: JSON lines or CSV of any layout, of which options name the columns."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

from pydantic import Field, model_validator

from match_graph.corpus import Faults
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.match_folder import read_taxonomy
from match_graph.datasets.options import (
    UNDATED,
    Card,
    HierarchyConfig,
    SplitConfig,
    TextConfig,
    count_days,
)
from match_graph.datasets.partitions import PartitionReader
from match_graph.errors import CorpusError
from match_graph.io.csv_lines import read_csv_rows
from match_graph.io.json_lines import as_whole, describe, read_id, read_json_lines, read_values
from match_graph.io.partition import Partition, split_lines
from match_graph.io.source import (
    Sources,
    find_files,
    is_there,
    open_regular,
    resolve_path,
)
from match_graph.typing import Split

#: A column, or several that are put together.
Columns: TypeAlias = Mapping[str, str | Sequence[str]]

#: What a column of splits may say.
SPLIT_NAMES: dict[str, Split] = {
    "train": "train", "training": "train",
    "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid",
    "test": "test", "testing": "test",
}  # fmt: skip

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


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


class UserFiles(CorpusDataset):
    """Base of data sets from a user's files; nothing is written beside these.

    A subclass names its `suffixes`, and further files in `path_options`, behind the first.
    """

    class Config(HierarchyConfig, SplitConfig):
        """Options of a user's files."""

        path: str | None = Field(
            None, description="a file, or a folder of such files; none: raw/NAME below the root"
        )

    config: Config
    suffixes: ClassVar[tuple[str, ...]]
    path_options: ClassVar[tuple[str, ...]] = ("path",)

    @cached_property
    def path(self) -> Path:
        """File, or folder of which the files with one of the suffixes count."""
        path = self.config.path
        return Path(self.root, "raw", self.name) if path is None else Path(path)

    def find_extra(self) -> dict[str, str | None]:
        """Further files by option, which are read but not as documents."""
        is_used = self.config.hierarchy == "use"
        return {name: getattr(self.config, name) for name in self.path_options[1:] if is_used}

    @cached_property
    def extra(self) -> dict[str, Path]:
        """Further files that are given, each there.

        Raises:
            CorpusError: One is not.
        """
        extra = {name: Path(file) for name, file in self.find_extra().items() if file is not None}
        for name, file in extra.items():
            if is_there(file) and not file.is_dir():
                open_regular(file).close()
            else:
                raise CorpusError(
                    f"The option '{name}' of '{self.name}' must name a file, but there is none at "
                    f"'{file}'; check the path."
                )
        return extra

    @cached_property
    def files(self) -> list[Path]:
        """Files of documents.

        Raises:
            CorpusError: There is none.
        """
        given = (getattr(self.config, name) for name in self.path_options[1:])
        taken = {resolve_path(file) for file in (*given, *self.extra.values()) if file is not None}
        found = find_files(self.path, self.suffixes, self.name)
        return [file for file in found if resolve_path(file) not in taken]

    @property
    def options(self) -> dict[str, Any]:
        return super().options | {name: name in self.extra for name in self.path_options[1:]}

    @property
    def raw_dir(self) -> str:
        return str(self.path if self.path.is_dir() else self.path.parent)

    @property
    def raw_file_names(self) -> list[str]:
        return [str(resolve_path(file)) for file in (*self.files, *self.extra.values())]

    @classmethod
    def has_raw(cls, root: Path) -> bool:
        assert cls.card is not None
        try:
            return bool(find_files(root / "raw" / cls.card.name, cls.suffixes, cls.card.name))
        except CorpusError:
            return False


class Custom(UserFiles):
    """Custom data set: a JSON object or a row of CSV per document.

    The files are ``.jsonl``, ``.json`` or ``.ndjson`` with an object a line, ``.csv`` or ``.tsv``
    with a header, packed by gzip or not.
    """

    class Config(UserFiles.Config, TableConfig):
        """Options of a custom data set."""

        separator: str = Field(
            ";",
            description="between the values of a cell of CSV, for labels and fields; blanks around "
            'it do not count; "": a cell is one value',
        )
        taxonomy: str | None = Field(
            None,
            description="file with a parent and its children a line, by tabs where the line has "
            "one, else by white space",
        )

    config: Config
    card = Card("custom", "that of your documents", "yours", "JSON lines or CSV of yours")
    suffixes = (".jsonl", ".json", ".ndjson", ".csv", ".tsv")
    path_options = ("path", "taxonomy")

    def reader(self) -> "CustomReader":
        return CustomReader(self.files, self.config, self.faults_mode)


class CustomReader(PartitionReader):
    """Reader of JSON lines, in blocks, and of CSV, whose rows may hold line breaks, by files.

    Args:
        files: Paths of the files.
        config: Options.
        faults: Policy for faulty documents.
    """

    def __init__(
        self, files: Sequence[Path], config: Custom.Config, faults: Faults = "refuse"
    ) -> None:
        self.files, self.config = list(files), config
        self.taxonomy = config.list_hierarchy_files(config.taxonomy)
        summary, paths = "The files of 'custom' must hold documents", [*files, *self.taxonomy]
        super().__init__("custom", config.fields, summary, faults, config.tokenizer, paths)

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        return [
            part
            for path in self.files
            for part in split_lines(path, size=None if _find_delimiter(path) else block)
        ]

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        reader, separator = self._make_reader(builder), None
        lines, name = partition.lines(sources), partition.path.name
        delimiter = _find_delimiter(partition.path)
        if delimiter is None:
            rows = read_json_lines(lines, name, builder.fail, partition.line)
        else:
            separator = self.config.separator
            rows = read_csv_rows(lines, name, delimiter, builder.fail, builder.fail_file)
        for place, row in builder.documents(rows):
            reader.add(row, place, separator)
        reader.note_columns()

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        for path in self.taxonomy:
            for edge in read_taxonomy(sources.lines(path), path.name, builder.fail):
                builder.edges.setdefault(edge[:2], edge[2])
        reader = self._make_reader(builder)
        reader.check_columns()
        reader.check_lists()

    def _make_reader(self, builder: CorpusBuilder) -> "TableReader":
        return TableReader(builder, self.config, "data.options.columns")


def _find_delimiter(path: Path) -> str | None:
    """Delimiter of a file of CSV; None for JSON lines."""
    return _DELIMITERS.get(Path(path.name.lower().removesuffix(".gz")).suffix)


class TableReader:
    """Reader of rows: adds them to a builder.

    Args:
        builder: Builder of the corpus.
        config: Options.
        option: Name of the option ``columns``, for messages.
    """

    def __init__(self, builder: CorpusBuilder, config: TableConfig, option: str) -> None:
        self.builder, self.config, self.option = builder, config, option
        builder.notes[UNDATED] += 0
        named = {name: name for name in ("id", "text", "label", *builder.fields)}
        self.columns = {
            name: [column] if isinstance(column, str) else list(column)
            for name, column in {**named, **config.columns}.items()
        }
        self.seen: set[str] = set()
        self.num_cells, self.num_unsplit = Counter[str](), Counter[str]()
        self.unsplit: dict[str, str] = {}

    def add(self, row: Mapping[str, Any], place: str, separator: str | None = None) -> None:
        """Adds one row as a document, or its faults.

        Args:
            row: Row.
            place: Where it stands, for faults.
            separator: Separator of values in a cell of CSV; "" has one value there. None is of rows
                that may hold lists.
        """
        before = self.builder.num_faults
        self.seen.update(row)
        fail = self.builder.fail
        (column,) = self.columns["id"]
        document = read_id({"paper": row.get(column)}, place, lambda _: None)
        if document is None:
            fail(
                f"{place}: '{column}' must be the document's id, found {describe(row.get(column))}."
            )
        parts = [row.get(name) for name in self.columns["text"]]
        for name, part in zip(self.columns["text"], parts, strict=True):
            if not isinstance(part, str | None):
                fail(f"{place}: '{name}' must be a string, found {describe(part)}.")
        values = {
            name: self._read_list(row, name, place, separator)
            for name in ("label", *self.builder.fields)
        }
        day = self._read_cell(row, "date", place).removesuffix(".0")  # pandas, with a year missing
        if day and count_days(day) is None:
            fail(
                f"{place}: '{self.columns['date'][0]}' must be a year, a month or a day, such as "
                f"2015, 2015-06 or 2015-06-30, found '{day}'."
            )
        split = self._read_cell(row, "split", place)
        if "split" in self.columns and split.lower() not in SPLIT_NAMES:
            fail(
                f"{place}: '{self.columns['split'][0]}' must be one of {list(SPLIT_NAMES)}, "
                f"found '{split}'."
            )
        if self.builder.num_faults > before or document is None:
            return
        text = " ".join(part for part in parts if part)
        chosen = SPLIT_NAMES.get(split.lower()) or self.config.choose_split(
            document, text, day, self.builder.notes
        )
        labels = values.pop("label")
        self.builder.add(document, chosen, text, values, labels, place, count_days(day))

    def _read_list(
        self, row: Mapping[str, Any], name: str, place: str, separator: str | None
    ) -> list[str]:
        found: list[str] = []
        for column in self.columns[name]:
            value = row.get(column)
            self._count_cell(column, value, separator)
            if separator and value:
                value = [part.strip(" ") for part in value.split(separator)]
            values = read_values(value)
            if values is None:
                self.builder.fail(
                    f"{place}: '{column}' must be a string or a list of strings, "
                    f"found {describe(value)}."
                )
            found += values or []
        return found

    def _count_cell(self, column: str, value: Any, separator: str | None) -> None:
        """Counts a cell, and whether it looks like a list but is one value as it stands."""
        self.num_cells[column] += bool(value)
        if not isinstance(value, str) or separator == "" or (separator and separator in value):
            return
        if any(sign in value for sign in ";|\t") or (value.startswith("[") and value.endswith("]")):
            self.num_unsplit[column] += 1
            self.unsplit.setdefault(column, value)

    def _read_cell(self, row: Mapping[str, Any], name: str, place: str) -> str:
        """Text of a cell; empty where it is missing or has no column."""
        value = row.get(self.columns[name][0]) if name in self.columns else None
        value = as_whole(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            self.builder.fail(
                f"{place}: '{self.columns[name][0]}' must be a string, found {describe(value)}."
            )
            return ""
        return "" if value is None else str(value).strip()

    def note_columns(self) -> None:
        """Notes the columns of the rows that were added, and which look like lists mostly."""
        self.builder.note_seen("column", dict.fromkeys(sorted(self.seen), ""))
        for column, number in sorted(self.num_cells.items()):
            if 2 * self.num_unsplit[column] > number:
                self.builder.note_seen("unsplit", {column: self.unsplit[column]})
            elif number:
                self.builder.note_seen("split", {column: ""})

    def check_columns(self) -> None:
        """Refuses columns that no row of the corpus has, and warns of those that are not read."""
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
        """Warns of columns whose cells look like lists in most rows of each part."""
        unsplit, split = (self.builder.seen.get(kind, {}) for kind in ("unsplit", "split"))
        for column in sorted(unsplit.keys() - split.keys()):
            self.builder.warnings.append(
                f"most values of the column '{column}' look like lists but are strings, such as "
                f"'{unsplit[column]:.60}', and a string is one value as it stands; make lists of "
                f"them, in CSV with the option separator between values"
            )
