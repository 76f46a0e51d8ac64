"""Checks before a run folder is made."""

from typing import TYPE_CHECKING

import torch

from match_graph.errors import ConfigError
from match_graph.graph import EgoLoader, EgoSampler, LabelDAG, TokenSpace
from match_graph.nn import MatchModel
from match_graph.nn.contract import check_encoding
from match_graph.nn.label_tree import make_levels
from match_graph.runs.memory import check_memory
from match_graph.training.device import choose_device
from match_graph.training.fitting import is_baseline, make_baseline
from match_graph.typing import MASKS

if TYPE_CHECKING:
    from match_graph.runs.run import Run


def check_model(run: "Run") -> None:
    """Builds the model of a run over no tokens and one label, to find faults early.

    An encoder of a user's own (``package.module:Class``) also encodes two documents, as documents
    of the graph and as new ones.

    Raises:
        ConfigError: As `make_model` and baselines, the encoder gives what it should not, or the
            model does not fit into memory.
    """
    none_kept = TokenSpace(run.space.types, (0,) * len(run.space.types))
    if is_baseline(run.config.model):
        make_baseline(none_kept, 1, run.config)
        if run.config.model.coherent:
            raise ConfigError(
                f"A coherent output stands behind a network's head, but "
                f"'{run.config.model.encoder}' is a baseline; set model.coherent to false."
            )
    else:
        check_memory(run)
        no_edge = LabelDAG(torch.empty(2, 0, dtype=torch.int64), 1)
        model = make_levels(none_kept, (1,) * len(run.sizes), run.config.model, no_edge)
        if ":" in run.config.model.encoder and "graph" not in run.needs:
            _check_encoding(run, model, none_kept)
    choose_device(run.config.train.accelerator)
    _ = run.graphs  # its settings must fit the graph


def _check_encoding(run: "Run", model: MatchModel, space: TokenSpace) -> None:
    data = run.dataset[0]
    loader = EgoLoader(
        data,
        EgoSampler(data, run.config.data.max_metadata, run.config.data.max_words),
        space,
        run.dataset.documents(MASKS["train"])[:2],
        texts=run.texts if "text" in run.needs else None,
        batch_size=2,
    )
    for batch in loader:
        check_encoding(model.encoder.eval(), batch, run.config.model.encoder)
