"""Hugging Face hub: a run is uploaded as a shared folder, and loaded from one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from match_graph.errors import CheckpointError, import_extra
from match_graph.predict.share import SHARED, is_shared, share_run

if TYPE_CHECKING:
    from match_graph.predict.classifier import Classifier

#: Patterns of the files that are uploaded and downloaded; a repository may hold others.
_PATTERNS = [pattern for name in sorted(SHARED) for pattern in (name, f"{name}/*")]


def push_run(
    folder: str | Path,
    repo_id: str,
    *,
    license: str | None = None,  # noqa: A002 - as the hub calls it
    commit_message: str = "Push a run by match-graph",
    private: bool | None = None,
    token: str | None = None,
    branch: str | None = None,
    create_pr: bool | None = None,
) -> str:
    """Uploads a run to the hub as the folder that `share_run` makes.

    Args:
        folder: Run folder, or a shared folder, which is uploaded as it is.
        repo_id: Repository, ``OWNER/NAME``; made if it is not there. Files that match-graph did not
            write now are deleted from it.
        license: Licence of the weights, as for `share_run`.
        commit_message: Message of the commit.
        private: Whether a new repository is private; None takes the owner's default.
        token: Token of the hub; None takes that of ``hf auth login``.
        branch: Branch; None is the main one.
        create_pr: Whether to open a pull request instead.

    Returns:
        Address of the commit.

    Raises:
        ConfigError: huggingface_hub is not installed.
        CheckpointError: The folder cannot be shared, or the hub cannot be reached or refuses.
    """
    api, folder = _open_api(token), Path(folder)
    with TemporaryDirectory(prefix="match-graph-") as room:
        is_whole = is_shared(folder, with_hidden=True)
        shared = folder if is_whole else share_run(folder, Path(room) / "shared", license)
        with _at_hub("upload to", repo_id):
            name = api.create_repo(repo_id=repo_id, private=private, exist_ok=True).repo_id
            if branch is not None:
                api.create_branch(repo_id=name, branch=branch, exist_ok=True)
            commit = api.upload_folder(
                repo_id=name,
                repo_type="model",
                folder_path=shared,
                commit_message=commit_message,
                revision=branch,
                create_pr=create_pr,
                allow_patterns=_PATTERNS,
                delete_patterns=["*"],  # files of an earlier upload are in no manifest
            )
    return str(commit.commit_url)


def _open_api(token: str | bool | None) -> Any:
    hub = import_extra("huggingface_hub", "The hub", "hub")
    return hub.HfApi(token=token, library_name="match-graph")


@contextmanager
def _at_hub(work: str, repo_id: str) -> Iterator[None]:
    """Context in which a failure of the hub becomes a one-sentence error."""
    from httpx import HTTPError  # by which huggingface_hub reads the network

    try:
        yield
    except (OSError, ValueError, HTTPError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(
            f"The hub must be reached and allow the {work} '{repo_id}', but it failed "
            f"({reason[:300]}); check the name, the network and the token (hf auth login)."
        ) from error


class HubMixin:
    """Upload to the hub and loading from it, by the names of huggingface_hub's own mixin."""

    #: Folder that was loaded.
    folder: Path | None = None

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Uploads the run to the hub as a shared folder; arguments as for `push_run`.

        Raises:
            ConfigError: huggingface_hub is not installed.
            CheckpointError: It was not loaded from a folder, the run is not evaluated, or the hub
                cannot be reached or refuses.
        """
        if self.folder is None:
            raise CheckpointError(
                "A classifier is uploaded from its folder, but this one has none; load it with "
                "match_graph.load."
            )
        return push_run(self.folder, repo_id, **options)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        **options: Any,
    ) -> "Classifier":
        """Loads a run or shared folder, or a repository of the hub; no code of it is run.

        Args:
            pretrained_model_name_or_path: A folder, or ``OWNER/NAME`` where there is no such one.
            revision: Branch, tag or commit.
            token: Token of the hub; None takes that of ``hf auth login``.
            cache_dir: Cache of the hub; None takes its default.
            force_download: Whether to download again what the cache has.
            local_files_only: Whether to use the cache alone.
            **options: Arguments of `load`: device, encoder, head, precision, verify.

        Raises:
            ConfigError: huggingface_hub is not installed; or as `load`.
            CheckpointError: The hub cannot be reached, or has no such repository; or as `load`.
        """
        from match_graph.predict.classifier import load

        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():
            api, repo_id = _open_api(token), str(pretrained_model_name_or_path)
            with _at_hub("download from", repo_id):
                found = api.snapshot_download(
                    repo_id=repo_id,
                    revision=revision,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    local_files_only=local_files_only,
                    allow_patterns=_PATTERNS,
                )
            folder = Path(found)
        return load(folder, **options)
