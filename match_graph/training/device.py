"""Devices, precision, threads, and the strategy of several processes."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import (
    DDPStrategy,
    ModelParallelStrategy,
    SingleDeviceStrategy,
    Strategy,
)
from torch import nn

from match_graph.config import TrainConfig
from match_graph.errors import ConfigError
from match_graph.features.sentence_model import is_bfloat16_native
from match_graph.graph import EgoBatch
from match_graph.nn import MatchModel
from match_graph.nn.embedding import TokenEmbedding
from match_graph.openmp import limit_spinning
from match_graph.training.allocator import keep_freed_memory
from match_graph.training.heartbeat import read_timeout
from match_graph.training.launch import check_number, count_processes, launch, read_number

#: Multiplications in a matrix product from which one more thread is worth it on CPU.
_WORK_PER_THREAD = 2**28
#: Number of weights of the largest matrix of each module, kept between calls.
_WIDEST: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
#: Global settings of torch before each open context of `deterministic`.
_BEFORE: list[tuple[bool, bool, bool]] = []
_LOCK = Lock()


def choose_device(accelerator: str | torch.device) -> torch.device:
    """The device of an accelerator: for "auto" a GPU if there is one.

    Raises:
        ConfigError: The accelerator is unknown, or is a GPU that torch does not find.
    """
    has_cuda, accelerator = torch.cuda.is_available(), str(accelerator)
    if accelerator == "cuda" and not has_cuda:
        raise ConfigError(
            "The device 'cuda' must be a GPU that torch finds, but it finds none on this machine; "
            "choose 'cpu' or 'auto', or check the driver and that torch is built with CUDA."
        )
    if accelerator not in ("auto", "cpu", "cuda"):
        raise ConfigError(
            f"The device must be 'auto', 'cpu' or, where torch finds a GPU, 'cuda', "
            f"found '{accelerator}'."
        )
    return torch.device("cuda" if has_cuda and accelerator != "cpu" else "cpu")


def choose_precision(config: TrainConfig, reads_text: bool = False) -> str:
    """The precision of a configuration; for "auto" the one that suits its device.

    On a CPU that computes in bfloat16 it is bfloat16. On a GPU it is float32, since a step of a
    network of a few layers is bound by kernel launches there, and autocast adds more of them:
    float32 was 1.0 to 1.6 times as fast as bfloat16 with seven of nine encoders, .9 times with two
    (``experiments/speed``).

    Args:
        config: Settings of training.
        reads_text: Whether the encoder reads text itself, through a language model; it has larger
            products, and takes bfloat16 on a GPU that has it too (which was not measured).
    """
    if config.precision != "auto":
        return config.precision
    if choose_device(config.accelerator).type == "cuda":
        native = reads_text and torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = is_bfloat16_native()
    return "bf16-mixed" if native else "32-true"


def count_threads(batch: EgoBatch, model: MatchModel) -> int:
    """Number of threads worth using for a model on a batch on CPU; more only wait for each other.

    A step is some hundred operations, after each of which threads synchronize. Where one lasts
    .1 ms, that is no longer than it takes to wake a thread: 32 documents of 71 tokens, 634 labels
    and 128 channels make 720 documents/s with one thread, and between 370 and 790 with two that
    sleep while they wait; beside two busy processes 420 and 300. The number depends on the batch
    alone, so that a training is reproducible.

    Args:
        batch: Batch of B documents.
        model: Model, whose widest matrices of encoder and head are counted.
    """
    rows = batch.token_id.numel()
    if batch.graph is not None:
        rows += sum(int(store.num_nodes or 0) for store in batch.graph.node_stores)
    if batch.text is not None:  # word pieces, and layers that are wider than the embedding
        rows = max(rows, sum(map(len, batch.text)) // 4)
    scored = rows if model.head.takes == "tokens" else batch.num_documents
    encoder, head = (_find_widest(part) for part in (model.encoder, model.head))
    return (rows * encoder + scored * head) // _WORK_PER_THREAD


def _find_widest(module: nn.Module) -> int:
    """Weights of the largest matrix of a module, embeddings left out; counted once."""
    if module not in _WIDEST:
        sizes = (
            parameter.numel()
            for part in module.modules()
            if not isinstance(part, nn.Embedding)
            for parameter in part.parameters(recurse=False)
        )
        _WIDEST[module] = max(sizes, default=0)
    return _WIDEST[module]


def make_fabric(config: TrainConfig, find_unused: bool = False, alone: bool = False) -> Fabric:
    """Lightning Fabric on the devices of a configuration, its processes started.

    Several processes are started by torchrun, by a scheduler that Lightning knows, or else here
    (see `launch`).

    Args:
        config: Settings of training: ``devices`` on each of ``num_nodes`` machines; one process
            where both are 1.
        find_unused: Whether a step may leave parameters without gradient.
        alone: Whether this process computes by itself on one device, whatever launched it and
            however many run beside it.

    Raises:
        ConfigError: There is no such device, or there are not as many.
        ProcessError: The processes do not find each other.
    """
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # not its choices, every time
    config = config if alone else count_processes(config)
    device = choose_device(config.accelerator)
    check_number(config, device)
    if config.deterministic and device.type == "cuda":  # torch reads it at its first product, once
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if device.type == "cpu":
        keep_freed_memory()
    if config.devices > 1:
        limit_spinning()  # of the processes that are started here
    precision: Any = choose_precision(config)
    fabric = Fabric(
        accelerator=device.type,
        devices=config.devices,
        num_nodes=config.num_nodes,
        strategy=_choose_alone(device) if alone else _make_strategy(config, find_unused),
        precision=precision,
    )
    launch(fabric, config)
    return fabric


@contextmanager
def deterministic(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Context of bit-identical operations, where ``train.deterministic`` asks for them.

    Contexts of several runs and threads may overlap in any order: the last one to end restores the
    caller's settings.

    Args:
        config: Settings of training.
        device: Device that computes; on CPU nothing needs this.
    """
    if not (config.deterministic and device.type == "cuda"):
        yield
        return
    with _LOCK:
        enabled = torch.are_deterministic_algorithms_enabled()
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        _BEFORE.append((enabled, warns, torch.backends.cudnn.benchmark))
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        with _LOCK:  # contexts after the first found the settings on
            enabled, warns, torch.backends.cudnn.benchmark = _BEFORE.pop()
            torch.use_deterministic_algorithms(enabled, warn_only=warns)


def _choose_alone(device: torch.device) -> Strategy:
    """One device: on a GPU that of the process's place on its machine."""
    if device.type == "cuda":
        device = torch.device("cuda", read_number("LOCAL_RANK") % torch.cuda.device_count())
    return SingleDeviceStrategy(device)


def _make_strategy(config: TrainConfig, find_unused: bool) -> Strategy | str:
    num_processes = config.devices * config.num_nodes
    if num_processes == 1:
        return "auto"
    if config.strategy == "fsdp":
        return ModelParallelStrategy(
            _shard,
            data_parallel_size=num_processes,
            tensor_parallel_size=1,
            timeout=read_timeout(),
        )
    return DDPStrategy(find_unused_parameters=find_unused, timeout=read_timeout())


def _shard(model: MatchModel, mesh: Any) -> nn.Module:
    """Shards parameters, gradients and moments over the processes; the head as its own unit.

    So the head is gathered on a device only while it computes, and never together with the rest.
    """
    from torch.distributed.fsdp import fully_shard

    # `LinearHead` gives a transposed view, and nothing changes it in place
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    mesh = mesh["data_parallel"]
    fully_shard(model.get_submodule("head"), mesh=mesh, reshard_after_forward=True)
    apart = {table.weight for table in model.sharded_tables.values()}
    whole_model = fully_shard(model, mesh=mesh, reshard_after_forward=True, ignored_params=apart)
    whole_model.set_reduce_scatter_unused_params(True)  # every process reduces what any one used
    return model


def keep_apart(model: MatchModel, device: torch.device) -> None:
    """Excludes sharded tables from DDP and FSDP, and moves them to the device.

    Their gradients are summed by `TokenTable.reduce_gradient`, not by DDP or FSDP. The features of
    nodes are moved too: FSDP moves parameters alone.
    """
    names = [f"{name}.weight" for name in model.sharded_tables]
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
    for table in model.sharded_tables.values():
        table.to(device)
    for part in model.modules():  # a label tree has an embedding on each level
        if isinstance(part, TokenEmbedding):
            part.move_features(device)
