"""Files of a run folder: written beside, read without unpickling, claimed once."""

import errno
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from pydantic import BaseModel

from match_graph.errors import CheckpointError
from match_graph.io import files
from match_graph.io.manifest import MANIFEST, read_manifest, write_manifest
from match_graph.io.run_folder import CONFIG, FITTED, METRICS, STATE


class Payload:
    def __reduce__(self):
        return (Path.touch, (Path("touched-by-a-pickle"),))


def test_write_json_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """A failed write keeps the old file and leaves no temporary one."""
    path = tmp_path / "metrics.json"
    files.write_json(path, {"a": 1})

    def fail(beside: Path) -> None:
        beside.write_text("half")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        files.write_beside(path, fail)
    assert files.read_json(path) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.json"]


def test_find_run_needs_the_settings_of_a_run(tmp_path: Path) -> None:
    """A manifest without the settings of a run beside it is not that of a run."""
    (tmp_path / MANIFEST).write_text('{"name": "an app"}')
    path = tmp_path / "graph" / "out.json"
    files.write_json(path, {"a": 1})
    assert files.read_json(path) == {"a": 1}
    assert files.find_run(path) is None
    (tmp_path / CONFIG).touch()
    assert files.find_run(path) == (tmp_path, "graph/out.json")


def write_tables(folder: Path) -> dict[str, Callable[[], None]]:
    """Writers of all kinds of files of a run folder, by name; about 4 MB each."""
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
def test_write_state_full_disk_keeps_the_last_good_state(tmp_path: Path, name: str) -> None:
    """On a full disk the error names the file, and the old checkpoint stays."""
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


def test_read_state_truncated_checkpoint_falls_back_one_before(tmp_path: Path) -> None:
    """A truncated checkpoint falls back to the previous one; two broken ones are refused."""
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


def test_tensors_and_states_read_back(tmp_path: Path) -> None:
    """Safetensors and checkpoints make a round trip."""
    tensors = {"a": torch.randn(3, 2), "b": torch.arange(4)}
    files.write_tensors(tmp_path / "t.safetensors", tensors)
    read = files.read_tensors(tmp_path / "t.safetensors")
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    files.write_state(tmp_path / "s.pt", {"epoch": 3, "model": tensors, "history": {"x": [1.5]}})
    state = files.read_state(tmp_path / "s.pt")
    assert (state["epoch"], state["history"]) == (3, {"x": [1.5]})


def test_save_torch_disk_fault_is_an_os_error(tmp_path: Path) -> None:
    """`torch.save` to a path would raise RuntimeError, which does not say what the disk said."""
    with pytest.raises(OSError, match="No such file"):
        files.save_torch(tmp_path / "none" / "data.pt", {})
    files.save_torch(tmp_path / "data.pt", {"a": torch.ones(2)})
    assert torch.load(tmp_path / "data.pt", weights_only=True)["a"].tolist() == [1, 1]


def test_read_state_pickle_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crafted checkpoint is refused in one sentence, and its code does not run."""
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
def test_read_tensors_broken_file_is_one_sentence(tmp_path: Path, name: str) -> None:
    """A truncated file is named in one sentence that says what to do."""
    path = tmp_path / name
    path.write_bytes(b"{")
    read = files.read_tensors if name.startswith("t") else files.read_json
    with pytest.raises(CheckpointError, match=f"'{path}' must be a "):
        read(path)


def test_write_tensors_is_readable_to_whom_the_folder_is(tmp_path: Path) -> None:
    """Permissions follow the umask, not safetensors, which restricts files to their owner."""
    (tmp_path / "probe").touch()
    write_tables(tmp_path)["m.safetensors"]()
    assert (tmp_path / "m.safetensors").stat().st_mode == (tmp_path / "probe").stat().st_mode


def test_read_tensors_refuses_numbers_that_are_not_finite(tmp_path: Path) -> None:
    """A tensor with NaN or infinity is named; integers pass."""
    path = tmp_path / "t.safetensors"
    files.write_tensors(path, {"n": torch.arange(3), "a": torch.tensor([1.0, torch.inf])})
    with pytest.raises(CheckpointError) as caught:
        files.read_tensors(path)
    assert str(caught.value) == (
        f"'{path}' must be a safetensors file of finite numbers, but it cannot be used ('a' holds "
        f"values that are not finite); restore it, or write it again (a run: with "
        "--overwrite)."
    )


def begin_run(folder: Path) -> None:
    """Makes a run folder without results."""
    write_manifest(folder, {})
    (folder / CONFIG).touch()


def test_has_file_misses_what_the_manifest_lists(tmp_path: Path) -> None:
    """A file is present, never written, deleted, or outside of any run."""
    path = tmp_path / METRICS
    assert not files.has_file(path)
    begin_run(tmp_path)
    assert not files.has_file(path)
    files.write_json(path, {"a": 1})
    assert files.has_file(path)
    path.unlink()
    with pytest.raises(CheckpointError) as caught:
        files.has_file(path)
    assert str(caught.value) == (
        f"A run must have all of its files, but '{path}' cannot be used (it is missing, though "
        f"manifest.json lists it); restore it, or start the run again with --overwrite."
    )
    files.remove_files(path)
    assert not files.has_file(path)


def test_has_folder_wants_each_file_whole(tmp_path: Path) -> None:
    """A deleted, a changed and an unlisted file are refused."""
    begin_run(tmp_path)
    path = tmp_path / FITTED

    def fill(place: Path) -> None:
        (place / "trees").mkdir()
        for name in "ab":
            (place / "trees" / name).write_text(name)

    assert not files.has_folder(path)
    files.write_folder(path, fill)
    assert files.has_folder(path)
    for name, content, reason in (
        ("a", None, "it is missing, though manifest.json lists it"),
        ("b", "c", "its content is not what was written, as its SHA-256 in manifest.json shows"),
        ("c", "", "manifest.json does not list it"),
    ):
        file = path / "trees" / name
        kept = file.read_text() if file.exists() else None
        file.unlink() if content is None else file.write_text(content)
        with pytest.raises(CheckpointError) as caught:
            files.has_folder(path)
        assert str(caught.value) == (
            f"A run must have all of its files, but '{file}' cannot be used ({reason}); delete the "
            f"folder '{path}' and train again."
        )
        file.unlink() if kept is None else file.write_text(kept)
    assert files.has_folder(path)


def test_read_state_takes_the_one_before_if_a_byte_is_flipped(tmp_path: Path) -> None:
    """A flipped byte, which torch does not notice, falls back to the previous checkpoint."""
    begin_run(tmp_path)
    path = tmp_path / STATE
    for epoch in (1, 2):
        files.write_state(path, {"epoch": epoch, "a": torch.ones(100)})
    content = path.read_bytes()
    place = content.index(torch.ones(4).numpy().tobytes())
    path.write_bytes(content[:place] + b"\x01" + content[place + 1 :])
    warned: list[str] = []
    assert files.read_state(path, warned.append)["epoch"] == 1
    assert warned == [
        f"the checkpoint '{path}' cannot be read (its content is not what was written, as its "
        f"SHA-256 in manifest.json shows); going on from the one before"
    ]


def test_write_beside_lists_run_files_alone(tmp_path: Path) -> None:
    """Reports are not listed, as another process may be changing the run."""
    begin_run(tmp_path)
    for name in ("levels/0/history.csv", "report.html", "mine.txt"):
        files.write_beside(tmp_path / name, lambda path: path.write_text("x"))
    assert [*read_manifest(tmp_path)] == ["levels/0/history.csv"]


def test_a_damaged_manifest_is_one_sentence(tmp_path: Path) -> None:
    """A damaged manifest is one sentence for every writer and reader."""
    path = tmp_path / MANIFEST
    path.write_text('{"format": 1, "files": []}')
    (tmp_path / CONFIG).touch()
    sentence = (
        f"'{path}' must list the files of the run, but it cannot be used (it holds no list of "
        f"files); restore it, or start the run again with --overwrite."
    )
    metrics = tmp_path / METRICS
    for work in (files.has_file, files.remove_files, lambda path: files.write_json(path, {})):
        with pytest.raises(CheckpointError) as caught:
            work(metrics)
        assert str(caught.value) == sentence
    with pytest.raises(CheckpointError) as caught:
        files.has_folder(tmp_path / FITTED)
    assert str(caught.value) == sentence


def test_reading_makes_one_sentence_of_any_failure(tmp_path: Path) -> None:
    """Failures of the manifest, the disk and pydantic become one sentence; ours pass."""

    class Content(BaseModel):
        number: int

    def fail(error: Exception) -> None:
        raise error

    path = tmp_path / "a.json"

    def say(work: Callable[[], object]) -> str:
        with (
            pytest.raises(CheckpointError) as caught,
            files.reading(path, f"'{path}' must hold a number", "write it again"),
        ):
            work()
        return str(caught.value)

    head, tail = f"'{path}' must hold a number, but it cannot be used (", "); write it again."
    assert say(lambda: None) == f"{head}no such file or directory{tail}"
    path.write_text("{}")
    assert say(lambda: fail(files.DamagedError("it is empty"))) == f"{head}it is empty{tail}"
    assert say(lambda: fail(KeyError("x"))) == f"{head}KeyError{tail}"
    wrong = say(lambda: Content.model_validate({"number": "x"}))
    assert wrong.startswith(f"{head}number: Input should be a valid integer")
    assert say(lambda: fail(CheckpointError("It is said."))) == "It is said."
