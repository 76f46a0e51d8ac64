"""What the command line prints behind a run: the commands that come next."""

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from match_graph.cli.show import list_commands
from match_graph.config import load_config
from match_graph.runs import Run


def make_run(folder: Path, settings: list[str]) -> Run:
    """What `list_commands` asks of a run."""
    parts: dict[str, Any] = {
        "folder": folder,
        "config": load_config(None, ["dataset=synthetic", *settings]),
        "dataset": SimpleNamespace(root=folder.parent),
        "model": SimpleNamespace(is_neural=True),
    }
    return cast(Run, SimpleNamespace(**parts))


def test_list_commands_predict_confirms_own_code(tmp_path: Path) -> None:
    """`predict` has the run's own encoder and head, the others have no need of them."""
    run = make_run(tmp_path / "r1", ["model.encoder=mine:Mine", "model.head=my own.py:Head"])
    predict, build, compare = list_commands(run)
    assert shlex.split(predict)[-2:] == ["--encoder=mine:Mine", "--head=my own.py:Head"]
    assert "mine:Mine" not in build + compare
    predict, *_ = list_commands(make_run(tmp_path / "r1", ["model.head=linear"]))
    assert predict.endswith("--top-k 5")


def test_list_commands_compares_on_the_same_data(tmp_path: Path) -> None:
    """Features, counts and dropped fields of the run, and the ablations that a baseline takes."""
    data = [
        "data.min_count=1",
        "data.features={document: /tmp/my own.npy}",
        "data.drop_fields=[venue, author]",
        "data.options={num_documents: 200}",
    ]
    ablation = "ablation=[no-venue, no-hierarchy, no-pretrain]"
    run = make_run(tmp_path / "run", [*data, ablation])
    words = shlex.split(list_commands(run)[2])
    settings = [word.removeprefix("--set=") for word in words if word.startswith("--set=")]
    there = run.config.data.model_copy(update={"drop_fields": ["author"]})
    assert load_config(None, settings).data == there
    assert [word for word in words if "ablation" in word] == ["--ablation=no-venue"]
    everything = make_run(tmp_path / "run", [*data, "ablation=[no-metadata]"])
    assert "drop_fields" not in list_commands(everything)[2]
    plain = list_commands(make_run(tmp_path / "run", []))[2]
    assert plain.endswith("--encoder tfidf_linear")


def test_run_help_says_where_presets_and_devices_are(call) -> None:
    """Not every encoder has the same presets, and `--devices` is a number."""
    code, printed, _ = call("run", "--help")
    text = " ".join(printed.replace("│", " ").split())
    assert code == 0
    assert "preset, listed by `encoders NAME`; your settings win." in text
    assert "train.accelerator says which." in text
