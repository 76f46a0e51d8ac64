"""What is public is exported, reachable by one import, and documented."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import match_graph
from match_graph import errors

PACKAGES = sorted(
    module.name for module in pkgutil.iter_modules(match_graph.__path__) if module.ispkg
)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_package_is_reachable_and_documented(package: str) -> None:
    """Names in __all__ exist once, are all that is imported, and say what they are."""
    module = importlib.import_module(f"match_graph.{package}")
    assert module.__doc__
    assert len(set(module.__all__)) == len(module.__all__)
    imported = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "match_graph").startswith("match_graph")
    }
    assert imported <= set(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{package}.{name} has no docstring"


def test_match_graph_exports_what_its_stub_declares() -> None:
    """Names of the stub are there, each of a sub-package; the stages are modules."""
    stub = Path(match_graph.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    declared = ast.parse(stub).body
    [listed] = [ast.literal_eval(node.value) for node in declared if isinstance(node, ast.Assign)]
    assert match_graph.__all__ == sorted(listed)
    public = {
        name for name in match_graph.__all__ if not inspect.ismodule(getattr(match_graph, name))
    }
    assert {*match_graph.__all__} - public >= {*PACKAGES} - {"cli"}
    for name in public:
        value = getattr(match_graph, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__.startswith("match_graph."), name
            assert inspect.getdoc(value), name


@pytest.mark.parametrize("module", ["match_graph", "match_graph.cli", "match_graph.settings"])
def test_match_graph_is_imported_without_torch(module: str) -> None:
    """Help, settings and typing errors answer at once: a stage is imported by its first use."""
    code = f"import sys, {module}; print(*{{'torch', 'pandas', 'sklearn'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()


def test_what_is_registered_and_every_error_is_exported() -> None:
    """Data sets, encoders, heads, baselines and errors can be named without knowing their files."""
    registered = {
        *match_graph.DATASETS.values(), *match_graph.ENCODERS.values(),
        *match_graph.HEADS.values(), *match_graph.BASELINES.values(),
    }  # fmt: skip
    raised = {
        value for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.MatchGraphError)
    }  # fmt: skip
    for value in registered | raised:
        assert value.__name__ in match_graph.__all__
        assert getattr(match_graph, value.__name__) is value
