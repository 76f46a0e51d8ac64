"""bio.tools with EDAM: what is read, against the MATCH folder made of it, and what is refused."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from corpora import map_instances

from match_graph.corpus import Corpus
from match_graph.datasets import BioTools, MatchFolder, biotools, open_dataset
from match_graph.datasets.biotools import BioToolsReader, find_ontology, find_records
from match_graph.datasets.biotools_record import BioToolsRecord
from match_graph.datasets.edam import read_edam
from match_graph.datasets.options import split_by_text
from match_graph.errors import CorpusError
from match_graph.io.source import max_record_bytes, open_sources

HEAD = (
    '<?xml version="1.0"?>\n<rdf:RDF xmlns:owl="http://www.w3.org/2002/07/owl#"\n'
    'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"\n'
    'xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#">\n'
)
EDAM = "http://edamontology.org/"
DEPRECATED = "http://www.w3.org/2002/07/owl#DeprecatedClass"
#: A diamond (topic_4), an obsolete class (topic_5), classes that no label lies below.
CLASSES = {
    "topic_1": ("Topic", []),
    "topic_2": ("Genes", ["topic_1"]),
    "topic_3": ("Cells", ["topic_1"]),
    "topic_4": ("Gene\n expression", ["topic_2", "topic_3"]),
    "topic_5": ("Old", [DEPRECATED]),
    "topic_6": ("Unused", ["topic_4"]),
    "operation_1": ("Operation", []),
}


def make_class(name: str, label: str, parents: list[str]) -> str:
    above = "".join(
        f'<rdfs:subClassOf rdf:resource="{parent if ":" in parent else EDAM + parent}"/>'
        for parent in parents
    )
    above += "<rdfs:subClassOf><owl:Restriction><owl:Class/></owl:Restriction></rdfs:subClassOf>"
    shown = f"<rdfs:label>{label}</rdfs:label>" if label else ""
    return f'<owl:Class rdf:about="{EDAM}{name}">{above}{shown}</owl:Class>\n'


def wrap(*classes: str) -> str:
    other = f'<owl:Class rdf:about="{DEPRECATED}"/>\n'
    return f"{HEAD}{''.join(classes)}{other}</rdf:RDF>\n"


ONTOLOGY = wrap(*(make_class(name, *given) for name, given in CLASSES.items()))


def term(name: str) -> dict[str, str]:
    return {"term": "?", "uri": EDAM + name}


#: Dirty on purpose: a publication without metadata, metadata without journal, no description, a
#: name of white space, a term of no ontology, an obsolete label, one that EDAM does not have.
TOOLS: dict[str, dict[str, Any]] = {
    "a-tool": {
        "biotoolsID": "A-tool",
        "name": "A tool",
        "description": "finds genes. ",
        "topic": [term("topic_4"), term("topic_2"), term("topic_4"), {"uri": "http://x.org/1"}],
        "function": [{"operation": [term("operation_1")]}, {"operation": []}, {}],
        "publication": [
            {"pmid": "12", "pmcid": "PMC3", "metadata": None},
            {
                "doi": "10.1/x y",
                "metadata": {
                    "title": "On a tool", "abstract": "It is there.", "journal": "Some Journal",
                    "authors": [{"name": "Li B."}, {"name": "An A."}, {"name": None}],
                },
            },
            {"doi": None, "pmcid": "PMC9", "metadata": {"title": "B", "authors": [{"name": "Bo"}]}},
        ],
        "relation": [{"biotoolsID": "b", "type": "uses"}, {"type": "uses"}],
        "credit": [{"name": "Some  Team"}, {"name": " "}, {"url": "u"}],
        "language": ["Visual Basic", "C", "C"],
        "toolType": ["Web application"],
    },
    "b": {"biotoolsID": "b", "name": "b", "topic": [term("topic_5"), term("topic_99")]},
    "c": {"biotoolsID": "c", "name": "c", "description": "no labels", "topic": []},
}  # fmt: skip


def write(folder: Path, tools: dict[str, Any] | None = None) -> Path:
    """A checkout with the ontology in it."""
    for name, record in (TOOLS if tools is None else tools).items():
        path = folder / "data" / name / f"{name}.biotools.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(record if isinstance(record, str) else json.dumps(record, indent=1))
    (folder / "EDAM_1.25.owl").write_text(ONTOLOGY)
    (folder / "README.md").write_text("not read")
    return folder


def read(folder: Path, **options: Any) -> Corpus:
    config = BioTools.Config(**options)
    return BioToolsReader(find_records(folder), find_ontology(folder), config).read_corpus()


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        read(folder, **options)
    return str(caught.value)


def test_BioToolsReader_parts_of_a_record(tmp_path: Path) -> None:
    """Text and venue are of the first publication with metadata, authors of all."""
    fields = ["venue", "author", "reference", "credit", "language", "tool_type"]
    corpus = read(write(tmp_path), fields=fields)
    text = "A tool finds genes.  On a tool It is there."
    assert corpus.documents["text"].tolist() == [text, "b"]
    assert corpus.documents["split"].tolist() == [split_by_text(text), split_by_text("b")]
    found = {field: map_instances(corpus, field)["A-tool"] for field in [*fields, "label"]}
    assert found == {
        "venue": ["Some_Journal"],
        "author": ["An_A.", "Bo", "Li_B."],
        "reference": ["10.1/x_y", "12", "PMC9", "b"],
        "credit": ["Some_Team"],
        "language": ["Visual_Basic", "C"],
        "tool_type": ["Web_application"],
        "label": ["operation_1", "topic_2", "topic_4"],
    }
    assert map_instances(corpus, "label")["b"] == ["topic_5", "topic_99"]
    assert corpus.notes["documents_without_labels_dropped"] == 1
    assert corpus.notes["terms_outside_edam"] == 1
    assert corpus.notes["labels_not_in_edam"] == 1


def test_BioToolsReader_hierarchy_is_the_part_above_labels(tmp_path: Path) -> None:
    """The hierarchy has the ancestors of labels alone; an obsolete class has no parent."""
    corpus = read(write(tmp_path))
    edges = set(corpus.hierarchy[["child", "parent"]].itertuples(index=False, name=None))
    assert edges == {
        ("topic_2", "topic_1"), ("topic_3", "topic_1"), ("topic_4", "topic_2"),
        ("topic_4", "topic_3"),
    }  # fmt: skip
    names = corpus.instances["label"].set_index("id")["name"].to_dict()
    assert names == {
        "operation_1": "Operation", "topic_2": "Genes", "topic_4": "Gene expression",
        "topic_5": "Old", "topic_99": "topic_99",
    }  # fmt: skip
    assert BioToolsReader(find_records(tmp_path)).read_corpus().hierarchy.empty


def test_BioToolsReader_equals_the_match_folder(data_folder: Path, tmp_path: Path) -> None:
    """Text, labels, metadata, split and label names equal those of the MATCH folder."""
    raw, made = data_folder / "raw" / "biotools", data_folder / "biotools"
    if not raw.is_dir() or not made.is_dir():
        pytest.skip(f"no records of bio.tools, or no biotools, in {data_folder}")
    fields = ["venue", "author", "reference", "credit", "language"]
    rows = {}
    for split, name in (("train", "train"), ("valid", "dev"), ("test", "test")):
        for line in (made / f"{name}.json").read_text("utf-8").splitlines():
            content = json.loads(line)
            content["venue"] = [content["venue"]] if content["venue"] else []
            rows[content["paper"]] = {**content, "split": split}
    dataset = BioTools(path=str(raw), fields=fields, root=tmp_path)
    documents = dataset.table("document")
    assert len(documents) == 40
    contents = dataset.as_json(range(40))
    for content, split in zip(contents, documents["split"], strict=True):
        given = {**content, "label": sorted(content["label"]), "split": split}
        assert given == rows[content["paper"]]
    lines = [line.split("\t") for line in (made / "id2label.txt").read_text("utf-8").splitlines()]
    names = dict(lines)
    labels = dataset.table("label")
    assert labels["name"].tolist() == [names[label] for label in labels["id"]]
    corpus = read(raw)
    edges = set(corpus.hierarchy[["child", "parent"]].itertuples(index=False, name=None))
    above = [line.split() for line in (made / "taxonomy.txt").read_text().splitlines()]
    assert edges <= {(child, parent) for parent, *children in above for child in children}


def test_BioToolsReader_hierarchy_of_the_whole_corpus(data_folder: Path, tmp_path: Path) -> None:
    """EDAM above the 797 labels is the taxonomy of the MATCH folder."""
    raw, made = data_folder / "raw" / "biotools", data_folder / "biotools"
    if not raw.is_dir() or not made.is_dir():
        pytest.skip(f"no records of bio.tools, or no biotools, in {data_folder}")
    labels = MatchFolder(made, root=tmp_path).names("label").tolist()
    record = {
        "biotoolsID": "all",
        "name": "every label",
        "topic": [term(label) for label in labels],
    }
    corpus = BioToolsReader(
        find_records(write(tmp_path / "one", {"all": record})), find_ontology(raw)
    ).read_corpus()
    edges = set(corpus.hierarchy[["child", "parent"]].itertuples(index=False, name=None))
    above = [line.split() for line in (made / "taxonomy.txt").read_text().splitlines()]
    assert edges == {(child, parent) for parent, *children in above for child in children}
    assert (len(labels), len(edges)) == (797, 991)


def test_open_dataset_biotools_below_the_root(tmp_path: Path) -> None:
    """Packed and plain files are read; the records have one checksum."""
    folder = write(tmp_path / "raw" / "biotools")
    dataset = open_dataset("biotools", root=tmp_path)
    assert isinstance(dataset, BioTools)
    lines = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in find_records(folder)
    )
    files = dataset.source["files"]
    assert files["3 x *.biotools.json"] == hashlib.sha256(lines.encode()).hexdigest()
    assert sorted(files) == ["3 x *.biotools.json", "EDAM_1.25.owl"]
    assert dataset.table("label").set_index("id")["name"]["topic_2"] == "Genes"
    (folder / "EDAM_1.25.owl").unlink()
    (folder / "EDAM_1.25.owl.gz").write_bytes(gzip.compress(ONTOLOGY.encode()))
    assert open_dataset("biotools", root=tmp_path).hierarchy.num_edges == 1
    plain = open_dataset("biotools", root=tmp_path, hierarchy="ignore")
    assert list(plain.source["files"]) == ["3 x *.biotools.json"]


@pytest.mark.parametrize("block", [None, 1, 500, 10**6])
def test_BioToolsReader_partitions_hold_every_record_once(
    tmp_path: Path, block: int | None
) -> None:
    """Partitions hold every record once, in order, with the bytes of their files."""
    files = find_records(write(tmp_path))
    parts = BioToolsReader(files).list_partitions(block)
    ranges = [tuple(map(int, part.kind.split(":"))) for part in parts]
    assert [number for start, stop in ranges for number in range(start, stop)] == [0, 1, 2]
    assert sum(part.num_bytes for part in parts) == sum(path.stat().st_size for path in files)
    assert len(parts) == {None: 1, 1: 3, 500: 2, 10**6: 1}[block]


def make_archive(path: Path, tools: dict[str, Any]) -> None:
    """As GitHub packs a commit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as packed:
        names = {f"data/{name}/{name}.biotools.json": one for name, one in tools.items()}
        for name, record in {**names, "data/b/b.other.json": 1, "README.md": 2}.items():
            content = json.dumps(record).encode()
            info = tarfile.TarInfo(f"content-51540fd568/{name}")
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))


def test_BioTools_download_unpacks_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is extracted once; EDAM is verified by its checksum."""
    calls = []

    def fetch(address: str, path: Path, dataset: str, track: object, checksum: str = "") -> None:
        calls.append((address, dataset, checksum))
        if address == biotools.EDAM:
            path.write_text(ONTOLOGY)
        else:
            make_archive(path, TOOLS)

    monkeypatch.setattr(biotools, "fetch_file", fetch)
    monkeypatch.setattr(BioTools, "num_records", 3)
    for _ in range(2):
        assert BioTools(root=tmp_path).num_labels == 5
    assert calls == [
        (biotools.ARCHIVE, "biotools", ""),
        (biotools.EDAM, "biotools", f"sha256:{biotools.EDAM_SHA256}"),
    ]
    files = sorted(path.name for path in (tmp_path / "raw" / "biotools" / "data").rglob("*.json"))
    assert files == ["a-tool.biotools.json", "b.biotools.json", "c.biotools.json"]


def test_BioTools_archive_of_another_commit_is_refused(tmp_path: Path) -> None:
    """Another number of records is refused; nothing of the archive is kept."""
    archive = tmp_path / "raw" / "biotools" / "content.tar.gz"
    make_archive(archive, TOOLS)
    with pytest.raises(CorpusError) as caught:
        BioTools(root=tmp_path)
    assert str(caught.value) == (
        f"The archive '{archive}' must hold 19,649 files data/ID/ID.biotools.json, found 3; delete "
        f"it to fetch that of {biotools.ARCHIVE}, or unpack it yourself and name the folder by "
        f"data.options.path."
    )
    assert list(archive.parent.iterdir()) == [archive]


def test_BioTools_missing_files_are_named(tmp_path: Path) -> None:
    """Missing files of a user's own folder are named, not fetched."""
    (tmp_path / "own").mkdir()
    path = str(tmp_path / "own")
    with pytest.raises(CorpusError) as caught:
        BioTools(path=path, root=tmp_path)
    assert str(caught.value) == (
        f"The option 'path' of 'biotools' must name a folder with files ID.biotools.json, or with "
        f"a folder 'data' of them, but there is none in '{path}'; check the path."
    )
    write(tmp_path / "own")
    (tmp_path / "own" / "EDAM_1.25.owl").unlink()
    with pytest.raises(CorpusError) as caught:
        BioTools(path=path, root=tmp_path)
    assert str(caught.value) == (
        f"The hierarchy of 'biotools' is read from EDAM, but there is no '{path}/EDAM_1.25.owl'; "
        f"take it from {biotools.EDAM}, name it by data.options.ontology, or set "
        f"data.hierarchy=ignore."
    )
    assert BioTools(path=path, root=tmp_path, hierarchy="ignore").num_labels == 5


ODD: dict[str, Any] = {
    "d": '{\n "biotoolsID": "d",\n "name" 1}',
    "e": "[1]",
    "f": {"name": "f", "topic": [term("topic_2")]},
    "g": {"biotoolsID": "b", "name": "g", "topic": [term("topic_2")]},
    "h": {"biotoolsID": "h", "name": ["h"], "topic": "topic_2", "publication": [{"metadata": 1}]},
}
FAULTS = [
    "d.biotools.json:3: a file must be one JSON object, but it breaks off or is malformed "
    "(Expecting ':' delimiter, column 9); fetch the file again.",
    "e.biotools.json:1: a file must be one JSON object, found the list [1].",
    "f.biotools.json: 'biotoolsID' must be the record's id, found nothing; remove the file.",
    "g.biotools.json: the document 'b' was given before (b.biotools.json); every document needs an "
    "id of its own.",
    "h.biotools.json: 'publication[].metadata' must be an object, found the number 1; mend or "
    "remove the file.",
    "h.biotools.json: 'name' must be a string, found the list [\"h\"]; mend or remove the file.",
    "h.biotools.json: 'topic' must be a list of objects, found the string \"topic_2\"; mend or "
    "remove the file.",
]


def test_BioToolsReader_faults_are_named_by_file_and_key(tmp_path: Path) -> None:
    """All faults are listed at once, or their documents left out."""
    write(tmp_path / "raw", {**TOOLS, **ODD})
    assert refusal(tmp_path / "raw").splitlines() == [
        "The files of 'biotools' must be records of bio.tools, but 7 faults were found:",
        *(f"  {fault}" for fault in FAULTS),
    ]
    dataset = BioTools(path=str(tmp_path / "raw"), root=tmp_path, faults="skip")
    assert sorted(dataset.names("document")) == ["A-tool", "b"]
    assert len(dataset.faults) == 7


def test_BioToolsReader_wrong_encoding_and_large_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong encoding and a large record are named."""
    folder = write(tmp_path, {"a": TOOLS["a-tool"]})
    path = folder / "data" / "a" / "a.biotools.json"
    path.write_bytes(path.read_bytes().replace(b"finds", b"f\xe9nds"))
    assert refusal(folder) == (
        "The files of 'biotools' must be records of bio.tools: a.biotools.json:4: the file must be "
        "UTF-8, but it has the byte 0xe9; convert the file."
    )
    monkeypatch.setenv("MATCH_GRAPH_MAX_RECORD_MIB", "1")
    path.write_text(json.dumps({"biotoolsID": "a" * max_record_bytes()}))
    assert refusal(folder) == (
        "a.biotools.json: a record must have at most 1 MiB, but this one has more; mend the file, "
        "or set MATCH_GRAPH_MAX_RECORD_MIB."
    )


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    "<x>&b;</x>"
)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            ONTOLOGY.replace("</owl:Class>", "</owl:Klass>", 1),
            "EDAM_1.25.owl:5: XML must be well-formed, but here it is not (mismatched tag, column "
            "170); fetch the file again.",
        ),
        (
            BOMB,
            "EDAM_1.25.owl: XML must declare no entities of its own, but this file does "
            "(EntitiesForbidden), as files do that are made to fill the memory or to read other "
            "files; fetch it from where it is published.",
        ),
        (
            '<?xml version="1.0" encoding="latin-99"?><x/>',
            "EDAM_1.25.owl: XML must be in an encoding that can be read, but this is not (unknown "
            "encoding: latin-99); convert the file to UTF-8.",
        ),
        (
            wrap(),
            "EDAM_1.25.owl: the ontology must hold classes of EDAM, found none; check it.",
        ),
        (
            wrap(make_class("topic_2", "", ["topic_1"])),
            "EDAM_1.25.owl: class 'topic_2' must lie below classes of the file, but 'topic_1' is "
            "none; fetch the file again.",
        ),
        (
            f"<x>{' ' * 2**20}</x>",
            "EDAM_1.25.owl: an ontology must have at most 1 MiB, but this one has more; mend the "
            "file, or set MATCH_GRAPH_MAX_RECORD_MIB.",
        ),
    ],
)
def test_read_edam_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, sentence: str
) -> None:
    """A malformed, crafted, foreign or large ontology is refused."""
    monkeypatch.setenv("MATCH_GRAPH_MAX_RECORD_MIB", "1")
    folder = write(tmp_path)
    (folder / "EDAM_1.25.owl").write_text(content)
    assert refusal(folder) == sentence


def test_read_edam_in_other_forms(tmp_path: Path) -> None:
    """Other RDF/XML forms: a class in two parts, a nested parent, a typed description."""
    one = '<rdfs:label xml:lang="fr">Un</rdfs:label><rdfs:label xml:lang="en">One</rdfs:label>'
    kind = '<rdf:type rdf:resource="http://www.w3.org/2002/07/owl#Class"/>'
    within = f'<rdfs:subClassOf><owl:Class rdf:about="{EDAM}topic_1"/></rdfs:subClassOf>'
    content = wrap(
        f'<owl:Class rdf:about="{EDAM}topic_1">{one}</owl:Class>',
        make_class("topic_2", "Two", ["topic_1"]),
        make_class("topic_2", "", ["topic_3"]),
        f'<rdf:Description rdf:about="{EDAM}topic_3">{kind}{within}</rdf:Description>',
        f'<rdf:Description rdf:about="{EDAM}topic_4"/>',
    )
    path = tmp_path / "EDAM.owl"
    path.write_text(content)
    with open_sources([path], "it", None) as sources:
        assert read_edam(path, sources) == {
            "topic_1": ("One", []),
            "topic_2": ("Two", ["topic_1", "topic_3"]),
            "topic_3": ("", ["topic_1"]),
        }


def test_BioToolsRecord_numbers_and_terms_that_are_blank() -> None:
    """A blank DOI is skipped; a term without a URI counts as outside of EDAM."""
    faults: list[str] = []
    terms = [term("topic_0091"), {"term": "?"}, {"uri": f"{EDAM}topic_0003 "}]
    publication = [{"doi": " ", "pmid": "123"}]
    content = {"biotoolsID": "x", "topic": terms, "publication": publication}
    record = BioToolsRecord(content, "x.json", faults.append)
    assert record.read_labels() == (["topic_0003", "topic_0091"], 1)
    assert record.read_values("reference") == ["123"]
    assert not faults


def test_read_edam_truncated_gzip_file(tmp_path: Path) -> None:
    """A truncated gzip file is named."""
    folder = write(tmp_path)
    (folder / "EDAM_1.25.owl.gz").write_bytes(gzip.compress(ONTOLOGY.encode())[:-20])
    assert refusal(folder) == (
        "EDAM_1.25.owl.gz:1: a file named .gz must be whole and packed by gzip, but from here on "
        "it cannot be read (Compressed file ended before the end-of-stream marker was reached); "
        "fetch it again."
    )


def test_BioToolsReader_warns_of_labels_outside_edam(tmp_path: Path) -> None:
    """A warning is given if more than a twentieth of the labels are not in EDAM."""
    tools = {
        name: {"biotoolsID": name, "name": name, "topic": [term(f"topic_9{name}")]}
        for name in ("1", "2", "3")
    }
    assert read(write(tmp_path, tools)).warnings == [
        "3 of 3 labels, such as 'topic_91', are not in 'EDAM_1.25.owl' and have no parent; check "
        "that it is of the records' year"
    ]


def test_find_ontology_last_version(tmp_path: Path) -> None:
    for name in ("EDAM_1.9.owl", "EDAM_1.25.owl", "EDAM_1.3.owl.gz", "EDAM_dev.owl"):
        (tmp_path / name).touch()
    assert find_ontology(tmp_path).name == "EDAM_1.25.owl"
    assert find_ontology(tmp_path / "none").name == "EDAM_1.25.owl"
