"""Encoders by name; a new one is one file with one class and its `Config`."""

from match_graph.nn.encoders.attention_xml import AttentionXmlEncoder
from match_graph.nn.encoders.base import Encoder, EncoderOutput, TextEncoder
from match_graph.nn.encoders.bert_xml import BertXmlEncoder
from match_graph.nn.encoders.graph import GraphEncoder
from match_graph.nn.encoders.hetero_sage import HeteroSageEncoder
from match_graph.nn.encoders.hgt import HgtEncoder
from match_graph.nn.encoders.language_model import LanguageModelEncoder
from match_graph.nn.encoders.match import MatchEncoder
from match_graph.nn.encoders.match_hetero import MatchHeteroEncoder
from match_graph.nn.encoders.mesh_probe_net import MeshProbeNetEncoder
from match_graph.nn.encoders.pyg_conv import PygConvEncoder
from match_graph.nn.encoders.rgcn import RgcnEncoder
from match_graph.nn.encoders.star_transformer import StarTransformerEncoder
from match_graph.nn.encoders.transformer import TransformerEncoder
from match_graph.nn.encoders.xml_cnn import XmlCnnEncoder

#: Registered encoders; ``package.module:Class`` names one of your own.
ENCODERS: dict[str, type[Encoder]] = {
    "attention_xml": AttentionXmlEncoder,
    "bert_xml": BertXmlEncoder,
    "hetero_sage": HeteroSageEncoder,
    "hgt": HgtEncoder,
    "language_model": LanguageModelEncoder,
    "match": MatchEncoder,
    "match_hetero": MatchHeteroEncoder,
    "mesh_probe_net": MeshProbeNetEncoder,
    "pyg_conv": PygConvEncoder,
    "rgcn": RgcnEncoder,
    "star_transformer": StarTransformerEncoder,
    "transformer": TransformerEncoder,
    "xml_cnn": XmlCnnEncoder,
}

__all__ = [
    "ENCODERS",
    "AttentionXmlEncoder",
    "BertXmlEncoder",
    "Encoder",
    "EncoderOutput",
    "GraphEncoder",
    "HeteroSageEncoder",
    "HgtEncoder",
    "LanguageModelEncoder",
    "MatchEncoder",
    "MatchHeteroEncoder",
    "MeshProbeNetEncoder",
    "PygConvEncoder",
    "RgcnEncoder",
    "StarTransformerEncoder",
    "TextEncoder",
    "TransformerEncoder",
    "XmlCnnEncoder",
]
