"""Documents per second of a step: MATCH against padded documents, other encoders against MATCH."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from match_graph.errors import ConfigError
from match_graph.graph import EgoBatch, EgoLoader
from match_graph.graph.csr import row_index
from match_graph.nn import MatchModel
from match_graph.speed.batches import (
    count_tokens,
    find_batch_size,
    open_bench,
    repeat,
    sample_batches,
    shuffle_batches,
)
from match_graph.speed.measure import Bench, MemoryPeak, Speed, compare
from match_graph.speed.padded import RELEASE_LENGTH, PaddedModel, is_match
from match_graph.training.device import choose_precision, deterministic
from match_graph.training.learner import make_learner
from match_graph.training.loop import train_step
from match_graph.training.models import find_model

#: Batches that all work items cycle through.
NUM_BATCHES = 20
#: Number of steps of a training in whose middle the measured steps are.
_NUM_STEPS = 10_000


class Trainer:
    """Training steps of the training loop, cycling over given batches.

    Args:
        bench: Bench to train on.
        by_rows: Whether `RowAdam` updates the embedding; else the optimizer updates all of its
            rows in each step.
        alone: As for `open_bench`.
    """

    def __init__(self, bench: Bench, by_rows: bool = True, alone: bool = True) -> None:
        if not find_model(bench.config).is_neural:
            raise ConfigError(
                f"The speed of training steps is measured of a network, found model.encoder="
                f"{bench.config.model.encoder}; choose another."
            )
        run = self.run = open_bench(bench, alone)
        self.config, self.model = bench.config.train, run.make_model()
        self.fabric = run.fabric
        self.learner = make_learner(self.fabric, self.model, self.config, _NUM_STEPS, origin="")
        if not by_rows:
            self.learner.close()
        self.hierarchy = run.hierarchy.to(self.fabric.device)
        self.number = _NUM_STEPS // 2

    def step(self, batch: EgoBatch) -> int:
        """Trains one step at about half of the peak learning rate; returns its documents."""
        self.number += 1
        with deterministic(self.config, self.fabric.device):
            train_step(self.learner, batch, self.hierarchy, self.config, self.number, _NUM_STEPS)
        return batch.num_documents


class PaddedTrainer:
    """Baseline: training steps with padding, dense targets and Adam.

    Args:
        model: Model whose weights are copied.
        bench: Bench to train on.
        length: Number of tokens per document, as for `PaddedModel`.
        autocast: Makes the context of the scores; the default computes them in float32.
    """

    def __init__(
        self,
        model: MatchModel,
        bench: Bench,
        length: int | None,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.model, self.autocast = PaddedModel(model, length).to(bench.device), autocast
        self.device, self.clip_norm = bench.device, bench.config.train.clip_norm
        rate = bench.config.train.learning_rate
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=rate, fused=True)

    def step(self, cpu_batch: EgoBatch) -> int:
        """Trains one step; returns its number of documents."""
        batch = cpu_batch.to(self.device)
        with self.autocast():
            logits = self.model(batch)
        loss = dense_bce(logits.float(), *batch.gold)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        self.optimizer.step()
        return batch.num_documents


def dense_bce(logits: Tensor, label_ptr: Tensor, label_index: Tensor) -> Tensor:
    """Baseline of the loss: `sparse_bce` by a dense target [B, L]."""
    target = torch.zeros_like(logits)
    target[row_index(label_ptr), label_index] = 1
    return F.binary_cross_entropy_with_logits(logits, target, reduction="sum") / len(logits)


def measure_step(bench: Bench) -> Iterator[Speed]:
    """Measures ours, in batches of documents of similar length, against padded baselines.

    Two baselines are the usual implementation: float32, documents in random order. A third takes
    our batches, and a fourth our precision too, so that its ratio is that of the implementation
    alone; what each of the two contributes is seen by comparing the ratios. The last baseline is
    ours, except that Adam and weight averaging update all rows of the embedding in each step.

    ``share_loading`` is the share of an epoch's time that is spent on sampling batches. An encoder
    or head other than MATCH's is compared with MATCH, over the same documents and words:
    ``epochs_of_match`` is the time of its epoch in epochs of MATCH.
    """
    if not is_match(bench.config):
        yield from _measure_beside_match(bench)
        return
    loader, batches, trainer, peak_mib = _open_trainer(bench)
    shuffled = shuffle_batches(bench, batches)
    whole, short = (
        PaddedTrainer(trainer.model, bench, length) for length in (RELEASE_LENGTH, None)
    )
    work = {
        "ours": repeat(trainer.step, batches),
        f"padded to {RELEASE_LENGTH}": repeat(whole.step, shuffled),
        "padded to the batch": repeat(short.step, shuffled),
        "padded to the batch, sorted by length": repeat(short.step, batches),
    }
    precision = choose_precision(bench.config.train)
    if precision != "32-true":
        alike = PaddedTrainer(trainer.model, bench, None, trainer.fabric.autocast)
        name = f"padded to the batch, sorted by length, {precision}"
        work[name] = repeat(alike.step, batches)
    work["ours, all rows of the embedding"] = repeat(Trainer(bench, by_rows=False).step, batches)
    baselines = len(work) - 1
    work["load"] = repeat(lambda batch: batch.num_documents, loader)
    yield from compare(
        bench, "step", _describe(bench, batches), "documents/s", work, peak_mib,
        baselines=baselines, more=lambda rates: _share_epoch(rates, loader),
    )  # fmt: skip


def _measure_beside_match(bench: Bench) -> Iterator[Speed]:
    model = bench.config.model.model_copy(
        update={"encoder": "match", "encoder_config": {}, "head": "linear", "head_config": {}}
    )
    match = replace(bench, config=bench.config.model_copy(update={"model": model}))
    other_loader = open_bench(match).loader("train", training=True)
    loader, batches, trainer, peak_mib = _open_trainer(bench)
    work = {
        "ours": repeat(trainer.step, batches),
        "MATCH": repeat(Trainer(match).step, batches),
        "load": repeat(lambda batch: batch.num_documents, loader),
        "load of MATCH": repeat(lambda batch: batch.num_documents, other_loader),
    }

    def relate(rates: Mapping[str, float]) -> dict[str, float]:
        ours = 1 / rates["load"] + 1 / rates["ours"]
        theirs = 1 / rates["load of MATCH"] + 1 / rates["MATCH"]
        return _share_epoch(rates, loader) | {"epochs_of_match": ours / theirs}

    yield from compare(
        bench, "step", _describe(bench, batches), "documents/s", work, peak_mib, more=relate
    )


def _open_trainer(bench: Bench) -> tuple[EgoLoader, list[EgoBatch], Trainer, float | None]:
    """Loader, some of its batches, trainer, and the peak memory of its longest steps in MiB."""
    loader = open_bench(bench).loader("train", training=True)
    batches = sample_batches(loader, NUM_BATCHES)
    with MemoryPeak(bench.device).watch() as memory:
        trainer = Trainer(bench)
        for batch in batches[-3:]:  # the longest
            trainer.step(batch)
    return loader, batches, trainer, memory.mib


def _share_epoch(rates: Mapping[str, float], loader: EgoLoader) -> dict[str, float]:
    load, step = 1 / rates["load"], 1 / rates["ours"]
    return {
        "share_loading": load / (load + step),
        "epoch_seconds": len(loader.order.lengths) * (load + step),
    }


def _describe(bench: Bench, batches: Sequence[EgoBatch]) -> str:
    return (
        f"batches of {find_batch_size(batches)}, {count_tokens(batches):.1f} tokens per document, "
        f"{bench.dataset.num_labels:,} labels, {bench.config.train.precision}"
    )
