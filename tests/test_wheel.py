"""What is installed: every file of the package, and types that a consumer's mypy finds."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]

#: A script of somebody else: no name below is Any, and what is wrong is an error (an ignored one:
#: mypy's strict mode complains where there is nothing to ignore).
CONSUMER = '''
"""From a data set to predictions."""

from collections.abc import Iterator
from typing import Any, assert_type

from torch import Tensor

import match_graph as mg

dataset = mg.open_dataset("synthetic", root="data", num_documents=400)
assert_type(dataset, mg.CorpusDataset)
assert_type(dataset.targets, mg.Targets)
sampler = mg.EgoSampler(dataset[0], max_words=100)
assert_type(sampler, mg.EgoSampler)
hierarchy = mg.Hierarchy.from_data(dataset[0])
assert_type(hierarchy, mg.Hierarchy)
assert_type(hierarchy.depth, Tensor)

config = mg.load_config(settings=["train.epochs=2"])
assert_type(config, mg.Config)
assert_type(config.train.epochs, int | None)
run = mg.start_run("synthetic", config, folder="run", root="data")
assert_type(run, mg.Run)
assert_type(run.evaluate(), dict[str, dict[str, float]])

classifier = mg.load("run")
assert_type(classifier, mg.Classifier)
assert_type(classifier.predict([{"text": "a text"}]), Iterator[dict[str, Any]])

mg.load_config(settings=3)  # type: ignore[arg-type]
mg.Hierarchy(hierarchy.edge_index)  # type: ignore[call-arg]
run.no_such_method()  # type: ignore[attr-defined]
'''


def call(folder: Path, *arguments: object) -> None:
    """Runs a module of this Python where no path leads to the sources."""
    command = [sys.executable, "-m", *map(str, arguments)]
    paths = {"PYTHONPATH", "MYPYPATH"}
    env = {name: value for name, value in os.environ.items() if name not in paths}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: setuptools writes beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    unread = shutil.ignore_patterns("__pycache__")
    source, out = folder / "source", folder / "out"
    source.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("match_graph", "experiments"):
        shutil.copytree(ROOT / name, source / name, ignore=unread)
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
    call(folder, "pip", "wheel", *options, "--no-build-isolation", "--wheel-dir", out, source)
    [found] = out.glob("*.whl")
    return found


def test_wheel_holds_every_file(wheel: Path) -> None:
    """Modules, and what setup.py's package_data names: templates, styles, py.typed."""
    installed = {name for name in ZipFile(wheel).namelist() if name.startswith("match_graph/")}
    there = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "match_graph").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert installed == there


def test_wheel_gives_types(wheel: Path, tmp_path: Path) -> None:
    """mypy --strict on a consumer's script, in an environment where the wheel is installed.

    The environment reads all other packages from this one; the cache is the project's own, so that
    torch is read once for `make check` and for this.
    """
    venv.create(tmp_path / "env", with_pip=False)
    places = {"base": str(tmp_path / "env"), "platbase": str(tmp_path / "env")}
    target = Path(sysconfig.get_path("purelib", "venv", places))
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
    call(tmp_path, "pip", "install", *options, "--target", target, wheel)
    (target / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    (tmp_path / "consumer.py").write_text(CONSUMER, encoding="utf-8")
    python = Path(sysconfig.get_path("scripts", "venv", places)) / Path(sys.executable).name
    call(
        tmp_path, "mypy", "--strict", "--config-file", ROOT / "pyproject.toml", "--cache-dir",
        ROOT / ".mypy_cache", "--python-executable", python, tmp_path / "consumer.py",
    )  # fmt: skip
