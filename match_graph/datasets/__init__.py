"""Readers of raw files, one per source, and the PyG data set that they make."""

from match_graph.datasets.dataset import Card, CorpusDataset, default_root
from match_graph.datasets.debtags import DebTags, read_package_index
from match_graph.datasets.listing import list_datasets
from match_graph.datasets.maple import Maple, read_maple_json
from match_graph.datasets.maple_graph import read_maple_graph
from match_graph.datasets.match_folder import MatchFolder, read_match_folder
from match_graph.datasets.openalex import OpenAlex, read_openalex
from match_graph.datasets.pubmed_xml import PubMedXml, read_pubmed_xml
from match_graph.datasets.registry import DATASETS, open_dataset, resolve_paths
from match_graph.datasets.release import MagCs, PubMed
from match_graph.datasets.synthetic import Synthetic
from match_graph.datasets.table import Table, read_table
from match_graph.datasets.text import split_words

__all__ = [
    "DATASETS",
    "Card",
    "CorpusDataset",
    "DebTags",
    "MagCs",
    "Maple",
    "MatchFolder",
    "OpenAlex",
    "PubMed",
    "PubMedXml",
    "Synthetic",
    "Table",
    "default_root",
    "list_datasets",
    "open_dataset",
    "read_maple_graph",
    "read_maple_json",
    "read_match_folder",
    "read_openalex",
    "read_package_index",
    "read_pubmed_xml",
    "read_table",
    "resolve_paths",
    "split_words",
]
