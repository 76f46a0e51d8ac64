"""What the package imports is declared in setup.py, seen in the source without importing it."""

import ast
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import setuptools

ROOT = Path(__file__).resolve().parents[1]
#: Imports of a distribution of another name, or of one that the named distribution needs.
DISTRIBUTIONS = {
    "distributed": "dask",
    "httpx": "huggingface-hub",
    "mlflow": "mlflow-skinny",
    "pydantic_core": "pydantic",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of ``setup``."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", found.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    return found


def normalize(name: str) -> str:
    return name.lower().replace("_", "-")


def read_names(requirements: list[str]) -> set[str]:
    return {normalize(re.split(r"[\[<>=]", one)[0]) for one in requirements}


def find_imports(tree: ast.AST, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """Packages that a module imports, and whether within a function or for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0], inside
        is_check = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        yield from find_imports(node, inside or is_check or isinstance(node, ast.FunctionDef))


def test_setup_declares_what_is_imported(declared: dict[str, Any]) -> None:
    """Packages of extras are imported within functions, so that a core installation is enough."""
    core = read_names(declared["install_requires"])
    users = [names for extra, names in declared["extras_require"].items() if extra != "dev"]
    every = core.union(*map(read_names, users))
    faults, seen = [], set()
    for path in sorted((ROOT / "match_graph").rglob("*.py")):
        for name, inside in find_imports(ast.parse(path.read_text(encoding="utf-8"))):
            if name in {"match_graph", *sys.stdlib_module_names}:
                continue
            distribution = DISTRIBUTIONS.get(name, normalize(name))
            seen.add(distribution)
            if distribution not in (every if inside else core):
                faults.append(f"{path.relative_to(ROOT)} imports {name}")
    assert faults == []
    assert core - seen == {"tensorboard"}  # imported by torch
