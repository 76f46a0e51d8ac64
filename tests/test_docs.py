"""README and the site: settings, commands and names on the pages exist; no page is lost."""

import ast
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import torch
from pydantic import BaseModel
from typer.main import get_command

import match_graph as mg
from match_graph.cli import app
from match_graph.nn.contract import check_head_class

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    path for path in DOCS.rglob("*.md") if not {"_build", "generated"} & {*path.parts}
)  # fmt: skip
TEXT = {str(path.relative_to(DOCS)): path.read_text(encoding="utf-8") for path in PAGES}
TEXT["README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")
BY_PAGE = pytest.mark.parametrize("page", TEXT)


@pytest.fixture
def settings_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The hook that writes the page of settings; Sphinx itself is not needed."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    yield importlib.import_module("settings_page")
    for name in {"settings_page", "api_pages"} - before:
        sys.modules.pop(name, None)


def list_keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from list_keys(inner, f"{prefix}{name}.")
        else:
            yield prefix + name
        for one in get_args(inner):  # by a name of the user's
            if isinstance(one, type) and issubclass(one, BaseModel):
                yield from list_keys(one, f"{prefix}{name}.TYPE.")


def find_unknown(keys: Iterable[str]) -> set[str]:
    """Keys that are no settings; the node types of features are the user's."""
    given = {re.sub(r"^data\.features\.\w+", "data.features.TYPE", key) for key in keys}
    return given - all_keys() - {"data.features.TYPE"}


def all_keys() -> set[str]:
    keys = set(list_keys(mg.Config, ""))
    for registry, key in (
        (mg.ENCODERS, "model.encoder_config."),
        (mg.BASELINES, "model.encoder_config."),
        (mg.HEADS, "model.head_config."),
    ):
        for cls in registry.values():
            keys |= set(list_keys(cls.Config, key))
    return keys


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", TEXT[page], re.MULTILINE | re.DOTALL)


def test_settings_page_lists_every_key(settings_page: ModuleType) -> None:
    """Of Config, encoders, heads and baselines, each with a meaning."""
    rows = re.findall(r"^\| `([\w.]+)` \|(.*)\|$", settings_page.render_page(), re.MULTILINE)
    assert {key for key, _ in rows} == all_keys()
    assert [key for key, rest in rows if not rest.rpartition("|")[2].strip()] == []


def test_settings_page_names_every_registered_class(settings_page: ModuleType) -> None:
    """A section each."""
    page = settings_page.render_page()
    for name in (*mg.ENCODERS, *mg.HEADS, *mg.BASELINES):
        assert f"### `{name}`" in page


def test_every_page_is_in_a_toctree() -> None:
    """All but the index, each from a page of its folder or above."""
    listed = {
        str((path.parent / entry.strip()).relative_to(DOCS))
        for path in PAGES
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", path.read_text(), re.DOTALL)
        for entry in tree.splitlines()
        if entry.strip() and not entry.startswith(":")
    }
    assert {name.removesuffix(".md") for name in TEXT} - {"index", "README"} <= listed
    missing = {entry for entry in listed if not entry.startswith("generated/")}
    assert missing <= {name.removesuffix(".md") for name in TEXT}


@BY_PAGE
def test_commands_and_options_of_pages_exist(page: str) -> None:
    """Every `match-graph` line: sub-command, flags (required ones too), settings, encoders."""
    commands = get_command(app).commands
    shown = [line for block in blocks(page, "") for line in block.splitlines()]
    inline = re.findall(r"`(match-graph [^`]+)`", TEXT[page])  # may leave out what is required
    for line in (
        line.strip() for line in shown + inline if line.strip().startswith("match-graph ")
    ):
        name = line.split()[1]
        if name == "COMMAND":
            continue
        assert name in commands, line
        options = {flag for item in commands[name].params for flag in item.opts}
        assert set(re.findall(r"(?<= )--[\w-]+", line)) - {"--help"} <= options, line
        required = {item.opts[0] for item in commands[name].params if item.required}
        needed = {flag for flag in required if flag.startswith("--")}
        assert line in inline or needed <= {*line.split()}, line
        assert not find_unknown(re.findall(r"--set '?([\w.]+)=", line)), line
        for encoder in re.findall(r"--encoder (\w+)(?![\w:])", line):
            assert encoder in mg.ENCODERS or encoder in mg.BASELINES, line


@BY_PAGE
def test_settings_named_on_pages_exist(page: str) -> None:
    """`section.key` and `section.key=value`, in running text."""
    named = re.findall(r"`((?:data|pretrain|model|train)\.[\w.]+)(?:=[^`]*)?`", TEXT[page])
    files = {name for name in named if name.endswith((".json", ".pt", ".safetensors"))}
    assert not find_unknown({*named} - files)


@BY_PAGE
def test_python_of_pages_uses_public_names(page: str) -> None:
    """Blocks compile; what they import of match_graph, and `mg.NAME`, exists."""
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("match_graph"):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, alias.name) for alias in node.names)
        assert set(re.findall(r"\bmg\.(\w+)", block)) <= set(mg.__all__)


def test_hypernymy_page_runs() -> None:
    """Its block computes a gradient."""
    for block in blocks("concepts/hypernymy.md", "python"):
        exec(block, {})


def test_own_head_keeps_the_contract() -> None:
    """The one that the page shows: its scores, and a gradient for every parameter."""
    (block,) = (text for text in blocks("how_to/own_encoder.md", "python") if "(Head)" in text)
    names: dict[str, type[mg.Head]] = {}
    exec(block, names)
    head_cls = names["ParentHead"]
    check_head_class(head_cls, "my_head:ParentHead")
    dag = mg.Hierarchy(torch.tensor([[1, 2, 2], [0, 0, 1]]), 3)
    head = head_cls(4, 3, head_cls.Config(), mg.LabelGraph(dag))
    head.set_prior(torch.tensor([9, 5, 1]), 10)
    logits = head(mg.EncoderOutput(torch.randn(5, 4), None, torch.arange(6)))
    assert logits.shape == (5, 3)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())


def test_makefile_builds_the_site() -> None:
    """`make docs` and `make docs-check`; CI runs the latter, where warnings are errors."""
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^docs: \.venv/\.docs", makefile, re.MULTILINE)
    assert re.search(r"^docs-check: \.venv/\.docs.*\n.*-D plot_gallery=0", makefile, re.MULTILINE)
    assert "sphinx -W --keep-going" in makefile
    assert "docs-check" in (ROOT / ".ci/run").read_text()


def test_site_says_what_was_never_run() -> None:
    """Several GPUs."""
    assert "several GPUs and FSDP on CUDA never" in " ".join(TEXT["index.md"].split())


def test_data_set_class_of_the_page_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page says: saved as a file, named by it."""
    page = blocks("how_to/own_data.md", "python")
    (block,) = (text for text in page if "(CorpusDataset)" in text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "papers.py").write_text(block, encoding="utf-8")
    rows = ["id,split,title,authors,keywords", "1,train,On graphs,Ada; Bo,graphs"]
    (tmp_path / "papers.csv").write_text("\n".join([*rows, "2,valid,More,Bo,graphs"]))
    dataset = mg.open_dataset("papers.py:Papers", root=tmp_path / "root", path="papers.csv")
    assert dataset.names("author").tolist() == ["Ada", "Bo"]
    assert dataset.name == "papers"


def test_features_in_memory_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document by its id and one with its vector are predicted alike."""
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("how_to/own_features.md", "python")
    names: dict[str, Any] = {}
    exec(block, names)
    known, new = names["classifier"].predict([names["known"], names["new"]])
    assert known["labels"] == new["labels"]


def test_export_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training documents have targets, those of valid and test have none; batches bring them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MATCH_GRAPH_HOME", str(tmp_path / "home"))
    names: dict[str, Any] = {}
    for block in blocks("how_to/export.md", "python"):
        exec(block, names)
    dataset, y = names["dataset"], names["y"]
    train = dataset.documents("train_mask")
    assert torch.equal(y[train].sum(dim=1).long(), dataset.targets.ptr.diff()[train])
    assert y.sum() == y[train].sum() > 0
    assert names["target"].shape[1] == dataset.num_labels


def test_predictions_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They print the labels above the thresholds."""
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("how_to/predict.md", "python")
    exec(block, {})
    assert "'probability': " in capsys.readouterr().out
