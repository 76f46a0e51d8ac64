"""Typed readers of a run folder's small files."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from match_graph.config import Config
from match_graph.errors import CheckpointError
from match_graph.io.files import remove_files
from match_graph.io.run_folder import HISTORY, METRICS, MODEL, RECORD, RELIABILITY
from match_graph.runs.folder import open_run_folder
from match_graph.runs.readers import (
    check_evaluated,
    read_bins,
    read_history,
    read_metrics,
    read_record,
)
from match_graph.training import checkpoint

RIGHT_RECORD = {
    "dataset": "toy",
    "data_checksum": "0" * 64,
    "num_train_documents": 10,
    "seed": 0,
    "processes": 1,
    "seconds": {"build": 0.5},
    "parameters": 12,
    "peak_memory_mib": {"host": 100.0},
    "device": {"processor": "x86_64", "threads": 2},
    "versions": {"torch": "2"},
    "python": "3.11.0",
    "git": None,
}


def test_read_metrics_readers_give_what_stages_write(trained_run) -> None:
    """Files of a trained and evaluated run are read."""
    folder = trained_run.folder
    assert read_metrics(folder).keys() == {"valid", "test"}
    assert read_record(folder)["seed"] == 0
    history, bins = read_history(folder), read_bins(folder)
    assert history is not None
    assert history["epoch"].tolist() == list(range(1, len(history) + 1))
    assert bins is not None
    assert bins["bin"].min() == 1


def test_check_evaluated_names_the_command_that_goes_on(
    trained_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unfinished run is refused with the command that resumes it."""
    folder = Path(shutil.copytree(trained_run.folder, tmp_path / "run"))
    config, must = open_run_folder(folder), "It must be whole"
    check_evaluated(folder, config, must)

    def refuse(config: Config) -> str:
        with pytest.raises(CheckpointError) as caught:
            check_evaluated(folder, config, must)
        return str(caught.value)

    remove_files(folder / METRICS)
    assert refuse(config) == (
        f"{must}, but '{folder}' has no {METRICS}; go on with `match-graph evaluate {folder}`."
    )
    state = SimpleNamespace(epoch=1, is_over=lambda config: False)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "has_state", lambda path: True)
        patch.setattr(checkpoint, "read_state", lambda path: {})
        patch.setattr(checkpoint.TrainState, "from_checkpoint", lambda content, path: state)
        assert "finish it with the command that started it." in refuse(config)
    remove_files(folder / MODEL)
    command = f"match-graph run synthetic --config {folder}/config.yaml --out {folder}"
    assert refuse(config) == (
        f"{must}, but '{folder}' has no {MODEL} and no baseline; go on with `{command}`."
    )
    own = config.change("model", encoder="mine:My")
    assert refuse(own).endswith(f"go on with `{command} --set=model.encoder=mine:My`.")


def test_read_history_readers_of_what_may_be_missing_give_none(tmp_path: Path) -> None:
    """Missing histories and bins are None."""
    assert read_history(tmp_path) is None
    assert read_bins(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"valid": {"P@1": float("nan")}}, "it holds NaN, which is no JSON number"),
        ({"valid": {"P@1": "high"}}, "valid.P@1: Input should be a valid number"),
        ({"valid": {"P@1": True}}, "valid.P@1: Input should be a valid number"),
        ({"valid": []}, "valid: Input should be a valid dictionary"),
        ({"other": {}}, "other.[key]: Input should be 'train', 'valid' or 'test'"),
        ({"test": {"P@1": 0.5}}, "valid is missing"),
        ([], "it holds no object but list"),
    ],
)
def test_read_metrics_refuses_other_content(tmp_path: Path, content: Any, reason: str) -> None:
    """Wrong content is refused with its place."""
    (tmp_path / METRICS).write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as caught:
        read_metrics(tmp_path)
    assert reason in str(caught.value)
    assert str(tmp_path / METRICS) in str(caught.value)


def test_read_metrics_is_one_sentence(tmp_path: Path) -> None:
    """The error says what must hold, what was found and what to do."""
    (tmp_path / METRICS).write_text('{"valid": {"P@1": "x"}}')
    with pytest.raises(CheckpointError) as caught:
        read_metrics(tmp_path)
    assert str(caught.value) == (
        f"'{tmp_path / METRICS}' must hold measures of splits, but it cannot be used (valid.P@1: "
        f"Input should be a valid number); write it again with `match-graph evaluate`."
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"data_checksum": 5}, "data_checksum: Input should be a valid string"),
        ({"seconds": {"train": -1.0}}, "seconds.train: Input should be greater than or equal"),
        ({"seconds": [1]}, "seconds: Input should be a valid dictionary"),
        ({"peak_memory_mib": {"host": "much"}}, "peak_memory_mib.host: Input should be"),
        ({"device": None}, "device: Input should be a valid dictionary"),
        ({"twins": {"test": {"documents": -1, "of": 4}}}, "twins.test.documents: Input should be"),
        ({"twins": {"other": {"documents": 1, "of": 4}}}, "twins.other"),
        ({"parameters": -1}, "parameters: Input should be greater than or equal to 0"),
    ],
)
def test_read_record_refuses_other_content(tmp_path: Path, change: dict, reason: str) -> None:
    """A wrong value of any entry that is read is refused."""
    (tmp_path / RECORD).write_text(json.dumps({**RIGHT_RECORD, **change}))
    with pytest.raises(CheckpointError, match="must hold how the run was made") as caught:
        read_record(tmp_path)
    assert reason in str(caught.value)
    (tmp_path / RECORD).write_text(json.dumps(RIGHT_RECORD))
    assert read_record(tmp_path) == RIGHT_RECORD


@pytest.mark.parametrize(
    "content",
    ["", "\xff", "epoch\n", "loss\n1\n", "epoch,loss\n1,a\n", "epoch,loss\n2,1\n",
     "epoch,loss\nx,1\n", 'epoch,loss\n1,2\n"3', "epoch,loss\n1,2,3,4\n1,2,3,4,5\n",
     "epoch,loss\n1,True\n"],
)  # fmt: skip
def test_read_history_refuses_other_content(tmp_path: Path, content: str) -> None:
    """Empty or cut files, other columns or epochs, and no numbers are refused."""
    (tmp_path / HISTORY).write_bytes(content.encode("latin-1"))
    if content == "epoch\n":
        table = read_history(tmp_path)
        assert table is not None
        assert table.empty
        return
    with pytest.raises(CheckpointError) as caught:
        read_history(tmp_path)
    assert str(caught.value).startswith(
        f"'{tmp_path / HISTORY}' must hold losses and measures of each epoch, but it cannot be "
        f"used ("
    )
    assert str(caught.value).endswith("); write it again with --overwrite.")


@pytest.mark.parametrize(
    "row",
    ["valid,ranked,1,2,0.5,x", "valid,ranked,1,2,1.5,0", "valid,ranked,1,-2,0.5,0",
     "train,ranked,1,2,0.5,0", "valid,some,1,2,0.5,0", "valid,ranked,a,2,0.5,0", "valid"],
)  # fmt: skip
def test_read_bins_refuses_other_content(tmp_path: Path, row: str) -> None:
    """A wrong value in any column is refused."""
    head = "split,labels,bin,pairs,probability,gold\n"
    (tmp_path / RELIABILITY).write_text(f"{head}valid,ranked,1,2,0.5,0.5\nvalid,all,1,0,,\n")
    assert len(read_bins(tmp_path)) == 2
    (tmp_path / RELIABILITY).write_text(f"{head}{row}\n")
    with pytest.raises(CheckpointError, match="must hold bins of probabilities, but it cannot"):
        read_bins(tmp_path)
