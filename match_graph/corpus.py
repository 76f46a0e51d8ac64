"""Corpora as pandas tables: documents, metadata, words, labels and their hierarchy; no torch."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args
from unicodedata import normalize

import numpy as np
import pandas as pd
from pydantic import field_validator

from match_graph.config import StrictModel
from match_graph.corpus_faults import (
    ENDS,
    as_features,
    find_document_faults,
    find_feature_faults,
    find_type_faults,
)
from match_graph.cycles import find_cycle
from match_graph.errors import CorpusError, list_faults
from match_graph.typing import DOCUMENT, LABEL, MASKS, RESERVED_TYPES, WORD, Tokenizer

#: Handling of faulty documents: refuse to build, or leave them out.
Faults: TypeAlias = Literal["refuse", "skip"]

#: Lower-cased words; an inner `+#.-` stays, so that `c++`, `f#`, `node.js` and `x-ray` are words.
WORD_PATTERN = r"[a-z0-9][a-z0-9+#.-]*[a-z0-9+#]|[a-z0-9]"
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_BASE = rf"[[\p{{L}}\p{{N}}]--{_UNSPACED}]"
#: The same for every script, for the package `regex`. In scripts without blanks between words each
#: character with its marks is a word, as in Unicode's segmentation without a dictionary (UAX #29).
UNICODE_PATTERN = (
    rf"(?V1){_BASE}(?:[{_BASE}\p{{M}}+#.\-]*[{_BASE}\p{{M}}+#])?"
    rf"|[[\p{{L}}\p{{N}}]&&{_UNSPACED}]\p{{M}}*"
)
#: More combining marks in a row than any language has (the limit of UAX #15): NFKC sorts a run of
#: marks in quadratic time. Voicing marks of halfwidth Katakana are letters before NFKC.
_MANY_MARKS = r"([\p{M}\uff9e\uff9f]{30})[\p{M}\uff9e\uff9f]+"

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Share of the labels from which those missing from the hierarchy give a warning, if several are.
#: Real hierarchies lack a few, of an older version or scheme: 3.4 % of the labels of bio.tools.
_MANY_MISSING = 0.05
_SHOWN_LABELS = 3
#: Share of the documents from which texts without a word give a warning, if there are several.
_MANY_WORDLESS = 0.05
#: Share of the characters above which letters beyond ASCII give a warning: German has some 2 %.
_MANY_FOREIGN = 0.01
_find_foreign = re.compile(r"[^\W\d_a-zA-Z]+").findall


class TableLayout(StrictModel):
    """Columns of a table of documents, by the part of a document that they hold.

    Args:
        columns: Columns by part: ``id``, ``text``, ``label``, each metadata field and, where they
            have one, ``split`` and ``date``.
        separator: Separator of the values of a list in a cell of CSV; "" for cells of one value.
    """

    columns: Mapping[str, Sequence[str]]
    separator: str = ";"

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, columns: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        for part in ("id", "split", "date"):
            if part in columns and len(columns[part]) != 1:
                raise ValueError(f"'{part}' must be one column")
        return columns


@dataclass(frozen=True)
class Corpus:
    """A data set as tables, validated when it is made.

    ``documents``: one row per document, columns ``id`` (unique, str), ``split`` (train, valid or
    test), where there is raw text, ``text``, and where it is known, ``time`` (int64, in one unit;
    readers of dates give days since 1970-01-01). Documents are numbered by row, everything below
    refers to them by that number.

    ``instances[type]``: one row per instance of a type, column ``id`` (unique, str), optionally
    ``name`` for people, for labels optionally ``depth`` as their source gives it. The types are
    the metadata fields, ``word`` and ``label``.

    ``edges[type]``: integer columns ``document`` and ``instance``, sorted by document, then in
    the document's own order: its authors as listed, its words as written. Further numeric columns
    are attributes of the edges.

    ``hierarchy``: columns ``child``, ``parent`` (label ids, str) and ``origin`` (file:line, for
    messages). Nodes that no document carries may occur; `build_graph` contracts them.

    ``warnings``: what looked like a mistake while reading, a sentence each. ``skipped``: documents
    that were left out for their faults, columns ``place`` and ``reason``.

    ``features``: by node type, "document" among them, [rows of that table, F]; finite. float16
    stays, other numbers become float32.

    ``tokenizer``: how texts become words; predictions read new texts in the same way. ``layout``:
    the columns of the user's own table, by which they read new rows of it; None without.

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
    features: Mapping[str, Array] = field(default_factory=dict)
    tokenizer: Tokenizer = "regex"
    layout: TableLayout | None = None

    def __post_init__(self) -> None:
        faults = find_document_faults(self.documents)
        if self.tokenizer not in get_args(Tokenizer):
            faults.append(
                f"the tokenizer must be one of {[*get_args(Tokenizer)]}, found {self.tokenizer!r}."
            )
        if set(self.instances) != set(self.edges):
            faults.append(
                f"instances are given for {sorted(self.instances)}, edges for {sorted(self.edges)}."
            )
        for name in ("word", "label"):
            if name not in self.instances:
                faults.append(f"the type '{name}' is missing.")
        for name in self.instances.keys() & self.edges.keys():
            faults += find_type_faults(
                name, self.instances[name], self.edges[name], len(self.documents)
            )
        rows = {DOCUMENT: len(self.documents)}
        rows |= {name: len(table) for name, table in self.instances.items()}
        faults += find_feature_faults(self.features, rows)
        if missing := {"child", "parent"} - set(self.hierarchy.columns):
            faults.append(f"the hierarchy lacks the columns {sorted(missing)}.")
        elif (cycle := find_cycle(self.hierarchy)) is not None:
            faults.append(cycle)
        if faults:
            raise CorpusError(list_faults(f"The corpus '{self.name}' must be consistent", faults))
        features = {name: as_features(values) for name, values in self.features.items()}
        object.__setattr__(self, "features", features)  # the class is frozen

    def __repr__(self) -> str:
        splits = self.documents["split"].value_counts()
        counts = ", ".join(f"{splits.get(split, 0):,} {split}" for split in MASKS)
        return (
            f"Corpus({self.name!r}, {self.num_documents:,} documents ({counts}), "
            f"{len(self.instances[LABEL]):,} labels, fields {self.fields})"
        )

    @property
    def fields(self) -> list[str]:
        """The metadata fields, in the order in which they were given."""
        return [name for name in self.instances if name not in RESERVED_TYPES]

    @property
    def num_documents(self) -> int:
        return len(self.documents)

    def edge_attr(self, name: str) -> Array | None:
        """Attributes of the edges of a type, [E, K], float32; None without any."""
        columns = self.edges[name].columns.difference([*ENDS], sort=False)
        if columns.empty:
            return None
        attributes: Array = self.edges[name][columns].to_numpy(dtype=np.float32)
        return attributes

    def find_oddities(self) -> list[str]:
        """Likely mistakes in the data, a sentence each: `warnings`, and what the tables show."""
        labels = self.instances[LABEL]["id"].tolist()
        empty = [name for name in self.fields if self.edges[name].empty]
        return [
            *self.warnings,
            *describe_oddities(self.hierarchy, labels, empty),
            *describe_texts(self._count_texts(), self.num_documents),
        ]

    def _count_texts(self) -> Counter[str]:
        if "text" not in self.documents:
            return Counter()
        num_words = np.bincount(self.edges[WORD]["document"], minlength=self.num_documents)
        texts = self.documents["text"].fillna("").tolist()  # a corpus made by hand may lack some
        return count_texts(texts, num_words, self.tokenizer)


def describe_oddities(
    hierarchy: pd.DataFrame, labels: Sequence[str], empty: Sequence[str]
) -> list[str]:
    """Likely mistakes in the data, a sentence each.

    Args:
        hierarchy: Table of edges with the columns ``child`` and ``parent``.
        labels: Labels of documents.
        empty: Metadata fields that no document has.
    """
    found = []
    parents, carried = {*hierarchy["parent"]}, {*labels}
    if parents and carried.isdisjoint(parents):
        leaves = carried & {*hierarchy["child"]}
        if leaves:
            found.append(
                f"no document carries a label that has children in the hierarchy, so that no edge "
                f"of it is kept: documents carry leaves alone, such as '{min(leaves)}'; add the "
                f"ancestors to the documents' labels to use the hierarchy"
            )
        elif carried:
            found.append(
                f"no label of the hierarchy is on any document, so that none has a parent: the "
                f"hierarchy has labels such as '{hierarchy['child'].iloc[0]}', documents such as "
                f"'{min(carried)}'; check that both are of one data set"
            )
    missing = sorted(carried - parents - {*hierarchy["child"]})
    if not found and parents and len(missing) >= max(2, _MANY_MISSING * len(carried)):
        found.append(
            f"{len(missing):,} of {len(carried):,} labels of documents are in no line of the "
            f"hierarchy that has a parent and a child, such as "
            f"{', '.join(map(repr, missing[:_SHOWN_LABELS]))}, so that they have neither; check "
            f"that they are spelt there as in the documents"
        )
    if empty:
        found.append(
            f"no document has the metadata fields {[*empty]}, which are read as empty ones; check "
            f"their names"
        )
    return found


def count_texts(texts: Sequence[str], num_words: Array, tokenizer: Tokenizer) -> Counter[str]:
    """Counts texts without a word and letters beyond ASCII, for `describe_texts`.

    Counts of the parts of a corpus add up to its own.

    Args:
        texts: Raw texts.
        num_words: Number of words found in each, [D].
        tokenizer: Text tokenization, by which these were found.

    Returns:
        ``wordless``, texts that are not blank but have no word; ``foreign``, letters that are not
        ASCII's; ``characters`` of all texts. Nothing for another tokenizer.
    """
    if tokenizer != "regex":
        return Counter()
    return Counter(
        wordless=sum(bool(texts[one].strip()) for one in np.flatnonzero(num_words == 0).tolist()),
        foreign=sum(
            len(run) for text in texts if not text.isascii() for run in _find_foreign(text)
        ),
        characters=sum(map(len, texts)),
    )


def describe_texts(counts: Counter[str], num_documents: int) -> list[str]:
    """Warning, if any, of many documents without a word or many letters that are in none."""
    found = []
    if (number := counts["wordless"]) >= max(2, _MANY_WORDLESS * num_documents):
        found.append(
            f"{number:,} of {num_documents:,} documents have a text in which no word was found"
        )
    if (number := counts["foreign"]) > _MANY_FOREIGN * counts["characters"]:
        found.append(f"{number:,} of {counts['characters']:,} characters are letters beyond ASCII")
    if not found:
        return []
    return [
        f"{', and '.join(found)}: the tokenizer 'regex' knows ASCII letters and digits alone; for "
        f"others set the tokenizer to unicode"
    ]


def word_pattern(tokenizer: Tokenizer) -> str:
    """Regular expression of a word, which every run saves; "whitespace" does not use its own."""
    return UNICODE_PATTERN if tokenizer == "unicode" else WORD_PATTERN


def split_words(text: str, tokenizer: Tokenizer = "regex") -> list[str]:
    """Splits a text into words, in order.

    Args:
        text: Text, may be empty.
        tokenizer: Text tokenization: "regex" lower-cases and finds what `WORD_PATTERN` matches.
            "unicode" brings the text into the form NFKC, lower-cases it, leaves out invisible
            signs such as soft hyphens and marks after the 30th on one letter, and finds what
            `UNICODE_PATTERN` matches: in ASCII the same words. "whitespace" takes the text as
            tokenised already and splits at white space, keeping case.
    """
    if tokenizer == "whitespace":
        return text.split()
    if tokenizer == "regex" or text.isascii():
        return re.findall(WORD_PATTERN, text.lower())
    import regex

    visible = regex.sub(r"\p{Cf}", "", text.replace("\u200b", " "))
    sparse = regex.sub(_MANY_MARKS, r"\1", visible)
    lowered = normalize("NFKC", normalize("NFKC", sparse).lower())
    return regex.findall(UNICODE_PATTERN, lowered)


def hierarchy_frame(edges: Sequence[tuple[str, str, str]]) -> pd.DataFrame:
    """Table of (child, parent, origin) triples; of equal edges the first is kept."""
    frame = pd.DataFrame(list(edges), columns=["child", "parent", "origin"], dtype=str)
    return frame.drop_duplicates(["child", "parent"], ignore_index=True)
