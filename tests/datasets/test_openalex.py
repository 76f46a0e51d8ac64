"""OpenAlex works: topics and concepts as a hierarchy; what is refused and with which sentence."""

import gzip
import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from match_graph.datasets import OpenAlex, OpenAlexReader, open_dataset
from match_graph.errors import ConfigError, CorpusError

URL = "https://openalex.org/"
SUMMARY = "The files of 'openalex' must hold OpenAlex works"


def make_topic(number: int) -> dict[str, Any]:
    return {
        "id": f"{URL}T{number}",
        "display_name": f"Topic {number}",
        "score": 0.9,
        "subfield": {"id": f"{URL}subfields/{1700 + number % 2}", "display_name": "Sub"},
        "field": {"id": f"{URL}fields/17", "display_name": "Computer Science"},
        "domain": {"id": f"{URL}domains/3", "display_name": "Physical Sciences"},
    }


def make_concept(
    number: int, level: int, score: float | None = None, **more: Any
) -> dict[str, Any]:
    concept = {"id": f"{URL}C{number}", "display_name": f"Concept {number}", "level": level}
    return concept | ({} if score is None else {"score": score}) | more


def make_work(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"{URL}W{number}",
        "title": f"Work {number}",
        "publication_date": f"{2000 + number % 20}-05-01",
        "abstract_inverted_index": {"plain": [1], "A": [0], "text": [2]},
        "authorships": [{"author": {"id": f"{URL}A{number % 3}", "display_name": "Bo"}}],
        "primary_location": {"source": {"id": f"{URL}S1", "display_name": "Journal"}},
        "referenced_works": [f"{URL}W0", f"{URL}W9999"],
        "topics": [make_topic(number % 5)],
        "concepts": [make_concept(1, 0, 0.0), make_concept(2, 1, 0.8), make_concept(3, 2, 0.5)],
    } | more


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two files in the default folder of a root."""
    folder = tmp_path / "raw" / "openalex"
    write(folder / "a.jsonl", [make_work(n) for n in range(30)])
    write(folder / "b.jsonl.gz", [make_work(n) for n in range(30, 40)])
    return tmp_path


def refusal(root: Path, *works: Any, **options: Any) -> str:
    """Message that refuses a file of some works; no build may be left."""
    if works:
        write(root / "raw" / "openalex" / "a.jsonl", [*works])
    with pytest.raises(CorpusError) as caught:
        OpenAlex(root=root, **options)
    assert [path for path in root.glob("built/*") if path.suffix != ".lock"] == []
    return str(caught.value)


def test_open_dataset_topics_are_labels_with_all_above_them(root: Path) -> None:
    """Topics are closed upwards to a tree of four levels, with names and depths."""
    dataset = open_dataset("openalex", root=root)
    assert dataset[0]["document"].num_nodes == 40
    labels = dataset.table("label").set_index("id")
    assert labels["depth"].to_dict() == {
        "domains/3": 0, "fields/17": 1, "subfields/1700": 2, "subfields/1701": 2,
        "T0": 3, "T1": 3, "T2": 3, "T3": 3, "T4": 3,
    }  # fmt: skip
    assert labels["name"]["fields/17"] == "Computer Science"
    assert dataset.hierarchy.num_edges == 8
    assert dataset.hierarchy.num_layers == 4
    assert dataset.targets.index.numel() == 40 * 4
    assert dataset.table("author")["name"].tolist() == ["Bo"] * 3
    assert dataset.table("document")["text"][0] == "Work 0 A plain text"
    data = dataset[0]
    assert data["document", "cites", "document"].num_edges == 39


def test_open_dataset_concepts_take_parents_from_file_concepts(root: Path, tmp_path: Path) -> None:
    """Nearest ancestors by level are parents; concepts of low scores are left out."""
    ancestors = [make_concept(1, 0), make_concept(4, 1), make_concept(2, 1)]
    path = write(tmp_path / "concepts.jsonl", [
        make_concept(3, 2, ancestors=ancestors), make_concept(2, 1, ancestors=ancestors[:1]),
        make_concept(1, 0),
    ])  # fmt: skip
    dataset = open_dataset("openalex", root=root, labels="concepts", concepts=str(path))
    assert sorted(dataset.names("label")) == ["C2", "C3"]
    assert dataset.notes["hierarchy_edges_read"] == 3
    assert dataset.hierarchy.num_edges == 1
    assert dataset.table("label").set_index("id")["depth"].to_dict() == {"C2": 1, "C3": 2}
    plain = open_dataset("openalex", root=root, labels="concepts", min_score=0)
    assert sorted(plain.names("label")) == ["C1", "C2", "C3"]
    assert plain.hierarchy.num_edges == 0


def test_OpenAlex_concepts_beside_works_are_not_read_as_works(root: Path) -> None:
    """A file of concepts named by option is not read as works."""
    path = write(root / "raw" / "openalex" / "concepts.jsonl", [make_concept(1, 0)])
    assert OpenAlex(root=root, labels="concepts", concepts=str(path))[0]["document"].num_nodes == 40


def test_open_dataset_options_reach_the_reader(root: Path) -> None:
    """Path, fields, and a split by date reach the reader."""
    dataset = open_dataset(
        "openalex", root=root, path=str(root / "raw" / "openalex" / "b.jsonl.gz"),
        fields=["institution"], train_until=2015, valid_until=2017,
    )  # fmt: skip
    assert dataset[0].node_types == ["document", "institution", "word", "label"]
    table = dataset.table("document").set_index("id")
    first = (date(2010, 5, 1) - date(1970, 1, 1)).days
    assert (table["time"]["W30"], table["time"].size) == (first, 10)
    splits = table["split"]
    assert splits.to_dict() == {
        f"W{n}": "train" if n < 36 else "valid" if n < 38 else "test" for n in range(30, 40)
    }
    with pytest.raises(ConfigError, match=r"'fields\.0': Input should be 'venue', 'author'"):
        open_dataset("openalex", root=root, fields=["word"])


def test_OpenAlexReader_what_is_missing_is_carried_through(root: Path) -> None:
    """Text, date, authors, venue and labels may be missing."""
    works = [
        make_work(1),
        {"id": f"{URL}W50"},
        make_work(2, abstract_inverted_index=None, topics=[]),
    ]
    path = write(root / "works.jsonl", works)
    corpus = OpenAlexReader([path], OpenAlex.Config()).read_corpus()
    assert corpus.documents["text"].tolist() == ["Work 1 A plain text", "", "Work 2"]
    assert corpus.notes["works_without_text"] == 1
    assert len(corpus.edges["label"]) == 4


def test_OpenAlex_work_without_id_is_named(root: Path) -> None:
    """A work without an id is named by file:line."""
    assert refusal(root, make_work(1), make_work(2, id=None)) == (
        f"{SUMMARY}: a.jsonl:2: a work must have its OpenAlex id in 'id', found nothing; "
        f"remove the work."
    )


def test_OpenAlex_repeated_work_is_named_with_both_places(root: Path) -> None:
    """A work that is repeated in another file is named with both places."""
    assert refusal(root, make_work(35), make_work(1)) == (
        f"{SUMMARY}: b.jsonl.gz:6: the document 'W35' was given before (a.jsonl:1); "
        f"every document needs an id of its own."
    )


def test_OpenAlex_self_loop_among_concepts_is_refused(root: Path, tmp_path: Path) -> None:
    """A self-loop of concepts is refused with its place."""
    loop = make_concept(3, 2, ancestors=[make_concept(3, 2)])
    path = write(tmp_path / "concepts.jsonl", [make_concept(2, 1), loop])
    assert refusal(root, labels="concepts", concepts=str(path)) == (
        "The corpus 'openalex' must be consistent: the label hierarchy must be acyclic, but "
        "C3 -> C3 is a cycle (concepts.jsonl:2); remove one of these edges, or leave the "
        "hierarchy out (of files: data.hierarchy=ignore)."
    )


def test_OpenAlex_ignoring_the_hierarchy_accepts_its_loop(root: Path, tmp_path: Path) -> None:
    """The option that the message advises accepts the file."""
    loop = make_concept(3, 2, ancestors=[make_concept(3, 2)])
    path = write(tmp_path / "concepts.jsonl", [loop])
    dataset = OpenAlex(root=root, labels="concepts", concepts=str(path), hierarchy="ignore")
    assert dataset.hierarchy.num_edges == 0


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "topics": ({"topics": [3]}, "'topics' must be a list of objects, found the list [3]."),
    "topic-id": ({"topics": [{}]}, "each of 'topics' must have an id, found nothing."),
    "title": ({"title": 5}, "'title' must be a string, found the number 5."),
    "date": (
        {"publication_date": [1]},
        "'publication_date' must be a date, found the list [1].",
    ),
    "truth": (
        {"publication_date": True},
        "'publication_date' must be a date, found the truth value true.",
    ),
    "topic-level": (
        {"topics": [make_topic(1) | {"subfield": "Vision"}]},
        "the 'subfield' of a topic must be an object, found the string \"Vision\".",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_OpenAlex_values_of_a_wrong_type_are_named(root: Path, name: str) -> None:
    """Values of a wrong type are named by file:line."""
    change, fault = WRONG[name]
    assert refusal(root, make_work(1, **change)) == f"{SUMMARY}: a.jsonl:1: {fault}"


def test_OpenAlex_concepts_of_a_wrong_type_are_named(root: Path, tmp_path: Path) -> None:
    """Malformed scores, ids and ancestors are named."""
    scores: list[Any] = ["high", True, float("nan")]
    works = [make_work(1, concepts=[make_concept(1, 0, score=score)]) for score in scores]
    path = write(tmp_path / "c.jsonl", [{}, make_concept(2, 1, ancestors=[{"id": "C1"}])])
    assert refusal(root, *works, labels="concepts", concepts=str(path)).splitlines()[1:] == [
        '  a.jsonl:1: the score of a concept must be a number, found the string "high".',
        "  a.jsonl:2: the score of a concept must be a number, found the truth value true.",
        "  a.jsonl:3: the score of a concept must be a number, found the number NaN.",
        "  c.jsonl:1: a concept must have an id, found nothing.",
        "  c.jsonl:2: each of 'ancestors' must have an id and a level, found the object "
        '{"id": "C1"}.',
    ]


def test_OpenAlex_no_file_and_no_file_of_concepts(tmp_path: Path, root: Path) -> None:
    """A missing file is named with where to put it, or its option."""
    with pytest.raises(CorpusError, match=r"^The data set 'openalex' reads files of yours"):
        OpenAlex(root=tmp_path / "none")
    assert refusal(root, concepts=str(tmp_path / "none")) == (
        f"The option 'concepts' of 'openalex' must name a file, but there is none at "
        f"'{tmp_path / 'none'}'; check the path."
    )


def test_OpenAlex_truncated_gzip_file_is_named(root: Path) -> None:
    """A truncated gzip file is named, and nothing is built."""
    path = root / "raw" / "openalex" / "b.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-30])
    assert refusal(root) == (
        "b.jsonl.gz:1: a file named .gz must be whole and packed by gzip, but from here on it "
        "cannot be read (Compressed file ended before the end-of-stream marker was reached); "
        "fetch it again."
    )


def test_OpenAlex_level_past_all_bounds_is_named(root: Path) -> None:
    """A level that exceeds the type of depths is named."""
    concept = {"id": "https://openalex.org/C1", "display_name": "x", "level": 40_000, "score": 1.0}
    assert refusal(root, make_work(1, concepts=[concept]), labels="concepts") == (
        "The files of 'openalex' must hold OpenAlex works: a.jsonl:1: the level of a concept "
        "must be a whole number from 0 to 999, found the number 40000."
    )


def test_OpenAlexReader_concept_with_a_score_of_null(tmp_path: Path) -> None:
    """A concept with a null score is kept, as one without a score."""
    path = tmp_path / "works.jsonl"
    path.write_text(json.dumps(make_work(1, concepts=[make_concept(1, 0) | {"score": None}])))
    corpus = OpenAlexReader([path], OpenAlex.Config(labels="concepts")).read_corpus()
    assert corpus.instances["label"]["id"].tolist() == ["C1"]
