"""`kill -9` at random moments of every stage, then the same command: the results are the same.

`MATCH_GRAPH_KILLS=40 pytest -n0 --timeout 0 tests/test_kills.py` goes on until so many were killed,
of one process and of two that share a run.
"""

import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from together import as_torchrun, find_port

from match_graph.cli import app, main
from match_graph.datasets import Synthetic
from match_graph.io.files import read_tensors
from match_graph.io.run_folder import HISTORY, METRICS, MODEL, VECTORS
from match_graph.runs import pretraining
from match_graph.training import checkpoint
from match_graph.training.heartbeat import TIMEOUT

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

OPTIONS = {"num_documents": 300, "num_labels": 20, "num_layers": 3, "num_words": 400}
SETTINGS = (
    "pretrain.samples=60000", "pretrain.channels=16", "model.channels=16", "train.epochs=2",
    "model.encoder_config={num_layers: 1, num_cls: 1, position_channels: 4}",
    "train.batch_size=8", "train.precision=32-true", "train.accelerator=cpu",
    "data.max_metadata=4",
)  # fmt: skip


def commands(folder: Path) -> dict[str, list[str]]:
    """The command of every stage, in their order."""
    options = f"data.options={OPTIONS}"
    settings = [word for setting in (options, *SETTINGS) for word in ("--set", setting)]
    place = ["--root", str(folder / "root")]
    start = [*settings, *place, "--out", str(folder / "run"), "--quiet"]
    documents, found = str(folder / "documents.jsonl"), str(folder / "found.jsonl")
    return {
        "build": ["build", "synthetic", *settings[:2], *place],
        "pretrain": ["pretrain", "synthetic", *start],
        "train": ["train", "synthetic", *start],
        "evaluate": ["evaluate", str(folder / "run"), *place, "--quiet"],
        "predict": ["predict", str(folder / "run"), "--input", documents, "--output", found],
    }


def call(arguments: list[str], log: Path) -> None:
    """One command, with checkpoints every tenth of a second."""
    sys.stdout = sys.stderr = log.open("w")
    torch.set_num_threads(1)
    checkpoint.SAVE_SECONDS, checkpoint.SAVE_FACTOR, checkpoint.SAVE_POINT_EVERY = 0.1, 0.0, 3
    pretraining.SAVE_SECONDS = 0.1
    app(arguments, standalone_mode=False)


def call_and_kill(arguments: list[str], log: Path, seconds: float | None) -> bool:
    """Runs a command in a process of its own, killed after some time; whether it was done."""
    process = multiprocessing.get_context("fork").Process(target=call, args=(arguments, log))
    process.start()
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -9), log.read_text()
    return process.exitcode == 0


def results(folder: Path) -> dict[str, bytes]:
    """What must be equal to the byte."""
    names = (f"run/{METRICS}", f"run/{HISTORY}", "found.jsonl")
    return {name: (folder / name).read_bytes() for name in names}


@pytest.mark.slow
def test_killed_stages_give_what_uninterrupted_ones_give(tmp_path: Path) -> None:
    """Metrics, history, predictions and weights; and nothing half-written is left."""
    wanted = int(os.environ.get("MATCH_GRAPH_KILLS", "5"))
    generator = random.Random(0)
    corpus = Synthetic(**OPTIONS, root=tmp_path / "root").read()
    texts = corpus.documents["text"].tolist()[:50]
    lines = "".join(f'{{"text": "{text}"}}\n' for text in texts)

    def make_folder(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "documents.jsonl").write_text(lines)
        return folder

    whole, seconds = make_folder("whole"), {}
    for stage, arguments in commands(whole).items():
        start = time.monotonic()
        assert call_and_kill(arguments, tmp_path / "log", None)
        seconds[stage] = time.monotonic() - start
    expected, kills, rounds = results(whole), Counter(), 0
    tensors = [read_tensors(whole / "run" / name) for name in (MODEL, VECTORS)]
    while kills.total() < wanted:
        rounds += 1
        folder = make_folder(f"round{rounds}")
        for stage, arguments in commands(folder).items():
            most = 5 if stage in ("pretrain", "train") else 3
            for _ in range(generator.randint(1, most)):
                moment = generator.uniform(0.05, 0.9) * seconds[stage]
                done = call_and_kill(arguments, tmp_path / "log", moment)
                kills[stage] += not done
                if done:
                    break
            if not done:
                assert call_and_kill(arguments, tmp_path / "log", None)
        assert results(folder) == expected, f"round {rounds}, {dict(kills)}"
        for name, left in zip((MODEL, VECTORS), tensors, strict=True):
            right = read_tensors(folder / "run" / name)
            assert all(torch.equal(left[key], right[key]) for key in left), name
        assert not list(folder.rglob("*.tmp"))
    sys.stderr.write(f"{kills.total()} kills in {rounds} rounds: {dict(kills)}\n")


# One of two processes ----------------------------------------------------------------------------


def call_rank(arguments: list[str], folder: Path, rank: int, port: int) -> None:
    """One process of a command, as torchrun would start it."""
    os.environ.update({**as_torchrun(rank, 2, port), TIMEOUT: "40"})
    sys.argv = ["match-graph", *arguments]
    sys.stdout = sys.stderr = (folder / f"log{rank}").open("w", buffering=1)
    torch.set_num_threads(1)
    checkpoint.SAVE_SECONDS, checkpoint.SAVE_FACTOR, checkpoint.SAVE_POINT_EVERY = 0.1, 0.0, 3
    main()


def call_and_kill_one(arguments: list[str], folder: Path, rank: int, seconds: float | None) -> bool:
    """Runs a command in two processes, one of which is killed; whether they were done before.

    The other one must end within a minute, with one sentence.
    """
    port, context = find_port(), multiprocessing.get_context("fork")
    both = [
        context.Process(target=call_rank, args=(arguments, folder, each, port)) for each in (0, 1)
    ]
    for process in both:
        process.start()
    both[rank].join(seconds)
    both[rank].kill()
    both[1 - rank].join(60)
    left = both[1 - rank].exitcode
    for process in both:
        process.kill()
        process.join()
    log = (folder / f"log{1 - rank}").read_text()
    assert left in (0, 1), f"process {1 - rank} ended with {left}: {log}"
    if left:
        assert [line[:7] for line in log.splitlines()].count("Error: ") == 1, log
        assert "Traceback" not in log
    return both[rank].exitcode == left == 0


@pytest.mark.slow
def test_killed_ranks_go_on_to_the_same_run(tmp_path: Path) -> None:
    """With tables in rows of their own; no part of a checkpoint is left."""
    wanted = int(os.environ.get("MATCH_GRAPH_KILLS", "2"))
    generator = random.Random(1)
    settings = [*SETTINGS, "model.init=random"]
    words = [word for one in (f"data.options={OPTIONS}", *settings) for word in ("--set", one)]

    def command(name: str) -> list[str]:
        place = ["--root", str(tmp_path / "root"), "--out", str(tmp_path / name / "run")]
        (tmp_path / name).mkdir(exist_ok=True)
        return ["run", "synthetic", *words, *place, "--quiet"]

    start = time.monotonic()
    assert call_and_kill_one(command("whole"), tmp_path / "whole", 0, None)
    seconds, kills, rounds = time.monotonic() - start, Counter(), 0
    names = (f"run/{METRICS}", f"run/{HISTORY}", f"run/{MODEL}")
    expected = [(tmp_path / "whole" / name).read_bytes() for name in names]
    while kills.total() < wanted:
        rounds += 1
        name = f"round{rounds}"
        for _ in range(generator.randint(2, 5)):
            rank, moment = generator.randint(0, 1), generator.uniform(0.1, 0.9) * seconds
            done = call_and_kill_one(command(name), tmp_path / name, rank, moment)
            kills[rank] += not done
            if done:
                break
        if not done:
            assert call_and_kill_one(command(name), tmp_path / name, 0, None)
        assert [(tmp_path / name / file).read_bytes() for file in names] == expected, kills
        assert not [*(tmp_path / name).rglob("*.tmp"), *(tmp_path / name).rglob("parts-*")]
    sys.stderr.write(f"{kills.total()} kills of ranks in {rounds} rounds: {dict(kills)}\n")
