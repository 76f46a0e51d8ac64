"""Splits by date, or at random with equal texts kept together."""

import hashlib
from collections import Counter
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.config import parse_settings
from match_graph.datasets.options import UNDATED, SplitConfig, count_days, split_by_text
from match_graph.errors import ConfigError


def refusal(**options: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_settings(SplitConfig, options, "Options must be good")
    return str(caught.value)


def test_SplitConfig_random_split_is_8_1_1_and_follows_seed() -> None:
    """The random split is 8 : 1 : 1 and depends on the seed."""
    rule, other = SplitConfig(seed=1), SplitConfig(seed=2)
    splits = [rule.choose_split("d", f"text {number}", None) for number in range(5000)]
    assert splits == [rule.choose_split("d", f"text {number}", None) for number in range(5000)]
    assert splits != [other.choose_split("d", f"text {number}", None) for number in range(5000)]
    for split, share in (("train", 0.8), ("valid", 0.1), ("test", 0.1)):
        assert splits.count(split) / 5000 == pytest.approx(share, abs=0.02)


@given(st.text(min_size=1).filter(str.strip), st.text(), st.text())
def test_SplitConfig_equal_texts_fall_into_one_split(text: str, one: str, other: str) -> None:
    """Equal texts are in one split, whatever their ids."""
    assert SplitConfig().choose_split(one, text, None) == SplitConfig().choose_split(
        other, text, None
    )


def test_SplitConfig_documents_without_text_are_told_apart_by_id() -> None:
    """Documents without text are split by id, not all into one split."""
    assert {SplitConfig().choose_split(f"d{number}", " ", None) for number in range(100)} == {
        "train", "valid", "test",
    }  # fmt: skip
    # SHA-256 of "0 id d0" and of "1 id d0", modulo 10: 0 and 7
    assert [SplitConfig(seed=seed).choose_split("d0", "") for seed in (0, 1)] == ["test", "train"]


def test_SplitConfig_split_by_date_counts_a_date_as_a_whole() -> None:
    """Dates are inclusive: the last day of 2015 is train for "2015"."""
    rule = SplitConfig(train_until=2015, valid_until="2016-06")
    days = ["1999", "2015-12-31", "2016-01-01", "2016-06-30", "2016-07", "2020"]
    assert [rule.choose_split("d", "x", day) for day in days] == [
        "train", "train", "valid", "valid", "test", "test",
    ]  # fmt: skip
    day = SplitConfig(train_until=date(2015, 6, 30))
    assert day.choose_split("d", "x", "2015-07-01") == "test"
    days = ["2015", "2015-06", "2015-07", " 2020-01-01", "2015-06-30T12:00:00Z", "2014T10:00"]
    assert [day.choose_split("d", "x", one) for one in days] == [
        "test", "train", "test", "test", "train", "train",
    ]  # fmt: skip
    assert SplitConfig(train_until="2015-06-29").choose_split("d", "x", "2015-06") == "test"
    with pytest.raises(ValueError, match="valid_until must be a date after train_until"):
        SplitConfig(train_until="2015-02-28", valid_until="2015-02")


def test_SplitConfig_without_valid_until_tenth_earlier_documents() -> None:
    """Without valid_until a tenth of the earlier documents is valid."""
    rule = SplitConfig(train_until="2015")
    splits = [rule.choose_split("d", f"text {number}", "2010") for number in range(5000)]
    assert set(splits) == {"train", "valid"}
    assert splits.count("valid") / 5000 == pytest.approx(0.1, abs=0.02)


def test_SplitConfig_documents_without_date_training_can_counted() -> None:
    """Documents without a date are in train, and counted."""
    rule = SplitConfig(train_until="2015")
    texts = [f"text {number}" for number in range(100)]
    assert {rule.choose_split("d", text, day) for text in texts for day in (None, "")} == {"train"}
    notes: Counter[str] = Counter()
    for day in (None, "", "2020", "2020-06-30T12:00"):
        rule.choose_split("d", "x", day, notes)
        SplitConfig().choose_split("d", "x", day, notes)
    assert notes == {UNDATED: 2}
    for day in ("12/31/2019", "2019-6-1", "2019-13", "soon"):
        assert rule.choose_split("d", "x", day, notes) == "train"
    assert notes == {UNDATED: 6}  # are no dates, so that they do not lie after one either


def test_SplitConfig_dates_as_yaml_gives_them_are_options() -> None:
    """Numbers and dates of YAML are valid dates."""
    options = SplitConfig(train_until=2015, valid_until=date(2016, 1, 31), seed=3)
    assert options.model_dump() == {
        "train_until": "2015", "valid_until": "2016-01-31", "seed": 3,
    }  # fmt: skip


def test_SplitConfig_what_is_no_date_is_refused() -> None:
    """Malformed dates are refused, and a valid_until before train_until."""
    fault = "a date must be a year, a month or a day, such as 2015 or 2015-06-30"
    assert refusal(train_until="June") == (
        f"Options must be good: 'train_until': {fault}, found 'June'."
    )
    assert refusal(train_until=2015, valid_until=2015) == (
        "Options must be good: valid_until must be a date after train_until, found "
        "train_until=2015 and valid_until=2015; change one of them."
    )
    for value in ("2015-13", "2015-02-30", "0000"):
        assert fault in refusal(train_until=value)
    order = "valid_until must be a date after train_until"
    assert order in refusal(train_until=2015, valid_until="2015-06")  # no document could be valid
    assert order in refusal(train_until="2015-06", valid_until="2015-06-30")
    assert SplitConfig(train_until="2015-06", valid_until=2015).valid_until == "2015"
    assert refusal(valid_until=2015) == (
        "Options must be good: valid_until must be a date after train_until, found "
        "train_until=None and valid_until=2015; change one of them."
    )


@pytest.mark.parametrize(
    ("day", "days"),
    [
        ("1970-01-01", 0),
        ("1970", 0),
        ("1969-12", -31),
        ("2015-06-30", (date(2015, 6, 30) - date(1970, 1, 1)).days),
        ("2015-06-30T12:00:00", (date(2015, 6, 30) - date(1970, 1, 1)).days),
        ("20150630", None),
        ("2015-6-1", None),
        ("2015-06-30 12:00", (date(2015, 6, 30) - date(1970, 1, 1)).days),
        ("2015-06-30 ", (date(2015, 6, 30) - date(1970, 1, 1)).days),
        ("2015-06-30Tomorrow", None),
        ("2015 or so", None),
        ("\u0662\u0660\u0661\u0665", None),
        ("2015-02-30", None),
        ("0000", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_count_days_counts_from_1970(day: str | None, days: int | None) -> None:
    """Days count from 1970-01-01 to the first day of a year or month."""
    assert count_days(day) == days


def test_split_by_text_is_the_hash_of_the_text() -> None:
    """The split is the SHA-256 modulo 10, and every split occurs."""
    texts = [f"text {number}" for number in range(200)]
    names = {0: "test", 1: "valid"}
    for text in texts:
        tenth = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 10
        assert split_by_text(text) == names.get(tenth, "train")
    assert {split_by_text(text) for text in texts} == {"train", "valid", "test"}
