"""Raw files -> `Corpus` (pandas tables) -> PyG `InMemoryDataset`; one reader per file."""

from match_graph.datasets.builder import CorpusBuilder
from match_graph.datasets.corpus import Corpus
from match_graph.datasets.dataset import CorpusDataset, default_root
from match_graph.datasets.debtags import DebTags, read_package_index
from match_graph.datasets.match_folder import MatchFolder, read_match_folder
from match_graph.datasets.registry import DATASETS, open_dataset
from match_graph.datasets.synthetic import Synthetic
from match_graph.datasets.text import split_words

__all__ = [
    "DATASETS",
    "Corpus",
    "CorpusBuilder",
    "CorpusDataset",
    "DebTags",
    "MatchFolder",
    "Synthetic",
    "default_root",
    "open_dataset",
    "read_match_folder",
    "read_package_index",
    "split_words",
]
