"""Prediction over files and streams of JSON lines."""

import gzip
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from match_graph.errors import CorpusError, ExportError
from match_graph.io.escape import escape_controls
from match_graph.io.files import write_beside
from match_graph.io.progress import Reporter
from match_graph.io.source import GZIP_FAULTS, bounded_lines, broken_gzip, is_packed
from match_graph.predict.classifier import Classifier
from match_graph.predict.documents import describe_empty, read_rows

#: Stands for standard input or standard output.
STREAM = "-"

#: (place, object) of each document.
Named: TypeAlias = Iterator[tuple[str, dict[str, Any]]]


def predict_lines(
    classifier: Classifier,
    source: str,
    target: str,
    top_k: int | None = None,
    threshold: bool = False,
    batch_size: int = 256,
    reporter: Reporter | None = None,
) -> int:
    """Predicts every document of a file and writes the results in order; returns their number.

    A file is written beside and renamed when all documents are done; standard output gets each
    result as soon as its batches are done.

    Args:
        classifier: Classifier from `load`.
        source: Path of JSON lines, or of CSV where it ends in ``.csv`` or ``.tsv``, packed by gzip
            where ``.gz`` follows; or "-" for JSON lines from standard input.
        target: Path of the results, or "-" for standard output.
        top_k: Number of labels, as for `Classifier.predict`.
        threshold: Whether to use thresholds, as for `Classifier.predict`.
        batch_size: Documents per batch, as for `Classifier.predict`.
        reporter: Progress reporter.

    Raises:
        CorpusError: The source cannot be read, holds no document, or a wrong one (file:line).
        ExportError: The target cannot be written, or is the source.
    """
    reporter = reporter or Reporter(quiet=True)
    _check_target(source, target)
    start, count = time.monotonic(), 0

    def write(file: BinaryIO) -> None:
        nonlocal count
        with _open_source(source) as lines, _track(lines, source, reporter) as advance:
            documents = _read_documents(lines, source)
            settings = top_k, threshold, batch_size, reporter.warn
            for result in classifier.predict_named(documents, *settings):
                file.write(encode_result(result))
                count += 1
                if count % batch_size == 0:
                    file.flush()
                    advance(count)
            file.flush()

    if target == STREAM:
        _write_stream(write)
    else:
        _write_file(Path(target), write)
    seconds = time.monotonic() - start
    reporter.line(
        f"predict: {count:,} documents in {seconds:.1f} s ({count / max(seconds, 1e-9):,.0f}/s)"
    )
    return count


def stream_documents(source: str) -> Named:
    """(place, document) of each line or row of a file, or of standard input, as it is read.

    Args:
        source: Path or "-", as for `predict_lines`.

    Raises:
        CorpusError: It cannot be read, holds no document, or a line or row is none.
    """
    with _open_source(source) as lines:
        yield from _read_documents(lines, source)


def encode_result(result: dict[str, Any]) -> bytes:
    """Line of JSON of what `Classifier.predict` gives for a document."""
    line = escape_controls(json.dumps(result, ensure_ascii=False))  # the same JSON
    return line.encode() + b"\n"


def _read_lines(lines: BinaryIO, source: str) -> Iterator[bytes]:
    """Lines of a source.

    Raises:
        CorpusError: It cannot be read on, or a line is too long; with file:line.
    """
    number = 1
    try:
        for line in bounded_lines(lines, _name(source)):
            yield line
            number += 1
    except GZIP_FAULTS as error:
        raise broken_gzip(f"{_name(source)}:{number}", error) from error
    except OSError as error:
        raise _unreadable(source, error) from error


def _unreadable(source: str, error: OSError) -> CorpusError:
    return CorpusError(
        f"The documents must be a file that can be read, but '{source}' cannot "
        f"({error.strerror}); check the path, or give '-' for standard input."
    )


def _read_documents(lines: BinaryIO, source: str) -> Named:
    """(place, document) pairs of an open source.

    Raises:
        CorpusError: As `_read_lines` and `read_rows`, or there is no document.
    """
    path, found = Path(_name(source)), False
    for pair in read_rows(_read_lines(lines, source), path):
        found = True
        yield pair
    if not found:
        raise describe_empty(path.name, [path])


def _name(source: str) -> str:
    return "<stdin>" if source == STREAM else Path(source).name


def _check_target(source: str, target: str) -> None:
    """Checks the target before anything is read, so that no prediction is lost to a wrong path.

    Raises:
        ExportError: The target is the source, a folder, or no name of a file.
        CorpusError: The source has an impossible name.
    """
    if "\0" in source:
        raise CorpusError(
            f"The documents must be a file that can be read, but {source!r} holds the character "
            f"NUL, which no name may; check the path, or give '-' for standard input."
        )
    if target == STREAM:
        return
    if "\0" in target:
        raise ExportError(
            f"Predictions must go to a file, but {target!r} holds the character NUL, which no name "
            f"may; choose another with --output."
        )
    if source != STREAM and os.path.realpath(source) == os.path.realpath(target):
        raise ExportError(
            f"Predictions must go to another file than the documents, but both are '{target}'; "
            f"choose another with --output."
        )
    if Path(os.path.realpath(target)).is_symlink():
        raise ExportError(
            f"Predictions must go to a file, but '{target}' is a link to itself; choose another "
            f"with --output."
        )
    if Path(target).is_dir():
        raise ExportError(
            f"Predictions must go to a file, but '{target}' is a folder; name a file in it."
        )


@contextmanager
def _open_source(source: str) -> Iterator[BinaryIO]:
    if source == STREAM:
        if sys.stdin is None:  # the shell's <&-
            raise CorpusError(
                "The documents must be a file that can be read, but standard input is closed; "
                "name a file with --input."
            )
        yield sys.stdin.buffer
        return
    try:
        file = Path(source).open("rb")  # noqa: SIM115
    except OSError as error:
        raise _unreadable(source, error) from error
    with file:
        yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_packed(Path(source)) else file


@contextmanager
def _track(lines: BinaryIO, source: str, reporter: Reporter) -> Iterator[Callable[[int], None]]:
    """Progress by bytes read where the size is known; none for a stream."""
    size = 0 if source == STREAM else Path(source).stat().st_size
    raw = lines.fileobj if isinstance(lines, gzip.GzipFile) else lines
    if not size:
        yield lambda _count: None
        return
    with reporter.track("predict", size, "bytes") as advance:
        yield lambda count: advance(raw.tell(), f"{count:,} documents")


def _write_stream(write: Callable[[BinaryIO], None]) -> None:
    """Writes to standard output; on failure, what was written stays.

    Raises:
        ExportError: It is closed, or closes before all is written, or its disk is full.
    """
    if sys.stdout is None:  # the shell's >&-
        raise ExportError(
            "Predictions must go somewhere, but standard output is closed; name a file with "
            "--output."
        )
    try:
        write(sys.stdout.buffer)
    except OSError as error:
        with suppress(OSError):  # what the buffer still holds would fail once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ExportError(
            f"Predictions must be written to the last document, but standard output cannot take "
            f"them ({error.strerror}); name a file with --output, which is there when all is done."
        ) from error


def _write_file(path: Path, write: Callable[[BinaryIO], None]) -> None:
    def fill(beside: Path) -> None:
        with beside.open("wb") as file:
            write(file)

    try:
        if path.exists() and not path.is_file():  # a device or a pipe: nothing to rename
            fill(path)
        else:
            write_beside(Path(os.path.realpath(path)), fill)
    except OSError as error:
        raise ExportError(
            f"Predictions must go to a file that can be written, but '{path}' cannot "
            f"({error.strerror}); choose another with --output."
        ) from error
