"""Commands that list: names to be typed stand whole on 80 columns."""

import json
from pathlib import Path

import pytest

from match_graph.baselines import BASELINES
from match_graph.cli.show import print_quality
from match_graph.config import Config
from match_graph.datasets import DATASETS
from match_graph.errors import list_fields
from match_graph.nn import ENCODERS, HEADS
from match_graph.testing import write_match_folder


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


def list_words(printed: str) -> set[str]:
    """Words of a table, whose lines fit the terminal."""
    lines = [one for one in printed.splitlines() if not one.startswith(("Parameters", "Paper"))]
    assert max(map(len, lines)) <= 80
    return {word for line in lines for word in line.split()}


def test_print_quality_shows_names_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """The measures of `pretrain --evaluate` stand beside whole names of fields."""
    field = "institution_of_first_author"
    values = {
        "mrr": 0.1,
        "mrr_filtered": 0.2,
        "satisfied": 0.3,
        "pairs": 10**6,
        "candidates": 10**6,
    }
    print_quality({"types": {field: values}, "neighbours": {}})
    assert {field, "0.1000", "1,000,000"} <= list_words(capsys.readouterr().out)


def test_build_shows_names_of_fields_as_they_are(call, tmp_path: Path) -> None:
    """Their underscores are no blanks, and what does not fit is folded."""
    toy, field = write_match_folder(tmp_path / "toy"), f"first_{'very_' * 12}author"
    (toy / "meta_dict.json").write_text(json.dumps({"metadata": ["author", field]}))
    code, printed, _ = call("build", toy)
    assert code == 0
    first = "".join(line.strip("│ ").partition("│")[0].strip() for line in printed.splitlines())
    assert field in first
    assert "hierarchy nodes contracted" in printed


def test_encoders_and_datasets_show_names_whole(call) -> None:
    """Names of encoders, heads, baselines and data sets are not cut."""
    code, printed, _ = call("encoders")
    assert code == 0
    assert {*ENCODERS, *HEADS, *BASELINES} <= list_words(printed)
    assert set(DATASETS) <= list_words(call("datasets")[1])


def test_settings_lists_every_key(call) -> None:
    """Every setting is listed with default and meaning, or as JSON lines."""
    keys = [key for key, _ in list_fields(Config)]
    code, printed, _ = call("settings")
    assert code == 0
    assert set(keys) <= list_words(printed)
    rows = [json.loads(line) for line in call("settings", "--json")[1].splitlines()]
    assert [row["key"] for row in rows] == keys
    assert all(row["meaning"] for row in rows)
    row = next(row for row in rows if row["key"] == "train.optimizer")
    assert (row["type"], row["default"], row["choices"]) == (
        "adam or adamw", "adamw", ["adam", "adamw"],
    )  # fmt: skip
    row = next(row for row in rows if row["key"] == "train.average")
    assert (row["type"], row["default"]) == ("float, ≥ 0, ≤ 0.5", "0.25")


@pytest.mark.parametrize(
    ("part", "keys"),
    [
        ("data.features", [f"data.features.TYPE.{name}" for name in
                           ("path", "key", "ids", "model", "latent", "neighbors", "earlier",
                            "column", "max_pieces")]),
        ("seed", ["seed"]),
        ("warm", ["train.warmup"]),
    ],
)  # fmt: skip
def test_settings_of_a_part(call, part: str, keys: list[str]) -> None:
    """A part is a section, or else any part of a key."""
    rows = [json.loads(line) for line in call("settings", part, "--json")[1].splitlines()]
    assert [row["key"] for row in rows] == keys


def test_settings_unknown_part_is_one_sentence(call) -> None:
    """An unknown part is refused with the nearest one."""
    code, printed, error = call("settings", "epoch_s")
    assert (code, printed) == (1, "")
    assert error == (
        "Error: A part of a key must be in one of the settings, found 'epoch_s'; the nearest is "
        "'epochs'.\n"
    )


@pytest.mark.parametrize("name", [*ENCODERS, *HEADS, *BASELINES])
def test_encoders_of_a_name_lists_its_settings(call, name: str) -> None:
    """Every model is listed with whole keys, paper and the values of its presets."""
    cls = {**ENCODERS, **HEADS, **BASELINES}[name]
    code, printed, _ = call("encoders", name)
    assert code == 0
    kind = "head_config" if name in HEADS else "encoder_config"
    keys = [key for key, _ in list_fields(cls.Config, f"model.{kind}.")]
    assert set(keys) <= list_words(printed)
    model = json.loads(call("encoders", name, "--json")[1])
    assert [row["key"] for row in model["settings"]] == keys
    assert model["paper"] == getattr(cls, "paper", "")
    assert set(model["presets"]) == set(getattr(cls, "presets", {}))
    for preset in model["presets"].values():
        assert set(preset) <= list_words(printed[printed.find(" preset") :])


def test_encoders_of_match_shows_the_paper(call) -> None:
    """Values of the preset stand beside the defaults."""
    model = json.loads(call("encoders", "match", "--json")[1])
    row = next(row for row in model["settings"] if row["key"].endswith(".num_layers"))
    assert row["default"] == "1"
    assert model["presets"]["paper"]["model.encoder_config.num_layers"] == "3"
    assert model["presets"]["paper"]["train.optimizer"] == "adam"


def test_encoders_of_an_unknown_name_is_one_sentence(call) -> None:
    """An unknown name is refused with the nearest one."""
    code, _, error = call("encoders", "macth")
    assert code == 1
    assert error.endswith("found 'macth'; the nearest is 'match'.\n")
