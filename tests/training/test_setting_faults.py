"""Faults of settings of encoder and head, beside those of the whole configuration."""

import pytest

from match_graph.errors import ConfigError
from match_graph.training.setting_faults import find_setting_faults


def test_find_setting_faults_lists_those_of_encoder_and_head() -> None:
    """Beside those of the whole, each with its whole key and the nearest one."""
    content = {
        "train": {"epoch": 1},
        "model": {"encoder_config": {"num_layer": 1}, "head_config": {"bias": 1}},
    }
    assert [fault.text for fault in find_setting_faults(content)] == [
        "'train.epoch' is not a setting; the nearest is 'train.epochs'.",
        "'model.encoder_config.num_layer' is not a setting of the encoder 'match'; the nearest is "
        "'model.encoder_config.num_layers'.",
        "'model.head_config.bias' is not a setting of the head 'linear'; there are none.",
    ]
    wrong = {"model": {"encoder": "macth"}}
    with pytest.raises(ConfigError, match=r"^The encoder must be one of .* is 'match'\.$"):
        find_setting_faults(wrong)
    faults = find_setting_faults({**wrong, "seed": -1})
    assert [fault.path for fault in faults] == ["seed", ""]
    for odd in ("x", {"encoder": []}, {"head": {}}):
        assert len(find_setting_faults({"model": odd})) == 1
    assert find_setting_faults({}) == []
