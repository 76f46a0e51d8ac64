"""JSON lines or CSV of any layout: options say which columns hold id, text, labels, metadata."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

from pydantic import model_validator

from match_graph.corpus import Corpus, CorpusBuilder, Faults
from match_graph.datasets.dataset import Card
from match_graph.datasets.match_folder import Hierarchy
from match_graph.datasets.splits import DateOption, SplitOptions, SplitRule
from match_graph.datasets.taxonomy import read_taxonomy
from match_graph.datasets.text import WORD_PATTERN, Tokenizer, split_words
from match_graph.datasets.user_files import UserFiles
from match_graph.io.csv_lines import read_csv_rows
from match_graph.io.json_lines import (
    describe,
    read_id,
    read_json_lines,
    read_values,
)
from match_graph.io.source import Track, open_sources
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


class Table(UserFiles):
    """Custom data set: a JSON object or a row of CSV per document.

    Args:
        path: Path of ``.jsonl``, ``.json`` or ``.ndjson`` with an object a line, ``.csv`` or
            ``.tsv`` with a header, packed by gzip or not; None takes ``raw/table`` below the root.
        fields: Metadata fields, by the names that they get.
        columns: Columns of ``id``, ``text``, ``label``, ``split``, ``date`` and the fields; what is
            not named stands in the column of its own name, ``split`` and ``date`` in none. Several
            columns may make one text, or one field.
        separator: Separator of the values in a cell of CSV, for labels and fields; blanks around it
            do not count. "" takes a cell as one value. JSON has lists.
        taxonomy: Path of a file with a parent and its children a line, by tabs or else by white
            space.
        tokenizer: Text tokenization: "regex" for raw text, "whitespace" for text that is tokenised
            already.
        hierarchy: Use of the taxonomy: "use" or "ignore".
        train_until: Last date of train by the column ``date``, as for `SplitRule`.
        valid_until: Last date of valid, as for `SplitRule`.
        seed: Seed of a random split.
        **kwargs: Arguments of `CorpusDataset`.

    Raises:
        CorpusError: There are no files, or with every fault of them, each with file:line.
        ConfigError: With every option that is none.
    """

    class Options(SplitOptions):
        """Arguments that settings may give."""

        path: str | None = None
        fields: Sequence[str] = ()
        columns: Columns | None = None
        separator: str = ";"
        taxonomy: str | None = None
        tokenizer: Tokenizer = "regex"
        hierarchy: Hierarchy = "use"

        @model_validator(mode="after")
        def _check_columns(self) -> Self:
            columns = self.columns or {}
            known = ["id", "text", "label", "split", "date", *self.fields]
            unknown = sorted(set(columns) - set(known))
            faults = []
            if unknown:
                faults.append(
                    f"columns must be those of {known}, found {unknown}; "
                    f"name a field in fields too."
                )
            faults += [
                f"columns.{name} must be one column, found {columns[name]}."
                for name in ("id", "split", "date")
                if not isinstance(columns.get(name, ""), str)
            ]
            if "split" in columns and self.train_until is not None:
                faults.append("a column of splits leaves nothing to train_until; remove one.")
            if self.train_until is not None and "date" not in columns:
                faults.append("train_until needs a date; name its column in columns.date.")
            if faults:
                raise ValueError("\n".join(faults))
            return self

    card = Card("table", "that of your documents", "yours", "JSON lines or CSV of yours")
    suffixes = (".jsonl", ".json", ".ndjson", ".csv", ".tsv")
    path_options = ("path", "taxonomy")

    def __init__(
        self,
        path: str | None = None,
        fields: Sequence[str] = (),
        columns: Columns | None = None,
        separator: str = ";",
        taxonomy: str | None = None,
        tokenizer: Tokenizer = "regex",
        hierarchy: Hierarchy = "use",
        train_until: DateOption = None,
        valid_until: DateOption = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        self.check_options(
            {
                "path": path,
                "fields": fields,
                "columns": columns,
                "separator": separator,
                "taxonomy": taxonomy,
                "tokenizer": tokenizer,
                "hierarchy": hierarchy,
                "train_until": train_until,
                "valid_until": valid_until,
                "seed": seed,
            }
        )
        self.fields, self.columns = list(fields), dict(columns or {})
        self.separator, self.tokenizer = separator, tokenizer
        rule = SplitRule.from_options(train_until, valid_until, seed)
        extra = {"taxonomy": taxonomy if hierarchy == "use" else None}
        super().__init__(path, extra, rule, **kwargs)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "fields": self.fields,
            "columns": self.columns,
            "separator": self.separator,
            "taxonomy": "taxonomy" in self.extra,
            "tokenizer": self.tokenizer,
            "word_pattern": WORD_PATTERN,
            **self.rule.to_dict(),
        }

    def read(self) -> Corpus:
        return read_table(
            self.files,
            self.fields,
            self.columns,
            self.separator,
            self.extra.get("taxonomy"),
            self.tokenizer,
            self.rule,
            self.track,
            self.faults_mode,
        )


def read_table(
    files: Sequence[Path],
    fields: Sequence[str] = (),
    columns: Columns | None = None,
    separator: str = ";",
    taxonomy: Path | None = None,
    tokenizer: Tokenizer = "regex",
    rule: SplitRule | None = None,
    track: Track | None = None,
    faults: Faults = "refuse",
) -> Corpus:
    """Reads files of JSON lines or CSV; arguments and errors as for `Table`."""
    builder = CorpusBuilder("table", fields, "The files of 'table' must hold documents", faults)
    reader = _Reader(builder, columns or {}, separator, tokenizer, rule or SplitRule())
    edges: list[tuple[str, str, str]] = []
    with open_sources([*files, *([taxonomy] if taxonomy else [])], "table", track) as sources:
        for path in files:
            lines = sources.lines(path)
            delimiter = _DELIMITERS.get(Path(path.name.removesuffix(".gz")).suffix)
            if delimiter is None:
                rows = read_json_lines(lines, path.name, builder.fail)
            else:
                rows = read_csv_rows(lines, path.name, delimiter, builder.fail)
            with builder.documents():
                for place, row in rows:
                    if builder.is_hopeless:
                        break
                    reader.add(row, place, is_csv=delimiter is not None)
        if taxonomy is not None:
            edges = read_taxonomy(sources.lines(taxonomy), taxonomy.name, builder.fail)
    return reader.build(edges)


class _Reader:
    """Reader of rows: adds them to a builder."""

    def __init__(
        self,
        builder: CorpusBuilder,
        columns: Columns,
        separator: str,
        tokenizer: Tokenizer,
        rule: SplitRule,
    ) -> None:
        self.builder, self.separator = builder, separator
        self.tokenizer, self.rule = tokenizer, rule
        named = {name: name for name in ("id", "text", "label", *builder.fields)}
        self.columns = {
            name: [column] if isinstance(column, str) else list(column)
            for name, column in {**named, **columns}.items()
        }
        self.seen: set[str] = set()
        self.num_undated = 0

    def add(self, row: Mapping[str, Any], place: str, is_csv: bool) -> None:
        """Adds one row as a document, or its faults."""
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
            name: self._read_list(row, name, place, is_csv)
            for name in ("label", *self.builder.fields)
        }
        day = self._read_cell(row, "date", place)
        split = self._read_cell(row, "split", place)
        if "split" in self.columns and split.lower() not in SPLIT_NAMES:
            fail(
                f"{place}: '{self.columns['split'][0]}' must be one of {list(SPLIT_NAMES)}, "
                f"found '{split}'."
            )
        if self.builder.num_faults > before or document is None:
            return
        text = " ".join(part for part in parts if part)
        self.num_undated += self.rule.undated(day)
        chosen = SPLIT_NAMES.get(split.lower()) or self.rule.choose(document, text, day)
        labels = values.pop("label")
        words = split_words(text, self.tokenizer)
        self.builder.add(document, chosen, text, words, values, labels, place)

    def _read_list(self, row: Mapping[str, Any], name: str, place: str, is_csv: bool) -> list[str]:
        found: list[str] = []
        for column in self.columns[name]:
            value = row.get(column)
            if is_csv and self.separator and value:
                value = [part.strip(" ") for part in value.split(self.separator)]
            values = read_values(value)
            if values is None:
                self.builder.fail(
                    f"{place}: '{column}' must be a string or a list of strings, "
                    f"found {describe(value)}."
                )
            found += values or []
        return found

    def _read_cell(self, row: Mapping[str, Any], name: str, place: str) -> str:
        """Text of a cell; empty where it is missing or has no column."""
        value = row.get(self.columns[name][0]) if name in self.columns else None
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            self.builder.fail(
                f"{place}: '{self.columns[name][0]}' must be a string, found {describe(value)}."
            )
        return "" if value is None else str(value).strip()

    def build(self, edges: Sequence[tuple[str, str, str]]) -> Corpus:
        """Builds the corpus; a column that no row has is a fault, not an empty column."""
        wanted = {column for columns in self.columns.values() for column in columns}
        absent = sorted(wanted - self.seen)
        if absent and self.seen and not self.builder.faults:
            self.builder.fail(
                f"no document has the columns {absent}, but they have {sorted(self.seen)}; "
                f"say by data.options.columns which is which."
            )
        corpus = self.builder.build(edges)
        corpus.notes["undated_documents_in_train"] = self.num_undated
        return corpus
