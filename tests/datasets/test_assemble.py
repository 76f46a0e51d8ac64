"""Builds by way of fragments: the same bytes and the same faults as a reading into memory."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from match_graph.datasets import (
    Custom,
    MagCs,
    Maple,
    OpenAlex,
    PubMedXml,
    Synthetic,
    built,
)
from match_graph.datasets import (
    assemble as module,
)
from match_graph.datasets.assemble import Task, assemble
from match_graph.datasets.built import load_faults, write_build
from match_graph.datasets.custom import CustomReader
from match_graph.datasets.maple import MapleReader
from match_graph.datasets.match_folder import TAXONOMY, MatchReader
from match_graph.datasets.openalex import OpenAlexReader
from match_graph.datasets.partitions import PartitionReader
from match_graph.datasets.pubmed_xml import PubMedReader
from match_graph.errors import CorpusError
from match_graph.graph import build_graph, node_tables, renumber, strings
from match_graph.io.manifest import MANIFEST
from match_graph.speed.formats import SEPARATOR, SPLIT, WRITERS, Sample, take_sample

ABOUT = {"name": "it", "tokenizer": "regex", "source": {}}
FIELDS = ["venue", "author", "reference"]


def make_custom(folder: Path, name: str) -> PartitionReader:
    taxonomy = str(folder / TAXONOMY)
    config = Custom.Config(
        fields=FIELDS, columns={"id": "paper", "split": "split"}, separator=SEPARATOR,
        taxonomy=taxonomy,
    )  # fmt: skip
    return CustomReader([folder / name], config)


def make_maple(folder: Path, release: str) -> PartitionReader:
    return MapleReader(folder, Maple.Config.model_validate({"release": release, **SPLIT}))


def make_openalex(folder: Path) -> PartitionReader:
    options = {"labels": "concepts", "concepts": str(folder / "concepts.jsonl"), **SPLIT}
    return OpenAlexReader([folder / "works.jsonl"], OpenAlex.Config.model_validate(options))


def make_pubmed(folder: Path) -> PartitionReader:
    options = {"trees": str(folder / "mtrees.bin"), "categories": "A", **SPLIT}
    return PubMedReader([folder / "records.xml"], PubMedXml.Config.model_validate(options))


READERS: dict[str, Callable[[Path], PartitionReader]] = {
    "mag-cs": lambda folder: MatchReader(folder, MagCs.Config()),
    "maple json": lambda folder: make_maple(folder, "json"),
    "maple graph": lambda folder: make_maple(folder, "graph"),
    "pubmed-xml": make_pubmed,
    "openalex": make_openalex,
    "custom json": lambda folder: make_custom(folder, "custom.jsonl"),
    "custom csv": lambda folder: make_custom(folder, "custom.csv"),
}


@pytest.fixture(scope="module")
def sample(synthetic: Synthetic) -> Sample:
    return take_sample(synthetic, 400)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, so that there are many fragments, ranges and row groups."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(strings, "RANGE", 300)
    monkeypatch.setattr(strings, "_BLOCK", 70)
    monkeypatch.setattr("match_graph.io.tables.ROW_GROUP", 50)
    monkeypatch.setattr(renumber, "MAX_POSITIONS", 60)
    monkeypatch.setattr("match_graph.graph.build.MAX_POSITIONS", 60)


def content(folder: Path) -> dict[str, bytes]:
    """Bytes of every file of a build."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def build_in_memory(folder: Path, reader: PartitionReader) -> dict[str, bytes]:
    corpus = reader.read_corpus()
    graph = build_graph(corpus)
    about = {**ABOUT, "notes": graph.notes, "warnings": corpus.find_oddities()}
    write_build(folder, graph, corpus.skipped, about)
    return content(folder)


def build(folder: Path, reader: PartitionReader) -> dict[str, bytes]:
    assemble(folder, reader, ABOUT, lambda: None)
    return content(folder)


def assert_same(left: dict[str, bytes], right: dict[str, bytes]) -> None:
    assert json.loads(left["corpus.json"]) == json.loads(right["corpus.json"])
    assert [name for name in left.keys() | right.keys() if left.get(name) != right.get(name)] == []


@pytest.mark.parametrize("name", WRITERS)
def test_assemble_same_bytes_as_in_memory(name: str, sample: Sample, tmp_path: Path) -> None:
    """Fragments give the bytes of a build in memory for every reader."""
    raw = tmp_path / "raw"
    raw.mkdir()
    WRITERS[name](sample, raw)
    expected = build_in_memory(tmp_path / "memory", READERS[name](raw))
    assert_same(build(tmp_path / "parts", READERS[name](raw)), expected)
    assert json.loads(expected["corpus.json"])["notes"]["words_cut"] > 0
    assert {path.name for path in tmp_path.iterdir()} == {"raw", "memory", "parts"}


def write_rows(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text(
        "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    )
    return path


def make_row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"d{number}", "text": f"a w{number}", "label": ["l"], "author": ["x"], **more}


def write_faulty(folder: Path, **more: Any) -> list[Path]:
    """Three files with faults of lines, values and ids, some across the files.

    Every document has ``more`` but one, which is left out as another file has its id.
    """
    rows = [make_row(n, label=["l", "l", "l", "m"], **more) for n in range(4)]
    first = [*rows[:2], "{", rows[1], *rows[2:]]
    second = [
        make_row(9, author={"x": 1}, **more),
        make_row(2, label=["l", "l", "only"], **more),
        make_row(8, **more),
    ]
    third = [
        make_row(8, label=["z", "z"], **more),
        make_row(0),
        "[]",
        make_row(7, label=["m", "m"], **more),
    ]
    given = enumerate((first, second, third))
    return [write_rows(folder / f"{number}.jsonl", rows) for number, rows in given]


def make_reader(files: Sequence[Path], faults: Any = "refuse", **options: Any) -> CustomReader:
    return CustomReader(files, Custom.Config(fields=["author"], **options), faults)


def test_assemble_faults_as_in_memory(tmp_path: Path) -> None:
    """Fragments give the faults of a build in memory, in order, also across files."""
    files = write_faulty(tmp_path)
    with pytest.raises(CorpusError) as expected:
        make_reader(files).read_corpus()
    with pytest.raises(CorpusError) as caught:
        build(tmp_path / "it", make_reader(files))
    assert str(caught.value) == str(expected.value)
    assert "2.jsonl:1: the document 'd8' was given before (1.jsonl:3)" in str(caught.value)
    assert {path.suffix for path in tmp_path.iterdir()} == {".jsonl"}


#: A file that is read in blocks of lines, by reader.
BLOCKS = {
    "mag-cs": "train.json",
    "maple json": "papers.json",
    "openalex": "works.jsonl",
    "custom json": "custom.jsonl",
}


@pytest.mark.parametrize("name", BLOCKS)
def test_assemble_faults_of_later_blocks_name_their_line(
    name: str, sample: Sample, tmp_path: Path
) -> None:
    """Lines are counted from the start of the file, not of the block."""
    WRITERS[name](sample, tmp_path)
    path = tmp_path / BLOCKS[name]
    with path.open("a") as file:
        file.write("{\n")
    line = path.read_bytes().count(b"\n")
    with pytest.raises(CorpusError, match=f"{path.name}:{line}: "):
        build(tmp_path / "it", READERS[name](tmp_path))


def test_assemble_faults_of_later_names_give_their_line(sample: Sample, tmp_path: Path) -> None:
    """Faults in blocks of names are named by line, too."""
    WRITERS["mag-cs"](sample, tmp_path)
    (tmp_path / "id2label.txt").write_bytes(b"l\tname\n" * 9000 + b"\xff\n")
    with pytest.raises(CorpusError, match=r"id2label\.txt:9001: "):
        build(tmp_path / "it", READERS["mag-cs"](tmp_path))


@pytest.mark.parametrize("more", [{}, {"date": "2020"}])
def test_assemble_skipped_as_in_memory(tmp_path: Path, more: dict[str, str]) -> None:
    """Nodes of skipped documents alone are left out, and notes of these documents.

    Times are kept where all other documents have one.
    """
    files = write_faulty(tmp_path, **more)
    reader = make_reader(files, "skip", columns={name: name for name in more})
    expected = build_in_memory(tmp_path / "memory", reader)
    assert_same(build(tmp_path / "parts", reader), expected)
    assert json.loads(expected["corpus.json"])["notes"]["repeated_values_dropped"] == 2 * 4 + 1
    assert load_faults(tmp_path / "parts")["place"].tolist() == [
        "0.jsonl:3", "0.jsonl:4", "1.jsonl:1", "1.jsonl:2", "2.jsonl:1", "2.jsonl:2", "2.jsonl:3",
    ]  # fmt: skip


def test_assemble_many_faults_as_in_memory(tmp_path: Path) -> None:
    """Reading stops at a hundred faults, in whichever fragments they are."""
    rows = [[make_row(100 * part + n, text=n) for n in range(60)] for part in range(3)]
    files = [write_rows(tmp_path / f"{part}.jsonl", rows[part]) for part in range(3)]
    with pytest.raises(CorpusError) as expected:
        make_reader(files).read_corpus()
    with pytest.raises(CorpusError) as caught:
        build(tmp_path / "it", make_reader(files))
    assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([make_row(1, date="2020")], {"train_until": "2019", "columns": {"date": "date"}}),
        ([make_row(n) for n in range(20)], {"taxonomy": "b c\nc b\nl m\n"}),
        ([make_row(n) for n in range(20)], {"columns": {"text": ["title"]}}),
        ([{"id": "d"}], {"columns": {"text": "id", "label": "id"}, "train_until": None}),
    ],
)
def test_assemble_faults_of_the_whole(rows, options, tmp_path: Path) -> None:
    """Faults over all fragments: no training document, a cycle, missing columns."""
    if "taxonomy" in options:
        (tmp_path / "t.txt").write_text(options["taxonomy"])
        options = {"taxonomy": str(tmp_path / "t.txt")}
    files = [write_rows(tmp_path / "a.jsonl", rows)]
    with pytest.raises(CorpusError) as expected:
        make_reader(files, **options).read_corpus()
    with pytest.raises(CorpusError) as caught:
        build(tmp_path / "it", make_reader(files, **options))
    assert str(caught.value) == str(expected.value)


def test_assemble_oddities_as_in_memory(tmp_path: Path) -> None:
    """Empty fields and a hierarchy without labels of documents are warned of."""
    rows = [make_row(n, author=[], date=None if n else "2020") for n in range(200)]
    files = [write_rows(tmp_path / "a.jsonl", rows)]
    (tmp_path / "t.txt").write_text("p q\n")
    reader = make_reader(files, taxonomy=str(tmp_path / "t.txt"), columns={"date": "date"})
    expected = build_in_memory(tmp_path / "memory", reader)
    assert_same(build(tmp_path / "parts", reader), expected)
    assert len(json.loads(expected["corpus.json"])["warnings"]) == 2


def test_assemble_fields_may_have_any_name(tmp_path: Path) -> None:
    """Fields may have the names of lists in a build, such as gold labels."""
    rows = [
        make_row(
            n, label=["lm"[n % 2]], targets=[f"t{n % 5}"], cites=[f"c{n % 3}"], reference=["d1"]
        )
        for n in range(40)
    ]
    files = [write_rows(tmp_path / "a.jsonl", rows)]
    config = Custom.Config(fields=["targets", "cites", "reference"])
    reader = CustomReader(files, config, "refuse")
    expected = build_in_memory(tmp_path / "memory", reader)
    assert_same(build(tmp_path / "parts", reader), expected)


def test_assemble_later_versions_as_in_memory(tmp_path: Path) -> None:
    """A later version in another file is dropped, with the counts of its notes.

    The earlier ones alone have dates, so that all documents have times.
    """
    record = (
        '<PubmedArticle><MedlineCitation><PMID Version="{}">{}</PMID><MeshHeadingList><MeshHeading>'
        '<DescriptorName UI="D{}">Ear{}</DescriptorName></MeshHeading></MeshHeadingList>'
        "<Article><Journal><JournalIssue><PubDate>{}</PubDate></JournalIssue></Journal></Article>"
        "</MedlineCitation><PubmedData><ReferenceList><Reference><ArticleIdList/></Reference>"
        "</ReferenceList></PubmedData></PubmedArticle>"
    )
    (tmp_path / "mtrees.bin").write_text("Ear1;A01\n")
    versions = ("a.xml.gz", 1, "<Year>1998</Year>"), ("b.xml.gz", 2, "")
    for name, version, date in versions:
        records = "".join(record.format(version, n, n % 3, n % 3, date) for n in range(9))
        text = f"<PubmedArticleSet>{records}</PubmedArticleSet>"
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    files = sorted(tmp_path.glob("*.gz"))
    reader = PubMedReader(files, PubMedXml.Config(trees=str(tmp_path / "mtrees.bin")))
    expected = build_in_memory(tmp_path / "memory", reader)
    assert_same(build(tmp_path / "parts", reader), expected)
    assert json.loads(expected["corpus.json"])["notes"]["later_versions_dropped"] == 9


def test_assemble_killed_build_resumes(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Complete fragments of a killed build are kept; others are read again."""
    WRITERS["custom json"](sample, tmp_path)
    reader, read = READERS["custom json"](tmp_path), module._read_fragment
    seen: list[int] = []

    def count(task: Task, *rest: Any) -> None:
        seen.append(task.partition.line)
        if len(seen) == 4:
            raise KeyboardInterrupt
        read(task, *rest)

    monkeypatch.setattr(module, "_read_fragment", count)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "it", reader)
    room = tmp_path / "it.fragments"
    assert sorted(path.name for path in room.iterdir()) == ["000000", "000001", "000002", "work"]
    about = room / "000001" / "fragment.json"
    about.write_text(about.read_text().replace('"kind": "documents"', '"kind": "works"'))
    earlier = json.loads((room / "000002" / "fragment.json").read_text())
    earlier["partition"]["format"] = 2  # which had no tokenizer
    del earlier["tokenizer"]
    (room / "000002" / "fragment.json").write_text(json.dumps(earlier))
    expected = build_in_memory(tmp_path / "memory", reader)
    assert_same(build(tmp_path / "it", reader), expected)
    again = seen[4:]
    assert again[:3] == [seen[1], seen[2], seen[3]]
    assert len(again) == len(set(again)) > 5
    assert not room.exists()


def test_assemble_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is one sentence, and no fragments are left."""

    def fill(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node_tables, "write_table", fill)
    files = [write_rows(tmp_path / "a.jsonl", [make_row(n) for n in range(20)])]
    with pytest.raises(CorpusError, match=r"must be built whole, .* \(No space left on device\)"):
        build(tmp_path / "it", make_reader(files))
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    assert built.is_built(tmp_path / "it") is (tmp_path / "it" / MANIFEST).exists() is False


@pytest.mark.parametrize("options", [{}, {"like": "mag-cs", "scale": 0.005, "label_scale": 0.02}])
def test_assemble_planted_as_in_memory(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of synthetic documents give the bytes of a build in memory."""
    monkeypatch.setattr("match_graph.datasets.planted.PIECE", 700)
    dataset = Synthetic(root=tmp_path / "root", **options)
    assert len(dataset.reader().list_partitions()) > 2
    expected = build_in_memory(tmp_path / "memory", dataset.reader())
    assert_same(build(tmp_path / "parts", dataset.reader()), expected)
    monkeypatch.setattr("match_graph.datasets.planted._MAX_TEXTS", 0)
    expected = build_in_memory(tmp_path / "memory2", dataset.reader())
    assert_same(build(tmp_path / "parts2", dataset.reader()), expected)
    assert "nodes/document.parquet" in expected
    assert len(expected["nodes/document.parquet"]) < len(
        content(tmp_path / "memory")["nodes/document.parquet"]
    )
