"""The CACM collection: what is read, against the MATCH folder made of it, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from corpora import map_instances

from match_graph.datasets import Cacm, CacmReader, MatchFolder, cacm, open_dataset
from match_graph.datasets.cacm import parent_code
from match_graph.datasets.options import split_by_text
from match_graph.errors import CorpusError

#: Dirty on purpose: a title of two lines with a blank at the end, a document that cites itself and
#: another twice, one without author, year and abstract, one without categories, a code alone.
RECORDS = """.I 1
.T
On Toys
.W
Toys are\x20
discussed.
.B
CACM July, 1969
.A
Li, A. B.
An, C.
.K
toys, Small
Blocks, toys
.C
5.14 5.1 3.02
.N
CA690716 JB February 15, 1978  6:25 PM
.X
2\t4\t1
3\t5\t1
3\t5\t1
1\t5\t1
2\t6\t1

.I 2
.T
On Caf\xe9s
.C
5.1 x 7 12.3
.I 3
.T
No category
.B
CACM May, 1958
.X
3\t5\t3
"""


def write(folder: Path, text: str = RECORDS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cacm.all").write_text(text, encoding="latin-1")
    return folder / "cacm.all"


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        CacmReader(path, Cacm.Config(**options)).read_corpus()
    return str(caught.value)


def test_CacmReader_parts_of_a_record(tmp_path: Path) -> None:
    """Lines are joined, lists sorted, and documents without labels counted."""
    config = Cacm.Config(fields=["venue", "author", "reference", "keyword"])
    corpus = CacmReader(write(tmp_path), config).read_corpus()
    texts = ["On Toys Toys are  discussed.", "On Caf\xe9s"]
    assert corpus.documents["text"].tolist() == texts
    assert corpus.documents["split"].tolist() == [split_by_text(text) for text in texts]
    assert map_instances(corpus, "label") == {"1": ["3.02", "5.1", "5.14"], "2": ["5.1"]}
    assert map_instances(corpus, "venue") == {"1": ["1969"], "2": []}
    assert map_instances(corpus, "author") == {"1": ["An,_C.", "Li,_A._B."], "2": []}
    assert map_instances(corpus, "reference") == {"1": ["3"], "2": []}
    assert map_instances(corpus, "keyword") == {"1": ["small_blocks", "toys"], "2": []}
    assert corpus.notes["documents_without_labels_dropped"] == 1
    edges = set(zip(corpus.hierarchy["child"], corpus.hierarchy["parent"], strict=True))
    assert edges == {("5.14", "5.1"), ("5.1", "5"), ("3.02", "3.0"), ("3.0", "3")}


@pytest.mark.parametrize(
    ("code", "parent"), [("5.14", "5.1"), ("3.02", "3.0"), ("5.1", "5"), ("5", None)]
)
def test_parent_code(code: str, parent: str | None) -> None:
    """The parent of a category has one digit less."""
    assert parent_code(code) == parent


def test_CacmReader_equals_the_match_folder(data_folder: Path, tmp_path: Path) -> None:
    """Text, labels, metadata and split of every document equal those of the MATCH folder."""
    raw, made = data_folder / "raw" / "cacm" / "cacm_slice.all", data_folder / "cacm"
    if not raw.is_file() or not made.is_dir():
        pytest.skip(f"no slice of cacm.all, or no cacm, in {data_folder}")
    fields = ["venue", "author", "reference", "keyword"]
    read = Cacm(path=str(raw), fields=fields, root=tmp_path)
    whole = MatchFolder(made, fields=fields, root=tmp_path)
    splits = whole.table("document").set_index("id")["split"]
    rows = {
        content["paper"]: {**content, "label": sorted(content["label"])}
        for content in whole.as_json(range(len(splits)))
    }
    found = read.as_json(range(len(read.table("document"))))
    assert len(found) == 40
    for content in found:
        assert {**content, "label": sorted(content["label"])} == rows[content["paper"]]
    own = read.table("document").set_index("id")["split"]
    assert own.to_dict() == splits[own.index].to_dict()
    assert read.notes["documents_without_labels_dropped"] == 10
    edges = set(
        CacmReader(raw)
        .read_corpus()
        .hierarchy[["child", "parent"]]
        .itertuples(index=False, name=None)
    )
    lines = [line.split() for line in (made / "taxonomy.txt").read_text().splitlines()]
    assert edges <= {(child, parent) for parent, *children in lines for child in children}


def test_open_dataset_cacm_below_the_root_is_read_from_there(tmp_path: Path) -> None:
    """A file below the root is read; one that is not the published file is warned of."""
    write(tmp_path / "raw" / "cacm")
    dataset = open_dataset("cacm", root=tmp_path)
    assert isinstance(dataset, Cacm)
    assert dataset.num_labels == 3
    assert dataset.warnings[0].endswith(
        "is not the file that the card tells of (its SHA-256 is another); its counts and results "
        "are others"
    )
    assert open_dataset("cacm", root=tmp_path, hierarchy="ignore").hierarchy.num_edges == 0


def test_Cacm_download_checks_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is fetched once and verified by its checksum."""
    calls = []

    def fetch(address: str, path: Path, dataset: str, track: object, checksum: str) -> None:
        calls.append((address, dataset, checksum))
        write(path.parent)

    monkeypatch.setattr(cacm, "fetch_file", fetch)
    for _ in range(2):
        assert Cacm(root=tmp_path).num_labels == 3
    assert calls == [(cacm.ADDRESS, "cacm", f"sha256:{cacm.SHA256}")]


def test_Cacm_path_without_a_file_is_refused(tmp_path: Path) -> None:
    """A path without the file is refused, and nothing is fetched."""
    path = tmp_path / "cacm.all"
    with pytest.raises(CorpusError) as caught:
        Cacm(path=str(path), root=tmp_path)
    assert str(caught.value) == (
        f"The option 'path' of 'cacm' must name the file cacm.all, but there is none at '{path}'; "
        f"check the path."
    )


def test_CacmReader_faults_are_named_by_line(tmp_path: Path) -> None:
    """A malformed citation, a line outside of fields and a repeated id are named by line."""
    text = RECORDS.replace("2\t4\t1", "2 4").replace(".T\nOn Caf", "odd\n.T\nOn Caf")
    path = write(tmp_path, text + ".I 1\n.T\nAgain\n.C\n1.1\n.I 9\n.C\n1.1\n.I 9\n.C\n1.2\n")
    assert refusal(path).splitlines() == [
        f"The file '{path}' must be the CACM collection, but 3 faults were found:",
        "  cacm.all:20: a line of .X must be three numbers, found '2 4'; mend or remove the line.",
        "  cacm.all:27: a line must stand in a field of a record, which begins with '.I' and its "
        "number, found 'odd'; fetch the file again.",
        "  cacm.all:47: the document '9' was given before (cacm.all:44); every document needs an "
        "id of its own.",
    ]
    dataset = Cacm(path=str(path), root=tmp_path, faults="skip")
    assert sorted(dataset.names("document")) == ["1", "9"]
    assert dataset.table("document").set_index("id")["text"]["1"] == "Again"
    assert dataset.faults["place"].tolist() == ["cacm.all:20", "cacm.all:27", "cacm.all:47"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "cacm.all:1: the file must hold records, found none; fetch it again."),
        (
            '{"paper": 1}\n{"paper": 2}\n',
            "cacm.all:1: a line must stand in a field of a record, which begins with '.I' and its "
            "number, found '{\"paper\": 1}'; fetch the file again.",
        ),
    ],
)
@pytest.mark.parametrize("faults", ["refuse", "skip"])
def test_CacmReader_file_of_another_kind(
    tmp_path: Path, text: str, sentence: str, faults: Any
) -> None:
    """A file without records is one sentence, also if faults are skipped."""
    with pytest.raises(CorpusError) as caught:
        CacmReader(write(tmp_path, text), faults=faults).read_corpus()
    assert str(
        caught.value
    ) == f"The file '{tmp_path / 'cacm.all'}' must be the CACM collection: " + (sentence)


def test_CacmReader_record_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a record of many short lines is bounded."""
    monkeypatch.setenv("MATCH_GRAPH_MAX_RECORD_MIB", "1")
    path = write(tmp_path, ".I 1\n.T\n" + "word\n" * 300_000)
    assert refusal(path) == (
        "cacm.all:209717: a record must have at most 1 MiB, but this one has more; mend the file, "
        "or set MATCH_GRAPH_MAX_RECORD_MIB."
    )
