"""Summary of a finished run: example predictions, files, next commands."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from match_graph.config import Config, DataConfig
from match_graph.datasets import default_root
from match_graph.errors import format_command
from match_graph.io.run_folder import CONTENT
from match_graph.own_code import is_own_code
from match_graph.predict.classifier import load
from match_graph.predict.names import (
    find_metadata_names,
    find_names,
    list_metadata,
    show_name,
)
from match_graph.runs.configure import NO_HIERARCHY, NO_METADATA, NO_PRETRAIN
from match_graph.runs.run import Run
from match_graph.typing import LABEL, MASKS, Split


@dataclass(frozen=True)
class Example:
    """Example prediction: a test document with gold and predicted labels.

    Args:
        document: Id of the document.
        text: Beginning of the text.
        metadata: Metadata instances by field, by name and id.
        gold: Gold labels.
        predicted: Predicted labels as (label, probability), best first.
        names: Names of labels, where the data set has them.
    """

    document: str
    text: str
    metadata: dict[str, list[str]]
    gold: list[str]
    predicted: list[tuple[str, float]]
    names: dict[str, str]

    def show(self, label: str) -> str:
        """Label by name and id."""
        return show_name(label, self.names.get(label))


def show_examples(run: Run) -> list[Example]:
    """The best 5 labels of 3 labelled test documents, drawn by the run's seed.

    Empty where the data set keeps no raw texts.
    """
    records = draw_records(run, 3)
    if not records:
        return []
    model = run.config.model  # this run was started by whoever named them
    device = run.config.train.accelerator
    classifier = load(run.folder, device, encoder=model.encoder, head=model.head)
    results = classifier.predict(records, top_k=5)
    names = find_names(run.dataset, LABEL, run.dataset.names(LABEL))
    metadata = find_metadata_names(run.dataset, map(list_metadata, records))
    return [_make_example(*pair, names, metadata) for pair in zip(records, results, strict=True)]


def draw_records(run: Run, number: int, split: Split = "test") -> list[dict[str, Any]]:
    """Labelled documents of a split as records, drawn by the run's seed.

    Empty where the data set keeps no raw texts.
    """
    if not run.dataset.keeps_texts:
        return []
    documents = run.dataset.documents(MASKS[split])
    generator = torch.Generator().manual_seed(run.config.seed)
    drawn = documents[torch.randperm(len(documents), generator=generator)[: 10 * number]]
    records = run.dataset.as_json(drawn.tolist())
    return [record for record in records if record["text"] and record["label"]][:number]


def list_files(folder: Path) -> dict[str, str]:
    """Existing files of a run by path, with what they hold."""
    return {
        str(folder / name): content
        for name, content in CONTENT.items()
        if content and (folder / name).exists()
    }


def next_commands(run: Run) -> list[str]:
    """Suggested commands after a run, three; they open its data set as the run did.

    Prediction names the run's own code. The model to compare with, the linear baseline or a
    network, gets the settings of the data that are not the defaults, and the ablations that make
    sense for it.
    """
    source = [run.config.dataset, *_list_dataset_options(run)]
    code = {"encoder": run.config.model.encoder, "head": run.config.model.head}
    own = [f"--{kind}={name}" for kind, name in code.items() if name and is_own_code(name)]
    other = "tfidf_linear" if run.model.is_neural else "match"
    commands = [
        ["predict", str(run.shown), "--input", "documents.jsonl", "--top-k", "5", *own],
        ["build", *source],
        ["run", *source, "--encoder", other, *_list_data_settings(run.config)],
    ]
    return [format_command(*words) for words in commands]


def _list_data_settings(config: Config) -> list[str]:
    """Options of what a run sees of its data set, but for those with which it is opened."""
    kept = [name for name in config.ablation if name not in (NO_HIERARCHY, NO_PRETRAIN)]
    opened = {"options", *DataConfig().dataset_options()}
    given = config.data.model_dump(mode="json", exclude_defaults=True, exclude=opened)
    fields = [name for name in given.pop("drop_fields", []) if f"no-{name}" not in kept]
    if fields and NO_METADATA not in kept:
        given["drop_fields"] = fields
    words = [f"--set=data.{key}={json.dumps(v, ensure_ascii=False)}" for key, v in given.items()]
    return [*words, *(f"--ablation={name}" for name in kept)]


def _list_dataset_options(run: Run) -> list[str]:
    """Options of the command line with which the run's data set is opened again."""
    data = run.config.data
    given = [
        f"--set=data.{'options.' if name in data.options else ''}{name}={json.dumps(value)}"
        for name, value in data.dataset_options().items()
        if value is not None
    ]
    root = Path(run.dataset.root)
    return given if root == default_root() else [*given, f"--root={root}"]


def _make_example(
    record: dict[str, Any],
    result: dict[str, Any],
    names: dict[str, str],
    metadata_names: dict[str, dict[str, str]],
) -> Example:
    text = " ".join(record["text"].split())
    metadata = {
        field: [show_name(one, metadata_names.get(field, {}).get(one)) for one in values]
        for field, values in list_metadata(record).items()
    }
    return Example(
        document=record["paper"],
        text=text if len(text) <= 120 else text[:117] + "...",
        metadata=metadata,
        gold=record["label"],
        predicted=[(label["id"], label["probability"]) for label in result["labels"]],
        names=names,
    )
