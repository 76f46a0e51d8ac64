"""Files written beside their place and renamed."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from match_graph.errors import CorpusError
from match_graph.io.beside import (
    beside,
    finish,
    is_temporary,
    name_process,
    put_in_place,
    remove_dead,
    remove_leftovers,
    write_text_beside,
)


def test_write_text_beside_replaces_the_whole_file(tmp_path: Path) -> None:
    """An old text is replaced; nothing else stays, and the mode is that of the umask."""
    path = tmp_path / "new" / "a.txt"
    for text in ("old", "é"):
        write_text_beside(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert [file.name for file in path.parent.iterdir()] == ["a.txt"]
    (tmp_path / "probe").touch()
    assert path.stat().st_mode == (tmp_path / "probe").stat().st_mode


def test_write_text_beside_names_the_place_in_a_fault(tmp_path: Path) -> None:
    """An error names the path, if it is a folder or its folder cannot be made; nothing stays."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").touch()
    for path in (tmp_path / "a", tmp_path / "b" / "c"):
        with pytest.raises(OSError, match=r"directory|exists") as caught:
            write_text_beside(path, "text")
        assert caught.value.filename == str(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_write_text_beside_flushes_before_it_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new text is flushed under a temporary name before it replaces the old file."""
    path = tmp_path / "a"
    write_text_beside(path, "old")
    seen = []

    def flush(file: int) -> None:
        (beside,) = (other for other in tmp_path.iterdir() if other != path)
        assert is_temporary(beside)
        assert os.fstat(file).st_ino == beside.stat().st_ino
        seen.append((path.read_text(), beside.read_text()))

    monkeypatch.setattr(os, "fsync", flush)
    write_text_beside(path, "new")
    assert seen == [("old", "new")]
    assert path.read_text() == "new"


@pytest.mark.parametrize("name", ["a" * 255, "字" * 85], ids=["ascii", "utf-8"])
def test_beside_names_of_255_bytes_are_written(tmp_path: Path, name: str) -> None:
    """The longest names of file systems can be written, and leftovers of them found."""
    write_text_beside(tmp_path / name, "text")
    with beside(tmp_path / name) as place:
        place.write_text("more")
        (left,) = tmp_path.glob(".*.tmp")
        finish(place)
        place.replace(tmp_path / name)
    assert (tmp_path / name).read_text() == "more"
    dead = left.with_name(left.name.replace(f".{os.getpid()}@", f".{2**22 + 1}@"))
    dead.mkdir()
    remove_dead(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_beside_cannot_be_foreseen_or_entered(tmp_path: Path) -> None:
    """Temporary folders have random names and permissions of the owner alone."""
    rooms = []
    for _ in range(2):
        with beside(tmp_path / "a") as place:
            rooms.append(place.parent)
            assert place.name == "a"
            assert not place.exists()
            assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
            assert place.parent.name.endswith(f".{name_process()}.tmp")
    assert rooms[0] != rooms[1]
    assert not list(tmp_path.iterdir())


def test_beside_names_the_place_in_a_fault_of_the_disk(tmp_path: Path) -> None:
    """Disk faults name the path, whichever library wrote; other errors pass unchanged."""
    path = tmp_path / "a"
    for fault in (OSError(28, "x"), RuntimeError("io: No space (os error 28)")):
        with pytest.raises(OSError, match="No space left") as caught, beside(path):
            raise fault
        assert (caught.value.errno, caught.value.filename) == (28, str(path))
    with pytest.raises(RuntimeError, match="other"), beside(path):
        raise RuntimeError("other")
    with pytest.raises(CorpusError), beside(path):
        raise CorpusError("source") from OSError(5, "x")
    assert not list(tmp_path.iterdir())


def test_beside_leaves_faults_that_are_not_its_own(tmp_path: Path) -> None:
    """Errors of other files, and contexts hidden by "from None", pass unchanged."""
    with pytest.raises(FileNotFoundError) as caught, beside(tmp_path / "a"):
        (tmp_path / "input").read_bytes()
    assert caught.value.filename == str(tmp_path / "input")
    with pytest.raises(RuntimeError, match="needs more"), beside(tmp_path / "a"):
        try:
            (tmp_path / "input").read_bytes()
        except OSError:
            raise RuntimeError("needs more") from None
    assert not list(tmp_path.iterdir())


def test_put_in_place_leaves_nothing_where_it_fails(tmp_path: Path) -> None:
    """A link is no folder that could be replaced; its target stays."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to("kept")
    with beside(tmp_path / "link") as place:
        place.mkdir()
        with pytest.raises(OSError, match="directory"):
            put_in_place(place, tmp_path / "link")
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "link"}


def test_remove_leftovers_of_other_machines_stay(tmp_path: Path) -> None:
    """Leftovers of other machines stay, as their process ids have no meaning here."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    theirs = tmp_path / f".a.x1_2.{gone.pid}@0123abcd.tmp"
    theirs.mkdir()
    remove_leftovers(tmp_path)
    assert theirs.exists()


def test_finish_gives_files_the_mode_of_umask(tmp_path: Path) -> None:
    """Files get the mode of the umask, but for a file with a hard link elsewhere."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).touch(0o600)
        (folder / name).chmod(0o600)
    (tmp_path / "other").hardlink_to(folder / "b")
    before = os.umask(0o022)
    try:
        finish(folder)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((folder / name).stat().st_mode) for name in "ab"] == [0o644, 0o600]


def test_remove_leftovers_takes_folders_of_dead_processes(tmp_path: Path) -> None:
    """Folders of dead processes are removed; those of live ones and targets of links stay."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    dead, alive = (tmp_path / f".a.x1_2.{name_process(pid)}.tmp" for pid in (gone.pid, os.getpid()))
    for folder in (dead, alive, tmp_path / "kept"):
        folder.mkdir()
        (folder / "a").touch()
    link = tmp_path / f".b.x1_2.{name_process(gone.pid)}.tmp"
    link.symlink_to(tmp_path / "kept")
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([alive, tmp_path / "kept"])
    assert (tmp_path / "kept" / "a").exists()


def test_remove_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Files and folders of dead processes are removed, those of a live one stay."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    (tmp_path / "checkpoint").mkdir()
    dead = [
        tmp_path / f".model.safetensors.{name_process(gone.pid)}.tmp",
        tmp_path / "checkpoint" / f".state.pt.{name_process(gone.pid)}.tmp",
        tmp_path / f".folder.model.safetensors.{name_process(gone.pid)}.tmp" / "model.safetensors",
    ]
    kept = [tmp_path / f".metrics.json.{name_process()}.tmp", tmp_path / ".mine.tmp"]
    for path in [*dead, *kept]:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    remove_leftovers(tmp_path)
    assert not any(path.exists() for path in dead)
    assert not dead[-1].parent.exists()
    assert all(path.exists() for path in kept)


def test_remove_leftovers_of_zombies_are_removed(tmp_path: Path) -> None:
    """Leftovers of a zombie, which its parent has not waited for, are removed.

    One that has ended is listed until its parent takes notice; it writes no more.
    """
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still listed
    path = tmp_path / f".model.safetensors.{name_process(process.pid)}.tmp"
    path.touch()
    mine = tmp_path / f".model.safetensors.{name_process()}.tmp"
    mine.touch()
    remove_leftovers(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [mine.name]
    process.wait()
