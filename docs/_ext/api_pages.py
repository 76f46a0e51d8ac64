"""API pages of the names in `__all__`, one for each sub-package and top-level module.

A name that `match_graph` exports is documented under that name, on the page of the sub-package that
defines it; every other name under its sub-package. References to the place of definition are
resolved to the documented name.
"""

import importlib
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import match_graph

FOLDER = Path(__file__).parents[1] / "generated" / "api"
#: Documented by the page of commands.
COMMANDS = "match_graph.cli"
#: Members that pydantic and torch give every class.
INHERITED = "model_config, model_fields, model_computed_fields, training"


@cache
def list_names() -> dict[str, list[str]]:
    """Dotted names to document, by the package that defines them; each object once."""
    found = pkgutil.walk_packages(match_graph.__path__, "match_graph.")
    names: dict[str, list[str]] = {
        module.name: []
        for module in found
        if (module.ispkg or module.name.count(".") == 1) and module.name != COMMANDS
    }
    seen: set[Any] = set()
    for owner in ["match_graph", *sorted(names)]:
        module = importlib.import_module(owner)
        for name in sorted(getattr(module, "__all__", []), key=str.lower):
            value = getattr(module, name)
            defined = find_package(value, names) or find_first(name, value, names)
            if isinstance(value, ModuleType) or defined is None or key(name, value) in seen:
                continue
            seen.add(key(name, value))
            names[defined].append(f"{owner}.{name}")
    return {package: found for package, found in sorted(names.items()) if found}


def key(name: str, value: Any) -> Any:
    """Identity of an exported object; equal constants are distinguished by name."""
    return value if inspect.isclass(value) or inspect.isfunction(value) else (name, id(value))


def find_package(value: Any, packages: dict[str, list[str]]) -> str | None:
    """The innermost package in which a class or function is defined."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return None
    parts = value.__module__.split(".")
    owners = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((owner for owner in owners if owner in packages), None)


def find_first(name: str, value: Any, packages: dict[str, list[str]]) -> str | None:
    """The innermost package that exports a constant."""
    owners = sorted(packages, key=lambda package: (-package.count("."), package))
    modules = ((owner, importlib.import_module(owner)) for owner in owners)
    return next((owner for owner, module in modules if vars(module).get(name) is value), None)


@cache
def documented() -> dict[str, str]:
    """Documented dotted name by every name that refers to the same object."""
    places = {}
    for names in list_names().values():
        for full in names:
            owner, _, name = full.rpartition(".")
            value = getattr(importlib.import_module(owner), name)
            places[full] = places[name] = full
            if inspect.isclass(value) or inspect.isfunction(value):
                places[f"{value.__module__}.{value.__qualname__}"] = full
    for package in list_names():
        for name in getattr(importlib.import_module(package), "__all__", []):
            if name in places:
                places.setdefault(f"{package}.{name}", places[name])
    return places


def write_page(package: str, names: list[str]) -> str:
    """The page of a sub-package as reStructuredText."""
    title = package.removeprefix("match_graph.")
    lines = [title, "=" * len(title), "", f".. automodule:: {package}", "   :no-members:", ""]
    lines += [".. list-table::", "   :widths: auto", ""]
    for full in names:
        lines += [f"   * - :py:obj:`~{full}`", f"     - {describe(full)}"]
    for full in names:
        owner, _, name = full.rpartition(".")
        value = getattr(importlib.import_module(owner), name)
        if inspect.isclass(value):
            kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
            lines += ["", f".. {kind}:: {full}", "   :members:", "   :show-inheritance:"]
            lines += [f"   :exclude-members: {INHERITED}"]
        elif inspect.isfunction(value):
            lines += ["", f".. autofunction:: {full}"]
        else:
            lines += ["", f".. py:data:: {name}", f"   :module: {owner}"]
            lines += [f"   :type: {type(value).__name__}", "", f"   {describe(full)}"]
    return "\n".join(lines) + "\n"


def describe(full: str) -> str:
    """One-line description: first line of the docstring, or the comment above a constant."""
    owner, _, name = full.rpartition(".")
    value = getattr(importlib.import_module(owner), name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
    return comments().get(name, "")


@cache
def comments() -> dict[str, str]:
    """The comments ``#:`` above constants of all modules."""
    from sphinx.pycode import ModuleAnalyzer

    found = {}
    for module in pkgutil.walk_packages(match_graph.__path__, "match_graph."):
        if not module.name.endswith("__main__"):
            documents = ModuleAnalyzer.for_module(module.name).find_attr_docs()
            found |= {name: " ".join(text) for (cls, name), text in documents.items() if not cls}
    return found


def write_index(packages: list[str]) -> str:
    """The index page, which lists the sub-packages."""
    lines = ["API", "===", "", "Every public name, by the part of the package that defines it."]
    lines += [
        "``import match_graph as mg`` gives the names that stand here as ``match_graph.NAME``"
    ]
    lines += ["directly.", "", ".. toctree::", "   :maxdepth: 1", ""]
    return (
        "\n".join(lines + [f"   {name.removeprefix('match_graph.')}" for name in packages]) + "\n"
    )


def write_if_changed(path: Path, text: str) -> None:
    """Writes a file unless it has this text, so that Sphinx does not build its page again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write_pages(app: Any = None) -> None:
    """Writes all pages, and removes those of packages that no longer exist."""
    pages = {f"{name.removeprefix('match_graph.')}.rst": write_page(name, names)
             for name, names in list_names().items()}  # fmt: skip
    pages["index.rst"] = write_index(list(list_names()))
    for path in FOLDER.glob("*.rst"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        write_if_changed(FOLDER / name, text)


def exists(name: str) -> bool:
    """True if the package has an object of this dotted name."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Resolves a reference to the documented name, or to plain text if the name is not public.

    A name that does not exist is left to Sphinx, which fails on it.
    """
    target = node.get("reftarget", "")
    place = documented().get(target)
    if node.get("refdomain") != "py" or not (place or target.startswith("match_graph.")):
        return None
    if place is None:
        return content if exists(target) else None
    domain = env.get_domain("py")
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", place, node, content)


def name_role(role: str, raw: str, text: str, line: int, inliner: Any, options: Any = None,
              content: Any = ()) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """Text in single backticks, as a link if it is a documented name, else as code."""
    from docutils import nodes
    from sphinx.domains.python import PyXRefRole

    place = documented().get(text.removesuffix("()"))
    if place is None:
        return [nodes.literal(raw, text)], []
    return PyXRefRole()("py:obj", raw, f"{text} <{place}>", line, inliner, {}, [])


def keep_colon(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Keeps napoleon from reading "Counts by type: [T]" after "Returns:" as a type and a text."""
    after = [row + 1 for row, line in enumerate(lines[:-1]) if line in ("Returns:", "Yields:")]
    for row in [0, *after] if what in ("property", "attribute") else after:
        parts = re.split(r"(`+[^`]+`+)", lines[row])  # text and code take turns
        parts[::2] = [part.replace(": ", "\\ :plain:`:` ") for part in parts[::2]]
        lines[row] = "".join(parts)


def plain_role(role: str, raw: str, text: str, line: int, inliner: Any, options: Any = None,
               content: Any = ()) -> tuple[list[Any], list[Any]]:  # fmt: skip
    """Text without markup."""
    from docutils import nodes

    return [nodes.Text(text)], []


def setup(app: Any) -> dict[str, bool]:
    """Registers the hooks."""
    from docutils.parsers.rst import roles

    roles.register_local_role("name", name_role)
    roles.register_local_role("plain", plain_role)
    app.connect("builder-inited", write_pages, priority=100)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", keep_colon, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
