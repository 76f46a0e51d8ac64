"""JSON lines and files, and the fields of a document's JSON object; faults are noted by line."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

#: Notes a fault, a sentence that starts with its place; it may raise.
Fail: TypeAlias = Callable[[str], None]
#: Bound of the values that float32 represents; integers of any size are compared with it exactly.
_LARGEST = 3.4e38


def decode_line(line: bytes, place: str, fail: Fail) -> str | None:
    """A line as text; None where it is not UTF-8, which is a fault."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        fail(
            f"{place}: the file must be UTF-8, but byte {error.start} of the line is "
            f"0x{line[error.start]:02x}; convert the file."
        )
        return None


def read_lines(
    lines: Iterable[bytes], name: str, fail: Fail, first: int = 1
) -> Iterator[tuple[str, str]]:
    """(name:line, text) per line that is not blank, from line ``first``; not UTF-8 is a fault."""
    for number, line in enumerate(lines, start=first):
        place = f"{name}:{number}"
        text = decode_line(line, place, fail) or ""
        text = text.removeprefix("\ufeff") if number == 1 else text
        if text.strip():
            yield place, text


def read_json_lines(
    lines: Iterable[bytes], name: str, fail: Fail, first: int = 1
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name:line, object) per line that holds a JSON object; other lines are faults."""
    for place, line in read_lines(lines, name, fail, first):
        try:
            record = _parse_json(line)
        except ValueError as error:
            fail(
                f"{place}: a line must be one JSON object, but it breaks off or is malformed "
                f"({error}); mend or remove the line."
            )
            continue
        if not isinstance(record, dict):
            fail(
                f"{place}: a line must be one JSON object, found {describe(record)}; "
                f"write one document a line."
            )
            continue
        yield place, record


def read_json_object(content: bytes, name: str, fail: Fail) -> dict[str, Any] | None:
    """The JSON object of a whole file; None where it holds none, which is a fault."""
    try:
        record = _parse_json(content.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        fail(
            f"{name}:{line}: the file must be UTF-8, but it has the byte "
            f"0x{content[error.start]:02x}; convert the file."
        )
        return None
    except ValueError as error:
        cause = error.__cause__
        line = cause.lineno if isinstance(cause, json.JSONDecodeError) else 1
        fail(
            f"{name}:{line}: a file must be one JSON object, but it breaks off or is malformed "
            f"({error}); fetch the file again."
        )
        return None
    if not isinstance(record, dict):
        fail(f"{name}:1: a file must be one JSON object, found {describe(record)}.")
        return None
    return record


def _parse_json(line: str) -> Any:
    """Parses the JSON value of a line or file; ValueError says why it cannot be read or stored."""
    try:
        value = json.loads(line.rstrip())
        if "\\ud" in line.lower():  # json accepts a lone surrogate, UTF-8 and Parquet do not
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg}, column {error.colno}") from error
    except UnicodeEncodeError as error:
        raise ValueError("half a surrogate pair, which no text can hold") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except ValueError as error:  # Python's limit for the digits of an integer
        raise ValueError("a number with too many digits") from error
    return value


def read_id(record: Mapping[str, Any], place: str, fail: Fail, required: bool = True) -> str | None:
    """The document's id, a number as text; None where it is wrong, or missing and not required."""
    given = record.get("paper")
    document = as_id(given)
    if document is None and (required or given not in (None, "")):
        fail(f"{place}: 'paper' must be the document's id, found {describe(given)}.")
    return document


def as_id(value: Any) -> str | None:
    """A document's id, a number as text; None for what is no id."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def read_text(record: Mapping[str, Any], place: str, fail: Fail) -> str | None:
    """The document's text, also empty; None where it is wrong or missing."""
    text = record.get("text")
    if isinstance(text, str):
        return text
    remedy = '; give "" where there is none' if text is None else ""
    fail(f"{place}: 'text' must be a string, found {describe(text)}{remedy}.")
    return None


def read_labels(record: Mapping[str, Any], place: str, fail: Fail) -> list[str] | None:
    """The document's gold labels that are not empty; None where they are wrong or missing."""
    labels = record.get("label")
    if isinstance(labels, list) and all(isinstance(label, str) for label in labels):
        return [label for label in labels if label]
    fail(
        f"{place}: 'label' must be a list of strings, found {describe(labels)}; "
        f"write [] for a document without labels."
    )
    return None


def read_time(record: Mapping[str, Any], place: str, fail: Fail) -> float | None:
    """The document's time, a finite number; None where it is wrong or missing."""
    time = record.get("time")
    if isinstance(time, int | float) and not isinstance(time, bool) and abs(time) < 2**63:
        return time
    if time is not None:
        fail(f"{place}: 'time' must be a number, found {describe(time)}.")
    return None


def read_vector(
    record: Mapping[str, Any], width: int, place: str, fail: Fail
) -> list[float] | None:
    """The document's features ``x``, ``width`` finite numbers; None where wrong or missing."""
    x = record.get("x")
    if x is None:
        return None
    if hasattr(x, "tolist"):  # an array or a tensor
        try:
            x = x.tolist()
        except RuntimeError:  # a sparse tensor
            fail(f"{place}: 'x' must be a list of {width} numbers, found a {type(x).__name__}.")
            return None
    if not isinstance(x, Sequence) or isinstance(x, str) or len(x) != width:
        found = describe(x) if isinstance(x, str) or not isinstance(x, Sequence) else len(x)
        fail(f"{place}: 'x' must be a list of {width} numbers, found {found}.")
        return None
    numbers = []
    for value in x:
        is_scalar = not isinstance(value, int | float) and getattr(value, "ndim", None) == 0
        number = value.item() if is_scalar else value  # of NumPy or torch
        if (
            not isinstance(number, int | float)
            or isinstance(number, bool)
            or (not abs(number) <= _LARGEST)
        ):
            fail(f"{place}: 'x' must hold finite numbers of 32 bits, found {describe(value)}.")
            return None
        numbers.append(float(number))
    return numbers


def read_metadata(
    record: Mapping[str, Any], fields: Sequence[str], place: str, fail: Fail
) -> dict[str, list[str]]:
    """The instances of each metadata field: an empty list where missing, no key where malformed."""
    metadata = {}
    for name in fields:
        values = read_values(record.get(name))
        if values is None:
            fail(
                f"{place}: '{name}' must be a string or a list of strings, "
                f"found {describe(record[name])}."
            )
        else:
            metadata[name] = values
    return metadata


def read_values(value: Any) -> list[str] | None:
    """The instances of a metadata field: an empty list if missing, None if of the wrong type.

    Whole numbers are read as their digits, 2005.0 as 2005.
    """
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(map(_is_value, values)):
        values = [*map(as_whole, values)]
        if not all(map(_is_value, values)):
            return None
    return [str(item) for item in values if item != ""]


def as_whole(value: Any) -> Any:
    """An integer for a float without a fraction, 2005 for 2005.0; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_value(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def describe(value: Any) -> str:
    """A value for a message: its type, and at most 60 characters of it."""
    if value is None:
        return "nothing"
    names = {str: "string", list: "list", dict: "object", bool: "truth value"}
    names |= {int: "number", float: "number"}
    kind = names.get(type(value), type(value).__name__)
    try:
        shown = json.dumps(value, ensure_ascii=False) if type(value) in names else repr(value)
    except RecursionError:  # nested as deeply as the parser allows
        shown = "of many levels"
    except (TypeError, ValueError):  # a value that JSON lacks, or a cyclic one
        shown = repr(value)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    return f"the {kind} {shown}"
