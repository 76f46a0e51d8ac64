"""The tables of names in MAPLE's folders."""

from pathlib import Path

from match_graph.corpus import CorpusBuilder
from match_graph.datasets.maple_names import read_label_names, read_names
from match_graph.io.source import open_sources


def test_read_names_and_depths_of_what_documents_have(tmp_path: Path) -> None:
    """The last column but the id is the name; MeSH labels have no depth; files may be missing."""
    builder = CorpusBuilder("little", ["author"], "Names must be readable")
    builder.add("d", "train", "", [], {"author": ["1", "2", "3"]}, ["a", "b"], "f:1")
    (tmp_path / "authors.txt").write_text("1\tbo an\tBo Án\n2\tli\t\n9\tnobody\n")
    (tmp_path / "labels.txt").write_text("a\tAnimals\nb\tbooks\t4\n")
    with open_sources([], "little", None) as sources:
        read_names(tmp_path / "authors.txt", "author", builder, sources)
        read_label_names(tmp_path / "labels.txt", builder, sources)
        read_names(tmp_path / "none.txt", "author", builder, sources)
        read_label_names(tmp_path / "none.txt", builder, sources)
    instances = builder.build([]).instances
    assert instances["author"]["name"].tolist() == ["Bo Án", "li", "3"]
    assert instances["label"]["name"].tolist() == ["Animals", "books"]
    assert instances["label"]["depth"].fillna(0).tolist() == [0, 4]
