"""Presets of the encoders, which stand in ``presets.yaml``."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from match_graph.io.yaml import read_yaml


def read_presets(encoder: str) -> Mapping[str, Mapping[str, Any]]:
    """Dotted keys with values by the name of the preset.

    Args:
        encoder: Registered name of the encoder.
    """
    names = [name for name in _read_file() if name.startswith(f"{encoder} ")]
    return {name.partition(" ")[2]: _resolve(name) for name in names}


def _resolve(name: str) -> dict[str, Any]:
    settings = dict(_read_file()[name])
    like = settings.pop("like", None)
    return settings if like is None else {**_resolve(like), **settings}


@cache
def _read_file() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read_yaml(
        Path(__file__).with_name("presets.yaml"), "The presets of encoders"
    )
    return found
