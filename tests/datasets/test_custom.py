"""JSON lines and CSV of any kind: columns by name, splits by column, date or at random."""

import csv
import gzip
import json
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from match_graph.corpus import Corpus
from match_graph.datasets import DATASETS, Custom, CustomReader, open_dataset
from match_graph.datasets.custom import UserFiles
from match_graph.errors import ConfigError, CorpusError

SUMMARY = "The files of 'custom' must hold documents"
ROWS: list[dict[str, Any]] = [
    {"key": f"p{n}", "title": f"Title {n}", "body": f"body of {n}", "who": ["Bo", f"a{n}"],
     "where": "J", "tags": ["deep learning", "all"], "fold": fold, "day": f"20{n:02}-01-01"}
    for n, fold in enumerate(["train"] * 6 + ["dev", "Test"])
]  # fmt: skip
COLUMNS = {
    "id": "key",
    "text": ["title", "body"],
    "author": "who",
    "venue": "where",
    "label": "tags",
}


def write_json(path: Path, rows: Sequence[Any] = ROWS) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def write_csv(path: Path, rows: Sequence[dict[str, Any]] = ROWS, delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow("; ".join(v) if isinstance(v, list) else v for v in row.values())
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        options = {"fields": ["author"], "columns": COLUMNS_OF_AUTHOR, **options}
        CustomReader([path], Custom.Config(**options)).read_corpus()
    return str(caught.value)


COLUMNS_OF_AUTHOR = {key: COLUMNS[key] for key in ("id", "text", "author", "label")}


@pytest.fixture
def taxonomy(tmp_path: Path) -> Path:
    """A taxonomy of one edge between labels with blanks."""
    path = tmp_path / "taxonomy.txt"
    path.write_text("all\tdeep learning\n")
    return path


def test_CustomReader_every_kind_of_file_gives_the_same_corpus(
    tmp_path: Path, taxonomy: Path
) -> None:
    """JSON lines, CSV, TSV and packed CSV of the same rows give the same corpus."""
    paths = [write_json(tmp_path / "a.jsonl"), write_csv(tmp_path / "a.csv")]
    paths.append(write_csv(tmp_path / "a.tsv", delimiter="\t"))
    paths.append(tmp_path / "B.CSV.GZ")
    paths[-1].write_bytes(gzip.compress(paths[1].read_bytes()))
    columns = {**COLUMNS, "split": "fold"}
    config = Custom.Config(fields=["author", "venue"], columns=columns, taxonomy=str(taxonomy))
    first, *others = [CustomReader([path], config).read_corpus() for path in paths]
    assert first.documents["id"].tolist() == [f"p{n}" for n in range(8)]
    assert first.documents["text"].tolist()[0] == "Title 0 body of 0"
    assert first.documents["split"].tolist() == ["train"] * 6 + ["valid", "test"]
    assert first.instances["author"]["id"].tolist()[:3] == ["Bo", "a0", "a1"]
    assert first.instances["label"]["id"].tolist() == ["deep learning", "all"]
    assert first.hierarchy[["child", "parent"]].to_numpy().tolist() == [["deep learning", "all"]]
    for other in others:
        assert other.documents.equals(first.documents)
        assert all(other.edges[name].equals(first.edges[name]) for name in first.edges)
        assert all(other.instances[name].equals(first.instances[name]) for name in first.instances)


def test_open_dataset_data_set_takes_its_options(tmp_path: Path, taxonomy: Path) -> None:
    """Several files of a folder are read; the taxonomy among them is not a file of documents."""
    write_json(tmp_path / "raw" / "custom" / "a.jsonl", ROWS[:4])
    write_csv(tmp_path / "raw" / "custom" / "b.csv", [*ROWS[4:]])
    taxonomy = taxonomy.rename(tmp_path / "raw" / "custom" / "taxonomy.tsv")
    dataset = open_dataset(
        "custom", root=tmp_path, fields=["author"], columns={**COLUMNS_OF_AUTHOR, "date": "day"},
        taxonomy=str(taxonomy), train_until=2004, valid_until=2006,
    )  # fmt: skip
    assert isinstance(dataset, Custom)
    assert [path.name for path in dataset.files] == ["a.jsonl", "b.csv"]
    assert dataset[0].node_types == ["document", "author", "word", "label"]
    assert [len(dataset.documents(f"{name}_mask")) for name in ("train", "val", "test")] == [
        5,
        2,
        1,
    ]
    assert dataset.hierarchy.num_edges == 1
    days = [(date(2000 + number, 1, 1) - date(1970, 1, 1)).days for number in range(8)]
    assert dataset[0]["document"].time.tolist() == days
    flat = open_dataset(
        "custom", root=tmp_path, columns={key: COLUMNS[key] for key in ("id", "text", "label")},
        taxonomy=str(taxonomy), hierarchy="ignore",
    )  # fmt: skip
    assert flat.hierarchy.num_edges == 0
    assert "time" not in flat[0]["document"]
    assert flat.processed_dir != dataset.processed_dir


def test_CustomReader_equal_texts_stay_together_at_random(tmp_path: Path) -> None:
    """Equal texts are in one split."""
    rows = [{"id": n, "text": f"text {n // 2}", "label": []} for n in range(2000)]
    corpus = CustomReader([write_json(tmp_path / "a.jsonl", rows)], Custom.Config()).read_corpus()
    splits = corpus.documents["split"].to_numpy()
    assert (splits[::2] == splits[1::2]).all()
    assert {*splits} == {"train", "valid", "test"}


def test_CustomReader_missing_value_is_no_fault(tmp_path: Path) -> None:
    """Null, empty and absent values are accepted if some document has the column."""
    rows = [
        {"id": "a", "text": None, "label": None, "venue": ""},
        {"id": 2, "text": "x", "label": "one", "venue": None},
        {"id": "c"},
    ]
    corpus = CustomReader(
        [write_json(tmp_path / "a.jsonl", rows)], Custom.Config(fields=["venue"])
    ).read_corpus()
    assert corpus.documents["id"].tolist() == ["a", "2", "c"]
    assert corpus.documents["text"].tolist() == ["", "x", ""]
    assert len(corpus.edges["venue"]) == 0
    assert corpus.instances["label"]["id"].tolist() == ["one"]


def test_CustomReader_several_columns_make_one_text_or_field(tmp_path: Path) -> None:
    """Several columns are joined; an empty cell adds no blank."""
    path = tmp_path / "a.csv"
    path.write_text("id,title,body,first,last,label,s\n1,,x,a; b,c,l,train\n2,y,,,d,l,test\n")
    columns = {"text": ["title", "body"], "author": ["first", "last"], "split": "s"}
    corpus = CustomReader([path], Custom.Config(fields=["author"], columns=columns)).read_corpus()
    assert corpus.documents["text"].tolist() == ["x", "y"]
    assert corpus.instances["author"]["id"].tolist() == ["a", "b", "c", "d"]


def test_CustomReader_reads_a_year_as_pandas_writes_it(tmp_path: Path) -> None:
    """A year may be 2015.0, as pandas writes it where another one is missing."""
    path = tmp_path / "a.csv"
    path.write_text("id,text,label,year,s\n1,x,l,2015.0,train\n")
    config = Custom.Config(columns={"date": "year", "split": "s"})
    corpus = CustomReader([path], config).read_corpus()
    assert corpus.documents["time"][0] == (date(2015, 1, 1) - date(1970, 1, 1)).days


def test_CustomReader_cell_is_one_value_without_a_separator(tmp_path: Path) -> None:
    """Without a separator a cell is one value; another separator can be set."""
    path = tmp_path / "a.csv"
    path.write_text("id,text,label\n1,x,a; b|c\n")
    for separator, expected in (("", ["a; b|c"]), ("|", ["a; b", "c"]), (";", ["a", "b|c"])):
        corpus = CustomReader([path], Custom.Config(separator=separator)).read_corpus()
        assert corpus.instances["label"]["id"].tolist() == expected


def test_CustomReader_column_that_no_document_has_is_named(tmp_path: Path) -> None:
    """A misspelt column is refused, not read as an empty one."""
    path = write_json(tmp_path / "a.jsonl")
    assert refusal(path, columns={**COLUMNS_OF_AUTHOR, "text": "abstract"}) == (
        f"{SUMMARY}: no document has the columns ['abstract'], but they have ['body', 'day', "
        f"'fold', 'key', 'tags', 'title', 'where', 'who']; say by data.options.columns which is "
        f"which."
    )


@pytest.mark.parametrize("name", ["id", "split"])
def test_CustomReader_column_of_ids_or_splits_is_named_once(tmp_path: Path, name: str) -> None:
    """A missing column of ids or splits is one fault, not one per document."""
    path = write_csv(tmp_path / "a.csv")
    assert refusal(path, columns={**COLUMNS_OF_AUTHOR, name: "part"}).startswith(
        f"{SUMMARY}: no document has the columns ['part'], but they have ['body', "
    )


def test_CustomReader_stops_at_a_hundred_faults(tmp_path: Path) -> None:
    """Reading stops at a hundred faults; the message says that there may be more."""
    path = write_json(tmp_path / "a.jsonl", [{**ROWS[0], "key": ""} for _ in range(150)])
    message = refusal(path).splitlines()
    assert message[0] == f"{SUMMARY}, but at least 100 faults were found:"
    assert message[-1] == "  ... and 80 more"


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("a.jsonl", "deep; all"),
        ("a.jsonl", "deep | all"),
        ("a.jsonl", "['deep', 'all']"),
        ("a.csv", "['deep', 'all']"),
        ("a.csv", "deep | all"),
    ],
)
def test_CustomReader_warns_of_lists_in_strings(tmp_path: Path, name: str, cell: str) -> None:
    """A column is warned of if most of its non-empty cells look like lists."""
    write = write_json if name.endswith("jsonl") else write_csv
    rows = [{**row, "key": f"{row['key']}{number}"} for number in range(2) for row in ROWS]
    config = Custom.Config(fields=["author"], columns=COLUMNS_OF_AUTHOR)
    warned = []
    for changed, other in ((len(rows) // 2, "deep"), (len(rows), ""), (1, "")):
        cells = [cell if number < changed else other for number in range(len(rows))]
        path = write(tmp_path / name, [{**r, "tags": c} for r, c in zip(rows, cells, strict=True)])
        corpus = CustomReader([path], config).read_corpus()
        assert cell in corpus.instances["label"]["id"].tolist()
        warned.append([one for one in corpus.warnings if "look like lists" in one])
    warning = (
        f"most values of the column 'tags' look like lists but are strings, such as '{cell}', and "
        f"a string is one value as it stands; make lists of them, in CSV with the option separator "
        f"between values"
    )
    assert warned == [[], [warning], [warning]]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_CustomReader_refuses_multi_hot_labels(tmp_path: Path, name: str) -> None:
    """Rows of 0 and 1 are refused; lists of labels whose ids are 0 and 1 are kept."""
    config = Custom.Config(fields=["author"], columns=COLUMNS_OF_AUTHOR)

    def read(*labels: list[int]) -> Corpus:
        paths = [tmp_path / f"{number}_{name}" for number in range(len(labels))]
        for path, row, one in zip(paths, ROWS, labels, strict=False):
            if name.endswith("jsonl"):
                write_json(path, [{**row, "tags": one}])
            else:
                write_csv(path, [{**row, "tags": "; ".join(map(str, one))}])
        return CustomReader(paths, config).read_corpus()

    with pytest.raises(CorpusError) as error:
        read([1], [0, 1], [0, 1, 1], [1, 0, 0])
    line = 2 if name.endswith("csv") else 1
    assert str(error.value) == (
        f"{SUMMARY}: 2_{name}:{line}: 'tags' must hold the ids of labels, found 0 and 1 alone, as "
        f"in rows of a multi-hot matrix; give the ids of the columns that are 1."
    )
    for kept in ([[1], [0, 1], [0]], [[0, 1, 1], [1, 0, 0], [2]]):
        assert set(read(*kept).instances["label"]["id"]) == {str(n) for one in kept for n in one}


def test_Custom_warns_of_texts_without_words(tmp_path: Path) -> None:
    """One warning is given if many non-empty texts have no words."""
    rows = [f"{n},{'слово' if n % 2 else ''},a\n" for n in range(40)]
    path = tmp_path / "d.csv"
    path.write_text(f"id,text,label\n{''.join(rows)}", encoding="utf-8")
    warning = (
        "20 of 40 documents have a text in which no word was found, and 100 of 100 characters are "
        "letters beyond ASCII: the tokenizer 'regex' knows ASCII letters and digits alone; for "
        "others set the tokenizer to unicode"
    )
    assert open_dataset("custom", root=tmp_path, path=str(path)).warnings == [warning]
    corpus = CustomReader([path], Custom.Config()).read_corpus()
    assert corpus.find_oddities() == [warning]
    found = open_dataset("custom", root=tmp_path, path=str(path), tokenizer="unicode")
    assert (found.warnings, found.names("word").tolist()) == ([], ["слово"])


def test_CustomReader_lists_in_strings_of_one_file_alone(tmp_path: Path) -> None:
    """No warning if few of all rows look like lists, or cells are single values by option."""
    rows = [{**row, "key": f"{row['key']}{number}"} for number in range(9) for row in ROWS]
    last = [{**ROWS[0], "key": "last", "tags": "deep; all"}]
    paths = [write_json(tmp_path / "a.jsonl", rows), write_json(tmp_path / "b.jsonl", last)]
    config = Custom.Config(fields=["author"], columns=COLUMNS_OF_AUTHOR)
    warned = CustomReader(paths, config).read_corpus().warnings
    assert not [one for one in warned if "look like lists" in one]
    path = write_csv(tmp_path / "a.csv", last)
    for separator, expected in (("", 0), ("|", 1)):
        changed = config.model_copy(update={"separator": separator})
        warned = CustomReader([path], changed).read_corpus().warnings
        assert len([one for one in warned if "'tags' look like lists" in one]) == expected


def test_CustomReader_absent_column_beside_other_faults(tmp_path: Path) -> None:
    """Other faults are listed with an absent column, unless reading has stopped."""
    path = write_json(tmp_path / "a.jsonl", [{"text": "a"}] * 3)
    with path.open("a") as file:
        file.write("{bad\n")
    columns = {"id": "part", "text": "text", "label": "text"}
    lines = refusal(path, columns=columns, fields=[]).splitlines()
    assert lines[0] == f"{SUMMARY}, but 2 faults were found:"
    assert "no document has the columns ['part']" in lines[1]
    assert "a.jsonl:4" in lines[2]
    write_json(path, [{"text": "a"}] * 120 + [{"part": "b", "text": "a"}])
    assert "no document that was read has the columns" in refusal(path, columns=columns, fields=[])


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "id": ({"key": ""}, "'key' must be the document's id, found the string \"\"."),
    "repeated": (
        {"key": "p1"},
        "the document 'p1' was given before (a.jsonl:2); every document needs an id of its own.",
    ),
    "text": ({"title": ["a"]}, "'title' must be a string, found the list [\"a\"]."),
    "label": (
        {"tags": {"a": 1}},
        "'tags' must be a string or a list of strings, found the object {\"a\": 1}.",
    ),
    "field": (
        {"who": [1.5]},
        "'who' must be a string or a list of strings, found the list [1.5].",
    ),
    "split": (
        {"fold": "later"},
        "'fold' must be one of ['train', 'training', 'valid', 'validation', 'val', 'dev', 'test', "
        "'testing'], found 'later'.",
    ),
    "date": (
        {"day": "12/31/2019"},
        "'day' must be a year, a month or a day, such as 2015, 2015-06 or 2015-06-30, found "
        "'12/31/2019'.",
    ),
    "date-short": (
        {"day": "2019-6-1"},
        "'day' must be a year, a month or a day, such as 2015, 2015-06 or 2015-06-30, found "
        "'2019-6-1'.",
    ),
    "split-list": ({"fold": ["train"]}, "'fold' must be a string, found the list [\"train\"]."),
}


@pytest.mark.parametrize("name", FAULTS)
def test_CustomReader_wrong_values_are_named_by_line(tmp_path: Path, name: str) -> None:
    """Wrong values are named by line and shown."""
    change, fault = FAULTS[name]
    path = write_json(tmp_path / "a.jsonl", [*ROWS[:2], {**ROWS[2], **change}])
    columns = {**COLUMNS_OF_AUTHOR, "split": "fold", "date": "day"}
    assert f"a.jsonl:3: {fault}" in refusal(path, columns=columns)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'3,"te"xt,a,l,train', "3: a row must be CSV, but it is not (',' expected after '\"')"),
        (b"id,text,author,label,fold,fold", None),
    ],
    ids=["quotes", "header"],
)
def test_CustomReader_skips_no_rest_of_a_file(
    tmp_path: Path, line: bytes, fault: str | None
) -> None:
    """A fault that hides the rest of a file is refused even if faults are skipped."""
    head, row = b"id,text,author,label,fold", b"%d,text of %d,bo,l,train"
    lines = [head, row % (1, 1), line, row % (4, 4)] if fault else [line, row % (1, 1)]
    (tmp_path / "a.csv").write_bytes(b"\n".join(lines) + b"\n")
    (tmp_path / "b.csv").write_bytes(b"\n".join([head, row % (9, 9)]) + b"\n")
    columns = {"split": "fold"}
    config = Custom.Config(fields=["author"], columns=columns)
    fault = fault or "1: the columns must have names of their own, but ['fold'] repeat."
    with pytest.raises(CorpusError, match=re.escape(f"a.csv:{fault}")):
        CustomReader([tmp_path / "a.csv", tmp_path / "b.csv"], config, faults="skip").read_corpus()


def test_CustomReader_skips_a_row_that_is_not_utf8(tmp_path: Path) -> None:
    """A row that is not UTF-8 is left out, not decoded with replacement characters."""
    lines = [b"id,text,label,fold", b"1,one,l,train", b"2,caf\xe9,l,train", b"3,three,l,test"]
    (tmp_path / "a.csv").write_bytes(b"\n".join(lines) + b"\n")
    config = Custom.Config(fields=[], columns={"split": "fold"})
    corpus = CustomReader([tmp_path / "a.csv"], config, faults="skip").read_corpus()
    assert corpus.documents["id"].tolist() == ["1", "3"]
    assert corpus.skipped["place"].tolist() == ["a.csv:3"]


def test_CustomReader_cycle_of_the_taxonomy_is_named(tmp_path: Path, taxonomy: Path) -> None:
    """A cycle is named, a self-loop, too."""
    taxonomy.write_text("all\tall\n")
    assert refusal(write_json(tmp_path / "a.jsonl"), taxonomy=str(taxonomy)) == (
        "The corpus 'custom' must be consistent: the label hierarchy must be acyclic, but "
        "all -> all is a cycle (taxonomy.txt:1); remove one of these edges, or leave the hierarchy "
        "out (of files: data.hierarchy=ignore)."
    )


def test_Custom_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    """Contradictory options are listed at once, before anything is read."""
    with pytest.raises(ConfigError) as caught:
        Custom(root=tmp_path, columns={"x": "y", "id": ["a", "b"], "split": "s"}, train_until=2000)
    assert str(caught.value).splitlines() == [
        "The options of Custom must be valid, but 4 faults were found:",
        "  columns must be those of ['id', 'text', 'label', 'split', 'date'], found ['x']; name a "
        "field in fields too.",
        "  columns.id must be one column, found ['a', 'b'].",
        "  a column of splits leaves nothing to train_until; remove one.",
        "  train_until needs a date; name its column in columns.date.",
    ]


def test_Custom_no_file_says_where_to_put_it(tmp_path: Path) -> None:
    """Without a file the message names suffixes, folder and option."""
    with pytest.raises(CorpusError) as caught:
        Custom(root=tmp_path)
    assert str(caught.value) == (
        f"The data set 'custom' reads files of yours (.jsonl, .jsonl.gz, .json, .json.gz, .ndjson, "
        f".ndjson.gz, .csv, .csv.gz, .tsv, .tsv.gz), but there is none at "
        f"'{tmp_path / 'raw' / 'custom'}'; put them there, or name a file or a folder with "
        f"--set data.options.path=PATH."
    )
    assert not (tmp_path / "raw").exists()


LINE = '{"id": 1, "text": "x", "label": ["a"], "s": "train"}\n'
SPLIT_COLUMN = {"split": "s"}


def test_Custom_nothing_is_written_beside_the_users_files(tmp_path: Path) -> None:
    """Nothing is written beside the files, and no folder is made."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "a.jsonl").write_text(LINE)
    before = [(path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")]
    dataset = Custom(path=str(folder), columns=SPLIT_COLUMN, root=tmp_path / "root")
    assert not Path(dataset.processed_dir).is_relative_to(folder)
    mine = [(path, path.stat().st_mtime_ns) for path in tmp_path.glob("mine/*")]
    assert [item for item in before if item[0].parent == folder] == mine
    with pytest.raises(CorpusError, match=r"but there is none at '.*nowhere'"):
        Custom(path=str(tmp_path / "nowhere"), root=tmp_path / "root")
    assert not (tmp_path / "nowhere").exists()


def test_Custom_ignored_taxonomy_need_not_be_there(tmp_path: Path) -> None:
    """With hierarchy=ignore the taxonomy is not read."""
    (tmp_path / "a.jsonl").write_text(LINE)
    dataset = Custom(
        path=str(tmp_path / "a.jsonl"), taxonomy=str(tmp_path / "none.txt"), hierarchy="ignore",
        columns=SPLIT_COLUMN, root=tmp_path / "root",
    )  # fmt: skip
    assert dataset.hierarchy.num_edges == 0


def test_Custom_build_follows_the_content_not_the_place(tmp_path: Path) -> None:
    """The key of a build depends on the content of the file, not on its path."""
    checksums = []
    for name, content in (("one", LINE), ("two", LINE), ("three", LINE.replace('"x"', '"y"'))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text(content)
        dataset = Custom(path=str(tmp_path / name), columns=SPLIT_COLUMN, root=tmp_path / "root")
        checksums.append(dataset.checksum)
    assert checksums[0] == checksums[1] != checksums[2]


def test_UserFiles_every_class_of_users_files_says_what_it_reads() -> None:
    """Every subclass has suffixes, and a card by its registered name."""
    classes = {name: cls for name, cls in DATASETS.items() if issubclass(cls, UserFiles)}
    assert sorted(classes) == ["custom", "openalex", "pubmed-xml"]
    for name, cls in classes.items():
        assert cls.card is not None
        assert cls.card.name == name
        assert all(suffix.startswith(".") for suffix in cls.suffixes)
        assert "path" in cls.path_options
        assert set(cls.path_options) <= set(cls.Config.model_fields)
