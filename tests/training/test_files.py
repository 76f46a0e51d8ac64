"""Files of a run folder: written beside, read without unpickling, claimed once."""

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
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


def write_tables(folder: Path) -> dict[str, Callable[[], None]]:
    """Every way in which a run folder's files are written, by name; about 4 MB each."""
    table = pd.DataFrame({"a": torch.rand(500_000).numpy()})
    tensors = {"a": torch.rand(1_000_000)}
    return {
        "s.pt": lambda: files.write_state(folder / "s.pt", tensors),
        "m.safetensors": lambda: files.write_tensors(folder / "m.safetensors", tensors),
        "t.parquet": lambda: files.write_beside(folder / "t.parquet", table.to_parquet),
        "h.csv": lambda: files.write_beside(folder / "h.csv", table.to_csv),
        "m.json": lambda: files.write_json(folder / "m.json", {"a": "x" * 4_000_000}),
    }


@pytest.mark.parametrize("name", ["s.pt", "m.safetensors", "t.parquet", "h.csv", "m.json"])
def test_a_full_disk_keeps_the_last_good_state(tmp_path: Path, name: str) -> None:
    """Files may grow to 1 MB: whoever writes, the error names the file, and the old one stays."""
    write = write_tables(tmp_path)[name]
    write()
    before = (tmp_path / name).read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # else the process would be killed
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limit[1]))
        with pytest.raises(OSError, match="File too large") as caught:
            write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / name))
    assert (tmp_path / name).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_truncated_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    """With a warning; if the rename was not reached, without; both broken is one sentence."""
    path = tmp_path / "checkpoint" / "state.pt"
    assert not files.has_state(path)
    for epoch in (1, 2, 3):
        files.write_state(path, {"epoch": epoch})
    warned: list[str] = []
    assert files.read_state(path, warned.append) == {"epoch": 3}
    path.write_bytes(path.read_bytes()[:-200])
    assert files.read_state(path, warned.append) == {"epoch": 2}
    assert warned == [
        f"the checkpoint '{path}' cannot be read (RuntimeError); going on from the one before"
    ]
    path.unlink()
    assert files.has_state(path)
    assert files.read_state(path, warned.append) == {"epoch": 2}
    assert len(warned) == 1
    for broken in (path, path.with_name("state.pt.previous")):
        broken.write_bytes(b"PK half")
    with pytest.raises(CheckpointError) as caught:
        files.read_state(path)
    assert str(caught.value) == (
        f"The checkpoint '{path}' must be readable to resume, but it is not (UnpicklingError); "
        f"delete the folder '{path.parent}' to train again."
    )
    files.write_state(path, {"epoch": 4}, keep_previous=False)
    assert [place.name for place in path.parent.iterdir()] == ["state.pt"]
    files.remove_state(path)
    assert not files.has_state(path)


def test_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Files and folders of processes that are gone; those of a live one stay."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / "checkpoint").mkdir()
    dead = [
        tmp_path / f".model.safetensors.{gone.pid}.tmp",
        tmp_path / "checkpoint" / f".state.pt.{gone.pid}.tmp",
        tmp_path / f".folder.model.safetensors.{gone.pid}.tmp" / "model.safetensors",
    ]
    kept = [tmp_path / f".metrics.json.{os.getpid()}.tmp", tmp_path / ".mine.tmp"]
    for path in [*dead, *kept]:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    files.remove_leftovers(tmp_path)
    assert not any(path.exists() for path in dead)
    assert not dead[-1].parent.exists()
    assert all(path.exists() for path in kept)


def test_how_many_share_the_work_may_differ(tmp_path: Path) -> None:
    """A run goes on with other devices; any other setting is refused, and it alone is named."""
    folder = tmp_path / "run"
    config = load_config(None, ["train.devices=4", "train.strategy=fsdp"])
    files.claim_run_folder(folder, config, overwrite=False)
    files.claim_run_folder(folder, load_config(None, ["train.num_nodes=2"]), overwrite=False)
    other = load_config(None, ["train.num_nodes=2", "train.deterministic=true"])
    with pytest.raises(CheckpointError) as caught:
        files.claim_run_folder(folder, other, overwrite=False)
    assert str(caught.value) == (
        f"The run in '{folder}' has other settings (train.deterministic is False there and True "
        f"here); choose another folder with --out, or delete it with --overwrite."
    )


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


def test_what_a_process_left_is_removed_before_somebody_asks_about_it(tmp_path: Path) -> None:
    """One that has ended is listed until its parent takes notice; it writes no more."""
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still listed
    path = tmp_path / f".model.safetensors.{process.pid}.tmp"
    path.touch()
    mine = tmp_path / f".model.safetensors.{os.getpid()}.tmp"
    mine.touch()
    files.remove_leftovers(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [mine.name]
    process.wait()
