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

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

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


def list_faults(summary: str, faults: list[str], limit: int = 20) -> str:
    """One message for all faults: the fault itself if single, else the summary and a list.

    Args:
        summary: Requirement that was broken, without a final full stop.
        faults: Sentences, one per fault, each naming its place.
        limit: Number of faults that are written out; the rest are counted.
    """
    if len(faults) == 1:
        return f"{summary}: {_shorten(faults[0])}"
    lines = [f"{summary}, but {len(faults)} faults were found:"]
    lines += [f"  {_shorten(fault)}" for fault in faults[:limit]]
    if len(faults) > limit:
        lines.append(f"  ... and {len(faults) - limit} more")
    return "\n".join(lines)


def _shorten(fault: str) -> str:
    """Shortens a long fault, keeping both ends: its place, and what to do."""
    if len(fault) <= 2 * _SHOWN:
        return fault
    return (
        f"{fault[:_SHOWN]} ... ({len(fault) - 2 * _SHOWN:,} characters more) ... {fault[-_SHOWN:]}"
    )


def describe_faults(cls: type[BaseModel], error: ValidationError) -> list[str]:
    """Sentences on the faults that pydantic found, each with path and value.

    A ValueError of a validator of the whole model is one fault a line.
    """
    faults = []
    for fault in error.errors():
        path = ".".join(map(str, fault["loc"]))
        if fault["type"] == "extra_forbidden":
            faults.append(f"'{path}' is not a setting; {_suggest(cls, fault['loc'])}.")
        elif not path and "error" in fault.get("ctx", {}):
            faults += str(fault["ctx"]["error"]).splitlines()
        else:
            reason = fault["msg"].removeprefix("Value error, ")
            faults.append(f"'{path}': {reason}, found {shorten(fault['input'])}.")
    return faults


def _suggest(cls: type[BaseModel], path: tuple[int | str, ...]) -> str:
    """Suggestion for an unknown setting: the nearest name, or all names."""
    section: type[BaseModel] | None = cls
    for place in path[:-1]:
        if section is not None and isinstance(place, str) and place in section.model_fields:
            section = _find_section(section.model_fields[place].annotation)
    names = sorted(section.model_fields) if section is not None else []
    prefix = "".join(f"{place}." for place in path[:-1])
    last = str(path[-1])
    if near := get_close_matches(last, names, n=1):
        return f"the nearest is '{prefix}{near[0]}'"
    same = [key for key in _list_keys(cls) if key.rpartition(".")[2] == last]
    if same:
        return f"the nearest is '{same[0]}'"
    return f"choose from {names}"


def _find_section(annotation: Any) -> type[BaseModel] | None:
    """The model in a field's type, also within a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in get_args(annotation) if (found := _find_section(one))), None)


def _list_keys(cls: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted keys of a model and of its sections."""
    for name, field in cls.model_fields.items():
        section = _find_section(field.annotation)
        if section is None:
            yield f"{prefix}{name}"
        else:
            yield from _list_keys(section, f"{prefix}{name}.")


def shorten(value: object) -> str:
    """Representation of a value, at most 200 characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError) as error:  # an integer of 5,000 digits, endless nesting
        return f"what cannot be printed ({type(error).__name__})"
    return text if len(text) <= 200 else f"{text[:200]}..."
