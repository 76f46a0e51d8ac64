"""The command line: stages by name; exit code 1 and one sentence on wrong input."""

import csv
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

import match_graph
from match_graph import __version__
from match_graph.datasets import DATASETS
from match_graph.graph import MappedGraph
from match_graph.predict import load
from match_graph.runs.measures import ABOUT_POLICY
from match_graph.testing import toy_documents, write_match_folder, write_release_folder

SMALL = [
    "--set", "pretrain.samples=20000",
    "--set", "pretrain.channels=16",
    "--set", "model.channels=16",
    "--set", "model.encoder_config={num_layers: 1, num_cls: 2, position_channels: 4}",
    "--set", "train.epochs=1",
    "--set", "train.batch_size=16",
    "--quiet",
]  # fmt: skip


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """The toy data set as a folder."""
    folder = tmp_path / "toy"
    write_match_folder(folder)
    return folder


def test_run_does_the_whole_line_and_says_so_when_finished(call, toy: Path, tmp_path: Path) -> None:
    """`run` does all stages and prints a table; a finished run is not run again."""
    out = tmp_path / "run"
    code, printed, _ = call("run", toy, "--out", out, "--seed", 1, *SMALL)
    assert code == 0
    assert all(part in printed for part in ("valid", "test, label prior", "NDCG@5"))
    assert f"\n{ABOUT_POLICY}\n" in printed
    for split in ("valid", "test"):
        assert f" {split} documents have the words of a training document." in printed
    before = (out / "model.safetensors").stat().st_mtime_ns
    code, printed, error = call("run", toy, "--out", out, "--seed", 1, *SMALL[:-1])
    assert code == 0
    assert "This run is finished; --overwrite runs it again" in error
    assert (out / "model.safetensors").stat().st_mtime_ns == before


def test_run_and_predict_show_names_beside_ids(call, toy: Path, tmp_path: Path) -> None:
    """Labels and metadata are shown by name and id in all outputs."""
    documents = toy_documents()
    records = [record for records in documents.values() for record in records]
    for field in ("label", "author"):
        names = {name for record in records for name in record[field]}
        lines = "".join(f"{name}\tName of {name}\n" for name in sorted(names))
        (toy / f"id2{field}.txt").write_text(lines)
    out = tmp_path / "run"
    code, printed, _ = call("run", toy, "--out", out, *SMALL)
    assert code == 0
    record = documents["test"][0]
    label, author = record["label"][0], record["author"][0]
    assert f"Name of {label} ({label})" in printed.partition("gold: ")[2].partition("\n")[0]
    assert f"author: Name of {author} ({author})" in printed
    explain = ("predict", out, "--explain", "--document", record["paper"])
    code, printed, _ = call(*explain)
    assert code == 0
    assert f"gold: Name of {label} ({label})" in printed
    assert f"author: Name of {author} ({author})" in printed
    assert f"author Name of {author} ({author})" in printed
    study = json.loads(call(*explain, "--json")[1])
    assert study["names"]["author"][author] == f"Name of {author}"
    (variant,) = study["variants"]
    for one in [*variant["predictions"], *variant["missed"]]:
        assert one["name"] == f"Name of {one['label']}"
    (tmp_path / "new.jsonl").write_text(json.dumps(record))
    (line,) = call("predict", out, "--input", tmp_path / "new.jsonl", "--quiet")[1].splitlines()
    assert all(one["name"] == f"Name of {one['id']}" for one in json.loads(line)["labels"])


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_run_writes_files_with_the_permissions_of_umask(call, toy: Path, mask: int) -> None:
    """Files of runs, builds, predictions and reports have the permissions of umask."""
    before = os.umask(mask)
    try:
        base = toy.parent / "base"
        run = base / "run"
        assert call("run", toy, "--out", run, "--root", base / "root", *SMALL)[0] == 0
        (base / "new.jsonl").write_text('{"text": "deep nets"}\n')
        given = ("predict", run, "--input", base / "new.jsonl", "--quiet", "--output")
        assert call(*given, base / "lines.jsonl")[0] == 0
        assert call(*given, f"{base}/many/")[0] == 0
        assert call("report", run, "--root", base / "root", "--quiet")[0] == 0
    finally:
        os.umask(before)
    assert (run / "model.safetensors").is_file()
    for path in base.rglob("*"):
        usual = 0o777 if path.is_dir() else 0o666
        assert path.stat().st_mode & 0o777 == usual & ~mask, path


def test_stages_one_by_one_give_the_same_metrics_as_run(call, toy: Path, tmp_path: Path) -> None:
    """pretrain, train and evaluate give the bytes of `run`'s metrics."""
    call("run", toy, "--out", tmp_path / "whole", *SMALL)
    out = tmp_path / "stages"
    assert call("pretrain", toy, "--out", out, *SMALL)[0] == 0
    assert (out / "vectors.safetensors").is_file()
    assert call("train", toy, "--out", out, *SMALL)[0] == 0
    assert not (out / "metrics.json").exists()
    assert call("evaluate", out, "--quiet")[0] == 0
    expected = json.loads((tmp_path / "whole" / "metrics.json").read_text())
    assert json.loads((out / "metrics.json").read_text()) == expected


def test_run_writes_settings_by_name(call, toy: Path, tmp_path: Path) -> None:
    """`--set` overrides `--preset`; the run's file holds every setting; a wrong preset is named."""
    out = tmp_path / "run"
    small = [
        "--set", "pretrain.samples=2000", "--set", "train.epochs=1", "--set", "model.channels=16",
        "--set", "pretrain.channels=16", "--set", "model.encoder_config.bottleneck=8", "--quiet",
    ]  # fmt: skip
    code, _, error = call(
        "run", toy, "--out", out, "--encoder", "xml_cnn", "--preset", "own", *small
    )
    assert (code, error) == (0, "")
    written = yaml.safe_load((out / "config.yaml").read_text())
    assert written["model"]["encoder_config"]["bottleneck"] == 8
    assert written["model"]["encoder_config"]["num_filters"] == 32
    assert written["model"]["init"] == "spherical_text"
    assert (written["model"]["channels"], written["train"]["batch_size"]) == (16, 20)
    code, _, error = call("run", toy, "--encoder", "xml_cnn", "--preset", "best", *small)
    assert code == 1
    assert error == (
        "Error: The preset of the encoder 'xml_cnn' must be one of ['own', 'paper'], found "
        "'best'; choose one, or leave --preset out.\n"
    )


def test_build_prints_table_1(call, toy: Path) -> None:
    """`build` prints the counts of the paper's Table 1, edges per type and P(parent | child)."""
    code, printed, _ = call("build", toy)
    assert code == 0
    for part in ("train documents", "vocabulary", "author nodes", "hierarchy layers",
                 "P(parent | child) in training", "document cites document edges"):  # fmt: skip
        assert part in printed


def test_build_reads_the_graph_in_place(call, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`build` makes no edge list in memory, which would take 4 GiB for 700,000 documents."""

    def refuse(graph: MappedGraph) -> None:
        raise AssertionError("the graph is expanded")

    monkeypatch.setattr(MappedGraph, "to_hetero", refuse)
    code, printed, error = call("build", toy)
    assert (code, error) == (0, "")
    assert "hierarchy edges" in printed


def test_build_checks_the_features_of_the_settings(call, toy: Path) -> None:
    """Wrong features are refused as by `run`, in one sentence."""
    code, _, error = call("build", toy, "--set", f"data.features.document={toy / 'missing.npy'}")
    assert code == 1
    assert "missing.npy" in error
    assert error.count("\n") == 1


def test_build_checks_the_fields_to_leave_out(call, toy: Path) -> None:
    """Unknown fields of data.drop_fields are refused as by `run`."""
    code, _, error = call("build", toy, "--set", "data.drop_fields=[venu]")
    assert code == 1
    assert error.startswith("Error: data.drop_fields must name metadata fields of the data set")


def test_build_names_the_file_of_skipped_faults(call, toy: Path) -> None:
    """Skipped faults are listed in a file, which `build` names if there are any."""
    assert "faults" not in call("build", toy)[2]
    with (toy / "train.json").open("a", encoding="utf-8") as file:
        file.write("no JSON\n")
    _, _, error = call("build", toy, "--set", "data.faults=skip")
    [line] = [line for line in error.splitlines() if line.startswith("faults, with")]
    listed = pd.read_parquet(line.partition(": ")[2])
    assert [*listed["place"]] == [
        f"train.json:{len((toy / 'train.json').read_text().splitlines())}"
    ]


def test_build_compares_with_published_counts(call, tmp_path: Path) -> None:
    """Counts that a paper published stand beside those found, with the difference."""
    write_release_folder(tmp_path / "raw" / "MAG")
    code, printed, _ = call("build", "mag-cs", "--root", tmp_path, "--quiet")
    assert code == 0
    assert all(part in printed for part in ("published", "difference", "564,340", "-564,332"))


def test_evaluate_a_run_of_a_table_from_elsewhere(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options reach the data set; a run keeps the paths of its files as absolute ones."""
    rows = [record for records in toy_documents().values() for record in records]
    splits = ["train"] * 8 + ["dev"] * 2 + ["test"] * 2
    lines = [json.dumps({**row, "s": s}) for row, s in zip(rows, splits, strict=True)]
    (tmp_path / "toy.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    options = "{path: toy.jsonl, fields: [venue, author], columns: {id: paper, split: s}}"
    out = tmp_path / "run"
    code, printed, error = call("run", "custom", "--set", f"data.options={options}", "--out", out,
                                *SMALL)  # fmt: skip
    assert code == 0
    assert error == (
        "warning: the columns ['reference'] are not read; name metadata in the option fields, and "
        "a column of splits or dates in the option columns\n"
    )
    assert "NDCG@5" in printed
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert call("evaluate", out, "--quiet")[0] == 0
    code, printed, _ = call("predict", out, "--input", tmp_path / "toy.jsonl", "--quiet")
    plain = [{key: one for key, one in row.items() if key != "reference"} for row in rows]
    expected = load(out).predict(plain)
    assert code == 0
    assert [json.loads(line) for line in printed.splitlines()] == expected
    table = tmp_path / "new.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "s"])
        writer.writeheader()
        for row, split in zip(rows, splits, strict=True):
            cells = {key: ";".join(v) if isinstance(v, list) else v for key, v in row.items()}
            writer.writerow({**cells, "s": split})
    assert call("predict", out, "--input", table, "--quiet")[:2] == (code, printed)
    several = ("--input", table, "--input", tmp_path / "toy.jsonl")
    assert call("predict", out, *several, "--output", tmp_path / "results", "--quiet")[0] == 0
    assert (tmp_path / "results" / "new.jsonl").read_text() == printed
    assert (tmp_path / "results" / "toy.jsonl").read_text() == printed
    for path in several[1::2]:
        target = tmp_path / "measures" / path.name
        assert call("evaluate", out, "--input", path, "--output", target, "--quiet")[0] == 0
    found = [(tmp_path / "measures" / one.name / "metrics.json") for one in several[1::2]]
    assert found[0].read_text() == found[1].read_text()


def test_build_options_of_a_data_set_are_settings(call, tmp_path: Path) -> None:
    """Options of a data set are settings, and a wrong one is refused in one sentence."""
    path = tmp_path / "toy.csv"
    path.write_text("paper,text,label,who\n1,a text,x;y,Bo\n2,more,x,Li\n")
    arguments = ["build", "custom", "--root", tmp_path, "--set", f"data.options.path={path}"]
    mapped = "data.options.columns={id: paper, author: who}"
    code, printed, _ = call(*arguments, "--set", mapped, "--set", "data.fields=[author]", "--quiet")
    assert code == 0
    assert "author nodes" in printed
    code, _, error = call(*arguments, "--set", "data.options.subject=Art")
    assert code == 1
    assert error.startswith(
        "Error: The options of Custom must be valid: 'subject' is not a setting"
    )


def test_datasets_lists_what_is_registered(call, tmp_path: Path) -> None:
    """`datasets` prints a table, or JSON lines with --json."""
    code, printed, _ = call("datasets", "--root", tmp_path)
    assert code == 0
    assert all(part in printed for part in ("mag-cs", "needs", "licence"))
    code, printed, _ = call("datasets", "--root", tmp_path, "--json")
    rows = {row["name"]: row for row in map(json.loads, printed.splitlines())}
    assert rows["mag-cs"]["state"] == "needs files"
    assert rows["synthetic"]["licence"] == "match-graph's own"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--input", "new.jsonl"], "--input and --output belong together"),
        (["--output", "out"], "--input and --output belong together"),
        (["--workers", "2"], "--workers and --scheduler share the files of --input"),
        (["--device", "cpu"], "--device and --batch-size belong to --input"),
        (["--batch-size", "7"], "--device and --batch-size belong to --input"),
        (
            ["--input", "new.jsonl", "--output", "out", "--root", "there"],
            "--root and --dataset are of a run's own documents, not --input",
        ),
        (
            ["--input", "new.jsonl", "--output", "out", "--dataset", "toy"],
            "--root and --dataset are of a run's own documents, not --input",
        ),
        (["--input", "new.jsonl", "--output", "out", "--devices", "2"], "torchrun alone"),
    ],
)
def test_evaluate_refuses_options_of_other_documents(call, given: list[str], sentence: str) -> None:
    """Options of a run's own documents are refused beside --input, and vice versa."""
    code, _, error = call("evaluate", "runs/x", *given)
    assert code == 2
    assert sentence in " ".join(error.replace("│", "").split())


def test_version_and_wrong_usage(call) -> None:
    """--version prints the version; an unknown option exits with code 2."""
    assert call("--version")[:2] == (0, f"{__version__}\n")
    assert call("run")[0] == 2
    assert call("run", "x", "--no-such-option")[0] == 2


def test_main_looks_seldom_through_what_imports_have_made(call) -> None:
    """The threshold of the oldest generation of garbage is ten times Python's."""
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        assert call("--version")[0] == 0
        assert gc.get_threshold() == (700, 10, 100)
    finally:
        gc.set_threshold(*before)


def test_pretrain_text_beside_evaluate_is_wrong_usage(call, tmp_path: Path) -> None:
    """--text is refused beside --evaluate, which keeps no vectors."""
    out = tmp_path / "run"
    code, _, error = call("pretrain", "synthetic", "--out", out, "--text", "--evaluate")
    assert code == 2
    assert "--text writes vectors, but --evaluate trains none to be kept" in " ".join(error.split())
    assert not out.exists()


@pytest.mark.parametrize("name", ["my #1.py:Mean", "[1].py:Mean", "a: b.py:Mean", "{x}:Mean"])
def test_run_names_of_options_are_no_yaml(call, toy: Path, tmp_path: Path, name: str) -> None:
    """Names given by options are not parsed as YAML."""
    code, _, error = call("run", toy, "--out", tmp_path / "run", "--encoder", name)
    assert code == 1
    assert "must be YAML" not in error
    assert f"'{name}'" in error


def break_line(folder: Path) -> None:
    text = (folder / "train.json").read_text()
    (folder / "train.json").write_text(text[: len(text) // 2])


def break_encoding(folder: Path) -> None:
    (folder / "test.json").write_bytes(b'{"paper": "\xff"}\n')


def close_cycle(folder: Path) -> None:
    with (folder / "taxonomy.txt").open("a") as file:
        file.write("deep science\n")


def make_label_a_string(folder: Path) -> None:
    documents = toy_documents()
    documents["train"][0]["label"] = "a"
    write_match_folder(folder, documents)


def repeat_document(folder: Path) -> None:
    text = (folder / "train.json").read_text()
    (folder / "train.json").write_text(text + text.splitlines()[0] + "\n")


def empty_training(folder: Path) -> None:
    (folder / "train.json").write_text("")


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        (lambda folder: (folder / "dev.json").unlink(), "it has no dev.json"),
        (break_line, "a line must be one JSON object"),
        (break_encoding, "test.json:1: the file must be UTF-8, but byte 11 of the line is 0xff"),
        (close_cycle, "the label hierarchy must be acyclic, but "),
        (make_label_a_string, "'label' must be a list of strings, found the string \"a\""),
        (repeat_document, "every document needs an id of its own"),
        (empty_training, "the training split must hold a document, found none"),
    ],
)
def test_run_broken_folder_is_one_sentence(
    call, toy: Path, tmp_path: Path, spoil, part: str
) -> None:
    """Broken data exit with code 1, one line on standard error and no run folder."""
    spoil(toy)
    code, printed, error = call("run", toy, "--out", tmp_path / "run", *SMALL)
    assert code == 1
    assert error.startswith("Error: ")
    assert part in error
    assert error.count("\n") == 1
    assert not printed
    assert not (tmp_path / "run").exists()


def test_evaluate_no_such_folder_and_no_run(call, tmp_path: Path) -> None:
    """A missing folder and one that is no run are refused in whole sentences."""
    code, _, error = call("run", tmp_path / "none", "--out", tmp_path / "run")
    assert (code, error) == (
        1,
        f"Error: A data set must be one of {sorted(DATASETS)}, a folder, or a class of your own "
        f"(file.py:Class), but there is nothing of that kind at '{tmp_path / 'none'}'; check the "
        f"name.\n",
    )
    code, _, error = call("evaluate", tmp_path)
    assert code == 1
    assert error.startswith(f"Error: A run folder holds config.yaml, but '{tmp_path}' has none")


def test_run_path_that_cannot_be_written(call, toy: Path, tmp_path: Path) -> None:
    """A root that is a file is refused without a traceback."""
    (tmp_path / "file").write_text("")
    code, _, error = call("build", toy, "--root", tmp_path / "file")
    assert code == 1
    assert error.startswith("Error: A data set must be built whole, but '")
    assert "could not be written (Not a directory)" in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_the_console_script_is_installed(tmp_path: Path) -> None:
    """`match-graph` and `python -m match_graph.cli` are one program."""
    script = Path(sys.executable).parent / "match-graph"
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == match_graph.__version__
    command = [sys.executable, "-m", "match_graph.cli", "evaluate", str(tmp_path / "none")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("Error: A run must be a folder that match-graph wrote")
    assert "Traceback" not in result.stderr


def test_run_ablations_and_baselines(call, toy: Path, tmp_path: Path) -> None:
    """`--ablation` is repeatable, also with a baseline; an unknown field is refused."""
    out = tmp_path / "run"
    named = ["--ablation", "no-author", "--ablation", "no-hierarchy"]
    assert call("run", toy, "--out", out, *named, *SMALL)[0] == 0
    written = yaml.safe_load((out / "config.yaml").read_text())
    assert written["ablation"] == ["no-author", "no-hierarchy"]
    assert written["data"]["drop_fields"] == ["author"]
    peer = ("--encoder", "tfidf_linear", "--quiet")
    code, printed, _ = call("run", toy, "--out", tmp_path / "peer", *peer, *named[:2])
    assert code == 0
    assert "test, label prior" in printed
    code, _, error = call("run", toy, "--out", tmp_path / "x", *SMALL, "--ablation", "no-autor")
    assert code == 1
    assert error == (
        "Error: An ablation must leave out what the data set or the model has, one of "
        "['no-metadata', 'no-hierarchy', 'no-pretrain', 'no-venue', 'no-author', 'no-reference'], "
        "found 'no-autor'; the nearest is 'no-author'.\n"
    )
    assert not (tmp_path / "x").exists()


def test_run_several_seeds(call, tmp_path: Path) -> None:
    """--runs gives each seed the folder of a run by itself, then mean and deviation."""
    options = ["--root", tmp_path / "root", "--quiet", "--encoder", "prior", "--seed", 3]
    code, printed, error = call(
        "run", "synthetic", "--runs", 2, "--out", tmp_path / "out", *options
    )
    assert (code, error) == (0, "")
    folders = [tmp_path / "out" / f"seed{seed}" for seed in (3, 4)]
    assert printed.splitlines()[-2:] == [str(folder) for folder in folders]
    assert all(word in printed for word in ("seed 3", "seed 4", "mean", "deviation"))
    assert f"\n{ABOUT_POLICY}\n" in printed
    assert all((folder / "metrics.json").is_file() for folder in folders)
    code, _, error = call("run", "synthetic", "--runs", 2, "--devices", 2, *options)
    assert code == 1
    assert error.startswith("Error: Runs of several seeds are of one process each, found --runs")
    code, _, error = call("run", "synthetic", "--runs", 2, *options, "--seed", 2**32 - 1)
    assert code == 1
    assert error.startswith("Error: Seeds must be below 2^32, found 4,294,967,296")


def test_run_help_says_where_presets_and_devices_are(call) -> None:
    """The help names where presets are listed, and --devices as a number."""
    code, printed, _ = call("run", "--help")
    text = " ".join(printed.replace("│", " ").split())
    assert code == 0
    assert "preset, listed by `encoders NAME`; your settings win." in text
    assert "train.accelerator says which." in text
