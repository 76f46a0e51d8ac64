"""Files of a run folder: written beside, read without unpickling, claimed once."""

from pathlib import Path

import pytest
import torch

from match_graph.config import load_config
from match_graph.errors import CheckpointError
from match_graph.training import files


class Payload:
    def __reduce__(self):
        return (Path.touch, (Path("touched-by-a-pickle"),))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """An error while writing keeps what was there, and no file beside it."""
    path = tmp_path / "metrics.json"
    files.write_json(path, {"a": 1})

    def fail(beside: Path) -> None:
        beside.write_text("half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        files.write_beside(path, fail)
    assert files.read_json(path) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.json"]


def test_tensors_and_states_read_back(tmp_path: Path) -> None:
    """Safetensors and checkpoints give back what was written."""
    tensors = {"a": torch.randn(3, 2), "b": torch.arange(4)}
    files.write_tensors(tmp_path / "t.safetensors", tensors)
    read = files.read_tensors(tmp_path / "t.safetensors")
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    files.write_state(tmp_path / "s.pt", {"epoch": 3, "model": tensors, "history": {"x": [1.5]}})
    state = files.read_state(tmp_path / "s.pt")
    assert (state["epoch"], state["history"]) == (3, {"x": [1.5]})


def test_a_pickle_is_refused_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crafted checkpoint is one sentence, and nothing in it runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "checkpoint" / "state.pt"
    path.parent.mkdir()
    torch.save(Payload(), path)
    with pytest.raises(CheckpointError) as caught:
        files.read_state(path)
    assert str(caught.value) == (
        f"The checkpoint '{path}' must be readable to resume, but it is not (UnpicklingError); "
        f"delete the folder '{path.parent}' to train again."
    )
    assert not (tmp_path / "touched-by-a-pickle").exists()


@pytest.mark.parametrize("name", ["t.safetensors", "r.json"])
def test_a_broken_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    """Half a file names itself and what to do."""
    path = tmp_path / name
    path.write_bytes(b"{")
    read = files.read_tensors if name.startswith("t") else files.read_json
    with pytest.raises(CheckpointError, match=f"'{path}' must be a "):
        read(path)


def test_a_run_folder_is_claimed_resumed_or_refused(tmp_path: Path) -> None:
    """New and equal settings pass; other settings, other files and a plain file do not."""
    config, folder = load_config(None, ["seed=1"]), tmp_path / "run"
    files.claim_run_folder(folder, config, overwrite=False)
    files.claim_run_folder(folder, config, overwrite=False)
    assert files.open_run_folder(folder) == config
    with pytest.raises(CheckpointError) as caught:
        files.claim_run_folder(folder, load_config(None, ["seed=2"]), overwrite=False)
    assert str(caught.value) == (
        f"The run in '{folder}' has other settings (seed is 1 there and 2 here); "
        f"choose another folder with --out, or delete it with --overwrite."
    )
    files.claim_run_folder(folder, load_config(None, ["seed=2"]), overwrite=True)
    assert files.open_run_folder(folder).seed == 2


def test_overwrite_never_deletes_what_is_no_run(tmp_path: Path) -> None:
    """A folder with other files is refused even with overwrite, and stays."""
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(CheckpointError) as caught:
        files.claim_run_folder(tmp_path, load_config(), overwrite=True)
    assert str(caught.value) == (
        f"A run must start in a new or empty folder, but '{tmp_path}' holds other files "
        f"(thesis.tex); choose another with --out."
    )
    files.write_beside(tmp_path / "config.yaml", lambda path: path.write_text("my: app"))
    with pytest.raises(CheckpointError, match=r"holds other files \(thesis.tex\)"):
        files.claim_run_folder(tmp_path, load_config(), overwrite=True)
    assert (tmp_path / "thesis.tex").exists()
    with pytest.raises(CheckpointError, match="is a file; choose another"):
        files.claim_run_folder(tmp_path / "thesis.tex", load_config(), overwrite=True)


def test_a_folder_that_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    """A missing folder and one without config.yaml."""
    with pytest.raises(CheckpointError) as caught:
        files.open_run_folder(tmp_path / "none")
    assert str(caught.value) == (
        f"A run must be a folder that match-graph wrote, but there is none at "
        f"'{tmp_path / 'none'}'; check the path."
    )
    with pytest.raises(CheckpointError) as caught:
        files.open_run_folder(tmp_path)
    assert str(caught.value) == (
        f"A run folder holds config.yaml, but '{tmp_path}' has none; check the path, or start a "
        f"run with `match-graph run DATASET --out {tmp_path}`."
    )
