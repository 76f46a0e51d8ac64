"""Probes: measured steps of every network before a benchmark, for the time estimate."""

import time
import traceback
from collections.abc import Callable, Sequence
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

from match_graph.benchmark.cell import Work, prepare_process, start_process
from match_graph.benchmark.estimate import Estimate, Kind
from match_graph.benchmark.plan import PlannedCell
from match_graph.config import Config
from match_graph.datasets import CorpusDataset, open_dataset
from match_graph.graph import DropFields
from match_graph.nn.label_tree import level_sizes
from match_graph.pretrain import SphericalTrainer
from match_graph.speed import Bench
from match_graph.speed.batches import open_bench
from match_graph.speed.measure import synchronize
from match_graph.speed.step import Trainer
from match_graph.training.device import choose_device
from match_graph.training.models import find_model

#: Measured after one that is not; fewer where they take long.
_STEPS, _SECONDS = 3, 2.0
#: Of the pre-training that tells its rate.
_PAIRS = 20_000


def probe_cells(
    pending: Sequence[PlannedCell],
    estimate: Estimate,
    make_work: Callable[[PlannedCell], Work],
    context: Any,
) -> dict[Kind, float]:
    """Measures the seconds of one cell of every network that no finished cell covers.

    Without evaluation, and with the epochs as planned. Measured in one process per data set, one
    after the other; what cannot be measured is left out, as its cell will say why.

    Args:
        pending: Cells that will run.
        estimate: Estimate so far.
        make_work: Makes the work order of a cell.
        context: Multiprocessing context.
    """
    chosen: dict[Kind, PlannedCell] = {}
    for planned in pending:
        kind = planned.key[:2]
        if (
            kind not in chosen
            and estimate.seconds_of(kind) is None
            and find_model(planned.config).is_neural
        ):
            chosen[kind] = planned
    found: dict[Kind, float] = {}
    for name in dict.fromkeys(dataset for dataset, _ in chosen):
        works = [make_work(planned) for (dataset, _), planned in chosen.items() if dataset == name]
        process, receive = start_process(context, _probe, works)
        try:
            while True:
                row, seconds = receive.recv()
                found[name, row] = seconds
        except EOFError:  # the process has ended
            process.join()
    return found


def _probe(works: Sequence[Work], answer: Connection) -> None:
    """Measures the rows of a data set; the main function of its process."""
    prepare_process(works[0])
    pretrained: dict[str, float] = {}
    for work in works:
        cell = work.cell
        try:
            seconds = _measure(work, pretrained)
        except Exception:  # the cell itself will say why
            traceback.print_exc()
            continue
        answer.send((cell.row.name, seconds))
    answer.close()


def _measure(work: Work, pretrained: dict[str, float]) -> float:
    config = work.cell.config
    dataset = open_dataset(config.dataset, root=work.root, **config.data.dataset_options())
    dataset.transform = DropFields(config.data.drop_fields)
    seconds = _time_steps(dataset, config)
    key = work.cell.vectors_key
    if key is not None and key not in pretrained and work.vectors is None:
        pretrained[key] = _time_pretraining(dataset, config)
        seconds += pretrained[key]  # the first row that needs the vectors trains them
    return seconds


def _time_steps(dataset: CorpusDataset, config: Config) -> float:
    """Seconds of all steps; 0 for a label tree, whose levels need what is above."""
    if len(level_sizes(dataset.num_labels, config.model)) > 1:
        return 0.0
    device = choose_device(config.train.accelerator)
    bench = Bench(dataset, config, _SECONDS, device)
    loader = open_bench(bench).loader("train", training=True)
    loader.batch_sampler.set_epoch(0)
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
    return each * len(loader.batch_sampler) * config.train.epochs


def _time_pretraining(dataset: CorpusDataset, config: Config) -> float:
    assert config.pretrain.samples is not None
    space = dataset.token_space(config.data.min_count, config.data.min_word_count)
    num_rows = dict(zip(space.types, space.num_kept, strict=True))
    device = choose_device(config.train.accelerator)
    trainer = SphericalTrainer(dataset[0], config.pretrain, config.seed, num_rows, device=device)
    pairs = min(_PAIRS, config.pretrain.samples)
    start = time.perf_counter()
    trainer.fit(pairs)
    synchronize(device)
    return (time.perf_counter() - start) / max(pairs, 1) * config.pretrain.samples
