"""Settings by name stand above the defaults and below all that the user gives."""

from pathlib import Path

import pytest

from match_graph.config import ModelConfig, load_config
from match_graph.datasets import Synthetic
from match_graph.errors import ConfigError
from match_graph.graph import TokenSpace
from match_graph.nn import ENCODERS, MatchModel, TextEncoder, XmlCnnEncoder
from match_graph.runs.defaults import resolve_config
from match_graph.runs.settings import (
    check_used,
    complete_settings,
    find_preset,
    load_preset_config,
)

OFFERED = [(encoder, name) for encoder, cls in ENCODERS.items() for name in cls.presets]
TEXT_ENCODERS = sorted(name for name, cls in ENCODERS.items() if issubclass(cls, TextEncoder))


def message(encoder: str, name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_preset_config(None, [f"model.encoder={encoder}"], name)
    return str(caught.value)


@pytest.mark.parametrize(("encoder", "name"), OFFERED)
def test_offered_settings_are_valid_and_fit_together(encoder: str, name: str) -> None:
    """Every key is a setting, and a model can be made; nothing offered is lost on the way."""
    config = load_preset_config(None, [f"model.encoder={encoder}"], name)
    MatchModel(TokenSpace(("venue", "word"), (0, 0)), 2, config.model)
    dumped = config.model_dump()
    for key, value in find_preset(encoder, name).items():
        found = dumped
        for part in key.split("."):
            found = found[part]
        assert found == value, key


@pytest.mark.parametrize("encoder", TEXT_ENCODERS)
def test_encoders_of_text_offer_both_without_metadata(encoder: str) -> None:
    """As compared in MATCH: delta 100, batches of 256; neither metadata nor hierarchy in either."""
    assert {"paper", "own"} <= set(ENCODERS[encoder].presets)
    for name in ("paper", "own"):
        config = load_preset_config(None, [f"model.encoder={encoder}"], name)
        assert config.model.init == "spherical_text"
        assert config.model.wide is False
        assert (config.train.lambda_parameter, config.train.lambda_output) == (0, 0)
        assert not config.model.encoder_config.get("metadata", False)
    paper = load_preset_config(None, [f"model.encoder={encoder}"], "paper")
    assert (paper.model.channels, paper.train.batch_size, paper.train.optimizer) == (
        100, 256, "adam",
    )  # fmt: skip


def test_file_and_settings_win_and_the_file_may_name_the_encoder(tmp_path: Path) -> None:
    """Default < named < file < --set, key by key, within the encoder's settings too."""
    path = tmp_path / "c.yaml"
    path.write_text(
        "model: {encoder: xml_cnn, encoder_config: {num_filters: 7}}\ntrain: {batch_size: 8}\n"
    )
    settings = ["model.encoder_config.num_chunks=2", "train.epochs=3"]
    config = load_preset_config(path, settings, "own")
    assert config.train.batch_size == 8
    assert config.train.epochs == 3
    assert config.model.channels == config.pretrain.channels == 300
    assert config.model.encoder_config == {
        "metadata": False, "widths": [2, 4, 8], "num_filters": 7, "num_chunks": 2,
        "bottleneck": 512, "dropout": 0.3,
    }  # fmt: skip
    assert XmlCnnEncoder.presets["own"]["model.encoder_config"]["num_chunks"] == 32


def test_without_a_name_there_are_the_defaults_alone() -> None:
    """No name, no change."""
    assert load_preset_config(None, ["model.encoder=xml_cnn"]).train.batch_size is None


def test_an_unknown_name_is_one_sentence() -> None:
    """With the choices, if there are any; an unknown encoder has its own sentence."""
    assert message("xml_cnn", "best") == (
        "The preset of the encoder 'xml_cnn' must be one of ['own', 'paper'], found 'best'; "
        "choose one, or leave --preset out."
    )
    assert message("prior", "paper") == (
        "The preset of the encoder 'prior' must be left out, as it has none, found 'paper'; choose "
        "one, or leave --preset out."
    )
    assert message("xml_rnn", "paper").startswith("The encoder must be one of ['")


def test_a_broken_file_keeps_its_own_sentence(tmp_path: Path) -> None:
    """A section that is no mapping is named as without settings by name."""
    path = tmp_path / "c.yaml"
    path.write_text("model: 3\n")
    with pytest.raises(ConfigError, match=r"'model': Input should be .* found 3\."):
        load_preset_config(path, None, "paper")


def test_resolved_settings_hold_every_number(synthetic: Synthetic) -> None:
    """Those of the encoder and of the head too, whether given or not."""
    config = load_preset_config(None, ["model.encoder=xml_cnn"], "own")
    resolved = resolve_config(config, synthetic).model
    assert resolved.encoder_config == {
        "metadata": False, "widths": [2, 4, 8], "num_filters": 32, "num_chunks": 32,
        "bottleneck": 512, "dropout": 0.3,
    }  # fmt: skip
    assert resolve_config(config, synthetic).model == complete_settings(resolved)


def test_unknown_settings_of_encoder_and_head_are_errors() -> None:
    """As when the model is made."""
    with pytest.raises(ConfigError) as caught:
        complete_settings(ModelConfig(encoder_config={"num_headz": 2}))
    assert str(caught.value).startswith("model.encoder_config must be valid: 'num_headz' is not")
    with pytest.raises(ConfigError) as caught:
        complete_settings(ModelConfig(head_config={"bias": 2}))
    assert str(caught.value) == (
        "model.head_config must be valid: 'bias' is not a setting; choose from []."
    )


def test_check_used_refuses_what_a_baseline_does_not_use() -> None:
    """Of the model, of training and of pre-training; what it uses, and defaults, pass."""
    settings = ["model.encoder=tfidf_linear", "train.learning_rate=77", "pretrain.samples=1"]
    with pytest.raises(ConfigError) as caught:
        check_used(load_config(None, [*settings, "model.init=random"]))
    assert str(caught.value) == (
        "The baseline 'tfidf_linear' must be given settings that it uses, found model.init, "
        "train.learning_rate, pretrain.samples; leave these out (its own stand in "
        "model.encoder_config)."
    )
    used = ["data.max_words=9", "model.encoder_config.cost=2", "train.calibrate=false"]
    check_used(load_config(None, ["model.encoder=tfidf_linear", "train.epochs=~", *used]))
    check_used(load_config(None, ["train.learning_rate=77"]))
