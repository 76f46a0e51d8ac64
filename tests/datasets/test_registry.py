"""Data sets by name."""

from pathlib import Path

import pytest

from match_graph.datasets import DATASETS, MatchFolder, Synthetic, open_dataset
from match_graph.errors import ConfigError, CorpusError
from match_graph.testing import write_match_folder


def test_a_registered_name_opens_its_class(tmp_path: Path) -> None:
    """Options go to the class, None stands for its default."""
    dataset = open_dataset("synthetic", num_documents=200, seed=None, root=tmp_path)
    assert isinstance(dataset, Synthetic)
    assert (dataset.num_documents, dataset.seed) == (200, 0)


def test_any_other_name_is_a_folder(tmp_path: Path) -> None:
    """A path opens a folder in the MATCH format with its options and those of every data set."""
    folder = write_match_folder(tmp_path / "toy")
    dataset = open_dataset(str(folder), fields=["author"], root=tmp_path / "root")
    assert isinstance(dataset, MatchFolder)
    assert dataset.fields == ("author",)
    assert Path(dataset.processed_dir).is_relative_to(tmp_path / "root")


def test_every_registered_name_is_its_class_and_documented() -> None:
    """Names are lower-case words, classes say in their docstring what they are."""
    for name, cls in DATASETS.items():
        assert name == name.lower()
        assert cls.__doc__
    assert DATASETS["synthetic"] is Synthetic


def test_an_unknown_name_lists_the_registered_ones() -> None:
    """A typing error is answered with what there is."""
    with pytest.raises(CorpusError) as caught:
        open_dataset("syntetic")
    assert str(caught.value) == (
        f"A data set must be a folder in the MATCH format or one of {sorted(DATASETS)}, but there "
        f"is nothing of that kind at 'syntetic'; check the name."
    )


def test_an_unknown_option_lists_the_known_ones() -> None:
    """Options of another data set are refused."""
    with pytest.raises(ConfigError) as caught:
        open_dataset("synthetic", tokenizer="regex")
    assert str(caught.value) == (
        "The data set 'synthetic' has the options ['force_reload', 'num_documents', 'num_labels', "
        "'num_layers', 'num_words', 'pre_transform', 'random_labels', 'root', 'seed', "
        "'topic_share', 'transform', 'words_per_document'], found ['tokenizer']; "
        "remove or rename them."
    )


def test_the_folder_is_given_by_name_alone(tmp_path: Path) -> None:
    """A second folder among the options is refused like any unknown option."""
    folder = write_match_folder(tmp_path / "toy")
    with pytest.raises(ConfigError, match=r"found \['folder'\]; remove or rename them\.$"):
        open_dataset(str(folder), folder=str(folder))
