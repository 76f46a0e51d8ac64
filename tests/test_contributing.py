"""The encoder that CONTRIBUTING shows is complete: it runs from the command line as it stands."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from match_graph import cli
from match_graph.testing import assert_encoder, toy_documents, write_match_folder

CONTRIBUTING = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
NAME = "my_encoder:MeanEncoder"


def shown_encoder() -> str:
    """The first block of Python below the heading "## A new encoder"."""
    section = CONTRIBUTING.read_text(encoding="utf-8").split("\n## A new encoder\n", 1)[1]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block, "the section must hold a ```python block"
    return block[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the user's file and the toy documents."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_encoder", raising=False)
    importlib.invalidate_caches()
    (tmp_path / "my_encoder.py").write_text(shown_encoder())
    write_match_folder(tmp_path / "toy")
    return tmp_path


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    """Runs the command line in this process: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["match-graph", *arguments])
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return run


SMALL = ["--set", "train.epochs=1", "--set", "pretrain.samples=2000", "--quiet"]


def test_the_shown_encoder_runs_and_predicts(folder: Path, call) -> None:
    """`run`, `evaluate` and `predict` with module:Class, from the folder that it lies in."""
    code, printed, error = call("run", "toy", "--encoder", NAME, "--out", "mean", *SMALL)
    assert (code, error) == (0, "")
    assert "test, label prior" in printed
    assert call("evaluate", "mean", "--encoder", NAME, "--quiet")[0] == 0
    lines = "".join(f"{json.dumps(record)}\n" for record in toy_documents()["test"])
    (folder / "documents.jsonl").write_text(lines)
    arguments = ["predict", "mean", "--input", "documents.jsonl", "--quiet"]
    code, printed, _ = call(*arguments, "--encoder", NAME)
    assert code == 0
    assert [len(json.loads(line)["labels"]) for line in printed.splitlines()] == [5, 5]
    code, _, error = call(*arguments)
    assert code == 1
    assert error == (
        f"Error: The run in 'mean' was trained with the encoder '{NAME}', and code is imported "
        f"only by request, found encoder=None; load it with encoder='{NAME}' "
        f"(--encoder in the shell).\n"
    )


def test_the_shown_encoder_keeps_the_contract(folder: Path) -> None:
    """By the check that CONTRIBUTING names; about 20 lines below the imports."""
    sys.path.append(str(folder))
    assert_encoder(importlib.import_module("my_encoder").MeanEncoder)
    lines = [line for line in shown_encoder().splitlines() if line.strip()]
    assert len([line for line in lines if not re.match("import|from", line)]) <= 20


BROKEN = {
    "output": (
        lambda code: code.replace("torch.relu(self.linear(mean))", "mean"),
        f"The encoder '{NAME}' must keep the contract: it gives 'document' with out_channels = 64, "
        f"so 'document' must be [2, 64], found [2, 100]; test it with "
        f"match_graph.testing.assert_encoder.",
    ),
    "no-output": (
        lambda code: code.replace("return EncoderOutput", "EncoderOutput"),
        f"The encoder '{NAME}' must keep the contract: forward must give an EncoderOutput, found "
        f"NoneType.",
    ),
    "no-width": (
        lambda code: code.replace("self.out_channels = config.hidden_channels", "").replace(
            "self.out_channels", "64"
        ),
        f"The encoder '{NAME}' must keep the contract: 'out_channels' must be set in __init__ to a "
        f"positive number, found None.",
    ),
    "gives": (
        lambda code: code.replace("    class Config", "    gives = 'papers'\n\n    class Config"),
        f"The encoder '{NAME}' must keep the contract: 'gives' must be one of ['document', "
        f"'tokens'], found 'papers'.",
    ),
    "needs": (
        lambda code: code.replace("    class Config", "    needs = 'words'\n\n    class Config"),
        f"The encoder '{NAME}' must keep the contract: 'needs' must be a set out of ['graph', "
        f"'text', 'tokens'], found 'words'.",
    ),
    "reset": (
        lambda code: code.replace("def reset_parameters", "def reset"),
        f"The encoder '{NAME}' must keep the contract: it must define 'reset_parameters', found "
        f"none.",
    ),
    "import": (
        lambda code: "import no_such_module\n" + code,
        f"The code of the encoder '{NAME}' must be importable, but it raised ModuleNotFoundError: "
        f"No module named 'no_such_module' (my_encoder.py:1); mend it.",
    ),
    "head": (
        lambda code: code.replace("    class Config", "    gives = 'tokens'\n\n    class Config"),
        f"The head must take what the encoder gives, but 'linear' takes document and '{NAME}' "
        f"gives tokens; choose model.head from ['label_attention'].",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_class_that_breaks_the_contract_is_one_sentence(folder: Path, call, name: str) -> None:
    """Exit code 1 before any work, no run folder, the choices where there are some."""
    spoil, sentence = BROKEN[name]
    (folder / "my_encoder.py").write_text(spoil(shown_encoder()))
    more = ["--set", "model.head=linear"] if name == "head" else []
    code, printed, error = call("run", "toy", "--encoder", NAME, "--out", "x", *SMALL, *more)
    assert (code, printed) == (1, "")
    assert error.replace(f"{folder}/", "") == f"Error: {sentence}\n"
    assert not (folder / "x").exists()
