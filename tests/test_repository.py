"""What stands beside the package: the changelog, indexes of folders, templates of the forge."""

import ast
import re
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

import match_graph
from match_graph import DATASETS

ROOT = Path(__file__).resolve().parents[1]


def find_links(path: Path) -> list[str]:
    """Targets of relative links in a Markdown file, without anchors."""
    found = re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
    return [target for target in found if "://" not in target]


def count_lines(function: ast.FunctionDef) -> int:
    """Lines of a function's body without its docstring."""
    first, *rest = function.body
    body = rest if rest and ast.get_docstring(function) is not None else [first, *rest]
    return int(body[-1].end_lineno or 0) - body[0].lineno + 1


def test_changelog_keeps_its_form() -> None:
    """Unreleased first, then versions with dates, newest first; https://keepachangelog.com."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *released = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    released = [re.fullmatch(r"\[([\d.]+)\] - \d{4}-\d{2}-\d{2}", one) for one in released]
    assert released
    assert all(released)
    versions = [found[1] for found in released if found]
    assert versions == sorted(set(versions), key=Version, reverse=True)
    assert versions[0] == match_graph.__version__
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= kinds


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", *(
    f"{folder}/README.md" for folder in ("datasets", "experiments")
)])  # fmt: skip
def test_links_lead_somewhere(name: str) -> None:
    """Relative ones, to files of the repository."""
    path = ROOT / name
    for target in find_links(path):
        assert (path.parent / target).exists(), target


def test_index_of_experiments_is_complete() -> None:
    """Every question, and every page of results, of today's defaults and of earlier ones."""
    folder = ROOT / "experiments"
    there = [*folder.glob("*.yaml"), *folder.glob("*/*.md")]
    names = {path.relative_to(folder).as_posix() for path in there}
    assert names <= set(find_links(folder / "README.md"))


def test_index_of_datasets_is_complete() -> None:
    """Every card, among them one for each registered data set; nothing else is there.

    A module here would hide the package ``datasets`` of Hugging Face from whoever runs in ROOT.
    """
    folder = ROOT / "datasets"
    assert {path.suffix for path in folder.iterdir()} == {".md"}
    cards = {path.name for path in folder.glob("*.md")} - {"README.md"}
    assert {f"{name}.md" for name in DATASETS} <= cards
    assert cards <= set(find_links(folder / "README.md"))


def test_issue_forms_are_valid() -> None:
    """Of the fields that https://docs.github.com/communities asks for."""
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    forms = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in folder.iterdir()
    }
    assert set(forms.pop("config")) == {"blank_issues_enabled"}
    assert set(forms) == {"bug", "feature"}
    for form in forms.values():
        assert form["name"]
        assert form["description"]
        ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert ids
        assert len(set(ids)) == len(ids)
        assert all(part["attributes"] for part in form["body"])


def test_files_and_functions_are_short() -> None:
    """Files have at most 400 lines, functions fewer than 50 below signature and docstring."""
    too_long = []
    for path in sorted((ROOT / "match_graph").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        functions = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef)]
        too_long += [
            f"{path.name}: {one.name}"
            for one in functions
            if count_lines(one) >= 50 and one.name != "toy_documents"  # data
        ]
        too_long += [path.name] * (len(source.splitlines()) > 400)
    assert too_long == []


def test_names_of_tests_are_short() -> None:
    """Sentences are docstrings."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py"))
    assert [name for name in re.findall(r"def (test_\w+)", source) if len(name) > 60] == []
