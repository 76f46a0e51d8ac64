"""Untrusted YAML: plain values only, limits on size and nesting, no duplicate keys."""

import re
from collections.abc import Hashable, Iterable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from match_graph.errors import ConfigError, shorten

#: Size of the largest file that is read, in bytes; the settings of a run take about 3,000.
MAX_BYTES = 2**20
#: Largest number of keys and values, aliases expanded.
MAX_NODES = 100_000
#: Largest depth of nesting.
MAX_DEPTH = 50
_INT64 = range(-(2**63), 2**63)
#: Numbers such as 1e-3, a float in YAML 1.2, which PyYAML (YAML 1.1) reads as text.
_EXPONENT = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+$")


def read_yaml(path: Path, what: str) -> Any:
    """The content of a YAML file; None if it is empty.

    Args:
        path: Path of the YAML file.
        what: Description of the file, for the message, at the start of a sentence.

    Raises:
        ConfigError: It is missing, too large, not UTF-8, not YAML, or has a duplicate key.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is not a file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES:,} bytes")
        return parse_yaml(content.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{what} must be a readable YAML file, but '{path}' is not ({error}); check the path "
            f"and the syntax."
        ) from error


def read_mapping(path: Path, what: str, version: int, example: str) -> dict[str, Any]:
    """Keys and values of a YAML file; only its format version is checked.

    Args:
        path: Path of the YAML file.
        what: Description of the file, for the message, at the start of a sentence.
        version: Format that is read; a file that names none has it.
        example: Where to find an example, for the message.

    Raises:
        ConfigError: It cannot be read, is no mapping, or of another format.
    """
    content = read_yaml(path, what)
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ConfigError(
            f"{what} must be a mapping of keys to values, found {type(content).__name__} in "
            f"'{path}'; see {example}."
        )
    found = content.get("format", version)
    if found != version:
        raise ConfigError(
            f"{what} must be of format {version}, which this version of match-graph reads, found "
            f"format {found!r:.50} in '{path}'; use the version that wrote it."
        )
    return content


def dump_yaml(value: Any, **layout: Any) -> str:
    """Dumps plain values as YAML that `parse_yaml` reads back.

    Args:
        value: Mappings, lists, text, numbers, booleans and None, nested.
        **layout: Layout arguments of `yaml.dump`, such as ``sort_keys``.
    """
    text: str = yaml.dump(value, Dumper=_Dumper, **layout)
    return text


def parse_yaml(text: str) -> Any:
    """Parses a YAML text; dates are text.

    Raises:
        ValueError: It is not YAML, exceeds the limits, or has a duplicate key; a clause with the
            line.
    """
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(str(error.problem or error.context).split())
        raise ValueError(f"{reason}, line {mark.line + 1}" if mark else reason) from error
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except (ValueError, LookupError, AttributeError) as error:  # a tag that its value does not fit
        raise ValueError(f"a value does not fit its tag: {error}") from error
    finally:
        if loader is not None:
            loader.dispose()


class _Loader(yaml.SafeLoader):
    """PyYAML loader of plain values, with limits."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._number = 0
        self._sizes: dict[yaml.Node, int] = {}  # nodes of each subtree, aliases expanded

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Composes a node; counts nodes and levels before Python objects are constructed."""
        mark = self.peek_event().start_mark
        if self.check_event(yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if node is None or node not in self._sizes:
                raise _fault("an alias stands within what it names", mark)
            self._number += self._sizes[node]
        else:
            before = self._number
            self._number += 1
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise _fault(f"more than {MAX_DEPTH} levels of nesting", mark)
            node = super().compose_node(parent, index)
            self._depth -= 1
            if node is not None:
                self._sizes[node] = self._number - before
        if self._number > MAX_NODES:
            raise _fault(f"more than {MAX_NODES:,} keys and values, aliases written out", mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuses duplicate keys, of which PyYAML would take the last."""
        node = super().compose_mapping_node(anchor)
        lines: dict[Hashable, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in lines:
                first = lines[key.tag, key.value]
                problem = f"the key '{key.value}' is given twice, first in line {first}"
                raise _fault(problem, key.start_mark)
            lines[key.tag, key.value] = key.start_mark.line + 1
        return node

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """Constructs an integer of at most 64 bits."""
        if len(node.value) > 100 or (value := self.construct_yaml_int(node)) not in _INT64:
            raise _fault("an integer must have at most 64 bits", node.start_mark)
        return int(value)

    def construct_float(self, node: yaml.ScalarNode) -> float:
        """Constructs a finite number."""
        if not isfinite(value := self.construct_yaml_float(node)):
            raise _fault(f"a number must be finite, found {node.value[:50]}", node.start_mark)
        return float(value)


_Loader.yaml_implicit_resolvers = {  # a date is text
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.SafeDumper):
    """PyYAML dumper that quotes strings that `_Loader` would read as numbers."""


for _cls in (_Loader, _Dumper):
    _cls.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_float)


def _fault(problem: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def parse_setting(setting: str) -> tuple[str, Any]:
    """The dotted key and the value of ``key=value``.

    Raises:
        ConfigError: It is not of that form, or the value is no YAML.
    """
    key, equals, value = setting.partition("=") if isinstance(setting, str) else ("", "", "")
    if not equals or not key:
        raise ConfigError(f"A setting must be key=value, found '{setting}'.")
    try:
        return key, parse_yaml(value)
    except ValueError as error:
        raise ConfigError(
            f"The value of '{key}' must be YAML, found {shorten(value)} ({error})."
        ) from error


def parse_given(settings: Iterable[str] | None) -> Iterator[tuple[str, Any]]:
    """The dotted key and the value of each ``key=value``; None without any.

    Raises:
        ConfigError: They are no list, or one is not of that form.
    """
    if isinstance(settings, str) or not isinstance(settings, Iterable | None):
        raise ConfigError(
            f"Settings must be a list of key=value, found {settings!r:.60}; put them into a list."
        )
    return map(parse_setting, settings or ())


def put(content: dict[str, Any], key: str, value: Any) -> None:
    """Sets a dotted key."""
    *sections, last = key.split(".")
    for section in sections:
        if content.get(section) is None:  # all its keys may be commented out
            content[section] = {}
        content = content[section]
        if not isinstance(content, dict):
            raise ConfigError(f"The setting '{key}' goes through '{section}', which is no section.")
    content[last] = value
