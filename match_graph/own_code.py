"""User-defined classes by name: ``module:Class``, or ``file.py:Class``.

Importing runs code, so it happens only on request: a name that a file gives is imported only if the
caller gives it too (`check_code`).
"""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from match_graph.errors import ConfigError, suggest
from match_graph.io.source import hash_file, is_there, resolve_path

T = TypeVar("T")

#: Settings of the section "model" that name a class, registered or user-defined.
CODE = ("encoder", "head")

_PACKAGE = __name__.partition(".")[0]


def is_own_code(name: str | None) -> bool:
    """Whether a name is ``module:Class`` or ``file.py:Class``; registered names have no colon."""
    return ":" in (name or "")


def is_file_code(name: str) -> bool:
    """Whether a name is of the form ``file.py:Class``."""
    return name.rpartition(":")[0].endswith(".py")


def locate_code(name: str) -> str:
    """Name with the absolute path of its file, if it is ``file.py:Class``; others as they are."""
    place, _, class_name = name.rpartition(":")
    return f"{resolve_path(place)}:{class_name}" if is_file_code(name) else name


def shorten_code(name: str) -> str:
    """Name without the folder of its file, for people."""
    place, _, class_name = name.rpartition(":")
    return f"{Path(place).name}:{class_name}" if is_file_code(name) else name


def check_code(
    names: Iterable[tuple[str, object]], allowed: Collection[object], where: str, flag: str
) -> None:
    """Checks that every user-defined class that a file names is named by the caller too.

    A file alone cannot make this process import code.

    Args:
        names: Pairs of "encoder", "head" or "dataset" and the name that the file gives.
        allowed: Names that the caller has given.
        where: Source of the names, such as the file, for the message.
        flag: Flag that goes before a name, with ``{kind}`` where it says "encoder".

    Raises:
        ConfigError: One is not the caller's.
    """
    known = {locate_code(name) for name in allowed if isinstance(name, str)}
    foreign = dict.fromkeys(
        (kind, name)
        for kind, name in names
        if isinstance(name, str) and is_own_code(name) and locate_code(name) not in known
    )
    if foreign:
        found = " and ".join(f"the {kind} '{name}'" for kind, name in foreign)
        flags = " ".join(f"{flag.format(kind=kind)}{name}" for kind, name in foreign)
        raise ConfigError(
            f"{where} names {found}, and code is imported only by request; if you trust it, name "
            f"it on the command line too: {flags}"
        )


def name_code(content: Mapping[str, Any]) -> dict[str, Any]:
    """Names of the encoder and the head in the settings."""
    model = content.get("model")
    return {kind: model[kind] for kind in CODE if kind in model} if isinstance(model, dict) else {}


def hash_code(cls: type, base: type) -> str:
    """SHA-256 of the source files of a class and its parents up to a base, one after the other.

    Files of the same project that these import are included: modules of the same package, or
    beside it. For a class without a file, as in a notebook, the cells of its methods are hashed
    where Python has their source. Classes of match-graph itself are left out.
    """
    own = [
        one
        for one in cls.__mro__[: cls.__mro__.index(base)]
        if one.__module__.partition(".")[0] != _PACKAGE
    ]
    sources = [getattr(sys.modules.get(one.__module__), "__file__", None) or one for one in own]
    if own and isinstance(sources[0], str):
        sources += map(str, _list_imported(Path(sources[0]), own[0].__module__))
    return "".join(
        _hash_cells(one) if isinstance(one, type) else hash_file(one)
        for one in dict.fromkeys(sources)
    )


def _list_imported(path: Path, module: str) -> list[Path]:
    """Files of a module's project that it imports, directly or not, by their statements."""
    root = path.parents[module.count(".") + (path.name == "__init__.py")]
    is_installed = bool({"site-packages", "dist-packages"} & {*root.parts})
    found = [path]
    for file in found:  # grows while it is read
        for level, name in _read_imports(file):
            parts, folder = name.split("."), file.parents[level - 1] if level else root
            is_other = is_installed and parts[0] != module.partition(".")[0]
            if not level and (is_other or parts[0] == _PACKAGE):
                continue
            for depth in range(1, len(parts) + 1):
                stem = folder.joinpath(*parts[:depth])
                places = stem.with_name(f"{stem.name}.py"), stem / "__init__.py"
                found += [one for one in places if one not in found and one.is_file()]
    return found


def _read_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Leading dots and dotted name of what the statements of a file import."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # no source: compiled, or broken and never imported
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = f"{node.module}." if node.module else ""
            yield from ((node.level, f"{start}{alias.name}") for alias in node.names)


def _hash_cells(cls: type) -> str:
    members = (inspect.unwrap(getattr(one, "__func__", one)) for one in vars(cls).values())
    try:
        cells = ["".join(inspect.findsource(one)[0]) for one in members if inspect.isfunction(one)]
    except OSError:  # typed at a prompt
        return ""
    return hashlib.sha256("".join(dict.fromkeys(cells)).encode()).hexdigest()


def find_class(
    name: str,
    registered: Mapping[str, type[T]],
    base: type[T] | tuple[type[Any], ...],
    kind: str,
) -> type[T]:
    """A registered class, or the one that ``module:Class`` or ``file.py:Class`` names.

    Its module or file is imported, once per process. Modules are looked for in the current folder
    too, and those that a file imports in the file's folder, after all others.

    Raises:
        ConfigError: There is no such class, it is not of the kind, or its code fails.
    """
    if name in registered:
        return registered[name]
    place, colon, class_name = name.rpartition(":")
    found = module = None
    cause = ""
    if colon:
        try:
            module = _import_file(place) if is_file_code(name) else _import_module(place)
            found = getattr(module, class_name, None)
        except ModuleNotFoundError as error:
            if not _is_of(error.name, place):
                raise _describe_failure(name, kind, error) from error
            raise _describe_missing(name, kind, error) from error
        except (Exception, SystemExit) as error:  # whatever user code raises
            if not place or place.startswith("."):
                cause = f" ({error})"
            else:
                raise _describe_failure(name, kind, error) from error
    if module is not None and class_name and not hasattr(module, class_name):
        own = [
            key
            for key, one in vars(module).items()
            if isinstance(one, type) and issubclass(one, base) and one.__module__ == module.__name__
        ]
        clause = suggest(class_name, own, f"choose one of {own}" if own else "check the name")
        raise ConfigError(
            f"The {kind} '{name}' must be a class, but '{getattr(module, '__file__', place)}' has "
            f"no '{class_name}'; {clause}."
        )
    if not (isinstance(found, type) and issubclass(found, base)):
        bases = " or ".join(one.__name__ for one in (base if isinstance(base, tuple) else (base,)))
        raise ConfigError(
            f"The {kind} must be one of {sorted(registered)}, or module:Class or file.py:Class "
            f"naming a subclass of {bases}, found '{name}'{cause}; {suggest(name, registered)}."
        )
    return found


def _import_module(name: str) -> ModuleType:
    _append_path(Path.cwd())
    return importlib.import_module(name)


def _import_file(place: str) -> ModuleType:
    """The module of a file; ``__main__`` if the file is the running script."""
    path = resolve_path(place)
    if not is_there(path):
        raise ModuleNotFoundError(f"there is no file '{path}'", name=place)
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is not None and resolve_path(script) == path:
        return sys.modules["__main__"]
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, "the suffix is .py"
    _append_path(path.parent)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _append_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _is_of(missing: str | None, module: str) -> bool:
    """Whether a module that was not found is the named one, or a package above it."""
    return missing is not None and f"{module}.".startswith(f"{missing}.")


def _describe_missing(name: str, kind: str, error: ModuleNotFoundError) -> ConfigError:
    """Error for a module or a file that is not found, with where it was looked for."""
    start = f"The {kind} '{name}' must be importable, but "
    if is_file_code(name):
        return ConfigError(f"{start}{error}; check the path.")
    missing, place = error.name or "", name.rpartition(":")[0]
    remedy = "check the name"
    if "." not in missing:
        file = f"{missing}.py" if missing == place else f"{missing}/"
        remedy = f"check the name, or run in the folder of {file}, or put that into PYTHONPATH"
    return ConfigError(f"{start}no module '{missing}' is found from '{Path.cwd()}'; {remedy}.")


def _describe_failure(name: str, kind: str, error: BaseException) -> ConfigError:
    """Error for code that raises while it is imported, with its place in the user's file."""
    if isinstance(error, SyntaxError) and error.filename:
        place, message = f"{error.filename}:{error.lineno}", error.msg
    else:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith("<frozen") and frame.filename != __file__
            if Path(frame.filename).parent != Path(importlib.__file__).parent
        ]
        own = [frame for frame in frames if frame.filename == frames[0].filename]
        place, message = (f"{own[-1].filename}:{own[-1].lineno}" if own else "?"), str(error)
    return ConfigError(
        f"The code of the {kind} '{name}' must be importable, but it raised "
        f"{type(error).__name__}: {_shorten(message)} ({place}); mend it."
    )


def _shorten(message: str) -> str:
    """Message of an error in one line, at most 300 characters."""
    line = " ".join(message.split())
    return line if len(line) <= 300 else f"{line[:300]}..."
