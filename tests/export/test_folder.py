"""Every target: round trips, nothing leaked, nothing half-written, one sentence on a fault."""

import errno
import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from match_graph.config import load_config
from match_graph.corpus_builder import CorpusBuilder
from match_graph.datasets import CorpusDataset, MatchFolder, PubMedXml, Synthetic
from match_graph.errors import ConfigError, ExportError
from match_graph.export import EXPORTS, ExportOptions, Inventory, export_dataset
from match_graph.io.beside import name_process
from match_graph.testing import toy_corpus, toy_documents, write_match_folder

#: Options that each registered target is tested with, on the toy corpus.
CASES: dict[str, list[dict[str, Any]]] = {
    "pyg": [{}, {"features": "ids", "include_labels": "all"}, {"include_labels": "none"}],
    "ogb": [{}, {"features": "ids", "include_labels": "all", "text": "raw"}],
    "relbench": [{}, {"features": "ids", "include_labels": "all"}, {"include_labels": "none"}],
    "networkx": [
        {},
        {"features": "ids", "include_labels": "all", "text": "raw"},
        {"include_labels": "none", "text": "words"},
    ],
    "parquet": [{}, {"features": "ids", "include_labels": "all"}, {"include_labels": "none"}],
    "match": [{}, {"include_labels": "all"}, {"include_labels": "none"}, {"text": "words"}],
}
LIBRARIES = {"ogb": "ogb", "relbench": "relbench"}


@pytest.fixture(params=sorted(EXPORTS), scope="session")
def target(request: pytest.FixtureRequest) -> str:
    """Each registered target, unless its library is not installed."""
    return skip_without_library(request.param)


def skip_without_library(target: str) -> str:
    if target in LIBRARIES:
        pytest.importorskip(LIBRARIES[target], reason=f"{target} needs match-graph[export]")
    return target


def test_EXPORTS_every_registered_target_is_tested() -> None:
    """Every registered target is named here and has a test file."""
    assert set(CASES) == set(EXPORTS)
    for name in EXPORTS:
        assert (Path(__file__).parent / f"test_{name}.py").is_file()


@pytest.mark.parametrize(
    ("name", "options"), [(name, case) for name, cases in CASES.items() for case in cases]
)
def test_export_dataset_toy_corpus_makes_a_round_trip(
    toy_dataset: MatchFolder, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    """The toy corpus makes a round trip; EXPORT.md has every count."""
    skip_without_library(name)
    out = export_dataset(toy_dataset, name, tmp_path / "out", ExportOptions(**options))
    assert out == tmp_path / "out"
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert text.startswith(f"# toy as {name}\n")
    for line in ("document | 12 | 12", "document contains word | 59 | 59", "author | 5 | 5"):
        assert f"| {line} |" in text
    gold = {"none": None, "train": 15, "all": 25}[options.get("include_labels", "train")]
    assert ("| document gold label |" in text) == (gold is not None)
    assert gold is None or f"| document gold label | {gold} | {gold} |" in text
    assert not list(tmp_path.glob(".*"))


def test_export_dataset_carries_times_and_names_lost_edge_attr(
    given_dataset: type, tmp_path: Path, target: str
) -> None:
    """Times make a round trip; EXPORT.md names what the format lacks."""
    corpus = toy_corpus()
    documents = corpus.documents.assign(time=range(2000, 2012))
    author = corpus.edges["author"].assign(edge_attr_0=1.5)
    edges = {**corpus.edges, "author": author}
    dataset = given_dataset(replace(corpus, documents=documents, edges=edges), tmp_path / "root")
    assert "edge_attr" in dataset[0]["document", "has", "author"]
    out = export_dataset(dataset, target, tmp_path / "out", ExportOptions(text="words"))
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert ("Attributes of edges (`edge_attr`)" in text) == (target != "pyg")
    assert ("The time of documents" in text) == (target == "match")


def test_export_dataset_carries_definitions(
    given_dataset: type, tmp_path: Path, target: str
) -> None:
    """Definitions, also empty ones, make a round trip where the format has them."""
    corpus = toy_corpus()
    label = corpus.instances["label"]
    texts = [f"all of {name} & more" for name in label["id"]]
    texts[1] = ""
    instances = {**corpus.instances, "label": label.assign(name=label["id"], definition=texts)}
    dataset = given_dataset(replace(corpus, instances=instances), tmp_path / "root")
    options = ExportOptions(text="words", include_labels="all")
    out = export_dataset(dataset, target, tmp_path / "out", options)
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert ("Definitions: the format has no place" in text) == (target == "match")
    held = any(texts[0].encode() in path.read_bytes() for path in out.rglob("*.json"))
    assert held == (target == "networkx")


# Leaks ------------------------------------------------------------------------------------------


def content(folder: Path, checksum: str) -> dict[str, bytes]:
    """Content of every file of an export, without the checksum of its source."""
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(checksum[:16].encode(), b"")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


SMALL = ["pretrain.samples=20000", "pretrain.channels=8", "model.channels=8"]


@pytest.mark.parametrize("include_labels", ["none", "train", "all"])
def test_export_dataset_gold_labels_other_splits_change_no_byte(
    tmp_path: Path, target: str, include_labels: str
) -> None:
    """No byte of an export depends on gold labels of other splits.

    Two corpora that differ in those labels alone give the same files, unless all are asked for.

    Nothing about a label that changes no byte of any file can be read from the files.
    """
    if include_labels not in EXPORTS[target].include_labels:
        pytest.skip(f"{target} needs labels")
    documents = toy_documents()
    other = toy_documents()
    other["valid"][0]["label"], other["test"][0]["label"] = (
        documents["test"][0]["label"], documents["valid"][0]["label"]
    )  # fmt: skip
    found = []
    for number, given_documents in enumerate((documents, other)):
        folder = write_match_folder(tmp_path / str(number) / "toy", given_documents)
        dataset = MatchFolder(folder, root=tmp_path / "root")
        out = tmp_path / "out"
        features = "pretrained" if target == "pyg" else "none"
        options = ExportOptions(include_labels=include_labels, features=features)
        config = load_config(None, SMALL)
        export_dataset(dataset, target, out, options, config=config, overwrite=True)
        found.append(content(out, dataset.checksum))
    assert (found[0] == found[1]) == (include_labels != "all")
    if include_labels != "all":
        assert list(found[0]) == list(found[1])


def test_export_dataset_without_labels_training_gold_changes(tmp_path: Path, target: str) -> None:
    """Without labels, no byte depends on training gold either.

    Labels of two training documents are swapped; their counts stay, so that the order does.
    """
    if "none" not in EXPORTS[target].include_labels:
        pytest.skip(f"{target} needs labels")
    found = []
    for number in range(2):
        documents = toy_documents()
        if number:
            first, second = documents["train"][0], documents["train"][3]
            first["label"], second["label"] = second["label"], first["label"]
        folder = write_match_folder(tmp_path / str(number) / "toy", documents)
        dataset = MatchFolder(folder, root=tmp_path / "root")
        options = ExportOptions(include_labels="none")
        out = export_dataset(dataset, target, tmp_path / "out", options, overwrite=True)
        found.append(content(out, dataset.checksum))
    assert found[0] == found[1]


# Odd strings ------------------------------------------------------------------------------------

ODD = " \t\n\r\"'\\%,;:&<>|/#\x00\x01\x0b\x1c\x1f\x7f\x85\xa0\u2028\u2029\ufeff\ufffe\uffff"
NAMES = st.one_of(
    st.sampled_from(["007", "1e5", "nan", "NA", "null", "True", "-0", " ", "ü" * 4000, "a/b"]),
    st.text(st.sampled_from(ODD + "ab"), min_size=1, max_size=5),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
)


@st.composite
def corpora(draw) -> tuple[CorpusBuilder, list[tuple[str, str, str]]]:
    """Few documents with odd ids, metadata, labels and words."""
    labels = draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    authors = draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    ids = draw(st.lists(NAMES, min_size=3, max_size=6, unique=True))
    splits = ["train", "valid", "test", *draw(st.permutations(["train"] * (len(ids) - 3)))]
    builder = CorpusBuilder("odd", ["author", "reference"], "odd", tokenizer="whitespace")
    for number, (name, split) in enumerate(zip(ids, draw(st.permutations(splits)), strict=True)):
        text = draw(st.one_of(NAMES, st.lists(NAMES, max_size=5).map(" ".join)))
        chosen = {
            "author": draw(st.lists(st.sampled_from(authors), max_size=3, unique=True)),
            "reference": draw(st.lists(st.sampled_from([*ids, "?"]), max_size=3, unique=True)),
        }
        gold = [labels[number % len(labels)]]
        gold += draw(st.lists(st.sampled_from(labels), max_size=2, unique=True))
        builder.add(name, split, text, chosen, gold, f"{number}")
    for kind, instances in (("author", authors), ("label", labels)):
        for instance in draw(st.lists(st.sampled_from(instances), max_size=2)):
            builder.set_name(kind, instance, draw(NAMES))
    for label in draw(st.lists(st.sampled_from(labels), max_size=2)):
        builder.set_depth(label, draw(st.integers(0, 9)))
    return builder, [(low, high, "") for high, low in pairwise(labels)]


def test_export_dataset_names_and_depths_make_a_round_trip(
    given_dataset, tmp_path: Path, target: str
) -> None:
    """Names of any type and depths of labels, also missing ones, make a round trip."""
    builder = CorpusBuilder("named", ["author"], "named")
    builder.add("d", "train", "w", {"author": ["a1", "a2"]}, ["l1", "l2"], "1")
    builder.set_name("author", "a2", "Åsa Öberg")
    builder.set_name("label", "l1", "Label one")
    builder.set_depth("l1", 2)
    dataset = given_dataset(builder.build([]), tmp_path)
    out = export_dataset(dataset, target, tmp_path / "out", ExportOptions(include_labels="all"))
    text = (out / "EXPORT.md").read_text(encoding="utf-8")
    assert ("The depth of labels" in text) == (target == "match")


@settings(max_examples=12)
@given(made=corpora(), include_labels=st.sampled_from(["train", "all"]))
def test_export_dataset_odd_strings_make_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, given_dataset, target: str, made, include_labels: str
) -> None:
    """White space, quotes, control characters and long ids make a round trip."""
    builder, hierarchy = made
    folder = tmp_path_factory.mktemp("odd")
    dataset = given_dataset(builder.build(hierarchy), folder)
    text = "raw" if "raw" in EXPORTS[target].texts else None
    options = ExportOptions(include_labels=include_labels, text=text)
    assert export_dataset(dataset, target, folder / "out", options).is_dir()


# Faults -----------------------------------------------------------------------------------------


def refusal(*arguments: Any, error: type[Exception] = ExportError, **named: Any) -> str:
    with pytest.raises(error) as caught:
        export_dataset(*arguments, **named)
    return str(caught.value)


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """Limits the size of files of this process, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_export_dataset_disk_fills_one_sentence_leaves_nothing(
    toy_dataset: MatchFolder, tmp_path: Path, target: str
) -> None:
    """A full disk in the middle of a file is one sentence for every library."""
    with small_files(700):
        message = refusal(toy_dataset, target, tmp_path / "out")
    assert message == (
        f"An export must be written whole, but '{tmp_path}/out' could not be (File too large); "
        f"nothing new is left. Make room on the disk, or choose another --out."
    )
    assert not list(tmp_path.iterdir())


def test_export_dataset_no_space_left_while_description_written(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk at the last file keeps the old export, too."""
    out = export_dataset(toy_dataset, "parquet", tmp_path / "out")
    before = content(out, "")

    def fail(*_arguments: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("match_graph.export.folder.describe_export", fail)
    message = refusal(toy_dataset, "parquet", out, overwrite=True)
    assert message == (
        f"An export must be written whole, but '{out}' could not be (No space left on device); "
        f"nothing new is left. Make room on the disk, or choose another --out."
    )
    assert content(out, "") == before
    assert list(tmp_path.iterdir()) == [out]


def test_export_dataset_old_export_comes_back_when_new_cannot(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old export is restored if the new one cannot be renamed.

    Between the two renames nothing is lost.
    """
    out = export_dataset(toy_dataset, "parquet", tmp_path / "out")
    before, rename = content(out, ""), Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.parent.name.endswith(".tmp"):
            raise OSError(errno.EACCES, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    assert "(Permission denied)" in refusal(toy_dataset, "pyg", out, overwrite=True)
    assert content(out, "") == before
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_export_dataset_what_killed_export_left_goes_with_next(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leftovers of a killed export are removed by the next one, others stay."""
    out = export_dataset(toy_dataset, "parquet", tmp_path / "out")
    rename = Path.rename

    def die(self: Path, target: Path) -> Path:
        if self.parent.name.endswith(".tmp"):
            os.kill(os.getpid(), signal.SIGKILL)
        return rename(self, target)

    def run() -> None:
        export_dataset(toy_dataset, "parquet", out, overwrite=True)

    process = multiprocessing.get_context("fork").Process(target=run)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", die)  # the process inherits it
        process.start()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    left = sorted(path.name for path in tmp_path.iterdir())
    assert {tuple(name.split(".")[-2:]) for name in left} == {
        (name_process(process.pid), "old"), (name_process(process.pid), "tmp")
    }  # fmt: skip
    assert len(left) == 2
    mine = tmp_path / f".out.{name_process()}.tmp.zip"
    mine.write_text("")
    of_another = tmp_path / f".out.{name_process(os.getppid())}.tmp"
    of_another.mkdir()
    export_dataset(toy_dataset, "parquet", out)
    assert sorted(tmp_path.iterdir()) == sorted([mine, of_another, out])


def test_export_dataset_makes_no_folder_above_where_it_fails(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed export leaves no parent folder that it made."""
    save = torch.save

    def fill(content: object, file: object, *arguments: object, **named: Any) -> None:
        if "processed" in str(file):
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")
        save(content, file, *arguments, **named)

    monkeypatch.setattr(torch, "save", fill)
    out = tmp_path / "deep" / "deeper" / "out"
    assert "could not be (No space left on device)" in refusal(toy_dataset, "ogb", out)
    assert not list(tmp_path.iterdir())


def test_export_dataset_refuses_places_that_are_no_folder(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """A pipe, a cyclic link, a file above and NUL are refused."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.iterdir())
    for name in ("pipe", "loop"):
        assert refusal(toy_dataset, "match", tmp_path / name, overwrite=True) == (
            f"An export must go into a new or empty folder, but '{tmp_path}/{name}' is no folder; "
            f"choose another --out."
        )
    assert refusal(toy_dataset, "match", tmp_path / "file" / "out") == (
        f"An export must be written whole, but '{tmp_path}/file/out' could not be (File "
        f"exists); nothing new is left. Make room on the disk, or choose another --out."
    )
    assert refusal(toy_dataset, "match", "a\0b", error=ConfigError) == (
        "An export must be a path, found 'a\\x00b'; give a string or a Path."
    )
    assert sorted(tmp_path.iterdir()) == before
    assert export_dataset(toy_dataset, "match", tmp_path / "a\nb").is_dir()


def test_export_dataset_follows_links_to_folders(toy_dataset: MatchFolder, tmp_path: Path) -> None:
    """Links to folders are followed and kept; permissions follow the umask."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    before = os.umask(0o027)
    try:
        for _ in range(2):
            out = export_dataset(toy_dataset, "ogb", tmp_path / "link", overwrite=True)
        assert export_dataset(toy_dataset, "pyg", tmp_path / "new" / ".." / "other").is_dir()
    finally:
        os.umask(before)
    assert out == tmp_path / "real"
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "other", "real"]
    modes = {path.stat().st_mode & 0o777 for path in out.rglob("*") if path.is_file()}
    assert modes == {0o640}
    assert out.stat().st_mode & 0o777 == 0o750


def test_export_dataset_difference_is_a_fault_and_leaves_nothing(
    toy_dataset: MatchFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """An export that differs by one word is refused, and nothing is left."""
    add_edges = Inventory.add_edges
    seen = []

    def spoil(self, edge_type, ends, columns=None) -> None:
        if edge_type[1] == "contains":
            seen.append(self)
            if self is not seen[0]:
                ends = [ends[0], [*ends[1][1:], ends[1][0]]]
        add_edges(self, edge_type, ends, columns)

    monkeypatch.setattr(Inventory, "add_edges", spoil)
    message = refusal(toy_dataset, target, tmp_path / "out")
    assert "document contains word: 'ends' has other values." in message
    assert f"this is a fault of the target '{target}', please report it" in message
    assert not list(tmp_path.iterdir())


def test_export_dataset_folder_with_something_else_is_left_alone(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Only an export is overwritten, and only on request."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("")
    for overwrite in (False, True):
        assert refusal(toy_dataset, "pyg", out, overwrite=overwrite) == (
            f"An export must go into a new or empty folder, but '{out}' holds something else; "
            f"choose another --out."
        )
    (out / "thesis.tex").unlink()
    export_dataset(toy_dataset, "pyg", out)
    assert refusal(toy_dataset, "parquet", out) == (
        f"An export must go into a new or empty folder, but '{out}' holds an export; "
        f"choose another --out, or replace it with --overwrite."
    )
    export_dataset(toy_dataset, "parquet", out, overwrite=True)
    assert (out / "schema.json").is_file()
    assert not (out / "data.pt").exists()
    file = tmp_path / "file"
    file.write_text("")
    assert refusal(toy_dataset, "pyg", file) == (
        f"An export must go into a new or empty folder, but '{file}' is no folder; "
        f"choose another --out."
    )


def test_export_dataset_refuses_what_is_no_open_data_set(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """A graph alone has neither texts nor targets, and says so instead of failing within."""
    graph: Any = toy_dataset[0]
    with pytest.raises(ConfigError) as caught:
        export_dataset(graph, "pyg", tmp_path / "out")
    assert str(caught.value) == (
        "An export takes an open data set, found HeteroData; open it by open_dataset first."
    )
    assert list(tmp_path.iterdir()) == []


def test_export_dataset_target_and_choices_that_do_not_exist(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Unknown targets and options are refused, all at once."""
    assert refusal(toy_dataset, "dgl", tmp_path / "out", error=ConfigError) == (
        "An export target must be one of ['match', 'networkx', 'ogb', 'parquet', 'pyg', "
        "'relbench'], found 'dgl'."
    )
    options = ExportOptions(features="ids", text="none")
    message = refusal(
        toy_dataset, "match", tmp_path / "out", options, run=tmp_path, error=ConfigError
    )
    assert message.splitlines() == [
        "The options of an export must fit its target, but 3 faults were found:",
        "  --features must be one of ['none', 'data'] for the target 'match', found 'ids'.",
        "  --text must be one of ['raw', 'words'] for the target 'match', found 'none'.",
        "  --run gives vectors for --features pretrained, found --features ids.",
    ]
    assert not list(tmp_path.iterdir())


def test_export_dataset_without_labels_takes_nothing_they_taught(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Without labels, features that were learned from them are refused."""
    near = load_config(settings=["data.features.document={latent: 4, neighbors: 2}"])
    cases = [
        ({"features": "pretrained"}, {"run": tmp_path}, "the vectors of a run"),
        ({"features": "data"}, {"config": near}, "features of predicted neighbours"),
    ]
    for chosen, given_to, name in cases:
        options = ExportOptions(include_labels="none", **chosen)
        message = refusal(
            toy_dataset, "pyg", tmp_path / "out", options, error=ConfigError, **given_to
        )
        assert message.endswith(
            f"--include-labels none must leave out what gold labels teach, but {name} have "
            f"learned from those of training documents; choose other --features, or "
            f"--include-labels train."
        )
    assert not list(tmp_path.iterdir())


def test_export_dataset_refuses_neighbours_of_citations_left_out(
    toy_dataset: MatchFolder, tmp_path: Path
) -> None:
    """Features of predicted neighbours need the field that their citations come from."""
    settings = ["data.features.document={latent: 4, neighbors: 2}", "data.drop_fields=[reference]"]
    message = refusal(
        toy_dataset, "pyg", tmp_path / "out", config=load_config(settings=settings),
        error=ConfigError,
    )  # fmt: skip
    assert message.startswith(
        "Features of predicted neighbours learn from citations, but 'reference', of which these "
        "are made, is left out;"
    )


# Real data --------------------------------------------------------------------------------------


def count_rows(folder: Path) -> dict[str, list[str]]:
    """Counts of EXPORT.md: of the source, and those read back."""
    lines = (folder / "EXPORT.md").read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {name: counts for name, *counts in cells if name != "source"}


def assert_nothing_is_lost(dataset: CorpusDataset, target: str, out: Path) -> None:
    """Compares counts of all node and edge types, splits and gold labels in every file."""
    export_dataset(dataset, target, out, ExportOptions(include_labels="all"))
    rows, data = count_rows(out), dataset[0]
    expected = {name: int(data[name].num_nodes) for name in data.node_types}
    expected |= {
        " ".join(edge_type): data[edge_type].edge_index.size(1) for edge_type in data.edge_types
    }
    expected["document gold label"] = len(dataset.targets.index)
    assert set(rows) == set(expected)
    for name, number in expected.items():
        allowed = {f"{number:,}"} | ({"-"} if name == "document tagged label" else set())
        assert set(rows[name]) <= allowed, name  # RelBench keeps those in its task


def test_export_dataset_planted_corpus_makes_a_round_trip(
    synthetic: Synthetic, tmp_path: Path, target: str
) -> None:
    """400 synthetic documents make a round trip, in GraphML, too."""
    assert_nothing_is_lost(synthetic, target, tmp_path / "out")
    assert (target == "networkx") == (tmp_path / "out" / "graph.graphml").is_file()


def test_export_dataset_pubmed_records_make_a_round_trip(
    data_folder: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, target: str
) -> None:
    """93 real records with MeSH trees make a round trip, in GraphML, too."""
    if not (data_folder / "pubmed").is_dir():
        pytest.skip(f"no pubmed in {data_folder}")
    root = tmp_path_factory.getbasetemp() / "pubmed-root"
    dataset = PubMedXml(path=str(data_folder / "pubmed"), root=root)
    assert_nothing_is_lost(dataset, target, tmp_path / "out")


def test_export_dataset_cacm_makes_a_round_trip(
    data_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
) -> None:
    """1,424 documents make a round trip: every count equals the graph's."""
    # NetworkX takes ten seconds for GraphML of this size; the toy corpus has it
    monkeypatch.setattr("match_graph.export.networkx.MAX_GRAPHML_ITEMS", 0)
    if not (data_folder / "cacm").is_dir():
        pytest.skip(f"no cacm in {data_folder}")
    root = tmp_path_factory.getbasetemp() / "cacm-root"
    dataset = MatchFolder(data_folder / "cacm", root=root)
    assert_nothing_is_lost(dataset, target, tmp_path / "out")
    rows = count_rows(tmp_path / "out")
    for name, number in (("document", 1424), ("author", 1614), ("reference", 1294), ("label", 197)):
        assert rows[name][0] == f"{number:,}"
