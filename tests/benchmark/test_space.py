"""Search spaces: what is read of them, drawn from them, and found in a configuration."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from match_graph.benchmark.space import (
    Range,
    Search,
    draw_settings,
    find_defaults,
    list_points,
    spread_sections,
)


def test_Search_reads_ranges_and_choices() -> None:
    """A mapping is a range, a list choices; whole numbers stay whole."""
    space = {"a.b": {"low": 1, "high": 3}, "c": [None, True, "x"], "d, e": {"low": 0.1, "high": 1}}
    search = Search.model_validate({"space": space})
    assert search.space["a.b"] == Range(low=1, high=3)
    assert search.space["c"] == [None, True, "x"]
    assert isinstance(search.space["a.b"].low, int)


@pytest.mark.parametrize(
    "values", [{"low": 2, "high": 2}, {"low": 0, "high": 1, "log": True}, [], 3]
)
def test_Search_refuses(values: object) -> None:
    """Empty ranges, logarithms of 0, no choices."""
    with pytest.raises(ValidationError):
        Search.model_validate({"space": {"a": values}})


@given(st.integers(0, 2**31), st.integers(1, 50), st.integers(51, 99), st.booleans())
def test_draw_settings_within_space(seed: int, low: int, high: int, log: bool) -> None:
    """Draws are within, of the space's type, and equal for keys that belong together."""
    optuna = pytest.importorskip("optuna", reason="no Optuna (extra: tune)")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    space = {
        "whole": Range(low=low, high=high, log=log),
        "part": Range(low=low / 100, high=high / 100, log=log),
        "first.key, second.key": ["x", "y"],
    }
    drawn = draw_settings(space, study.ask())
    assert drawn.keys() == {"whole", "part", "first.key", "second.key"}
    assert isinstance(drawn["whole"], int)
    assert low <= drawn["whole"] <= high
    assert low / 100 <= drawn["part"] <= high / 100
    assert drawn["first.key"] == drawn["second.key"] in ("x", "y")


def test_find_defaults_of_a_configuration() -> None:
    """Values within the space that all keys and all data sets have; others are left out."""
    config = {"a": {"b": 2, "c": None}, "d": 5.0, "e": "far", "f": 1, "g": 2}
    space = {
        "a.b": Range(low=1, high=3), "a.c": [None, 1], "d, x": Range(low=6.0, high=7.0),
        "e": ["near"], "nowhere.to.be": [1], "f, g": [1, 2],
    }  # fmt: skip
    assert find_defaults(space, [config]) == {"a.b": 2, "a.c": None}
    other = {**config, "a": {"b": 3, "c": None}, "g": 1}
    assert find_defaults(space, [config, other]) == {"a.c": None}
    assert find_defaults(space, [other]) == {"a.b": 3, "a.c": None, "f, g": 1}


def test_list_points_of_a_finite_space() -> None:
    """Every pair of a choice and a whole number; none where a number is real."""
    space = {"a": [None, "x"], "b, c": Range(low=1, high=2)}
    pairs = [(None, 1), (None, 2), ("x", 1), ("x", 2)]
    assert [*list_points(space)] == [{"a": a, "b, c": b} for a, b in pairs]
    assert not [*list_points({**space, "d": Range(low=0.5, high=1)})]


@pytest.mark.parametrize("log", [False, True])
def test_Range_draw_from_the_distribution_that_it_says(log: bool) -> None:
    """Learning rates are drawn by their logarithm; one real end makes a range of real numbers."""
    optuna = pytest.importorskip("optuna", reason="no Optuna (extra: tune)")
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).ask()
    ends = {"whole": (1, 64), "real": (1e-4, 1.0), "mixed": (1, 2.5)}
    for key, (low, high) in ends.items():
        Range(low=low, high=high, log=log).draw(trial, key)
    found = trial.distributions
    assert [(one.low, one.high, one.log) for one in found.values()] == [
        (*ends[key], log) for key in found
    ]
    assert not isinstance(trial.params["mixed"], int)


def test_spread_sections_takes_sections_apart() -> None:
    """Sections of the configuration are flattened, mappings that are values of a key are not."""
    settings = {
        "train": {"epochs": 3, "patience": 2},
        "model": {"encoder_config": {"num_cls": 2}},
        "data.options": {"path": "a.csv"},
        "ablation": [],
        "pretrain": 5,
    }
    with pytest.raises(ValueError, match=r"given once, but \['train.epochs'\] are there twice"):
        spread_sections({**settings, "train.epochs": 7})
    assert spread_sections(settings) == {
        "train.epochs": 3,
        "train.patience": 2,
        "model.encoder_config": {"num_cls": 2},
        "data.options": {"path": "a.csv"},
        "ablation": [],
        "pretrain": 5,
    }
