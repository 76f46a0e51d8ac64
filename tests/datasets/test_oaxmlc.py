"""OAXMLC-Bench's layout, its pruning and split against naive loops, and what is refused."""

import gzip
import json
import random
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from match_graph.datasets import OaMed, OaXmlc, assemble, oaxmlc, open_dataset
from match_graph.datasets.oaxmlc import OaXmlcFiles, OaXmlcReader
from match_graph.datasets.oaxmlc_split import LabelTree, choose_labels, split_documents
from match_graph.errors import ConfigError, CorpusError

#: A diamond (T4 below T2 and T3), a label of no document (T9), one that the ontology lacks (T77).
TAXONOMY = {"0": ["D1", "D2", "D3"], "D1": ["T2", "T3"], "T2": ["T4", "T9"], "T3": ["T4", "T5"],
            "D2": ["T6", "T7", "T77"]}  # fmt: skip
LABELS = ["D1", "D2", "D3", "T2", "T3", "T4", "T5", "T6", "T7", "T9"]
LEAVES = ["T4", "T5", "T6", "T7"]


def make_document(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"https://openalex.org/W{number}",
        "title": f"Work {number}",
        "abstract": f"On toys of kind {number % 7}",
        "topics_labels": [LEAVES[number % 4]] + ["T2"] * (number % 3 == 0),
        "concepts_labels": ["C1"],
        "authors": [f"A{number % 5}", {"id": "https://openalex.org/A9", "display_name": "Bo Án"}],
        "year": 2000 + number % 20,
        "references": ["https://openalex.org/W0", "W9999"],
    } | more


#: Dirty on purpose: no text, no labels, labels that are not in the hierarchy or the top ones alone.
ODD = [
    {"id": "W900", "topics_labels": ["T5"]},
    {"id": "W901", "title": "no labels", "topics_labels": []},
    {"id": "W902", "title": "unknown", "abstract": None, "topics_labels": ["T77"]},
    {"id": "W903", "title": "top alone", "topics_labels": ["D1", "D3"]},
]


def write(folder: Path, documents: list[Any] | None = None, nested: bool = True) -> Path:
    """Writes the published layout: documents, and the taxonomy's files in their own folder."""
    taxonomy = folder / "topics" if nested else folder
    taxonomy.mkdir(parents=True, exist_ok=True)
    if documents is None:
        documents = [*(make_document(number) for number in range(80)), *ODD]
    lines = [one if isinstance(one, str) else json.dumps(one) for one in documents]
    (folder / "documents.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    edges = [" ".join([parent, *children]) for parent, children in TAXONOMY.items()]
    (taxonomy / "taxonomy.txt").write_text("\n".join(edges) + "\n")
    entries = [
        {"label": label, "title": f"Title of {label}", "level": 1 if label[0] == "D" else 2}
        | ({"definition": f"what {label} means"} if label != "T5" else {"txt": ""})
        for label in LABELS
    ]
    (taxonomy / "ontology.json").write_text("".join(f"{json.dumps(one)}\n" for one in entries))
    return folder


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        OaXmlc(path=str(folder), root=folder / "root", **options)
    return str(caught.value)


@pytest.mark.parametrize("name", ["oaxmlc", "oamed"])
def test_open_dataset_reads_the_published_layout(tmp_path: Path, name: str) -> None:
    """Labels are closed upwards, with names and depths; pruned labels are counted."""
    write(tmp_path / "raw" / name)
    dataset = open_dataset(name, root=tmp_path, min_documents=5)
    labels = dataset.table("label").set_index("id")
    assert sorted(labels.index) == ["D1", "D2", "T2", "T3", "T4", "T5", "T6", "T7"]
    assert labels["name"]["T4"] == "Title of T4"
    assert (labels["depth"]["D1"], labels["depth"]["T4"]) == (0, 1)
    assert dataset.hierarchy.num_edges == 7  # T4 has two parents
    documents = dataset.table("document").set_index("id")
    assert len(documents) == 81
    assert (documents["text"]["W1"], documents["text"]["W900"]) == ("Work 1 On toys of kind 1", "")
    assert dataset.notes["documents_left_out"] == 3
    assert dataset.notes["labels_pruned"] == 2  # D3 and T77, which documents have
    assert dataset.notes["taxonomy_labels_not_in_ontology"] == 1
    [row] = (documents.index == "W900").nonzero()[0]
    _, index = dataset.targets.select(torch.tensor([row]))
    assert sorted(dataset.names("label").iloc[index.numpy()]) == ["D1", "T3", "T5"]
    assert dataset.table("author").set_index("id")["name"]["A9"] == "Bo Án"
    data = dataset[0]
    assert data["document", "cites", "document"].num_edges == 79
    assert set(documents["split"]) == {"train", "valid", "test"}


def test_open_dataset_shows_its_progress(tmp_path: Path) -> None:
    """Progress covers both passes over the documents."""
    write(tmp_path / "raw" / "oamed")
    seen: list[tuple[str, int, str]] = []

    @contextmanager
    def track(name: str, total: int, unit: str) -> Iterator[Callable[[int, str], None]]:
        seen.append((name, total, unit))
        yield lambda _done, _text: None

    OaMed(root=tmp_path, track=track, min_documents=5)
    assert seen == [("read oamed", 0, "MB")]


def test_OaXmlc_options_leave_the_protocol(tmp_path: Path) -> None:
    """Options keep all labels and documents, unclosed, split by year."""
    write(tmp_path, nested=False)
    dataset = OaXmlc(
        path=str(tmp_path), root=tmp_path / "root", split="own", close_labels=False,
        train_until=2010, definitions=True, fields=[], hierarchy="ignore",
    )  # fmt: skip
    labels = dataset.table("label").set_index("id")["name"]
    assert sorted(labels.index) == ["D1", "D3", "T2", "T4", "T5", "T6", "T7", "T77"]
    assert labels["T4"] == "Title of T4: what T4 means"
    assert (labels["T5"], labels["T77"]) == ("Title of T5", "T77")
    assert dataset[0]["document"].num_nodes == 84
    assert dataset.hierarchy.num_edges == 0
    assert dataset.notes["undated_documents_in_train"] == 4
    splits = dataset.table("document").set_index("id")["split"]
    assert splits["W15"] == "test"


def test_OaXmlc_keys_of_another_layout(tmp_path: Path) -> None:
    """Keys can be named by option; without an id the line number is the id."""
    documents = [
        {"t": f"work {number}", "topics": "T4" if number % 2 else "T6", "in": "V1", "authors": None}
        for number in range(20)
    ]
    write(tmp_path, documents)
    corpus = OaXmlcReader(
        OaXmlcFiles.find(tmp_path, "topics"),
        OaXmlc.Config(fields=["venue"], keys={"title": "t", "venue": ["x", "in"]}, min_documents=1),
    ).read_corpus()
    assert corpus.documents["id"].tolist()[:2] == ["1", "2"]
    assert corpus.documents["text"][3] == "work 3"
    assert corpus.instances["venue"]["id"].tolist() == ["V1"]
    with pytest.raises(ConfigError) as caught:
        open_dataset("oaxmlc", keys={"venue": "v"}, train_until=2015)
    assert str(caught.value).splitlines()[0].startswith("The options of OaXmlc must be valid")
    assert "found ['venue']; name a field in fields too." in str(caught.value)
    with pytest.raises(ConfigError, match="train_until needs split=own; the benchmark has no date"):
        open_dataset("oaxmlc", train_until=2015)


def test_OaXmlc_seed_decides_the_split(tmp_path: Path) -> None:
    """The split depends on the seed; every label is in training."""
    write(tmp_path)
    config = [OaXmlc.Config(seed=seed, min_documents=5) for seed in (1, 1, 2)]
    first, again, other = (
        OaXmlcReader(OaXmlcFiles.find(tmp_path, "topics"), one).read_corpus().documents["split"]
        for one in config
    )
    assert first.equals(again)
    assert not first.equals(other)
    share = Counter(first)
    assert 0.6 < share["train"] / len(first) < 0.8


def test_OaXmlcReader_partitions_give_the_same_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of lines, packed or not, give the corpus of one pass."""
    write(tmp_path / "a")
    config = {"min_documents": 5, "root": tmp_path / "root"}
    whole = OaXmlcReader(
        OaXmlcFiles.find(tmp_path / "a", "topics"), OaXmlc.Config(min_documents=5)
    ).read_corpus()
    monkeypatch.setattr(assemble, "BLOCK_BYTES", 2000)
    files = OaXmlcFiles.find(tmp_path / "a", "topics")
    assert len(OaXmlcReader(files, OaXmlc.Config()).list_partitions(2000)) > 3
    built = OaXmlc(path=str(tmp_path / "a"), **config)
    write(tmp_path / "b")
    text = (tmp_path / "b" / "documents.json").read_bytes()
    (tmp_path / "b" / "documents.json.gz").write_bytes(gzip.compress(text))
    (tmp_path / "b" / "documents.json").unlink()
    packed = OaXmlc(path=str(tmp_path / "b"), **config)
    for dataset in (built, packed):
        table = dataset.table("document")
        expected = whole.documents[["id", "split", "text"]]
        assert table[["id", "split", "text"]].to_dict("list") == expected.to_dict("list")
        assert dataset.notes["labels_pruned"] == whole.notes["labels_pruned"]
        assert sorted(dataset.names("label")) == sorted(whole.instances["label"]["id"])
    assert built.targets.index.equal(packed.targets.index)


def draw_case(seed: int) -> tuple[LabelTree, list[list[str]]]:
    """A random DAG of three levels, and documents with labels closed upwards."""
    draw = random.Random(seed)
    parents: dict[str, list[str]] = {f"a{n}": [] for n in range(3)}
    for level, above in (("b", "a"), ("c", "b")):
        upper = [label for label in parents if label[0] == above]
        for number in range(6):
            parents[f"{level}{number}"] = draw.sample(upper, draw.choice([1, 1, 2]))
    tree = LabelTree(parents)
    labels = [*parents, "unknown"]
    documents = [tree.close(draw.sample(labels, draw.randint(0, 3))) for _ in range(60)]
    return tree, documents


@pytest.mark.parametrize("seed", range(8))
def test_choose_labels_equals_a_naive_loop(seed: int) -> None:
    """By a naive loop: leaves are pruned one at a time, then top labels without children."""
    tree, documents = draw_case(seed)
    count = Counter(label for labels in documents for label in labels)
    kept = set(tree.parents)

    def is_leaf(label: str) -> bool:
        return not any(label in tree.parents[other] for other in kept)

    while few := [label for label in sorted(kept) if is_leaf(label) and count[label] < 9]:
        kept.remove(few[0])
    kept -= {label for label in kept if is_leaf(label) and not tree.parents[label]}
    assert choose_labels(tree, count, 9) == kept


def naive_split(documents: list[list[str]], tree: LabelTree, seed: int) -> list[int]:
    """The benchmark's steps with sets, one document after another."""
    items: dict[str, list[int]] = {}
    for number, labels in enumerate(documents):
        for label in labels:
            items.setdefault(label, []).append(number)
    order = sorted(items, key=lambda label: (len(items[label]), label))
    draw, held = random.Random(seed), {}
    for label in order[: max(1, round(0.1 * len(order)))]:
        numbers = list(items[label])
        draw.shuffle(numbers)
        held[label] = set(numbers[: max(1, round(0.1 * len(numbers)))])
        items[label] = [number for number in items[label] if number not in held[label]]
    parts: list[set[int]] = [set(), set(), set()]

    def cut(numbers: list[int]) -> None:
        random.Random(seed).shuffle(numbers)
        first, second = int(0.7 * len(numbers)), int(0.85 * len(numbers))
        parts[0].update(numbers[:first])
        parts[1].update(numbers[first:second])
        parts[2].update(numbers[second:])

    for top in sorted(label for label, above in tree.parents.items() if not above):
        for label in order:
            if label != top and top in tree.close([label]):
                cut([one for one in items[label] if not any(one in part for part in parts)])
    coverage = {label: [len(part & {*items[label]}) for part in parts] for label in order}
    for label in order:
        for place in range(3):
            if tree.parents[label] and not coverage[label][place]:
                free = sorted(one for one in held.get(label, ())
                              if not any(one in part for part in parts))  # fmt: skip
                parts[place].update(free[:1])
    cut(sorted({one for some in held.values() for one in some} - set().union(*parts)))
    return [
        next(place for place in range(3) if number in parts[place])
        for number in range(len(documents))
    ]


@pytest.mark.parametrize("seed", range(8))
def test_split_documents_equals_a_naive_loop(seed: int) -> None:
    """The split equals a naive loop; every document has one."""
    tree, drawn = draw_case(seed)
    documents = [[label for label in labels if label != "unknown"] for labels in drawn]
    documents = [labels for labels in documents if any(tree.parents[label] for label in labels)]
    found: dict[str, list[int]] = {}
    for number, labels in enumerate(documents):
        for label in labels:
            found.setdefault(label, []).append(number)
    arrays = {label: np.array(numbers) for label, numbers in found.items()}
    split = split_documents(arrays, tree, len(documents), seed)
    assert split.tolist() == naive_split(documents, tree, seed)
    assert (split >= 0).all()


def test_split_documents_gives_a_held_document_to_valid() -> None:
    """A split that lacks a label gets a held-back document of it."""
    tree = LabelTree({"a": [], "rare": ["a"], "other": ["a"]})
    documents = {"rare": np.arange(4), "other": np.arange(4, 40), "a": np.arange(40)}
    split = split_documents(documents, tree, 40, seed=0)
    assert sorted(split[:4].tolist()) == [0, 0, 1, 2]
    assert (split_documents(documents, tree, 40, seed=0, rare_share=0.0) >= 0).all()


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"id": True}, "the id of a document must be a string, found the truth value true."),
        ({"title": 5}, "'title' must be a string, found the number 5."),
        ({"year": [2]}, "'date' must be a year or a date, found the list [2]."),
        (
            {"topics_labels": {"x": 1}},
            "'topics' must be a string, a list of strings or of objects with an id, found the "
            'object {"x": 1}.',
        ),
        (
            {"authors": [["Bo"]]},
            "'author' must be a string, a list of strings or of objects with an id, found the "
            'list [["Bo"]].',
        ),
    ],
)
def test_OaXmlc_faulty_document_is_named_by_its_line(
    tmp_path: Path, document: dict[str, Any], fault: str
) -> None:
    """A faulty document is named by line, or skipped."""
    good = [make_document(number) for number in range(20)]
    write(tmp_path, [*good, make_document(20, **document)])
    assert refusal(tmp_path) == (
        f"The files of 'oaxmlc' must be those of OAXMLC-Bench: documents.json:21: {fault}"
    )
    options = {"root": tmp_path / "root", "min_documents": 1, "faults": "skip"}
    assert len(OaXmlc(path=str(tmp_path), **options).faults) == 1


def test_OaXmlc_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    """A line that is no object is ignored by the first pass and named by the second."""
    write(tmp_path, [make_document(1), "{broken", make_document(2)])
    assert "documents.json:2: a line must be one JSON object" in refusal(tmp_path)


def test_OaXmlc_faulty_ontology_and_taxonomy_are_named(tmp_path: Path) -> None:
    """An entry without an id and a cycle are named."""
    write(tmp_path)
    path = tmp_path / "topics" / "ontology.json"
    content = path.read_text()
    path.write_text(content + '{"title": "x"}\n')
    assert refusal(tmp_path) == (
        "The files of 'oaxmlc' must be those of OAXMLC-Bench: ontology.json:11: an entry must have "
        "its id in 'label' and strings in 'title' and 'definition', found the object "
        '{"title": "x"}; fetch the file again.'
    )
    path.write_text(content)
    taxonomy = tmp_path / "topics" / "taxonomy.txt"
    taxonomy.write_text(taxonomy.read_text() + "T4 T2\n")
    assert "must be acyclic" in refusal(tmp_path, split="own")


def test_OaXmlc_path_without_the_files_says_what_is_missing(tmp_path: Path) -> None:
    """Missing files of a user's folder are named, not fetched; no folder is made."""
    folder = tmp_path / "none"
    assert refusal(folder) == (
        f"The data set 'oaxmlc' must have documents.json, taxonomy.txt and ontology.json, but "
        f"there is no '{folder / 'documents.json'}'; unpack topics.zip of "
        f"https://zenodo.org/records/15695796 there."
    )
    assert not folder.exists()


def test_OaMed_archives_of_the_record_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archives of the record are extracted; the documents lie beside both taxonomies."""
    source = write(tmp_path / "source")
    asked = []

    def fetch(record: int, folder: Path, *_: Any) -> list[Path]:
        asked.append(record)
        (folder / "documents.json").write_bytes((source / "documents.json").read_bytes())
        with zipfile.ZipFile(folder / "topics.zip", "w") as file:
            for name in ("taxonomy.txt", "ontology.json"):
                file.write(source / "topics" / name, name)
            file.writestr("readme.md", "x")
        return []

    monkeypatch.setattr(oaxmlc, "fetch_record", fetch)
    dataset = OaMed(root=tmp_path, min_documents=5)
    assert asked == [17092264]
    assert dataset.num_labels == 8
    assert not (tmp_path / "raw/oamed/readme.md").exists()
    OaMed(root=tmp_path, min_documents=4)
    assert len(asked) == 1
    with pytest.raises(CorpusError, match=r"there is no '.*concepts/taxonomy.txt'; unpack conc"):
        OaMed(root=tmp_path, taxonomy="concepts")
