"""`Corpus` -> PyG `InMemoryDataset`: built once, nothing unpickled, the input left alone."""

import os
import pickle
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric import transforms as T
from torch_geometric.data import HeteroData, InMemoryDataset
from torch_geometric.nn import GATv2Conv, HeteroConv, HGTConv, SAGEConv

from match_graph.corpus import Corpus
from match_graph.datasets import CorpusDataset, MatchFolder
from match_graph.errors import CorpusError, GraphError
from match_graph.export import export_dataset
from match_graph.graph import BuiltGraph, TokenSpace, build_graph
from match_graph.io.manifest import write_manifest
from match_graph.io.source import Snapshot, hash_file
from match_graph.testing import toy_corpus, write_match_folder


class Counted(CorpusDataset):
    """The toy corpus, with a count of its readings."""

    name = "counted"
    num_read = 0

    @property
    def raw_file_names(self) -> list[str]:
        return []

    def read(self) -> Corpus:
        type(self).num_read += 1
        return toy_corpus()


@pytest.fixture(autouse=True)
def _count_anew() -> None:
    Counted.num_read = 0


def mark(data: HeteroData) -> HeteroData:
    """A transform with a visible effect."""
    data["document"].marked = torch.ones(data["document"].num_nodes)
    return data


def built_folders(root: Path) -> list[Path]:
    return sorted(path for path in (root / "built").iterdir() if path.is_dir())


def assert_same_graph(left: HeteroData, right: HeteroData) -> None:
    """Compares types, keys, dtypes and values; edges of a built graph as int64."""
    left_content, right_content = left.to_dict(), right.to_dict()
    assert left_content.keys() == right_content.keys()
    for key, store in left_content.items():
        assert store.keys() == right_content[key].keys(), key
        for name, value in store.items():
            other = right_content[key][name]
            if isinstance(value, torch.Tensor):
                assert value.dtype == (torch.int64 if name == "edge_index" else other.dtype)
                assert torch.equal(value, other), (key, name)
            else:
                assert value == other, (key, name)


def test_CorpusDataset_it_is_a_pyg_in_memory_dataset(tmp_path: Path, toy_graph: BuiltGraph) -> None:
    """Its length is 1, and its element the built graph, which validates."""
    dataset = Counted(root=tmp_path)
    assert isinstance(dataset, InMemoryDataset)
    assert len(dataset) == 1
    assert isinstance(dataset[0], HeteroData)
    assert dataset[0].validate()
    assert_same_graph(dataset[0], toy_graph.data)
    assert [data.num_nodes for data in dataset] == [toy_graph.data.num_nodes]
    with pytest.raises(IndexError):
        dataset[1]


@pytest.mark.parametrize("conv", [SAGEConv, GATv2Conv, HGTConv], ids=lambda one: one.__name__)
def test_CorpusDataset_graph_suits_layers_of_pyg(tmp_path: Path, conv: type) -> None:
    """PyG's layers run on the graph and its reverse edges."""
    data = T.ToUndirected(merge=False)(Counted(root=tmp_path)[0])
    x = {name: torch.randn(data[name].num_nodes, 4) for name in data.node_types}
    if conv is HGTConv:
        layer = HGTConv(4, 4, data.metadata())
    else:
        keys = {} if conv is SAGEConv else {"add_self_loops": False}
        layer = HeteroConv({one: conv((4, 4), 4, **keys) for one in data.edge_types})
    found = layer(x, data.edge_index_dict)
    assert found["document"].shape == (data["document"].num_nodes, 4)


def test_CorpusDataset_targets_and_notes_equal_the_built_ones(
    tmp_path: Path, toy_graph: BuiltGraph
) -> None:
    """Targets and notes are read back as they were built."""
    dataset = Counted(root=tmp_path)
    assert torch.equal(dataset.targets.ptr, toy_graph.targets.ptr)
    assert torch.equal(dataset.targets.index, toy_graph.targets.index)
    assert dataset.num_classes == dataset.num_labels
    assert dataset.targets.num_labels == dataset.num_labels == toy_graph.targets.num_labels
    assert dataset.notes == toy_graph.notes
    assert dataset.hierarchy.num_edges == toy_graph.data["label", "is_a", "label"].num_edges
    assert dataset.token_space(1, 3) == TokenSpace.from_data(toy_graph.data, 1, 3)


def test_CorpusDataset_names_and_tables_are_in_order_of_graph(
    tmp_path: Path, toy_graph: BuiltGraph
) -> None:
    """Tables are read back in order, with Unicode and empty texts."""
    dataset = Counted(root=tmp_path)
    assert set(toy_graph.tables) == set(dataset[0].node_types)
    for node_type, table in toy_graph.tables.items():
        assert dataset.table(node_type).equals(table), node_type
        assert dataset.names(node_type).tolist() == table["id"].tolist()
        assert len(table) == dataset[0][node_type].num_nodes


def test_CorpusDataset_unknown_node_type_is_refused(tmp_path: Path) -> None:
    """The message lists the node types, and names the nearest one."""
    dataset = Counted(root=tmp_path)
    for name, clause in (("journal", "check the name"), ("documnet", "the nearest is 'document'")):
        with pytest.raises(CorpusError) as caught:
            dataset.names(name)
        assert str(caught.value) == (
            f"A node type must be one of ['author', 'document', 'label', 'reference', 'venue', "
            f"'word'], found '{name}'; {clause}."
        )


def test_CorpusDataset_documents_of_a_split(tmp_path: Path) -> None:
    """Documents of a mask are indices, int64."""
    dataset = Counted(root=tmp_path)
    assert dataset.documents("train_mask").tolist() == list(range(8))
    assert dataset.documents("val_mask").tolist() == [8, 9]
    assert dataset.documents("test_mask").tolist() == [10, 11]
    assert dataset.documents("test_mask").dtype == torch.int64


def test_CorpusDataset_second_opening_does_not_read(tmp_path: Path) -> None:
    """A build is opened without reading raw files."""
    Counted(root=tmp_path)
    Counted(root=tmp_path)
    assert Counted.num_read == 1


def test_CorpusDataset_force_reload_reads_again(tmp_path: Path) -> None:
    """force_reload builds anew into the same folder."""
    first = Counted(root=tmp_path)
    second = Counted(root=tmp_path, force_reload=True)
    assert Counted.num_read == 2
    assert first.processed_dir == second.processed_dir
    assert_same_graph(first[0], second[0])


def test_CorpusDataset_incomplete_build_is_built_again(tmp_path: Path) -> None:
    """A folder without corpus.json does not count as built."""
    (Path(Counted(root=tmp_path).processed_dir) / "corpus.json").unlink()
    assert Counted(root=tmp_path).targets.num_labels == 8
    assert Counted.num_read == 2


def test_CorpusDataset_nothing_but_build_and_its_lock_is_left(tmp_path: Path) -> None:
    """Only the build and its lock are left, no temporary files and none of PyG's."""
    dataset = Counted(root=tmp_path)
    built = Path(dataset.processed_dir)
    assert {path.name for path in built.parent.iterdir()} == {built.name, f"{built.name}.lock"}
    assert {path.name for path in built.iterdir()} == {
        "corpus.json",
        "edges",
        "manifest.json",
        "nodes",
        "targets",
    }


def test_CorpusDataset_failed_build_leaves_nothing_can_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed build leaves only the lock, and can be repeated."""

    def crash(*_: Any, **__: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("match_graph.datasets.built.write_frame", crash)
        with pytest.raises(MemoryError):
            Counted(root=tmp_path)
    assert [path.suffix for path in (tmp_path / "built").iterdir()] == [".lock"]
    assert len(Counted(root=tmp_path)) == 1


def test_CorpusDataset_disk_fills_one_sentence_leaves_nothing(
    tmp_path: Path, toy: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is one sentence, and nothing of the build is left."""
    monkeypatch.setattr(Counted, "read", lambda _self: toy)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
    try:
        with pytest.raises(CorpusError) as caught:
            Counted(root=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (lock,) = (tmp_path / "built").iterdir()
    assert str(caught.value) == (
        f"A data set must be built whole, but '{lock.with_suffix('')}' could not be written "
        f"(File too large); nothing of it is left. Make room on the disk, or choose another root "
        f"(--root)."
    )
    assert len(Counted(root=tmp_path)) == 1


def test_CorpusDataset_transform_maps_at_every_access_not_saved(tmp_path: Path) -> None:
    """A transform has no part in the key and does not change what is stored."""
    plain, seen = Counted(root=tmp_path), Counted(root=tmp_path, transform=mark)
    assert "marked" in seen[0]["document"]
    assert "marked" not in Counted(root=tmp_path)[0]["document"]
    assert plain.processed_dir == seen.processed_dir
    assert Counted.num_read == 1


def test_CorpusDataset_pre_transform_is_saved_and_part_of_key(tmp_path: Path) -> None:
    """Another pre_transform is another build."""
    plain, mapped = Counted(root=tmp_path), Counted(root=tmp_path, pre_transform=mark)
    assert "marked" in mapped[0]["document"]
    assert "marked" not in plain[0]["document"]
    assert plain.processed_dir != mapped.processed_dir
    assert len(built_folders(tmp_path)) == 2


def test_CorpusDataset_pre_transform_that_changes_splits(tmp_path: Path) -> None:
    """A changed mask is refused, as gold labels of test documents would be in the graph."""

    def swap(data: HeteroData) -> HeteroData:
        document = data["document"]
        document.train_mask, document.test_mask = document.test_mask, document.train_mask
        return data

    def drop(data: HeteroData) -> HeteroData:
        del data["document"].val_mask
        return data

    for move, changed in ((swap, "train_mask, test_mask"), (drop, "val_mask")):
        with pytest.raises(GraphError) as caught:
            Counted(root=tmp_path, pre_transform=move)
        assert str(caught.value) == (
            f"The splits of a built graph must be those of its documents, whose gold labels and "
            f"counts of training it holds, but pre_transform changed {changed}; give the splits "
            f"where the documents are read."
        )
    assert not built_folders(tmp_path)


def test_CorpusDataset_pre_transform_has_edges_for_pyg(tmp_path: Path) -> None:
    """A pre_transform gets edges in int64; the build stores them narrow."""

    def check(data: HeteroData) -> HeteroData:
        assert {store.edge_index.dtype for store in data.edge_stores} == {torch.int64}
        return data

    changed, plain = Counted(root=tmp_path, pre_transform=check), Counted(root=tmp_path)
    for edge_type in plain.graph.edge_types:
        found, expected = (one.graph.edge_index(edge_type) for one in (changed, plain))
        assert found.dtype == expected.dtype == torch.int32
        assert torch.equal(found, expected)


def test_CorpusDataset_pre_transform_that_adds_a_node_type(tmp_path: Path) -> None:
    """Added nodes are named by their indices."""

    def add(data: HeteroData) -> HeteroData:
        data["group"].num_nodes = 3
        data["document", "has", "group"].edge_index = torch.tensor([[0, 1], [2, 0]])
        return data

    dataset = Counted(root=tmp_path, pre_transform=add)
    assert dataset.names("group").tolist() == ["0", "1", "2"]
    assert "group" in dataset.token_space(1, 1).types
    assert export_dataset(dataset, "parquet", tmp_path / "out").is_dir()


def test_CorpusDataset_pre_transform_that_removes_nodes(tmp_path: Path) -> None:
    """Removed nodes are refused, as names in tables would shift."""

    def cut(data: HeteroData) -> HeteroData:
        return data.subgraph({"author": torch.arange(1, int(data["author"].num_nodes))})

    with pytest.raises(GraphError) as caught:
        Counted(root=tmp_path, pre_transform=cut)
    assert "pre_transform left 4 of 5 of the type 'author'; leave nodes out where" in str(
        caught.value
    )
    assert not built_folders(tmp_path)


def test_MatchFolder_changed_file_builds_anew(tmp_path: Path) -> None:
    """One changed word is another build; the old one stays."""
    folder, root = write_match_folder(tmp_path / "toy"), tmp_path / "root"
    first = MatchFolder(folder, root=root)
    path = folder / "train.json"
    path.write_text(path.read_text("utf-8").replace("Odds", "Bits"), encoding="utf-8")
    second = MatchFolder(folder, root=root)
    assert first.checksum != second.checksum
    assert "odds" in set(first.names("word"))
    assert "bits" in set(second.names("word"))
    assert len(built_folders(root)) == 2


@pytest.mark.parametrize(
    "options", [{"fields": ["author"]}, {"tokenizer": "whitespace"}, {"hierarchy": "ignore"}]
)
def test_MatchFolder_every_option_is_part_of_the_key(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """Other options are another build."""
    folder, root = write_match_folder(tmp_path / "toy"), tmp_path / "root"
    plain = MatchFolder(folder, root=root)
    changed = MatchFolder(folder, root=root, **options)
    assert plain.processed_dir != changed.processed_dir


def test_MatchFolder_same_content_elsewhere_is_the_same_build(tmp_path: Path) -> None:
    """Neither the path nor the time of a file is part of the key."""
    root = tmp_path / "root"
    first = MatchFolder(write_match_folder(tmp_path / "one" / "toy"), root=root)
    second = MatchFolder(write_match_folder(tmp_path / "two" / "toy"), root=root)
    assert first.processed_dir == second.processed_dir


def read_all(dataset: CorpusDataset) -> None:
    """Opens every array of a build."""
    _ = dataset[0], dataset.targets


class Payload:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


ARRAYS = ["targets/index.npy", "nodes/word/train_count.npy", "edges/label.is_a.label/ptr.npy"]


@pytest.mark.parametrize("file_name", ARRAYS)
def test_CorpusDataset_crafted_file_is_refused_and_not_run(tmp_path: Path, file_name: str) -> None:
    """Code in a built file never runs; the message says what to do."""
    path = Path(Counted(root=tmp_path).processed_dir) / file_name
    np.save(path, np.array([Payload(tmp_path / "ran")], dtype=object), allow_pickle=True)
    write_manifest(Path(Counted(root=tmp_path).processed_dir))  # who writes one can write the other
    with pytest.raises(CorpusError) as caught:
        read_all(Counted(root=tmp_path))
    assert not (tmp_path / "ran").exists()
    assert str(caught.value) == (
        f"Built data must be what match-graph wrote, but '{path}' is not (it cannot be read: "
        f"ValueError); delete its folder, or build with force_reload."
    )
    np.load(path, allow_pickle=True)  # the payload is live
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("file_name", ARRAYS)
def test_CorpusDataset_plain_pickle_is_refused_and_not_run(tmp_path: Path, file_name: str) -> None:
    """A plain pickle is refused, and its code does not run."""
    path = Path(Counted(root=tmp_path).processed_dir) / file_name
    path.write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    write_manifest(Path(Counted(root=tmp_path).processed_dir))
    with pytest.raises(CorpusError, match=r"it cannot be read: ValueError"):
        read_all(Counted(root=tmp_path))
    assert not (tmp_path / "ran").exists()


def test_CorpusDataset_damaged_table_is_named(tmp_path: Path) -> None:
    """Damaged tables of names, texts and notes are named."""
    dataset = Counted(root=tmp_path)
    built = Path(dataset.processed_dir)
    for name, read in (
        ("nodes/word.parquet", lambda: dataset.names("word")),
        ("nodes/venue.parquet", lambda: list(dataset.iter_table("venue", 5))),
        ("nodes/document.parquet", lambda: dataset.keeps_texts),
        ("corpus.json", lambda: dataset.notes),
    ):
        path = built / name
        content = path.read_bytes()
        path.write_bytes(content[:-3])
        with pytest.raises(CorpusError) as caught:
            read()
        assert str(caught.value) == (
            f"Built data must be what match-graph wrote, but '{path}' is not (it has "
            f"{len(content) - 3:,} bytes, not {len(content):,} as manifest.json says); delete its "
            f"folder, or build with force_reload."
        )


def test_CorpusDataset_force_reload_repairs_a_broken_build(tmp_path: Path) -> None:
    """A damaged build can be built again, as the message advises."""
    path = Path(Counted(root=tmp_path).processed_dir) / "targets/ptr.npy"
    path.write_bytes(b"broken")
    assert Counted(root=tmp_path, force_reload=True).targets.num_labels == 8


OPEN_TOGETHER = """
import sys, time
from pathlib import Path
from match_graph.datasets import MatchFolder

class Noted(MatchFolder):
    def read(self):
        with open(f"{sys.argv[2]}/read", "a") as file:
            file.write("x")
        time.sleep(0.2)
        return super().read()

Path(sys.argv[2], f"ready-{sys.argv[3]}").touch()
while not Path(sys.argv[2], "go").exists():
    time.sleep(0.01)
print(Noted(sys.argv[1], root=sys.argv[2])[0]["label"].num_nodes)
"""


@pytest.mark.slow
def test_dataset_two_processes_can_build_at_once(tmp_path: Path) -> None:
    """One process builds, the other waits at the lock and opens the same files."""
    folder, root = write_match_folder(tmp_path / "toy"), tmp_path / "root"
    root.mkdir()
    command = [sys.executable, "-c", OPEN_TOGETHER, str(folder), str(root)]
    processes = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for name in "ab"
    ]
    give_up = time.monotonic() + 60
    while len(list(root.glob("ready-*"))) < 2 and time.monotonic() < give_up:
        time.sleep(0.01)
    (root / "go").touch()
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert [output.strip() for output, _ in outputs] == [b"8", b"8"]
    assert (root / "read").read_text() == "x"
    assert len(built_folders(root)) == 1


def test_CorpusDataset_is_built_below_the_default_root(match_graph_home: Path) -> None:
    """Without a root the default one is used."""
    assert Path(Counted().processed_dir).parent == match_graph_home / "built"


def test_hash_file_is_sha256(tmp_path: Path) -> None:
    """Known answer of SHA-256 for three bytes."""
    (tmp_path / "file").write_bytes(b"abc")
    assert hash_file(tmp_path / "file") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_CorpusDataset_subclass_must_say_what_it_reads(tmp_path: Path) -> None:
    """The base class has no reader."""
    with pytest.raises(NotImplementedError):
        CorpusDataset(tmp_path)


def test_CorpusDataset_texts_need_not_be_there(tmp_path: Path) -> None:
    """A corpus without raw texts has no column of texts."""

    class Bare(Counted):
        def read(self) -> Corpus:
            corpus = toy_corpus()
            documents = corpus.documents.drop(columns="text")
            return Corpus("bare", documents, corpus.instances, corpus.edges, corpus.hierarchy)

    assert Bare(root=tmp_path).table("document").columns.tolist() == ["id", "split"]
    assert build_graph(toy_corpus()).tables["document"].columns.tolist() == ["id", "split", "text"]


def test_CorpusDataset_built_opened_without_lock_without_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build on a read-only mount can be opened."""
    built = Path(Counted(root=tmp_path).processed_dir)
    (tmp_path / "built" / f"{built.name}.lock").unlink()

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("match_graph.datasets.built.FileLock", refuse)
    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    assert len(Counted(root=tmp_path)) == 1
    with pytest.raises(CorpusError) as caught:
        Counted(root=tmp_path, force_reload=True)
    assert str(caught.value) == (
        f"A data set must be built whole, but '{built}' could not be written (Permission denied); "
        f"nothing of it is left. Make room on the disk, or choose another root (--root)."
    )


@pytest.mark.parametrize("method", ["read", "reader"])
@pytest.mark.parametrize("age", [0, 3600])
def test_MatchFolder_files_change_while_they_are_read_not_cached(
    tmp_path: Path, age: int, method: str
) -> None:
    """A file that is replaced between hashing and reading is refused.

    An old file shows it by its times, one of this moment by its content.
    """
    folder, root = write_match_folder(tmp_path / "toy"), tmp_path / "root"
    path, content = folder / "test.json", (folder / "test.json").read_bytes()
    for file in folder.iterdir():
        os.utime(file, (time.time() - age, time.time() - age))

    def change(dataset: MatchFolder) -> Any:
        path.write_bytes(content.replace(b'"text": "', b'"text": "poison '))
        return getattr(MatchFolder, method)(dataset)

    with pytest.raises(CorpusError) as caught:
        type("Changing", (MatchFolder,), {method: change})(folder, root=root)
    assert str(caught.value) == (
        f"The files of a data set must stay as they are while it is built, but '{path}' changed; "
        f"build again when nothing writes there."
    )
    assert built_folders(root) == []
    path.write_bytes(content)
    assert "poison" not in set(MatchFolder(folder, root=root).names("word"))


def test_name_hashes_files_of_one_name_have_a_hash_each(tmp_path: Path) -> None:
    """Files of one name in two folders have a hash each."""
    paths = [tmp_path / name / "x" for name in "abc"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(path.parent.name)
    assert Snapshot(map(str, paths)).name_hashes() == {
        name: hash_file(path) for name, path in zip(("x", "x (2)", "x (3)"), paths, strict=True)
    }


def test_MatchFolder_faults_skip_builds_without_faulty_documents(tmp_path: Path) -> None:
    """Faulty documents are left out, counted and listed; the key of the build differs."""
    folder, root = write_match_folder(tmp_path / "toy"), tmp_path / "root"
    whole = MatchFolder(folder, root=root)
    with (folder / "train.json").open("a") as file:
        file.write('{"paper": "t1", "text": "again", "label": []}\n{"paper": "bro\n')
    with pytest.raises(CorpusError, match="2 faults were found"):
        MatchFolder(folder, root=root)
    dataset = MatchFolder(folder, root=root, faults="skip")
    assert_same_graph(dataset[0], whole[0])
    assert dataset.faults["place"].tolist() == ["train.json:9", "train.json:10"]
    assert dataset.faults["reason"][0] == (
        "the document 't1' was given before (train.json:1); every document needs an id of its own."
    )
    assert dataset.warnings == [
        "left out documents for 2 faults, 12 documents remain: 1 x the document '...' was given "
        "before; 1 x a line must be one JSON object"
    ]
    assert (whole.warnings, len(whole.faults)) == ([], 0)
    (folder / "taxonomy.txt").write_text("a b\nb a\n")
    with pytest.raises(CorpusError, match="must be acyclic"):
        MatchFolder(folder, root=root, faults="skip")
