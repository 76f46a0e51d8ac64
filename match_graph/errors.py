"""Exceptions that match-graph raises, and their messages.

Every message is one sentence or a short list: what must hold, what was found and where, what to do.
The command line prints it without a traceback and exits with code 1.

    MatchGraphError
    ├── CorpusError      a data set's files or tables
    ├── GraphError       a graph, a label hierarchy, or arguments that do not fit one
    ├── ConfigError      a configuration file, a `--set`, a name that is not registered
    ├── CheckpointError  a run folder, a checkpoint, saved vectors
    ├── ExportError      an export that cannot be carried out or verified
    └── ProcessError     processes that share a run and cannot meet, or lose each other
"""

import importlib
import shlex
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import reduce
from itertools import groupby
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

#: Faults of a list that are written out; the rest are counted.
_WRITTEN = 20
#: Characters of each end of a fault that is too long to be read.
_SHOWN = 400


class MatchGraphError(Exception):
    """Base class of every error that match-graph raises on purpose."""


class CorpusError(MatchGraphError):
    """A data set's files or tables break the format."""


class GraphError(MatchGraphError):
    """A graph or a label hierarchy breaks the schema, or arguments do not fit it."""


class ConfigError(MatchGraphError):
    """A setting is unknown, has the wrong type or an impossible value."""


class CheckpointError(MatchGraphError):
    """A run folder, checkpoint or vectors file is missing, broken, or of something else."""


class ExportError(MatchGraphError):
    """An export cannot be carried out, or its verification found a difference."""


class ProcessError(MatchGraphError):
    """One of the processes that share a run is missing or lost."""


def import_extra(
    name: str, what: str, extra: str, error: type[MatchGraphError] = ConfigError
) -> Any:
    """Imports a module of a package that an extra of match-graph brings.

    Args:
        name: Dotted name of the module.
        what: What needs it, as the beginning of the sentence.
        extra: Name of the extra.
        error: Class of the error.

    Raises:
        MatchGraphError: It cannot be imported; of the class ``error``.
    """
    try:
        return importlib.import_module(name)
    except ImportError as fault:
        package = name.partition(".")[0]
        raise error(
            f"{what} needs the package {package}, which is not installed; run: "
            f"pip install 'match-graph[{extra}]'"
        ) from fault


def list_faults(summary: str, faults: list[str], more: bool = False) -> str:
    """One message for all faults: the fault itself if single, else the summary and a list.

    Args:
        summary: Requirement that was broken, without a final full stop.
        faults: Sentences, one per fault, each naming its place.
        more: Whether there may be more faults, as reading stopped at these.
    """
    if len(faults) == 1:
        return f"{summary}: {_shorten(faults[0])}"
    number = f"at least {len(faults):,}" if more else f"{len(faults):,}"
    lines = [f"{summary}, but {number} faults were found:"]
    lines += [f"  {_shorten(fault)}" for fault in faults[:_WRITTEN]]
    if len(faults) > _WRITTEN:
        lines.append(f"  ... and {len(faults) - _WRITTEN:,} more")
    return "\n".join(lines)


def _shorten(fault: str) -> str:
    """Shortens a long fault, keeping both ends: its place, and what to do."""
    if len(fault) <= 2 * _SHOWN:
        return fault
    return (
        f"{fault[:_SHOWN]} ... ({len(fault) - 2 * _SHOWN:,} characters more) ... {fault[-_SHOWN:]}"
    )


class Fault(NamedTuple):
    """Fault of a setting.

    Args:
        path: Dotted key; empty for a fault of several settings.
        text: Sentence that says what is wrong, with the key.
    """

    path: str
    text: str


def find_faults(
    cls: type[BaseModel], content: Mapping[str, Any], prefix: str = "", owner: str = ""
) -> list[Fault]:
    """Faults of settings by their model.

    Args:
        cls: Model of the settings.
        content: Keys and values of the settings.
        prefix: What stands before the model's keys, such as ``model.encoder_config.``.
        owner: What the model is of, such as "the encoder 'match'"; empty for the whole.
    """
    try:
        cls.model_validate(content)
    except ValidationError as error:
        return list(_list_faults(cls, error, prefix, owner))
    return []


def describe_faults(cls: type[BaseModel], error: ValidationError) -> list[str]:
    """Sentences on the faults that pydantic found, each with path and value.

    A ValueError of a validator of the whole model is one fault a line.
    """
    return [fault.text for fault in _list_faults(cls, error)]


def _list_faults(
    cls: type[BaseModel], error: ValidationError, prefix: str = "", owner: str = ""
) -> Iterator[Fault]:
    for place, faults in groupby(error.errors(), lambda fault: _find_place(cls, fault["loc"])):
        fault, *others = faults
        path = prefix + ".".join(map(str, place))
        if fault["type"] == "extra_forbidden" and place == fault["loc"]:
            of = f" of {owner}" if owner else ""
            clause = _suggest(cls, fault["loc"], prefix)
            yield Fault(path, f"'{path}' is not a setting{of}; {clause}.")
        elif not fault["loc"] and "error" in fault.get("ctx", {}):
            yield from (Fault("", line) for line in str(fault["ctx"]["error"]).splitlines())
        else:
            text = "; or ".join(_give_reason(one, len(place)) for one in (fault, *others))
            yield Fault(path, f"'{path}': {text}, found {shorten(fault['input'])}.")


def _give_reason(fault: ErrorDetails, depth: int) -> str:
    """Message of an error without pydantic's prefix, named by its key inside a value of a union.

    Args:
        fault: Error of a value, or of a key inside it.
        depth: Length of the value's path.
    """
    inner = ".".join(map(str, fault["loc"][depth + 1 :]))  # after the type that was tried
    is_text = fault["type"] == "sequence_str"
    reason = "Input should be a list" if is_text else fault["msg"].removeprefix("Value error, ")
    return f"'{inner}': {reason}" if inner else reason


def _find_place(cls: type[BaseModel], path: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Path of a value, cut before the name of a type that pydantic tried of several."""
    found: Any = cls
    for number, key in enumerate(path):
        if get_origin(found) in (Union, UnionType):
            return path[:number]
        found = _enter(found, key)
    return path


def _suggest(cls: type[BaseModel], path: tuple[int | str, ...], prefix: str) -> str:
    """Clause on an unknown setting: the nearest name, or all names."""
    section: Any = reduce(_enter, path[:-1], cls)
    names = sorted(section.model_fields) if _is_model(section) else []
    above, last = prefix + "".join(f"{place}." for place in path[:-1]), str(path[-1])
    if near := find_nearest(last, names):
        return f"the nearest is '{above}{near}'"
    same = [key for key, _ in list_fields(cls) if key.rpartition(".")[2] == last]
    if same:
        return f"the nearest is '{prefix}{same[0]}'"
    return f"choose from {names}" if names else "there are none"


def find_nearest(name: str, names: Iterable[str]) -> str | None:
    """The nearest of some names to one that is wrong: alike, or holding it; None if none is."""
    known = {one.lower(): one for one in names}
    near = get_close_matches(name.lower(), known, n=1)
    if not near and len(name) > 3:
        near = [one for one in known if name.lower() in one]
    return known[near[0]] if near else None


def suggest(name: str, names: Iterable[str], otherwise: str = "check the name") -> str:
    """Clause at the end of a message on a wrong name: the nearest one, else what to do."""
    near = find_nearest(name, names)
    return otherwise if near is None else f"the nearest is '{near}'"


def list_fields(cls: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Dotted keys of a model and of those inside it, with their fields.

    A key that the user chooses is TYPE, the place in a list N.
    """
    for name, field in cls.model_fields.items():
        if _is_model(field.annotation):
            yield from list_fields(field.annotation, f"{prefix}{name}.")
            continue
        yield f"{prefix}{name}", field
        place = "TYPE" if get_origin(field.annotation) is dict else "N"
        for inner in get_args(field.annotation):
            if _is_model(inner):
                yield from list_fields(inner, f"{prefix}{name}.{place}.")


def _enter(annotation: Any, key: int | str) -> Any:
    """Type of a model's field, or of what a list or mapping holds; None where it is unknown."""
    if _is_model(annotation):
        field = annotation.model_fields.get(str(key))
        found = None if field is None else field.annotation
    else:
        found = next(reversed(get_args(annotation)), None)
    if get_origin(found) not in (Union, UnionType):
        return found
    kinds = [kind for kind in get_args(found) if kind is not NoneType]
    return kinds[0] if len(kinds) == 1 else found


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def format_command(*words: object) -> str:
    """A command of match-graph with its arguments quoted for a shell."""
    return shlex.join(["match-graph", *map(str, words)])


def shorten(value: object) -> str:
    """Representation of a value, at most 200 characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError) as error:  # an integer of 5,000 digits, endless nesting
        return f"what cannot be printed ({type(error).__name__})"
    return text if len(text) <= 200 else f"{text[:200]}..."
