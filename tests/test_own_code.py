"""User-defined classes by name, and the errors of their code."""

import linecache
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from match_graph.errors import ConfigError, MatchGraphError
from match_graph.own_code import check_code, find_class, hash_code, locate_code, shorten_code


@pytest.fixture(autouse=True)
def clean_modules() -> Iterator[None]:
    """Leaves sys.path and sys.modules as they were."""
    path, modules = [*sys.path], {*sys.modules}
    yield
    sys.path[:] = path
    for name in {*sys.modules} - modules:
        if name.startswith(("mine", "beside")):
            del sys.modules[name]


def find(name: str) -> type[dict]:
    return find_class(name, {"plain": dict}, dict, "shelf")


def refusal(name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        find(name)
    return str(caught.value)


def test_find_class_file_is_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an absolute or a relative path, with what lies beside it; registered names come first."""
    (tmp_path / "beside_mine.py").write_text("WIDTH = 3\n")
    path = tmp_path / "mine.py"
    path.write_text("from beside_mine import WIDTH\nclass Shelf(dict):\n    width = WIDTH\n")
    found = find(f"{path}:Shelf")
    assert found.width == 3
    monkeypatch.chdir(tmp_path)
    assert find("mine.py:Shelf") is find("./mine.py:Shelf") is found
    assert sys.modules[found.__module__].Shelf is found
    assert find("plain") is dict


def test_find_class_equal_names_of_two_folders(tmp_path: Path) -> None:
    """Each file is a module of its own."""
    for number in (1, 2):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "mine.py").write_text(f"class Shelf(dict):\n    n = {number}\n")
    assert [find(f"{tmp_path}/{number}/mine.py:Shelf").n for number in (1, 2)] == [1, 2]


def test_find_class_running_script_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its class is that of __main__."""
    path = tmp_path / "mine.py"
    path.write_text("raise RuntimeError('run twice')\n")
    main = type(sys)("__main__")
    main.__file__, main.Shelf = str(path), type("Shelf", (dict,), {})
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert find(f"{path}:Shelf") is main.Shelf


@pytest.mark.parametrize("name", ["plan", "collections:deque", "mine.py:Other", "mine.py:"])
def test_find_class_of_no_class_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No registered name, or what is no class of the kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("Other = 3\n")
    clause = "the nearest is 'plain'" if name == "plan" else "check the name"
    assert refusal(name) == (
        f"The shelf must be one of ['plain'], or module:Class or file.py:Class naming a subclass "
        f"of dict, found '{name}'; {clause}."
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (
            "no_such:Shelf",
            "no module 'no_such' is found from '{here}'; check the name, or run in the folder of "
            "no_such.py, or put that into PYTHONPATH.",
        ),
        (
            "no_such.inner:Shelf",
            "no module 'no_such' is found from '{here}'; check the name, or run in the folder of "
            "no_such/, or put that into PYTHONPATH.",
        ),
        ("json.no_such:Shelf", "no module 'json.no_such' is found from '{here}'; check the name."),
        (
            "nowhere/mine.py:Shelf",
            "there is no file '{here}/nowhere/mine.py'; check the path.",
        ),
    ],
)
def test_find_class_missing_module_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, found: str
) -> None:
    """The error names the folder that was searched, and how to make the module importable."""
    monkeypatch.chdir(tmp_path)
    found = found.format(here=tmp_path)
    assert refusal(name) == f"The shelf '{name}' must be importable, but {found}"


@pytest.mark.parametrize("place", ["mine.py", "mine"])
@pytest.mark.parametrize(
    ("name", "clause"),
    [("Shelv", "the nearest is 'Shelf'"), ("Box", "choose one of ['Shelf', 'Rack']")],
)
def test_find_class_misspelt_class_names_near_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, name: str, clause: str
) -> None:
    """The file's own classes of the kind, not those that it imports."""
    monkeypatch.chdir(tmp_path)
    source = "from collections import OrderedDict\n"
    (tmp_path / "mine.py").write_text(f"{source}class Shelf(dict): ...\nclass Rack(dict): ...\n")
    assert refusal(f"{place}:{name}") == (
        f"The shelf '{place}:{name}' must be a class, but '{tmp_path}/mine.py' has no '{name}'; "
        f"{clause}."
    )


@pytest.mark.parametrize(
    ("code", "error", "line"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'", 1),
        ("x = 1\n\ny = x + z", "NameError: name 'z' is not defined", 3),
        ("import json\njson.loads('{')", "JSONDecodeError: Expecting property name", 2),
        ("def f():\n    return 1 / 0\n\nf()", "ZeroDivisionError: division by zero", 2),
        ("class Shelf(dict)\n    pass", "SyntaxError: expected ':'", 1),
        ("import sys\nsys.exit('no')", "SystemExit: no", 2),
    ],
)
@pytest.mark.parametrize("form", ["mine.py:Shelf", "mine:Shelf"])
def test_find_class_failing_code_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, code: str, error: str, line: int
) -> None:
    """Type and message of the error, with the line in the user's file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(code)
    sentence = refusal(form)
    start = f"The code of the shelf '{form}' must be importable, but it raised {error}"
    assert sentence.startswith(start)
    assert sentence.endswith(f"({tmp_path}/mine.py:{line}); mend it.")


def test_locate_code_makes_paths_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files alone; for people their folder is left out."""
    monkeypatch.chdir(tmp_path)
    assert locate_code("a/../mine.py:Shelf") == f"{tmp_path}/mine.py:Shelf"
    assert locate_code("package.mine:Shelf") == "package.mine:Shelf"
    assert locate_code("match") == "match"
    assert shorten_code(f"{tmp_path}/mine.py:Shelf") == "mine.py:Shelf"
    assert shorten_code("package.mine:Shelf") == "package.mine:Shelf"


def test_check_code_knows_a_file_by_either_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that the caller gave with another path is the same; others are refused."""
    monkeypatch.chdir(tmp_path)
    check_code([("encoder", f"{tmp_path}/mine.py:Shelf")], ["mine.py:Shelf"], "'x'", "--{kind} ")
    with pytest.raises(MatchGraphError, match="names the dataset 'mine\\.py:Shelf', and code is"):
        check_code([("dataset", "mine.py:Shelf")], ["other.py:Shelf"], "'x'", "--{kind} ")


CELL = """class Notes({base}):
    path = {value}

    def read(self):
        return self.path

    @classmethod
    def make(cls):
        return cls()
"""


def run_cell(number: int, value: str, base: type = dict) -> type:
    """A class of a notebook's cell: its module has no file, its source is in `linecache`."""
    source = CELL.format(base="Base", value=value)
    name = f"<cell {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace = {"Base": base, "__name__": "no_such_module"}
    exec(compile(source, name, "exec"), namespace)
    return namespace["Notes"]


def test_hash_code_of_a_notebook_follows_its_cells() -> None:
    """A cell run again has the same hash; a changed cell, or a changed parent class, another."""
    first = hash_code(run_cell(1, "1"), dict)
    assert len(first) == 64
    assert hash_code(run_cell(2, "1"), dict) == first
    changed = run_cell(3, "2")
    assert hash_code(changed, dict) != first
    assert hash_code(run_cell(4, "1", changed), dict) == first + hash_code(changed, dict)


def test_hash_code_without_source_is_empty() -> None:
    """A class typed at a Python prompt, whose source is not kept; a class of match-graph."""
    typed = run_cell(5, "1")
    del linecache.cache["<cell 5>"]
    assert hash_code(typed, dict) == ""
    assert hash_code(ConfigError, MatchGraphError) == ""


def test_hash_code_follows_what_the_project_imports(tmp_path: Path) -> None:
    """Files beside a class's, also of packages, by their statements; broken ones are skipped."""
    package = tmp_path / "beside_layers"
    package.mkdir()
    files = {
        tmp_path / "mine.py": "import json\nfrom beside_width import WIDTH\n"
        "class Shelf(dict):\n    def read(self):\n        import beside_layers.deep\n",
        tmp_path / "beside_width.py": "WIDTH = 3\nimport match_graph\n",
        package / "__init__.py": "",
        package / "deep.py": "from .deeper import DEPTH\nfrom . import *\n",
        package / "deeper.py": "import mine\nDEPTH = 1\n",
        package / "broken.py": "def (",
    }
    for path, text in files.items():
        path.write_text(text)
    cls = find(f"{tmp_path / 'mine.py'}:Shelf")
    first = hash_code(cls, dict)
    assert len(first) == 64 * 5
    for path, text in files.items():
        path.write_text(f"{text}\n# changed\n")
        assert (hash_code(cls, dict) == first) == (path.name == "broken.py"), path
        path.write_text(text)
    assert hash_code(cls, dict) == first


def test_hash_code_of_an_installed_class_stays_in_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages that are installed beside it are other projects."""
    installed = tmp_path / "site-packages"
    for name in ("beside_plugin", "beside_other"):
        (installed / name).mkdir(parents=True)
        (installed / name / "__init__.py").write_text("")
    (installed / "beside_plugin" / "width.py").write_text("WIDTH = 3\n")
    source = "import beside_other\nfrom beside_plugin.width import WIDTH\n"
    (installed / "beside_plugin" / "mine.py").write_text(f"{source}class Shelf(dict): ...\n")
    monkeypatch.syspath_prepend(installed)
    first = hash_code(find("beside_plugin.mine:Shelf"), dict)
    assert len(first) == 64 * 3
