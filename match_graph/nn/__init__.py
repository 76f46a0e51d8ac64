"""Encoders, heads, hypernymy, loss, and the model that wires them."""

from match_graph.nn.embedding import TokenEmbedding
from match_graph.nn.encoders import (
    ENCODERS,
    AttentionXmlEncoder,
    BertXmlEncoder,
    Encoder,
    EncoderOutput,
    GraphEncoder,
    HeteroSageEncoder,
    HgtEncoder,
    LanguageModelEncoder,
    MatchEncoder,
    MatchHeteroEncoder,
    MeshProbeNetEncoder,
    PygConvEncoder,
    RgcnEncoder,
    StarTransformerEncoder,
    TextEncoder,
    TransformerEncoder,
    XmlCnnEncoder,
)
from match_graph.nn.heads import HEADS, Head, LabelAttentionHead, LabelGraphHead, LinearHead
from match_graph.nn.loss import (
    Losses,
    hypernymy_output_penalty,
    hypernymy_parameter_penalty,
    match_loss,
    sparse_bce,
)
from match_graph.nn.model import MatchModel
from match_graph.nn.wide import WideTerm

__all__ = [
    "ENCODERS",
    "HEADS",
    "AttentionXmlEncoder",
    "BertXmlEncoder",
    "Encoder",
    "EncoderOutput",
    "GraphEncoder",
    "Head",
    "HeteroSageEncoder",
    "HgtEncoder",
    "LabelAttentionHead",
    "LabelGraphHead",
    "LanguageModelEncoder",
    "LinearHead",
    "Losses",
    "MatchEncoder",
    "MatchHeteroEncoder",
    "MatchModel",
    "MeshProbeNetEncoder",
    "PygConvEncoder",
    "RgcnEncoder",
    "StarTransformerEncoder",
    "TextEncoder",
    "TokenEmbedding",
    "TransformerEncoder",
    "WideTerm",
    "XmlCnnEncoder",
    "hypernymy_output_penalty",
    "hypernymy_parameter_penalty",
    "match_loss",
    "sparse_bce",
]
