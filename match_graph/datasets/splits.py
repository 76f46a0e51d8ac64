"""Train, valid and test splits: by date, or at random with equal texts kept together."""

import hashlib
import re
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from match_graph.config import StrictModel
from match_graph.typing import Split

_is_date = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?").fullmatch


def _check_date(value: str | int | date | None) -> str | int | date | None:
    if value is not None and not _is_date(str(value)):
        raise ValueError("a date must be a year, a month or a day, such as 2015 or 2015-06-30")
    return value


#: As YAML gives it: 2015 is a number, 2015-06 a string, 2015-06-30 a date.
DateOption = Annotated[str | int | date | None, AfterValidator(_check_date)]


class SplitOptions(StrictModel):
    """Split options of a data set whose files do not give splits."""

    train_until: DateOption = None
    valid_until: DateOption = None
    seed: int = Field(0, ge=0, lt=2**64)

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        start, end = str(self.train_until), str(self.valid_until)
        if self.valid_until is not None and (self.train_until is None or end <= start):
            raise ValueError(
                f"valid_until must be a date after train_until, found "
                f"train_until={self.train_until} and valid_until={self.valid_until}; "
                f"change one of them."
            )
        return self


@dataclass(frozen=True)
class SplitRule:
    """Split rule: each document's split follows from the document alone.

    Without ``train_until`` the SHA-256 of the seed and the text decides, 8 : 1 : 1 as in the paper
    (https://arxiv.org/abs/2102.07349): equal texts fall into one split, so that no test document
    has its twin in training. Documents without text are told apart by their ids.

    With ``train_until`` the date decides: train up to it, valid up to ``valid_until``, then test;
    each date counts as a whole, "2015" until its last day. Without ``valid_until`` the hash moves a
    tenth of the training documents to valid. Documents without a date are in train: `undated`
    tells them.

    Args:
        train_until: Last date of train: ISO date, month or year.
        valid_until: Last date of valid: ISO date, month or year.
        seed: Seed of the hash.
    """

    train_until: str | None = None
    valid_until: str | None = None
    seed: int = 0

    @classmethod
    def from_options(
        cls, train_until: str | int | date | None, valid_until: str | int | date | None, seed: int
    ) -> Self:
        """Split rule from validated `SplitOptions`."""
        dates = [None if value is None else str(value) for value in (train_until, valid_until)]
        return cls(dates[0], dates[1], seed)

    def choose(self, document: str, text: str, day: str | None) -> Split:
        """Split of a document.

        Args:
            document: Id of the document.
            text: Text of the document, may be empty.
            day: Date of the document, an ISO date, month or year; None without one.
        """
        if self.train_until is None:
            tenth = self._tenth(document, text)
            return "test" if tenth == 0 else "valid" if tenth == 1 else "train"
        if not day or _is_until(day, self.train_until):
            moved = day and self.valid_until is None and self._tenth(document, text) == 1
            return "valid" if moved else "train"
        is_valid = self.valid_until is not None and _is_until(day, self.valid_until)
        return "valid" if is_valid else "test"

    def undated(self, day: str | None) -> bool:
        """Whether a document is in train because it has no date."""
        return self.train_until is not None and not day

    def _tenth(self, document: str, text: str) -> int:
        key = f"{self.seed} text {text}" if text.strip() else f"{self.seed} id {document}"
        return int.from_bytes(hashlib.sha256(key.encode()).digest()) % 10

    def to_dict(self) -> dict[str, str | int | None]:
        """Options that the corpus depends on, as JSON values."""
        return {
            "train_until": self.train_until,
            "valid_until": self.valid_until,
            "seed": self.seed,
        }


def _is_until(day: str, until: str) -> bool:
    return day[: len(until)] <= until
