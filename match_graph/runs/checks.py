"""Checks before a run folder is made: contract, memory, device, word vectors."""

import os
from pathlib import Path

import torch
from torch import nn

from match_graph.config import ModelConfig
from match_graph.errors import ConfigError, CorpusError, MatchGraphError
from match_graph.graph import EgoLoader, EgoSampler, Hierarchy, TokenSpace
from match_graph.nn import MatchModel
from match_graph.nn.contract import check_encoding
from match_graph.nn.label_tree import make_levels
from match_graph.nn.tables import READS_OWN_ROWS
from match_graph.runs.known_graph import list_known_edges
from match_graph.runs.run import Run
from match_graph.training.device import choose_device
from match_graph.typing import LABEL, MASKS

#: Values per weight in training: the weight, its gradient, and Adam's two moments.
_COPIES = 4
#: Files with a container's memory limit, of cgroup v2 and v1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_model(run: Run) -> None:
    """Builds the model of a run over no tokens and one label, to find faults early.

    An encoder of a user's own (``package.module:Class``) also encodes two documents, as documents
    of the graph and as new ones.

    Raises:
        ConfigError: As `Model.build`, the encoder gives what it should not, or the model does not
            fit into memory.
        CorpusError: A graph encoder lacks edges.
    """
    if run.model.is_neural:
        check_memory(run)
    none_kept = TokenSpace(run.space.types, (0,) * len(run.space.types))
    no_edge = Hierarchy.without_edges(1)
    model = run.model.build(none_kept, (1,) * len(run.sizes), no_edge, run.features)
    if isinstance(model, MatchModel) and run.model.is_own:
        _check_encoding(run, model, none_kept)
    choose_device(run.config.train.accelerator)
    if run.graphs is not None:  # its settings must fit the graph
        _check_edge_types(run)


def _check_edge_types(run: Run) -> None:
    """Refuses a graph that lacks edge types of a run; warns of those that predictions lack.

    Raises:
        CorpusError: A pre_transform gave it nodes, or took away edges.
    """
    there, needed = run.dataset.graph.edge_types, list_known_edges(run.space.types)
    if missing := [edge_type for edge_type in needed if edge_type not in there]:
        raise CorpusError(
            f"The graph of a graph encoder must join documents to what they have and cite, but "
            f"'{run.dataset.name}' has no edges {missing}; name them so in pre_transform."
        )
    others = [one for one in there if one not in needed and LABEL not in one]
    if others:
        run.reporter.warn(
            f"edges {others} are not known to predictions, and graph encoders of the package send "
            f"no messages over them"
        )


def _check_encoding(run: Run, model: MatchModel, space: TokenSpace) -> None:
    graph, needs = run.dataset.graph, run.model.needs
    loader = EgoLoader(
        graph,
        EgoSampler(graph, run.config.data.max_metadata, run.config.data.max_words),
        space,
        run.dataset.documents(MASKS["train"])[:2],
        with_graph="graph" in needs,
        graphs=run.open_graphs(space) if "graph" in needs else None,
        texts=run.texts if "text" in needs else None,
        batch_size=2,
    )
    for batch in loader:
        prepared = model.embedding.prepare(batch)
        try:
            check_encoding(model.encoder.eval(), prepared, run.config.model.encoder)
        except IndexError as error:
            if model.embedding.shard is None:
                raise
            raise ConfigError(READS_OWN_ROWS) from error


def check_word_vectors(config: ModelConfig) -> None:
    """Checks that the file of word vectors is there; a trained run needs it no more.

    Raises:
        ConfigError: It is not.
    """
    path = config.word_vectors
    if config.init == "word_vectors" and path is not None and not Path(path).is_file():
        raise ConfigError(
            f"model.word_vectors must be a text file of word vectors, but there is none at "
            f"'{path}'; check the path."
        )


def check_memory(run: Run) -> None:
    """Refuses settings whose weights, gradients and moments do not fit into memory.

    What a batch takes comes on top of that, so that what passes here may still be too large.

    Raises:
        ConfigError: They need more than the machine has.
    """
    device = choose_device(run.config.train.accelerator)
    host, memory = find_memory(torch.device("cpu")), find_memory(device)
    channels, graph = run.config.pretrain.channels, run.dataset.graph
    rows = sum(map(graph.num_nodes, graph.node_types))
    vectors = 4 * channels * rows if run.model.is_pretrained else 0
    vectors //= run.config.train.num_nodes  # machines share the tables
    if vectors > host:
        raise ConfigError(
            f"The vectors of pre-training must fit into memory, but {rows:,} of {channels:,} "
            f"channels take {_gib(vectors)} of {_gib(host)}; set pretrain.channels and "
            f"model.channels lower."
        )
    weights = count_weights(run)
    needed = _COPIES * 4 * _count_here(run, weights)
    if needed > memory:
        raise ConfigError(
            f"A model must fit into memory, but {weights:,} weights take {_gib(needed)} of "
            f"{_gib(memory)} with their gradients and moments; set fewer layers or channels, or "
            f"share them by more processes and train.strategy=fsdp."
        )


def _count_here(run: Run, weights: int) -> int:
    """How many of a model's weights each process holds."""
    number, train, model = run.fabric.world_size, run.config.train, run.config.model
    tables = 0
    if train.shard_embeddings:
        tables = min(weights, run.space.num_tokens * model.channels)
    others = weights - tables
    return tables // number + (others // number if train.strategy == "fsdp" else others)


def count_weights(run: Run) -> int:
    """Number of parameters of a run's model, without making it; 0 where it cannot be counted.

    Encoders that read their weights from files, and those of users that compute with them where
    they are made, cannot be counted.
    """
    if "text" in run.model.needs:
        return 0
    no_edge = Hierarchy.without_edges(run.sizes[-1])  # the run's would cache meta tensors
    try:
        with torch.device("meta"):
            model: nn.Module = make_levels(
                run.space, run.sizes, run.config.model, no_edge, run.features
            )
    except MatchGraphError:
        raise
    except Exception:  # a user's code may do what the meta device cannot
        return 0
    return sum(parameter.numel() for parameter in model.parameters())


def find_memory(device: torch.device) -> int:
    """Bytes of memory of a device, or of this machine within its container's limit."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    there = [path for path in map(Path, _LIMITS) if path.is_file()]
    texts = [path.read_text(encoding="ascii").strip() for path in there]
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *(int(text) for text in texts if text.isdecimal())])


def _gib(number: int) -> str:
    return f"{number / 2**30:,.1f} GiB"
