"""Rows of CSV with the line on which each starts."""

import csv

import pytest

from match_graph.errors import CorpusError
from match_graph.io.csv_lines import read_csv_rows


def read(content: bytes, delimiter: str = ",") -> list[tuple[str, dict[str, str]]]:
    lines = content.splitlines(keepends=True)
    return [*read_csv_rows(lines, "t.csv", delimiter, pytest.fail, pytest.fail)]


def read_faults(content: bytes, of_file: bool = False) -> list[str]:
    """Faults of rows and of the file; a row with a fault must not be yielded."""
    of_rows: list[str] = []
    of_files: list[str] = []
    lines = content.split(b"\n")
    rows = [*read_csv_rows(lines, "t.csv", ",", of_rows.append, of_files.append)]
    assert rows == []
    assert not (of_rows if of_file else of_files)
    return of_files if of_file else of_rows


def test_read_csv_rows_cells_by_column_with_first_line_of_row() -> None:
    """Quotes, line breaks within a cell, a BOM and blank lines are read."""
    content = b'\xef\xbb\xbfid,text\r\n\r\n1,"a ""quoted""\n\nword, here"\n2,\xc3\xa9\n'
    assert read(content) == [
        ("t.csv:3", {"id": "1", "text": 'a "quoted"\n\nword, here'}),
        ("t.csv:6", {"id": "2", "text": "é"}),
    ]
    assert read(b"a\tb\n1\t2\n", "\t") == [("t.csv:2", {"a": "1", "b": "2"})]
    assert read(b"") == read(b"a,b\n") == []


def test_read_csv_rows_cell_may_exceed_default_limit() -> None:
    """A cell of a million characters is read."""
    long = "x" * (csv.field_size_limit() + 1 if csv.field_size_limit() < 1 << 20 else 1 << 20)
    assert read(f"id\n{long}\n".encode()) == [("t.csv:2", {"id": long})]


def test_read_csv_rows_faults_name_their_rows() -> None:
    """A row with too few cells or a wrong encoding is named; the other rows are read."""
    assert read_faults(b"id,text\n1\n2,caf\xe9\n3,x,y\n") == [
        "t.csv:2: a row must have the 2 cells of the header, found 1; quote cells that hold the "
        "delimiter.",
        "t.csv:3: the file must be UTF-8, but byte 5 of the line is 0xe9; convert the file.",
        "t.csv:4: a row must have the 2 cells of the header, found 3; quote cells that hold the "
        "delimiter.",
    ]


def test_read_csv_rows_header_in_another_encoding() -> None:
    """A header in another encoding is refused, as its columns would have wrong names."""
    of_rows: list[str] = []
    of_files: list[str] = []
    lines = [b"id,caf\xe9\n", b"1,x\n"]
    assert not [*read_csv_rows(lines, "t.csv", ",", of_rows.append, of_files.append)]
    assert of_rows == []
    assert of_files == [
        "t.csv:1: the file must be UTF-8, but byte 6 of the line is 0xe9; convert the file."
    ]


def test_read_csv_rows_unclosed_quote_is_named_by_its_row() -> None:
    """An unclosed quote is named by the row that opens it; the rest is not read."""
    assert read_faults(b'id,text\n1,"open\n2,x\n', of_file=True) == [
        "t.csv:2: a row must be CSV, but it is not (unexpected end of data); mend its quotes."
    ]
    assert read_faults(b'id,text\n1,"a"b\n', of_file=True) == [
        "t.csv:2: a row must be CSV, but it is not (',' expected after '\"'); mend its quotes."
    ]


def test_read_csv_rows_duplicate_columns_are_refused() -> None:
    """Duplicate columns are refused, as the second would hide the first."""
    assert read_faults(b"id,x,x\n1,2,3\n", of_file=True) == [
        "t.csv:1: the columns must have names of their own, but ['x'] repeat."
    ]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_read_csv_rows_other_delimiters_are_told_once(delimiter: str) -> None:
    """A header of one cell with another delimiter is one fault; a single column is read."""
    content = delimiter.join(("id", "text")) + "\n1" + delimiter + "a\n2" + delimiter + "b\n"
    assert read_faults(content.encode(), of_file=True) == [
        f"t.csv:1: the columns must be parted by ',', but the header is one cell that holds "
        f"{delimiter!r}; save the file with ',' between them."
    ]
    assert read(b"id\n1\n") == [("t.csv:2", {"id": "1"})]


def test_read_csv_rows_row_past_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of a row is bounded, that of an unclosed quote and of many lines, too."""
    monkeypatch.setenv("MATCH_GRAPH_MAX_RECORD_MIB", "1")
    for cell in (b"x\n", b'x\n","'):
        lines = [b"a,b\n", b"1,2\n", b'1,"', *[cell] * (1 << 20)]
        with pytest.raises(CorpusError) as caught:
            list(read_csv_rows(iter(lines), "t.csv", ",", pytest.fail, pytest.fail))
        assert str(caught.value) == (
            "t.csv:3: a row must have at most 1 MiB, but this one has more; mend the file, or set "
            "MATCH_GRAPH_MAX_RECORD_MIB."
        )
