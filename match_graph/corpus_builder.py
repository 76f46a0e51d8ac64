"""Documents -> `Corpus`, one after another; or a part of one, which is merged with others."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from match_graph.corpus import (
    Array,
    Corpus,
    Faults,
    hierarchy_frame,
    split_words,
)
from match_graph.corpus_faults import check_field_names
from match_graph.errors import CorpusError, list_faults
from match_graph.typing import LABEL, SPLITS, WORD, Tokenizer

#: Faults after which a reader may stop: a file of another kind has one in every line.
MAX_FAULTS = 100

T = TypeVar("T")

_SHOWN_REASONS = 5  # of faults that kept documents out, the most frequent


class _Codes(dict[str, int]):
    """Number of each string by first appearance: one that is new gets the next."""

    def __missing__(self, value: str) -> int:
        self[value] = number = len(self)
        return number


class Interner:
    """Numbers strings by first appearance; packs them per document without an object per token."""

    def __init__(self) -> None:
        self.code = _Codes()
        self._codes = array("i")
        self._lengths = array("i")

    def append(self, values: Sequence[str]) -> None:
        """Adds the list of the next document."""
        self._codes.extend([*map(self.code.__getitem__, values)])
        self._lengths.append(len(values))

    def extend(self, strings: Sequence[str], index: Array, lengths: Array) -> None:
        """Adds the lists of the next documents.

        Args:
            strings: Distinct strings, each of which occurs.
            index: Index into them, packed by document, [E].
            lengths: Number of strings of each document, [D].
        """
        code = np.fromiter(map(self.code.__getitem__, strings), np.int32, len(strings))
        self._codes.frombytes(code[index].tobytes())
        self._lengths.frombytes(lengths.astype(np.int32).tobytes())

    @property
    def codes(self) -> Array:
        """Numbers of all documents' strings, [E], int32."""
        return np.frombuffer(self._codes, np.int32) if self._codes else np.empty(0, np.int32)

    @property
    def lengths(self) -> Array:
        """Number of strings of each document, [D], int32."""
        return np.frombuffer(self._lengths, np.int32) if self._lengths else np.empty(0, np.int32)

    def instances(self) -> pd.DataFrame:
        """One row per distinct string, column ``id``."""
        return pd.DataFrame({"id": pd.Series(list(self.code), dtype=str)})

    def edges(self) -> pd.DataFrame:
        """Columns ``document`` and ``instance``, int32."""
        document = np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)
        return pd.DataFrame({"document": document, "instance": self.codes})


class CorpusFault(NamedTuple):
    """Fault of a corpus, and when it was noted.

    Args:
        row: Number of rows of documents that were begun before it.
        num_documents: Number of documents that were added before it.
        of_document: Whether it belongs to a document, which may be left out.
        text: Sentence with the place.
    """

    row: int
    num_documents: int
    of_document: bool
    text: str


class CorpusBuilder:
    """Builder of a `Corpus`, document by document; collects every fault with its place.

    Args:
        name: Name of the corpus.
        fields: The metadata fields to keep.
        summary: Requirement on the source, for the message that lists the faults.
        faults: "skip" leaves out the documents whose faults are noted within `documents`.
        tokenizer: Text tokenization, as for `split_words`.
        is_part: Whether this is a part of a corpus: other parts may know what this one does not,
            so that names are kept of instances that no document of this one has.

    Attributes:
        notes: Counts of what reading dropped, which become those of the corpus.
        warnings: What looks like a mistake, a sentence each.
        edges: Place by (child, parent) of the hierarchy.
        seen: Strings that a reader notes by kind, each with a value; of parts the first counts.
        has_text: Whether the corpus keeps texts.
    """

    def __init__(
        self,
        name: str,
        fields: Sequence[str],
        summary: str,
        faults: Faults = "refuse",
        tokenizer: Tokenizer = "regex",
        is_part: bool = False,
    ) -> None:
        self.name, self.fields, self.summary = name, list(fields), summary
        self.tokenizer: Tokenizer = tokenizer
        self.is_part = is_part
        self.notes: Counter[str] = Counter()
        self._may_skip, self._in_documents = faults == "skip", False
        self.skipped: dict[str, None] = {}  # faults of documents left out, in order
        self.warnings: list[str] = []
        self.faults: list[str] = [] if is_part else check_field_names(fields)
        self.noted: list[CorpusFault] = []
        self.columns: dict[str, list[str]] = {"id": [], "split": [], "text": []}
        self.has_text = True
        self.time: list[int | None] = []
        self.place: dict[str, str] = {}  # by document
        self.types = {name: Interner() for name in (*fields, WORD, LABEL)}
        self._listed = dict.fromkeys((*fields, LABEL)).keys()
        self.names: dict[str, dict[str, str]] = {}
        self.depths: dict[str, int] = {}
        self.edges: dict[tuple[str, str], str] = {}
        self.seen: dict[str, dict[str, str]] = {}
        self.repeated_values: dict[int, int] = {}  # by document, where there are any
        self.replaceable: dict[int, dict[str, int]] = {}
        self._num_rows = self._num_skipped = 0

    def __contains__(self, document: str) -> bool:
        return document in self.place

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

        Faults noted during the iteration belong to documents, which may be left out.
        """
        self._in_documents = True
        try:
            for row in rows:
                if self.is_hopeless:
                    break
                self._num_rows += 1
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
        time: int | None = None,
        replaceable: dict[str, int] | None = None,
    ) -> None:
        """Adds one document; repeated values within a field count once, as metadata are a set.

        The corpus has times if all documents have one. A document whose id was given before is a
        fault, unless it is ``replaceable``: then it is dropped, and these counts are added to the
        notes. Fields that ``metadata`` lacks are empty.

        Raises:
            CorpusError: The split or a field is unknown, or values are not a list.
        """
        lists = {**metadata, LABEL: labels}
        self._check_given(split, lists, place)
        if document in self.place:
            if replaceable is None:
                self.fail(describe_repeated(document, place, self.place[document]))
            else:
                self.notes.update(replaceable)
            return
        row = len(self.place)
        self.place[document] = place
        for column, value in (("id", document), ("split", split), ("text", text)):
            self.columns[column].append(value)
        self.time.append(time)
        if replaceable is not None:
            self.replaceable[row] = replaceable
        self.types[WORD].append(split_words(text, self.tokenizer))
        num_values = num_unique = 0
        for name in self._listed:
            unique = list(dict.fromkeys(values := lists.get(name, ())))
            num_values, num_unique = num_values + len(values), num_unique + len(unique)
            self.types[name].append(unique)
        if num_values > num_unique:
            self.repeated_values[row] = num_values - num_unique

    def _check_given(self, split: str, lists: Mapping[str, Sequence[str]], place: str) -> None:
        """Checks what a reader gives of a document."""
        if split not in SPLITS:
            raise CorpusError(f"{place}: a split must be one of {SPLITS}, found '{split}'.")
        if unknown := sorted(lists.keys() - self._listed):
            raise CorpusError(
                f"{place}: the metadata of a document must be of the fields {self.fields}, found "
                f"{unknown}; leave them out, or name them among the fields."
            )
        for name, values in lists.items():
            if isinstance(values, str):
                raise CorpusError(
                    f"{place}: the values of '{name}' must be a list of strings, found the string "
                    f"'{values[:60]}'; put it into a list."
                )

    def extend(
        self,
        documents: Sequence[str],
        splits: Sequence[str],
        texts: Sequence[str] | None,
        lists: Mapping[str, tuple[Sequence[str], Array, Array]],
        place: str,
    ) -> None:
        """Adds many documents whose lists are arrays, without checks.

        Args:
            documents: Ids that no other document has, [D].
            splits: Split of each, [D].
            texts: Text of each, [D]; None where the corpus keeps none.
            lists: By field, for words and for labels: distinct strings, index into them [E] packed
                by document, and lengths [D], as for `Interner.extend`; nothing is repeated but
                words.
            place: Place of all of them.
        """
        self.has_text = texts is not None
        self.place.update(dict.fromkeys(documents, place))
        none = [""] * len(documents)
        for column, values in (("id", documents), ("split", splits), ("text", texts or none)):
            self.columns[column].extend(values)
        self.time.extend([None] * len(documents))
        for name, given in lists.items():
            self.types[name].extend(*given)

    def set_name(self, node_type: str, instance: str, name: str) -> None:
        """Sets the display name of an instance; ignored for one that no document yet added has."""
        if self.is_part or instance in self.types[node_type].code:
            self.names.setdefault(node_type, {})[instance] = name

    def set_depth(self, label: str, depth: int) -> None:
        """Notes a label's depth in its source; ignored for one that no document yet added has."""
        if self.is_part or label in self.types[LABEL].code:
            self.depths[label] = depth

    def note_seen(self, kind: str, values: Mapping[str, str]) -> None:
        """Notes strings with their values; the first value of a string counts."""
        known = self.seen.setdefault(kind, {})
        for value, what in values.items():
            known.setdefault(value, what)

    def fail(self, fault: str) -> None:
        """Notes a fault; `build` raises them all, but those of documents that are left out."""
        self._note(CorpusFault(self._num_rows, len(self.place), self._in_documents, fault))

    def fail_file(self, fault: str) -> None:
        """Notes a fault of a file as a whole, which `build` raises whatever may be left out."""
        self._note(CorpusFault(self._num_rows, len(self.place), False, fault))

    def _note(self, fault: CorpusFault) -> None:
        self.noted.append(fault)
        if self._may_skip and fault.of_document:
            self._num_skipped += 1
            self.skipped[fault.text] = None
        else:
            self.faults.append(fault.text)

    def replay(self, faults: Iterable[CorpusFault]) -> None:
        """Notes the faults of a part after those of earlier ones, up to where reading would end."""
        row = -1
        for fault in faults:
            if self.is_hopeless and fault.row != row:
                break
            row = fault.row
            self._note(fault)

    def check(self, num_documents: int) -> None:
        """Refuses what was read, if there are faults.

        Raises:
            CorpusError: With all faults noted so far.
        """
        if self.faults:
            raise CorpusError(list_faults(self.summary, self.faults, self.is_hopeless))
        if self.skipped and not num_documents:
            raise CorpusError(list_faults(self.summary, list(self.skipped)))

    def build(
        self,
        hierarchy: Sequence[tuple[str, str, str]] = (),
        label_names: Mapping[str, str] | None = None,
    ) -> Corpus:
        """Builds the corpus.

        Args:
            hierarchy: (child, parent, origin) triples, in addition to those of `edges`.
            label_names: Names of labels by id, where known.

        Raises:
            CorpusError: With all faults noted so far, or with those of the tables.
        """
        self.check(len(self.place))
        instances = {name: interner.instances() for name, interner in self.types.items()}
        for label, name in (label_names or {}).items():
            self.set_name(LABEL, label, name)
        for node_type, names in self.names.items():
            values = [names.get(value, value) for value in self.types[node_type].code]
            instances[node_type]["name"] = pd.Series(values, dtype=str)
        if self.depths:
            depths = [self.depths.get(label) for label in self.types[LABEL].code]
            instances[LABEL]["depth"] = pd.array(depths, dtype="Int16")
        columns = {**self.columns}
        if not self.has_text:
            del columns["text"]
        documents = pd.DataFrame(columns, dtype=str)
        if self.time and None not in self.time:
            documents["time"] = np.array(self.time, dtype=np.int64)
        edges = [(*edge, place) for edge, place in self.edges.items()]
        return Corpus(
            name=self.name,
            documents=documents,
            instances=instances,
            edges={name: interner.edges() for name, interner in self.types.items()},
            hierarchy=hierarchy_frame([*edges, *hierarchy]),
            notes=self.count_notes(sum(self.repeated_values.values())),
            warnings=self.list_warnings(len(documents)),
            skipped=split_places(self.skipped),
            tokenizer=self.tokenizer,
        )

    def count_notes(self, num_repeated: int) -> dict[str, int]:
        """Notes of the corpus."""
        return {"repeated_values_dropped": num_repeated, **self.notes}

    def list_warnings(self, num_documents: int) -> list[str]:
        """Warnings, with the faults that left documents out, counted by reason."""
        if not self.skipped:
            return self.warnings
        reasons = Counter(map(_find_reason, split_places(self.skipped)["reason"]))
        shown = [f"{count:,} x {reason}" for reason, count in reasons.most_common(_SHOWN_REASONS)]
        shown += [f"{len(reasons) - len(shown)} other reasons"] * (len(reasons) > len(shown))
        return [
            *self.warnings,
            f"left out documents for {len(self.skipped):,} faults, "
            f"{num_documents:,} documents remain: {'; '.join(shown)}",
        ]


def describe_repeated(document: str, place: str, before: str) -> str:
    """Fault of a document whose id was given before."""
    return (
        f"{place}: the document '{document}' was given before ({before}); "
        f"every document needs an id of its own."
    )


def split_places(faults: Iterable[str]) -> pd.DataFrame:
    """Faults as a table: columns ``place`` (file:line) and ``reason``."""
    rows = [fault.partition(": ")[::2] for fault in faults]
    return pd.DataFrame(rows, columns=["place", "reason"], dtype=str)


def _find_reason(fault: str) -> str:
    """Reason of a fault without the values found, at most 80 characters."""
    reason = re.split(r", found |, but |; ", fault)[0]
    reason = re.sub(r" \([^)]*\)", "", reason)  # where the other one is, the parser's words
    return re.sub(r"(?!^)'[^']*'", "'...'", reason)[:80]  # what comes first is a key
