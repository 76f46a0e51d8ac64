"""What a finished run shows."""

import shlex
from pathlib import Path

import pytest

from match_graph.cli import main
from match_graph.predict.summary import list_files, next_commands, show_examples
from match_graph.runs import Run, start_run


def test_show_examples_finished_run_shows_examples_files(tmp_path: Path, small_settings) -> None:
    """A finished run shows examples files and commands.

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
    """The suggested `build` names the run's options and root, so that it opens what is built."""
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
