"""Downloads of Zenodo records and of single files, written atomically and checked by checksums.

Source of the interface: https://developers.zenodo.org.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from match_graph.errors import CorpusError
from match_graph.io.beside import beside
from match_graph.io.manifest import parse_json
from match_graph.io.source import Advance, Track

API = "https://zenodo.org/api/records"

_TIMEOUT = 30  # seconds without a byte
_CHUNK = 1 << 20  # bytes
_WANTED = ".wanted"  # lists the files of a record until all are downloaded
_MEGABYTE = 1_000_000


def fetch_record(record: int, folder: Path, dataset: str, track: Track | None = None) -> list[Path]:
    """Downloads the missing files of a Zenodo record.

    `is_broken_off` is true of the folder until all are there.

    Args:
        record: Record number on Zenodo.
        folder: Target folder, made if need be.
        dataset: Registered name of the data set, for messages.
        track: Progress tracker, such as ``Reporter().track``.

    Returns:
        The files.

    Raises:
        CorpusError: The network fails, there is no such record, or a checksum differs.
    """
    by_hand = (
        f"check the network, or fetch the files of https://zenodo.org/records/{record} by hand "
        f"and put them into '{folder}'"
    )
    folder.mkdir(parents=True, exist_ok=True)
    with _explain(f"{API}/{record}", dataset, by_hand), io.BytesIO() as answer:
        _download(f"{API}/{record}", answer)
        files = [_read_entry(entry) for entry in parse_json(answer.getvalue())["files"]]
    paths = []
    if len(files) > 1:
        (folder / _WANTED).write_text("\n".join(name for name, *_ in files), encoding="utf-8")
    for name, address, size, checksum in files:
        paths.append(folder / name)
        if not paths[-1].is_file():
            fetch_file(address, paths[-1], dataset, track, checksum, size)
    (folder / _WANTED).unlink(missing_ok=True)
    return paths


def is_broken_off(folder: Path) -> bool:
    """Whether `fetch_record` has files left to download into a folder."""
    wanted = folder / _WANTED
    names = wanted.read_text(encoding="utf-8").split("\n") if wanted.is_file() else []
    return not all((folder / name).is_file() for name in names)


def fetch_file(
    address: str,
    path: Path,
    dataset: str,
    track: Track | None = None,
    checksum: str = "",
    size: int = 0,
) -> None:
    """Downloads one file.

    Args:
        address: URL of the file.
        path: Target path; its folder is made if need be.
        dataset: Registered name of the data set, for messages.
        track: Progress tracker, such as ``Reporter().track``.
        checksum: Algorithm, a colon and the checksum; empty where none is published.
        size: Size in bytes, for progress; 0 if unknown.

    Raises:
        CorpusError: The network fails, there is no such file, or its checksum differs.
    """
    import pooch

    kind = checksum.partition(":")[0]
    shown = track(f"fetch {path.name}", size // _MEGABYTE, "MB") if track else nullcontext()
    by_hand = f"check the network, or fetch it by hand and save it as '{path}'"
    with _explain(address, dataset, by_hand), beside(path) as place:
        with shown as advance, place.open("wb") as file:
            _download(address, file, advance)
        found = f"{kind}:{pooch.file_hash(str(place), alg=kind)}" if checksum else ""
        if found != checksum:
            raise CorpusError(
                f"The file '{path.name}' of {address} must have the checksum {checksum}, but what "
                f"came has {found} and was not kept; try again."
            )
        place.replace(path)


def _read_entry(entry: Any) -> tuple[str, str, int, str]:
    """Name, URL, size in bytes and checksum of a file; the name cannot lead out of a folder."""
    name = Path(str(entry["key"])).name
    return name, str(entry["links"]["self"]), int(entry["size"]), str(entry["checksum"])


class _Progress:
    """Progress of a download, as pooch reports it."""

    def __init__(self, advance: Advance) -> None:
        self.total = self.done = 0
        self.advance = advance

    def update(self, number: int) -> None:
        self.done = min(self.done + number, self.total)
        self.advance(self.done // _MEGABYTE, "")

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None: ...


def _download(address: str, file: BinaryIO, advance: Advance | None = None) -> None:
    _check_address(address)
    import pooch

    def check(response: Any, **_: Any) -> None:
        try:
            _check_address(response.url)  # of each redirect, too
        except OSError:
            response.close()
            raise

    settings = {"headers": {"User-Agent": "match-graph"}, "hooks": {"response": check}}
    shown = _Progress(advance) if advance else False
    pooch.HTTPDownloader(shown, _CHUNK, timeout=_TIMEOUT, **settings)(address, file, None)


def _check_address(address: str) -> None:
    if not address.startswith(("https://", API)):
        raise OSError(f"'{address}' is not fetched over https")


@contextmanager
def _explain(address: str, dataset: str, by_hand: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason: object = error
        while isinstance(reason, BaseException) and reason.__context__ is not None:
            reason = reason.__context__  # the first cause, below the layers of the client
        if (answer := getattr(error, "response", None)) is not None:
            reason = answer.reason
            answer.close()
        raise CorpusError(
            f"The data set '{dataset}' must be fetched from {address}, but that did not succeed "
            f"({reason}); {by_hand}."
        ) from error
