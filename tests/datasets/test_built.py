"""The folder of a build: damage is found before anything is looked up by it."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest

from match_graph.corpus import Corpus
from match_graph.datasets import MatchFolder
from match_graph.datasets.built import default_root, write_built
from match_graph.errors import CorpusError
from match_graph.graph import MappedGraph
from match_graph.io.beside import renamed
from match_graph.io.manifest import read_manifest, write_manifest
from match_graph.testing import write_match_folder


def test_default_root_follows_the_environment(
    match_graph_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$MATCH_GRAPH_HOME is preferred to the user's cache folder."""
    assert default_root() == match_graph_home
    monkeypatch.setenv("MATCH_GRAPH_HOME", "")
    assert default_root() == Path(platformdirs.user_cache_dir("match-graph"))


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
    "name",
    [
        "edges/document.contains.word/index.npy",
        "edges/document.has.author/back/ptr.npy",
        "nodes/document/train_mask.npy",
        "targets/index.npy",
        "corpus.json",
        "nodes/word.parquet",
    ],
)
def test_check_file_finds_a_flipped_byte(
    build: tuple[Path, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flipped byte is found at opening, in large files on request."""
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
        _ = opened[0], opened.targets, opened.notes, opened.names("word")
        MappedGraph(opened.built).adjacency(("document", "has", "author"), backwards=True)
    assert str(caught.value) == sentence
    monkeypatch.setattr("match_graph.io.manifest.LARGE_BYTES", 0)
    with pytest.raises(CorpusError) as caught:
        dataset.verify()
    assert str(caught.value) == sentence


WORDS, AUTHORS = "edges/document.contains.word", "edges/document.has.author"


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        (f"{WORDS}/index.npy", lambda a: a + 10**6, "it names nodes that are none"),
        (f"{WORDS}/back/index.npy", lambda a: a - 1, "it names nodes that are none"),
        (f"{WORDS}/index.npy", lambda a: a.astype(float), "it names nodes that are none"),
        (f"{WORDS}/index.npy", lambda a: a[:-1], "it names nodes that are none"),
        (f"{WORDS}/back/edge.npy", lambda a: a + 1, "it names edges that are none"),
        (f"{AUTHORS}/ptr.npy", lambda a: a + 1, "it does not cut 15 edges into lists"),
        (f"{AUTHORS}/ptr.npy", lambda a: a[:-1], "it does not cut 15 edges into lists"),
        (f"{AUTHORS}/ptr.npy", lambda a: a[::-1] + a, "it does not cut 15 edges into lists"),
        (f"{AUTHORS}/back/stop.npy", lambda a: a + 5, "it does not lie within the lists"),
        (f"{AUTHORS}/back/stop.npy", lambda a: a - 5, "it does not lie within the lists"),
        (
            "nodes/document/train_mask.npy",
            lambda a: a[:-1],
            "'train_mask' is not one torch.bool a node",
        ),
        (
            "nodes/word/train_count.npy",
            lambda a: a.astype(np.int64),
            "'train_count' is not one torch.int32 a node",
        ),
        ("targets/index.npy", lambda a: a + 99, "it names nodes that are none"),
        ("targets/ptr.npy", lambda a: 0 * a, "it does not cut 25 edges into lists"),
        ("targets/ptr.npy", lambda a: a[:5], "it does not cut 25 edges into lists"),
    ],
)
def test_MappedGraph_refuses_inconsistent_arrays(
    build: tuple[Path, Path], name: str, change: Any, fault: str
) -> None:
    """Indices out of range are refused, also with a matching manifest."""
    folder, built = build
    np.save(built / name, change(np.load(built / name)))
    write_manifest(built)
    dataset = MatchFolder(folder, root=built.parents[1])
    graph = MappedGraph(built)
    with pytest.raises(CorpusError) as caught:
        _ = dataset[0], dataset.targets
        _ = [graph.adjacency(edge_type, backwards=True) for edge_type in graph.edge_types]
    assert str(caught.value) == (
        f"Built data must be what match-graph wrote, but '{built / name}' is not ({fault}); "
        f"delete its folder, or build with force_reload."
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda schema: schema["nodes"].pop("label"),
        lambda schema: schema["nodes"]["venue"].update(num_nodes=-1),
        lambda schema: schema["nodes"].pop("venue"),
        lambda schema: schema["edges"][0].update(num_edges="10"),
        lambda schema: schema["edges"][0].pop("edge_type"),
    ],
)
def test_MappedGraph_refuses_an_invalid_schema(build: tuple[Path, Path], spoil: Any) -> None:
    """Unknown types and invalid counts in the schema are refused."""
    _, built = build
    about = json.loads((built / "corpus.json").read_text("utf-8"))
    spoil(about["schema"])
    (built / "corpus.json").write_text(json.dumps(about), encoding="utf-8")
    write_manifest(built)
    with pytest.raises(CorpusError, match=r"corpus\.json' is not \(it cannot be read"):
        MappedGraph(built)


def test_write_built_follows_no_link(tmp_path: Path) -> None:
    """Links beside a build under the names of earlier versions are not followed."""
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


def test_write_built_keeps_nothing_of_a_lost_process(tmp_path: Path) -> None:
    """The temporary file of a lost worker is neither kept nor listed."""

    def write(folder: Path) -> None:
        (folder / "nodes").mkdir()
        (folder / "nodes" / "a.parquet").write_text("whole")
        with suppress(KeyError), renamed(folder / "nodes" / "a.parquet") as place:
            place.hardlink_to(folder / "nodes" / "a.parquet")
            shutil.copy(place, kept := place.with_name(place.name.replace(".tmp", "x.tmp")))
            assert kept.exists()
            raise KeyError  # of a process that is killed nothing is removed: the copy stands for it

    write_built(tmp_path / "built", write)
    names = {"nodes/a.parquet"}
    assert read_manifest(tmp_path / "built").keys() == names
    assert [path.name for path in (tmp_path / "built" / "nodes").iterdir()] == ["a.parquet"]
