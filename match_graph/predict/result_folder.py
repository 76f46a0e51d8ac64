"""Folder of results, one per file of documents, which a later call resumes.

``manifest.json`` lists the results by SHA-256, ``sources.json`` says what each was made from, and
``.parts`` holds the blocks of files that are not finished, by what they were made from.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from match_graph.errors import ExportError
from match_graph.io.beside import (
    beside,
    finish,
    is_temporary,
    remove_leftovers,
    write_text_beside,
)
from match_graph.io.manifest import (
    LARGE_BYTES,
    MANIFEST,
    States,
    check_regular,
    compute_digest,
    parse_json,
    read_bytes,
    read_manifest,
    write_manifest,
)
from match_graph.io.run_folder import LOCK

SOURCES, PARTS, FORMAT_VERSION = "sources.json", ".parts", 1
#: Seconds between two writings of the list of finished results.
_LIST_EVERY = 5.0


class ResultFolder:
    """Results of one kind of work, changed by one process at a time; see `open`.

    Args:
        folder: Folder: new, empty, or one of this class.
        made_by: What all results of the folder have in common: the run and the settings.
    """

    def __init__(self, folder: Path, made_by: Mapping[str, Any]) -> None:
        self.folder, self.made_by = folder, dict(made_by)
        self._sources: dict[str, Any] = {}
        self._states: dict[str, States] = {}
        self._superseded: set[str] = set()  # results of other settings, until one is replaced
        self._obsolete: list[Path] = []
        self._listed = time.monotonic()

    @property
    def parts(self) -> Path:
        """Folder of the blocks of files that are not finished."""
        return self.folder / PARTS

    def locate_part(self, *source: Any) -> Path:
        """Path of a part, a hash of what it is made from: a file there is of the same source."""
        content = json.dumps([self.made_by, *source], sort_keys=True)
        return self.parts / hashlib.sha256(content.encode()).hexdigest()

    @contextmanager
    def open(self, names: Iterable[str]) -> Iterator[None]:
        """Locks the folder within the block, and lists what was finished in it.

        Args:
            names: Names of the results that are wanted.

        Raises:
            ExportError: It holds other files, results of others by other settings, or is in use.
        """
        self._check_ours()
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            held = FileLock(self.folder / LOCK).acquire(timeout=0)
        except Timeout as error:
            raise ExportError(
                f"One process at a time may write results, but '{self.folder}' is in use by "
                f"another; wait until it ends, or choose another folder with --output."
            ) from error
        with held:
            self._read(set(names))
            remove_leftovers(self.folder)
            self.parts.mkdir(exist_ok=True)
            try:
                yield
            finally:
                self._list()
            shutil.rmtree(self.parts)

    def _check_ours(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise ExportError(
                f"Results must go to a folder, but '{self.folder}' is a file; choose another with "
                f"--output."
            )
        there = {path.name for path in self.folder.glob("*") if not is_temporary(path)}
        if SOURCES not in there and (others := sorted(there - {PARTS, LOCK})):
            raise ExportError(
                f"Results must go to a new or empty folder, or to one of earlier results, but "
                f"'{self.folder}' holds other files ({', '.join(others[:3])}); choose another with "
                f"--output."
            )

    def _read(self, names: set[str]) -> None:
        """Reads the list of finished results, or writes an empty one where there is none."""
        path = self.folder / SOURCES
        if not path.exists():
            self._list()
            return
        try:
            content = parse_json(read_bytes(path))
            if content["format"] != FORMAT_VERSION:
                raise ValueError(f"it is of format {content['format']!r:.50}")
            made_by, sources = dict(content["made_by"]), dict(content["results"])
            with suppress(FileNotFoundError):
                self._states = read_manifest(self.folder)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ExportError(
                f"'{path}' and {MANIFEST} beside it must say what is finished, but they cannot be "
                f"used ({error}); delete the folder '{self.folder}', or choose another."
            ) from error
        if made_by == self.made_by:  # a process may be killed between writing the one and the other
            self._sources = {name: sources[name] for name in sources if name in self._states}
        elif others := sorted(sources.keys() - names):
            raise ExportError(
                f"All results of a folder must be made by the same run and settings, but "
                f"'{self.folder}' holds those of {len(others)} other files by others "
                f"({', '.join(others[:3])}); choose another with --output, or give these files too."
            )
        else:
            self._superseded = {*sources}

    def is_finished(self, name: str, source: Mapping[str, Any]) -> bool:
        """True if a result of the same source is there, unchanged since it was written."""
        states = [state for state in self._states.get(name, []) if state is not None]
        if self._sources.get(name) != source or not states:
            return False
        try:
            size = check_regular(self.folder / name)
            if size >= LARGE_BYTES:
                return size in {state.bytes for state in states}
            return compute_digest(self.folder / name) in states
        except OSError:
            return False

    def finish(
        self,
        name: str,
        source: Mapping[str, Any],
        parts: Sequence[Path],
        join: Callable[[Sequence[Path], Path], object],
    ) -> None:
        """Joins parts to a result; they are deleted when it is listed as finished.

        Args:
            name: Name of the result.
            source: What it was made from.
            parts: Parts, in order.
            join: Writes the result from the parts.
        """
        path = self.folder / name
        with beside(path) as place:
            join(parts, place)
            finish(place)
            digest = compute_digest(place)
            place.replace(path)
        self._sources[name], self._states[name] = dict(source), [digest]
        self._obsolete += parts
        if time.monotonic() - self._listed > _LIST_EVERY:
            self._list()

    def _list(self) -> None:
        """Writes the list of finished results; a first new one replaces all of other settings."""
        if self._superseded and not self._sources:
            return
        for name in self._superseded - self._sources.keys():
            (self.folder / name).unlink(missing_ok=True)
        self._superseded.clear()
        content = {
            "format": FORMAT_VERSION,
            "made_by": self.made_by,
            "results": dict(sorted(self._sources.items())),
        }
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        write_text_beside(self.folder / SOURCES, text)
        listed = {name: self._states[name] for name in self._sources}
        write_manifest(self.folder, {**listed, SOURCES: [compute_digest(self.folder / SOURCES)]})
        for part in self._obsolete:
            part.unlink(missing_ok=True)
        self._obsolete, self._listed = [], time.monotonic()
