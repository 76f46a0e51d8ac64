"""Files of every reader with bytes changed, cut or put in: a corpus, or a sentence with a place."""

import gzip
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from match_graph.datasets import Synthetic, open_dataset
from match_graph.errors import CorpusError
from match_graph.graph import build_graph
from match_graph.speed.formats import COMMON_FIELDS, WRITERS, Sample, take_sample
from match_graph.speed.read import READERS

PIECES = (
    b'"', b"\\", b"[", b"}", b"null", b"1e999", b"NaN", b"\n", b"\r", b"\t", b"\x00", b"\xff",
    b"\xef\xbb\xbf", b"&#0;", b"<", b"&x;", b"\\ud800", b",", b";", b'{"a": []}', b"9" * 5000,
)  # fmt: skip


@pytest.fixture(scope="module")
def sample(synthetic: Synthetic) -> Sample:
    """Few documents, so that most changes hit content."""
    return take_sample(synthetic, 40)


def damage(content: bytes, draw: random.Random) -> bytes:
    """Inserts, overwrites, removes or truncates bytes."""
    start, piece = draw.randrange(len(content)), draw.choice(PIECES)
    stop = start + draw.choice([0, 1, len(piece), 100])
    return draw.choice(
        [
            content[:start] + piece + content[stop:],
            content[:start] + content[stop:],
            content[:start],
        ]
    )


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_a_damaged_file_is_read_or_named(sample: Sample, tmp_path: Path, name: str) -> None:
    """A damaged file raises `CorpusError` or gives a valid graph, nothing else."""
    draw, whole = random.Random(name), tmp_path / "whole"
    whole.mkdir()
    WRITERS[name](sample, whole)
    files = sorted(path.name for path in whole.iterdir())
    place = re.compile("|".join(rf"{re.escape(file)}(:\d+|:record \d+|\b)" for file in files))
    refused = 0
    for number in range(20):
        folder = tmp_path / str(number)
        shutil.copytree(whole, folder)
        path = folder / draw.choice(files)
        path.write_bytes(damage(path.read_bytes(), draw))
        try:
            build_graph(READERS[name].read(folder, list(COMMON_FIELDS), "whitespace"))
        except CorpusError as error:
            refused += 1
            message = str(error)
            assert place.search(message) or "training split must hold a document" in message
    assert refused


#: The file that holds the documents, and what a corpus of it must be, by format.
DOCUMENTS = {
    "mag-cs": ("train.json", "The folder '{folder}' must be in the MATCH format"),
    "maple json": ("papers.json", "The folder '{folder}' must be one of MAPLE's"),
    "maple graph": ("papers.txt", "The folder '{folder}' must be one of MAPLE's"),
    "openalex": ("works.jsonl", "The files of 'openalex' must hold OpenAlex works"),
    "pubmed-xml": ("records.xml", ""),
    "custom csv": ("custom.csv", "The files of 'custom' must hold documents"),
    "custom json": ("custom.jsonl", "The files of 'custom' must hold documents"),
}


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_a_wrong_encoding_is_named_by_line(sample: Sample, tmp_path: Path, name: str) -> None:
    """A byte of Latin-1 in the third line is named by line."""
    WRITERS[name](sample, tmp_path)
    file, summary = DOCUMENTS[name]
    lines = (tmp_path / file).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:5] + b"\xe9" + lines[2][5:]
    (tmp_path / file).write_bytes(b"".join(lines))
    with pytest.raises(CorpusError) as caught:
        READERS[name].read(tmp_path, list(COMMON_FIELDS), "whitespace")
    message, summary = str(caught.value), summary.format(folder=tmp_path)
    fault = f"{file}:3: the file must be UTF-8, but byte 5 of the line is 0xe9; convert the file."
    if name == "pubmed-xml":
        assert message == (
            "records.xml:3: XML must be well-formed, but here it is not (not well-formed (invalid "
            "token), column 6); fetch the file again."
        )
    elif name == "maple graph":  # edges of the paper in that line start nowhere
        assert message.splitlines()[:2] == [f"{summary}, but 13 faults were found:", f"  {fault}"]
    else:
        assert message == f"{summary}: {fault}"


OPTIONS: dict[str, dict[str, Any]] = {
    "custom json": {"columns": {"id": "paper"}},
    "custom csv": {"columns": {"id": "paper"}},
    "openalex": {},
    "pubmed-xml": {"hierarchy": "ignore"},
}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_a_truncated_gzip_file_is_named_and_nothing_is_built(
    sample: Sample, tmp_path: Path, name: str
) -> None:
    """A truncated gzip file is refused by every reader of packed files."""
    WRITERS[name](sample, tmp_path)
    file, _ = DOCUMENTS[name]
    packed = gzip.compress((tmp_path / file).read_bytes())
    (tmp_path / f"{file}.gz").write_bytes(packed[:-100])
    options = {"path": str(tmp_path / f"{file}.gz"), "root": tmp_path / "root"}
    with pytest.raises(CorpusError) as caught:
        open_dataset(name.split(maxsplit=1)[0], **OPTIONS[name], **options)
    place = "record 1" if name == "pubmed-xml" else "1"
    assert str(caught.value) == (
        f"{file}.gz:{place}: a file named .gz must be whole and packed by gzip, but from here on "
        f"it cannot be read (Compressed file ended before the end-of-stream marker was reached); "
        f"fetch it again."
    )
    assert [path.suffix for path in (tmp_path / "root" / "built").iterdir()] == [".lock"]
