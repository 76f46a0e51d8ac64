"""Downloads of Zenodo records, written atomically and checked by the record's checksums.

Source of the interface: https://developers.zenodo.org.
"""

import hashlib
import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from match_graph.errors import CorpusError
from match_graph.io.beside import beside
from match_graph.io.source import Track

API = "https://zenodo.org/api/records"

_TIMEOUT = 30  # seconds without a byte
_CHUNK = 1 << 20  # bytes
_MEGABYTE = 1_000_000


def fetch_record(record: int, folder: Path, dataset: str, track: Track | None = None) -> list[Path]:
    """Downloads the missing files of a Zenodo record.

    Args:
        record: Record number on Zenodo.
        folder: Target folder, made if need be.
        dataset: Registered name of the data set, for messages.
        track: Progress tracker, such as ``Reporter().track``.

    Returns:
        The files.

    Raises:
        CorpusError: The network or the record is gone, or a file has another checksum.
    """
    by_hand = (
        f"check the network, or fetch the files of https://zenodo.org/records/{record} by hand "
        f"and put them into '{folder}'"
    )
    folder.mkdir(parents=True, exist_ok=True)
    with _explain(f"{API}/{record}", dataset, by_hand), _open(f"{API}/{record}") as response:
        files = [_read_entry(entry) for entry in json.load(response)["files"]]
    paths = []
    for name, address, size, checksum in files:
        path = folder / name
        paths.append(path)
        if path.is_file():
            continue
        with _explain(address, dataset, by_hand):
            found = _fetch(address, path, size, checksum, track)
        if found:
            raise CorpusError(
                f"The file '{name}' of Zenodo record {record} must have the checksum {checksum}, "
                f"but what came has {found} and was not kept; try again."
            )
    return paths


def _read_entry(entry: Any) -> tuple[str, str, int, str]:
    """Name, URL, size in bytes and checksum of a file; the name cannot lead out of a folder."""
    name = Path(str(entry["key"])).name
    return name, str(entry["links"]["self"]), int(entry["size"]), str(entry["checksum"])


def _fetch(address: str, path: Path, size: int, checksum: str, track: Track | None) -> str:
    """Downloads a file if its checksum is right; else returns the checksum found."""
    kind = checksum.partition(":")[0]
    digest = hashlib.new(kind, usedforsecurity=False)  # against damage, not against forgery
    shown = track(f"fetch {path.name}", size // _MEGABYTE, "MB") if track else nullcontext()
    with beside(path) as place:
        with _open(address) as response, place.open("wb") as file, shown as advance:
            done = 0
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                if advance is not None:
                    advance(done // _MEGABYTE, "")
        found = f"{kind}:{digest.hexdigest()}"
        if found != checksum:
            return found
        place.replace(path)
    return ""


def _open(address: str) -> Any:
    if not address.startswith(("https://", API)):
        raise OSError(f"'{address}' is not fetched over https")
    request = urllib.request.Request(address, headers={"User-Agent": "match-graph"})  # noqa: S310
    return urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310 - https, see above


@contextmanager
def _explain(address: str, dataset: str, by_hand: str) -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, HTTPError):
            error.close()  # it is the response, too
        raise CorpusError(
            f"The data set '{dataset}' must be fetched from {address}, but that did not succeed "
            f"({reason}); {by_hand}."
        ) from error
