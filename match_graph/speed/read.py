"""Documents per second and peak memory of every reader, against a bare parser of its files."""

import csv
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from defusedxml.ElementTree import iterparse

from match_graph.corpus import Corpus
from match_graph.datasets import (
    Custom,
    CustomReader,
    MagCs,
    Maple,
    MapleReader,
    MatchReader,
    OpenAlex,
    OpenAlexReader,
    PubMedReader,
    PubMedXml,
)
from match_graph.datasets.match_folder import TAXONOMY
from match_graph.speed.alone import Measured, measure_both, run_alone
from match_graph.speed.formats import SEPARATOR, SPLIT, WRITERS, take_sample
from match_graph.speed.measure import Bench, Speed, make_speed
from match_graph.typing import Tokenizer

#: Largest number of documents that are taken from the data set.
_DOCUMENTS = 50_000
_COLUMNS = {"id": "paper", "split": "split"}


@dataclass(frozen=True)
class Reader:
    """Reader of a format, with its baseline.

    Args:
        read: Reads the corpus in a folder, with some fields.
        parse: Baseline, which only parses the same files.
        parser: Name of the baseline.
    """

    read: Callable[[Path, list[str], Tokenizer], Corpus]
    parse: Callable[[Path], object]
    parser: str


def _parse_json(folder: Path) -> None:
    for path in (*folder.glob("*.json"), *folder.glob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                json.loads(line)


def _parse_csv(folder: Path) -> None:
    with (folder / "custom.csv").open(encoding="utf-8", newline="") as file:
        for _ in csv.reader(file):
            pass


def _parse_xml(folder: Path) -> None:
    for _, element in iterparse(folder / "records.xml"):
        if element.tag == "PubmedArticle":
            element.clear()


def _split_tabs(folder: Path) -> None:
    for path in folder.glob("*.txt"):
        with path.open(encoding="utf-8") as file:
            for line in file:
                line.split("\t")


def _read_custom(name: str) -> Callable[[Path, list[str], Tokenizer], Corpus]:
    def read(folder: Path, fields: list[str], tokenizer: Tokenizer) -> Corpus:
        taxonomy = str(folder / TAXONOMY)
        config = Custom.Config(
            fields=fields, columns=_COLUMNS, separator=SEPARATOR, taxonomy=taxonomy,
            tokenizer=tokenizer,
        )  # fmt: skip
        return CustomReader([folder / name], config).read_corpus()

    return read


def _read_maple(release: str) -> Callable[[Path, list[str], Tokenizer], Corpus]:
    def read(folder: Path, fields: list[str], tokenizer: Tokenizer) -> Corpus:
        options = {"release": release, "fields": fields, "tokenizer": tokenizer, **SPLIT}
        return MapleReader(folder, Maple.Config.model_validate(options)).read_corpus()

    return read


def _read_release(folder: Path, fields: list[str], _tokenizer: Tokenizer) -> Corpus:
    return MatchReader(folder, MagCs.Config(fields=fields)).read_corpus()


def _read_openalex(folder: Path, fields: list[str], tokenizer: Tokenizer) -> Corpus:
    concepts = str(folder / "concepts.jsonl")
    options = {"fields": fields, "tokenizer": tokenizer, "concepts": concepts, **SPLIT}
    config = OpenAlex.Config.model_validate({"labels": "concepts", **options})
    return OpenAlexReader([folder / "works.jsonl"], config).read_corpus()


def _read_pubmed_xml(folder: Path, fields: list[str], tokenizer: Tokenizer) -> Corpus:
    trees = str(folder / "mtrees.bin")
    options = {"fields": fields, "tokenizer": tokenizer, "trees": trees, **SPLIT}
    config = PubMedXml.Config.model_validate({"categories": "A", **options})
    return PubMedReader([folder / "records.xml"], config).read_corpus()


#: Every reader of files, by the formats in `WRITERS`.
READERS: dict[str, Reader] = {
    "mag-cs": Reader(_read_release, _parse_json, "json.loads alone"),
    "maple json": Reader(_read_maple("json"), _parse_json, "json.loads alone"),
    "maple graph": Reader(_read_maple("graph"), _split_tabs, "str.split alone"),
    "pubmed-xml": Reader(_read_pubmed_xml, _parse_xml, "iterparse alone"),
    "openalex": Reader(_read_openalex, _parse_json, "json.loads alone"),
    "custom json": Reader(_read_custom("custom.jsonl"), _parse_json, "json.loads alone"),
    "custom csv": Reader(_read_custom("custom.csv"), _parse_csv, "csv.reader alone"),
}


def measure_read(bench: Bench) -> Iterator[Speed]:
    """Measures each reader in a new process, on documents of the data set in its format.

    A reader makes a `Corpus`: it checks every value, tokenizes texts, and encodes and keeps all
    values. The baseline parses the same files and keeps nothing.
    """
    sample = take_sample(bench.dataset, _DOCUMENTS)
    number, fields = len(sample.records), sample.fields
    for name, write in WRITERS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write(sample, folder)
            size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
            measured = run_alone(
                _measure_reader, name, folder, number, fields, bench.dataset.tokenizer,
                bench.seconds / len(WRITERS), bench.busy,
            )  # fmt: skip
        yield make_speed(
            bench.on_cpu, f"read: {name}", f"{number:,} documents, {size:,.0f} MB",
            "documents/s", measured.rates, READERS[name].parser, measured.peak_mib,
            megabytes_per_s=size * measured.rates.per_second["ours"] / number,
        )  # fmt: skip


def _measure_reader(
    name: str,
    folder: Path,
    number: int,
    fields: list[str],
    tokenizer: Tokenizer,
    seconds: float,
    busy: int,
) -> Measured:
    reader = READERS[name]

    def ours() -> int:
        return reader.read(folder, fields, tokenizer).num_documents

    def parse() -> int:
        reader.parse(folder)
        return number

    return measure_both(ours, reader.parser, parse, seconds, busy)
