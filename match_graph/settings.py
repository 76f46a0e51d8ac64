"""Descriptions of settings: keys, types, defaults, meanings."""

import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from match_graph.errors import list_fields
from match_graph.io.yaml import dump_yaml

#: Bounds of numbers as pydantic names them.
_BOUNDS = {"ge": "≥ ", "gt": "> ", "le": "≤ ", "lt": "< "}


@dataclass(frozen=True)
class Setting:
    """One key of a schema.

    Args:
        key: Dotted key; TYPE stands for a node type.
        type: Type in words, with its bounds.
        default: Default as YAML.
        meaning: Description.
        choices: Allowed values of a ``Literal``; empty for other types.
    """

    key: str
    type: str
    default: str
    meaning: str
    choices: Sequence[str]

    @property
    def about(self) -> str:
        """Meaning with the choices."""
        return f"{self.meaning} ({' | '.join(self.choices)})" if self.choices else self.meaning


def list_settings(schema: type[BaseModel], prefix: str = "") -> list[Setting]:
    """All keys of a schema and of its sections."""
    return [_describe_setting(key, field) for key, field in list_fields(schema, prefix)]


def _describe_setting(key: str, field: FieldInfo) -> Setting:
    parts = [field.annotation, *get_args(field.annotation)]
    choices = [str(one) for part in parts if get_origin(part) is Literal for one in get_args(part)]
    bounds = [
        f"{sign}{value:,}"
        for part in field.metadata
        for bound, sign in _BOUNDS.items()
        if (value := getattr(part, bound, None)) is not None
    ]
    default = "required" if field.is_required() else field.get_default(call_default_factory=True)
    kind = ", ".join([_describe_type(field.annotation), *bounds])
    return Setting(key, kind, write_value(default), field.description or "", choices)


def _describe_type(annotation: Any) -> str:
    """A type in words: the values of a ``Literal``, "or null" for an optional value."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _describe_type(inner[0])
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin in (Union, types.UnionType):
        return " or ".join(map(_describe_type, inner))
    if origin is list:
        return f"list of {_describe_type(inner[0])}"
    if origin is dict:
        return "mapping"
    return "null" if annotation is type(None) else str(annotation.__name__)


def write_value(value: Any) -> str:
    """A value as YAML, in one line."""
    text = dump_yaml(value, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")
