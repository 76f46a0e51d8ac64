"""Settings: strict, all faults at once, each with its path; one spelling everywhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from match_graph.baselines import BASELINES
from match_graph.config import Config, FeatureSource, TrainConfig, load_config
from match_graph.datasets import DATASETS
from match_graph.errors import ConfigError
from match_graph.nn import ENCODERS, HEADS
from match_graph.runs.configure import load_preset_config


def message(path: Path | None = None, settings: list[str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, settings)
    return str(caught.value)


def test_load_config_defaults_need_no_file() -> None:
    """Without file and settings every section has its defaults."""
    assert load_config() == Config()


def test_load_config_settings_change_the_file(tmp_path: Path) -> None:
    """A setting wins over the file, the file over the default; values are YAML."""
    path = tmp_path / "c.yaml"
    path.write_text("train: {epochs: 3, learning_rate: 0.5}\nmodel: {encoder: match}\n")
    config = load_config(path, ["train.epochs=7", "data.fields=[venue, author]"])
    assert (config.train.epochs, config.train.learning_rate) == (7, 0.5)
    assert config.data.fields == ["venue", "author"]


def test_load_config_written_configuration_reads_back(tmp_path: Path) -> None:
    """What a run folder holds gives the same configuration."""
    config = load_config(None, ["seed=4", "train.epochs=2", "model.encoder_config.num_cls=2"])
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert load_config(path) == config


def test_load_config_every_fault_is_named_with_its_path() -> None:
    """Three faults of three kinds come in one message."""
    text = message(None, ["train.epochs=0", "train.epoch=2", "train.optimizer=sgd"])
    assert text == (
        "The configuration must be valid, but 3 faults were found:\n"
        "  'train.epochs': Input should be greater than or equal to 1, found 0.\n"
        "  'train.optimizer': Input should be 'adam' or 'adamw', found 'sgd'.\n"
        "  'train.epoch' is not a setting; the nearest is 'train.epochs'."
    )


@pytest.mark.parametrize(
    ("setting", "suggestion"),
    [
        ("learning_rate=1", "the nearest is 'pretrain.learning_rate'"),
        ("trian.epochs=1", "the nearest is 'train'"),
        ("train.beta=1", f"choose from {sorted(type(Config().train).model_fields)}"),
    ],
)
def test_Config_describe_faults_names_the_nearest_setting(setting: str, suggestion: str) -> None:
    """Of the section, else the same name elsewhere, else all of the section."""
    key = setting.partition("=")[0] if setting[0] != "t" or "train" in setting else "trian"
    assert message(None, [setting]) == (
        f"The configuration must be valid: '{key}' is not a setting; {suggestion}."
    )


def test_load_config_wrong_type_is_not_converted() -> None:
    """A string is not a number, even if it looks like one."""
    assert message(None, ["train.epochs='3'"]) == (
        "The configuration must be valid: 'train.epochs': Input should be a valid integer, "
        "found '3'."
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["train.epochs"], "A setting must be key=value, found 'train.epochs'."),
        (
            {"train.epochs": 1},
            "Settings must be a list of key=value, such as ['train.epochs=1'], found the mapping "
            "{'train.epochs': 1}; write each of its settings as one text of the list.",
        ),
        (
            ["seed=[1"],
            "The value of 'seed' must be YAML, found '[1' (expected ',' or ']', but got "
            "'<stream end>', line 1).",
        ),
        (
            ["seed=1", "seed.deep=2"],
            "The setting 'seed.deep' goes through 'seed', which is no section.",
        ),
    ],
)
def test_load_config_malformed_setting_is_one_sentence(settings: list[str], expected: str) -> None:
    """Settings that cannot be applied say so."""
    assert message(None, settings) == expected


def test_load_config_missing_or_broken_file_is_one_sentence(tmp_path: Path) -> None:
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
        f"see docs/how_to/own_data.md for an example."
    )
    path.write_text("format: 99\n")
    assert message(path) == (
        f"A configuration must be of format 1, which this version of match-graph reads, "
        f"found format 99 in "
        f"'{path}'; use the version that wrote it."
    )


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            "train.batch_size=" + "9" * 5000,
            f"The value of 'train.batch_size' must be YAML, found '{'9' * 199}... (an integer must "
            f"have at most 64 bits, line 1).",
        ),
        (
            "train.batch_size=9223372036854775807",
            "The configuration must be valid: 'train.batch_size': Input should be less than or "
            "equal to 1048576, found 9223372036854775807.",
        ),
        (
            "train.learning_rate=.inf",
            "The value of 'train.learning_rate' must be YAML, found '.inf' (a number must be "
            "finite, found .inf, line 1).",
        ),
        ("seed=2024-02-30", "The configuration must be valid: 'seed': Input should be a valid "
            "integer, found '2024-02-30'."),
    ],
)  # fmt: skip
def test_load_config_numbers_beyond_bounds_are_one_sentence(setting: str, expected: str) -> None:
    assert message(None, [setting]) == expected


def test_TrainConfig_refuses_numbers_that_are_not_finite() -> None:
    """NaN is refused in Python too, not only in files."""
    with pytest.raises(ValidationError, match="finite number"):
        TrainConfig(learning_rate=float("nan"))


def find_unbounded(annotation: Any, bounds: frozenset[str], path: str) -> Iterator[str]:
    """The paths of numbers in a type that have no least or no largest value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            found = frozenset(type(one).__name__ for one in field.metadata)
            yield from find_unbounded(field.annotation, found, f"{path}.{name}")
    elif get_origin(annotation) is Annotated:
        found = frozenset(
            type(one).__name__
            for part in annotation.__metadata__
            for one in (part.metadata if isinstance(part, FieldInfo) else [part])
        )
        yield from find_unbounded(get_args(annotation)[0], bounds | found, path)
    elif annotation in (int, float):
        if not ({"Le", "Lt"} & bounds and {"Ge", "Gt"} & bounds):
            yield path
    else:
        for one in get_args(annotation):
            yield from find_unbounded(one, bounds, path)


def test_Config_every_numeric_setting_has_bounds() -> None:
    """Of the configuration, of every encoder, head and baseline, and options of data sets."""
    classes = [Config, *(one.Config for one in (ENCODERS | HEADS | BASELINES).values())]
    classes += [cls.Config for cls in DATASETS.values()]
    faults = [fault for cls in classes for fault in find_unbounded(cls, frozenset(), repr(cls))]
    assert [fault for fault in faults if "_until" not in fault] == []  # a year, checked as a date


def test_load_config_imports_only_code_that_the_caller_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's encoder or head runs no code of the current folder, not for a preset either."""
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()\n")
    (tmp_path / "c.yaml").write_text("model: {encoder: 'evil:Evil', head: 'evil:Head'}\n")
    monkeypatch.chdir(tmp_path)
    path = Path("c.yaml")
    for preset in (None, "paper"):
        with pytest.raises(ConfigError) as caught:
            load_preset_config(path, ["model.head=evil:Head"], preset)
        assert str(caught.value) == (
            "The configuration 'c.yaml' names the encoder 'evil:Evil', and code is imported only "
            "by request; if you trust it, name it on the command line too: "
            "--set model.encoder=evil:Evil"
        )
    assert not (tmp_path / "ran").exists()
    named = ["model={encoder: 'evil:Evil', head: linear}"]
    assert load_config(path, named).model.encoder == "evil:Evil"


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
def test_load_config_settings_that_do_not_go_together(name: str) -> None:
    """What would fail only after pre-training is refused before it."""
    settings, fault = CONTRADICTIONS[name]
    assert message(None, settings) == f"The configuration must be valid: {fault}"


def test_load_config_section_without_keys_takes_settings(tmp_path: Path) -> None:
    """A section whose keys are all commented out is empty, and takes settings."""
    path = tmp_path / "config.yaml"
    path.write_text("train:\n  # epochs: 3\nmodel:\ndata:\n  options:\n")
    assert load_config(path, ["train.epochs=3", "data.options.a=1"]).train.epochs == 3
    path.write_text("train:\n  # epochs: 3\n")
    assert load_config(path) == load_config()
    assert "goes through 'seed', which is no section" in message(None, ["seed=1", "seed.a=1"])


def test_load_config_all_contradictions_come_at_once() -> None:
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
def test_load_config_settings_that_go_together(settings: list[str]) -> None:
    """Only pre-trained vectors must be as wide as the embedding."""
    load_config(None, settings)


def test_load_config_seed_is_below_two_to_the_32() -> None:
    """NumPy takes no larger one."""
    assert load_config(None, ["seed=4294967295"]).seed == 2**32 - 1
    assert message(None, ["seed=4294967296"]) == (
        "The configuration must be valid: 'seed': Input should be less than 4294967296, "
        "found 4294967296."
    )


def test_load_config_options_of_a_data_set_are_not_its_place() -> None:
    """Arguments that only Python may give are refused as options."""
    assert message(None, ["data.options={transform: 5, root: x, seed: 1}"]) == (
        "The configuration must be valid: 'data.options': root, transform cannot be set here, but "
        "only in Python, found {'transform': 5, 'root': 'x', 'seed': 1}."
    )


def test_FeatureSource_takes_a_path_or_what_reads_texts() -> None:
    """A string is a path, one column a list of one."""
    features = load_config(
        None,
        [
            "data.features.document=vectors.npy",
            "data.features.label={model: some/model, column: [name, definition]}",
            "data.features.author={model: m, column: name, max_pieces: 16}",
            "data.features.venue={latent: 64, column: name}",
        ],
    ).data.features
    assert features["document"] == FeatureSource(path="vectors.npy")
    assert features["label"].column == ["name", "definition"]
    assert features["author"] == FeatureSource(model="m", column=["name"], max_pieces=16)
    assert features["venue"] == FeatureSource(latent=64, column=["name"])


@pytest.mark.parametrize(
    "value",
    [
        "{path: a.npy, model: m}",
        "{path: a.npy, column: text}",
        "{path: a.npy, neighbors: 5}",
        "{model: m, ids: a.txt}",
        "{model: m, latent: 64}",
        "{latent: 64, max_pieces: 16}",
        "{latent: 64, earlier: true}",
        "{neighbors: 5}",
        "{}",
    ],
)
def test_FeatureSource_refuses_what_does_not_belong_together(value: str) -> None:
    assert message(None, [f"data.features.document={value}"]).startswith(
        "The configuration must be valid: 'data.features.document': Input should be path (with "
        "key, ids), model (column, max_pieces, neighbors) or latent (column, neighbors); earlier "
        "belongs to neighbors, found {"
    )


def test_FeatureSource_earlier_false_belongs_everywhere() -> None:
    """A default that is written out is no setting of another source."""
    config = load_config(settings=["data.features.document={path: a.npy, earlier: false}"])
    assert config.data.features["document"].path == "a.npy"


def test_FeatureSource_names_the_nearest_key() -> None:
    assert message(None, ["data.features.document={models: m}"]) == (
        "The configuration must be valid: 'data.features.document.models' is not a setting; the "
        "nearest is 'data.features.document.model'."
    )
