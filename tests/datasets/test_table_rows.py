"""Parts of a document from the columns of a row, and options of tables."""

import pytest

from match_graph.config import parse_settings
from match_graph.datasets.table_rows import RowReader, TableConfig
from match_graph.errors import ConfigError

COLUMNS = {"id": "key", "text": ["title", "body"], "author": ["first", "others"], "date": "day"}
CONFIG = TableConfig(fields=["author"], columns=COLUMNS)


def test_RowReader_reads_each_part_from_its_columns() -> None:
    """Several columns make one text or field; missing values are empty."""
    faults: list[str] = []
    reader = RowReader(CONFIG.make_layout(), ["author"], faults.append)
    row = {"key": 7, "title": "A", "body": "b c", "first": "Bo", "others": "Li; Å; ", "day": 2015.0}
    assert reader.read_id(row, "1") == "7"
    assert reader.read_text(row, "1") == "A b c"
    assert reader.read_text({"title": None, "body": "b"}, "1") == "b"
    assert reader.read_list(row, "author", "1") == ["Bo", "Li; Å; "]
    assert reader.read_list(row, "author", "1", ";") == ["Bo", "Li", "Å"]
    assert reader.read_list({"label": ["x", 5]}, "label", "1") == ["x", "5"]
    assert reader.read_day(row, "1") == "2015"
    assert reader.read_day({}, "1") == ""
    assert faults == []


def test_RowReader_names_the_column_of_a_fault() -> None:
    """A fault of each part is one sentence with its column."""
    faults: list[str] = []
    reader = RowReader(CONFIG.make_layout(), ["author"], faults.append)
    row = {"title": 5, "others": {"a": 1}, "day": "May"}
    assert reader.read_id(row, "f:1") is None
    reader.read_text(row, "f:1")
    reader.read_list(row, "author", "f:1")
    reader.read_day(row, "f:1")
    reader.read_day({"day": ["May"]}, "f:2")
    assert faults == [
        "f:1: 'key' must be the document's id, found nothing.",
        "f:1: 'title' must be a string, found the number 5.",
        "f:1: 'others' must be a string or a list of strings, found the object {\"a\": 1}.",
        "f:1: 'day' must be a year, a month or a day, such as 2015, 2015-06 or 2015-06-30, found "
        "'May'.",
        "f:2: 'day' must be a string, found the list [\"May\"].",
    ]


def test_TableConfig_columns_are_of_known_parts() -> None:
    """A column of a field needs the field."""
    with pytest.raises(ConfigError) as caught:
        parse_settings(TableConfig, {"columns": {"author": "who"}}, "Options must be valid")
    assert str(caught.value) == (
        "Options must be valid: columns must be those of ['id', 'text', 'label', 'split', 'date'], "
        "found ['author']; name a field in fields too."
    )
