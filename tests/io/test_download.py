"""Files of a Zenodo record and single files, from a server of the test's own."""

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from match_graph.errors import CorpusError
from match_graph.io import Reporter, download
from match_graph.io.download import fetch_file, fetch_record, is_broken_off


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is served; ``write_record`` makes records in it."""
    folder = tmp_path / "site"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setattr(download, "API", f"http://127.0.0.1:{server.server_port}")
    yield folder
    server.shutdown()
    server.server_close()
    thread.join()


def write_record(site: Path, files: dict[str, bytes], record: int = 7) -> None:
    entries = []
    for key, content in files.items():
        (site / "files").mkdir(exist_ok=True)
        (site / "files" / Path(key).name).write_bytes(content)
        entries.append(
            {
                "key": key,
                "size": len(content),
                "checksum": f"md5:{hashlib.md5(content).hexdigest()}",
                "links": {"self": f"{download.API}/files/{Path(key).name}"},
            }
        )
    (site / str(record)).write_text(json.dumps({"files": entries}))


BY_HAND = (
    "check the network, or fetch the files of https://zenodo.org/records/7 by hand and put them "
    "into '{}'."
)


def refusal(folder: Path) -> str:
    with pytest.raises(CorpusError) as caught:
        fetch_record(7, folder, "maple")
    assert not folder.exists() or list(folder.iterdir()) == []
    return str(caught.value)


def test_fetch_record_files_are_fetched_once(site: Path, tmp_path: Path) -> None:
    """Existing files are not fetched again; progress is shown; names cannot leave the folder."""
    write_record(site, {"a.zip": b"a" * 3_000_000, "../../b.txt": b"b"})
    folder = tmp_path / "out"
    paths = fetch_record(7, folder, "maple", Reporter(seconds=0).track)
    assert paths == [folder / "a.zip", folder / "b.txt"]
    assert [path.stat().st_size for path in paths] == [3_000_000, 1]
    (site / "files" / "a.zip").unlink()
    assert fetch_record(7, folder, "maple") == paths


def test_fetch_record_wrong_checksum_is_not_kept(site: Path, tmp_path: Path) -> None:
    """A file with a wrong checksum is deleted; the message has both checksums."""
    write_record(site, {"a.zip": b"right"})
    (site / "files" / "a.zip").write_bytes(b"wrong")
    assert refusal(tmp_path / "out") == (
        f"The file 'a.zip' of {download.API}/files/a.zip must have the checksum "
        f"md5:{hashlib.md5(b'right').hexdigest()}, but what came has "
        f"md5:{hashlib.md5(b'wrong').hexdigest()} and was not kept; try again."
    )


def test_fetch_record_or_a_file_that_is_gone_is_named(site: Path, tmp_path: Path) -> None:
    """A missing record or file is named with the answer of the server."""
    folder = tmp_path / "out"
    assert refusal(folder) == (
        f"The data set 'maple' must be fetched from {download.API}/7, but that did not succeed "
        f"(File not found); {BY_HAND.format(folder)}"
    )
    write_record(site, {"a.zip": b"a"})
    (site / "files" / "a.zip").unlink()
    assert f"must be fetched from {download.API}/files/a.zip, but" in refusal(folder)


def test_fetch_record_answer_of_another_kind_is_named(site: Path, tmp_path: Path) -> None:
    """HTML instead of JSON, or JSON of another schema, is one sentence."""
    for answer in ("<html>", "[]", '{"files": [{}]}', "[" * 100_000):
        (site / "7").write_text(answer)
        assert f"from {download.API}/7, but that did not succeed (" in refusal(tmp_path / "out")


def test_fetch_record_without_network_message_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a network the message says what to do."""
    monkeypatch.setattr(download, "API", "http://127.0.0.1:9")
    folder = tmp_path / "out"
    assert refusal(folder) == (
        f"The data set 'maple' must be fetched from http://127.0.0.1:9/7, but that did not succeed "
        f"([Errno 111] Connection refused); {BY_HAND.format(folder)}"
    )


def test_fetch_record_only_https_is_followed(site: Path, tmp_path: Path) -> None:
    """A record cannot name a file of this machine."""
    write_record(site, {"a.zip": b"a"})
    text = (site / "7").read_text().replace(f"{download.API}/files/a.zip", "file:///etc/passwd")
    (site / "7").write_text(text)
    assert "('file:///etc/passwd' is not fetched over https)" in refusal(tmp_path / "out")


def test_fetch_record_resumes_an_incomplete_download(site: Path, tmp_path: Path) -> None:
    """A download is incomplete until all files are there, fetched or copied by hand."""
    write_record(site, {"a.zip": b"a", "b.zip": b"b"})
    content = (site / "files" / "b.zip").read_bytes()
    (site / "files" / "b.zip").unlink()
    folder = tmp_path / "out"
    assert not is_broken_off(folder)
    with pytest.raises(CorpusError, match=r"b\.zip"):
        fetch_record(7, folder, "maple")
    assert (folder / "a.zip").exists()
    assert is_broken_off(folder)
    (folder / "b.zip").write_bytes(content)
    assert not is_broken_off(folder)
    (folder / "b.zip").unlink()
    (site / "files" / "b.zip").write_bytes(content)
    fetch_record(7, folder, "maple")
    assert {path.name for path in folder.iterdir()} == {"a.zip", "b.zip"}


def test_fetch_file_is_not_redirected_to_plain_http(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redirect to plain http is refused."""

    def redirect(self: Quiet) -> None:
        self.send_response(302)
        self.send_header("Location", f"http://localhost:{self.server.server_port}/b.txt")
        self.end_headers()

    (site / "b.txt").write_bytes(b"plain")
    monkeypatch.setattr(Quiet, "do_GET", redirect)
    with pytest.raises(
        CorpusError, match=r"http://localhost:\d+/b\.txt' is not fetched over https"
    ):
        fetch_file(f"{download.API}/a.txt", tmp_path / "a.txt", "cacm")
    assert not (tmp_path / "a.txt").exists()


def test_fetch_file_verifies_the_checksum(site: Path, tmp_path: Path) -> None:
    """A known checksum is verified; the folder is made; progress is shown."""
    (site / "a.txt").write_bytes(b"right")
    address, path = f"{download.API}/a.txt", tmp_path / "out" / "b.txt"
    right = f"sha256:{hashlib.sha256(b'right').hexdigest()}"
    fetch_file(address, path, "cacm", Reporter(seconds=0).track, right)
    assert path.read_bytes() == b"right"
    (site / "a.txt").write_bytes(b"wrong")
    fetch_file(address, path, "cacm")
    assert path.read_bytes() == b"wrong"
    path.unlink()
    with pytest.raises(CorpusError) as caught:
        fetch_file(address, path, "cacm", None, right)
    assert str(caught.value) == (
        f"The file 'b.txt' of {address} must have the checksum {right}, but what came has "
        f"sha256:{hashlib.sha256(b'wrong').hexdigest()} and was not kept; try again."
    )
    assert list(path.parent.iterdir()) == []


def test_fetch_file_missing_file_is_named(site: Path, tmp_path: Path) -> None:
    """A missing file is named with the path to save it to by hand."""
    address, path = f"{download.API}/none.txt", tmp_path / "none.txt"
    with pytest.raises(CorpusError) as caught:
        fetch_file(address, path, "cacm")
    assert str(caught.value) == (
        f"The data set 'cacm' must be fetched from {address}, but that did not succeed (File not "
        f"found); check the network, or fetch it by hand and save it as '{path}'."
    )
