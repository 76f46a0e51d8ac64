"""Base of readers, which read raw files in independent partitions, possibly in parallel."""

from collections.abc import Sequence
from pathlib import Path

from match_graph.corpus import Corpus, Faults
from match_graph.corpus_builder import CorpusBuilder
from match_graph.io.partition import Partition
from match_graph.io.source import Sources, Track, open_sources
from match_graph.typing import Tokenizer


class PartitionReader:
    """Base of readers of raw files; pickled to workers before anything is read.

    Partitions are read independently; checks over all of them belong into `finish`.

    Args:
        name: Name of the corpus.
        fields: The metadata fields to keep.
        summary: Requirement on the files, for the message that lists the faults.
        faults: Policy for faulty documents, as for `CorpusDataset`.
        tokenizer: Text tokenization.
        paths: Paths of all files to read, for progress; missing ones are ignored.
    """

    def __init__(
        self,
        name: str,
        fields: Sequence[str],
        summary: str,
        faults: Faults,
        tokenizer: Tokenizer,
        paths: Sequence[Path],
    ) -> None:
        self.name, self.fields, self.summary = name, list(fields), summary
        self.faults: Faults = faults
        self.tokenizer: Tokenizer = tokenizer
        self.paths = list(paths)

    def make_builder(self, is_part: bool = False) -> CorpusBuilder:
        """Builder of the corpus, or of a part of it."""
        given = self.name, self.fields, self.summary, self.faults, self.tokenizer
        return CorpusBuilder(*given, is_part=is_part)

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        """Partitions in reading order.

        Args:
            block: Bytes of a block of lines; None makes one partition of each file.
        """
        raise NotImplementedError

    def prepare(self, builder: CorpusBuilder, sources: Sources) -> None:
        """Reads files that every partition needs; notes their faults."""

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        """Adds the documents of a partition, or names, to a builder."""
        raise NotImplementedError

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        """Reads the hierarchy and other last files; checks what partitions noted in ``seen``."""

    def read_corpus(self, track: Track | None = None) -> Corpus:
        """Reads all partitions into memory.

        Args:
            track: Progress tracker.

        Raises:
            CorpusError: With every fault of the files, each with its place.
        """
        builder = self.make_builder()
        with open_sources(self.paths, self.name, track) as sources:
            self.prepare(builder, sources)
            for partition in self.list_partitions():
                self.read(partition, builder, sources)
            self.finish(builder, sources)
        return builder.build()
