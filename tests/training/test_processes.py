"""Several processes do what one does: the same batches, gradients, measures and files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch.distributed.fsdp  # here, so that forked processes need not
from together import run_together

from match_graph.config import Config, TrainConfig
from match_graph.errors import CheckpointError, ConfigError
from match_graph.io.files import read_state, read_tensors
from match_graph.io.run_folder import HISTORY, METRICS, MODEL, RECORD, STATE
from match_graph.runs import Run, start_run
from match_graph.testing import write_match_folder
from match_graph.training import checkpoint, loop
from match_graph.training.device import make_fabric
from match_graph.training.processes import (
    gather,
    lead,
    lead_all,
    sum_up,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

#: What is random by process is off, so that two processes compute what one does. Pre-training draws
#: other pairs by two processes.
EXACT = (
    "model.embedding_dropout=0",
    "model.token_dropout=0",
    "model.encoder_config={num_layers: 1, num_cls: 2, position_channels: 4, dropout: 0}",
    "train.precision=32-true",
    "train.accelerator=cpu",
    "data.max_metadata=3",
    "model.init=random",
)


def whole_line(config: Config, folder: Path) -> Run:
    run = start_run("synthetic", config, folder, folder.parent / "root")
    run.train()
    run.evaluate()
    return run


def assert_close_weights(one: Path, two: Path) -> None:
    """Within a thirtieth of a step of Adam, 3e-3.

    Adam divides a gradient by its size, so that the rounding errors of a small one, which differ
    from CPU to CPU, become a part of a step; gradients of other documents give whole ones.
    """
    left, right = read_tensors(one / MODEL), read_tensors(two / MODEL)
    assert left.keys() == right.keys()
    for name, values in left.items():
        difference = (values - right[name]).abs()
        if name.endswith("attention.project.bias"):  # of keys: softmax cancels it, Adam moves by
            difference = torch.cat(difference.tensor_split(3)[::2])  # the sign of rounding errors
        assert float(difference.max()) < 1e-4, name


#: How processes share a model: whole, in FSDP's shards, with tables in rows of their own.
ROWS, BOTH = ("train.strategy=ddp",), ("train.strategy=fsdp",)
DDP, FSDP = ((*sharing, "train.shard_embeddings=false") for sharing in (ROWS, BOTH))


@pytest.mark.parametrize("sharing", [DDP, FSDP, ROWS, BOTH], ids=["ddp", "fsdp", "rows", "both"])
def test_Run_two_processes_train_what_one_does(
    tmp_path: Path, small_settings, sharing: tuple[str, ...]
) -> None:
    """Weights, losses and measures are close, also where the last batch has one document."""
    config = small_settings(*EXACT, *sharing, "train.batch_size=29")
    alone = whole_line(config, tmp_path / "one")
    num_train = int(alone.dataset[0]["document"].train_mask.sum())
    assert num_train % 29 == 1  # one of the two has no document of that batch
    assert run_together(whole_line, config, tmp_path / "two") == [0, 0]
    assert_close_weights(tmp_path / "one", tmp_path / "two")
    one, two = (pd.read_csv(tmp_path / name / HISTORY) for name in ("one", "two"))
    assert len(one) == len(two) == 2
    pd.testing.assert_frame_equal(one, two, atol=1e-5, rtol=1e-5)
    measured = [json.loads((tmp_path / name / METRICS).read_text()) for name in ("one", "two")]
    for split in ("valid", "test"):
        assert measured[0][split] == pytest.approx(measured[1][split], abs=1e-5)
    assert json.loads((tmp_path / "two" / RECORD).read_text())["processes"] == 2


PARENT_HEAD = '''
import torch
from match_graph import Head


class ParentHead(Head):
    """Linear scores; a label's weights are its own plus those of its parents."""

    needs_label_graph = True

    def __init__(self, in_channels, num_labels, config, label_graph=None):
        super().__init__(in_channels, num_labels, config, label_graph)
        self.register_buffer("edge_index", label_graph.hierarchy.edge_index, persistent=False)
        self.weight = torch.nn.Parameter(torch.empty(num_labels, in_channels))
        self.reset_parameters()

    def reset_parameters(self):
        torch.nn.init.xavier_uniform_(self.weight)

    @property
    def label_weight(self):
        child, parent = self.edge_index
        return self.weight.index_add(0, child, self.weight[parent])

    def forward(self, output):
        return torch.nn.functional.linear(output.document, self.label_weight)
'''


def test_Run_head_that_computes_label_weights_of_shards(tmp_path: Path, small_settings) -> None:
    """Hypernymy draws at the same weights, and with the same gradient, as in one process."""
    (tmp_path / "my_head.py").write_text(PARENT_HEAD)
    head = f"model.head={tmp_path / 'my_head.py'}:ParentHead"
    config = small_settings(
        *EXACT, *FSDP, head, "train.lambda_parameter=0.1", "train.batch_size=29"
    )
    whole_line(config, tmp_path / "one")
    assert run_together(whole_line, config, tmp_path / "two") == [0, 0]
    assert_close_weights(tmp_path / "one", tmp_path / "two")


WEIGHT_ENCODER = """
from torch_geometric.utils import segment

from match_graph import Encoder, EncoderOutput


class WeightEncoder(Encoder):
    def __init__(self, embedding, config):
        super().__init__(embedding, config)
        self.out_channels = embedding.channels

    def reset_parameters(self):
        pass

    def forward(self, batch):
        rows = self.embedding.weight[batch.token_id]
        return EncoderOutput(segment(rows, batch.ptr, reduce="mean"), None, batch.ptr)
"""


def start_or_refuse(config: Config, folder: Path) -> None:
    if not config.train.shard_embeddings:
        whole_line(config, folder)
        return
    with pytest.raises(ConfigError, match=r"set train\.shard_embeddings=false"):
        start_run("synthetic", config, folder, folder.parent / "root")


@pytest.mark.parametrize(
    ("sharing", "needs"),
    [(DDP, "tokens"), (ROWS, "tokens"), (ROWS, "graph")],
    ids=["ddp", "rows", "rows-graph"],
)
def test_Run_encoder_that_reads_the_whole_table(
    tmp_path: Path, small_settings, sharing: tuple[str, ...], needs: str
) -> None:
    """It trains where each process has all rows, and is refused at the start where it has not."""
    needed = f"class WeightEncoder(Encoder):\n    needs = frozenset({{'tokens', '{needs}'}})\n"
    code = WEIGHT_ENCODER.replace("class WeightEncoder(Encoder):\n", needed)
    (tmp_path / "mine.py").write_text(code)
    encoder = f"model.encoder={tmp_path / 'mine.py'}:WeightEncoder"
    kept = [one for one in EXACT if "encoder_config" not in one]
    config = small_settings(*kept, *sharing, encoder, "model.encoder_config={}")
    assert run_together(start_or_refuse, config, tmp_path / "run") == [0, 0]


#: Steps between checkpoints of a training that is killed.
_TURN = 3


def train_and_die(config: Config, folder: Path, epoch: int, step: int) -> None:
    """Trains with checkpoints, and kills itself before a step."""
    checkpoint.SAVE_SECONDS, checkpoint.SAVE_FACTOR, checkpoint.SAVE_POINT_EVERY = 0.0, 0.0, _TURN
    original = loop.train_step

    def step_or_die(learner, *args):
        if (learner.state.epoch, learner.state.step) == (epoch, step):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(learner, *args)

    loop.train_step = step_or_die
    whole_line(config, folder)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", [DDP, FSDP, ROWS], ids=["ddp", "fsdp", "rows"])
def test_Run_killed_processes_go_on_to_the_same_weights(
    tmp_path: Path, small_settings, monkeypatch, sharing: tuple[str, ...]
) -> None:
    """To the bit, with dropout; of the parts in rows two states are kept and then none."""
    # all rows are brought up to date then
    monkeypatch.setattr(checkpoint, "SAVE_POINT_EVERY", _TURN)
    common = ("train.precision=32-true", "train.accelerator=cpu", "model.init=random")
    config = small_settings(*common, *sharing, "train.batch_size=29")
    assert run_together(whole_line, config, tmp_path / "whole") == [0, 0]
    assert run_together(train_and_die, config, tmp_path / "killed", 1, 7) == [-9, -9]
    state = read_state(tmp_path / "killed" / STATE)
    assert (state["train"]["epoch"], state["train"]["step"]) == (1, 6)
    parts = sorted(path.name for path in (tmp_path / "killed" / STATE).parent.glob("parts-*"))
    if sharing == DDP:
        assert parts == []
    else:  # of this checkpoint and the one before
        assert (len(parts), parts[-1]) == (2, state["parts"]["folder"])
    assert run_together(whole_line, config, tmp_path / "killed") == [0, 0]
    for name in (MODEL, HISTORY, METRICS):
        left, right = (tmp_path / run / name for run in ("whole", "killed"))
        assert left.read_bytes() == right.read_bytes(), name
    assert not list((tmp_path / "killed" / STATE).parent.glob("parts-*"))


@pytest.mark.slow
@pytest.mark.parametrize("sharing", [FSDP, ROWS], ids=["fsdp", "rows"])
def test_Run_others_go_on_where_two_were_killed(
    tmp_path: Path, small_settings, sharing: tuple[str, ...]
) -> None:
    """Three go on from the parts of two, and one from those of three, to close weights."""
    config = small_settings(*EXACT, *sharing, "train.batch_size=29", "model.init=random")
    whole_line(config, tmp_path / "one")
    assert run_together(train_and_die, config, tmp_path / "other", 0, 7) == [-9, -9]
    assert run_together(train_and_die, config, tmp_path / "other", 1, 7, number=3) == [-9] * 3
    whole_line(config, tmp_path / "other")
    assert_close_weights(tmp_path / "one", tmp_path / "other")
    one, two = (pd.read_csv(tmp_path / name / HISTORY) for name in ("one", "other"))
    pd.testing.assert_frame_equal(one, two, atol=1e-5, rtol=1e-5)


def test_Run_more_processes_than_documents_of_a_batch(tmp_path: Path, small_settings) -> None:
    """Three processes share a last batch of one."""
    config = small_settings(*EXACT, "train.batch_size=29", "train.epochs=1")
    whole_line(config, tmp_path / "one")
    assert run_together(whole_line, config, tmp_path / "three", number=3) == [0, 0, 0]
    # Adam makes 1.5e-5 of the rounding of one embedding's gradient, at steps of 1e-3
    assert_close_weights(tmp_path / "one", tmp_path / "three")


def test_Run_baseline_is_fitted_once_and_measured_by_all(tmp_path: Path, small_settings) -> None:
    """The label prior has the same measures, whoever counts them."""
    config = small_settings("model.encoder=prior", "model.encoder_config={}", *EXACT[3:5])
    whole_line(config, tmp_path / "one")
    assert run_together(whole_line, config, tmp_path / "two") == [0, 0]
    one, two = (json.loads((tmp_path / name / METRICS).read_text()) for name in ("one", "two"))
    for split in ("valid", "test"):
        assert one[split] == pytest.approx(two[split], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", [ROWS, FSDP], ids=["rows", "fsdp"])
def test_Run_two_processes_train_an_encoder_over_graphs(
    tmp_path: Path, small_settings, sharing: tuple[str, ...]
) -> None:
    """Each with the subgraph of its own documents; the losses are those of one process."""
    config = small_settings(
        "model.encoder=hetero_sage", "model.encoder_config={dropout: 0}", "train.epochs=1",
        *EXACT[:2], *EXACT[3:5], *sharing, "model.init=random",
    )  # fmt: skip
    whole_line(config, tmp_path / "one")
    assert run_together(whole_line, config, tmp_path / "two") == [0, 0]
    one, two = (pd.read_csv(tmp_path / name / HISTORY) for name in ("one", "two"))
    pd.testing.assert_frame_equal(one, two, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_Run_two_processes_train_label_states(
    tmp_path: Path, small_settings, strategy: str
) -> None:
    """Each makes the states of all labels; scores, hypernymy and weights are those of one."""
    config = small_settings(
        *EXACT, f"train.strategy={strategy}", "train.epochs=1", "model.init=random",
        "model.head=label_graph", "model.head_config={channels: 8, dropout: 0}",
        "train.lambda_parameter=0.01",
    )  # fmt: skip
    whole_line(config, tmp_path / "one")
    assert run_together(whole_line, config, tmp_path / "two") == [0, 0]
    assert_close_weights(tmp_path / "one", tmp_path / "two")
    one, two = (pd.read_csv(tmp_path / name / HISTORY) for name in ("one", "two"))
    pd.testing.assert_frame_equal(one, two, atol=1e-4, rtol=1e-4)


def command_of_two(folder: Path, epochs: int) -> list[str]:
    """The command line of a small run by two processes."""
    settings = (
        "data.options={num_documents: 200, num_labels: 12, num_layers: 3, num_words: 300}",
        "model.encoder_config={num_layers: 1, num_cls: 1, position_channels: 4}",
        "model.init=random", "model.channels=16", "train.accelerator=cpu", "train.patience=100",
        f"train.epochs={epochs}",
    )  # fmt: skip
    command = [sys.executable, "-m", "match_graph.cli", "run", "synthetic", "--devices", "2"]
    command += [word for setting in settings for word in ("--set", setting)]
    return [*command, "--root", str(folder / "root"), "--out", str(folder / "run")]


@pytest.mark.slow
def test_processes_command_starts_further_processes(tmp_path: Path) -> None:
    """`--devices 2` runs itself twice; one of them prints."""
    command = command_of_two(tmp_path, 1)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / RECORD).read_text())["processes"] == 2
    assert done.stdout.count("Written:") == 1
    assert done.stderr.count("train: epoch 1 of 1, loss") == 1


@pytest.mark.slow
def test_processes_command_reports_a_killed_process(tmp_path: Path) -> None:
    """And goes on when it is given again; where the first one is killed, the other one ends too."""
    command = command_of_two(tmp_path, 40)
    history = tmp_path / "run" / HISTORY

    def start(num_epochs: int) -> tuple["subprocess.Popen[str]", int]:
        """Both processes, in the middle of the training."""
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 240
        while not history.is_file() or len(history.read_text().splitlines()) <= num_epochs:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        return process, int(children.split()[0])

    process, other = start(2)  # the checkpoint of the first epoch is there
    os.kill(other, signal.SIGKILL)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert error.splitlines()[-1] == (
        "Error: A run needs all of its processes to the end, but process 1 of this machine was "
        "killed by signal 9; start the same command again, without --overwrite: it goes on from "
        "what is saved."
    )
    assert "Traceback" not in error
    done = len(history.read_text().splitlines())
    assert 2 < done < 40
    process, other = start(done)
    os.kill(process.pid, signal.SIGKILL)
    error = process.communicate(timeout=60)[1]  # until the other one has closed it
    assert "train: resumed after epoch" in error
    assert "Error: A run needs all of its processes to the end, but another one ended" in error
    assert "Traceback" not in error


# Parts ---------------------------------------------------------------------------------------


def use_parts(folder: Path) -> None:
    """Sums and tensors of three processes, and a leader that fails."""
    fabric = make_fabric(TrainConfig(accelerator="cpu"))
    rank = fabric.global_rank
    own, calls = torch.tensor([rank, 1]), list[int]()
    assert sum_up(fabric, own).tolist() == [3, 3]
    assert own.tolist() == [rank, 1]  # as it was
    assert lead_all(fabric, lambda: calls.append(rank) or rank) == rank
    assert calls == [rank]  # once in each process
    assert gather(fabric, torch.tensor([rank])).tolist() == [[0], [1], [2]]
    assert lead(fabric, lambda: rank) == (0 if rank == 0 else None)

    def fail() -> None:
        raise ConfigError("It must not fail.")

    try:
        lead(fabric, fail)
    except ConfigError:
        (folder / "raised").write_text(str(rank))
        raise SystemExit(1) from None


def see_another_checkpoint(folder: Path) -> None:
    """Process 1 does not see the checkpoint of process 0."""
    fabric = make_fabric(TrainConfig(accelerator="cpu"))
    content = None if fabric.global_rank else {"train": {"epoch": 3, "step": 20}}
    try:
        checkpoint.check_same(fabric, content, Path("state.pt"))
    except CheckpointError as error:
        (folder / str(fabric.global_rank)).write_text(str(error))


def test_check_same_names_a_process_without_checkpoint(tmp_path: Path) -> None:
    """Each says so, and none waits for the other one."""
    assert run_together(see_another_checkpoint, tmp_path) == [0, 0]
    for rank in ("0", "1"):
        assert (tmp_path / rank).read_text() == (
            "All processes of a run must see the same files, but 'state.pt' is at epoch and step "
            "[3, 20] for process 0 and [-1, -1] for process 1 (-1: there is none); choose a folder "
            "on a disk that the machines share (out, --out)."
        )


def test_sum_up_parts_of_three_processes(tmp_path: Path) -> None:
    """Where the first one fails, it alone says why, and none goes on."""
    assert run_together(use_parts, tmp_path, number=3) == [1, 1, 1]
    assert (tmp_path / "raised").read_text() == "0"


def test_lead_one_process_needs_no_others() -> None:
    """The same functions without any network."""
    fabric = make_fabric(TrainConfig(accelerator="cpu"))
    assert lead(fabric, lambda: 3) == 3
    assert sum_up(fabric, torch.tensor(4)) == 4
    assert gather(fabric, torch.tensor([4])).tolist() == [[4]]


# Batches of which a process sees nothing -------------------------------------------------------


def write_gaps(folder: Path) -> Path:
    """Documents of one word and label, many without metadata, some without label.

    One of each split has no token at all: the shortest of its epoch, so that it shares a batch with
    one that has some.
    """
    labels, splits = ("birds", "fish", "frogs", "moths"), {}
    for split, number in (("train", 33), ("valid", 9), ("test", 9)):
        splits[split] = [
            {
                "paper": f"{split}{row}",
                "venue": [] if row % 3 else [f"venue{row % 4}"],
                "text": ""
                if row == 1
                else " ".join(
                    [labels[row % 4], *(f"word{row * place % 11}" for place in range(row % 5))]
                ),
                "label": [] if row % 7 == 3 else [labels[row % 4]],
            }
            for row in range(number)
        ]
    return write_match_folder(folder, splits, ["animals birds fish", "animals frogs moths"])


def train_folder(config: Config, folder: Path) -> None:
    run = start_run(str(folder.parent / "data"), config, folder, folder.parent / "root")
    run.train()
    run.evaluate()


@pytest.mark.parametrize(
    ("encoder", "strategy"),
    [
        ("match", "ddp"), ("match", "fsdp"), ("attention_xml", "ddp"), ("attention_xml", "fsdp"),
        ("mesh_probe_net", "ddp"),
    ],
)  # fmt: skip
def test_train_model_where_a_process_has_no_tokens(
    tmp_path: Path, small_settings, encoder: str, strategy: str
) -> None:
    """One document a process and step: without tokens, metadata or labels; equals one process."""
    write_gaps(tmp_path / "data")
    own = {
        "match": "{num_layers: 1, num_cls: 2, position_channels: 4, dropout: 0}",
        "attention_xml": "{hidden_channels: 8, dropout: 0}",
        "transformer": "{num_layers: 1, num_heads: 2, dropout: 0}",
        "mesh_probe_net": "{hidden_channels: 8, num_probes: 2, dropout: 0}",
    }
    config = small_settings(
        *EXACT[:2], *EXACT[3:6], "data.options={}", "data.min_count=1", "data.min_word_count=1",
        f"model.encoder={encoder}", f"model.encoder_config={own[encoder]}", "model.init=random",
        f"train.strategy={strategy}", "train.batch_size=2", "train.epochs=1",
    )  # fmt: skip
    train_folder(config, tmp_path / "one")
    assert run_together(train_folder, config, tmp_path / "two") == [0, 0]
    assert_close_weights(tmp_path / "one", tmp_path / "two")
    measured = [json.loads((tmp_path / name / METRICS).read_text()) for name in ("one", "two")]
    for split in ("valid", "test"):
        assert measured[0][split] == pytest.approx(measured[1][split], abs=1e-5)
