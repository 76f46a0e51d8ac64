"""Readers of raw files, one per source, and the PyG data set that they make."""

from match_graph.datasets.biotools import BioTools, BioToolsReader
from match_graph.datasets.built import default_root
from match_graph.datasets.cacm import Cacm, CacmReader
from match_graph.datasets.custom import Custom, CustomReader
from match_graph.datasets.dataset import CorpusDataset
from match_graph.datasets.debtags import DebTags, DebTagsReader
from match_graph.datasets.frames import from_frames
from match_graph.datasets.hetero import from_hetero
from match_graph.datasets.maple import Maple, MapleReader
from match_graph.datasets.match_folder import MatchFolder, MatchReader
from match_graph.datasets.memory import BuiltFolder, CorpusInMemory
from match_graph.datasets.networkx import from_networkx
from match_graph.datasets.oaxmlc import OaMed, OaXmlc, OaXmlcReader
from match_graph.datasets.openalex import OpenAlex, OpenAlexReader
from match_graph.datasets.options import Card
from match_graph.datasets.partitions import PartitionReader
from match_graph.datasets.pubmed_xml import PubMedReader, PubMedXml
from match_graph.datasets.registry import (
    DATASETS,
    Source,
    list_datasets,
    list_options,
    locate_dataset,
    name_source,
    names_code,
    open_dataset,
    resolve_paths,
)
from match_graph.datasets.release import MagCs, PubMed
from match_graph.datasets.synthetic import Synthetic

__all__ = [
    "DATASETS",
    "BioTools",
    "BioToolsReader",
    "BuiltFolder",
    "Cacm",
    "CacmReader",
    "Card",
    "CorpusDataset",
    "CorpusInMemory",
    "Custom",
    "CustomReader",
    "DebTags",
    "DebTagsReader",
    "MagCs",
    "Maple",
    "MapleReader",
    "MatchFolder",
    "MatchReader",
    "OaMed",
    "OaXmlc",
    "OaXmlcReader",
    "OpenAlex",
    "OpenAlexReader",
    "PartitionReader",
    "PubMed",
    "PubMedReader",
    "PubMedXml",
    "Source",
    "Synthetic",
    "default_root",
    "from_frames",
    "from_hetero",
    "from_networkx",
    "list_datasets",
    "list_options",
    "locate_dataset",
    "name_source",
    "names_code",
    "open_dataset",
    "resolve_paths",
]
