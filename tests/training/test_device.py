"""Device and precision."""

import os
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import HeteroData

from match_graph.config import ModelConfig, TrainConfig
from match_graph.errors import ConfigError
from match_graph.features.sentence_model import is_bfloat16_native
from match_graph.graph import EgoBatch, TokenSpace
from match_graph.graph.tokens import NodeFeatures
from match_graph.nn import MatchModel
from match_graph.training import device as device_module
from match_graph.training.device import (
    choose_device,
    choose_precision,
    count_threads,
    deterministic,
    keep_apart,
    make_fabric,
)


def test_choose_precision_is_what_is_asked_for() -> None:
    """`train.precision` forces it; auto is one of the two, and resolved the same way."""
    for precision in ("32-true", "bf16-mixed"):
        config = TrainConfig(precision=precision)
        assert make_fabric(config)._precision.precision == choose_precision(config) == precision
    assert choose_precision(TrainConfig(accelerator="cpu")) in ("32-true", "bf16-mixed")


@pytest.mark.parametrize("name", ["avx512_bf16", "amx_bf16", None])
def test_choose_precision_auto_on_a_cpu(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    """Training and language models take bfloat16 on the same CPUs."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {name: True}, raising=False)
    config = TrainConfig(accelerator="cpu")
    assert choose_precision(config) == ("bf16-mixed" if name else "32-true")
    assert is_bfloat16_native() == bool(name)


@pytest.mark.parametrize("native", [True, False])
def test_choose_precision_auto_is_float32_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    """But for encoders that read text through a language model, where it computes in bfloat16."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    config = TrainConfig(accelerator="cuda")
    assert choose_precision(config) == "32-true"
    assert choose_precision(config, reads_text=True) == ("bf16-mixed" if native else "32-true")
    forced = TrainConfig(accelerator="cuda", precision="bf16-mixed")
    assert choose_precision(forced) == "bf16-mixed"
    cpu = TrainConfig(accelerator="cpu")
    assert choose_precision(cpu, reads_text=True) == choose_precision(cpu)


def test_choose_device_gpu_that_is_not_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says that none is found; a device that nobody knows is told apart."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    wrong = {
        "tpu": "The device must be 'auto', 'cpu' or, where torch finds a GPU, 'cuda', found 'tpu'.",
        "cuda": "The device 'cuda' must be a GPU that torch finds, but it finds none on this "
        "machine; choose 'cpu' or 'auto', or check the driver and that torch is built with CUDA.",
    }
    for device, expected in wrong.items():
        with pytest.raises(ConfigError) as caught:
            choose_device(device)
        assert str(caught.value) == expected
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(("devices", "count"), [(1, None), (2, "1000")])
def test_make_fabric_limits_spinning_of_processes_that_it_starts(
    monkeypatch: pytest.MonkeyPatch, devices: int, count: str | None
) -> None:
    """They take the variable over; without others this process's environment is left alone."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    found: list[str | None] = []
    fabric = SimpleNamespace(
        launch=lambda: found.append(os.environ.get("GOMP_SPINCOUNT")), strategy=None, world_size=1
    )
    monkeypatch.setattr(device_module, "Fabric", lambda **_: fabric)
    make_fabric(TrainConfig(accelerator="cpu", devices=devices))
    assert found == [count]


@pytest.fixture
def as_caller_has_it() -> Iterator[None]:
    """Puts torch's deterministic algorithms back after a test."""
    yield
    torch.use_deterministic_algorithms(False)


def describe_determinism() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
    )


def test_make_fabric_leaves_deterministic_algorithms_alone(
    monkeypatch: pytest.MonkeyPatch, as_caller_has_it: None
) -> None:
    """Opening a deterministic run on a GPU changes nothing of the caller's process but cuBLAS."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that it is restored
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    fabric = SimpleNamespace(launch=lambda: None, strategy=None, world_size=1)
    monkeypatch.setattr(device_module, "Fabric", lambda **_: fabric)
    make_fabric(TrainConfig(accelerator="cuda", precision="32-true"))
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    make_fabric(TrainConfig(accelerator="cuda", precision="32-true", deterministic=True))
    assert describe_determinism() == (False, False, False)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"  # torch reads it once per process


def test_make_fabric_alone_takes_a_device_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of its place on the machine, of two where four processes share them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    given: list[torch.device] = []
    fabric = SimpleNamespace(launch=lambda: None, strategy=None, world_size=1)

    def make(strategy, **_):
        given.append(strategy.root_device)
        return fabric

    monkeypatch.setattr(device_module, "Fabric", make)
    for rank in range(4):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        make_fabric(TrainConfig(accelerator="cuda", precision="32-true"), alone=True)
    assert given == [torch.device("cuda", rank) for rank in (0, 1, 0, 1)]


@pytest.mark.parametrize("before", [(False, False), (True, False), (True, True), (False, True)])
def test_deterministic_restores_the_state_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, as_caller_has_it: None, before: tuple[bool, bool]
) -> None:
    """Also after an error, and where contexts of two runs end in the order that they began."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    config, gpu = TrainConfig(deterministic=True), torch.device("cuda")
    for other in (TrainConfig(), TrainConfig(deterministic=True)):
        with deterministic(other, torch.device("cpu")):
            assert describe_determinism() == (*before, True)
    with pytest.raises(KeyError), deterministic(config, gpu):
        assert describe_determinism() == (True, False, False)
        raise KeyError
    assert describe_determinism() == (*before, True)
    first, second = deterministic(config, gpu), deterministic(config, gpu)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert describe_determinism() == (True, False, False)
    second.__exit__(None, None, None)
    assert describe_determinism() == (*before, True)


def test_count_threads_grows_with_tokens_labels_and_nodes(monkeypatch) -> None:
    """By the widest products, worked out by hand: C = 128, feed-forward 4 C, head [L, 8 C]."""
    model = MatchModel(TokenSpace(("word",), (50,)), 634, ModelConfig(encoder="match"))
    per_token, per_document = 4 * 128 * 128, 634 * 8 * 128

    def make(num_documents: int, length: int) -> EgoBatch:
        ptr = torch.arange(num_documents + 1) * length
        zeros = torch.zeros(num_documents * length, dtype=torch.int64)
        return EgoBatch(torch.arange(num_documents), zeros, zeros, zeros, ptr)

    for num_documents, length in ((32, 71), (256, 71), (512, 200)):
        work = num_documents * (length * per_token + per_document)
        assert count_threads(make(num_documents, length), model) == work // 2**28
    small = make(32, 71)
    monkeypatch.setattr(model.encoder, "modules", None)  # walked once, not at each step
    assert count_threads(small, model) == 0  # one thread
    graph = HeteroData()
    graph["document"].num_nodes = 20_000
    assert (
        count_threads(replace(small, graph=graph), model)
        == ((32 * 71 + 20_000) * per_token + 32 * per_document) // 2**28
    )
    assert (
        count_threads(replace(small, text=["a" * 4000] * 32), model)
        == (32_000 * per_token + 32 * per_document) // 2**28
    )


def test_keep_apart_moves_features_of_nodes() -> None:
    """They are no parameters, which is all that FSDP moves."""
    space, config = TokenSpace(("word",), (3,)), ModelConfig(encoder="transformer", channels=4)
    features = NodeFeatures(rows={"word": torch.ones(3, 2)})
    model, above = (MatchModel(space, 2, config, features=features) for _ in range(2))
    model.above = above
    keep_apart(model, torch.device("meta"))
    rows = (*model.embedding._rows, *above.embedding._rows)
    assert [one.device.type for one in rows] == ["meta", "meta"]
    assert model.embedding.weight.device.type == "cpu"
