"""Manifests: what the files of a folder are, also while they change."""

import json
import os
from pathlib import Path

import pytest

from match_graph.io import manifest
from match_graph.io.manifest import (
    MANIFEST,
    changing,
    compute_digest,
    find_damage,
    parse_json,
    read_bytes,
    read_manifest,
    write_manifest,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files and their manifest."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "sub" / "b").write_bytes(b"two")
    write_manifest(tmp_path)
    return tmp_path


def test_write_manifest_lists_bytes_and_sha256(folder: Path) -> None:
    """All files but the manifest are listed, with the digests of sha256sum."""
    digest = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    assert read_manifest(folder)["a"] == [(3, digest)]
    assert read_manifest(folder).keys() == {"a", "sub/b"}
    write_manifest(folder)
    assert read_manifest(folder).keys() == {"a", "sub/b"}


def test_find_damage_says_what_is_wrong(folder: Path) -> None:
    """Each kind of damage has its clause; an intact file has none."""
    assert [find_damage(folder, name) for name in ("a", "sub/b", "neither")] == ["", "", ""]
    (folder / "a").write_bytes(b"onf")
    assert find_damage(folder, "a") == (
        "its content is not what was written, as its SHA-256 in manifest.json shows"
    )
    (folder / "a").write_bytes(b"on")
    assert find_damage(folder, "a") == "it has 2 bytes, not 3 as manifest.json says"
    (folder / "a").unlink()
    assert find_damage(folder, "a") == "it is missing, though manifest.json lists it"
    os.mkfifo(folder / "a")
    assert find_damage(folder, "a") == "not a regular file"
    (folder / "c").touch()
    assert find_damage(folder, "c") == "manifest.json does not list it"
    (folder / "d").symlink_to("d")
    assert find_damage(folder, "d") == "too many levels of symbolic links"
    assert find_damage(folder, "sub") == "is a directory"
    assert find_damage(folder, "e\0") == "invalid argument"
    (folder / MANIFEST).unlink()
    assert find_damage(folder, "sub/b") == "no such file or directory"


def test_find_damage_hashes_large_files_on_request(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files are compared by size, and by SHA-256 on request."""
    monkeypatch.setattr(manifest, "LARGE_BYTES", 3)
    (folder / "a").write_bytes(b"onf")
    assert find_damage(folder, "a") == ""
    assert find_damage(folder, "a", whole=True).startswith("its content is not")
    (folder / "a").write_bytes(b"ones")
    assert find_damage(folder, "a").startswith("it has 4 bytes")


def test_read_manifest_is_its_callers_own(folder: Path) -> None:
    """The cached manifest does not change with what a caller does to its copy."""
    found = read_manifest(folder)
    expected = {name: [*states] for name, states in found.items()}
    for states in found.values():
        states.clear()
    found.clear()
    assert read_manifest(folder) == expected != {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "cannot be used: Expecting property name"),
        ("[]", "cannot be used: it holds no list of files"),
        ('{"format": 2, "files": {}}', "cannot be used: it is of format 2, not 1"),
        ('{"format": "' + "x" * 100_000 + '"}', "cannot be used: it holds no list of files"),
        (
            '{"format": "' + "x" * 100_000 + '", "files": {}}',
            "cannot be used: it is of format 'xxx",
        ),
        ('{"format": 1, "files": {"' + "x" * 100_000 + '": 0}}', "it does not say what 'xxx"),
        ('{"format": 1, "files": []}', "cannot be used: it holds no list of files"),
        ('{"format": 1, "files": {"../x": [null]}}', "lists '../x', which is no path within"),
        ('{"format": 1, "files": {"/x": [null]}}', "lists '/x', which is no path within"),
        ('{"format": 1, "files": {"a": []}}', "does not say what 'a' is"),
        ('{"format": 1, "files": {"a": [{"bytes": true, "sha256": "0"}]}}', "what 'a' is"),
        ('{"format": 1, "files": {"a": [{"bytes": -1, "sha256": "0"}]}}', "what 'a' is"),
        ("[" * 100_000, "cannot be used: it is nested too deep"),
        ('{"format": ' + "9" * 5000 + "}", "cannot be used: Exceeds the limit"),
        ('{"format": NaN}', "cannot be used: it holds NaN, which is no JSON number"),
    ],
)
def test_read_manifest_refuses_damage(folder: Path, content: str, reason: str) -> None:
    """Every damage of a manifest is a ValueError with a clause."""
    (folder / MANIFEST).write_text(content)
    found = find_damage(folder, "a")
    assert reason in found
    assert len(found) < 500


def test_changing_holds_whenever_it_is_interrupted(folder: Path) -> None:
    """Old and new content are valid within the block, the new one alone afterwards."""
    (folder / "new").write_bytes(b"three")
    states = {"a": [compute_digest(folder / "new")], "sub/b": [None]}
    with changing(folder, states):
        assert find_damage(folder, "a") == find_damage(folder, "sub/b") == ""
        (folder / "new").replace(folder / "a")
        assert find_damage(folder, "a") == ""
        (folder / "sub" / "b").unlink()
        assert find_damage(folder, "sub/b") == ""
    assert read_manifest(folder) == {"a": states["a"]}
    (folder / "a").write_bytes(b"one")
    assert find_damage(folder, "a") == "it has 3 bytes, not 5 as manifest.json says"


def test_changing_keeps_all_states_of_a_killed_process(folder: Path) -> None:
    """After two kills before the rename, the old content is still valid."""
    for text in (b"x", b"y"):
        (folder / "new").write_bytes(text)
        states = {"a": [compute_digest(folder / "new")]}
        with pytest.raises(KeyboardInterrupt), changing(folder, states):
            raise KeyboardInterrupt
    assert len(read_manifest(folder)["a"]) == 3
    assert find_damage(folder, "a") == ""


def test_find_damage_reads_the_manifest_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that another process replaces meanwhile is not damaged."""
    old = read_manifest(folder)
    (folder / "a").write_bytes(b"other")
    write_manifest(folder)
    answers = [old]
    real = read_manifest
    monkeypatch.setattr(
        manifest, "read_manifest", lambda place: answers.pop() if answers else real(place)
    )
    assert find_damage(folder, "a") == ""


def test_read_bytes_has_a_limit(tmp_path: Path) -> None:
    """A file that exceeds the limit is not read."""
    (tmp_path / "a").write_bytes(b"1234")
    assert read_bytes(tmp_path / "a", 4) == b"1234"
    with pytest.raises(OSError, match="It has 4 bytes, more than 3"):
        read_bytes(tmp_path / "a", 3)


def test_parse_json_is_strict() -> None:
    """Only UTF-8 and finite numbers are accepted."""
    assert parse_json(json.dumps({"a": [1, 2.5]}).encode()) == {"a": [1, 2.5]}
    for text in (b"\xff", b"Infinity", b"1e999", b""):
        with pytest.raises(ValueError, match=r"decode|constant|Infinity|too large|Expecting"):
            parse_json(text)
