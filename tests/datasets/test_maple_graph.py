"""MAPLE's graph release."""

from pathlib import Path

import pytest
from corpora import list_instances

from match_graph.datasets import Maple, MapleReader, open_dataset
from match_graph.errors import ConfigError, CorpusError

FILES = {
    "papers.txt": "PAPER_1\ton small toys\nPAPER_2\ton\tbig toys\nPAPER_3\t\n",
    "labels.txt": "LABEL_11\tscience\nLABEL_12\ttoys\nLABEL_13\tunused\n",
    "venues.txt": "VENUE_5\tjournal of toys\n",
    "authors.txt": "AUTHOR_7\tbo\nAUTHOR_8\tli\n",
    "paper-label.txt": "PAPER_2\tLABEL_12\nPAPER_1\tLABEL_11\nPAPER_2\tLABEL_11\n",
    "paper-venue.txt": "PAPER_1\tVENUE_5\nPAPER_3\tVENUE_5\n",
    "paper-author.txt": "PAPER_3\tAUTHOR_8\nPAPER_1\tAUTHOR_8\nPAPER_1\tAUTHOR_7\n",
    "paper-paper.txt": "PAPER_2\tPAPER_1\nPAPER_1\tPAPER_9\n",
    "meshs.txt": "MESH_D1\tanimals\n",
    "paper-mesh.txt": "PAPER_1\tMESH_D1\nPAPER_3\tMESH_D1\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The release of one subject, in its place below a root."""
    folder = tmp_path / "raw/maple/graph/Biology"
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(CorpusError) as caught:
        MapleReader(folder, Maple.Config(release="graph")).read_corpus()
    return str(caught.value).removeprefix(f"The folder '{folder}' must be one of MAPLE's: ")


def test_MapleReader_edges_in_any_order_come_to_papers(folder: Path) -> None:
    """Edges in any order are read; ids lose their prefixes, and names are set."""
    corpus = MapleReader(folder, Maple.Config(release="graph")).read_corpus()
    assert corpus.documents["id"].tolist() == ["1", "2", "3"]
    assert corpus.documents["text"].tolist() == ["on small toys", "on\tbig toys", ""]
    assert list_instances(corpus, "label") == [["11"], ["12", "11"], []]
    assert list_instances(corpus, "author") == [["8", "7"], [], ["8"]]
    assert list_instances(corpus, "venue") == [["5"], [], ["5"]]
    assert list_instances(corpus, "reference") == [["9"], ["1"], []]
    names = corpus.instances["label"].set_index("id")["name"]
    assert names.to_dict() == {"11": "science", "12": "toys"}
    assert corpus.instances["author"].set_index("id")["name"].to_dict() == {"7": "bo", "8": "li"}


def test_open_dataset_mesh_labels_and_a_taxonomy_are_options(folder: Path) -> None:
    """MeSH labels and a taxonomy can be chosen."""
    (folder / "taxonomy.txt").write_text("11 12\n")
    root = folder.parents[3]
    options = {"root": root, "subject": "Biology", "release": "graph"}
    dataset = open_dataset("maple", **options)
    assert dataset.hierarchy.num_edges == 1
    assert dataset[0]["document"].train_mask.sum() == 3 - dataset[0]["document"].test_mask.sum()
    mesh = open_dataset("maple", labels="mesh", fields=["venue"], hierarchy="ignore", **options)
    assert mesh.table("label")[["id", "name"]].to_numpy().tolist() == [["D1", "animals"]]


def test_MapleReader_files_that_a_subject_lacks_are_empty(folder: Path) -> None:
    """Only papers and their labels are required."""
    for name in FILES:
        if name not in ("papers.txt", "paper-label.txt"):
            (folder / name).unlink()
    corpus = MapleReader(folder, Maple.Config(release="graph")).read_corpus()
    assert list_instances(corpus, "author") == [[], [], []]
    assert "name" not in corpus.instances["label"]


def test_MapleReader_faults_name_their_lines(folder: Path) -> None:
    """An unknown paper, a line without a tab and a repeated paper are named by line."""
    (folder / "paper-label.txt").write_text("PAPER_1\tLABEL_11\nPAPER_8\tLABEL_11\n")
    assert refusal(folder) == (
        "paper-label.txt:2: an edge must start at a paper of papers.txt, found 'PAPER_8'; "
        "fetch the files again."
    )
    (folder / "paper-label.txt").write_text("PAPER_1 LABEL_11\n")
    assert refusal(folder) == (
        "paper-label.txt:1: a line must have two columns by tab, found 'PAPER_1 LABEL_11'; "
        "fetch the file again."
    )
    (folder / "paper-label.txt").write_text("PAPER_1\tLABEL_11\n")
    (folder / "papers.txt").write_text(FILES["papers.txt"] + "PAPER_2\tagain\n")
    assert refusal(folder) == (
        "papers.txt:4: the document '2' was given before (papers.txt:2); "
        "every document needs an id of its own."
    )


def test_Maple_checks_the_dates_that_the_graph_release_has_not(tmp_path: Path) -> None:
    """A malformed date is refused, a valid one ignored, as there are no years."""
    given = Maple.Config(release="graph", train_until="2014", valid_until="2015")
    assert given == Maple.Config(release="graph")
    with pytest.raises(ConfigError, match="a date must be a year, a month or a day"):
        open_dataset("maple", root=tmp_path, release="graph", train_until="soon")


def test_MapleReader_skips_no_edges(folder: Path) -> None:
    """A broken line of edges is refused, as its paper might lack a label."""
    (folder / "paper-label.txt").write_text("PAPER_2\tLABEL_12\nPAPER_1 LABEL_11\n")
    with pytest.raises(CorpusError, match=r"paper-label\.txt:2: a line must have two"):
        MapleReader(folder, Maple.Config(release="graph"), faults="skip").read_corpus()


def test_MapleReader_skips_a_paper_with_its_edges(folder: Path) -> None:
    """A skipped paper takes its edges along, and counts as one fault."""
    broken = b"PAPER_1\ton small \xff toys\nPAPER_2\ton\tbig toys\nPAPER_3\n\n"
    (folder / "papers.txt").write_bytes(broken)
    with (folder / "paper-author.txt").open("a") as file:
        file.write("PAPER_4\tAUTHOR_7\n")
    corpus = MapleReader(folder, Maple.Config(release="graph"), faults="skip").read_corpus()
    assert corpus.documents["id"].tolist() == ["2"]
    assert list_instances(corpus, "reference") == [["1"]]
    places = ["papers.txt:1", "papers.txt:3", "paper-author.txt:4"]
    assert corpus.skipped["place"].tolist() == places
