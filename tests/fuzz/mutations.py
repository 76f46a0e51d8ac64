"""Changes of files: bytes, lines, values of JSON and YAML, and the file itself."""

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

#: Bytes that have broken readers.
PIECES: tuple[bytes, ...] = (
    b'"', b"\\", b"[", b"}", b"null", b"1e999", b"NaN", b"\n", b"\r", b"\t", b"\x00", b"\xff",
    b"\xef\xbb\xbf", b"&#0;", b"<", b"&x;", b"\\ud800", b",", b";", b'{"a": []}', b"9" * 5000,
    b"[" * 20_000, b'{"a":' * 20_000, b"<a>" * 20_000, b"- " * 5000, b"\x1b]0;x\x07\x9b31m",
    b"{a,b}" * 25, b"\n" * 100_000, b"../" * 8, b"=1+1", b"0" * 3000, b"-1", b"a" * 200_000,
)  # fmt: skip
#: Values as JSON text, which is YAML text too, for a value in its place.
VALUES: tuple[str, ...] = (
    "null", "true", "-1", "0", "1e308", "-1e308", "1e999", "NaN",
    "9223372036854775808", "4294967296",
    "-9223372036854775809", "9" * 5000, '""', '" "', '"\\u0000"', '"\\u001b]0;x\\u0007"',
    '"\\ud800"', '"../../x"', '"/dev/zero"', '"=1+1"', "[]", "{}", '{"a": 1}', "[[]]", "[null]",
    "[1, 2]", "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000, '"' + "x" * 100_000 + '"',
    "0.5", "2", "1000000000", '"evil:Evil"', '"type"', '"items"', '"x_"', '"text"', '"paper"',
    '"2021-13-45"', '"NaN"', "[0, 0]", "100000",
)  # fmt: skip
#: What may stand in place of a file.
PLACES: tuple[str, ...] = ("nothing", "empty", "folder", "loop", "fifo", "blanks")


@dataclass(frozen=True)
class Change:
    """One change of one file.

    Args:
        file: Which of the files, as a share of their number.
        how: The kind of change.
        start: Where, as a share of the length, or of the number of values.
        size: How much is taken away, in bytes.
        piece: What is put in.
    """

    file: float
    how: str
    start: float
    size: int
    piece: bytes

    def __repr__(self) -> str:
        """Short, as Hypothesis warns of long ones, and a piece can be of 100 kB."""
        end = "" if len(self.piece) <= 100 else f"... ({len(self.piece)} bytes)"
        values = f"{self.file!r}, {self.how!r}, {self.start!r}, {self.size!r}"
        return f"Change({values}, {self.piece[:100]!r}{end})"

    def apply(self, files: list[Path]) -> Path:
        """Changes one of the files; which."""
        path = files[min(int(self.file * len(files)), len(files) - 1)]
        if self.how in PLACES:
            _replace_file(path, self.how)
        elif self.how == "value":
            _change_value(path, self.start, self.piece.decode())
        else:
            path.write_bytes(_pack(path, self._change_bytes(_unpack(path))))
        return path

    def _change_bytes(self, content: bytes) -> bytes:
        start = int(self.start * len(content))
        stop = start + self.size
        match self.how:
            case "flip":
                bit = 1 << (self.size % 8)
                return (
                    content[:start]
                    + bytes(b ^ bit for b in content[start : start + 1])
                    + (content[start + 1 :])
                )
            case "cut":
                return content[:start] + content[stop:]
            case "end":
                return content[:start]
            case "twice":
                lines = content.splitlines(keepends=True)
                number = min(int(self.start * len(lines)), len(lines) - 1)
                return b"".join([*lines[: number + 1], *lines[max(number, 0) :]])
            case _:
                return content[:start] + self.piece + content[stop:]


def changes() -> st.SearchStrategy[list[Change]]:
    """One change or two."""
    share = st.floats(0, 1, allow_nan=False, width=32)
    size = st.sampled_from([0, 1, 2, 8, 100, 5000])
    piece = st.sampled_from(PIECES) | st.binary(max_size=12)
    of_bytes = st.builds(
        Change, share, st.sampled_from(["flip", "cut", "end", "twice", "put"]), share, size, piece
    )
    value = st.sampled_from(VALUES).map(str.encode)
    of_values = st.builds(Change, share, st.just("value"), share, size, value)
    of_files = st.builds(Change, share, st.sampled_from(PLACES), share, size, st.just(b""))
    one = st.one_of(of_bytes, of_values, of_bytes, of_values, of_files)
    return st.lists(one, min_size=1, max_size=2)


def _replace_file(path: Path, how: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    match how:
        case "empty":
            path.touch()
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path.name)
        case "fifo":
            os.mkfifo(path)
        case "blanks":
            path.write_bytes(_pack(path, b"\n" * 20_000_000))


def _change_value(path: Path, start: float, value: str) -> None:
    """Puts a value into the place of another of a JSON file, a line of JSON, or a YAML file."""
    content = _unpack(path)
    lines = content.splitlines(keepends=True) or [b""]
    number = min(int(start * len(lines)), len(lines) - 1)
    for parts, index in (([content], 0), (lines, number)):
        try:
            tree = json.loads(parts[index])
        except ValueError:
            try:
                tree = yaml.safe_load(parts[index]) if path.suffix in (".yaml", ".yml") else None
            except (yaml.YAMLError, ValueError):  # an integer of 5,000 digits
                tree = None
        except RecursionError:
            return
        if isinstance(tree, dict | list) and tree:
            parts[index] = (_put(tree, start, value) + "\n").encode("utf-8", errors="replace")
            path.write_bytes(_pack(path, b"".join(parts)))
            return
    cut = int(start * len(content))
    path.write_bytes(_pack(path, content[:cut] + value.encode() + content[cut:]))


def _put(tree: Any, start: float, value: str) -> str:
    places = [*_places(tree)]
    holder, key = places[min(int(start * len(places) * 7.3) % len(places), len(places) - 1)]
    holder[key] = "@HERE@"
    return json.dumps(tree).replace('"@HERE@"', value)


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in [*items]:
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _unpack(path: Path) -> bytes:
    if not path.is_file():
        return b""
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            return gzip.decompress(content)
        except (OSError, EOFError, gzip.zlib.error):
            return content
    return content


def _pack(path: Path, content: bytes) -> bytes:
    if path.is_dir():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()
    return gzip.compress(content, 1) if path.suffix == ".gz" else content
