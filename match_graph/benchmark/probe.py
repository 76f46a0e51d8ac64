"""Probes: a few timed steps of every network before a benchmark, for the time estimate."""

import time
import traceback
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from multiprocessing.connection import Connection

import torch

from match_graph.benchmark.estimate import Estimate, Kind
from match_graph.benchmark.plan import PlannedCell
from match_graph.benchmark.process import Work, make_context, prepare_process, start_process
from match_graph.config import Config
from match_graph.datasets import CorpusDataset, open_dataset
from match_graph.features import (
    TextEmbedder,
    choose_columns,
    list_texts,
    open_embedder,
    open_features,
)
from match_graph.graph import DropFields
from match_graph.nn.label_tree import level_sizes
from match_graph.pretrain import SphericalTrainer
from match_graph.speed import Bench
from match_graph.speed.batches import open_bench
from match_graph.speed.measure import synchronize
from match_graph.speed.pretrain import time_training
from match_graph.speed.step import Trainer
from match_graph.training.device import choose_device
from match_graph.training.models import find_model

#: Timed steps, after one to warm up, and seconds after which no further one begins.
_STEPS, _SECONDS = 3, 2.0
#: Pairs of the pre-training that measures its rate.
_PAIRS = 20_000
#: Texts that are embedded to measure the rate of a language model.
_TEXTS = 32


def probe_cells(
    pending: Sequence[PlannedCell],
    estimate: Estimate,
    make_work: Callable[[PlannedCell], Work],
) -> None:
    """Measures the seconds of one cell of every network that no finished cell covers.

    The seconds are those of all planned epochs, without evaluation. One process per data set, one
    after the other, measures its rows; a row that fails is left out, as its cell will report the
    error. Some of the texts that a language model must embed are embedded too, and kept.

    Args:
        pending: Cells that will run.
        estimate: Estimate so far; what was measured is added to it.
        make_work: Makes the work order of a cell.
    """
    chosen: dict[Kind, PlannedCell] = {}
    for planned in pending:
        kind = planned.key[:2]
        is_new = find_model(planned.config).is_neural and estimate.seconds_of(kind) is None
        embeds = any(source.model for source in planned.config.data.features.values())
        if kind not in chosen and (
            is_new or (embeds and planned.dataset not in estimate.embedding)
        ):
            chosen[kind] = planned
    found: dict[Kind, float] = {}
    for name in dict.fromkeys(dataset for dataset, _ in chosen):
        works = [make_work(planned) for (dataset, _), planned in chosen.items() if dataset == name]
        process, receive = start_process(make_context(), _probe, works)
        try:
            while True:
                row, seconds, embedding = receive.recv()
                if seconds is not None:
                    found[name, row] = seconds
                if embedding:
                    estimate.embedding[name] = estimate.embedding.get(name, 0.0) + embedding
        except EOFError:  # the process has ended
            process.join()
    estimate.probed = found


def _probe(works: Sequence[Work], answer: Connection) -> None:
    """Measures the rows of a data set; the main function of its process."""
    prepare_process(works[0])
    pretrained: dict[str, float] = {}
    embedded: set[Hashable] = set()
    for work in works:
        cell = work.cell
        try:
            dataset = _open(work)
            embedding = _give_features(dataset, cell.config, work.root, embedded)
            is_neural = find_model(cell.config).is_neural
            seconds = _measure(work, dataset, pretrained) if is_neural else None
        except Exception:  # the cell itself will report it
            traceback.print_exc()
            continue
        answer.send((cell.row.name, seconds, embedding))
    answer.close()


def _open(work: Work) -> CorpusDataset:
    config = work.cell.config
    dataset = open_dataset(config.dataset, root=work.root, **config.data.dataset_options())
    dataset.transform = DropFields(config.data.drop_fields)
    return dataset


def _give_features(
    dataset: CorpusDataset, config: Config, root: str | None, embedded: set[Hashable]
) -> float:
    """Gives a data set its features; zeros stand for those that a language model must compute.

    Returns:
        Seconds that embedding its other texts will take; 0 for those that another row embeds.
    """
    seconds = 0.0
    for node_type, source in config.data.features.items():
        if source.model is None:
            found = open_features(source, dataset, node_type, root)
            dataset.join_features(node_type, found.x, found.digest, found.path)
            continue
        embedder = open_embedder(source, root)
        columns = choose_columns(node_type, source.column)
        key = embedder.digest, node_type, *columns
        if key not in embedded:
            seconds += _time_embedding(embedder, list_texts(dataset, node_type, columns))
            embedded.add(key)
        width = embedder.width * (2 if source.neighbors else 1)
        zeros = torch.zeros(1, width, dtype=torch.float16)
        x = zeros.expand(dataset.graph.num_nodes(node_type), -1)
        dataset.join_features(node_type, x, embedder.digest, embedder.path)
    return seconds


def _time_embedding(embedder: TextEmbedder, texts: Sequence[str]) -> float:
    missing = embedder.find_missing(texts)
    first, *others = missing[:: max(1, len(missing) // _TEXTS)][: 1 + _TEXTS] or [""]
    if not others:
        return 0.0
    embedder.prepare([first])  # reads the model
    start = time.perf_counter()
    embedder.prepare(others)
    return (time.perf_counter() - start) / len(others) * (len(missing) - 1 - len(others))


def _measure(work: Work, dataset: CorpusDataset, pretrained: dict[str, float]) -> float:
    config = work.cell.config
    seconds = _time_steps(dataset, config)
    key = work.cell.vectors_key
    if key is not None and key not in pretrained and work.vectors is None:
        pretrained[key] = _time_pretraining(dataset, config)
        seconds += pretrained[key]  # the first row that needs the vectors pre-trains them
    return seconds


def _time_steps(dataset: CorpusDataset, config: Config) -> float:
    """Seconds of all steps; 0 for a label tree, whose levels need those above them."""
    if len(level_sizes(dataset.num_labels, config.model)) > 1:
        return 0.0
    device = choose_device(config.train.accelerator)
    bench = Bench(dataset, config, _SECONDS, device)
    loader = open_bench(bench).loader("train", training=True)
    trainer = Trainer(bench)
    first, *others = islice(loader, 1 + _STEPS)
    trainer.step(first)
    synchronize(device)
    start, done = time.perf_counter(), 0
    for batch in others or [first]:
        trainer.step(batch)
        synchronize(device)
        done += 1
        if time.perf_counter() - start > _SECONDS:
            break
    each = (time.perf_counter() - start) / done
    assert config.train.epochs is not None
    return each * len(loader.order) * config.train.epochs


def _time_pretraining(dataset: CorpusDataset, config: Config) -> float:
    assert config.pretrain.samples is not None
    num_rows = dataset.token_space(config.data.min_count, config.data.min_word_count).kept_by_type
    device = choose_device(config.train.accelerator)
    trainer = SphericalTrainer(dataset.graph, config.pretrain, config.seed, num_rows, device=device)
    pairs = min(_PAIRS, config.pretrain.samples)
    return time_training(trainer, pairs) / max(pairs, 1) * config.pretrain.samples
