"""The CACM collection: articles of the Communications of the ACM with categories of their subject.

Source: https://github.com/kavinsan/Information-Retrieval-Project at feda4806b8 (``cacm.all``, in
the SMART format); about the collection: https://ir.dcs.gla.ac.uk/resources/test_collections/cacm.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from filelock import FileLock
from pydantic import Field

from match_graph.corpus import Faults
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.options import Card, HierarchyConfig, split_by_text
from match_graph.datasets.partitions import PartitionReader
from match_graph.errors import CorpusError
from match_graph.io.download import fetch_file
from match_graph.io.json_lines import Fail
from match_graph.io.partition import Partition
from match_graph.io.source import Sources, hash_file, is_there, max_record_bytes, too_long
from match_graph.typing import LABEL

FILE = "cacm.all"
ADDRESS = (
    "https://raw.githubusercontent.com/kavinsan/Information-Retrieval-Project/"
    "feda4806b8d19af85753c580640d40e572f99339/cacm.all"
)
SHA256 = "0d0eaa9e54987161482a217dcef670a8032d687b1bbe84ba0a8e310b675bd52f"

CacmField: TypeAlias = Literal["venue", "author", "reference", "keyword"]
FIELDS: tuple[CacmField, ...] = ("venue", "author", "reference")

_UNLABELLED = "documents_without_labels_dropped"
_CITES = "5"  # type of the lines of .X that are citations; 4 and 6 are coupling and co-citation

_IGNORED = "?"  # field of lines after one outside of any field

_is_start = re.compile(r"\.I\s+(\S+)\s*").fullmatch
_is_field = re.compile(r"\.([TWBAKCNX])\s*").fullmatch
_is_citation = re.compile(r"\s*(?:\d+\s+\d+\s+\d+\s*)?").fullmatch
_find_codes = re.compile(r"(?<!\S)\d\.\d{1,2}(?!\S)", re.ASCII).findall
_find_year = re.compile(r"\b\d{4}\b", re.ASCII).search


class Cacm(CorpusDataset):
    """Articles of the Communications of the ACM, 1968 to 1979, by the categories of their subject.

    The text is title and abstract. The venue is the year, as all articles are of one journal;
    references are citations between articles, in both directions. Labels are the categories of the
    Computing Reviews, ``d.d`` or ``d.dd``, not closed upwards; their hierarchy is that of their
    digits. The split is that of equal texts: int(SHA-256(text), 16) mod 10.

    Raises:
        CorpusError: The file cannot be fetched, or with every fault of it, each with file:line.
    """

    class Config(HierarchyConfig):
        """Options of the CACM collection."""

        path: str | None = Field(
            None, description=f"{FILE}; none: raw/cacm/{FILE} below the root, fetched"
        )
        fields: Sequence[CacmField] = Field(
            FIELDS, description="metadata fields: venue, author, reference, keyword"
        )

    config: Config
    card = Card("cacm", "the ACM's, for research", "1,424 documents; 2.2 MB", "fetched from GitHub")
    raw_pattern = FILE
    path_options = ("path",)

    @property
    def path(self) -> Path:
        """The file."""
        path = self.config.path
        return Path(self.raw_dir, FILE) if path is None else Path(path)

    @property
    def raw_file_names(self) -> list[str]:
        if self.config.path is not None and not is_there(self.path):
            raise CorpusError(
                f"The option 'path' of '{self.name}' must name the file {FILE}, but there is none "
                f"at '{self.path}'; check the path."
            )
        return [str(self.path.absolute())]

    def download(self) -> None:
        """Downloads the file, unless another process has done so meanwhile."""
        with FileLock(f"{self.raw_dir}.lock"):
            if not is_there(self.path):
                fetch_file(ADDRESS, self.path, self.name, self.track, f"sha256:{SHA256}")

    def reader(self) -> "CacmReader":
        return CacmReader(self.path, self.config, self.faults_mode)


class CacmReader(PartitionReader):
    """Reader of a collection in the SMART format as a whole.

    Args:
        path: Path of ``cacm.all``.
        config: Options; ``path`` does not count, None takes the defaults.
        faults: Policy for faulty documents, as for `CorpusDataset`.
    """

    def __init__(
        self, path: Path, config: Cacm.Config | None = None, faults: Faults = "refuse"
    ) -> None:
        self.path, self.config = path, config or Cacm.Config()
        summary = f"The file '{path}' must be the CACM collection"
        tokenizer = self.config.tokenizer
        super().__init__("cacm", self.config.fields, summary, faults, tokenizer, [path])

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        return [Partition(self.path)]

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        builder.notes[_UNLABELLED] += 0
        lines, name = partition.lines(sources), partition.path.name
        labels: dict[str, str] = {}
        for record in builder.documents(read_records(lines, name, builder.fail)):
            found = record.list_labels()
            if record.is_faulty:
                continue
            if not found:
                builder.notes[_UNLABELLED] += 1
                continue
            text = record.text
            metadata = {field: record.list_values(field) for field in builder.fields}
            place = record.place
            builder.add(record.document, split_by_text(text), text, metadata, found, place)
            labels.update(dict.fromkeys(found, place))
        builder.note_seen(LABEL, labels)

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        if self.config.hierarchy == "use":
            for label, place in builder.seen.get(LABEL, {}).items():
                child, parent = label, parent_code(label)
                while parent is not None:
                    builder.edges.setdefault((child, parent), place)
                    child, parent = parent, parent_code(parent)
        if hash_file(self.path) != SHA256:
            builder.warnings.append(
                f"'{self.path}' is not the file that the card tells of (its SHA-256 is another); "
                f"its counts and results are others"
            )


class SmartRecord(NamedTuple):
    """Record of a file in the SMART format.

    Args:
        place: file:line of its start.
        document: Id of the document.
        lines: Lines of each field, without their line break.
        is_faulty: Whether a line of it is at fault.
    """

    place: str
    document: str
    lines: dict[str, list[str]]
    is_faulty: bool

    @property
    def text(self) -> str:
        """Title and abstract, lines joined as they are."""
        return " ".join([*self.lines.get("T", ()), *self.lines.get("W", ())])

    def list_labels(self) -> list[str]:
        """Categories, sorted."""
        return sorted(set(_find_codes(" ".join(self.lines.get("C", ())))))

    def list_values(self, field: str) -> list[str]:
        """Instances of a metadata field, sorted; blanks become ``_``."""
        if field == "venue":
            year = _find_year(" ".join(self.lines.get("B", ())))
            return [year[0]] if year else []
        if field == "author":
            names = self.lines.get("A", [])
        elif field == "keyword":
            names = " ".join(self.lines.get("K", ())).lower().split(",")
        else:
            citations = [line.split() for line in self.lines.get("X", ()) if line.strip()]
            names = [one[0] for one in citations if one[1] == _CITES and one[0] != self.document]
        return sorted({"_".join(name.split()) for name in names if name.strip()})


def read_records(lines: Iterable[bytes], name: str, fail: Fail) -> Iterator[SmartRecord]:
    """Records of a file in the SMART format, in Latin-1.

    Args:
        lines: Lines of the file.
        name: Name of the file, for places.
        fail: Callback that takes the faults: a line before the first record or before its first
            field, a citation that is not three numbers. It is called before the record is yielded.

    Raises:
        CorpusError: A record is larger than `max_record_bytes`.
    """
    record: SmartRecord | None = None
    field, size, most = "", 0, max_record_bytes()
    for number, line in enumerate(lines, start=1):
        text, size = line.decode("latin-1").rstrip("\r\n"), size + len(line)
        if start := _is_start(text):
            if record is not None:
                yield record
            record, field, size = SmartRecord(f"{name}:{number}", start[1], {}, False), "", 0
        elif size > most:
            raise too_long(f"{name}:{number}", "a record")
        elif record is not None and (found := _is_field(text)):
            field = found[1]
            record.lines.setdefault(field, [])
        elif fault := _find_fault(text, field):
            fail(f"{name}:{number}: {fault}")
            field = field or _IGNORED
            record = record and record._replace(is_faulty=True)
        elif record is not None:
            record.lines.setdefault(field, []).append(text)
    if record is not None:
        yield record
    elif not field:
        fail(f"{name}:1: the file must hold records, found none; fetch it again.")


def _find_fault(text: str, field: str) -> str:
    """Fault of a line of a field as a clause; empty if there is none."""
    if not field and text.strip():
        return (
            f"a line must stand in a field of a record, which begins with '.I' and its number, "
            f"found '{text[:60]}'; fetch the file again."
        )
    if field == "X" and not _is_citation(text):
        return f"a line of .X must be three numbers, found '{text[:60]}'; mend or remove the line."
    return ""


def parent_code(code: str) -> str | None:
    """``5.14`` -> ``5.1`` -> ``5`` -> None."""
    above, dot, rest = code.partition(".")
    return None if not dot else f"{above}.{rest[:-1]}" if len(rest) > 1 else above
