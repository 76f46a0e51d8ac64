"""Documents, metadata, words, labels and their hierarchy as pandas tables: no torch here."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import pandas as pd

from match_graph.cycles import find_cycle
from match_graph.errors import CorpusError, list_faults
from match_graph.typing import CONTEXT, RESERVED_TYPES, SPLITS

#: Keys of a document in the MATCH format that are no metadata.
RECORD_KEYS = frozenset({"paper", "text"})
#: Faults after which a reader may stop: a file of another kind has one in every line.
MAX_FAULTS = 100

#: What becomes of faulty documents: nothing is built, or they are left out.
Faults: TypeAlias = Literal["refuse", "skip"]

Tokenizer: TypeAlias = Literal["regex", "whitespace"]
#: Lower-cased words; an inner `+#.-` stays, so that `c++`, `f#`, `node.js` and `x-ray` are words.
WORD_PATTERN = r"[a-z0-9][a-z0-9+#.-]*[a-z0-9+#]|[a-z0-9]"

T = TypeVar("T")

_SHOWN_REASONS = 5  # of faults that kept documents out, the most frequent


@dataclass(frozen=True)
class Corpus:
    """A data set as tables, validated when it is made.

    ``documents``: one row per document, columns ``id`` (unique, str), ``split`` (train, valid or
    test) and, where there is raw text, ``text``. Documents are numbered by row, everything below
    refers to them by that number.

    ``instances[type]``: one row per instance of a type, column ``id`` (unique, str), optionally
    ``name`` for people, for labels optionally ``depth`` as their source gives it. The types are
    the metadata fields, ``word`` and ``label``.

    ``edges[type]``: integer columns ``document`` and ``instance``, sorted by document, then in
    the document's own order: its authors as listed, its words as written.

    ``hierarchy``: columns ``child``, ``parent`` (label ids, str) and ``origin`` (file:line, for
    messages). Nodes that no document carries may stand in it; `build_graph` contracts them.

    ``warnings``: what looked like a mistake while reading, a sentence each. ``skipped``: documents
    that were left out for their faults, columns ``place`` and ``reason``.

    Raises:
        CorpusError: With every fault of the tables, not only the first.
    """

    name: str
    documents: pd.DataFrame
    instances: dict[str, pd.DataFrame]
    edges: dict[str, pd.DataFrame]
    hierarchy: pd.DataFrame
    notes: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    skipped: pd.DataFrame = field(default_factory=pd.DataFrame)

    def __post_init__(self) -> None:
        faults = _document_faults(self.documents)
        if set(self.instances) != set(self.edges):
            faults.append(
                f"instances are given for {sorted(self.instances)}, edges for {sorted(self.edges)}."
            )
        for name in ("word", "label"):
            if name not in self.instances:
                faults.append(f"the type '{name}' is missing.")
        for name in self.instances.keys() & self.edges.keys():
            faults += _type_faults(
                name, self.instances[name], self.edges[name], len(self.documents)
            )
        cycle = find_cycle(self.hierarchy)
        if cycle is not None:
            faults.append(cycle)
        if faults:
            raise CorpusError(list_faults(f"The corpus '{self.name}' must be consistent", faults))

    @property
    def fields(self) -> list[str]:
        """The metadata fields, in the order in which they were given."""
        return [name for name in self.instances if name not in RESERVED_TYPES]

    @property
    def num_documents(self) -> int:
        return len(self.documents)

    def find_oddities(self) -> list[str]:
        """Likely mistakes in the data, a sentence each: `warnings`, and what the tables show."""
        found = list(self.warnings)
        labels = self.instances["label"]["id"]
        nodes = pd.unique(pd.concat([self.hierarchy["child"], self.hierarchy["parent"]]))
        if len(nodes) and len(labels) and not labels.isin(nodes).any():
            found.append(
                f"no label of the hierarchy is on any document, so that none has a parent: the "
                f"hierarchy has labels such as '{nodes[0]}', documents such as '{labels.iloc[0]}'; "
                f"check that both are of one data set"
            )
        empty = [name for name in self.fields if self.edges[name].empty]
        if empty:
            found.append(
                f"no document has the metadata fields {empty}, which are read as empty ones; check "
                f"their names"
            )
        return found


def check_field_names(fields: Sequence[str]) -> list[str]:
    """Faults of a list of metadata field names; empty if all can be node types."""
    faults = [f"the metadata field '{name}' is listed twice." for name in _repeated(fields)]
    for name in fields:
        if name in RECORD_KEYS:
            faults.append(
                f"a metadata field cannot be named '{name}': documents have their id under 'paper' "
                f"and their text under 'text' where they are shown or predicted; rename it."
            )
        elif name in RESERVED_TYPES:
            faults.append(f"a metadata field cannot be named '{name}': that node type is taken.")
        elif name == CONTEXT:
            faults.append(
                f"a metadata field cannot be named '{name}': pre-training keeps the context "
                f"vectors of words under that name; rename it."
            )
        elif not name.isidentifier() or "__" in name:
            faults.append(
                f"a metadata field must be named by letters, digits and single underscores, "
                f"found '{name}'."
            )
    return faults


def _repeated(names: Iterable[str]) -> list[str]:
    series = pd.Series(list(names), dtype=object)
    return [str(name) for name in series[series.duplicated()].unique()]


def _document_faults(documents: pd.DataFrame) -> list[str]:
    missing = {"id", "split"} - set(documents.columns)
    if missing:
        return [f"the documents lack the columns {sorted(missing)}."]
    faults = [f"the document '{name}' is given twice." for name in _repeated(documents["id"])]
    unknown = set(documents["split"].unique()) - set(SPLITS)
    if unknown:
        faults.append(f"a split must be one of {SPLITS}, found {sorted(map(str, unknown))}.")
    if not (documents["split"] == "train").any():
        faults.append("the training split must hold a document, found none.")
    return faults


def _type_faults(
    name: str, ids: pd.DataFrame, edges: pd.DataFrame, num_documents: int
) -> list[str]:
    if "id" not in ids or not {"document", "instance"} <= set(edges.columns):
        return [f"the type '{name}' needs a column id, its edges need document and instance."]
    faults = [f"the {name} '{value}' is given twice." for value in _repeated(ids["id"])]
    for column, limit in (("document", num_documents), ("instance", len(ids))):
        values = edges[column].to_numpy()
        if len(values) and (values.min() < 0 or values.max() >= limit):
            faults.append(
                f"the {name} edges must name {column}s in [0, {limit}), "
                f"found {values.min()} to {values.max()}."
            )
    if not edges["document"].is_monotonic_increasing:
        faults.append(f"the {name} edges must be sorted by document.")
    return faults


def split_words(
    text: str, tokenizer: Tokenizer = "regex", pattern: str = WORD_PATTERN
) -> list[str]:
    """Splits a text into words, in order, by one regular expression that every run saves.

    Args:
        text: Text, may be empty.
        tokenizer: Text tokenization: "regex" lower-cases and matches the pattern; "whitespace"
            takes the text as tokenised already and splits at white space, keeping case.
        pattern: Regular expression of a word; a run keeps its own.
    """
    if tokenizer == "whitespace":
        return text.split()
    return re.findall(pattern, text.lower())


class Interner:
    """Numbers strings by first appearance; packs them per document without an object per token."""

    def __init__(self) -> None:
        self.code: dict[str, int] = {}
        self._codes = array("i")
        self._lengths = array("i")

    def append(self, values: Sequence[str]) -> None:
        """Adds the list of the next document."""
        code = self.code
        for value in values:
            if value not in code:
                code[value] = len(code)
        self._codes.extend([code[value] for value in values])
        self._lengths.append(len(values))

    def instances(self) -> pd.DataFrame:
        """One row per distinct string, column ``id``."""
        return pd.DataFrame({"id": pd.Series(list(self.code), dtype=str)})

    def edges(self) -> pd.DataFrame:
        """Columns ``document`` and ``instance``, int32."""
        lengths = np.frombuffer(self._lengths, np.int32) if self._lengths else np.empty(0, int)
        codes = np.frombuffer(self._codes, np.int32) if self._codes else np.empty(0, np.int32)
        document = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        return pd.DataFrame({"document": document, "instance": codes})


class CorpusBuilder:
    """Builder of a `Corpus`, document by document; collects every fault with its place.

    Args:
        name: Name of the corpus.
        fields: The metadata fields to keep.
        summary: Requirement on the source, for the message that lists the faults.
        faults: "skip" leaves out the documents whose faults are noted within `documents`.
        tokenizer: Text tokenization, as for `split_words`.

    Attributes:
        notes: Counts of what reading dropped, which become those of the corpus.
        warnings: What looks like a mistake, a sentence each.
    """

    def __init__(
        self,
        name: str,
        fields: Sequence[str],
        summary: str,
        faults: Faults = "refuse",
        tokenizer: Tokenizer = "regex",
    ) -> None:
        self.name, self.fields, self.summary = name, list(fields), summary
        self.tokenizer: Tokenizer = tokenizer
        self.notes: Counter[str] = Counter()
        self._may_skip, self._in_documents = faults == "skip", False
        self._skipped: dict[str, None] = {}  # faults of documents left out, in order
        self.warnings: list[str] = []
        self.faults: list[str] = check_field_names(fields)
        self._documents: dict[str, list[str]] = {"id": [], "split": [], "text": []}
        self._place: dict[str, str] = {}
        self._types = {name: Interner() for name in (*fields, "word", "label")}
        self._names: dict[str, dict[int, str]] = {}
        self._depths: dict[int, int] = {}
        self._num_repeated = self._num_skipped = 0

    def __contains__(self, document: str) -> bool:
        return document in self._place

    @property
    def is_hopeless(self) -> bool:
        """Whether there are too many faults for reading on to be of use."""
        return len(self.faults) >= MAX_FAULTS

    @property
    def num_faults(self) -> int:
        """Number of faults noted so far, also of documents that are left out."""
        return len(self.faults) + self._num_skipped

    def documents(self, rows: Iterable[T]) -> Iterator[T]:
        """Rows of documents, until there are too many faults.

        While one is held, faults belong to documents, which may be left out.
        """
        self._in_documents = True
        try:
            for row in rows:
                if self.is_hopeless:
                    break
                yield row
        finally:
            self._in_documents = False

    def add(
        self,
        document: str,
        split: str,
        text: str,
        metadata: dict[str, list[str]],
        labels: Sequence[str],
        place: str,
    ) -> None:
        """Adds one document; repeated values within a field count once, as metadata are a set."""
        if document in self._place:
            self.fail(
                f"{place}: the document '{document}' was given before ({self._place[document]}); "
                f"every document needs an id of its own."
            )
            return
        self._place[document] = place
        for column, value in (("id", document), ("split", split), ("text", text)):
            self._documents[column].append(value)
        self._types["word"].append(split_words(text, self.tokenizer))
        for name, values in {**metadata, "label": list(labels)}.items():
            unique = list(dict.fromkeys(values))
            self._num_repeated += len(values) - len(unique)
            self._types[name].append(unique)

    def set_name(self, node_type: str, instance: str, name: str) -> None:
        """Names an instance of a type for people; one that no document has is passed over."""
        code = self._types[node_type].code.get(instance)
        if code is not None:
            self._names.setdefault(node_type, {})[code] = name

    def set_depth(self, label: str, depth: int) -> None:
        """Notes the depth that a source gives a label; ignored for a label without documents."""
        code = self._types["label"].code.get(label)
        if code is not None:
            self._depths[code] = depth

    def fail(self, fault: str) -> None:
        """Notes a fault; `build` raises them all, but those of documents that are left out."""
        if self._may_skip and self._in_documents:
            self._num_skipped += 1
            self._skipped[fault] = None
        else:
            self.faults.append(fault)

    def build(
        self,
        hierarchy: Sequence[tuple[str, str, str]],
        label_names: Mapping[str, str] | None = None,
    ) -> Corpus:
        """Builds the corpus.

        Args:
            hierarchy: (child, parent, origin) triples.
            label_names: Names of labels by id, where known.

        Raises:
            CorpusError: With all faults noted so far, or with those of the tables.
        """
        if self.faults:
            raise CorpusError(list_faults(self.summary, self.faults))
        if self._skipped and not self._documents["id"]:
            raise CorpusError(list_faults(self.summary, list(self._skipped)[:MAX_FAULTS]))
        instances = {name: interner.instances() for name, interner in self._types.items()}
        for label, name in (label_names or {}).items():
            self.set_name("label", label, name)
        for node_type, names in self._names.items():
            values = list(self._types[node_type].code)
            for code, name in names.items():
                values[code] = name
            instances[node_type]["name"] = pd.Series(values, dtype=str)
        if self._depths:
            depths = [self._depths.get(code) for code in range(len(instances["label"]))]
            instances["label"]["depth"] = pd.array(depths, dtype="Int16")
        return Corpus(
            name=self.name,
            documents=pd.DataFrame(self._documents, dtype=str),
            instances=instances,
            edges={name: interner.edges() for name, interner in self._types.items()},
            hierarchy=hierarchy_frame(hierarchy),
            notes={"repeated_values_dropped": self._num_repeated, **self.notes},
            warnings=[*self.warnings, *self._describe_skipped()],
            skipped=split_places(self._skipped),
        )

    def _describe_skipped(self) -> list[str]:
        """Faults that left documents out, counted by reason."""
        if not self._skipped:
            return []
        reasons = Counter(map(_find_reason, split_places(self._skipped)["reason"]))
        shown = [f"{count:,} x {reason}" for reason, count in reasons.most_common(_SHOWN_REASONS)]
        shown += [f"{len(reasons) - len(shown)} other reasons"] * (len(reasons) > len(shown))
        return [
            f"left out documents for {len(self._skipped):,} faults, "
            f"{len(self._documents['id']):,} documents remain: {'; '.join(shown)}"
        ]


def hierarchy_frame(edges: Sequence[tuple[str, str, str]]) -> pd.DataFrame:
    """Table of (child, parent, origin) triples; of equal edges the first is kept."""
    frame = pd.DataFrame(list(edges), columns=["child", "parent", "origin"], dtype=str)
    return frame.drop_duplicates(["child", "parent"], ignore_index=True)


def split_places(faults: Iterable[str]) -> pd.DataFrame:
    """Faults as a table: columns ``place`` (file:line) and ``reason``."""
    rows = [fault.partition(": ")[::2] for fault in faults]
    return pd.DataFrame(rows, columns=["place", "reason"], dtype=str)


def _find_reason(fault: str) -> str:
    """Reason of a fault without the values found, at most 80 characters."""
    reason = re.split(r", found |, but |; ", fault)[0]
    reason = re.sub(r" \([^)]*\)", "", reason)  # where the other one is, the parser's words
    return re.sub(r"(?!^)'[^']*'", "'...'", reason)[:80]  # what comes first is a key
