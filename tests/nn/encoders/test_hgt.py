"""HGT: the check of its channels, and which weights of its last layer are trained."""

import pytest

from match_graph.config import ModelConfig
from match_graph.errors import ConfigError
from match_graph.graph import TokenSpace
from match_graph.nn import MatchModel, TokenEmbedding
from match_graph.nn.encoders import HgtEncoder
from match_graph.nn.encoders.graph import key_of
from match_graph.typing import DOCUMENT

SPACE = TokenSpace(("author", "word"), (3, 4))


def test_HgtEncoder_channels_are_a_multiple_of_heads() -> None:
    """One sentence instead of PyG's error."""
    config = ModelConfig(encoder="hgt", encoder_config={"channels": 10, "num_heads": 4})
    with pytest.raises(ConfigError) as caught:
        MatchModel(SPACE, 2, config)
    assert str(caught.value) == (
        "channels must be a multiple of num_heads, found 10 and 4; change model.encoder_config."
    )


def test_HgtEncoder_last_layer_trains_only_what_it_computes() -> None:
    """The last layer learns nothing for nodes that it does not compute.

    Output maps and gates of metadata and words are fixed there, and only there.
    """
    encoder = HgtEncoder(TokenEmbedding(SPACE, 4), HgtEncoder.Config(channels=8, num_layers=2))
    for number, layer in enumerate(encoder.layers):
        for name in encoder.node_types:
            learned = number == 0 or name == DOCUMENT
            assert layer.conv.skip[key_of(name)].requires_grad == learned
            assert layer.conv.out_lin.lins[key_of(name)].weight.requires_grad == learned
