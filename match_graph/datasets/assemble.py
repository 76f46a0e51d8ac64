"""Raw files -> built folder by way of fragments, in this process or on a cluster.

The fragments lie in a folder beside the build until it is complete. A build that was killed resumes
from them: partitions that were read are not read again.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from match_graph.corpus_builder import split_places
from match_graph.datasets.built import cannot_write, write_built, write_rest
from match_graph.datasets.partitions import PartitionReader
from match_graph.errors import MatchGraphError
from match_graph.graph.fragments import Fragment, write_fragment
from match_graph.graph.merge import gather, write_merged
from match_graph.graph.store_writer import StoreWriter
from match_graph.io.beside import remove_leftovers
from match_graph.io.cluster import Cluster, Run, run_here
from match_graph.io.partition import BLOCK_BYTES, Partition
from match_graph.io.source import Sources, Track, open_sources

#: Version of the content of a fragment.
_FORMAT = 3


@dataclass(frozen=True)
class Task:
    """Reading of one partition into a fragment.

    Args:
        reader: Reader that has read nothing yet.
        partition: Partition to read.
        folder: Folder of the fragment.
    """

    reader: PartitionReader
    partition: Partition
    folder: Path

    @property
    def identity(self) -> dict[str, Any]:
        """Key that identifies the fragment's partition; JSON values."""
        fields = {**vars(self.partition), "path": str(self.partition.path)}
        return {"format": _FORMAT, **fields}

    def is_done(self) -> bool:
        """True if the fragment of this partition is on disk, written to its end."""
        try:
            return bool(Fragment(self.folder).about["partition"] == self.identity)
        except (OSError, ValueError, KeyError):
            return False


def assemble(
    built: Path,
    reader: PartitionReader,
    about: Mapping[str, Any],
    check: Callable[[], None],
    track: Track | None = None,
    cluster: Cluster | None = None,
) -> None:
    """Builds a folder from raw files.

    Args:
        built: Final path of the folder.
        reader: Reader of the files.
        about: Further content of ``corpus.json``: name, tokenizer and source.
        check: Called when all is read; raises if the files have changed.
        track: Progress tracker.
        cluster: Cluster that reads and merges; None does so in this process.

    Raises:
        CorpusError: With every fault of the files, or where the disk refuses.
    """
    parts = built.with_name(f"{built.name}.fragments")
    with _keeping(built, parts), nullcontext(None) if cluster is None else cluster.open() as run:
        work = parts / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        remove_leftovers(parts)
        total, prepared = reader.make_builder(is_part=True), copy(reader)
        with open_sources(reader.paths, reader.name, track) as sources:
            prepared.prepare(total, sources)
            fragments = _read_fragments(reader, prepared, parts, sources, run)
            fragments = gather(fragments, total, work, run or run_here)
            prepared.finish(total, sources)
        check()
        write_fragment(work / "names", total, {})
        fragments = [*fragments, Fragment(work / "names")]

        def write(folder: Path) -> None:
            writer = StoreWriter(folder)
            merged = write_merged(writer, fragments, total, work, run or run_here)
            found = {"notes": merged.notes, "warnings": merged.warnings}
            write_rest(writer, split_places(merged.skipped), {**about, **found})

        write_built(built, write)
        shutil.rmtree(parts)


@contextmanager
def _keeping(built: Path, parts: Path) -> Iterator[None]:
    """Keeps the fragments of an interrupted build, and removes those of a failed one."""
    try:
        yield
    except (MatchGraphError, OSError) as error:
        shutil.rmtree(parts, ignore_errors=True)
        if isinstance(error, OSError):
            raise cannot_write(built, error) from error
        raise


def _read_fragments(
    reader: PartitionReader,
    prepared: PartitionReader,
    parts: Path,
    sources: Sources,
    run: Run | None,
) -> list[Fragment]:
    """Fragments of all partitions; complete ones are not read again."""
    tasks = [
        Task(reader, partition, parts / f"{number:06}")
        for number, partition in enumerate(reader.list_partitions(BLOCK_BYTES))
    ]
    waiting = []
    for task in tasks:
        if task.is_done():
            sources.skip(task.partition.num_bytes)
        else:
            shutil.rmtree(task.folder, ignore_errors=True)
            waiting.append(task)
    if run is None:
        for task in waiting:
            _read_fragment(task, prepared, sources)
    else:
        run(read_elsewhere, waiting, lambda task: sources.skip(task.partition.num_bytes))
    return [Fragment(task.folder) for task in tasks]


def _read_fragment(task: Task, prepared: PartitionReader, sources: Sources) -> None:
    builder = prepared.make_builder(is_part=True)
    prepared.read(task.partition, builder, sources)
    write_fragment(task.folder, builder, task.identity)


_prepared: dict[Path, PartitionReader] = {}  # the last reader, by the folder of its fragments


def read_elsewhere(task: Task) -> None:
    """Reads a partition on a worker, which prepares the reader at its first call."""
    if task.is_done():  # by a worker that was lost before it said so
        return
    parts = task.folder.parent
    with open_sources([], task.reader.name, None) as sources:
        if parts not in _prepared:
            _prepared.clear()
            task.reader.prepare(task.reader.make_builder(is_part=True), sources)
            _prepared[parts] = task.reader
        _read_fragment(task, _prepared[parts], sources)
