"""Documents per second of prediction from records, against torch's own encoder over padded ones."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from match_graph.errors import ConfigError
from match_graph.predict.classifier import Classifier
from match_graph.runs.vocabulary import read_vocabulary, write_vocabulary
from match_graph.speed.batches import open_bench
from match_graph.speed.measure import Bench, Speed, compare, watch_memory
from match_graph.speed.padded import RELEASE_LENGTH, PaddedModel, is_match
from match_graph.training.device import make_fabric
from match_graph.typing import MASKS

#: Documents of a piece of ours, and of the baseline, which is much slower.
_DOCUMENTS, _FEWER = 2048, 256


def measure_predict(bench: Bench) -> Iterator[Speed]:
    """Measures both on the same records: token lookup, logits, and the best five labels.

    Raises:
        ConfigError: Encoder or head are not MATCH's, whose network the baseline is.
    """
    if not is_match(bench.config):
        raise ConfigError(
            f"The speed of prediction is measured against the network of MATCH over padded "
            f"documents, found model.encoder={bench.config.model.encoder} and model.head="
            f"{bench.config.model.head}; leave them out."
        )
    run = open_bench(bench)
    documents = run.dataset.documents(MASKS["test"])
    order = torch.randperm(len(documents), generator=torch.Generator().manual_seed(0))
    records = run.dataset.as_json(documents[order[:_DOCUMENTS]].tolist())
    with tempfile.TemporaryDirectory() as folder:
        write_vocabulary(Path(folder), run.dataset, run.space, run.dataset.hierarchy)
        vocabulary = read_vocabulary(Path(folder))
    settings, model = bench.config.train, run.make_model()
    full = settings.model_copy(update={"precision": "32-true"})
    names = ("ours", f"padded to {RELEASE_LENGTH}")
    padded: Any = PaddedModel(model, RELEASE_LENGTH)  # scores like a MatchModel
    classifiers = {
        names[0]: Classifier(vocabulary, model, bench.config, make_fabric(settings)),
        names[1]: Classifier(vocabulary, padded, bench.config, make_fabric(full)),
    }

    def predict(name: str, number: int) -> int:
        return sum(1 for _ in classifiers[name].predict(records[:number]))

    ours, baseline = (
        partial(predict, name, number)
        for name, number in zip(names, (_DOCUMENTS, _FEWER), strict=True)
    )
    yield from compare(
        bench, "predict",
        f"{len(records):,} documents, {bench.dataset.num_labels:,} labels, {settings.precision}",
        "documents/s", {names[0]: ours, names[1]: baseline}, watch_memory(bench, ours),
    )  # fmt: skip
