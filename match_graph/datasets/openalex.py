"""OpenAlex works, one JSON object a line, with topics or concepts as labels.

Source: https://docs.openalex.org/api-entities/works/work-object; the successor of the Microsoft
Academic Graph, from which the paper's MAG-CS was made.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field

from match_graph.corpus import Faults
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.custom import UserFiles
from match_graph.datasets.openalex_work import (
    INSTANCES,
    MAX_LEVEL,
    is_level,
    read_id,
    read_name,
    read_objects,
    read_text,
)
from match_graph.datasets.options import UNDATED, Card, count_days
from match_graph.datasets.partitions import PartitionReader
from match_graph.io.json_lines import describe, read_json_lines
from match_graph.io.partition import Partition, split_lines
from match_graph.io.source import Sources

OpenAlexField: TypeAlias = Literal["venue", "author", "institution", "reference"]
#: The paper's three; institutions are there for those who want them.
FIELDS: tuple[OpenAlexField, ...] = ("venue", "author", "reference")
#: A topic's ancestors, nearest first, by their keys in a topic object.
TOPIC_LEVELS = ("subfield", "field", "domain")

_PLURALS = {"subfield": "subfields", "field": "fields", "domain": "domains"}
_DEPTHS = {"topic": 3, "subfield": 2, "field": 1, "domain": 0}


class OpenAlex(UserFiles):
    """Works of OpenAlex, the living successor of the Microsoft Academic Graph.

    The files are JSON lines of works, packed by gzip or not. The text is title and abstract; fields
    are instances by their OpenAlex ids, which have names.

    Topics make a tree, domain > field > subfield > topic, and each document carries its topics
    closed upwards. Concepts make a DAG: a concept's parents are its nearest ancestors by level,
    which only concept objects list, so they are read from a file of their own.
    """

    class Config(UserFiles.Config):
        """Options of OpenAlex works."""

        labels: Literal["topics", "concepts"] = Field(
            "topics", description="topics with subfield, field and domain, or concepts"
        )
        concepts: str | None = Field(
            None,
            description="JSON lines of concepts with their ancestors; none: concepts without "
            "parents, unless those of the works hold ancestors",
        )
        fields: Sequence[OpenAlexField] = Field(
            FIELDS, description="metadata fields: venue, author, institution, reference"
        )
        min_score: float = Field(
            0.3,
            ge=0,
            le=1,
            description="concepts of lower score are left out: OpenAlex adds the ancestors of a "
            "concept with scores down to 0; topics have no threshold, as there are three at most",
        )

    config: Config
    card = Card("openalex", "CC0", "250 million works", "works as JSON lines of yours")
    suffixes = (".jsonl", ".json", ".ndjson")
    path_options = ("path", "concepts")

    def reader(self) -> "OpenAlexReader":
        return OpenAlexReader(self.files, self.config, self.faults_mode)


class OpenAlexReader(PartitionReader):
    """Reader of works of OpenAlex and of concepts, in blocks of lines.

    Args:
        files: Paths of JSON lines of works.
        config: Options; ``path`` does not count.
        faults: Policy for faulty documents, as for `CorpusDataset`.
    """

    def __init__(
        self, files: Sequence[Path], config: OpenAlex.Config, faults: Faults = "refuse"
    ) -> None:
        self.files, self.config = list(files), config
        self.concepts = config.list_hierarchy_files(config.concepts)
        summary = "The files of 'openalex' must hold OpenAlex works"
        paths = [*files, *self.concepts]
        super().__init__("openalex", config.fields, summary, faults, config.tokenizer, paths)

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        kinds = [(path, "documents") for path in self.files]
        kinds += [(path, "concepts") for path in self.concepts]
        return [part for path, kind in kinds for part in split_lines(path, kind, block)]

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        reader, name = _Reader(builder, self.config), partition.path.name
        items = read_json_lines(partition.lines(sources), name, builder.fail, partition.line)
        if partition.kind == "concepts":
            for place, item in items:
                if builder.is_hopeless:
                    break
                reader.add_ancestors(item, place)
            return
        for place, work in builder.documents(items):
            reader.add(work, place)

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        if self.config.hierarchy == "ignore":
            builder.edges.clear()


class _Reader:
    """Adds works to a builder, with names, depths and parents of their labels."""

    def __init__(self, builder: CorpusBuilder, config: OpenAlex.Config) -> None:
        self.builder, self.config = builder, config
        for note in ("works_without_text", UNDATED):
            builder.notes[note] += 0

    def add(self, work: Mapping[str, Any], place: str) -> None:
        """Adds one work, or its faults."""
        before = self.builder.num_faults
        fail = self.builder.fail
        document = read_id(work.get("id"))
        if document is None:
            fail(
                f"{place}: a work must have its OpenAlex id in 'id', "
                f"found {describe(work.get('id'))}; remove the work."
            )
        text = read_text(work, place, fail)
        day = work.get("publication_date") or work.get("publication_year")
        if day is not None and (isinstance(day, bool) or not isinstance(day, str | int)):
            fail(f"{place}: 'publication_date' must be a date, found {describe(day)}.")
        found: dict[str, dict[str, str]] = {
            name: dict(INSTANCES[name](work, place, fail)) for name in self.builder.fields
        }
        nodes = [*self._read_labels(work, place)]
        if self.builder.num_faults > before or document is None:
            return
        day = None if day is None else str(day)
        self.builder.notes["works_without_text"] += not text.strip()
        split = self.config.choose_split(document, text, day, self.builder.notes)
        metadata = {name: list(instances) for name, instances in found.items()}
        labels = [label for label, _, _ in nodes]
        self.builder.add(document, split, text, metadata, labels, place, count_days(day))
        for name, instances in found.items():
            for instance, shown in instances.items():
                if shown:
                    self.builder.set_name(name, instance, shown)
        for label, shown, depth in nodes:
            self.builder.set_name("label", label, shown or label)
            if depth is not None:
                self.builder.set_depth(label, depth)

    def _read_labels(
        self, work: Mapping[str, Any], place: str
    ) -> Iterator[tuple[str, str, int | None]]:
        """Labels as (id, name, depth), each with its ancestors."""
        for item in read_objects(work, self.config.labels, place, self.builder.fail):
            label = read_id(item.get("id"))
            if label is None:
                self.builder.fail(
                    f"{place}: each of '{self.config.labels}' must have an id, "
                    f"found {describe(item.get('id'))}."
                )
            elif self.config.labels == "topics":
                yield from self._climb_topic(label, item, place)
            else:
                yield from self._read_concept(label, item, place)

    def _read_concept(
        self, label: str, concept: Mapping[str, Any], place: str
    ) -> Iterator[tuple[str, str, int | None]]:
        score, level = concept.get("score"), concept.get("level")
        score = 1.0 if score is None else score
        if level is not None and not is_level(level):
            self.builder.fail(
                f"{place}: the level of a concept must be a whole number from 0 to {MAX_LEVEL}, "
                f"found {describe(level)}."
            )
        elif isinstance(score, bool) or not isinstance(score, int | float) or not score <= inf:
            self.builder.fail(
                f"{place}: the score of a concept must be a number, found {describe(score)}."
            )
        elif score >= self.config.min_score:
            self.add_ancestors(concept, place)
            yield label, read_name(concept), level if is_level(level) else None

    def _climb_topic(
        self, label: str, topic: Mapping[str, Any], place: str
    ) -> Iterator[tuple[str, str, int | None]]:
        yield label, read_name(topic), _DEPTHS["topic"]
        for level in TOPIC_LEVELS:
            item = topic.get(level)
            if item is None:
                continue
            if not isinstance(item, dict):
                self.builder.fail(
                    f"{place}: the '{level}' of a topic must be an object, found {describe(item)}."
                )
                continue
            above = read_id(item.get("id"), _PLURALS[level])
            if above is None:
                continue
            self.builder.edges.setdefault((label, above), place)
            yield above, read_name(item), _DEPTHS[level]
            label = above

    def add_ancestors(self, concept: Mapping[str, Any], place: str) -> None:
        """Adds edges to a concept's parents, its ancestors of the highest level below its own."""
        child = read_id(concept.get("id"))
        if child is None:
            self.builder.fail(
                f"{place}: a concept must have an id, found {describe(concept.get('id'))}."
            )
            return
        own = concept.get("level")
        own = own if is_level(own) else None
        ancestors: list[tuple[int, str]] = []
        for item in read_objects(concept, "ancestors", place, self.builder.fail):
            above, level = read_id(item.get("id")), item.get("level")
            if above is None or not is_level(level):
                self.builder.fail(
                    f"{place}: each of 'ancestors' must have an id and a level, "
                    f"found {describe(dict(item))}."
                )
            elif own is None or level < own or above == child:
                ancestors.append((level, above))
        nearest = max((level for level, _ in ancestors), default=None)
        for level, above in ancestors:
            if level == nearest:
                self.builder.edges.setdefault((child, above), place)
