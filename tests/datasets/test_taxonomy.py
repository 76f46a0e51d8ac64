"""A label hierarchy as lines."""

import pytest

from match_graph.datasets.taxonomy import read_taxonomy


def test_read_taxonomy_lines_split_by_tab_or_else_by_white_space() -> None:
    """Labels may hold blanks between tabs; lines without children give no edge."""
    lines = [b"all\tdeep learning\tbiology\n", b"\n", b"a b  c\r\n", b"alone\n", b"x\t\n"]
    assert read_taxonomy(lines, "t.txt", pytest.fail) == [
        ("deep learning", "all", "t.txt:1"),
        ("biology", "all", "t.txt:1"),
        ("b", "a", "t.txt:3"),
        ("c", "a", "t.txt:3"),
    ]


def test_read_taxonomy_other_encodings_are_faults() -> None:
    """With file:line."""
    faults: list[str] = []
    assert read_taxonomy([b"a caf\xe9\n"], "t.txt", faults.append) == []
    assert faults == [
        "t.txt:1: the file must be UTF-8, but byte 5 of the line is 0xe9; convert the file."
    ]
