"""Splits by date, or at random with equal texts kept together."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from match_graph.config import parse_settings
from match_graph.datasets.splits import SplitOptions, SplitRule
from match_graph.errors import ConfigError


def refusal(**options: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_settings(SplitOptions, options, "Options must be good")
    return str(caught.value)


def test_SplitRule_random_split_is_about_8_1_1_and_follows_seed() -> None:
    """Same seed, same splits; another seed, others."""
    rule, other = SplitRule(seed=1), SplitRule(seed=2)
    splits = [rule.choose("d", f"text {number}", None) for number in range(5000)]
    assert splits == [rule.choose("d", f"text {number}", None) for number in range(5000)]
    assert splits != [other.choose("d", f"text {number}", None) for number in range(5000)]
    for split, share in (("train", 0.8), ("valid", 0.1), ("test", 0.1)):
        assert splits.count(split) / 5000 == pytest.approx(share, abs=0.02)


@given(st.text(min_size=1).filter(str.strip), st.text(), st.text())
def test_SplitRule_equal_texts_fall_into_one_split(text: str, one: str, other: str) -> None:
    """Whatever their ids are."""
    assert SplitRule().choose(one, text, None) == SplitRule().choose(other, text, None)


def test_SplitRule_documents_without_text_are_told_apart_by_id() -> None:
    """They share nothing, so they do not all fall into one split."""
    assert {SplitRule().choose(f"d{number}", " ", None) for number in range(100)} == {
        "train", "valid", "test",
    }  # fmt: skip


def test_SplitRule_split_by_date_counts_a_date_as_a_whole() -> None:
    """The last day of the year 2015 is training still; each day has one split."""
    rule = SplitRule.from_options(2015, "2016-06", 0)
    days = ["1999", "2015-12-31", "2016-01-01", "2016-06-30", "2016-07", "2020"]
    assert [rule.choose("d", "x", day) for day in days] == [
        "train", "train", "valid", "valid", "test", "test",
    ]  # fmt: skip
    day = SplitRule.from_options(date(2015, 6, 30), None, 0)
    assert day.choose("d", "x", "2015-07-01") == "test"


def test_SplitRule_without_valid_until_tenth_earlier_documents() -> None:
    """Without valid until a tenth of the earlier documents is valid.

    As in benchmarks that give but one year.
    """
    rule = SplitRule(train_until="2015")
    splits = [rule.choose("d", f"text {number}", "2010") for number in range(5000)]
    assert set(splits) == {"train", "valid"}
    assert splits.count("valid") / 5000 == pytest.approx(0.1, abs=0.02)


def test_SplitRule_documents_without_date_training_can_counted() -> None:
    """A missing date is no fault."""
    rule = SplitRule(train_until="2015")
    assert rule.choose("d", "x", None) == rule.choose("d", "x", "") == "train"
    assert rule.undated(None)
    assert not rule.undated("2020")
    assert not SplitRule().undated(None)


def test_SplitOptions_dates_as_yaml_gives_them_are_options() -> None:
    """A year is a number there, a day a date."""
    options = SplitOptions(train_until=2015, valid_until=date(2016, 1, 31))
    assert SplitRule.from_options(options.train_until, options.valid_until, 3).to_dict() == {
        "train_until": "2015", "valid_until": "2016-01-31", "seed": 3,
    }  # fmt: skip


def test_SplitOptions_what_is_no_date_is_refused() -> None:
    """Also a date at which validation could not begin."""
    fault = "a date must be a year, a month or a day, such as 2015 or 2015-06-30"
    assert refusal(train_until="June") == (
        f"Options must be good: 'train_until': {fault}, found 'June'."
    )
    assert refusal(train_until=2015, valid_until=2015) == (
        "Options must be good: valid_until must be a date after train_until, found "
        "train_until=2015 and valid_until=2015; change one of them."
    )
    assert refusal(valid_until=2015) == (
        "Options must be good: valid_until must be a date after train_until, found "
        "train_until=None and valid_until=2015; change one of them."
    )
