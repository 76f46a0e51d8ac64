"""What is no Python comes along when the package is installed."""

import ast
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_file_of_the_package_is_installed() -> None:
    """setup.py's package_data names each file that is no module, and nothing that is not there."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    values = [
        keyword.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "package_data"
    ]
    [given] = [ast.literal_eval(value) for value in values]
    named = [f"{name.replace('.', '/')}/{one}" for name, files in given.items() for one in files]
    there = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "match_graph").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    ]
    assert there
    for path in there:
        assert any(fnmatch(path, pattern) for pattern in named), path
    for pattern in named:
        assert any(fnmatch(path, pattern) for path in there), pattern
