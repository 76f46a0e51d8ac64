"""A folder in the MATCH format, as the paper's release has it.

Source: https://arxiv.org/abs/2102.07349; ``train.json``, ``dev.json`` (the validation split) and
``test.json`` with one JSON object a line, ``taxonomy.txt`` with a parent and its children a line,
``meta_dict.json`` with the metadata fields. Beside them may stand ``id2label.txt`` and likewise
``id2author.txt`` or that of any field (id, tab, name), and ``vocabulary.txt`` (number, tab, word)
where the texts are numbers of words.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from match_graph.config import StrictModel
from match_graph.corpus import Corpus, CorpusBuilder, Faults
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.text import WORD_PATTERN, Tokenizer, split_words
from match_graph.errors import CorpusError
from match_graph.io.json_lines import (
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

Hierarchy: TypeAlias = Literal["use", "ignore"]


class MatchFolder(CorpusDataset):
    """A folder in the MATCH format as a data set.

    Args:
        folder: Folder of the files. Nothing is written into it.
        fields: Metadata fields to read, each on some document; None takes those of
            ``meta_dict.json``, of which some may be on none.
        tokenizer: Text tokenization: "regex" for raw text, "whitespace" for text that is tokenised
            already.
        hierarchy: Use of the hierarchy: "use" reads ``taxonomy.txt``, "ignore" leaves every label
            without a parent.
        **kwargs: Arguments of `CorpusDataset`.

    Raises:
        CorpusError: With every fault of the files, each with file:line.
        ConfigError: There is no such tokenizer, or no such use of the hierarchy.
    """

    class Options(StrictModel):
        """Arguments that settings may give."""

        fields: Sequence[str] | None = None
        tokenizer: Tokenizer = "regex"
        hierarchy: Hierarchy = "use"

    def __init__(
        self,
        folder: str | Path,
        fields: Sequence[str] | None = None,
        tokenizer: Tokenizer = "regex",
        hierarchy: Hierarchy = "use",
        **kwargs: Any,
    ) -> None:
        self.check_options({"fields": fields, "tokenizer": tokenizer, "hierarchy": hierarchy})
        self.folder = Path(folder)
        self.fields = None if fields is None else tuple(fields)
        self.tokenizer = tokenizer
        self.hierarchy_mode = hierarchy
        if not is_folder(self.folder):
            raise CorpusError(
                f"A data set in the MATCH format must be a folder, but there is none at "
                f"'{self.folder}'; check the path."
            )
        super().__init__(name=resolve_path(self.folder).name, **kwargs)

    @property
    def raw_dir(self) -> str:
        return str(self.folder)

    @property
    def raw_file_names(self) -> list[str]:
        return match_files(self.folder)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "fields": None if self.fields is None else list(self.fields),
            "tokenizer": self.tokenizer,
            "word_pattern": WORD_PATTERN,
            "hierarchy": self.hierarchy_mode,
        }

    def read(self) -> Corpus:
        return read_match_folder(
            self.folder,
            self.fields,
            self.tokenizer,
            self.hierarchy_mode,
            track=self.track,
            faults=self.faults_mode,
        )


def match_files(folder: Path) -> list[str]:
    """Names of the existing files that would be read."""
    names = [*SPLIT_FILES.values(), FIELDS, TAXONOMY, VOCABULARY]
    names += sorted(path.name for path in folder.glob("id2*.txt"))
    return [name for name in names if is_there(folder / name)]


def read_match_folder(
    folder: Path,
    fields: Sequence[str] | None = None,
    tokenizer: Tokenizer = "regex",
    hierarchy: Hierarchy = "use",
    name: str | None = None,
    track: Track | None = None,
    faults: Faults = "refuse",
) -> Corpus:
    """Reads a folder in the MATCH format; errors as for `MatchFolder`.

    Args:
        folder: Folder, as for `MatchFolder`.
        fields: Metadata fields, as for `MatchFolder`.
        tokenizer: Tokenizer, as for `MatchFolder`.
        hierarchy: Use of ``taxonomy.txt``, as for `MatchFolder`.
        name: Name of the corpus; None takes the folder's.
        track: Progress tracker.
        faults: Policy for faulty documents, as for `CorpusDataset`.
    """
    MatchFolder.check_options({"fields": fields, "tokenizer": tokenizer, "hierarchy": hierarchy})
    required = list(SPLIT_FILES.values())
    required += [FIELDS] if fields is None else []
    required += [TAXONOMY] if hierarchy == "use" else []
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
    )
    paths = [folder / name for name in match_files(folder)]
    with open_sources(paths, builder.name, track) as sources:
        with builder.documents():
            keys, num_unknown = _read_documents(folder, builder, sources, tokenizer)
        absent = sorted({*fields} - keys) if fields is not None else []
        if absent and keys and not builder.faults:
            builder.fail(
                f"no document has the metadata fields {absent} that data.fields names; the "
                f"documents have {sorted(keys - {'paper', 'text', 'label'})}, choose from these."
            )
        edges = _read_taxonomy(folder / TAXONOMY, builder, sources) if hierarchy == "use" else []
        if hierarchy == "use" and not edges:
            builder.warn(
                f"the label hierarchy '{folder / TAXONOMY}' has no edge, so that no label has a "
                f"parent; set data.hierarchy=ignore if that is meant"
            )
        for node_type in ("label", *builder.fields):
            _read_names(folder / f"id2{node_type}.txt", node_type, builder, sources)
    corpus = builder.build(edges)
    if is_there(folder / VOCABULARY):
        corpus.notes["words_not_in_vocabulary"] = num_unknown
    return corpus


def _read_documents(
    folder: Path, builder: CorpusBuilder, sources: Sources, tokenizer: Tokenizer
) -> tuple[set[str], int]:
    """Adds every document; returns the keys seen and the number of words outside the vocabulary."""
    fields = [name for name in builder.fields if not builder.faults]
    vocabulary = _read_vocabulary(folder / VOCABULARY, builder, sources)
    keys: set[str] = set()
    num_unknown = 0
    for split, file_name in SPLIT_FILES.items():
        lines = sources.lines(folder / file_name)
        for place, record in read_json_lines(lines, file_name, builder.fail):
            if builder.is_hopeless:
                break
            keys.update(record)
            if vocabulary is not None and isinstance(record.get("text"), str):
                words = record["text"].split()
                num_unknown += sum(word not in vocabulary for word in words)
                record["text"] = " ".join([vocabulary.get(word, word) for word in words])
            add_record(builder, record, split, fields, tokenizer, place)
    return keys, num_unknown


def add_record(
    builder: CorpusBuilder,
    record: dict[str, Any],
    split: Split,
    fields: Sequence[str],
    tokenizer: Tokenizer,
    place: str,
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
        words = split_words(text, tokenizer)
        kept = [label for label in labels if label]
        builder.add(document, split, text, words, metadata, kept, place)


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


def _read_taxonomy(
    path: Path, builder: CorpusBuilder, sources: Sources
) -> list[tuple[str, str, str]]:
    edges = []
    for place, line in read_lines(sources.lines(path), path.name, builder.fail):
        parent, *children = line.split()
        edges += [(child, parent, place) for child in children]
    return edges


def _read_pairs(path: Path, builder: CorpusBuilder, sources: Sources) -> Iterator[tuple[str, str]]:
    """Reads two columns of a file, split at the tab or else at the first blank."""
    for _, line in read_lines(sources.lines(path), path.name, builder.fail):
        pair = line.split("\t", 1) if "\t" in line else line.split(" ", 1)
        if len(pair) == 2:
            yield pair[0], pair[1].strip()


def _read_names(path: Path, node_type: str, builder: CorpusBuilder, sources: Sources) -> None:
    if is_there(path):
        for instance, name in _read_pairs(path, builder, sources):
            builder.set_name(node_type, instance, name)


def _read_vocabulary(path: Path, builder: CorpusBuilder, sources: Sources) -> dict[str, str] | None:
    return dict(_read_pairs(path, builder, sources)) if is_there(path) else None
