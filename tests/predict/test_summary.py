"""What a finished run shows."""

from pathlib import Path

from match_graph.predict.summary import list_files, next_commands, show_examples
from match_graph.runs import start_run


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
