"""Heads by name; a new one is one file with one class and its `Config`."""

from match_graph.nn.heads.base import Head, LinearHead
from match_graph.nn.heads.label_attention import LabelAttentionHead
from match_graph.nn.heads.label_graph import LabelGraphHead

#: Registered heads; ``package.module:Class`` names one of your own.
HEADS: dict[str, type[Head]] = {
    "linear": LinearHead,
    "label_attention": LabelAttentionHead,
    "label_graph": LabelGraphHead,
}

__all__ = ["HEADS", "Head", "LabelAttentionHead", "LabelGraphHead", "LinearHead"]
