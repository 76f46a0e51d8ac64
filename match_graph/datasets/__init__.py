"""Readers of raw files, one per source, and the PyG data set that they make."""

from match_graph.datasets.biotools import BioTools, read_biotools
from match_graph.datasets.cacm import Cacm, read_cacm
from match_graph.datasets.custom import Custom, read_custom
from match_graph.datasets.dataset import CorpusDataset, default_root
from match_graph.datasets.debtags import DebTags, read_package_index
from match_graph.datasets.frames import from_frames
from match_graph.datasets.hetero import from_hetero
from match_graph.datasets.maple import Maple, read_maple
from match_graph.datasets.match_folder import MatchFolder, read_match_folder
from match_graph.datasets.memory import BuiltFolder, CorpusInMemory
from match_graph.datasets.networkx import from_networkx
from match_graph.datasets.oaxmlc import OaMed, OaXmlc, read_oaxmlc
from match_graph.datasets.openalex import OpenAlex, read_openalex
from match_graph.datasets.options import Card
from match_graph.datasets.pubmed_xml import PubMedXml, read_pubmed_xml
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
    "BuiltFolder",
    "Cacm",
    "Card",
    "CorpusDataset",
    "CorpusInMemory",
    "Custom",
    "DebTags",
    "MagCs",
    "Maple",
    "MatchFolder",
    "OaMed",
    "OaXmlc",
    "OpenAlex",
    "PubMed",
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
    "read_biotools",
    "read_cacm",
    "read_custom",
    "read_maple",
    "read_match_folder",
    "read_oaxmlc",
    "read_openalex",
    "read_package_index",
    "read_pubmed_xml",
    "resolve_paths",
]
