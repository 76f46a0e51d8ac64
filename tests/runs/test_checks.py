"""Settings that do not fit into memory are refused before anything is made."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_geometric.data import HeteroData

from match_graph import Run, start_run
from match_graph.config import load_config
from match_graph.datasets import Synthetic
from match_graph.errors import ConfigError, CorpusError
from match_graph.io.progress import Reporter
from match_graph.nn import ENCODERS
from match_graph.runs import checks
from match_graph.runs.checks import check_memory, count_weights, find_memory
from match_graph.training.models import find_model


def with_settings(run: Run, *settings: str) -> Any:
    """A stand-in for a run with other model settings, as the check reads it."""
    config = load_config(None, list(settings))
    config = config.model_copy(update={"model": find_model(config).complete()})
    return SimpleNamespace(
        config=config, space=run.space, sizes=run.sizes, hierarchy=run.dataset.hierarchy,
        dataset=run.dataset, model=find_model(config), fabric=run.fabric,
        features=run.features,
    )  # fmt: skip


@pytest.mark.parametrize("encoder", sorted(ENCODERS.keys() - {"language_model"}))
def test_count_weights_is_what_the_model_has(trained_run: Run, encoder: str) -> None:
    """The count is that of every encoder's model, with embedding and head."""
    run = with_settings(trained_run, f"model.encoder={encoder}")
    model = checks.make_levels(run.space, run.sizes, run.config.model, run.dataset.hierarchy)
    assert count_weights(run) == sum(one.numel() for one in model.parameters()) > 0


def test_count_weights_is_0_where_weights_are_read(trained_run: Run) -> None:
    run = SimpleNamespace(model=SimpleNamespace(needs=frozenset({"text"})))
    assert count_weights(run) == 0


def test_check_memory_refuses_before_anything_is_made(
    trained_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of terabytes and too large vectors are refused; the run itself passes."""
    monkeypatch.setattr(checks, "find_memory", lambda device: 64 * 2**30)
    check_memory(trained_run)
    huge = [
        "model.channels=65536",
        "pretrain.channels=65536",
        "model.encoder_config.num_layers=256",
    ]
    with pytest.raises(ConfigError) as caught:
        check_memory(with_settings(trained_run, *huge, "model.encoder_config.feed_forward=1024"))
    text = str(caught.value)
    assert text.startswith("A model must fit into memory, but ")
    assert text.endswith(
        "of 64.0 GiB with their gradients and moments; set fewer layers or channels, or "
        "share them by more processes and train.strategy=fsdp."
    )
    alone = with_settings(trained_run, *huge[:2])
    monkeypatch.setattr(checks, "count_weights", lambda run: 10**9)
    table = alone.space.num_tokens * 65536
    assert checks._count_here(alone, 10**9) == 10**9
    alone.fabric = SimpleNamespace(world_size=4)
    assert checks._count_here(alone, 10**9) == 10**9 - table + table // 4
    monkeypatch.setattr(checks, "find_memory", lambda device: 2**10)
    with pytest.raises(ConfigError, match="The vectors of pre-training must fit into memory"):
        check_memory(trained_run)
    with pytest.raises(ConfigError, match="A model must fit into memory"):  # machines share vectors
        check_memory(with_settings(trained_run, "train.num_nodes=4096"))


def test_start_run_makes_no_folder_for_a_model_that_does_not_fit(tmp_path) -> None:
    """A model that is too large is refused before a run folder is made."""
    settings = ["data.options={num_documents: 200}", "model.encoder=bert_xml"]
    layers = "model.encoder_config={num_layers: 256, hidden_channels: 65536}"
    settings += [layers, "model.channels=16384", "pretrain.channels=16384"]
    with pytest.raises(ConfigError, match="must fit into memory"):
        start_run("synthetic", load_config(None, settings), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_find_memory_is_at_most_the_limit_of_the_container(tmp_path, monkeypatch) -> None:
    whole = find_memory(torch.device("cpu"))
    assert whole > 2**28
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(checks, "_LIMITS", (tmp_path / "none", tmp_path / "memory.max"))
    assert find_memory(torch.device("cpu")) == 2**20


def test_check_model_edges_of_a_pre_transform(tmp_path, capsys) -> None:
    """Other edges of a pre_transform are warned of; nodes without known edges are refused."""

    def add(data: HeteroData) -> HeteroData:
        data["author", "knows", "author"].edge_index = torch.tensor([[0], [1]])
        return data

    def add_nodes(data: HeteroData) -> HeteroData:
        data["group"].num_nodes = 3
        data["document", "in", "group"].edge_index = torch.tensor([[0, 1], [2, 0]])
        return data

    config = load_config(None, ["model.encoder=hetero_sage"])
    dataset = Synthetic(root=tmp_path, num_documents=200, pre_transform=add)
    start_run(dataset, config, tmp_path / "run", tmp_path, reporter=Reporter(quiet=True))
    assert "warning: edges [('author', 'knows', 'author')] are not known to" in " ".join(
        capsys.readouterr().err.split()
    )
    dataset = Synthetic(root=tmp_path, num_documents=200, pre_transform=add_nodes)
    with pytest.raises(CorpusError) as caught:
        start_run(dataset, config, tmp_path / "other", tmp_path)
    assert str(caught.value) == (
        "The graph of a graph encoder must join documents to what they have and cite, but "
        "'synthetic' has no edges [('document', 'has', 'group')]; name them so in pre_transform."
    )
    assert not (tmp_path / "other").exists()
