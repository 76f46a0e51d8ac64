"""A stage imports only earlier stages, seen in the source without importing anything."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "match_graph"

#: The line: a stage imports what stands before it.
LINE = (
    ("errors", "typing", "openmp"),
    ("io",),
    ("own_code",),
    ("config", "settings"),
    ("cycles", "corpus_faults"),
    ("corpus",),
    ("corpus_builder",),
    ("graph",),
    ("datasets",),
    ("features",),
    ("pretrain",),
    ("nn",),
    ("metrics",),
    ("baselines",),
    ("training",),
    ("runs",),
    ("predict",),
    ("export",),
    ("speed",),
    ("benchmark",),
    ("report",),
    ("cli",),
)
RANK = {name: rank for rank, names in enumerate(LINE) for name in names}
UNBOUND = {"testing", "__init__", "__main__"}  # these may import anything


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def find_imports(body: list[ast.stmt], package: str) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of imports, also within functions, classes, if and try.

    Args:
        body: The statements of a module.
        package: Dotted name of the package the module lies in, for relative imports.
    """
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = [] if node.level == 0 else parts
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            yield from find_imports(node.orelse, package)
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from find_imports(getattr(node, field, []), package)
            for handler in getattr(node, "handlers", []):
                yield from find_imports(handler.body, package)


def find_faults(path: Path, root: Path) -> list[str]:
    """The imports of one file that go against the line, as file:line sentences."""
    parts = path.relative_to(root).with_suffix("").parts
    stage = parts[0]
    if stage in UNBOUND:
        return []
    if stage not in RANK:
        return [f"{path.name}: '{stage}' has no place in the line; add it to LINE."]
    package = ".".join(("match_graph", *parts[:-1]))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    faults = []
    for line, module in find_imports(tree.body, package):
        names = module.split(".")
        if names[0] != "match_graph" or len(names) < 2 or names[1] == stage:
            continue
        other = names[1]
        if other in RANK and RANK[other] < RANK[stage]:
            continue
        if other not in RANK and not is_module(root, other):
            continue  # a name of match_graph/__init__.py such as __version__
        faults.append(f"{'/'.join(parts)}.py:{line} imports {module}")
    return faults


def is_module(root: Path, name: str) -> bool:
    return (root / name).is_dir() or (root / f"{name}.py").is_file()


def test_every_file_imports_earlier_stages_only() -> None:
    """From io down to the command line."""
    files = sorted(PACKAGE.rglob("*.py"))
    assert {"datasets", "graph"} <= {path.relative_to(PACKAGE).parts[0] for path in files}
    assert [fault for path in files for fault in find_faults(path, PACKAGE)] == []


@pytest.mark.parametrize(
    ("path", "source", "allowed"),
    [
        ("graph/a.py", "from match_graph.corpus import Corpus", True),
        ("graph/a.py", "from match_graph.errors import GraphError", True),
        ("graph/a.py", "import match_graph.config", True),
        ("graph/a.py", "from match_graph import __version__", True),
        ("graph/a.py", "from match_graph.graph.csr import make_ptr", True),
        ("graph/a.py", "import torch", True),
        ("graph/a.py", "def late():\n    from match_graph.cli import app", False),
        (
            "datasets/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import match_graph.nn",
            True,
        ),
        ("cli.py", "from match_graph.export import write", True),
        ("testing/a.py", "from match_graph.cli import app", True),
        ("__init__.py", "from match_graph.predict import load", True),
        ("config.py", "from match_graph.errors import ConfigError", True),
        ("datasets/a.py", "from match_graph.nn import Hierarchy", False),
        ("datasets/a.py", "from match_graph import nn", False),
        ("datasets/a.py", "from ..nn import Hierarchy", False),
        ("datasets/a.py", "import match_graph.nn.csr", False),
        ("datasets/a.py", "try:\n    import match_graph.nn\nexcept ImportError:\n    pass", False),
        ("datasets/a.py", "class A:\n    from match_graph.nn import Model", False),
        ("export/a.py", "from match_graph.benchmark import run", False),
        ("benchmark/a.py", "from match_graph.export import write", True),
        ("errors.py", "from match_graph.datasets import Corpus", False),
        ("nn/a.py", "from match_graph.testing import toy_corpus", False),
        ("datasets/a.py", "from match_graph.io.manifest import MANIFEST", True),
        ("io/a.py", "from match_graph.errors import CorpusError", True),
        ("io/a.py", "from match_graph.datasets import Corpus", False),
        ("helpers/a.py", "", False),
    ],
)
def test_the_check_tells_right_from_wrong(
    tmp_path: Path, path: str, source: str, allowed: bool
) -> None:
    """Each form of import is seen; TYPE_CHECKING alone is exempt."""
    for name in ("io", "datasets", "graph", "nn", "export", "benchmark", "testing"):
        (tmp_path / name).mkdir()
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(source)
    assert (find_faults(file, tmp_path) == []) == allowed
