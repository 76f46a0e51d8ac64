"""Result folders: finished results, unfinished ones, and those of other work."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from match_graph.errors import ExportError
from match_graph.io.beside import name_process
from match_graph.io.manifest import find_damage, read_manifest
from match_graph.predict.result_folder import PARTS, SOURCES, ResultFolder

MADE_BY = {"run": "r", "top_k": 5}


def join(parts: Sequence[Path], result: Path) -> None:
    result.write_bytes(b"".join(part.read_bytes() for part in parts))


def finish(folder: ResultFolder, name: str, *contents: bytes) -> None:
    """Finishes a result from parts that it writes."""
    parts = [folder.locate_part(name, number) for number in range(len(contents))]
    for part, content in zip(parts, contents, strict=True):
        part.write_bytes(content)
    folder.finish(name, {"bytes": len(contents)}, parts, join)


def test_ResultFolder_finish_lists_what_is_there(tmp_path: Path) -> None:
    """A result is finished if it is of the same source and unchanged."""
    folder = ResultFolder(tmp_path / "out", MADE_BY)
    with folder.open(["a", "b"]):
        finish(folder, "a", b"1\n", b"2\n")
        finish(folder, "b", b"3\n")
    assert (tmp_path / "out" / "a").read_bytes() == b"1\n2\n"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "a", "b", SOURCES, "manifest.json", ".lock"
    }  # fmt: skip
    assert read_manifest(tmp_path / "out").keys() == {"a", "b", SOURCES}
    assert [find_damage(tmp_path / "out", name) for name in ("a", "b", SOURCES)] == [""] * 3
    (tmp_path / "out" / "b").write_bytes(b"4\n")
    again = ResultFolder(tmp_path / "out", MADE_BY)
    with again.open(["a", "b"]):
        assert again.is_finished("a", {"bytes": 2})
        assert not again.is_finished("a", {"bytes": 3})
        assert not again.is_finished("b", {"bytes": 1})
        assert not again.is_finished("c", {})


def test_ResultFolder_open_after_an_error_keeps_parts(tmp_path: Path) -> None:
    """After an error the parts of unfinished results stay, and the others are gone."""
    folder = ResultFolder(tmp_path, MADE_BY)
    with pytest.raises(KeyError), folder.open(["a", "b"]):
        finish(folder, "a", b"1\n")
        folder.locate_part("b", 0).write_bytes(b"2\n")
        raise KeyError
    again = ResultFolder(tmp_path, MADE_BY)
    assert [path.name for path in (tmp_path / PARTS).iterdir()] == [again.locate_part("b", 0).name]
    with again.open(["a", "b"]):
        assert again.is_finished("a", {"bytes": 1})
    assert ResultFolder(tmp_path, {"run": "s"}).locate_part("b", 0) != folder.locate_part("b", 0)


def test_ResultFolder_open_after_a_kill_at_the_first_write(tmp_path: Path) -> None:
    """A temporary file of a killed process does not make the folder foreign."""
    (tmp_path / f".{SOURCES}.a1b2.{name_process(999_999_999)}.tmp").touch()
    with ResultFolder(tmp_path, MADE_BY).open(["a"]):
        pass
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".tmp"]


def test_ResultFolder_open_refuses_what_is_not_its_own(tmp_path: Path) -> None:
    """Other files, a file, a locked folder and results of other settings are refused."""

    def refuse(path: Path, made_by: dict[str, object], *names: str) -> str:
        with pytest.raises(ExportError) as caught, ResultFolder(path, made_by).open(names):
            pass
        return str(caught.value)

    (tmp_path / "file").touch()
    assert refuse(tmp_path / "file", MADE_BY) == (
        f"Results must go to a folder, but '{tmp_path / 'file'}' is a file; choose another with "
        f"--output."
    )
    assert refuse(tmp_path, MADE_BY) == (
        f"Results must go to a new or empty folder, or to one of earlier results, but '{tmp_path}' "
        f"holds other files (file); choose another with --output."
    )
    out = tmp_path / "out"
    folder = ResultFolder(out, MADE_BY)
    with folder.open(["a", "b"]):
        finish(folder, "a", b"1\n")
        finish(folder, "b", b"1\n")
        assert refuse(out, MADE_BY) == (
            f"One process at a time may write results, but '{out}' is in use by another; wait "
            f"until it ends, or choose another folder with --output."
        )
    before = (out / SOURCES).read_bytes()
    assert refuse(out, {"run": "s"}, "a", "c") == (
        f"All results of a folder must be made by the same run and settings, but '{out}' holds "
        f"those of 1 other files by others (b); choose another with --output, or give these files "
        f"too."
    )
    assert (out / SOURCES).read_bytes() == before
    (out / SOURCES).write_text('{"format": 2}')
    assert refuse(out, MADE_BY) == (
        f"'{out / SOURCES}' and manifest.json beside it must say what is finished, but they cannot "
        f"be used (it is of format 2); delete the folder '{out}', or choose another."
    )


def test_ResultFolder_results_of_other_settings_go_together(tmp_path: Path) -> None:
    """Results of other settings are deleted together, with the first new result."""
    first = ResultFolder(tmp_path, MADE_BY)
    with first.open(["a", "b"]):
        finish(first, "a", b"1\n")
        finish(first, "b", b"1\n")
    other = ResultFolder(tmp_path, {"run": "s"})
    with pytest.raises(KeyError), other.open(["a", "b"]):
        raise KeyError
    again = ResultFolder(tmp_path, MADE_BY)
    with again.open(["a", "b"]):
        assert again.is_finished("a", {"bytes": 1})
    other = ResultFolder(tmp_path, {"run": "s"})
    with pytest.raises(KeyError), other.open(["a", "b"]):
        finish(other, "b", b"2\n")
        raise KeyError
    assert read_manifest(tmp_path).keys() == {"b", SOURCES}
    assert not (tmp_path / "a").exists()
    assert (tmp_path / "b").read_bytes() == b"2\n"
