"""`list_models`: what is registered, with its size."""

import json
import sys

import pytest
import torch

from match_graph import cli
from match_graph.baselines import BASELINES
from match_graph.nn import ENCODERS, HEADS
from match_graph.training.catalog import list_models


def test_list_models_everything_registered_is_listed() -> None:
    """Once, by kind, with what its class states."""
    entries = {(entry.kind, entry.name): entry for entry in list_models()}
    expected = {("encoder", name) for name in ENCODERS} | {("head", name) for name in HEADS}
    assert set(entries) == expected | {("baseline", name) for name in BASELINES}
    for name, cls in ENCODERS.items():
        entry = entries["encoder", name]
        assert (entry.needs, entry.gives) == (sorted(cls.needs), cls.gives)
        assert entry.paper == cls.paper
    for entry in entries.values():
        assert entry.summary.endswith((".", ":")), entry
        assert entry.paper or entry.kind == "head" or entry.name == "prior", entry


def test_list_models_parameters_are_counted_at_the_stated_size() -> None:
    """MATCH and the linear head by hand: 100 channels, 1,000 labels, 3 fields and words."""
    entries = {(entry.kind, entry.name): entry for entry in list_models()}
    width = 100 + 28
    layer = 4 * (width * width + width) + 2 * 2 * width + 8 * width * width + 5 * width
    match = entries["encoder", "match"]
    assert match.parameters == 8 * width + 4 * width + layer
    assert match.parameters_with_head == match.parameters + (8 * width + 1) * 1000
    assert entries["head", "linear"].parameters == 101 * 1000
    assert entries["encoder", "language_model"].parameters is None  # the checkpoint decides


def test_list_models_listing_leaves_callers_random_state_alone() -> None:
    """Although every encoder is made."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    list_models()
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_list_models_by_the_command(arguments, monkeypatch, capsys) -> None:
    """Every name is there; --json gives every value, the paper's address too."""
    monkeypatch.setattr(sys, "argv", ["match-graph", "encoders", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    printed = capsys.readouterr().out
    assert all(name in printed for name in (*ENCODERS, *HEADS, *BASELINES))
    if arguments:
        lines = [json.loads(line) for line in printed.splitlines()]
        assert "https://arxiv.org/abs/2102.07349" in next(
            line["paper"] for line in lines if line["name"] == "match"
        )
    else:
        assert "Parameters without token embeddings, at 100 channels, 1,000 labels" in printed
