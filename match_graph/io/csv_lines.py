"""CSV files with a header as rows, each with the line on which it starts."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from match_graph.io.json_lines import Fail, decode_line
from match_graph.io.source import max_record_bytes, too_long

#: Characters that are used as delimiters.
_DELIMITERS = ";\t,|"


def find_delimiter(path: Path) -> str | None:
    """Delimiter of a file of CSV, packed or not, by its suffix; None for other files."""
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    return {".csv": ",", ".tsv": "\t"}.get(suffix)


def split_cell(value: str, separator: str) -> list[str]:
    """Values of a cell, without blanks around the separator."""
    return [part.strip(" ") for part in value.split(separator)]


def read_csv_rows(
    lines: Iterable[bytes], name: str, delimiter: str, fail: Fail, fail_file: Fail
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name:line, cells by column) per row; of a row of several lines the first is named.

    Faulty rows are left out.

    Args:
        lines: Lines of the CSV file; the first row is the header.
        name: Name of the file, for places.
        delimiter: Delimiter between cells.
        fail: Callback that takes the faults of rows.
        fail_file: Callback that takes a fault after which the rest of the file is not read.
    """
    csv.field_size_limit(max_record_bytes())  # the module's default is shorter than many texts
    row_start = [1]  # the line on which the row starts that is being read
    broken = [0]  # the last line that was not UTF-8
    header: list[str] = []

    def fail_line(fault: str) -> None:
        (fail if header else fail_file)(fault)

    decoded = _decode(lines, name, fail_line, row_start, broken)
    reader = csv.reader(decoded, delimiter=delimiter, strict=True)
    while True:
        row_start[0] = reader.line_num + 1
        place = f"{name}:{row_start[0]}"
        try:
            row = next(reader, None)
        except csv.Error as error:
            fail_file(f"{place}: a row must be CSV, but it is not ({error}); mend its quotes.")
            return
        if row is None:
            return
        if not header:
            header = row
            if broken[0]:
                return
            if fault := _check_header(header, delimiter):
                fail_file(f"{place}: {fault}")
                return
        elif row and len(row) != len(header):
            fail(
                f"{place}: a row must have the {len(header)} cells of the header, found "
                f"{len(row)}; quote cells that hold the delimiter."
            )
        elif row and broken[0] < row_start[0]:
            yield place, dict(zip(header, row, strict=True))


def _check_header(header: list[str], delimiter: str) -> str:
    """Fault of a CSV header: another delimiter, or repeated columns; "" without one."""
    others = [one for one in _DELIMITERS if len(header) == 1 and one in header[0]]
    if others:
        return (
            f"the columns must be parted by {delimiter!r}, but the header is one cell that holds "
            f"{others[0]!r}; save the file with {delimiter!r} between them."
        )
    if repeated := sorted({column for column in header if header.count(column) > 1}):
        return f"the columns must have names of their own, but {repeated} repeat."
    return ""


def _decode(
    lines: Iterable[bytes], name: str, fail: Fail, row_start: Sequence[int], broken: list[int]
) -> Iterator[str]:
    """Lines decoded to text; blank ones stay, as a cell may hold them. Row length is bounded."""
    size, most = 0, max_record_bytes()
    for number, line in enumerate(lines, start=1):
        size = len(line) if number == row_start[0] else size + len(line)
        if size > most:
            raise too_long(f"{name}:{row_start[0]}", "a row")
        text = decode_line(line, f"{name}:{number}", fail)
        if text is None:
            text = line.decode("utf-8", "replace")  # keeps the quotes balanced
            broken[0] = number
        yield text.removeprefix("\ufeff") if number == 1 else text
