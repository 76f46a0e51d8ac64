"""YAML of users: what goes beyond the limits is one sentence, and quick."""

import os
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.errors import ConfigError
from match_graph.io.yaml import MAX_BYTES, dump_yaml, parse_yaml, read_yaml

LAUGHS = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40)
)


def test_parse_yaml_gives_plain_values() -> None:
    """Aliases and merges of usual size are read; a date is text."""
    text = "base: &b {x: 1, y: 0.5}\nmine: {<<: *b, y: 2}\nday: 2024-02-30\nlist: [*b, yes, ~]\n"
    base = {"x": 1, "y": 0.5}
    assert parse_yaml(text) == {
        "base": base, "mine": {"x": 1, "y": 2}, "day": "2024-02-30", "list": [base, True, None],
    }  # fmt: skip
    assert parse_yaml("") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LAUGHS, "more than 100,000 keys and values, aliases written out, line 9"),
        (MERGES, "more than 100,000 keys and values, aliases written out, line 9"),
        ("a: &a [1, *a]", "an alias stands within what it names, line 1"),
        ("a: 1\nb: 2\n'a': 3\n", "the key 'a' is given twice, first in line 1, line 3"),
        ("x: {a: 1, a: 2}", "the key 'a' is given twice, first in line 1, line 1"),
        ("[" * 300_000, "more than 50 levels of nesting, line 1"),
        ("- " * 60 + "1", "more than 50 levels of nesting, line 1"),
        ("a: " + "9" * 5000, "an integer must have at most 64 bits, line 1"),
        ("a: 9223372036854775808", "an integer must have at most 64 bits, line 1"),
        ("a: 0x" + "f" * 50, "an integer must have at most 64 bits, line 1"),
        ("a: .inf", "a number must be finite, found .inf, line 1"),
        ("a: -.nan\nb: .nan", "a number must be finite, found .nan, line 2"),
        ("a: 1.0e+999", "a number must be finite, found 1.0e+999, line 1"),
        ("a: !!timestamp 2024-02-30", "a value does not fit its tag: day is out of range"),
        ("a: !!bool perhaps", "a value does not fit its tag: 'perhaps'"),
        ("a: !!int ''", "a value does not fit its tag: string index out of range"),
        ("a: !!float x", "a value does not fit its tag: could not convert string to float: 'x'"),
        ("a: !!python/name:os.system x", "could not determine a constructor for the tag"),
        ("{[1]: 2}", "found unhashable key, line 1"),
        ("a: [1\n", "expected ',' or ']', but got '<stream end>', line 2"),
        ("a: 1\n---\nb: 2\n", "but found another document, line 2"),
        ("a: \x1b[2J", "unacceptable character #x001b: special characters are not allowed in"),
    ],
)  # fmt: skip
def test_parse_yaml_refuses(text: str, reason: str) -> None:
    """Each kind of fault is refused with its reason and line."""
    with pytest.raises(ValueError) as caught:
        parse_yaml(text)
    assert str(caught.value).startswith(reason)


def test_parse_yaml_reads_numbers_with_exponents() -> None:
    """1e-3 is a number, as in YAML 1.2; similar text stays text."""
    assert parse_yaml("[1e-3, -2E+5, 3.e2, 1.5e3]") == [0.001, -200000.0, 300.0, 1500.0]
    assert parse_yaml("[1e, e3, 1e-3x, '1e-3']") == ["1e", "e3", "1e-3x", "1e-3"]
    with pytest.raises(ValueError, match="a number must be finite, found 1e999"):
        parse_yaml("1e999")


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(string.printable)
    | st.floats(allow_nan=False, allow_infinity=False) | st.from_regex(r"[-+]?\d{1,3}e[-+]?\d\Z"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ae1-.", min_size=1), inner),
))  # fmt: skip
def test_dump_yaml_is_read_back(value: object) -> None:
    """Text that looks like a number stays text."""
    assert parse_yaml(dump_yaml(value)) == value


def test_read_yaml_names_the_file(tmp_path: Path) -> None:
    """A file that is too large, malformed, a pipe or a folder is named."""
    path = tmp_path / "c.yaml"

    def message(where: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            read_yaml(where, "A configuration")
        return str(caught.value)

    path.write_text("seed: 1\nseed: 2\n")
    assert message(path) == (
        f"A configuration must be a readable YAML file, but '{path}' is not (the key 'seed' is "
        f"given twice, first in line 1, line 2); check the path and the syntax."
    )
    path.write_text("#" * (MAX_BYTES + 1))
    assert f"'{path}' is not (it is larger than 1,048,576 bytes); check" in message(path)
    path.write_bytes(b"a: \xff\n")
    assert f"'{path}' is not ('utf-8' codec can't decode byte 0xff" in message(path)
    os.mkfifo(tmp_path / "pipe")
    assert f"'{tmp_path / 'pipe'}' is not (it is not a file); check" in message(tmp_path / "pipe")
    assert f"'{tmp_path}' is not (it is not a file); check" in message(tmp_path)
    assert "No such file or directory" in message(tmp_path / "none.yaml")
