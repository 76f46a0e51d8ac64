"""A folder in the MATCH format, that of the paper's release.

Source: https://arxiv.org/abs/2102.07349; ``train.json``, ``dev.json`` (the validation split) and
``test.json`` with one JSON object a line, ``taxonomy.txt`` with a parent and its children a line,
``meta_dict.json`` with the metadata fields. Beside them may stand ``id2label.txt`` and likewise
``id2author.txt`` or that of any field (id, tab, name), and ``vocabulary.txt`` (number, tab, word)
where the texts are numbers of words.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from match_graph.corpus import Faults
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.options import HierarchyConfig
from match_graph.datasets.partitions import PartitionReader
from match_graph.errors import CorpusError
from match_graph.io.json_lines import (
    Fail,
    read_id,
    read_json_lines,
    read_labels,
    read_lines,
    read_metadata,
    read_text,
)
from match_graph.io.manifest import parse_json
from match_graph.io.partition import Partition, split_lines
from match_graph.io.run_folder import CONFIG, RECORD
from match_graph.io.source import Sources, is_folder, is_there, open_sources, resolve_path
from match_graph.typing import LABEL, Split

SPLIT_FILES: dict[Split, str] = {"train": "train.json", "valid": "dev.json", "test": "test.json"}
_SPLITS: dict[str, Split] = {split: split for split in SPLIT_FILES}
TAXONOMY, FIELDS, VOCABULARY = "taxonomy.txt", "meta_dict.json", "vocabulary.txt"


class MatchFiles(CorpusDataset):
    """Base of data sets in the MATCH format."""

    class Config(HierarchyConfig):
        """Options of files in the MATCH format."""

        fields: Sequence[str] | None = Field(
            None,
            description="metadata fields, each on a document; none: those of meta_dict.json",
        )

    config: Config

    @property
    def raw_file_names(self) -> list[str]:
        return match_files(Path(self.raw_dir))

    def reader(self) -> "MatchReader":
        return MatchReader(Path(self.raw_dir), self.config, self.name, self.faults_mode)


class MatchFolder(MatchFiles):
    """A folder in the MATCH format as a data set.

    Args:
        folder: Folder of the files. Nothing is written into it.
        **options: Arguments of `CorpusDataset`.
    """

    def __init__(self, folder: str | Path, /, **options: Any) -> None:
        self.folder = Path(folder)
        if not is_folder(self.folder):
            raise CorpusError(
                f"A data set in the MATCH format must be a folder, but there is none at "
                f"'{self.folder}'; check the path."
            )
        super().__init__(**options)

    @property
    def name(self) -> str:
        return resolve_path(self.folder).name

    @property
    def raw_dir(self) -> str:
        return str(self.folder)


def match_files(folder: Path) -> list[str]:
    """Names of the files of a folder that are read, if they exist."""
    names = [*SPLIT_FILES.values(), FIELDS, TAXONOMY, VOCABULARY]
    names += sorted(path.name for path in folder.glob("id2*.txt"))
    return [name for name in names if is_there(folder / name)]


class MatchReader(PartitionReader):
    """Reader of a folder in the MATCH format, in blocks of lines.

    Args:
        folder: Folder of the files.
        config: Options; None takes the defaults.
        name: Name of the corpus; None takes the folder's.
        faults: Policy for faulty documents, as for `CorpusDataset`.

    Raises:
        CorpusError: A file is missing.
    """

    def __init__(
        self,
        folder: Path,
        config: MatchFiles.Config | None = None,
        name: str | None = None,
        faults: Faults = "refuse",
    ) -> None:
        self.folder, config = folder, config or MatchFiles.Config()
        self.chosen = config.fields
        self.taxonomy = config.list_hierarchy_files(folder / TAXONOMY)
        required = list(SPLIT_FILES.values())
        required += [FIELDS] if self.chosen is None else []
        required += [path.name for path in self.taxonomy]
        missing = [name for name in required if not is_there(folder / name)]
        if missing:
            if is_there(folder / CONFIG) and is_there(folder / RECORD):
                raise CorpusError(
                    f"A data set must be named, but '{folder}' is a run folder; give the data set "
                    f"of the run, which its {RECORD} names."
                )
            is_flat = missing == [TAXONOMY]
            way = "set data.hierarchy=ignore if there is none" if is_flat else "check the path"
            raise CorpusError(
                f"The folder '{folder}' must be in the MATCH format, but it has no "
                f"{' and no '.join(missing)}; add what is missing, or {way}."
            )
        name = name or resolve_path(folder).name
        fields = _read_fields(folder / FIELDS) if self.chosen is None else self.chosen
        summary = f"The folder '{folder}' must be in the MATCH format"
        paths = [folder / name for name in match_files(folder)]
        super().__init__(name, fields, summary, faults, config.tokenizer, paths)
        self.vocabulary: dict[str, str] | None = None

    def list_partitions(self, block: int | None = None) -> list[Partition]:
        kinds: list[tuple[str, str]] = [(name, split) for split, name in SPLIT_FILES.items()]
        kinds += [(f"id2{node_type}.txt", node_type) for node_type in (LABEL, *self.fields)]
        paths = [(self.folder / name, kind) for name, kind in kinds]
        there = [(path, kind) for path, kind in paths if kind in SPLIT_FILES or is_there(path)]
        return [part for path, kind in there for part in split_lines(path, kind, block)]

    def prepare(self, builder: CorpusBuilder, sources: Sources) -> None:
        path = self.folder / VOCABULARY
        if is_there(path):
            words = _read_pairs(sources.lines(path), path, builder)
            self.vocabulary = dict(builder.documents(words))

    def read(self, partition: Partition, builder: CorpusBuilder, sources: Sources) -> None:
        lines, split = partition.lines(sources), _SPLITS.get(partition.kind)
        if split is None:
            pairs = _read_pairs(lines, partition.path, builder, partition.line)
            for instance, shown in pairs:
                builder.set_name(partition.kind, instance, shown)
            return
        records = read_json_lines(lines, partition.path.name, builder.fail, partition.line)
        self._read_documents(builder, builder.documents(records), split)

    def _read_documents(
        self, builder: CorpusBuilder, records: Iterator[tuple[str, dict[str, Any]]], split: Split
    ) -> None:
        fields = [name for name in builder.fields if not builder.faults]
        num_unknown, keys = 0, set[str]()
        for place, record in records:
            keys.update(record)
            if self.vocabulary is not None and isinstance(record.get("text"), str):
                words = record["text"].split()
                num_unknown += sum(word not in self.vocabulary for word in words)
                record["text"] = " ".join([self.vocabulary.get(word, word) for word in words])
            _add_document(builder, record, split, fields, place)
        if self.vocabulary is not None:
            builder.notes["words_not_in_vocabulary"] += num_unknown
        builder.note_seen("key", dict.fromkeys(sorted(keys), ""))

    def finish(self, builder: CorpusBuilder, sources: Sources) -> None:
        keys = builder.seen.get("key", {}).keys()
        absent = sorted({*self.chosen} - keys) if self.chosen is not None else []
        if absent and keys and not builder.faults:
            builder.fail(
                f"no document has the metadata fields {absent} that data.fields names; the "
                f"documents have {sorted(keys - {'paper', 'text', 'label'})}, choose from these."
            )
        for path in self.taxonomy:
            edges = read_taxonomy(sources.lines(path), path.name, builder.fail)
            for child, parent, place in edges:
                builder.edges.setdefault((child, parent), place)
            if not edges:
                builder.warnings.append(
                    f"the label hierarchy '{path}' has no edge, so that no label has a parent; set "
                    f"data.hierarchy=ignore if that is meant"
                )


def _add_document(
    builder: CorpusBuilder, record: dict[str, Any], split: Split, fields: Sequence[str], place: str
) -> None:
    """Adds a JSON object as a document, or its faults."""
    before = builder.num_faults
    document = read_id(record, place, builder.fail)
    text = read_text(record, place, builder.fail)
    labels = read_labels(record, place, builder.fail)
    metadata = read_metadata(record, fields, place, builder.fail)
    if builder.num_faults == before:
        assert document is not None
        assert text is not None
        assert labels is not None
        builder.add(document, split, text, metadata, labels, place)


def _read_fields(path: Path) -> list[str]:
    with open_sources([path], path.name, None) as sources:
        content = sources.read_whole(path, "such a file")
    try:
        fields = parse_json(content.removeprefix(b"\xef\xbb\xbf"))["metadata"]
    except (ValueError, KeyError, TypeError):
        fields = None
    if not isinstance(fields, list) or not all(isinstance(name, str) for name in fields):
        raise CorpusError(
            f'{path.name} must hold an object like {{"metadata": ["venue", "author"]}}, '
            f"found something else in '{path}'; mend it, or name the fields (data.fields)."
        )
    return fields


def read_taxonomy(lines: Iterable[bytes], name: str, fail: Fail) -> list[tuple[str, str, str]]:
    """(child, parent, file:line) triples of a label hierarchy.

    Args:
        lines: Text lines, each a parent and its children, by tabs where the line has one, so that
            labels may hold blanks, else by white space.
        name: Name of the file, for places.
        fail: Callback that takes the faults of encoding.
    """
    edges = []
    for place, line in read_lines(lines, name, fail):
        parent, *children = split_labels(line)
        edges += [(child, parent, place) for child in children]
    return edges


def split_labels(line: str) -> list[str]:
    """Parent and children of a line of a taxonomy."""
    labels = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
    return [label for label in labels if label]


def _read_pairs(
    lines: Iterable[bytes], path: Path, builder: CorpusBuilder, first: int = 1
) -> Iterator[tuple[str, str]]:
    """Two columns of each line, split at the tab or else at the first blank."""
    for _, line in read_lines(lines, path.name, builder.fail, first):
        pair = line.split("\t", 1) if "\t" in line else line.split(" ", 1)
        if len(pair) == 2:
            yield pair[0], pair[1].strip()


def write_match_folder(
    folder: Path,
    documents: Mapping[Split, Sequence[Mapping[str, Any]]],
    taxonomy: Iterable[str],
    fields: Sequence[str],
) -> None:
    """Writes a folder in the MATCH format, making it if need be.

    Args:
        folder: Folder of the files; others in it are left alone.
        documents: Documents by split, as JSON objects; splits that are not given are empty.
        taxonomy: Taxonomy lines, as for `read_taxonomy`.
        fields: Metadata fields for ``meta_dict.json``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split, name in SPLIT_FILES.items():
        lines = [json.dumps(content, ensure_ascii=False) for content in documents.get(split, ())]
        write_lines(folder / name, lines)
    write_lines(folder / TAXONOMY, taxonomy)
    content = json.dumps({"metadata": list(fields)}, ensure_ascii=False)
    (folder / FIELDS).write_text(content, encoding="utf-8")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes lines, each with a line feed."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"{line}\n" for line in lines)
