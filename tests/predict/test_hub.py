"""The hub, by a fake of its API: what is uploaded and downloaded, and each refusal."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from match_graph import Classifier, Run, load, share_run
from match_graph.errors import CheckpointError, ConfigError
from match_graph.predict import push_run
from match_graph.predict.share import SHARED

hub = pytest.importorskip("huggingface_hub", reason="extra: hub")
httpx = pytest.importorskip("httpx", reason="extra: hub")

DOCUMENTS = [{"text": "w1 w2 w3", "venue": "venue1"}, {"text": "w4"}]


class FakeApi:
    """Repositories in memory, which keep calls, and the files of an upload as links."""

    calls: list[tuple[str, dict[str, Any]]]
    files: dict[str, bytes]
    fault: Exception | None
    cache: Path

    def __init__(self, **options: Any) -> None:
        self.calls.append(("open", options))

    def _note(self, name: str, options: dict[str, Any]) -> None:
        if self.fault is not None:
            raise self.fault
        self.calls.append((name, options))

    def create_repo(self, **options: Any) -> SimpleNamespace:
        self._note("create_repo", options)
        return SimpleNamespace(repo_id=options["repo_id"])

    def create_branch(self, **options: Any) -> None:
        self._note("create_branch", options)

    def upload_folder(self, **options: Any) -> SimpleNamespace:
        self._note("upload_folder", options)
        folder = Path(options["folder_path"])
        names = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
        wanted = hub.utils.filter_repo_objects(
            [name.as_posix() for name in names], allow_patterns=options["allow_patterns"]
        )
        self.files.clear()
        self.files.update({name: (folder / name).read_bytes() for name in wanted})
        return SimpleNamespace(commit_url=f"https://hub/{options['repo_id']}/commit/1")

    def snapshot_download(self, **options: Any) -> str:
        """Links into blobs, as the hub's cache has them."""
        self._note("snapshot_download", options)
        snapshot = self.cache / "snapshots" / "1"
        wanted = hub.utils.filter_repo_objects(
            sorted(self.files), allow_patterns=options["allow_patterns"]
        )
        for number, name in enumerate(wanted):
            blob = self.cache / "blobs" / str(number)
            for path in (blob, snapshot / name):
                path.parent.mkdir(parents=True, exist_ok=True)
            blob.write_bytes(self.files[name])
            (snapshot / name).symlink_to(blob)
        return str(snapshot)


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[FakeApi]:
    """A hub of its own for each test."""
    content = {"calls": [], "files": {}, "fault": None, "cache": tmp_path / "cache"}
    fake = type("FakeApiOfTest", (FakeApi,), content)
    monkeypatch.setattr(hub, "HfApi", fake)
    return fake


def test_Classifier_push_to_hub_and_from_pretrained(api: type[FakeApi], trained_run: Run) -> None:
    """A run is uploaded as its shared folder, and what is downloaded predicts the same."""
    classifier = load(trained_run.folder, "cpu")
    address = classifier.push_to_hub("me/it", license="mit", private=True, branch="new", token="t")
    assert address == "https://hub/me/it/commit/1"
    calls = dict(api.calls)
    assert calls["open"] == {"token": "t", "library_name": "match-graph"}
    assert calls["create_repo"] == {"repo_id": "me/it", "private": True, "exist_ok": True}
    assert calls["create_branch"]["branch"] == calls["upload_folder"]["revision"] == "new"
    assert {name.partition("/")[0] for name in api.files} <= SHARED
    assert api.files["README.md"].startswith(b"---\nlicense: mit\n")
    assert not Path(calls["upload_folder"]["folder_path"]).exists()
    api.files["evil.py"] = b""
    found = Classifier.from_pretrained("me/it", revision="new", device="cpu", verify=True)
    assert dict(api.calls)["snapshot_download"]["revision"] == "new"
    assert not list(api.cache.rglob("evil.py"))
    assert list(found.predict(DOCUMENTS)) == list(classifier.predict(DOCUMENTS))


def test_push_run_shared_folder_goes_as_it_is(
    api: type[FakeApi], trained_run: Run, tmp_path: Path
) -> None:
    """A shared folder is uploaded with its edited card, and loaded without the hub."""
    folder = share_run(trained_run.folder, tmp_path / "shared")
    (folder / "README.md").write_text("mine")
    push_run(folder, "me/it")
    assert api.files["README.md"] == b"mine"
    before = len(api.calls)
    classifier = Classifier.from_pretrained(folder, device="cpu")
    assert len(api.calls) == before
    classifier.push_to_hub("me/again")
    assert api.files["README.md"] == b"mine"


@pytest.mark.parametrize(
    "fault",
    [
        hub.errors.LocalEntryNotFoundError("no such file in the cache\nand no network"),
        hub.errors.OfflineModeIsEnabled("offline"),
        hub.errors.HFValidationError("a/b/c is no name"),
        PermissionError("403 Forbidden"),
        httpx.ConnectError("no route to host"),
    ],
)
def test_from_pretrained_hub_that_refuses_is_one_sentence(
    api: type[FakeApi], trained_run: Run, fault: Exception
) -> None:
    """A failure of the hub is one sentence with the repository and the reason."""
    api.fault = fault
    reason = " ".join(str(fault).split())
    with pytest.raises(CheckpointError) as caught:
        Classifier.from_pretrained("me/it")
    assert str(caught.value) == (
        f"The hub must be reached and allow the download from 'me/it', but it failed ({reason}); "
        f"check the name, the network and the token (hf auth login)."
    )
    with pytest.raises(CheckpointError, match="allow the upload to 'me/it', but it failed"):
        push_run(trained_run.folder, "me/it")


def test_from_pretrained_needs_the_package(
    trained_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the extra to install; a folder is loaded without it."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError) as caught:
        Classifier.from_pretrained("me/it")
    assert str(caught.value) == (
        "The hub needs the package huggingface_hub, which is not installed; run: "
        "pip install 'match-graph[hub]'"
    )
    classifier = Classifier.from_pretrained(trained_run.folder, device="cpu")
    assert len(list(classifier.predict(DOCUMENTS))) == 2
    classifier.folder = None
    with pytest.raises(CheckpointError, match=r"load it with match_graph\.load"):
        classifier.push_to_hub("me/it")
