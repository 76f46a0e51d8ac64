"""What is installed: every file of the package, and types that a consumer's mypy finds."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from match_graph import Run, load, share_run

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
assert_type(classifier.predict([{"text": "a text"}]), list[dict[str, Any]])
assert_type(classifier.predict(iter([{"text": "a text"}])), Iterator[dict[str, Any]])

mg.load_config(settings=3)  # type: ignore[arg-type]
mg.Hierarchy(hierarchy.edge_index)  # type: ignore[call-arg]
run.no_such_method()  # type: ignore[attr-defined]
'''


def call(folder: Path, *arguments: object, python: Path = Path(sys.executable)) -> str:
    """Runs a module where no path leads to the sources; gives what it prints."""
    command = [str(python), "-m", *map(str, arguments)]
    paths = {"PYTHONPATH", "MYPYPATH"}
    env = {name: value for name, value in os.environ.items() if name not in paths}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment where the wheel is installed; all else is read from this one."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=False)
    places = {"base": str(folder), "platbase": str(folder)}
    target = Path(sysconfig.get_path("purelib", "venv", places))
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
    call(folder, "pip", "install", *options, "--target", target, wheel)
    (target / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return Path(sysconfig.get_path("scripts", "venv", places)) / Path(sys.executable).name


def test_wheel_holds_every_file(wheel: Path) -> None:
    """Modules, what setup.py's package_data names (templates, styles, py.typed), experiments."""
    installed = {name for name in ZipFile(wheel).namelist() if name.startswith("match_graph/")}
    there = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "match_graph").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    shipped = {f"match_graph/experiments/{path.name}" for path in ROOT.glob("experiments/*.yaml")}
    assert installed == there | shipped


def test_wheel_finds_experiments_by_name(python: Path, tmp_path: Path) -> None:
    """`match-graph benchmark comparison` in an empty folder, to its table; nothing of ROOT."""
    code = (
        "from match_graph.benchmark.experiment_file import list_experiments\n"
        "from match_graph.cli import main\n"
        "print(list_experiments())  # where they are found\n"
        "main()\n"
    )
    (tmp_path / "found.py").write_text(code, encoding="utf-8")
    small = [
        "data.options={num_documents: 200, num_labels: 10, num_words: 200}",
        "pretrain.samples=1000", "pretrain.channels=20", "model.channels=20", "train.epochs=1",
        "train.batch_size=16", "train.accelerator=cpu", "train.precision=32-true",
    ]  # fmt: skip
    settings = [part for one in small for part in ("--set", one)]
    command = ("benchmark", "comparison", "--dataset", "synthetic", "--runs", 2, "--quiet")
    more = ("--row", "Transformer", "--root", tmp_path / "root", *settings)
    assert str(ROOT) not in call(tmp_path, "found", *command, *more, python=python)
    table = (tmp_path / "runs/comparison/tables/synthetic.md").read_text(encoding="utf-8")
    assert "| Transformer |" in table


def test_wheel_predicts_from_a_shared_folder(
    python: Path, trained_run: Run, tmp_path: Path
) -> None:
    """Beside the folder there is neither data set nor run; the labels are those of the run."""
    share_run(trained_run.folder, tmp_path / "shared")
    document = {"paper": "d", "text": "w1 w2 w3", "venue": "venue1"}
    (tmp_path / "new.jsonl").write_text(json.dumps(document) + "\n", encoding="utf-8")
    command = ("predict", "shared", "--input", "new.jsonl", "--device", "cpu")
    found = call(tmp_path, "match_graph.cli", *command, python=python)
    [expected] = load(trained_run.folder, "cpu").predict([document])
    labels = [label["id"] for label in json.loads(found)["labels"]]
    assert labels == [label["id"] for label in expected["labels"]]


def test_wheel_gives_types(python: Path, tmp_path: Path) -> None:
    """mypy --strict on a consumer's script, in an environment where the wheel is installed.

    The cache is the project's own, so that torch is read once for `make check` and for this.
    """
    (tmp_path / "consumer.py").write_text(CONSUMER, encoding="utf-8")
    call(
        tmp_path, "mypy", "--strict", "--config-file", ROOT / "pyproject.toml", "--cache-dir",
        ROOT / ".mypy_cache", "--python-executable", python, tmp_path / "consumer.py",
    )  # fmt: skip
