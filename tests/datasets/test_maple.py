"""MAPLE's JSON release, and how the files of both releases come to the root."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from match_graph.datasets import Maple, MapleReader, maple, open_dataset
from match_graph.errors import ConfigError, CorpusError

PAPERS: list[dict[str, Any]] = [
    {
        "paper": str(100 + n), "venue": "V1", "year": str(2000 + n), "title": f"paper {n}",
        "label": ["11", "12"], "author": ["A1", f"A{n}"], "reference": ["100", "999"],
        "abstract": "on toys", "title_raw": f"Paper {n}", "abstract_raw": "On toys.",
    }
    for n in range(20)
]  # fmt: skip
NAMES = {
    "labels.txt": "11\tscience\t1\n12\ttoys\t2\n13\tunused\t3\n",
    "authors.txt": "A1\tbo an\tBo Án\nA2\tno raw\n",
    "venues.txt": "V1\tjournal of toys\tJournal of Toys\n",
}


def write_json(folder: Path, papers: list[Any] = PAPERS, **names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(paper)}\n" for paper in papers)
    (folder / "papers.json").write_text(text, encoding="utf-8")
    for name, content in {**NAMES, **names}.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def write_archive(path: Path, subjects: tuple[str, ...] = ("Art", "History")) -> Path:
    folder = write_json(path.parent / "beside")
    with zipfile.ZipFile(path, "w") as file:
        for subject in subjects:
            for name in ("papers.json", *NAMES):
                file.write(folder / name, f"MAPLE/{subject}/{name}")
    for name in ("papers.json", *NAMES):
        (folder / name).unlink()
    folder.rmdir()
    return path


def refusal(root: Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        Maple(root=root, **options)
    return str(caught.value)


def test_open_dataset_papers_become_documents_with_names_depths(tmp_path: Path) -> None:
    """Papers are split by year; names and depths of labels are read."""
    write_json(tmp_path / "raw/maple/json/Art")
    dataset = open_dataset("maple", root=tmp_path)
    table = dataset.table("document")
    assert table["text"][3] == "paper 3 on toys"
    years = table["split"].groupby(table["id"].astype(int) - 100 + 2000 <= 2015).agg(set)
    assert years[False] == {"test"}
    seconds = (dataset[0]["document"].time * 86_400).numpy().astype("datetime64[s]")
    assert (seconds.astype("datetime64[Y]").astype(int) == table["id"].astype(int) - 70).all()
    assert years[True] <= {"train", "valid"}
    labels = dataset.table("label").set_index("id")
    assert labels["name"].to_dict() == {"11": "science", "12": "toys"}
    assert labels["depth"].to_dict() == {"11": 1, "12": 2}
    authors = dataset.table("author").set_index("id")["name"]
    assert (authors["A1"], authors["A2"], authors["A3"]) == ("Bo Án", "no raw", "A3")
    assert dataset.table("venue")["name"].tolist() == ["Journal of Toys"]
    assert dataset.name == "maple-Art"
    assert dataset.hierarchy.num_edges == 0


def test_Maple_taxonomy_beside_the_files_is_the_hierarchy(tmp_path: Path) -> None:
    """A taxonomy beside the files is optional."""
    write_json(tmp_path / "raw/maple/json/Art", **{"taxonomy.txt": "11 12 13\n"})
    assert Maple(root=tmp_path).hierarchy.num_edges == 1
    assert Maple(root=tmp_path, hierarchy="ignore").hierarchy.num_edges == 0


def test_Maple_taxonomy_with_a_self_loop_is_refused(tmp_path: Path) -> None:
    """A self-loop is refused with its place; nothing is built."""
    write_json(tmp_path / "raw/maple/json/Art", **{"taxonomy.txt": "11 12\n12 12\n"})
    assert refusal(tmp_path) == (
        "The corpus 'maple' must be consistent: the label hierarchy must be acyclic, but "
        "12 -> 12 is a cycle (taxonomy.txt:2); remove one of these edges, or leave the "
        "hierarchy out (of files: data.hierarchy=ignore)."
    )
    assert [path.suffix for path in (tmp_path / "built").iterdir()] == [".lock"]


def test_open_dataset_options_reach_the_reader(tmp_path: Path) -> None:
    """Subject, fields and dates reach the reader; a subject cannot be a path."""
    write_json(tmp_path / "raw/maple/json/History")
    dataset = open_dataset(
        "maple", root=tmp_path, subject="History", fields=["author"], train_until=2010,
        valid_until="2012",
    )  # fmt: skip
    assert [len(dataset.documents(f"{n}_mask")) for n in ("train", "val", "test")] == [11, 2, 7]
    assert dataset[0].node_types == ["document", "author", "word", "label"]
    with pytest.raises(ConfigError, match="'subject': String should match pattern"):
        open_dataset("maple", root=tmp_path, subject="../x")


def test_MapleReader_papers_without_year_abstract_labels(tmp_path: Path) -> None:
    """Papers without year, abstract or labels are kept.

    None of these is a fault.
    """
    folder = write_json(tmp_path, [PAPERS[0], {"paper": 7}, {**PAPERS[2], "year": 2019}])
    corpus = MapleReader(folder, Maple.Config()).read_corpus()
    assert corpus.documents["text"].tolist() == ["paper 0 on toys", "", "paper 2 on toys"]
    assert corpus.documents["split"].tolist()[1:] == ["train", "test"]
    assert corpus.notes["undated_documents_in_train"] == 1


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "paper": ({"paper": None}, "'paper' must be the document's id, found nothing."),
    "title": ({"title": 5}, "'title' must be a string, found the number 5."),
    "year": ({"year": ["1", "2"]}, '\'year\' must be a string, found the list ["1", "2"].'),
    "label": (
        {"label": {}},
        "'label' must be a string or a list of strings, found the object {}.",
    ),
    "author": (
        {"author": [1.5]},
        "'author' must be a string or a list of strings, found the list [1.5].",
    ),
    "repeated": (
        {"paper": "100"},
        "the document '100' was given before (papers.json:1); every document needs an id of its "
        "own.",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_MapleReader_wrong_values_are_named_by_line(tmp_path: Path, name: str) -> None:
    """Wrong values are named by line and shown."""
    change, fault = FAULTS[name]
    folder = write_json(tmp_path, [*PAPERS[:2], {**PAPERS[2], **change}])
    with pytest.raises(CorpusError) as caught:
        MapleReader(folder, Maple.Config()).read_corpus()
    assert str(caught.value) == (
        f"The folder '{folder}' must be one of MAPLE's: papers.json:3: {fault}"
    )


def test_MapleReader_broken_names_and_depths_named_by_line(tmp_path: Path) -> None:
    """Names without a tab and malformed depths are named by line."""
    names = {"labels.txt": "11\tscience\tdeep\n", "authors.txt": "A1 bo\n"}
    folder = write_json(tmp_path, **names)
    with pytest.raises(CorpusError) as caught:
        MapleReader(folder, Maple.Config()).read_corpus()
    assert str(caught.value).splitlines()[1:] == [
        "  labels.txt:1: the depth of a label must be a whole number below 1,000, found 'deep'; "
        "fetch the file again.",
        "  authors.txt:1: a line must have two columns by tab, found 'A1 bo'; "
        "fetch the file again.",
    ]


def test_Maple_archive_below_the_root_is_unpacked(tmp_path: Path) -> None:
    """An archive below the root is extracted once, and only the subject of it."""
    folder = tmp_path / "raw/maple/json"
    folder.mkdir(parents=True)
    archive = write_archive(folder / "MAPLE.zip")
    assert open_dataset("maple", root=tmp_path, subject="History")[0]["document"].num_nodes == 20
    assert {path.name for path in folder.iterdir()} == {"MAPLE.zip", "History"}
    archive.unlink()
    assert len(Maple(subject="History", root=tmp_path)) == 1


def test_Maple_archives_are_fetched_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without archives the record is fetched once."""
    fetched = []

    def fetch(record: int, folder: Path, dataset: str, _track: object) -> list[Path]:
        fetched.append((record, dataset))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "README.txt").write_text("read me")
        return [folder / "README.txt", write_archive(folder / "MAPLE.zip")]

    monkeypatch.setattr(maple, "fetch_record", fetch)
    assert len(Maple(root=tmp_path)) == len(Maple(root=tmp_path, subject="History")) == 1
    assert fetched == [(7611544, "maple")]


def test_Maple_damage_seen_late_leaves_nothing_of_a_subject(tmp_path: Path) -> None:
    """An archive that is damaged at its end leaves no incomplete subject."""
    folder = tmp_path / "raw/maple/json"
    folder.mkdir(parents=True)
    archive = write_archive(folder / "MAPLE.zip")
    whole = archive.read_bytes()
    place = whole.rindex(b"journal of toys", 0, whole.index(b"PK\1\2"))
    archive.write_bytes(whole[:place] + b"J" + whole[place + 1 :])
    for _ in range(2):
        assert "must be whole" in refusal(tmp_path, subject="History")
        assert not [*(folder / "History").iterdir()]
    archive.write_bytes(whole)
    data = Maple(root=tmp_path, subject="History")
    assert {"papers.json", "venues.txt"} <= {path.name for path in Path(data.raw_dir).iterdir()}


def test_Maple_record_broken_off_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An incomplete download is resumed by the next call."""
    folder = tmp_path / "raw/maple/json"
    folder.mkdir(parents=True)
    write_archive(folder / "A.zip", ("Art",))

    def fetch(_record: int, folder: Path, _dataset: str, _track: object) -> list[Path]:
        return [write_archive(folder / "B.zip", ("History",))]

    monkeypatch.setattr(maple, "fetch_record", fetch)
    assert "must hold a folder 'History'" in refusal(tmp_path, subject="History")
    monkeypatch.setattr(maple, "is_broken_off", lambda _: True)
    assert len(Maple(root=tmp_path, subject="History")) == 1


def test_Maple_unknown_subject_lists_the_known_ones(tmp_path: Path) -> None:
    """An unknown subject is refused with the known ones."""
    folder = tmp_path / "raw/maple/json"
    folder.mkdir(parents=True)
    write_archive(folder / "MAPLE.zip")
    assert refusal(tmp_path, subject="Arts") == (
        f"The archives of 'maple' must hold a folder 'Arts' with papers.json, but those in "
        f"'{folder}' do not; choose a subject from ['Art', 'History'], or fetch them again."
    )


def test_Maple_archive_with_a_way_out_is_not_unpacked(tmp_path: Path) -> None:
    """An archive with a path out of its folder is not extracted."""
    folder = tmp_path / "raw/maple/json"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(write_archive(folder / "MAPLE.zip"), "a") as file:
        file.writestr("MAPLE/../../../papers.json", "{}")
    assert refusal(tmp_path) == (
        f"An archive must hold files and folders below its own folder, but "
        f"'MAPLE/../../../papers.json' of '{folder / 'MAPLE.zip'}' leads out of it; "
        f"do not use this archive."
    )
    assert list(folder.glob("Art/*")) == []


def test_Maple_taxonomy_that_is_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    """A dangling link is refused, not read as an absent taxonomy."""
    folder = write_json(tmp_path / "raw" / "maple" / "json" / "Art")
    (folder / "taxonomy.txt").symlink_to(tmp_path / "gone")
    assert refusal(tmp_path) == (
        f"Data are read from regular files, but '{folder / 'taxonomy.txt'}' is none that can "
        f"be read (No such file or directory); check the path."
    )
