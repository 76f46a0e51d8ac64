"""Encoders by name; a new one is one file with one class and its `Config`."""

from match_graph.nn.encoders.base import Encoder, EncoderOutput
from match_graph.nn.encoders.match import MatchEncoder

#: Registered encoders; ``package.module:Class`` names one of your own.
ENCODERS: dict[str, type[Encoder]] = {"match": MatchEncoder}

__all__ = ["ENCODERS", "Encoder", "EncoderOutput", "MatchEncoder"]
