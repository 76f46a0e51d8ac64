"""Data sets by name."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from torch_geometric.data import HeteroData

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


def refusal(name: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        open_dataset(name, **options)
    return str(caught.value)


def test_an_unknown_option_lists_the_known_ones() -> None:
    """Options of another data set are refused; PyG's arguments are not offered."""
    assert refusal("synthetic", tokenizer="regex") == (
        "The options of Synthetic must be valid: 'tokenizer' is not a setting; choose from "
        "['label_scale', 'like', 'num_documents', 'num_labels', 'num_layers', 'num_words', "
        "'random_labels', 'scale', 'seed', 'topic_share', 'words_per_document']."
    )


def test_the_folder_is_given_by_name_alone(tmp_path: Path) -> None:
    """A second folder among the options is refused like any unknown option."""
    folder = write_match_folder(tmp_path / "toy")
    assert refusal(str(folder), folder=str(folder)) == (
        "The options of MatchFolder must be valid: 'folder' is not a setting; "
        "choose from ['fields', 'hierarchy', 'tokenizer']."
    )


def test_every_wrong_option_is_named() -> None:
    """Types, ranges and names come in one message."""
    options = {"num_documents": "abc", "topic_share": 1.5, "seed": -1, "random_labels": 1, "cls": 2}
    assert refusal("synthetic", **options).splitlines() == [
        "The options of Synthetic must be valid, but 5 faults were found:",
        "  'num_documents': Input should be a valid integer, found 'abc'.",
        "  'topic_share': Input should be less than or equal to 1, found 1.5.",
        "  'random_labels': Input should be a valid boolean, found 1.",
        "  'seed': Input should be greater than or equal to 0, found -1.",
        "  'cls' is not a setting; choose from ['label_scale', 'like', 'num_documents', "
        "'num_labels', 'num_layers', 'num_words', 'random_labels', 'scale', 'seed', "
        "'topic_share', 'words_per_document'].",
    ]


def test_a_whole_number_is_a_fraction_too(tmp_path: Path) -> None:
    """topic_share: 0 is as good as 0.0."""
    dataset = open_dataset("synthetic", num_documents=200, topic_share=0, root=tmp_path)
    assert len(dataset) == 1


@pytest.mark.parametrize("name", ["toy", "debtags"])
def test_tokenizers_are_checked_before_anything_is_read(tmp_path: Path, name: str) -> None:
    """Any other word would mean the default."""
    folder = write_match_folder(tmp_path / "toy")
    found = refusal(str(folder) if name == "toy" else name, tokenizer="bpe", root=tmp_path / "r")
    assert found.endswith(
        " must be valid: 'tokenizer': Input should be 'regex' or 'whitespace', found 'bpe'."
    )
    assert not (tmp_path / "r").exists()


def test_arguments_of_pyg_are_for_python(tmp_path: Path) -> None:
    """They reach the class, after a check."""
    seen = []

    def transform(data: HeteroData) -> HeteroData:
        seen.append(data)
        return data

    dataset = open_dataset(
        "synthetic", num_documents=200, root=str(tmp_path), force_reload=True, transform=transform
    )
    assert dataset.force_reload
    assert dataset[0] is seen[-1]
    assert refusal("synthetic", transform=5, force_reload=1).splitlines() == [
        "The arguments of Synthetic must be valid, but 2 faults were found:",
        "  'transform': Input should be callable, found 5.",
        "  'force_reload': Input should be a valid boolean, found 1.",
    ]


def test_defaults_of_settings_are_those_of_the_class() -> None:
    """`Options` repeats the signature: same names, same defaults."""
    for cls in (*DATASETS.values(), MatchFolder):
        parameters = inspect.signature(cls).parameters
        expected = {
            name: parameter.default
            for name, parameter in parameters.items()
            if name not in ("folder", "kwargs")
        }
        assert cls.Options().model_dump() == expected
