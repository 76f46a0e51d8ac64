"""OAXMLC-Bench: works of OpenAlex with two label hierarchies each, computer science and medicine.

Source: https://github.com/eXascaleInfolab/oaxmlc-bench (formats, protocol),
https://zenodo.org/records/15695796 (OAXMLC) and https://zenodo.org/records/17092264 (OAMED).
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from filelock import FileLock
from pydantic import Field, model_validator

from match_graph.corpus import Faults
from match_graph.corpus_builder import CorpusBuilder, Interner
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.match_folder import TAXONOMY, split_labels
from match_graph.datasets.oaxmlc_files import (
    DOCUMENTS,
    ONTOLOGY,
    OaXmlcFiles,
    place_member,
    read_instances,
)
from match_graph.datasets.oaxmlc_split import LabelTree, Plan, make_plan
from match_graph.datasets.openalex_work import read_id
from match_graph.datasets.options import UNDATED, Card, HierarchyConfig, SplitConfig, count_days
from match_graph.datasets.partitions import PartitionReader
from match_graph.errors import CorpusError
from match_graph.io.archive import list_archives, unpack_archive
from match_graph.io.download import fetch_record, is_broken_off
from match_graph.io.json_lines import Fail, describe, read_json_lines, read_lines
from match_graph.io.partition import Partition, split_lines
from match_graph.io.source import Sources, is_there
from match_graph.typing import LABEL, Split

#: Keys of the fields of a document; the first that a document has is read.
KEYS: dict[str, Sequence[str]] = {
    "id": ("id", "paper", "openalex_id", "work_id"),
    "title": ("title", "display_name"),
    "abstract": ("abstract",),
    "date": ("publication_date", "year", "publication_year"),
    "author": ("authors", "author", "authorships"),
    "reference": ("references", "reference", "referenced_works"),
    "topics": ("topics_labels", "topics"),
    "concepts": ("concepts_labels", "concepts"),
}


class OaXmlc(CorpusDataset):
    """OAXMLC of OAXMLC-Bench: works of computer science with OpenAlex's topics or concepts.

    The text is title and abstract. By default labels, documents and splits are those of the
    benchmark's protocol: labels closed upwards, leaves of fewer than 50 documents pruned, and a
    seeded split that keeps rare labels in every split; see `split_documents`.

    Raises:
        CorpusError: The files cannot be fetched, or with every fault of them, each with file:line.
    """

    class Config(HierarchyConfig, SplitConfig):
        """Options of the data sets of OAXMLC-Bench."""

        path: str | None = Field(
            None,
            description=f"folder with {DOCUMENTS}, and {TAXONOMY} and {ONTOLOGY} beside it or in "
            f"the folder 'topics' or 'concepts'; none: raw/NAME below the root, fetched",
        )
        taxonomy: Literal["topics", "concepts"] = Field(
            "topics", description="the labels: topics, a tree, or concepts, a DAG"
        )
        fields: Sequence[str] = Field(("author", "reference"), description="metadata fields")
        keys: Mapping[str, str | Sequence[str]] = Field(
            default_factory=dict,
            description="keys of id, title, abstract, date, topics, concepts and the fields in a "
            "document; of several the first that it has; what is not named has its usual keys",
        )
        close_labels: bool = Field(True, description="add the ancestors of a document's labels")
        split: Literal["benchmark", "own"] = Field(
            "benchmark",
            description="benchmark: prune labels and split as it does; own: keep all, and split at "
            "random by text or, with train_until, by date",
        )
        min_documents: int = Field(
            50, ge=0, le=10**9, description="benchmark: documents that a leaf must have to stay"
        )
        rare_share: float = Field(
            0.1, ge=0, le=1, description="benchmark: share of the labels that count as rare"
        )
        held_share: float = Field(
            0.1, ge=0, le=1, description="benchmark: share of a rare label's documents held back "
            "for the splits that lack it",
        )  # fmt: skip
        definitions: bool = Field(
            False, description="name labels by title and definition, for a language model"
        )
        seed: int = Field(42, ge=0, lt=2**64, description="seed of the split")

        @model_validator(mode="after")
        def _check_protocol(self) -> Self:
            unknown = sorted({*self.keys} - {*KEYS, *self.fields})
            if unknown:
                raise ValueError(
                    f"keys must be those of {[*KEYS, *self.fields]}, found {unknown}; name a "
                    f"field in fields too."
                )
            if self.split == "benchmark" and self.train_until is not None:
                raise ValueError("train_until needs split=own; the benchmark has no dates.")
            return self

        def find_keys(self, part: str) -> list[str]:
            """Keys of a field of a document, in order of precedence."""
            keys = self.keys.get(part, KEYS.get(part, part))
            return [keys] if isinstance(keys, str) else list(keys)

    config: Config
    card: ClassVar[Card | None] = Card(
        "oaxmlc", "OpenAlex's: CC0", "3.7 million works", "fetched from Zenodo"
    )
    raw_pattern = f"{DOCUMENTS}*"  # packed or not
    path_options = ("path",)
    record: ClassVar[int] = 15695796  # on Zenodo

    @property
    def raw_dir(self) -> str:
        return super().raw_dir if self.config.path is None else self.config.path

    @property
    def raw_files(self) -> "OaXmlcFiles":
        """Files, present or to be fetched."""
        return OaXmlcFiles.find(Path(self.raw_dir), self.config.taxonomy)

    @property
    def raw_file_names(self) -> list[str]:
        if self.config.path is not None:
            self._check_there()
        return [str(path.absolute()) for path in self.raw_files]

    def _check_there(self) -> None:
        missing = [path for path in self.raw_files if not is_there(path)]
        if missing:
            raise CorpusError(
                f"The data set '{self.name}' must have {DOCUMENTS}, {TAXONOMY} and {ONTOLOGY}, but "
                f"there is no '{missing[0]}'; unpack {self.config.taxonomy}.zip of "
                f"https://zenodo.org/records/{self.record} there."
            )

    def download(self) -> None:
        """Unpacks the archives of the record, downloading them if need be."""
        folder = Path(self.raw_dir)
        with FileLock(f"{folder}.lock"):
            if all(is_there(path) for path in self.raw_files):
                return
            archives = list_archives(folder)
            if not archives or is_broken_off(folder):
                fetch_record(self.record, folder, self.name, self.track)
                archives = list_archives(folder)
            for archive in archives:
                unpack_archive(archive, folder, partial(place_member, archive))
            self._check_there()

    def reader(self) -> "OaXmlcReader":
        return OaXmlcReader(self.raw_files, self.config, self.name, self.faults_mode)


class OaMed(OaXmlc):
    """OAMED of OAXMLC-Bench: works of medicine; everything else as for `OaXmlc`."""

    card = Card("oamed", "OpenAlex's: CC0", "870,000 works", "fetched from Zenodo")
    record = 17092264


class OaXmlcReader(PartitionReader):
    """Reader of documents in blocks of lines.

    For the benchmark's split, labels are counted over the whole file in a first pass, which each
    worker of a cluster makes.

    Args:
        files: Files.
        config: Options.
        name: Name of the corpus.
        faults: Policy for faulty documents.
    """

    def __init__(
        self,
        files: OaXmlcFiles,
        config: OaXmlc.Config,
        name: str = "oaxmlc",
        faults: Faults = "refuse",
    ) -> None:
        self.files, self.config = files, config
        summary = f"The files of '{name}' must be those of OAXMLC-Bench"
        paths = [files.documents] * (1 + (config.split == "benchmark")) + [*files[1:]]
        super().__init__(name, config.fields, summary, faults, config.tokenizer, paths)
        self.tree, self.plan = LabelTree({}), Plan((), np.empty(0, np.int8))
        self.ontology: dict[str, tuple[str, int | None]] = {}
        self.places: dict[tuple[str, str], str] = {}

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        return split_lines(self.files.documents, size=block)

    def prepare(self, builder: CorpusBuilder, sources: Sources) -> None:
        self.ontology = dict(self._read_ontology(builder, sources))
        self._read_taxonomy(builder, sources)
        if self.config.split == "benchmark" and not builder.faults:
            self._plan(builder, sources)

    def _read_ontology(
        self, builder: CorpusBuilder, sources: Sources
    ) -> Iterator[tuple[str, tuple[str, int | None]]]:
        """Yields each label with its name and level."""
        path = self.files.ontology
        for place, entry in read_json_lines(sources.lines(path), path.name, builder.fail):
            label, level = read_id(entry.get("label")), entry.get("level")
            parts = [entry.get("title"), entry.get("definition") or entry.get("txt")]
            if label is None or not all(isinstance(part, str | None) for part in parts):
                builder.fail(
                    f"{place}: an entry must have its id in 'label' and strings in 'title' and "
                    f"'definition', found {describe(entry)}; fetch the file again."
                )
                continue
            shown = [part for part in parts[: 1 + self.config.definitions] if part]
            is_level = isinstance(level, int) and 0 < level < 1000
            yield label, (": ".join(shown) or label, level if is_level else None)

    def _read_taxonomy(self, builder: CorpusBuilder, sources: Sources) -> None:
        """Reads the parents of labels; the first line is that of the root, which is no label."""
        path, root = self.files.taxonomy, None
        parents: dict[str, list[str]] = {label: [] for label in self.ontology}
        unknown: set[str] = set()
        for place, line in read_lines(sources.lines(path), path.name, builder.fail):
            above, *children = [read_id(label) or label for label in split_labels(line)]
            root = above if root is None else root
            for child in children:
                if child not in parents or above not in {*parents, root}:
                    unknown.add(above if child in parents else child)
                elif above != root and above not in parents[child]:
                    parents[child].append(above)
                    self.places[child, above] = place
        builder.notes["taxonomy_labels_not_in_ontology"] += len(unknown)
        self.tree = LabelTree(parents)

    def _plan(self, builder: CorpusBuilder, sources: Sources) -> None:
        """Counts labels over all documents, prunes them and splits; faults are left to `read`."""
        path, config = self.files.documents, self.config
        found, lines = Interner(), array("q")
        for place, record in read_json_lines(sources.lines(path), path.name, lambda _: None):
            found.append(self._close(self._read_values(record, config.taxonomy) or {}))
            lines.append(_find_line(place))
        self.plan = make_plan(
            np.array(lines, np.int64), found.lengths.astype(np.int64),
            found.codes.astype(np.int64), list(found.code), self.tree, config.min_documents,
            seed=config.seed, rare_share=config.rare_share, held_share=config.held_share,
        )  # fmt: skip
        builder.notes["labels_pruned"] += len(found.code.keys() - self.plan.labels)

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        builder.notes["documents_left_out"] += 0
        builder.notes[UNDATED] += 0
        lines, name = partition.lines(sources), partition.path.name
        records = read_json_lines(lines, name, builder.fail, partition.line)
        for place, record in builder.documents(records):
            self._add(record, place, builder)

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        for label, (name, level) in self.ontology.items():
            builder.set_name(LABEL, label, name)
            if level is not None:
                builder.set_depth(label, level - 1)
        if self.config.hierarchy == "use":
            for edge, place in self.places.items():
                builder.edges.setdefault(edge, place)

    def _add(self, record: Mapping[str, Any], place: str, builder: CorpusBuilder) -> None:
        """Adds one document, or its faults; skips one that the benchmark leaves out."""
        before, config = builder.num_faults, self.config
        given = self._find(record, "id")
        document = str(_find_line(place)) if given is None else read_id(given)
        if document is None:
            builder.fail(
                f"{place}: the id of a document must be a string, found {describe(given)}."
            )
        title, abstract, date = self._read_parts(record, place, builder.fail)
        values = {}
        for part in (config.taxonomy, *builder.fields):
            found = self._read_values(record, part)
            values[part] = found or {}
            if found is None:
                builder.fail(
                    f"{place}: '{part}' must be a string, a list of strings or of objects with an "
                    f"id, found {describe(self._find(record, part))}."
                )
        if builder.num_faults > before or document is None:
            return
        labels = self._close(values.pop(config.taxonomy))
        text, day = " ".join(part for part in (title, abstract) if part), date or None
        if config.split == "own":
            split: Split | None = config.choose_split(document, text, day, builder.notes)
        else:
            labels = [label for label in labels if label in self.plan.labels]
            split = self.plan.find_split(_find_line(place))
        if split is None:
            builder.notes["documents_left_out"] += 1
            return
        metadata = {name: list(found) for name, found in values.items()}
        builder.add(document, split, text, metadata, labels, place, count_days(day))
        for name, found in values.items():
            for instance, shown in found.items():
                if shown:
                    builder.set_name(name, instance, shown)

    def _read_parts(self, record: Mapping[str, Any], place: str, fail: Fail) -> list[str]:
        """Title, abstract and date; each empty if missing or malformed."""
        parts = []
        for part in ("title", "abstract", "date"):
            value = self._find(record, part)
            if part == "date" and isinstance(value, int) and not isinstance(value, bool):
                value = str(value)
            if not isinstance(value, str | None):
                what = "a year or a date" if part == "date" else "a string"
                fail(f"{place}: '{part}' must be {what}, found {describe(value)}.")
            parts.append(value if isinstance(value, str) else "")
        return parts

    def _close(self, labels: Mapping[str, str]) -> list[str]:
        return self.tree.close(list(labels)) if self.config.close_labels else list(labels)

    def _find(self, record: Mapping[str, Any], part: str) -> Any:
        """Value of a field: that of the first of its keys that the document has."""
        keys = (key for key in self.config.find_keys(part) if record.get(key) is not None)
        return record.get(next(keys, ""))

    def _read_values(self, record: Mapping[str, Any], part: str) -> dict[str, str] | None:
        return read_instances(self._find(record, part))


def _find_line(place: str) -> int:
    """Line number of a place file:line."""
    return int(place.rpartition(":")[2])
