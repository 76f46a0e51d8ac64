"""Presets of encoders; complete and checked settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from match_graph.config import Config, ModelConfig, load_config, parse_settings
from match_graph.errors import ConfigError
from match_graph.nn import HEADS, Encoder, Head
from match_graph.nn.model import choose_head, find_class
from match_graph.runs.folder import SHARING
from match_graph.training.fitting import find_encoder, is_baseline


def load_preset_config(
    path: Path | None = None, settings: list[str] | None = None, preset: str | None = None
) -> Config:
    """Configuration of a file, changed by settings, above a preset of the encoder.

    Args:
        path: Path of a YAML file; None for the defaults.
        settings: Dotted keys with YAML values, such as ``train.epochs=3``.
        preset: Preset, such as "paper"; None takes none.

    Raises:
        ConfigError: With every fault and its path, or the encoder has no such preset.
    """
    if preset is None:
        return load_config(path, settings)
    return load_config(path, settings, lambda encoder: find_preset(encoder, preset))


#: Settings that baselines use, besides those of "data" and of the whole run.
_OF_BASELINES = {
    "model": {"encoder", "encoder_config", "coherent"},
    "train": {"calibrate", "accelerator", "precision", "deterministic", *SHARING},
    "pretrain": set[str](),
}


def check_used(config: Config) -> None:
    """Refuses settings that a baseline does not use.

    Args:
        config: Configuration as given by the caller, before anything is resolved.

    Raises:
        ConfigError: The encoder is a baseline, and such a setting is not the default.
    """
    if not is_baseline(config.model):
        return
    default = Config()
    unused = [
        f"{section}.{name}"
        for section, used in _OF_BASELINES.items()
        for name, value in getattr(config, section)
        if name not in used and value != getattr(getattr(default, section), name)
    ]
    if unused:
        raise ConfigError(
            f"The baseline '{config.model.encoder}' must be given settings that it uses, found "
            f"{', '.join(unused)}; leave these out (its own stand in model.encoder_config)."
        )


def find_preset(encoder: str, name: str) -> Mapping[str, Any]:
    """Dotted keys with values of an encoder's preset.

    Raises:
        ConfigError: There is no such encoder, or it has no such preset.
    """
    offered: Mapping[str, Mapping[str, Any]] = getattr(find_encoder(encoder), "presets", {})
    if name not in offered:
        choices = f"one of {sorted(offered)}" if offered else "left out, as it has none"
        raise ConfigError(
            f"The preset of the encoder '{encoder}' must be {choices}, found '{name}'; choose one, "
            f"or leave --preset out."
        )
    return offered[name]


def complete_settings(config: ModelConfig) -> ModelConfig:
    """Settings of the encoder and of its head, with defaults filled in.

    A head that is not named is the one that fits the encoder.

    Raises:
        ConfigError: A name or setting is unknown.
    """
    encoder_cls = find_encoder(config.encoder)
    complete: dict[str, Any] = {}
    complete["encoder_config"] = _complete(encoder_cls, "encoder", config.encoder_config)
    if issubclass(encoder_cls, Encoder):
        complete["head"] = config.head or choose_head(encoder_cls)
        head_cls = find_class(complete["head"], HEADS, Head, "head")
        complete["head_config"] = _complete(head_cls, "head", config.head_config)
    return config.model_copy(update=complete)


def _complete(cls: Any, kind: str, given: dict[str, Any]) -> dict[str, Any]:
    summary = f"model.{kind}_config must be valid"
    complete: dict[str, Any] = parse_settings(cls.Config, given, summary).model_dump(mode="json")
    return complete
