"""The paper's released folders: words and names come back, counts stand beside Table 1."""

from pathlib import Path

import pytest

from match_graph.datasets import MagCs, PubMed, open_dataset
from match_graph.errors import CorpusError
from match_graph.graph import compare_counts, describe_graph
from match_graph.testing import toy_documents, write_release_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with both folders below ``raw``."""
    for name in ("MAG", "MeSH"):
        write_release_folder(tmp_path / "raw" / name)
    return tmp_path


@pytest.mark.parametrize(("name", "cls"), [("mag-cs", MagCs), ("pubmed", PubMed)])
def test_MagCs_words_and_names_come_back(root: Path, name: str, cls: type) -> None:
    """Ids are mapped to words by the vocabulary; labels and authors have names."""
    dataset = open_dataset(name, root=root)
    assert isinstance(dataset, cls)
    texts = [r["text"] for records in toy_documents().values() for r in records]
    table = dataset.table("document")
    assert table["text"].tolist() == [" ".join(text.split()) for text in texts]
    assert "C++." in set(dataset.names("word"))  # tokenised already: nothing is stripped
    for node_type, expected in (("label", "kernels"), ("author", "Åsa_Öberg")):
        names = dataset.table(node_type)
        assert expected in set(names["name"])
        assert names["id"].str.isdigit().all()
    assert dataset.notes["words_not_in_vocabulary"] == 0
    assert "name" not in dataset.table("venue")


def test_MagCs_words_that_vocabulary_lacks_are_kept_and_counted(root: Path) -> None:
    """Words that the vocabulary lacks are kept and counted."""
    path = root / "raw" / "MAG" / "vocabulary.txt"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[1:]), encoding="utf-8")
    dataset = MagCs(root=root)
    assert dataset.notes["words_not_in_vocabulary"] == 1
    assert "0" in set(dataset.names("word"))


def test_MagCs_without_vocabulary_and_names_the_ids_stand(root: Path) -> None:
    """The five files of the authors' code are enough; ids stay as they are."""
    for name in ("vocabulary.txt", "id2label.txt", "id2author.txt"):
        (root / "raw" / "MAG" / name).unlink()
    dataset = MagCs(root=root)
    assert dataset.table("document")["text"][0].startswith("0 1 2")
    assert "name" not in dataset.table("label")
    assert "words_not_in_vocabulary" not in dataset.notes


def test_MagCs_names_separated_by_a_blank_are_read(root: Path) -> None:
    """Names may be separated by a tab or blanks, as in the release's README."""
    path = root / "raw" / "MAG" / "id2author.txt"
    path.write_text(path.read_text("utf-8").replace("\t", "  "), encoding="utf-8")
    assert "Åsa_Öberg" in set(MagCs(root=root).table("author")["name"])


def test_MagCs_counts_are_compared_with_table_1(root: Path) -> None:
    """Every published count is compared."""
    dataset = MagCs(root=root)
    rows = {**describe_graph(dataset[0], dataset.targets), **dataset.notes}
    compared = compare_counts(rows, dataset.published)
    assert compared.keys() == MagCs.published.keys() == PubMed.published.keys()
    assert compared["train documents"] == (564_340, 8 - 564_340)
    assert compared["labels / document"] == (5.60, round(25 / 12 - 5.60, 2))


@pytest.mark.parametrize("cls", [MagCs, PubMed])
def test_PubMed_splits_of_table_1_are_its_documents(cls: type[MagCs]) -> None:
    """The splits of Table 1 sum to the documents of the paper's text."""
    parts = [cls.published[f"{split} documents"] for split in ("train", "valid", "test")]
    assert sum(parts) == cls.published["document-venue edges"]
    assert parts[0] / sum(parts) == pytest.approx(0.8, abs=1e-4)


def test_open_dataset_without_folder_message_says_what_put_where(tmp_path: Path) -> None:
    """A missing folder is answered with what to put where."""
    with pytest.raises(CorpusError) as caught:
        open_dataset("mag-cs", root=tmp_path)
    assert str(caught.value) == (
        f"The data set 'mag-cs' must be fetched by hand, but train.json and dev.json and test.json "
        f"and meta_dict.json and taxonomy.txt are not in '{tmp_path / 'raw' / 'MAG'}'; take the "
        f"link 'datasets' of https://github.com/yuzhimanhua/MATCH and unpack the folder MAG there."
    )


def test_PubMed_missing_file_is_named(root: Path) -> None:
    """A missing file is named, and the others are left alone."""
    (root / "raw" / "MeSH" / "dev.json").unlink()
    with pytest.raises(CorpusError, match=r"but dev\.json is not in '.*MeSH'; take the link"):
        PubMed(root=root)
