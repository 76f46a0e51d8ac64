"""`match-graph predict`: files and streams, and one sentence for each wrong input."""

import errno
import gzip
import io
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from together import wait_for_threads

from match_graph import Run, load
from match_graph.cli import main
from match_graph.errors import MatchGraphError
from match_graph.io.manifest import write_manifest
from match_graph.predict import predict_lines
from match_graph.runs.measures import ABOUT_POLICY

#: (arguments, standard input) -> (exit code, standard output, standard error).
Call = Callable[..., tuple[int, str, str]]

DOCUMENTS = [
    {"paper": "a", "text": "w1 w2", "venue": "venue1", "author": ["neu_ö"]},
    {"text": "w3 w4 w5"},
    {"paper": 3, "text": ""},
]
LINES = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in DOCUMENTS).encode()


@pytest.fixture
def call(trained_run: Run, monkeypatch: pytest.MonkeyPatch, capsysbinary) -> Call:
    def run(*arguments: str, stdin: bytes = b"", folder: Path = trained_run.folder):
        monkeypatch.setattr(sys, "argv", ["match-graph", "predict", str(folder), *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = capsysbinary.readouterr()
        return int(exit_.value.code or 0), out.decode(), err.decode()

    return run


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_bytes(LINES)
    return path


def test_predict_files_and_streams_agree_with_python(
    call: Call, documents: Path, trained_run: Run, tmp_path: Path
) -> None:
    """Results by file and by stream equal load().predict, also with options."""
    target = tmp_path / "deep" / "out.jsonl"
    expected = list(load(trained_run.folder).predict(DOCUMENTS))
    code, out, err = call("--input", str(documents), "--output", str(target))
    assert (code, out) == (0, "")
    assert err.startswith("predict: 3 documents in ")
    assert [json.loads(line) for line in target.read_text().splitlines()] == expected
    assert [path.name for path in target.parent.iterdir()] == ["out.jsonl"]
    code, out, err = call("--quiet", stdin=LINES)
    assert (code, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == expected
    code, out, _ = call("--quiet", "--top-k", "2", "--input", str(documents))
    assert [len(json.loads(line)["labels"]) for line in out.splitlines()] == [2, 2, 2]
    code, out, _ = call("--quiet", "--threshold", "--batch-size", "1", stdin=LINES)
    by_threshold = load(trained_run.folder).predict(DOCUMENTS, threshold=True, batch_size=1)
    assert [json.loads(line) for line in out.splitlines()] == list(by_threshold)


def test_predict_lines_packed_by_gzip(call: Call, documents: Path, tmp_path: Path) -> None:
    """Packed files give the same results; one that breaks off is named with its line."""
    packed = tmp_path / "docs.jsonl.gz"
    packed.write_bytes(gzip.compress(LINES))
    expected = call("--input", str(documents), "--quiet")
    assert call("--input", str(packed), "--quiet") == expected
    packed.write_bytes(gzip.compress(LINES)[:-4])
    code, _, err = call("--input", str(packed), "--output", str(tmp_path / "out"))
    assert code == 1
    assert err.startswith("Error: docs.jsonl.gz:4: a file named .gz must be whole and packed by ")


def test_predict_replaces_a_target_as_a_whole(call: Call, documents: Path, tmp_path: Path) -> None:
    """Targets that are links or devices are written through, not replaced."""
    (tmp_path / "out.jsonl").write_text("old")
    (tmp_path / "link.jsonl").symlink_to("out.jsonl")
    assert call("--input", str(documents), "--output", str(tmp_path / "link.jsonl"))[0] == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3
    assert call("--input", str(documents), "--output", "/dev/null")[0] == 0
    assert not Path("/dev/null").is_file()


FORMAT = "The documents must be readable: docs.jsonl"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            LINES + b'{"paper": "x"}\n',
            f"{FORMAT}:4: 'text' must be a string, found nothing; give \"\" where there is none.",
        ),
        (b'{"text": 5}\n', f"{FORMAT}:1: 'text' must be a string, found the number 5."),
        (
            LINES + b'\n{"text": "", "author": [["x"]]}\n',
            f"{FORMAT}:5: 'author' must be a string or a list of strings, "
            'found the list [["x"]].',
        ),
        (
            LINES + b'{"text": "brea',
            f"{FORMAT}:4: a line must be one JSON object, but it breaks off or is malformed "
            "(Unterminated string starting at, column 10); mend or remove the line.",
        ),
        (
            b'["text"]\n',
            f'{FORMAT}:1: a line must be one JSON object, found the list ["text"]; '
            "write one document a line.",
        ),
        (
            LINES + b'{"text": "\xe4"}\n',
            f"{FORMAT}:4: the file must be UTF-8, but byte 10 of the line is 0xe4; "
            "convert the file.",
        ),
        (
            b"",
            "There must be at least one document, found none in docs.jsonl; "
            "write one JSON object a line.",
        ),
        (
            b" \n\n",
            "There must be at least one document, found none in docs.jsonl; "
            "write one JSON object a line.",
        ),
    ],
)
def test_predict_wrong_documents_write_nothing(
    call: Call, tmp_path: Path, content: bytes, sentence: str
) -> None:
    """Wrong documents exit with code 1, and the target stays as it was."""
    source, target = tmp_path / "docs.jsonl", tmp_path / "out" / "out.jsonl"
    source.write_bytes(content)
    target.parent.mkdir()
    target.write_text("old")
    code, out, err = call("--input", str(source), "--output", str(target), "--batch-size", "1")
    assert (code, out, err) == (1, "", f"Error: {sentence}\n")
    assert target.read_text() == "old"
    assert [path.name for path in target.parent.iterdir()] == ["out.jsonl"]
    code, out, err = call("--quiet", stdin=content)
    assert code == 1
    assert err == f"Error: {sentence.replace('docs.jsonl', '<stdin>')}\n"


def test_predict_places_that_cannot_be_read_or_written(
    call: Call, documents: Path, tmp_path: Path
) -> None:
    """Paths that cannot be read or written are named, with a remedy."""
    missing = tmp_path / "missing.jsonl"
    assert call("--input", str(missing)) == (
        1,
        "",
        f"Error: The documents must be a file that can be read, but '{missing}' cannot "
        f"(No such file or directory); check the path, or give '-' for standard input.\n",
    )
    assert call("--input", str(documents), "--output", str(documents)) == (
        1,
        "",
        f"Error: Predictions must go to another file than the documents, but both are "
        f"'{documents}'; choose another with --output.\n",
    )
    assert documents.read_bytes() == LINES
    assert call("--input", str(documents), "--output", str(tmp_path)) == (
        1,
        "",
        f"Error: Results must go to a new or empty folder, or to one of earlier results, but "
        f"'{tmp_path}' holds other files (docs.jsonl); choose another with --output.\n",
    )
    below = documents / "out.jsonl"
    code, _, err = call("--input", str(documents), "--output", str(below))
    assert code == 1
    assert err.startswith(
        f"Error: Predictions must go to a file that can be written, but '{below}' cannot ("
    )


def test_predict_many_files_to_a_folder(call: Call, documents: Path, tmp_path: Path) -> None:
    """Several files need a folder as output; standard output is refused."""
    other = documents.with_name("other.jsonl")
    other.write_bytes(LINES)
    out = tmp_path / "out"
    code, stdout, err = call("--input", str(documents), "--input", str(other), "--output", str(out))
    assert (code, stdout) == (0, "")
    assert err.startswith("predict: 2 files, ")
    _, expected, _ = call("--input", str(documents), "--quiet")
    assert {(out / name).read_text() for name in ("docs.jsonl", "other.jsonl")} == {expected}
    one = f"{tmp_path / 'one'}/"
    assert call("--input", str(documents), "--output", one, "--quiet") == (0, "", "")
    assert (tmp_path / "one" / "docs.jsonl").read_text() == expected
    code, _, err = call("--input", str(tmp_path))
    assert code == 2
    assert "must be a folder for the results" in err


def test_evaluate_files_of_the_command_line(
    trained_run: Run, monkeypatch: pytest.MonkeyPatch, capsys, tmp_path: Path
) -> None:
    """`evaluate --input` writes metrics.json; wrong usage exits with code 2."""
    path, out = tmp_path / "a.jsonl", tmp_path / "out"
    path.write_text('{"text": "w1 w2", "label": ["l1"]}\n')

    def evaluate(*arguments: object) -> int:
        command = ["match-graph", "evaluate", str(trained_run.folder), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as exit_:
            main()
        return int(exit_.value.code or 0)

    assert evaluate("--input", path, "--output", out, "--quiet") == 0
    printed = capsys.readouterr().out
    assert "NDCG@5" in printed
    assert f"\n{ABOUT_POLICY}\n" in printed
    assert printed.rstrip().endswith(str(out))
    assert json.loads((out / "metrics.json").read_text())["documents"] == 1
    assert evaluate("--input", path) == 2
    assert evaluate("--input", path, "--output", out, "--devices", 2) == 2
    assert evaluate("--workers", 2) == 2


def test_predict_runs_that_cannot_predict(call: Call, trained_run: Run, tmp_path: Path) -> None:
    """A folder that is no run and a run of another format are refused."""
    assert call(folder=tmp_path) == (
        1,
        "",
        f"Error: A run folder holds config.yaml, but '{tmp_path}' has none; check the path, or "
        f"start a run with `match-graph run DATASET --out {tmp_path}`.\n",
    )
    other = Path(shutil.copytree(trained_run.folder, tmp_path / "other"))
    config = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(config.replace("format: 1", "format: 7"))
    write_manifest(other)
    assert call(folder=other, stdin=LINES) == (
        1,
        "",
        f"Error: A configuration must be of format 1, which this version of match-graph reads, "
        f"found format 7 in "
        f"'{other / 'config.yaml'}'; use the version that wrote it.\n",
    )


def test_predict_wrong_usage_is_exit_code_2(call: Call) -> None:
    """--top-k 0 exits with code 2."""
    code, out, _ = call("--top-k", "0")
    assert (code, out) == (2, "")


# Streams that end early -------------------------------------------------------------------------


def predict_apart(folder: Path, documents: Path, output: int, said: Path) -> int | None:
    """Exit code of the command in a process whose standard output is ``output``."""

    def work() -> None:
        os.dup2(output, 1)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), said.open("w")
        sys.argv = ["match-graph", "predict", str(folder), "--input", str(documents), "--quiet"]
        main()

    process = multiprocessing.get_context("fork").Process(target=work)
    wait_for_threads()
    process.start()
    process.join(60)
    process.kill()
    return process.exitcode


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("reason", ["No space left on device", "Broken pipe"])
def test_predict_lines_to_a_standard_output_that_takes_no_more(
    trained_run: Run, documents: Path, tmp_path: Path, reason: str
) -> None:
    """A full disk and a closed pipe as standard output are one sentence."""
    if reason == "Broken pipe":
        reader, output = os.pipe()
        os.close(reader)
    else:
        output = os.open("/dev/full", os.O_WRONLY)
    said = tmp_path / "said"
    assert predict_apart(trained_run.folder, documents, output, said) == 1
    os.close(output)
    assert said.read_text() == (
        f"Error: Predictions must be written to the last document, but standard output cannot take "
        f"them ({reason}); name a file with --output, which is there when all is done.\n"
    )


def test_predict_lines_without_standard_streams(
    call: Call, trained_run: Run, documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed standard streams and a source that breaks are one sentence each."""
    classifier = load(trained_run.folder)

    def refuse(source: str, target: str) -> str:
        with pytest.raises(MatchGraphError) as caught:
            predict_lines(classifier, source, target)
        return str(caught.value)

    monkeypatch.setattr(sys, "stdin", None)
    assert refuse("-", str(documents.with_name("out"))) == (
        "The documents must be a file that can be read, but standard input is closed; name a file "
        "with --input."
    )

    class Broken(io.BytesIO):
        def readline(self, _size: int | None = -1, /) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Broken()))
    assert refuse("-", str(documents.with_name("out"))) == (
        "The documents must be a file that can be read, but '-' cannot (Input/output error); check "
        "the path, or give '-' for standard input."
    )
    assert not documents.with_name("out").exists()
    monkeypatch.setattr(sys, "stdout", None)
    assert refuse(str(documents), "-") == (
        "Predictions must go somewhere, but standard output is closed; name a file with --output."
    )


def test_predict_lines_refuses_names_that_no_file_has(
    call: Call, documents: Path, tmp_path: Path
) -> None:
    """Names with NUL and a link to itself are refused."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert call("--input", "a\0b")[2] == (
        "Error: The documents must be a file that can be read, but 'a\\x00b' holds the character "
        "NUL, which no name may; check the path, or give '-' for standard input.\n"
    )
    assert call("--input", str(documents), "--output", "a\0b")[2] == (
        "Error: Predictions must go to a file, but 'a\\x00b' holds the character NUL, which no "
        "name may; choose another with --output.\n"
    )
    reason = "(Too many levels of symbolic links)"
    assert f"but '{loop}' cannot {reason}" in call("--input", str(loop))[2]
    assert call("--input", str(documents), "--output", str(loop))[2] == (
        f"Error: Predictions must go to a file, but '{loop}' is a link to itself; choose another "
        f"with --output.\n"
    )
    assert loop.is_symlink()


def test_main_a_full_device_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Lack of device memory is one sentence; other errors of torch keep their traceback."""

    def raise_(error: Exception) -> None:
        raise error

    full = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    monkeypatch.setattr(sys.modules[main.__module__], "app", lambda: raise_(full))
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capsys.readouterr().err == (
        "Error: A batch must fit the memory of the device, but it does not (CUDA out of memory); "
        "lower train.batch_size or data.max_words, or choose another device.\n"
    )
    monkeypatch.setattr(sys.modules[main.__module__], "app", lambda: raise_(RuntimeError("other")))
    with pytest.raises(RuntimeError, match="other"):
        main()


def test_predict_lines_names_keys_that_are_not_read(call: Call) -> None:
    """Unread keys are named once, also with --quiet, and change no result."""
    lines = "".join(f"{json.dumps({**one, 'venu': 'WWW'})}\n" for one in DOCUMENTS).encode()
    code, out, err = call("--quiet", stdin=lines)
    assert (code, out) == call("--quiet", stdin=LINES)[:2]
    assert err == (
        "warning: the keys ['venu'] of documents are not read; this run reads ['text', 'venue', "
        "'author', 'reference']\n"
    )
