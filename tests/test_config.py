"""Settings: strict, all faults at once, each with its path; one spelling everywhere."""

from pathlib import Path

import pytest
import yaml

from match_graph.config import Config, load_config
from match_graph.errors import ConfigError


def message(path: Path | None = None, settings: list[str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, settings)
    return str(caught.value)


def test_defaults_need_no_file() -> None:
    """Without file and settings every section has its defaults."""
    assert load_config() == Config()


def test_settings_change_the_file(tmp_path: Path) -> None:
    """A setting wins over the file, the file over the default; values are YAML."""
    path = tmp_path / "c.yaml"
    path.write_text("train: {epochs: 3, learning_rate: 0.5}\nmodel: {encoder: match}\n")
    config = load_config(path, ["train.epochs=7", "data.fields=[venue, author]"])
    assert (config.train.epochs, config.train.learning_rate) == (7, 0.5)
    assert config.data.fields == ["venue", "author"]


def test_a_preset_stands_below_the_file(tmp_path: Path) -> None:
    """It is asked for the encoder of the file or of a setting, and may set whole sections."""
    asked = []

    def preset(encoder: str) -> dict[str, object]:
        asked.append(encoder)
        return {"train.epochs": 9, "train.batch_size": 9, "model.encoder_config": {"a": 1, "b": 1}}

    path = tmp_path / "c.yaml"
    path.write_text("train: {epochs: 3}\nmodel: {encoder: mine, encoder_config: {b: 2}}\n")
    config = load_config(path, preset=preset)
    assert (config.train.epochs, config.train.batch_size) == (3, 9)
    assert config.model.encoder_config == {"a": 1, "b": 2}
    load_config(path, ["model.encoder=other"], preset)
    load_config(None, None, preset)
    assert asked == ["mine", "other", "match"]


def test_a_written_configuration_reads_back(tmp_path: Path) -> None:
    """What a run folder holds gives the same configuration."""
    config = load_config(None, ["seed=4", "train.epochs=2", "model.encoder_config.num_cls=2"])
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load_config(path) == config


def test_every_fault_is_named_with_its_path() -> None:
    """Three faults of three kinds come in one message."""
    text = message(None, ["train.epochs=0", "train.epoch=2", "train.optimizer=sgd"])
    assert text == (
        "The configuration must be valid, but 3 faults were found:\n"
        "  'train.epochs': Input should be greater than or equal to 1, found 0.\n"
        "  'train.optimizer': Input should be 'adam' or 'adamw', found 'sgd'.\n"
        "  'train.epoch' is not a setting; choose from "
        f"{sorted(type(Config().train).model_fields)}."
    )


def test_a_wrong_type_is_not_converted() -> None:
    """A string is no number, even if it looks like one."""
    assert message(None, ["train.epochs='3'"]) == (
        "The configuration must be valid: 'train.epochs': Input should be a valid integer, "
        "found '3'."
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["train.epochs"], "A setting must be key=value, found 'train.epochs'."),
        (["seed=[1"], "The value of 'seed' must be YAML, found '[1'."),
        (
            ["seed=1", "seed.deep=2"],
            "The setting 'seed.deep' goes through 'seed', which is no section.",
        ),
    ],
)
def test_a_malformed_setting_is_one_sentence(settings: list[str], expected: str) -> None:
    """Settings that cannot be applied say so."""
    assert message(None, settings) == expected


def test_a_missing_or_broken_file_is_one_sentence(tmp_path: Path) -> None:
    """No file, no YAML, no mapping, another format: each its sentence."""
    path = tmp_path / "c.yaml"
    assert message(path).startswith(
        f"A configuration must be a readable YAML file, but '{path}' is not ("
    )
    path.write_text("a: [1\n")
    assert "must be a readable YAML file" in message(path)
    path.write_text("- 1\n")
    assert message(path) == (
        f"A configuration must be a mapping of keys to values, found list in '{path}'; "
        f"see the README for an example."
    )
    path.write_text("format: 99\n")
    assert message(path) == (
        f"This version of match-graph reads configurations of format 1, found format 99 in "
        f"'{path}'; use the version that wrote it."
    )


CONTRADICTIONS = {
    "channels": (
        ["pretrain.channels=16"],
        "model.init=spherical starts the embedding from pre-trained vectors, which must be as "
        "wide, found pretrain.channels=16 and model.channels=100; set both to one value.",
    ),
    "channels-of-text": (
        ["model.init=spherical_text", "model.channels=8"],
        "model.init=spherical_text starts the embedding from pre-trained vectors, which must be "
        "as wide, found pretrain.channels=100 and model.channels=8; set both to one value.",
    ),
    "word-vectors": (
        ["model.init=word_vectors"],
        "model.init=word_vectors needs a file, found none; set model.word_vectors to a GloVe or "
        "word2vec text file.",
    ),
    "head": (
        ["model.init=random", "model.head_from_labels=true"],
        "model.head_from_labels needs pre-trained label vectors, found model.init=random; set it "
        "to false, or model.init to spherical.",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_settings_that_do_not_go_together(name: str) -> None:
    """What would fail only after pre-training is refused before it."""
    settings, fault = CONTRADICTIONS[name]
    assert message(None, settings) == f"The configuration must be valid: {fault}"


def test_all_contradictions_come_at_once() -> None:
    """Two contradictions are two faults of one message."""
    lines = message(None, ["model.init=word_vectors", "model.head_from_labels=true"]).splitlines()
    assert lines[0] == "The configuration must be valid, but 2 faults were found:"
    assert [line.split()[0] for line in lines[1:]] == [
        "model.init=word_vectors",
        "model.head_from_labels",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        ["model.init=random", "model.channels=8"],
        ["model.init=word_vectors", "model.word_vectors=glove.txt", "model.channels=50"],
        ["model.init=spherical_text", "model.head_from_labels=true"],
    ],
)
def test_settings_that_go_together(settings: list[str]) -> None:
    """Only pre-trained vectors must be as wide as the embedding."""
    load_config(None, settings)


def test_a_seed_is_below_two_to_the_32() -> None:
    """NumPy takes no larger one."""
    assert load_config(None, ["seed=4294967295"]).seed == 2**32 - 1
    assert message(None, ["seed=4294967296"]) == (
        "The configuration must be valid: 'seed': Input should be less than 4294967296, "
        "found 4294967296."
    )


def test_options_of_a_data_set_are_not_its_place() -> None:
    """What only Python may give is no setting."""
    assert message(None, ["data.options={transform: 5, root: x, seed: 1}"]) == (
        "The configuration must be valid: 'data.options': root, transform cannot be set here, but "
        "only in Python, found {'transform': 5, 'root': 'x', 'seed': 1}."
    )
