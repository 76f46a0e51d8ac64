"""The folder of a build: damage is found before anything is looked up by it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from match_graph.corpus import Corpus
from match_graph.datasets import MatchFolder
from match_graph.errors import CorpusError
from match_graph.io.manifest import write_manifest
from match_graph.testing import write_match_folder


@pytest.fixture
def build(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of files and the built one."""
    folder = write_match_folder(tmp_path / "toy")
    return folder, MatchFolder(folder, root=tmp_path / "root").built


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["data.pt", "targets.pt", "corpus.json", "names/word.parquet", "names/label.parquet"]
)
def test_check_file_finds_a_flipped_byte(
    build: tuple[Path, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At opening; of large files when it is asked for."""
    folder, built = build
    dataset = MatchFolder(folder, root=built.parents[1])
    assert dataset.verify() == len([path for path in built.rglob("*") if path.is_file()]) - 1
    flip_byte(built / name)
    sentence = (
        f"Built data must be what match-graph wrote, but '{built / name}' is not (its content is "
        f"not what was written, as its SHA-256 in manifest.json shows); delete its folder, or "
        f"build with force_reload."
    )
    with pytest.raises(CorpusError) as caught:
        opened = MatchFolder(folder, root=built.parents[1])
        _ = opened.targets, opened.notes, opened.names("word"), opened.names("label")
    assert str(caught.value) == sentence
    monkeypatch.setattr("match_graph.io.manifest.LARGE_BYTES", 0)
    with pytest.raises(CorpusError) as caught:
        dataset.verify()
    assert str(caught.value) == sentence


def _name_no_word(content: dict[Any, Any]) -> None:
    content["document", "contains", "word"]["edge_index"][1, 0] = 10**6


def _name_no_document(content: dict[Any, Any]) -> None:
    content["document", "has", "author"]["edge_index"][0, 0] = -1


def _make_float(content: dict[Any, Any]) -> None:
    edges = content["label", "is_a", "label"]
    edges["edge_index"] = edges["edge_index"].double()


def _cut_mask(content: dict[Any, Any]) -> None:
    content["document"]["train_mask"] = content["document"]["train_mask"][:-1]


def _cut_positions(content: dict[Any, Any]) -> None:
    edges = content["document", "contains", "word"]
    edges["position"] = edges["position"][:-1]


def _count_nothing(content: dict[Any, Any]) -> None:
    content["venue"]["num_nodes"] = -1


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (_name_no_word, "the edges ('document', 'contains', 'word') name a 'word' that is none"),
        (
            _name_no_document,
            "the edges ('document', 'has', 'author') name a 'document' that is none",
        ),
        (
            _make_float,
            "the edges ('label', 'is_a', 'label') are not [2, E] of int32 or int64",
        ),
        (_cut_mask, "'train_mask' of 'document' is not one torch.bool a node"),
        (
            _cut_positions,
            "the positions of ('document', 'contains', 'word') are not one int16 an edge",
        ),
        (_count_nothing, "'venue' has no number of nodes"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_load_data_refuses_indices_out_of_range(
    build: tuple[Path, Path], spoil: Any, fault: str
) -> None:
    """Also where the manifest was written anew: torch would read memory that is not its own."""
    folder, built = build
    content = torch.load(built / "data.pt", weights_only=True)
    spoil(content)
    torch.save(content, built / "data.pt")
    write_manifest(built)
    with pytest.raises(CorpusError) as caught:
        MatchFolder(folder, root=built.parents[1])
    assert str(caught.value) == (
        f"Built data must be what match-graph wrote, but '{built / 'data.pt'}' is not ({fault}); "
        f"delete its folder, or build with force_reload."
    )


@pytest.mark.parametrize(
    "change",
    [
        {"index": torch.full((26,), 99, dtype=torch.int32)},
        {"ptr": torch.zeros(13, dtype=torch.int64)},
        {"ptr": torch.zeros(5, dtype=torch.int64)},
        {"num_labels": 10**9},
    ],
    ids=["beyond", "empty", "short", "labels"],
)
def test_load_targets_refuses_labels_that_are_none(
    build: tuple[Path, Path], change: dict[str, Any]
) -> None:
    """Offsets and labels fit the graph."""
    folder, built = build
    content = torch.load(built / "targets.pt", weights_only=True)
    torch.save({**content, **change}, built / "targets.pt")
    write_manifest(built)
    with pytest.raises(CorpusError) as caught:
        _ = MatchFolder(folder, root=built.parents[1]).targets
    assert str(caught.value) == (
        f"Built data must be what match-graph wrote, but '{built / 'targets.pt'}' is not (it names "
        f"documents or labels that the graph has not); delete its folder, or build with "
        f"force_reload."
    )


def test_write_built_follows_no_link(tmp_path: Path) -> None:
    """What lies beside a build under the names of earlier versions is left alone."""
    folder, victim = write_match_folder(tmp_path / "toy"), tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").touch()
    first = MatchFolder(folder, root=tmp_path / "root")

    class Other(MatchFolder):
        def read(self) -> Corpus:
            (first.built.parent / f"{self.built.name}.1.tmp").symlink_to(victim)
            return super().read()

    Other(folder, root=tmp_path / "root", force_reload=True)
    assert [path.name for path in victim.iterdir()] == ["kept"]
