"""Summary of a finished run."""

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from match_graph.cli import main
from match_graph.config import load_config
from match_graph.predict.summary import list_files, next_commands, show_examples
from match_graph.runs import Run, start_run


def make_run(folder: Path, settings: list[str]) -> Run:
    """Stand-in for a run with these settings, with the attributes that `next_commands` reads."""
    parts: dict[str, Any] = {
        "folder": folder,
        "shown": folder,
        "config": load_config(None, ["dataset=synthetic", *settings]),
        "dataset": SimpleNamespace(root=folder.parent),
        "model": SimpleNamespace(is_neural=True),
    }
    return cast(Run, SimpleNamespace(**parts))


def test_show_examples_finished_run_shows_examples_files(tmp_path: Path, small_settings) -> None:
    """A finished run shows example predictions, files and commands.

    Three test documents with text, gold labels and ranked predictions; existing paths.
    """
    run = start_run("synthetic", small_settings(), tmp_path / "run", tmp_path / "root")
    run.train()
    run.evaluate()
    examples = show_examples(run)
    assert len(examples) == 3
    table = run.dataset.table("document").set_index("id")
    for example in examples:
        assert table.loc[example.document, "split"] == "test"
        assert example.text
        assert len(example.text) <= 120
        assert example.gold
        assert set(example.metadata) == {"venue", "author", "reference"}
        probabilities = [probability for _, probability in example.predicted]
        assert len(probabilities) == 5
        assert probabilities == sorted(probabilities, reverse=True)
    assert show_examples(run) == examples
    paths = list_files(run.folder)
    assert str(run.folder / "metrics.json") in paths
    assert all(Path(path).exists() for path in paths)
    commands = next_commands(run)
    assert len(commands) == 3
    assert all(command.startswith("match-graph ") for command in commands)


def test_next_commands_open_the_same_data_set(
    trained_run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The suggested `build` has the run's options and root."""
    _, build, _ = next_commands(trained_run)
    assert "--set=data.options.num_documents=400" in build
    built = Path(trained_run.dataset.root, "built")
    before = {path: path.stat().st_mtime_ns for path in built.iterdir()}
    monkeypatch.setattr("sys.argv", shlex.split(build))
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert "synthetic" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in built.iterdir()} == before


def test_next_commands_predict_confirms_own_code(tmp_path: Path) -> None:
    """The suggested `predict` names the run's own encoder and head, the others do not."""
    run = make_run(tmp_path / "r1", ["model.encoder=mine:Mine", "model.head=my own.py:Head"])
    predict, build, compare = next_commands(run)
    assert shlex.split(predict)[-2:] == ["--encoder=mine:Mine", "--head=my own.py:Head"]
    assert "mine:Mine" not in build + compare
    predict, *_ = next_commands(make_run(tmp_path / "r1", ["model.head=linear"]))
    assert predict.endswith("--top-k 5")


def test_next_commands_compares_on_the_same_data(tmp_path: Path) -> None:
    """The model to compare with gets the run's features, counts, fields and ablations."""
    data = [
        "data.min_count=1",
        "data.features={document: /tmp/my own.npy}",
        "data.drop_fields=[venue, author]",
        "data.options={num_documents: 200}",
    ]
    ablation = "ablation=[no-venue, no-hierarchy, no-pretrain]"
    run = make_run(tmp_path / "run", [*data, ablation])
    words = shlex.split(next_commands(run)[2])
    settings = [word.removeprefix("--set=") for word in words if word.startswith("--set=")]
    there = run.config.data.model_copy(update={"drop_fields": ["author"]})
    assert load_config(None, settings).data == there
    assert [word for word in words if "ablation" in word] == ["--ablation=no-venue"]
    everything = make_run(tmp_path / "run", [*data, "ablation=[no-metadata]"])
    assert "drop_fields" not in next_commands(everything)[2]
    plain = next_commands(make_run(tmp_path / "run", []))[2]
    assert plain.endswith("--encoder tfidf_linear")
