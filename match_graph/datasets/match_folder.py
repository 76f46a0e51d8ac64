"""A folder in the MATCH format, as the paper's release has it.

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

from match_graph.corpus import Corpus, CorpusBuilder, Faults
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.options import HierarchyConfig
from match_graph.errors import CorpusError
from match_graph.io.json_lines import (
    Fail,
    describe,
    read_id,
    read_json_lines,
    read_lines,
    read_metadata,
    read_text,
)
from match_graph.io.manifest import parse_json
from match_graph.io.source import (
    Sources,
    Track,
    is_folder,
    is_there,
    open_sources,
    read_whole,
    resolve_path,
)
from match_graph.typing import Split

SPLIT_FILES: dict[Split, str] = {"train": "train.json", "valid": "dev.json", "test": "test.json"}
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

    def read(self) -> Corpus:
        folder = Path(self.raw_dir)
        return read_match_folder(folder, self.config, self.name, self.track, self.faults_mode)


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
    """Names of the existing files that would be read."""
    names = [*SPLIT_FILES.values(), FIELDS, TAXONOMY, VOCABULARY]
    names += sorted(path.name for path in folder.glob("id2*.txt"))
    return [name for name in names if is_there(folder / name)]


def read_match_folder(
    folder: Path,
    config: MatchFiles.Config | None = None,
    name: str | None = None,
    track: Track | None = None,
    faults: Faults = "refuse",
) -> Corpus:
    """Reads a folder in the MATCH format.

    Args:
        folder: Folder of the files.
        config: Options; None takes the defaults.
        name: Name of the corpus; None takes the folder's.
        track: Progress tracker.
        faults: Policy for faulty documents, as for `CorpusDataset`.

    Raises:
        CorpusError: With every fault of the files, each with file:line.
    """
    config = config or MatchFiles.Config()
    fields, taxonomy = config.fields, config.list_hierarchy_files(folder / TAXONOMY)
    required = list(SPLIT_FILES.values())
    required += [FIELDS] if fields is None else []
    required += [path.name for path in taxonomy]
    missing = [name for name in required if not is_there(folder / name)]
    if missing:
        raise CorpusError(
            f"The folder '{folder}' must be in the MATCH format, but it has no "
            f"{' and no '.join(missing)}; add what is missing, or check the path."
        )
    builder = CorpusBuilder(
        name=name or resolve_path(folder).name,
        fields=_read_fields(folder / FIELDS) if fields is None else fields,
        summary=f"The folder '{folder}' must be in the MATCH format",
        faults=faults,
        tokenizer=config.tokenizer,
    )
    paths = [folder / name for name in match_files(folder)]
    with open_sources(paths, builder.name, track) as sources:
        keys = _read_documents(folder, builder, sources)
        absent = sorted({*fields} - keys) if fields is not None else []
        if absent and keys and not builder.faults:
            builder.fail(
                f"no document has the metadata fields {absent} that data.fields names; the "
                f"documents have {sorted(keys - {'paper', 'text', 'label'})}, choose from these."
            )
        edges = []
        for path in taxonomy:
            edges = read_taxonomy(sources.lines(path), path.name, builder.fail)
            if not edges:
                builder.warnings.append(
                    f"the label hierarchy '{path}' has no edge, so that no label has a parent; set "
                    f"data.hierarchy=ignore if that is meant"
                )
        for node_type in ("label", *builder.fields):
            for instance, shown in _read_pairs(folder / f"id2{node_type}.txt", builder, sources):
                builder.set_name(node_type, instance, shown)
    return builder.build(edges)


def _read_documents(folder: Path, builder: CorpusBuilder, sources: Sources) -> set[str]:
    """Adds every document; returns the keys seen."""
    fields = [name for name in builder.fields if not builder.faults]
    vocabulary = dict(builder.documents(_read_pairs(folder / VOCABULARY, builder, sources)))
    has_vocabulary, num_unknown = is_there(folder / VOCABULARY), 0
    keys: set[str] = set()
    for split, file_name in SPLIT_FILES.items():
        records = read_json_lines(sources.lines(folder / file_name), file_name, builder.fail)
        for place, record in builder.documents(records):
            keys.update(record)
            if has_vocabulary and isinstance(record.get("text"), str):
                words = record["text"].split()
                num_unknown += sum(word not in vocabulary for word in words)
                record["text"] = " ".join([vocabulary.get(word, word) for word in words])
            _add_document(builder, record, split, fields, place)
    if has_vocabulary:
        builder.notes["words_not_in_vocabulary"] = num_unknown
    return keys


def _add_document(
    builder: CorpusBuilder, record: dict[str, Any], split: Split, fields: Sequence[str], place: str
) -> None:
    """Adds a JSON object as a document, or its faults."""
    before = builder.num_faults
    document = read_id(record, place, builder.fail)
    text = read_text(record, place, builder.fail)
    labels = record.get("label")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        builder.fail(
            f"{place}: 'label' must be a list of strings, found {describe(labels)}; "
            f"write [] for a document without labels."
        )
    metadata = read_metadata(record, fields, place, builder.fail)
    if builder.num_faults == before:
        assert document is not None
        assert text is not None
        assert isinstance(labels, list)
        kept = [label for label in labels if label]
        builder.add(document, split, text, metadata, kept, place)


def _read_fields(path: Path) -> list[str]:
    try:
        fields = parse_json(read_whole(path).removeprefix(b"\xef\xbb\xbf"))["metadata"]
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


def _read_pairs(path: Path, builder: CorpusBuilder, sources: Sources) -> Iterator[tuple[str, str]]:
    """Reads two columns of an optional file, split at the tab or else at the first blank."""
    if not is_there(path):
        return
    for _, line in read_lines(sources.lines(path), path.name, builder.fail):
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
