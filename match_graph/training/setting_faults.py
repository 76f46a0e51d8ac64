"""Faults of a configuration, those of its encoder's and head's own settings among them."""

from collections.abc import Mapping
from typing import Any

from match_graph.config import Config, ModelConfig
from match_graph.errors import ConfigError, Fault, find_faults
from match_graph.nn import HEADS, Encoder, Head
from match_graph.nn.contract import check_encoder_class
from match_graph.nn.model import choose_head
from match_graph.own_code import find_class
from match_graph.training.models import find_model_class

#: Settings that decide which class other settings belong to.
_NAMES = ("model", "model.encoder", "model.head")


def find_setting_faults(content: Mapping[str, Any]) -> list[Fault]:
    """Faults of a configuration, those of its encoder's and head's own settings among them.

    Imports custom encoders and heads.

    Args:
        content: Keys and values as in a configuration file.

    Raises:
        ConfigError: Encoder or head cannot be used, and nothing else is wrong.
    """
    faults = find_faults(Config, content)
    given = content.get("model", {})
    if not isinstance(given, dict) or any(fault.path in _NAMES for fault in faults):
        return faults
    encoder = given.get("encoder", ModelConfig().encoder)
    try:
        classes = {"encoder": (encoder, find_model_class(encoder))}
        if issubclass(classes["encoder"][1], Encoder):
            check_encoder_class(classes["encoder"][1], encoder)
            head = given.get("head") or choose_head(classes["encoder"][1])
            classes["head"] = head, find_class(head, HEADS, Head, "head")
    except ConfigError as error:
        if not faults:  # its message stands alone
            raise
        return [*faults, Fault("", str(error))]
    for kind, (name, cls) in classes.items():
        prefix, own = f"model.{kind}_config.", given.get(f"{kind}_config", {})
        if isinstance(own, dict):
            faults += find_faults(cls.Config, own, prefix, f"the {kind} '{name}'")
    return faults
