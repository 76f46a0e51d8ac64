"""Data sets by name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch_geometric.data import HeteroData

from match_graph.config import load_config
from match_graph.datasets import (
    DATASETS,
    MagCs,
    MatchFolder,
    Synthetic,
    list_datasets,
    open_dataset,
)
from match_graph.datasets.registry import resolve_paths
from match_graph.errors import ConfigError, CorpusError
from match_graph.runs import start_run
from match_graph.speed.formats import WRITERS, take_sample
from match_graph.testing import write_match_folder, write_release_folder


def test_open_dataset_registered_name_opens_its_class(tmp_path: Path) -> None:
    """Options reach the class; None is the default."""
    dataset = open_dataset("synthetic", num_documents=200, seed=None, root=tmp_path)
    assert isinstance(dataset, Synthetic)
    assert (dataset.config.num_documents, dataset.config.seed) == (200, 0)


def test_open_dataset_any_other_name_is_a_folder(tmp_path: Path) -> None:
    """A path opens a folder in the MATCH format, with its options."""
    folder = write_match_folder(tmp_path / "toy")
    dataset = open_dataset(str(folder), fields=["author"], root=tmp_path / "root")
    assert isinstance(dataset, MatchFolder)
    assert dataset.config.fields == ["author"]
    assert Path(dataset.processed_dir).is_relative_to(tmp_path / "root")


def test_DATASETS_every_registered_name_is_class_and_documented() -> None:
    """Names are lower-case words, and classes have docstrings."""
    for name, cls in DATASETS.items():
        assert name == name.lower()
        assert cls.__doc__
    assert DATASETS["synthetic"] is Synthetic


def test_open_dataset_unknown_name_lists_the_registered_ones() -> None:
    """An unknown name is refused with the registered ones."""
    with pytest.raises(CorpusError) as caught:
        open_dataset("syntetic")
    assert str(caught.value) == (
        f"A data set must be one of {sorted(DATASETS)}, a folder, or a class of your own "
        f"(file.py:Class), but there is nothing of that kind at 'syntetic'; the nearest is "
        f"'synthetic'."
    )


@pytest.mark.parametrize(("name", "kind"), [("papers.csv", "a CSV"), ("p.jsonl.gz", "JSON lines")])
def test_open_dataset_file_of_documents_names_custom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """A table or JSON lines is answered with the command that reads it."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(b"")
    with pytest.raises(CorpusError) as caught:
        open_dataset(name)
    assert str(caught.value).endswith(
        f"; for {kind}: match-graph run custom --set data.options.path={name}."
    )


def refusal(name: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        open_dataset(name, **options)
    return str(caught.value)


def test_open_dataset_unknown_option_lists_the_known_ones() -> None:
    """Options of another data set are refused; PyG's arguments are not offered."""
    assert refusal("synthetic", tokenizer="regex") == (
        "The options of Synthetic must be valid: 'tokenizer' is not a setting; choose from "
        "['label_scale', 'like', 'num_documents', 'num_labels', 'num_layers', 'num_words', "
        "'random_labels', 'scale', 'seed', 'topic_share', 'words_per_document']."
    )


def test_open_dataset_folder_is_given_by_name_alone(tmp_path: Path) -> None:
    """A second folder among the options is refused like any unknown option."""
    folder = write_match_folder(tmp_path / "toy")
    assert refusal(str(folder), folder=str(folder)) == (
        "The options of MatchFolder must be valid: 'folder' is not a setting; "
        "choose from ['fields', 'hierarchy', 'tokenizer']."
    )


def test_open_dataset_every_wrong_option_is_named() -> None:
    """Wrong types, ranges and names are one message."""
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


def test_open_dataset_whole_number_is_a_fraction_too(tmp_path: Path) -> None:
    """topic_share: 0 equals 0.0."""
    dataset = open_dataset("synthetic", num_documents=200, topic_share=0, root=tmp_path)
    assert len(dataset) == 1


@pytest.mark.parametrize("name", ["toy", "debtags"])
def test_open_dataset_tokenizers_checked_before_anything_read(tmp_path: Path, name: str) -> None:
    """An unknown tokenizer is refused before anything is read."""
    folder = write_match_folder(tmp_path / "toy")
    found = refusal(str(folder) if name == "toy" else name, tokenizer="bpe", root=tmp_path / "r")
    assert found.endswith(
        " must be valid: 'tokenizer': Input should be 'regex', 'unicode' or 'whitespace', found "
        "'bpe'."
    )
    assert not (tmp_path / "r").exists()


def test_open_dataset_arguments_of_pyg_are_for_python(tmp_path: Path) -> None:
    """PyG's arguments are validated and reach the class."""
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


def test_every_option_has_a_default_and_a_meaning() -> None:
    """Every option has a default and a description, for `match-graph datasets NAME`."""
    for cls in (*DATASETS.values(), MatchFolder):
        for name, field in cls.Config.model_fields.items():
            assert field.description, (cls, name)
        assert cls.Config()


#: The files of a registered data set for a test: the format that they are written in,
#: its folder below ``raw``, and the options that it needs; None where there is nothing to write.
FILES: dict[str, tuple[str, str, dict[str, Any]] | None] = {
    "biotools": None,  # has files of another kind: tests/datasets/test_biotools.py
    "cacm": None,  # likewise: tests/datasets/test_cacm.py
    "custom": ("custom csv", "custom", {"columns": {"id": "paper"}}),
    "debtags": None,  # has files of another kind: tests/datasets/test_debtags.py
    "mag-cs": ("mag-cs", "MAG", {}),
    "maple": ("maple json", "maple/json/Art", {}),
    "oamed": None,  # likewise: tests/datasets/test_oaxmlc.py
    "oaxmlc": None,
    "openalex": ("openalex", "openalex", {"labels": "concepts"}),
    "pubmed": ("mag-cs", "MeSH", {}),
    "pubmed-xml": ("pubmed-xml", "pubmed-xml", {"hierarchy": "ignore"}),
    "synthetic": None,
}


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_open_dataset_every_data_set_of_files_shows_its_progress(
    synthetic: Synthetic, tmp_path: Path, name: str
) -> None:
    """Reading shows progress in megabytes; a build is opened without."""
    if FILES[name] is None:
        return
    written, folder, options = FILES[name]
    (tmp_path / "raw" / folder).mkdir(parents=True)
    WRITERS[written](take_sample(synthetic, 100), tmp_path / "raw" / folder)
    (tmp_path / "raw" / folder / "concepts.jsonl").unlink(missing_ok=True)
    seen: list[tuple[str, int, str]] = []

    @contextmanager
    def track(name: str, total: int, unit: str) -> Iterator[Callable[[int, str], None]]:
        seen.append((name, total, unit))
        yield lambda _done, _text: None

    for _ in range(2):
        assert open_dataset(name, root=tmp_path, track=track, **options).num_labels > 1
    assert seen == [(f"read {name}", 0, "MB")]


CARDS = Path(__file__).resolve().parents[2] / "datasets"


def states(root: Path) -> dict[str, str]:
    return {row["name"]: row["state"] for row in list_datasets(root)}


def test_list_datasets_every_registered_data_set_row_and_card(tmp_path: Path) -> None:
    """Rows are complete, and each card names its data set and licence."""
    rows = list_datasets(tmp_path)
    assert [row["name"] for row in rows] == sorted(DATASETS)
    for row in rows:
        assert all(row[key] for key in ("licence", "size", "needs", "state"))
        text = (CARDS / f"{row['name']}.md").read_text("utf-8")
        assert text.startswith(f"# {row['name']}\n")
        for part in (
            "| source |", "| licence |", "| needs |", "## Checksums\n\n", "## Expected counts\n\n",
        ):  # fmt: skip
            assert part in text, (row["name"], part)
        assert f"match-graph run {row['name']}" in text


def test_list_datasets_state_follows_the_files(tmp_path: Path) -> None:
    """The state follows raw files and builds; a broken build does not count."""
    assert states(tmp_path)["mag-cs"] == "needs files"
    assert states(tmp_path)["synthetic"] == "needs nothing"
    assert states(tmp_path)["debtags"] == "fetched when used"
    write_release_folder(tmp_path / "raw" / "MAG")
    assert states(tmp_path)["mag-cs"] == "raw present"
    MagCs(root=tmp_path)
    Synthetic(num_documents=200, root=tmp_path)
    assert states(tmp_path)["mag-cs"] == states(tmp_path)["synthetic"] == "built"
    assert states(tmp_path)["pubmed"] == "needs files"
    for path in tmp_path.glob("built/mag-cs-*/corpus.json"):
        path.write_text("{")
    assert states(tmp_path)["mag-cs"] == "raw present"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("biotools", "data/abc/abc.biotools.json"),
        ("biotools", "abc.biotools.json"),
        ("cacm", "cacm.all"),
        ("debtags", "Packages"),
        ("maple", "json/Art/papers.json"),
        ("maple", "graph/Art/papers.txt"),
        ("oamed", "documents.json"),
        ("oaxmlc", "documents.json.gz"),
    ],
)
def test_list_datasets_state_of_raw_files(tmp_path: Path, name: str, path: str) -> None:
    """Raw files count, but no others beside them."""
    before, file = states(tmp_path), tmp_path / "raw" / name / path
    file.parent.mkdir(parents=True)
    (file.parent / "other.txt").touch()
    assert states(tmp_path) == before
    file.touch()
    assert states(tmp_path) == before | {name: "raw present"}


def test_list_datasets_default_root_is_looked_at(match_graph_home: Path) -> None:
    """Without a root the default one is listed."""
    write_release_folder(match_graph_home / "raw" / "MAG")
    assert {row["name"]: row["state"] for row in list_datasets()}["mag-cs"] == "raw present"


def test_resolve_paths_leaves_other_values_to_be_refused(tmp_path: Path) -> None:
    """A path that YAML reads as a number is refused with the options."""
    assert resolve_paths("biotools", {"path": 5}) == {"path": 5}
    assert resolve_paths("biotools", {"path": str(tmp_path)}) == {"path": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"'path'.*found 5"):
        start_run("biotools", load_config(None, ["data.options.path=5"]), root=tmp_path)
