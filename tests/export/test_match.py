"""Back to the release's format: what is read again equals what was built."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch_geometric.data import HeteroData

from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets import CorpusDataset, MatchFolder, Synthetic
from match_graph.errors import ExportError
from match_graph.export import ExportOptions, export_dataset
from match_graph.graph import describe_graph
from match_graph.testing import toy_corpus, write_match_folder
from match_graph.typing import TAGGED

ALL = ExportOptions(include_labels="all")


def assert_equal(found: CorpusDataset, expected: CorpusDataset) -> None:
    """Compares tables, tensors and gold labels, the latter as sets."""
    data, built = found[0], expected[0]
    assert data.node_types == built.node_types
    assert data.edge_types == built.edge_types
    for store, other in zip(data.stores, built.stores, strict=True):
        for key, value in other.items():
            pair = [store[key], value]
            if store._key == TAGGED:
                pair = [sorted(edges.t().tolist()) for edges in pair]
            assert torch.equal(*pair) if torch.is_tensor(pair[0]) else pair[0] == pair[1], key
    for node_type in data.node_types:
        pd.testing.assert_frame_equal(found.table(node_type), expected.table(node_type))
    assert torch.equal(found.targets.ptr, expected.targets.ptr)
    assert torch.equal(found.targets.index, expected.targets.index)


def test_export_dataset_toy_corpus_comes_back(toy_dataset: MatchFolder, tmp_path: Path) -> None:
    """With all labels, every tensor makes a round trip."""
    out = export_dataset(toy_dataset, "match", tmp_path / "toy", ALL)
    assert_equal(MatchFolder(out), toy_dataset)


@pytest.mark.parametrize("name", ["cacm", "biotools"])
def test_export_dataset_real_corpora_come_back(
    data_folder: Path, tmp_path: Path, name: str
) -> None:
    """Up to 1,500 documents of each split of real corpora make a round trip."""
    if not (data_folder / name).is_dir():
        pytest.skip(f"no {name} in {data_folder}")
    raw = tmp_path / "raw"
    shutil.copytree(data_folder / name, raw)
    for path in (raw / "train.json", raw / "dev.json", raw / "test.json"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(lines[:1500]), encoding="utf-8")
    dataset = MatchFolder(raw, root=tmp_path / "root")
    out = export_dataset(dataset, "match", tmp_path / name, ALL)
    assert_equal(MatchFolder(out), dataset)


def test_export_dataset_corpus_mixes_splits_comes_back_in_order(
    synthetic: Synthetic, tmp_path: Path
) -> None:
    """A corpus with mixed splits is grouped by split; its counts stay."""
    out = export_dataset(synthetic, "match", tmp_path / "out", ALL)
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert "match-graph build FOLDER --set data.tokenizer=whitespace" in text
    found = MatchFolder(out, tokenizer="whitespace")
    rows = describe_graph(found[0], found.targets)
    assert rows == pytest.approx(describe_graph(synthetic[0], synthetic.targets))


def test_export_dataset_training_export_training_labels_alone(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Labels of other splits are empty lists, and labels of test alone are unknown."""
    out = export_dataset(toy_dataset, "match", tmp_path / "toy")
    for name in ("dev.json", "test.json"):
        records = [json.loads(line) for line in (out / name).read_text("utf-8").splitlines()]
        assert [record["label"] for record in records] == [[], []]
    found = MatchFolder(out)
    assert set(toy_dataset.names("label")) - set(found.names("label")) == {"cells"}
    assert "7 of 8 labels are on an exported document" in (out / "EXPORT.md").read_text("utf-8")


def test_export_dataset_labels_with_white_space_escaped_named(
    given_dataset, tmp_path: Path
) -> None:
    """Labels with white space are escaped, and named in id2label.txt."""
    builder = CorpusBuilder("spaces", [], "spaces")
    builder.add("d", "train", "w", {}, ["New York", "100%", "Earth"], "1")
    hierarchy = [("New York", "Earth", ""), ("100%", "New York", "")]
    dataset = given_dataset(builder.build(hierarchy), tmp_path)
    out = export_dataset(dataset, "match", tmp_path / "out", ALL)
    assert sorted((out / "taxonomy.txt").read_text("utf-8").splitlines()) == [
        "Earth New%20York", "New%20York 100%25"
    ]  # fmt: skip
    labels = MatchFolder(out, tokenizer="whitespace").table("label")
    assert dict(zip(labels["id"], labels["name"], strict=True)) == {
        "New%20York": "New York", "100%25": "100%", "Earth": "Earth"
    }  # fmt: skip


def test_export_dataset_names_come_back_and_depths_do_not(given_dataset, tmp_path: Path) -> None:
    """Names make a round trip; the loss of depths is mentioned."""
    for number, name in enumerate(["a\ttab", "two\nlines"]):
        builder = CorpusBuilder("names", ["author"], "names")
        builder.add("d", "train", "w", {"author": ["a 1", "a\t2"]}, ["l1", "l2"], "1")
        builder.set_name("label", "l1", name)
        builder.set_name("author", "a 1", "Åsa")
        builder.set_name("author", "a\t2", "Bo")
        builder.set_depth("l2", 3)
        dataset = given_dataset(builder.build([]), tmp_path / str(number))
        out = export_dataset(dataset, "match", tmp_path / str(number) / "out", ALL)
        found = MatchFolder(out, tokenizer="whitespace")
        labels, authors = (found.table(kind).set_index("id") for kind in ("label", "author"))
        assert labels["name"].to_dict() == {"l1": name.replace("\n", " "), "l2": "l2"}
        assert authors["name"].to_dict() == {"a 1": "Åsa", "a\t2": "a\t2"}
        text = (out / "EXPORT.md").read_text("utf-8")
        assert ("id2label.txt has one name a line" in text) == ("\n" in name)
        assert "id2author.txt has one name a line" in text
        assert "The depth of labels: the format has no place for it." in text


def test_MatchTarget_words_that_are_not_those_of_the_texts(given_dataset, tmp_path: Path) -> None:
    """Words that differ from the tokenized texts are refused before writing."""
    corpus = toy_corpus()
    first = corpus.documents["id"][0]
    texts = ["other words", *corpus.documents["text"][1:]]
    dataset = given_dataset(
        replace(corpus, documents=corpus.documents.assign(text=texts)), tmp_path
    )
    with pytest.raises(ExportError) as caught:
        export_dataset(dataset, "match", tmp_path / "out", ExportOptions(text="raw"))
    assert str(caught.value) == (
        f"The format 'match' holds texts of which a reader makes the words, but the words of "
        f"document '{first}' are not those of its text by the tokenizer 'regex'; choose "
        f"--text words or another target."
    )
    assert not (tmp_path / "out").exists()
    assert export_dataset(dataset, "match", tmp_path / "out", ExportOptions(text="words"))


def test_MatchTarget_edges_that_the_format_lacks(tmp_path: Path) -> None:
    """Edges that a pre_transform added are refused by name."""

    def join(data: HeteroData) -> HeteroData:
        data["author", "knows", "author"].edge_index = torch.tensor([[0], [1]])
        return data

    folder = write_match_folder(tmp_path / "toy")
    dataset = MatchFolder(folder, root=tmp_path, pre_transform=join)
    with pytest.raises(ExportError) as caught:
        export_dataset(dataset, "match", tmp_path / "out")
    assert str(caught.value) == (
        "The format 'match' has a place for documents, what they have, and the hierarchy of "
        "labels, but the graph has [('author', 'knows', 'author')] too; choose another target."
    )


def test_export_dataset_nodes_that_no_document_carries(given_dataset, tmp_path: Path) -> None:
    """Nodes on no document are left out, with a note."""
    corpus = toy_corpus()
    instances = dict(corpus.instances)
    for name in ("author", "word"):
        alone = pd.DataFrame({"id": [f"no {name}"]}, dtype=str)
        instances[name] = pd.concat([instances[name], alone], ignore_index=True)
    dataset = given_dataset(replace(corpus, instances=instances), tmp_path)
    options = ExportOptions(include_labels="all", text="words")
    out = export_dataset(dataset, "match", tmp_path / "out", options)
    assert "not in it: 1 of author, 1 of word." in (out / "EXPORT.md").read_text("utf-8")
    found = MatchFolder(out, tokenizer="whitespace").names("author").tolist()
    assert sorted(found) == sorted(corpus.instances["author"]["id"])
