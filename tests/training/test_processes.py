"""Several processes do what one does: the same batches, gradients, measures and files."""

import json
import multiprocessing
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from match_graph.config import Config
from match_graph.training import Run, start_run
from match_graph.training.files import HISTORY, METRICS, MODEL, RECORD, read_tensors

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

#: What is random by process is off, so that two processes compute what one does.
EXACT = (
    "model.embedding_dropout=0",
    "model.token_dropout=0",
    "model.encoder_config={num_layers: 1, num_cls: 2, position_channels: 4, dropout: 0}",
    "train.precision=32-true",
    "train.accelerator=cpu",
    "data.max_metadata=3",
    "pretrain.samples=20000",
)


def as_torchrun(rank: int, number: int, port: int) -> dict[str, str]:
    """The variables that torchrun gives a process."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_PORT")
    values = (rank, rank, number, number, 0, port)
    plain = {name: str(value) for name, value in zip(names, values, strict=True)}
    return {**plain, "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "test"}


def run_together(work: Callable[..., None], *args: Any, number: int = 2) -> list[int | None]:
    """Calls ``work`` in several processes as torchrun would; their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start(rank: int) -> None:
        os.environ.update(as_torchrun(rank, number, port))
        torch.set_num_threads(1)
        work(*args)

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=start, args=(rank,)) for rank in range(number)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        process.kill()
    return [process.exitcode for process in processes]


def whole_line(config: Config, folder: Path) -> Run:
    run = start_run("synthetic", config, folder, folder.parent / "root")
    run.train()
    run.evaluate()
    return run


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_train_what_one_does(tmp_path: Path, small_settings, strategy: str) -> None:
    """Weights, losses and measures within 1e-5, also where the last batch has one document."""
    config = small_settings(*EXACT, f"train.strategy={strategy}", "train.batch_size=29")
    alone = whole_line(config, tmp_path / "one")
    num_train = int(alone.dataset[0]["document"].train_mask.sum())
    assert num_train % 29 == 1  # one of the two has no document of that batch
    assert run_together(whole_line, config, tmp_path / "two") == [0, 0]
    left, right = (read_tensors(tmp_path / name / MODEL) for name in ("one", "two"))
    for name, values in left.items():
        difference = (values - right[name]).abs()
        if name.endswith("attention.project.bias"):  # of keys: softmax cancels it, Adam moves by
            difference = torch.cat(difference.tensor_split(3)[::2])  # the sign of rounding errors
        assert float(difference.max()) < 1e-5, name
    one, two = (pd.read_csv(tmp_path / name / HISTORY) for name in ("one", "two"))
    assert len(one) == len(two) == 2
    pd.testing.assert_frame_equal(one, two, atol=1e-5, rtol=1e-5)
    measured = [json.loads((tmp_path / name / METRICS).read_text()) for name in ("one", "two")]
    for split in ("valid", "test"):
        assert measured[0][split] == pytest.approx(measured[1][split], abs=1e-5)
    assert json.loads((tmp_path / "two" / RECORD).read_text())["processes"] == 2
