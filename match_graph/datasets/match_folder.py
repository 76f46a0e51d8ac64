"""A folder in the MATCH format, as the paper's release has it.

Source: https://arxiv.org/abs/2102.07349; ``train.json``, ``dev.json`` (the validation split) and
``test.json`` with one JSON object a line, ``taxonomy.txt`` with a parent and its children a line,
``meta_dict.json`` with the metadata fields; ``id2label.txt`` (id, tab, name) may stand beside them.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from match_graph.config import StrictModel
from match_graph.datasets.builder import CorpusBuilder
from match_graph.datasets.corpus import Corpus
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.json_lines import (
    describe,
    read_id,
    read_json_lines,
    read_lines,
    read_metadata,
    read_text,
)
from match_graph.datasets.text import WORD_PATTERN, Tokenizer, split_words
from match_graph.errors import CorpusError
from match_graph.typing import Split

SPLIT_FILES: dict[Split, str] = {"train": "train.json", "valid": "dev.json", "test": "test.json"}
TAXONOMY, FIELDS, LABEL_NAMES = "taxonomy.txt", "meta_dict.json", "id2label.txt"
_MAX_FAULTS = 100

Hierarchy: TypeAlias = Literal["use", "ignore"]


class MatchFolder(CorpusDataset):
    """A folder in the MATCH format as a data set.

    Args:
        folder: Holds the five files. Nothing is written into it.
        fields: Metadata fields to read, each on some document; None takes those of
            ``meta_dict.json``, of which some may be on none.
        tokenizer: "regex" for raw text, "whitespace" for text that is tokenised already.
        hierarchy: "use" reads ``taxonomy.txt``, "ignore" leaves every label without a parent.
        **kwargs: As for `CorpusDataset`.

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
        if not self.folder.is_dir():
            raise CorpusError(
                f"A data set in the MATCH format must be a folder, but there is none at "
                f"'{self.folder}'; check the path."
            )
        super().__init__(name=self.folder.resolve().name, **kwargs)

    @property
    def raw_dir(self) -> str:
        return str(self.folder)

    @property
    def raw_file_names(self) -> list[str]:
        names = [*SPLIT_FILES.values(), FIELDS, TAXONOMY, LABEL_NAMES]
        return [name for name in names if (self.folder / name).is_file()]

    @property
    def options(self) -> dict[str, Any]:
        return {
            "fields": None if self.fields is None else list(self.fields),
            "tokenizer": self.tokenizer,
            "word_pattern": WORD_PATTERN,
            "hierarchy": self.hierarchy_mode,
        }

    def read(self) -> Corpus:
        return read_match_folder(self.folder, self.fields, self.tokenizer, self.hierarchy_mode)


def read_match_folder(
    folder: Path,
    fields: Sequence[str] | None = None,
    tokenizer: Tokenizer = "regex",
    hierarchy: Hierarchy = "use",
) -> Corpus:
    """Reads a folder in the MATCH format; arguments and errors as for `MatchFolder`."""
    MatchFolder.check_options({"fields": fields, "tokenizer": tokenizer, "hierarchy": hierarchy})
    required = list(SPLIT_FILES.values())
    required += [FIELDS] if fields is None else []
    required += [TAXONOMY] if hierarchy == "use" else []
    missing = [name for name in required if not (folder / name).is_file()]
    if missing:
        raise CorpusError(
            f"The folder '{folder}' must be in the MATCH format, but it has no "
            f"{' and no '.join(missing)}; add what is missing, or check the path."
        )
    builder = CorpusBuilder(
        name=folder.resolve().name,
        fields=_read_fields(folder / FIELDS) if fields is None else fields,
        summary=f"The folder '{folder}' must be in the MATCH format",
    )
    names = [name for name in builder.fields if not builder.faults]
    keys: set[str] = set()
    for split, file_name in SPLIT_FILES.items():
        with (folder / file_name).open("rb") as file:
            for place, record in read_json_lines(file, file_name, builder.fail):
                if len(builder.faults) >= _MAX_FAULTS:
                    break
                keys.update(record)
                add_record(builder, record, split, names, tokenizer, place)
    absent = sorted({*fields} - keys) if fields is not None else []
    if absent and keys and not builder.faults:
        builder.fail(
            f"no document has the metadata fields {absent} that data.fields names; the documents "
            f"have {sorted(keys - {'paper', 'text', 'label'})}, choose from these."
        )
    edges = _read_taxonomy(folder / TAXONOMY, builder) if hierarchy == "use" else []
    label_names = {}
    if (folder / LABEL_NAMES).is_file():
        pairs = (line.split("\t", 1) for _, line in _read_lines(folder / LABEL_NAMES, builder))
        label_names = {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
    return builder.build(edges, label_names)


def add_record(
    builder: CorpusBuilder,
    record: dict[str, Any],
    split: Split,
    fields: Sequence[str],
    tokenizer: Tokenizer,
    place: str,
) -> None:
    """Adds one JSON object as a document, or its faults."""
    before = len(builder.faults)
    document = read_id(record, place, builder.fail)
    text = read_text(record, place, builder.fail)
    labels = record.get("label")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        builder.fail(
            f"{place}: 'label' must be a list of strings, found {describe(labels)}; "
            f"write [] for a document without labels."
        )
    metadata = read_metadata(record, fields, place, builder.fail)
    if len(builder.faults) == before:
        assert document is not None
        assert text is not None
        assert isinstance(labels, list)
        words = split_words(text, tokenizer)
        kept = [label for label in labels if label]
        builder.add(document, split, text, words, metadata, kept, place)


def _read_lines(path: Path, builder: CorpusBuilder) -> Iterator[tuple[str, str]]:
    with path.open("rb") as file:
        yield from read_lines(file, path.name, builder.fail)


def _read_fields(path: Path) -> list[str]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        fields = content["metadata"]
    except (ValueError, KeyError, TypeError):
        fields = None
    if not isinstance(fields, list) or not all(isinstance(name, str) for name in fields):
        raise CorpusError(
            f'{path.name} must hold an object like {{"metadata": ["venue", "author"]}}, '
            f"found something else in '{path}'; mend it, or name the fields (data.fields)."
        )
    return fields


def _read_taxonomy(path: Path, builder: CorpusBuilder) -> list[tuple[str, str, str]]:
    edges = []
    for place, line in _read_lines(path, builder):
        parent, *children = line.split()
        edges += [(child, parent, place) for child in children]
    return edges
