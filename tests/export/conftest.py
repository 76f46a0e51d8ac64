"""Data sets to export: the toy folder, and any corpus as a built data set."""

from pathlib import Path

import pytest

from match_graph.corpus import Corpus
from match_graph.datasets import CorpusDataset, MatchFolder
from match_graph.testing import write_match_folder


class GivenDataset(CorpusDataset):
    """A given corpus as a built data set."""

    name, tokenizer = "", "regex"

    def __init__(self, corpus: Corpus, root: Path) -> None:
        self.corpus, self.name, self.tokenizer = corpus, corpus.name, corpus.tokenizer
        super().__init__(root)

    @property
    def raw_file_names(self) -> list[str]:
        return []

    def read(self) -> Corpus:
        return self.corpus


@pytest.fixture(scope="session")
def given_dataset() -> type[GivenDataset]:
    """The class `GivenDataset`, as tests cannot import it."""
    return GivenDataset


@pytest.fixture(scope="session")
def toy_dataset(tmp_path_factory: pytest.TempPathFactory) -> MatchFolder:
    """The toy folder as a built data set."""
    folder = tmp_path_factory.mktemp("export")
    return MatchFolder(write_match_folder(folder / "toy"), root=folder / "root")
