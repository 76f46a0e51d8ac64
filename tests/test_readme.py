"""The README is short, and its quick start runs as it stands."""

import re
from pathlib import Path

import pytest

import match_graph

README = Path(__file__).resolve().parents[1] / "README.md"


def quick_start() -> str:
    """The first block of Python below the heading "## Quick start"."""
    text = README.read_text(encoding="utf-8")
    assert "\n## Quick start\n" in text, "README.md must have the heading '## Quick start'"
    section = text.split("\n## Quick start\n", 1)[1].split("\n## ", 1)[0]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block, "the quick start must hold a ```python block"
    return block[1]


def test_readme_is_read_in_minutes() -> None:
    """At most 10 KiB, and no tree of folders, which CONTRIBUTING.md has."""
    text = README.read_text(encoding="utf-8")
    assert len(text.encode()) <= 10 * 2**10
    assert "├── " not in text


def test_the_quick_start_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """From data set to prediction, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    exec(compile(quick_start(), str(README), "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_quick_start_is_short_and_uses_public_names_only() -> None:
    """About 15 lines; every name behind `mg.` is in match_graph.__all__."""
    code = quick_start()
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    assert re.findall(r"^(?:import|from) (.*)$", code, re.MULTILINE) == ["match_graph as mg"]
    used = set(re.findall(r"\bmg\.(\w+)", code))
    assert used
    assert used <= set(match_graph.__all__)
