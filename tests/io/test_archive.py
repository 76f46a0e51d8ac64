"""Archives unpacked safely."""

import gzip
import io
import os
import resource
import stat
import tarfile
import zipfile
from collections import namedtuple
from pathlib import Path, PurePosixPath

import pytest

from match_graph.errors import CorpusError
from match_graph.io.archive import unpack_archive


def write_zip(path: Path, members: dict[str, bytes], links: tuple[str, ...] = ()) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
        for name in links:
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            file.writestr(info, "/etc/passwd")
    return path


def write_tar(path: Path, members: dict[str, bytes], links: tuple[str, ...] = ()) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
        for name in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            file.addfile(info)
    return path


WRITERS = {"a.zip": write_zip, "a.tar.gz": write_tar, "a.tar": write_tar}


def choose_all(path: PurePosixPath) -> PurePosixPath:
    return path


@pytest.mark.parametrize("name", WRITERS)
def test_unpack_archive_extracts_chosen_files_to_targets(tmp_path: Path, name: str) -> None:
    """Chosen files are extracted to their targets, the others are not."""
    archive = WRITERS[name](tmp_path / name, {"M/Art/p.json": b"1\n", "M/Art/x": b"2", "y": b"3"})

    def choose(path: PurePosixPath) -> PurePosixPath | None:
        return PurePosixPath("Art", path.name) if path.suffix == ".json" else None

    assert unpack_archive(archive, tmp_path / "out", choose) == [tmp_path / "out/Art/p.json"]
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert files == [tmp_path / "out/Art/p.json"]
    assert files[0].read_bytes() == b"1\n"


DANGERS = {
    "../evil": "leads out of it",
    "a/../../evil": "leads out of it",
    "/tmp/evil": "is an absolute path",
    "C:\\evil": "is an absolute path",
    "a\\..\\..\\evil": "leads out of it",
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("member", DANGERS)
def test_unpack_archive_member_outside_refuses_the_whole_archive(
    tmp_path: Path, name: str, member: str
) -> None:
    """A member outside the folder, chosen or not, is refused before anything is written."""
    archive = WRITERS[name](tmp_path / name, {"good": b"1", member: b"2"})
    with pytest.raises(CorpusError) as caught:
        unpack_archive(archive, tmp_path / "out", lambda p: p if p.name == "good" else None)
    assert str(caught.value) == (
        f"An archive must hold files and folders below its own folder, but '{member}' of "
        f"'{archive}' {DANGERS[member]}; do not use this archive."
    )
    assert sorted(path.name for path in tmp_path.rglob("*")) == [name]


@pytest.mark.parametrize("name", WRITERS)
def test_unpack_archive_link_refuses_the_whole_archive(tmp_path: Path, name: str) -> None:
    """An archive with a link is refused, as a file behind it could be written anywhere."""
    archive = WRITERS[name](tmp_path / name, {"good": b"1"}, links=("link",))
    with pytest.raises(CorpusError, match=r"'link' of '.*' is a link or a device; do not use this"):
        unpack_archive(archive, tmp_path / "out", choose_all)
    assert not (tmp_path / "out").exists()


#: What Python says of an archive that breaks off.
ENDS = {
    "a.zip": "File is not a zip file",
    "a.tar.gz": "Compressed file ended before the end-of-stream marker was reached",
    "a.tar": "unexpected end of data",
}


@pytest.mark.parametrize("name", WRITERS)
def test_unpack_archive_truncated_archive_is_named(tmp_path: Path, name: str) -> None:
    """A truncated archive is named, and no partial file is left."""
    archive = WRITERS[name](tmp_path / name, {"a": b"1" * 10, "b": os.urandom(100_000)})
    archive.write_bytes(archive.read_bytes()[:5000])
    with pytest.raises(CorpusError) as caught:
        unpack_archive(archive, tmp_path / "out", choose_all)
    assert str(caught.value) == (
        f"An archive must be whole, but '{archive}' cannot be unpacked ({ENDS[name]}); "
        f"delete it and fetch it again."
    )
    left = {path.name for path in (tmp_path / "out").rglob("*")}
    assert left <= {"a"}


def test_unpack_archive_changed_byte_of_packed_archive_is_found(tmp_path: Path) -> None:
    """A changed byte is found by the checksum of gzip, before anything is written."""
    content = b"1" * 1000
    plain = write_tar(tmp_path / "a.tar", {"a": content}).read_bytes()
    packed = gzip.compress(plain, compresslevel=0)  # stored as it is
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(packed.replace(content, b"2" + content[1:]))
    with pytest.raises(CorpusError, match=r"cannot be unpacked \(CRC check failed .*\); delete it"):
        unpack_archive(archive, tmp_path / "out", choose_all)
    assert not (tmp_path / "out").exists()


def test_unpack_archive_full_disk_seen_before_anything_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too little disk space is refused before anything is written, with both sizes."""
    archive = write_zip(tmp_path / "a.zip", {"a": b"1" * 2000})
    usage = namedtuple("usage", ["total", "used", "free"])(5000, 4000, 1000)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(CorpusError) as caught:
        unpack_archive(archive, tmp_path / "out", choose_all)
    assert str(caught.value) == (
        f"The files of 'a.zip' need 2,000 bytes, but '{tmp_path / 'out'}' has room for 1,000; "
        f"make room, or choose another root (--root)."
    )
    assert list((tmp_path / "out").iterdir()) == []


def test_unpack_archive_full_disk_is_not_damage(tmp_path: Path) -> None:
    """A disk that fills during extraction is not reported as damage; no partial file is left."""
    archive = write_zip(tmp_path / "a.zip", {"a": b"1" * 2_000_000})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(CorpusError) as caught:
            unpack_archive(archive, tmp_path / "out", choose_all)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(caught.value) == (
        f"The files of 'a.zip' must fit on the disk, but in '{tmp_path / 'out'}' there is no room "
        f"(File too large); make room, or choose another root (--root)."
    )
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_unpack_archive_files_past_the_limit_are_not_unpacked(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that exceed the limit on size are not extracted; the limit can be changed."""
    write = write_zip if name == "a.zip" else write_tar
    archive = write(tmp_path / name, {"x/a.txt": b"a" * 1000})
    monkeypatch.setenv("MATCH_GRAPH_MAX_ARCHIVE_GIB", "0")
    with pytest.raises(CorpusError) as caught:
        unpack_archive(archive, tmp_path / "out", choose_all)
    assert str(caught.value) == (
        f"The files of '{name}' may have 0 GiB together, but they need 1,000 bytes; if the archive "
        f"is what it should be, set MATCH_GRAPH_MAX_ARCHIVE_GIB."
    )
    monkeypatch.setenv("MATCH_GRAPH_MAX_ARCHIVE_GIB", "1")
    assert unpack_archive(archive, tmp_path / "out", choose_all)


def test_unpack_archive_header_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    """A long name in a tar archive is bounded, as it is read before the name is known."""
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.GNU_FORMAT) as packed:
        packed.addfile(tarfile.TarInfo("x" * (2 << 20)))
    with pytest.raises(CorpusError) as caught:
        unpack_archive(path, tmp_path / "out", choose_all)
    assert str(caught.value) == (
        "A name or an attribute in an archive must have at most 1,048,576 bytes, found 2,097,153; "
        "do not use this archive."
    )


def attribute(**records: str) -> bytes:
    """Extended attributes of the next member of a tar archive."""
    text = b""
    for key, value in records.items():
        line = f" {key}={value}\n".encode()
        size = len(line) + 2
        text += f"{size}".encode() + line
        assert len(text.splitlines()[-1]) + 1 == size
    header = tarfile.TarInfo("attributes")
    header.type, header.size = tarfile.XHDTYPE, len(text)
    return header.tobuf(tarfile.USTAR_FORMAT) + text.ljust(512, b"\0")


def test_unpack_archive_size_below_zero_is_refused(tmp_path: Path) -> None:
    """A negative size is refused: it would falsify the total, or be read for ever."""
    path = tmp_path / "a.tar"
    header = tarfile.TarInfo("a").tobuf(tarfile.USTAR_FORMAT)
    path.write_bytes(attribute(size="-1536") + header + b"\0" * 1024)
    with pytest.raises(CorpusError, match="'a' has -1,536 bytes; do not use"):
        unpack_archive(path, tmp_path / "out", choose_all)


def test_unpack_archive_number_of_members_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of members is bounded, as each takes memory."""
    monkeypatch.setattr("match_graph.io.archive._MAX_MEMBERS", 2)
    assert unpack_archive(write_tar(tmp_path / "a.tar", {"a": b"", "b": b""}), tmp_path, choose_all)
    with pytest.raises(CorpusError, match="must have at most 2 members"):
        unpack_archive(
            write_tar(tmp_path / "a.tar", dict.fromkeys("abc", b"")), tmp_path, choose_all
        )


def test_unpack_archive_unreadable_is_one_sentence(tmp_path: Path) -> None:
    """Other exceptions of zipfile and tarfile become one sentence, too."""
    encrypted = write_zip(tmp_path / "encrypted.zip", {"a": b"a"})
    content = bytearray(encrypted.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\1\2") + 8] |= 1
    encrypted.write_bytes(content)
    broken = tmp_path / "broken.zip"
    with zipfile.ZipFile(broken, "w", zipfile.ZIP_LZMA) as file:
        file.writestr("a", bytes(range(256)) * 40)
    content = bytearray(broken.read_bytes())
    content[60:80] = b"\xff" * 20
    broken.write_bytes(content)
    nul = tmp_path / "nul.tar"
    header = tarfile.TarInfo("a").tobuf(tarfile.USTAR_FORMAT)
    nul.write_bytes(attribute(path="a\0b") + header + b"\0" * 1024)
    for path in (encrypted, broken, nul):
        with pytest.raises(CorpusError, match="must be whole, but"):
            unpack_archive(path, tmp_path / "out", choose_all)
