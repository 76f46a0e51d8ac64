"""Options that several data sets share: tokenization, hierarchy, splits; the card of each.

An option is defined once, as a field of its data set's `Config`, with default, bounds and meaning:
the class and its reader take it, and ``match-graph datasets NAME`` prints it.
"""

import hashlib
import re
from calendar import monthrange
from collections import Counter
from collections.abc import Iterable
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from match_graph.config import StrictModel
from match_graph.typing import Split, Tokenizer

_is_date = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?").fullmatch


#: Note of a corpus: how many documents are in train because they have no date.
UNDATED = "undated_documents_in_train"


def tokenizer_field(default: Tokenizer) -> Any:
    """Field of the option ``tokenizer``, whose default depends on the data set."""
    return Field(
        default,
        description="how texts become words: regex, of ASCII letters and digits in lower case; "
        "unicode, the same of all scripts; or whitespace, which keeps case and punctuation, for "
        "texts that are tokenised already",
    )


class TextConfig(StrictModel):
    """Options of data sets with raw texts."""

    tokenizer: Tokenizer = tokenizer_field("regex")


class HierarchyConfig(TextConfig):
    """Options of data sets with texts and a label hierarchy."""

    hierarchy: Literal["use", "ignore"] = Field(
        "use", description="ignore: every label is without a parent"
    )

    def list_hierarchy_files(self, path: str | Path | None) -> list[Path]:
        """The file of the hierarchy in a list, which is empty if it is not to be read."""
        return [Path(path)] if path is not None and self.hierarchy == "use" else []


def _read_date(value: Any) -> Any:
    if isinstance(value, str | int | date) and not isinstance(value, bool):
        if not _is_date(str(value)) or count_days(str(value)) is None:
            raise ValueError("a date must be a year, a month or a day, such as 2015 or 2015-06-30")
        return str(value)
    return value


#: A date as YAML parses it: 2015 is a number, 2015-06 a string, 2015-06-30 a date.
DateOption = Annotated[str | None, BeforeValidator(_read_date)]


class SplitConfig(StrictModel):
    """Options of data sets without splits of their own: each document is assigned independently.

    Without ``train_until`` the split is a hash, the SHA-256 of the seed and the text, 8 : 1 : 1 as
    in the paper (https://arxiv.org/abs/2102.07349): equal texts are in one split. Near-duplicates
    that differ in blanks, case or a full stop may not be: their number is reported (twins).
    Documents without text are hashed by their ids.

    With ``train_until`` the split is by date: train up to it, valid up to ``valid_until``, then
    test. Dates are inclusive, "2015" until its last day, also that of a document. Without
    ``valid_until`` the hash moves a tenth of the training documents to valid. Documents without a
    date are in train, and counted. Equal texts of different dates may be in different splits: they
    are reported as twins.
    """

    train_until: DateOption = Field(
        None, description="last date of train: year, month or day; none: split at random"
    )
    valid_until: DateOption = Field(
        None, description="last date of valid; none: a tenth of the documents of train"
    )
    seed: int = Field(0, ge=0, lt=2**64, description="seed of what is split at random")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        start, end = self.train_until, self.valid_until
        if end is not None and (start is None or _last_day(end) <= _last_day(start)):
            raise ValueError(
                f"valid_until must be a date after train_until, found "
                f"train_until={self.train_until} and valid_until={self.valid_until}; "
                f"change one of them."
            )
        return self

    def choose_split(
        self, document: str, text: str, day: str | None = None, notes: Counter[str] | None = None
    ) -> Split:
        """Split of a document.

        Args:
            document: Id of the document.
            text: Text of the document, may be empty.
            day: Date of the document, an ISO date, month or year; None, or any other string, if
                unknown.
            notes: Counter to which documents are added that are in train for lack of a date.
        """
        if self.train_until is None:
            return self._hash_split(document, text)
        last = _find_day(day, is_last=True)
        if notes is not None:
            notes[UNDATED] += last is None
        if last is None or last <= _last_day(self.train_until):
            may_move = last is not None and self.valid_until is None
            return "valid" if may_move and self._hash_split(document, text) == "valid" else "train"
        is_valid = self.valid_until is not None and last <= _last_day(self.valid_until)
        return "valid" if is_valid else "test"

    def hold_out(
        self, splits: Iterable[str], documents: Iterable[str], texts: Iterable[str]
    ) -> list[str]:
        """Moves a tenth of the training documents to valid, chosen by a hash of text or id."""
        return [
            "valid" if split == "train" and self._hash_split(document, text) == "valid" else split
            for split, document, text in zip(splits, documents, texts, strict=True)
        ]

    def _hash_split(self, document: str, text: str) -> Split:
        return split_by_text(
            f"{self.seed} text {text}" if text.strip() else f"{self.seed} id {document}"
        )


def split_by_text(text: str) -> Split:
    """Split of a text: its SHA-256 modulo 10; 0 is test, 1 is valid."""
    tenth = int.from_bytes(hashlib.sha256(text.encode()).digest()) % 10
    return "test" if tenth == 0 else "valid" if tenth == 1 else "train"


def count_days(day: str | None) -> int | None:
    """Days from 1970-01-01 to a date, or to the first day of a year or month; None without a date.

    A time of day may follow. ``data.temporal`` thus dates a document with a year alone to the first
    of January, so that a seed document of that year may reach it although it appeared later.
    """
    first = _find_day(day, is_last=False)
    return None if first is None else (first - date(1970, 1, 1)).days


def _find_day(day: str | None, is_last: bool) -> date | None:
    """Parses a date, or the first or last day of a year or month; None if it is none."""
    day = (day or "").strip()
    found = re.match(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?(?=$|[T ]\d)", day, re.ASCII)
    if found is None:
        return None
    year, month = int(found[1]), int(found[2] or (12 if is_last else 1))
    try:
        return date(year, month, int(found[3] or (monthrange(year, month)[1] if is_last else 1)))
    except ValueError:  # no such date
        return None


@cache
def _last_day(until: str) -> date:
    found = _find_day(until, is_last=True)
    assert found is not None
    return found


class Card(NamedTuple):
    """Summary of a data set for `match-graph datasets`; more stands in its card.

    Args:
        name: Registered name; its card is ``datasets/NAME.md``.
        licence: Licence of the documents.
        size: Size as published: documents and bytes.
        needs: Requirements for building: files, programs or a download.
    """

    name: str
    licence: str
    size: str
    needs: str
