"""bio.tools: software of the life sciences, with topics and operations of EDAM as labels.

Source: https://github.com/bio-tools/content at 51540fd568 (March 2021, one JSON file per tool);
https://github.com/edamontology/edamontology, ``releases/EDAM_1.25.owl``.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal, TypeAlias

from filelock import FileLock
from pydantic import Field

from match_graph.corpus import Faults
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.biotools_record import BioToolsRecord
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.edam import EdamClass, read_edam
from match_graph.datasets.options import Card, HierarchyConfig, split_by_text
from match_graph.datasets.partitions import PartitionReader
from match_graph.errors import CorpusError
from match_graph.io.archive import list_archives, unpack_archive
from match_graph.io.beside import beside
from match_graph.io.download import fetch_file
from match_graph.io.json_lines import read_json_object
from match_graph.io.partition import Partition
from match_graph.io.source import Sources, is_folder, is_there
from match_graph.typing import LABEL

SUFFIX = ".biotools.json"
RECORDS = "data"  # folder of the repository
ONTOLOGY = "EDAM_1.25.owl"
ARCHIVE = "https://github.com/bio-tools/content/archive/51540fd568.tar.gz"
EDAM = f"https://raw.githubusercontent.com/edamontology/edamontology/main/releases/{ONTOLOGY}"
EDAM_SHA256 = "af29132f641b5f4096d9d7659ee9450c75b1ef56471a7c35e3175d1228324f48"

BioToolsField: TypeAlias = Literal[
    "venue", "author", "reference", "credit", "language", "tool_type"
]
FIELDS: tuple[BioToolsField, ...] = ("venue", "author", "reference")

_UNLABELLED, _OUTSIDE = "documents_without_labels_dropped", "terms_outside_edam"
_UNKNOWN = "labels_not_in_edam"
_UNKNOWN_SHARE = 0.05  # of the labels, above which the ontology is probably the wrong one


class BioTools(CorpusDataset):
    """Records of bio.tools, the registry of software for the life sciences, by EDAM.

    The text is name and description, and title and abstract of the first publication whose
    metadata are there; the venue is its journal. Authors are those of all publications, as names;
    references are DOIs (else PMIDs, else PMCIDs) of publications, and related tools. Labels are
    topics and operations, not closed upwards; the hierarchy is a DAG. The split is that of equal
    texts: int(SHA-256(text), 16) mod 10.

    Raises:
        CorpusError: The files cannot be fetched, or with every fault of them, each with its place.
    """

    class Config(HierarchyConfig):
        """Options of bio.tools."""

        path: str | None = Field(
            None,
            description=f"checkout of bio-tools/content, or a folder of its files ID{SUFFIX}; "
            "none: raw/biotools below the root, fetched",
        )
        ontology: str | None = Field(
            None,
            description="EDAM as OWL, packed by gzip or not; none: the last version of EDAM*.owl "
            "there",
        )
        fields: Sequence[BioToolsField] = Field(
            FIELDS,
            description="metadata fields: venue, author, reference, credit, language, tool_type",
        )

    config: Config
    card = Card(
        "biotools", "CC BY 4.0; EDAM CC BY-SA 4.0", "19,528 documents; 80 MB", "fetched from GitHub"
    )
    raw_pattern = f"**/*{SUFFIX}"
    path_options = ("path", "ontology")
    num_records: ClassVar[int] = 19_649

    @property
    def raw_dir(self) -> str:
        return super().raw_dir if self.config.path is None else self.config.path

    @property
    def ontology(self) -> Path | None:
        """File of the ontology, present or to be fetched; None if it is not read."""
        if self.config.hierarchy == "ignore":
            return None
        if self.config.ontology is not None:
            return Path(self.config.ontology)
        return find_ontology(Path(self.raw_dir))

    @property
    def raw_file_names(self) -> list[str]:
        records, ontology = find_records(Path(self.raw_dir)), self.ontology
        is_fetched = self.config.path is None
        if not records and not is_fetched:
            raise CorpusError(
                f"The option 'path' of '{self.name}' must name a folder with files ID{SUFFIX}, or "
                f"with a folder '{RECORDS}' of them, but there is none in '{self.raw_dir}'; check "
                f"the path."
            )
        is_named = self.config.ontology is not None or not is_fetched
        if ontology is not None and is_named and not is_there(ontology):
            raise CorpusError(
                f"The hierarchy of '{self.name}' is read from EDAM, but there is no '{ontology}'; "
                f"take it from {EDAM}, name it by data.options.ontology, or set "
                f"data.hierarchy=ignore."
            )
        paths = [*(records or [Path(self.raw_dir, RECORDS)]), *([ontology] if ontology else [])]
        return [str(path.absolute()) for path in paths]

    @cached_property
    def source(self) -> dict[str, Any]:
        """As for every data set, with one checksum for all records."""
        source = super().source
        records = {name: key for name, key in source["files"].items() if SUFFIX in name}
        lines = "".join(f"{key}  {name}\n" for name, key in sorted(records.items()))
        digest = hashlib.sha256(lines.encode()).hexdigest()
        others = {name: key for name, key in source["files"].items() if name not in records}
        return {**source, "files": {f"{len(records)} x *{SUFFIX}": digest, **others}}

    def download(self) -> None:
        """Fetches missing files; unpacks an archive of the repository that lies there."""
        folder = Path(self.raw_dir)
        with FileLock(f"{folder}.lock"):
            if not find_records(folder):
                if not list_archives(folder):
                    name = f"content-{Path(ARCHIVE).name}"
                    fetch_file(ARCHIVE, folder / name, self.name, self.track)
                self._unpack(list_archives(folder)[-1], folder / RECORDS)
            if self.ontology is not None and not is_there(self.ontology):
                checksum = f"sha256:{EDAM_SHA256}"
                fetch_file(EDAM, self.ontology, self.name, self.track, checksum)

    def _unpack(self, archive: Path, folder: Path) -> None:
        """Unpacks all records of an archive, or none."""
        with beside(folder) as place:
            found = len(unpack_archive(archive, place, _place_member))
            if found != self.num_records:
                raise CorpusError(
                    f"The archive '{archive}' must hold {self.num_records:,} files "
                    f"{RECORDS}/ID/ID{SUFFIX}, found {found:,}; delete it to fetch that of "
                    f"{ARCHIVE}, or unpack it yourself and name the folder by data.options.path."
                )
            place.rename(folder)

    def reader(self) -> "BioToolsReader":
        records = find_records(Path(self.raw_dir))
        return BioToolsReader(records, self.ontology, self.config, self.faults_mode)


def _place_member(path: PurePosixPath) -> PurePosixPath | None:
    """Target path of a record of the archive; None for anything else."""
    is_record = path.name.endswith(SUFFIX) and path.parts[-3:-2] == (RECORDS,)
    return PurePosixPath(*path.parts[-2:]) if is_record else None


def find_records(folder: Path) -> list[Path]:
    """Files of records in a folder or in a checkout, sorted by name."""
    inner = folder / RECORDS
    folder = inner if is_folder(inner) else folder
    found = [*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*/*{SUFFIX}")]
    return sorted(found, key=lambda path: (path.name, path))


def find_ontology(folder: Path) -> Path:
    """File of EDAM in a folder with the highest version; the default path if there is none."""
    found = [*folder.glob("EDAM*.owl"), *folder.glob("EDAM*.owl.gz")]
    return max(found, key=_find_version) if found else folder / ONTOLOGY


def _find_version(path: Path) -> tuple[list[int], str]:
    """Sort key of a version: its numbers, so that 1.9 is before 1.25, and the name."""
    return [int(number) for number in re.findall(r"[0-9]+", path.name)], path.name


class BioToolsReader(PartitionReader):
    """Reader of records of bio.tools in groups of files.

    Args:
        records: Paths of JSON files, one record each.
        ontology: Path of EDAM; None leaves labels without parents and names.
        config: Options; paths do not count, None takes the defaults.
        faults: Policy for faulty documents, as for `CorpusDataset`.
    """

    def __init__(
        self,
        records: Sequence[Path],
        ontology: Path | None = None,
        config: BioTools.Config | None = None,
        faults: Faults = "refuse",
    ) -> None:
        self.records, self.config = list(records), config or BioTools.Config()
        self.ontology = self.config.list_hierarchy_files(ontology)
        summary = "The files of 'biotools' must be records of bio.tools"
        tokenizer, paths = self.config.tokenizer, [*records, *self.ontology]
        super().__init__("biotools", self.config.fields, summary, faults, tokenizer, paths)

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        """Partitions of several files, whose kind is the range of their indices."""
        parts, start, size = [], 0, 0
        for stop, path in enumerate(self.records, start=1):
            size += path.stat().st_size if path.is_file() else 0
            if stop == len(self.records) or (block is not None and size >= block):
                parts.append(Partition(path.parent, f"{start}:{stop}", end=size))
                start, size = stop, 0
        return parts

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        builder.notes.update({_UNLABELLED: 0, _OUTSIDE: 0})
        start, stop = map(int, partition.kind.split(":"))
        for path in builder.documents(self.records[start:stop]):
            self._add(path, builder, sources)

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        if not self.ontology:
            return
        [path] = self.ontology
        classes = read_edam(path, sources)
        labels = builder.seen.get(LABEL, {})
        unknown = sorted(labels.keys() - classes.keys())
        builder.notes[_UNKNOWN] += len(unknown)
        if len(unknown) > max(1, _UNKNOWN_SHARE * len(labels)):
            builder.warnings.append(
                f"{len(unknown):,} of {len(labels):,} labels, such as '{unknown[0]}', are not in "
                f"'{path.name}' and have no parent; check that it is of the records' year"
            )
        _add_edges(builder, classes, path.name)

    def _add(self, path: Path, builder: CorpusBuilder, sources: Sources) -> None:
        """Adds the record of a file, or its faults."""
        before, place = builder.num_faults, path.name
        given = read_json_object(sources.read_whole(path, "a record"), place, builder.fail)
        if given is None:
            return
        record = BioToolsRecord(given, place, builder.fail)
        text, (labels, num_outside) = record.read_text(), record.read_labels()
        metadata = {field: record.read_values(field) for field in builder.fields}
        if builder.num_faults > before:
            return
        builder.notes[_OUTSIDE] += num_outside
        if not labels:
            builder.notes[_UNLABELLED] += 1
            return
        builder.add(record.document, split_by_text(text), text, metadata, labels, place)
        builder.note_seen(LABEL, dict.fromkeys(labels, ""))


def _add_edges(builder: CorpusBuilder, classes: dict[str, EdamClass], name: str) -> None:
    """Adds the ancestors of documents' labels in EDAM, with edges and names."""
    waiting = list(builder.seen.get(LABEL, ()))
    above = dict.fromkeys(waiting)
    for label in waiting:
        if label not in classes:
            continue
        shown, parents = classes[label]
        if shown:
            builder.set_name(LABEL, label, shown)
        for parent in parents:
            builder.edges.setdefault((label, parent), f"{name}: class '{label}'")
            if parent not in above:
                above[parent] = None
                waiting.append(parent)
