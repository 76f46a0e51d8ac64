"""Raw files -> `Corpus` (pandas tables) -> PyG `InMemoryDataset`; one reader per file."""

from match_graph.datasets.builder import CorpusBuilder
from match_graph.datasets.corpus import Corpus
from match_graph.datasets.dataset import Card, CorpusDataset, default_root
from match_graph.datasets.debtags import DebTags, read_package_index
from match_graph.datasets.listing import list_datasets
from match_graph.datasets.match_folder import MatchFolder, read_match_folder
from match_graph.datasets.registry import DATASETS, open_dataset, resolve_paths
from match_graph.datasets.release import MagCs, PubMed
from match_graph.datasets.synthetic import Synthetic
from match_graph.datasets.text import split_words

__all__ = [
    "DATASETS",
    "Card",
    "Corpus",
    "CorpusBuilder",
    "CorpusDataset",
    "DebTags",
    "MagCs",
    "MatchFolder",
    "PubMed",
    "Synthetic",
    "default_root",
    "list_datasets",
    "open_dataset",
    "read_match_folder",
    "read_package_index",
    "resolve_paths",
    "split_words",
]
