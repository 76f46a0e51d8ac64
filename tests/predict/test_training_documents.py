"""Documents in memory as a corpus: equal to that of files, and split by text."""

from collections import Counter

import pytest

from match_graph import Corpus
from match_graph.errors import CorpusError
from match_graph.graph import build_graph
from match_graph.predict.training_documents import make_corpus, split_documents
from match_graph.testing import toy_documents
from match_graph.testing.toy import TOY_FIELDS, TOY_TAXONOMY


def test_make_corpus_equals_a_folder(toy: Corpus) -> None:
    """Toy documents in memory give the tables and citations of the same ones in files."""
    by_split = toy_documents()
    documents = [one for split in by_split.values() for one in split]
    splits = [split for split, given in by_split.items() for _ in given]
    edges = [
        (child, line.split()[0], "by hand") for line in TOY_TAXONOMY for child in line.split()[1:]
    ]
    labels = [one["label"] for one in documents]
    found = make_corpus(documents, labels, splits, TOY_FIELDS, edges)
    assert found.documents.equals(toy.documents)
    for name, table in toy.instances.items():
        assert found.instances[name]["id"].tolist() == table["id"].tolist()
        assert found.edges[name].equals(toy.edges[name])
    pairs = ["child", "parent"]
    assert found.hierarchy[pairs].equals(toy.hierarchy[pairs])
    cites = ("document", "cites", "document")
    graphs = build_graph(found).data, build_graph(toy).data
    assert graphs[0][cites].edge_index.tolist() == graphs[1][cites].edge_index.tolist()
    assert graphs[0][cites].num_edges


def test_make_corpus_lists_all_faults() -> None:
    """Every fault has the number of its document, which stands for a missing id."""
    documents = [{"text": "a"}, ["b"], {"text": "c", "venue": 1.5}, {"paper": 2.5, "text": 3}]
    splits = ["train", "valid", "train", "train"]
    with pytest.raises(CorpusError) as caught:
        make_corpus(documents, [[]] * 4, splits, ["venue"], [])
    message = str(caught.value)
    assert message.startswith("The documents of a fit must be dicts in the MATCH format, but 4 f")
    for place in ("document 2: a document", "document 3: 'venue'", "document 4: 'paper'"):
        assert place in message
    corpus = make_corpus(documents[:1] * 1, [["x"]], ["train"], [], [])
    assert corpus.documents["id"].tolist() == ["document 1"]


def test_split_documents_keeps_equal_texts_together() -> None:
    """The share is one of distinct texts, chosen by the seed; copies stay together."""
    documents = [{"text": f"text {row % 20}"} for row in range(60)] + [{"text": ""}] * 20
    splits = split_documents(documents, 0.25, 3)
    of_text: dict[str, set[str]] = {}
    for record, split in zip(documents[:60], splits[:60], strict=True):
        of_text.setdefault(record["text"], set()).add(split)
    assert {len(found) for found in of_text.values()} == {1}
    copies = Counter(split for found in of_text.values() for split in found)
    assert copies["valid"] + Counter(splits[60:])["valid"] == 10
    assert 0 < Counter(splits[60:])["valid"] < 20
    assert splits == split_documents(documents, 0.25, 3) != split_documents(documents, 0.25, 4)


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_split_documents_leaves_no_split_empty(fraction: float) -> None:
    """Both splits have documents, however extreme the share."""
    splits = split_documents([{"text": "a"}, {"text": "b"}, {"text": "c"}], fraction, 0)
    assert {*splits} == {"train", "valid"}


def test_split_documents_needs_two_texts() -> None:
    """A single text is refused, as one is held out."""
    with pytest.raises(CorpusError, match=r"documents of at least two texts, .* found 1;"):
        split_documents([{"text": "a"}, {"text": "a"}], 0.5, 0)
