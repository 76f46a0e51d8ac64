"""Documents per second of prediction from records, against torch's encoder over padding."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from match_graph.config import TrainConfig
from match_graph.errors import ConfigError
from match_graph.predict.classifier import Classifier
from match_graph.runs.vocabulary import read_vocabulary, write_vocabulary
from match_graph.speed.batches import open_bench
from match_graph.speed.measure import Bench, Speed, compare, watch_memory
from match_graph.speed.padded import RELEASE_LENGTH, PaddedModel, is_match
from match_graph.training.device import choose_precision, make_fabric
from match_graph.typing import DOCUMENT, MASKS

#: Documents of one work item; enough batches for eight threads.
_DOCUMENTS = 2048


def measure_predict(bench: Bench) -> Iterator[Speed]:
    """Measures token lookup, logits and the best five labels on the same records.

    The first baseline pads to a fixed length and computes in float32, as is usual; the second pads
    to the longest document of a batch, in our precision. All predict the same records, those of
    test or of all splits if there are none, with the same threads and in the same batches, which
    `Classifier` makes of documents of similar length.

    Raises:
        ConfigError: Encoder or head are not those of MATCH, which the baseline reimplements.
    """
    if not is_match(bench.config):
        raise ConfigError(
            f"The speed of prediction is measured against the network of MATCH over padded "
            f"documents, found model.encoder={bench.config.model.encoder} and model.head="
            f"{bench.config.model.head}; leave them out."
        )
    run = open_bench(bench)
    documents = run.dataset.documents(MASKS["test"])
    if not len(documents):  # their labels are not read
        documents = torch.arange(run.dataset.graph.num_nodes(DOCUMENT))
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(0))
    records = run.dataset.as_json(documents[order[:_DOCUMENTS]].tolist())
    with tempfile.TemporaryDirectory() as folder:
        write_vocabulary(Path(folder), run.dataset, run.space, run.dataset.hierarchy)
        vocabulary = read_vocabulary(Path(folder))
    settings, model = bench.config.train, run.make_model()
    full = settings.model_copy(update={"precision": "32-true"})
    precision = choose_precision(settings)
    whole: Any = PaddedModel(model, RELEASE_LENGTH)  # scores like a MatchModel
    short: Any = PaddedModel(model)
    competitors = {
        "ours": (model, settings),
        f"padded to {RELEASE_LENGTH}": (whole, full),
        f"padded to the batch, {precision}": (short, settings),
    }

    def make_work(network: Any, train: TrainConfig) -> Callable[[], int]:
        classifier = Classifier(vocabulary, network, bench.config, make_fabric(train, alone=True))
        return lambda: sum(1 for _ in classifier.predict(records))

    work = {name: make_work(*parts) for name, parts in competitors.items()}
    yield from compare(
        bench, "predict",
        f"{len(records):,} documents, {bench.dataset.num_labels:,} labels, {precision}",
        "documents/s", work, watch_memory(bench, work["ours"]), baselines=len(work) - 1,
    )  # fmt: skip
