"""Corpora in memory, built folders and classes of one's own as data sets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from match_graph.corpus import Corpus
from match_graph.datasets import (
    BuiltFolder,
    CorpusInMemory,
    MatchFolder,
    Synthetic,
    from_frames,
    list_options,
    name_source,
    open_dataset,
)
from match_graph.datasets.memory import hash_corpus
from match_graph.errors import ConfigError, CorpusError
from match_graph.graph import DropFields, build_graph
from match_graph.io.manifest import write_manifest
from match_graph.io.source import hash_file
from match_graph.testing import write_match_folder


@pytest.fixture(scope="module")
def featured(toy: Corpus) -> Corpus:
    """The toy corpus with features and times."""
    rows = {"document": toy.num_documents, "label": len(toy.instances["label"])}
    features = {name: np.eye(rows[name], dtype=np.float32) for name in rows}
    documents = toy.documents.assign(time=np.arange(toy.num_documents))
    return replace(toy, documents=documents, features=features)


def test_CorpusInMemory_is_built_once_by_its_content(featured: Corpus, tmp_path: Path) -> None:
    """Features are saved, memory-mapped, and part of the key of the build."""
    dataset = open_dataset(featured, root=tmp_path)
    assert isinstance(dataset, CorpusInMemory)
    graph = build_graph(featured)
    for name in ("document", "label"):
        assert torch.equal(dataset[0][name].x, graph.data[name].x)
    assert torch.equal(dataset[0]["document"].time, graph.data["document"].time)
    data = dataset.built / "nodes/label/x.npy"
    before = data.stat().st_mtime_ns
    assert open_dataset(replace(featured), root=tmp_path).built == dataset.built
    assert data.stat().st_mtime_ns == before
    doubled = replace(featured, features={"label": 2 * featured.features["label"]})
    assert open_dataset(doubled, root=tmp_path).built != dataset.built
    assert dataset.verify()


def _change(name: str, key: str, value: Any) -> Any:
    def change(corpus: Corpus) -> Corpus:
        tables = {**getattr(corpus, name)}
        tables[key] = value(tables[key])
        return replace(corpus, **{name: tables})

    return change


def _rename(corpus: Corpus, old: str, new: str) -> Corpus:
    tables = {
        kind: {new if name == old else name: table for name, table in getattr(corpus, kind).items()}
        for kind in ("instances", "edges")
    }
    return replace(corpus, **tables)


CHANGES = [
    lambda corpus: replace(corpus, name="other"),
    lambda corpus: replace(corpus, tokenizer="whitespace"),
    lambda corpus: replace(corpus, hierarchy=corpus.hierarchy.iloc[1:]),
    lambda corpus: replace(corpus, documents=corpus.documents.drop(columns="time")),
    lambda corpus: replace(corpus, documents=corpus.documents.assign(time=0)),
    lambda corpus: replace(corpus, documents=corpus.documents.assign(text="")),
    _change("features", "label", lambda x: x.astype(np.float16)),
    _change("features", "label", lambda x: x[::-1]),
    _change("instances", "venue", lambda table: table.assign(name="a")),
    _change("edges", "word", lambda table: table.iloc[:-1]),
    _change("edges", "word", lambda table: table.assign(weight=1.0)),
    _change("edges", "word", lambda table: table.assign(other=1.0)),
    _change("instances", "label", lambda table: table.assign(depth=0)),
    _change(
        "instances",
        "label",
        lambda table: table.assign(depth=pd.array([None] * len(table), "Int16")),
    ),
    lambda corpus: _rename(corpus, "venue", "journal"),
]


def test_hash_corpus_sees_every_part(featured: Corpus) -> None:
    """The hash depends on every table, not on integer types or provenance."""
    found = [hash_corpus(change(featured)) for change in CHANGES]
    assert len({*found, hash_corpus(featured)}) == len(CHANGES) + 1
    wide = {name: table.astype("int64") for name, table in featured.edges.items()}
    elsewhere = featured.hierarchy.assign(origin="elsewhere")
    same = replace(featured, edges=wide, hierarchy=elsewhere, notes={"x": 1}, warnings=["w"])
    same = replace(same, features=dict(reversed(featured.features.items())))
    assert hash_corpus(same) == hash_corpus(featured)


def test_hash_corpus_tells_cells_apart(toy: Corpus) -> None:
    """The hash depends on borders between strings, numbers, and missing values."""
    names = ["ab", "c"], ["a", "bc"], ["abc", ""], [None, "abc"], ["abc", None]
    depths = [0.0, 1.0], [1.0, 0.0], [None, 0.0], [0.0, None]
    venues = toy.instances["venue"].iloc[:2]
    tables = [venues.assign(name=pd.Series(one)) for one in names]
    tables += [venues.assign(depth=pd.Series(one)) for one in depths]
    edges = {**toy.edges, "venue": toy.edges["venue"].iloc[:0]}
    found = [
        replace(toy, instances={**toy.instances, "venue": table}, edges=edges) for table in tables
    ]
    assert len({*map(hash_corpus, found)}) == len(tables)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("../up", "must be a name without / and \\, as it names a folder"),
        ("a\nb", "must be a printable name of at most 200 bytes, as it names a folder"),
    ],
)
def test_CorpusInMemory_name_must_name_a_folder(
    toy: Corpus, tmp_path: Path, name: str, fault: str
) -> None:
    """A name that leads out of the folder is refused."""
    with pytest.raises(CorpusError) as caught:
        open_dataset(replace(toy, name=name), root=tmp_path)
    assert str(caught.value) == f"The name of a corpus {fault}, found {name!r}."


def test_CorpusInMemory_half_a_surrogate_is_one_sentence(toy: Corpus, tmp_path: Path) -> None:
    """A lone surrogate is one sentence, and nothing is left."""
    texts = pd.Series(["\ud800"] * toy.num_documents, dtype=object)
    spoilt = replace(toy, documents=toy.documents.assign(text=texts))
    with pytest.raises(CorpusError, match="must hold Unicode text and numbers, but the column"):
        open_dataset(spoilt, root=tmp_path)
    assert not [*tmp_path.iterdir()]


def test_BuiltFolder_is_the_data_set_it_was_built_from(tmp_path: Path) -> None:
    """Checksum, name, tokenizer, targets and texts are those of the source."""
    folder = write_match_folder(tmp_path / "toy")
    built = MatchFolder(folder, root=tmp_path / "root")
    opened = open_dataset(str(built.built))
    assert isinstance(opened, BuiltFolder)
    assert (opened.checksum, opened.name, opened.tokenizer) == (built.checksum, "toy", "regex")
    assert torch.equal(opened.targets.index, built.targets.index)
    assert opened.as_json([0, 3]) == built.as_json([0, 3])
    assert opened.warnings == built.warnings
    assert name_source(opened) == name_source(built) == str(built.built)
    assert open_dataset(Path(built.built)).checksum == built.checksum


def test_BuiltFolder_keeps_the_columns_of_a_table(tmp_path: Path) -> None:
    """The layout of a table is stored for predictions, and part of the key."""
    frame = pd.DataFrame(
        {"id": ["a", "b"], "body": ["x", "y"], "label": ["l", "l"], "split": ["train", "valid"]}
    )
    corpus = from_frames(frame, columns={"text": "body", "split": "split"})
    dataset = open_dataset(corpus, root=tmp_path)
    folder = BuiltFolder(dataset.built)
    assert folder.layout == dataset.layout == corpus.layout
    assert folder.layout is not None
    assert folder.layout.columns["text"] == ["body"]
    other = from_frames(frame.rename(columns={"body": "text"}), columns={"split": "split"})
    assert open_dataset(other, root=tmp_path).built != dataset.built
    assert open_dataset(replace(corpus, layout=None), root=tmp_path).layout is None


def test_BuiltFolder_keeps_the_tokenizer(synthetic: Synthetic) -> None:
    """The tokenizer of a class without such an option is stored."""
    assert open_dataset(synthetic.built).tokenizer == "whitespace"


@pytest.mark.parametrize("option", ["force_reload", "pre_transform"])
def test_BuiltFolder_refuses_to_build_again(synthetic: Synthetic, option: str) -> None:
    """Arguments that need the source are refused."""
    value = True if option == "force_reload" else DropFields([])
    with pytest.raises(CorpusError, match=f"but {option} would build"):
        open_dataset(str(synthetic.built), **{option: value})
    assert open_dataset(str(synthetic.built), force_reload=False)


@pytest.mark.parametrize(
    "option",
    [
        {"hierarchy": "ignore"},
        {"tokenizer": "regex"},
        {"fields": ["venue"]},
        {"fields": []},
        {"num_documents": 5},
    ],
)
def test_BuiltFolder_refuses_to_make_another_graph(synthetic: Synthetic, option) -> None:
    """Settings of another graph are refused by name, with where to give them."""
    (name,) = option
    place = "data.options" if name == "num_documents" else "data"
    with pytest.raises(
        ConfigError, match=f"^A built folder, .* but {place}.{name} would make another"
    ):
        open_dataset(str(synthetic.built), **option)
    same = {"hierarchy": "use", "tokenizer": "whitespace", "fields": None}
    assert open_dataset(str(synthetic.built), **same).tokenizer == "whitespace"


def test_BuiltFolder_of_another_format_is_one_sentence(toy: Corpus, tmp_path: Path) -> None:
    """Another format, an unsafe name and a malformed layout are one sentence each."""
    built = open_dataset(toy, root=tmp_path).built
    about = json.loads((built / "corpus.json").read_text())
    changed = {**about, "source": {**about["source"], "format": 1}}
    (built / "corpus.json").write_text(json.dumps(changed))
    write_manifest(built)
    with pytest.raises(CorpusError, match="is of format 1; build it again from its source"):
        open_dataset(str(built))
    (built / "corpus.json").write_text(json.dumps({**about, "name": "../../up"}))
    write_manifest(built)
    with pytest.raises(CorpusError, match="it cannot be read: ValueError"):
        open_dataset(str(built))
    (built / "corpus.json").write_text(json.dumps({**about, "layout": {"columns": {"text": 5}}}))
    write_manifest(built)
    with pytest.raises(CorpusError, match="it cannot be read: ValidationError"):
        open_dataset(str(built))


def test_open_dataset_open_one_takes_no_options(synthetic: Synthetic) -> None:
    """An open data set takes no options."""
    assert open_dataset(synthetic) is synthetic
    with pytest.raises(ConfigError, match=r"takes no options, found \['num_documents'\]"):
        open_dataset(synthetic, num_documents=3)


@pytest.mark.parametrize("value", [3, None, pd.DataFrame({"id": ["a"]})])
def test_open_dataset_other_objects_are_one_sentence(value: Any) -> None:
    """Other objects are refused with the functions that make a corpus."""
    with pytest.raises(CorpusError) as caught:
        open_dataset(value)
    assert str(caught.value) == (
        f"A data set must be a name, a folder, a class by name, a Corpus, a HeteroData or an open "
        f"data set, found {type(value).__name__}; from_frames, from_hetero and from_networkx make "
        f"a Corpus."
    )


def test_name_source_transform_is_one_sentence(synthetic: Synthetic) -> None:
    """A transform is refused, as no file keeps it."""
    dataset = open_dataset(str(synthetic.built), transform=DropFields(["author"]))
    with pytest.raises(CorpusError, match="has a transform; make it a pre_transform"):
        name_source(dataset)


OWN = """
from pathlib import Path
from pydantic import Field
from match_graph import CorpusBuilder, CorpusDataset
from match_graph.config import StrictModel

class Notes(CorpusDataset):
    class Config(StrictModel):
        path: str = Field(description="the notes")

    path_options = ("path",)

    def read(self):
        builder = CorpusBuilder("notes", [], "The file must hold notes")
        for number, line in enumerate(Path(self.config.path).read_text().splitlines()):
            split = ("train", "valid", "test")[number % 3]
            builder.add(str(number), split, line, {}, [line[0]], f"line {number}")
        return builder.build([])
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's own data set class in a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("a b\nb c\nc d\n", encoding="utf-8")
    (tmp_path / "my_notes.py").write_text(OWN, encoding="utf-8")
    return "my_notes.py:Notes"


def test_CorpusDataset_of_ones_own_needs_read_alone(own: str, tmp_path: Path) -> None:
    """A class with `read` alone is opened by name, and built anew if an input changes."""
    root = tmp_path / "root"
    first = open_dataset(own, root=root, path="notes.txt")
    assert first.name == "notes"
    assert first.built.parent == root / "built"
    assert first.names("document").tolist() == ["0", "1", "2"]
    assert open_dataset(own, root=root, path="./notes.txt").checksum == first.checksum
    (tmp_path / "notes.txt").write_text("x y\nb c\nc d\n", encoding="utf-8")
    assert open_dataset(own, root=root, path="notes.txt").checksum != first.checksum
    assert list_options(own) == [{"option": "path", "default": "required", "meaning": "the notes"}]


TWO_FILES = """
from pathlib import Path
from match_graph import CorpusBuilder, CorpusDataset
from match_graph.config import StrictModel

class Two(CorpusDataset):
    class Config(StrictModel):
        train: str | None = None
        test: str | None = None

    path_options = ("train", "test")

    def read(self):
        builder = CorpusBuilder("two", [], "The files must hold notes")
        for split in ("train", "test"):
            if path := getattr(self.config, split):
                for line in Path(path).read_text().splitlines():
                    builder.add(line, split, line, {}, [line[0]], line)
        return builder.build([])
"""


def test_CorpusDataset_of_ones_own_tells_its_files_apart(own: str, tmp_path: Path) -> None:
    """Which option names which file is part of a build's key, not only what the files hold."""
    (tmp_path / "two.py").write_text(TWO_FILES, encoding="utf-8")
    (tmp_path / "other.txt").write_text("x y\n", encoding="utf-8")
    root = tmp_path / "root"
    opened = {
        names: open_dataset("two.py:Two", root=root, train=names[0], test=names[1])
        for names in [("notes.txt", "other.txt"), ("other.txt", "notes.txt"), ("notes.txt", None)]
    }
    assert len({one.checksum for one in opened.values()}) == 3
    first = {names: one.names("document")[0] for names, one in opened.items()}
    assert [*first.values()] == ["a b", "x y", "a b"]
    swapped = opened["other.txt", "notes.txt"]
    assert swapped.documents("train_mask").tolist() == [0]


def test_CorpusDataset_of_ones_own_tokenizes_as_it_says(own: str, tmp_path: Path) -> None:
    """Otherwise words of new documents would be split in another way than those of training."""
    code = OWN.replace('must hold notes")', 'must hold notes", tokenizer="whitespace")')
    (tmp_path / "my_notes.py").write_text(code, encoding="utf-8")
    with pytest.raises(CorpusError) as caught:
        open_dataset(own, root=tmp_path / "root", path="notes.txt")
    assert str(caught.value) == (
        "The documents of 'notes' must be tokenized as new ones will be, by 'regex', but its "
        "corpus is by 'whitespace'; let Notes.tokenizer return 'whitespace'."
    )
    (tmp_path / "mended.py").write_text(f'{code}\n    tokenizer = "whitespace"\n', "utf-8")
    dataset = open_dataset("mended.py:Notes", root=tmp_path / "root", path="notes.txt")
    assert dataset.tokenizer == "whitespace"


def test_CorpusDataset_of_ones_own_depends_on_its_code(own: str, tmp_path: Path) -> None:
    """Changed code is another build; the package's own classes have versions."""
    assert "code" in open_dataset(own, root=tmp_path / "root", path="notes.txt").source
    assert "code" not in Synthetic(root=tmp_path / "root", num_documents=200).source


def test_CorpusDataset_of_ones_own_depends_on_its_bases(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed code of a base class in another file is another build."""
    monkeypatch.syspath_prepend(tmp_path)
    base, derived = tmp_path / "my_notes.py", tmp_path / "more_notes.py"
    derived.write_text("import my_notes\n\n\nclass More(my_notes.Notes):\n    pass\n")
    source = open_dataset("more_notes.py:More", root=tmp_path / "root", path="notes.txt").source
    assert source["code"] == hash_file(derived) + hash_file(base)


def test_CorpusDataset_of_ones_own_refuses_what_is_none(own: str, tmp_path: Path) -> None:
    """A wrong option, a missing file and a class of another kind are refused."""
    with pytest.raises(ConfigError, match=r"The options of Notes must be valid: 'pth' is not"):
        open_dataset(own, path="notes.txt", pth="x")
    with pytest.raises(CorpusError, match="Data are read from regular files"):
        open_dataset(own, path="none.txt")
    with pytest.raises(ConfigError, match="naming a subclass of CorpusDataset, found 'os:path'"):
        open_dataset("os:path")
