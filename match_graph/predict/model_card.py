"""Model card of a shared run, README.md: front matter as the hub reads it, then for people.

Source: https://huggingface.co/docs/hub/model-cards.
"""

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from match_graph.config import Config
from match_graph.datasets import DATASETS
from match_graph.errors import ConfigError
from match_graph.io.escape import escape_markdown
from match_graph.io.files import has_file, reading
from match_graph.io.run_folder import (
    DOCUMENT_NAMES,
    ENCODER_FILES,
    FEATURES,
    FITTED,
    GRAPH,
    PER_DOCUMENT,
    THRESHOLDS,
    TOKENS,
)
from match_graph.io.yaml import dump_yaml
from match_graph.own_code import is_own_code
from match_graph.runs.folder import flatten
from match_graph.runs.readers import read_blend, read_metrics, read_record
from match_graph.runs.record import list_twins
from match_graph.runs.vocabulary import Vocabulary, read_hierarchy, read_vocabulary
from match_graph.training.models import find_model
from match_graph.typing import DOCUMENT

CARD = "README.md"
#: Measures that the hub lists.
_LISTED = ("P@1", "P@3", "P@5", "NDCG@3", "NDCG@5")
_POLICY = (
    "P@k divides by k, NDCG@k by the best that min(k, gold labels) allow. A document without gold "
    "labels counts as 0. Thresholds, calibration, the network's share in a blend and the best "
    "epoch were chosen on valid, so that its measures are optimistic."
)


def check_license(name: str | None) -> None:
    """Checks that a licence is an identifier of the form that the hub uses.

    Raises:
        ConfigError: It is none.
    """
    if name is not None and not re.fullmatch(r"[a-z0-9][a-z0-9.+-]{0,63}", name):
        raise ConfigError(
            f"A licence must be an identifier as the hub writes it, found {name!r:.100}; see "
            f"https://huggingface.co/docs/hub/repositories-licenses, such as 'mit' or 'cc-by-4.0'."
        )


def render_card(folder: Path, config: Config, terms: str | None, files: Collection[str]) -> str:
    """Model card of a run, Markdown with YAML front matter.

    Args:
        folder: Run folder, evaluated.
        config: Settings as they are shared.
        terms: Licence of the weights; None is not known.
        files: Names at the top of the shared folder.

    Raises:
        CheckpointError: A file is missing or broken.
    """
    metrics, vocabulary, record = read_metrics(folder), read_vocabulary(folder), read_record(folder)
    front = dump_yaml(_describe(config, terms, metrics), sort_keys=False)
    encoder = config.model.encoder
    parts = [
        f"---\n{front.rstrip()}\n---",
        f"# {escape_markdown(_name_model(config))}",
        f"Documents with metadata into {len(vocabulary.labels):,} labels: the encoder "
        f"{_code(encoder)} of match-graph, {_tell_blend(folder)}trained on "
        f"{_code(config.dataset)}.",
        _explain_loading(config),
        _describe_data(folder, config, vocabulary, record),
        _list_measures(metrics, list_twins(record)),
        _list_settings(config),
        _list_content(folder, vocabulary, files),
        _state_limits(config, terms),
    ]
    return "\n\n".join(parts) + "\n"


def _tell_blend(folder: Path) -> str:
    blend = read_blend(folder)
    if blend is None:
        return ""
    return f"blended with a linear classifier (its share is {1 - blend.share:.0%}), "


def _name_model(config: Config) -> str:
    return f"{config.model.encoder} on {config.dataset}"


def _describe(
    config: Config, terms: str | None, metrics: Mapping[str, Mapping[str, float]]
) -> dict[str, Any]:
    """Front matter."""
    results = [
        {
            "task": {"type": "text-classification", "name": "multi-label text classification"},
            "dataset": {"type": config.dataset, "name": config.dataset, "split": split},
            "metrics": [
                {"type": name, "name": name, "value": round(metrics[split][name], 4)}
                for name in _LISTED
                if name in metrics[split]
            ],
        }
        for split in ("test", "valid")
        if split in metrics
    ]
    return {
        "license": terms or "unknown",
        "library_name": "match-graph",
        "pipeline_tag": "text-classification",
        "tags": ["match-graph", "multi-label-classification", "graph-neural-networks", "pytorch"],
        "metrics": ["precision", "ndcg"],
        "model-index": [{"name": _name_model(config), "results": results}],
    }


def _explain_loading(config: Config) -> str:
    own = [
        f'{kind}="{name}"'
        for kind, name in (("encoder", config.model.encoder), ("head", config.model.head))
        if is_own_code(name)
    ]
    given = "".join(f", {one}" for one in own)
    asked = ""
    if own:
        asked = (
            f"\n\nThe code of {' and '.join(own)} is not in this folder and is never imported from "
            f"it: name your own copy, with its path if it is a file."
        )
    return (
        "## Use\n\n```python\nimport match_graph as mg\n\n"
        f'classifier = mg.load("FOLDER"{given})  # this folder\n'
        f'classifier = mg.Classifier.from_pretrained("OWNER/NAME"{given})  # from the hub\n'
        'for found in classifier.predict([{"text": "a text"}], top_k=5):\n'
        '    print(found["labels"])\n```'
        f"{asked}"
    )


def _describe_data(
    folder: Path, config: Config, vocabulary: Vocabulary, record: Mapping[str, Any]
) -> str:
    cls = DATASETS.get(config.dataset)
    licence = "not known to match-graph: ask its makers"
    if cls is not None and cls.card is not None:
        licence = cls.card.licence
    rows = {"name": _code(config.dataset), "licence": licence}
    rows["training documents"] = f"{record['num_train_documents']:,}"
    rows |= {f"{name} documents": f"{n:,}" for name, n in _count_documents(folder).items()}
    rows["labels"] = f"{len(vocabulary.labels):,}"
    edges = read_hierarchy(folder, len(vocabulary.labels)).edge_index.size(1)
    rows["edges of the label hierarchy"] = f"{edges:,}"
    rows |= {f"kept tokens: {name}": f"{len(rows):,}" for name, rows in vocabulary.rows.items()}
    rows["checksum"] = _code(record["data_checksum"])
    return f"## Data\n\n{_table(('', ''), rows.items())}"


def _count_documents(folder: Path) -> dict[str, int]:
    """Number of evaluated documents by split."""
    path = folder / PER_DOCUMENT
    if not has_file(path):
        return {}
    with reading(path, f"'{path}' must name splits", "write it again with `match-graph evaluate`"):
        counts = pd.read_parquet(path, columns=["split"])["split"].value_counts()
    return {name: int(counts[name]) for name in ("valid", "test") if name in counts}


def _list_measures(metrics: Mapping[str, Mapping[str, float]], twins: list[str]) -> str:
    splits = [name for name in ("valid", "test") if name in metrics]
    names = dict.fromkeys(name for split in splits for name in metrics[split] if "/" not in name)
    rows = [
        (name, *(f"{metrics[s][name]:.4f}" if name in metrics[s] else "" for s in splits))
        for name in names
    ]
    about = " ".join([_POLICY, *twins])
    return f"## Measures\n\n{about}\n\n{_table(('measure', *splits), rows)}"


def find_changes(config: Config) -> dict[str, tuple[Any, Any]]:
    """Settings that are not the default, by dotted key: (value, default).

    Settings of an encoder or head of one's own, which is not imported, have no default; nor do
    options of a data set.
    """
    default = Config().change("model", encoder=config.model.encoder, head=config.model.head)
    if not (is_own_code(config.model.encoder) or is_own_code(config.model.head)):
        default = default.model_copy(update={"model": find_model(default).complete()})
    known = dict(flatten(default.model_dump(mode="json")))
    there = dict(flatten(config.model_dump(mode="json")))
    known |= {"model.encoder": Config().model.encoder, "model.head": Config().model.head}
    return {key: (value, known.get(key)) for key, value in there.items() if value != known.get(key)}


def _list_settings(config: Config) -> str:
    rows = [
        (_code(key), _code(value), _code(default))
        for key, (value, default) in find_changes(config).items()
    ]
    return (
        "## Settings\n\nThose that are not the default; where this is none, the run derived them "
        f"from its data. All stand in `config.yaml`.\n\n{_table(('key', 'value', 'default'), rows)}"
    )


def _list_content(folder: Path, vocabulary: Vocabulary, files: Collection[str]) -> str:
    fields = ", ".join(vocabulary.settings.fields) or "none"
    lines = [
        f"`{TOKENS}/`: names of labels, kept words and kept metadata ({fields}), such as of people "
        f"where the data name them."
    ]
    if ENCODER_FILES in files:
        lines.append(f"`{ENCODER_FILES}/`: what the encoder keeps besides its weights.")
    if FITTED in files:
        lines.append(f"`{FITTED}/`: what the baseline learned.")
    if FEATURES in files:
        known = f", those of documents by their ids (`{DOCUMENT_NAMES}`)"
        is_named = has_file(folder / DOCUMENT_NAMES)
        made = (
            "; what makes them of a text: words of several training texts, and vectors of training "
            "documents without names"
            if has_file(folder / FEATURES / f"{DOCUMENT}.safetensors")
            else ""
        )
        lines.append(f"`{FEATURES}/`: vectors of nodes{known if is_named else ''}{made}.")
    if GRAPH in files:
        lines.append(_describe_graph(folder))
    else:
        lines.append("No text of a document is here.")
    items = "\n".join(f"- {line}" for line in lines)
    return f"## What of the data is in this folder\n\n{items}"


def _describe_graph(folder: Path) -> str:
    path = folder / GRAPH / f"{DOCUMENT}.parquet"
    with reading(path, f"'{path}' must name documents", "train the run again"):
        number = len(pd.read_parquet(path, columns=["id"]))
    return (
        f"`{GRAPH}/`: the known graph, by which new documents reach neighbours: ids of {number:,} "
        f"documents, their metadata, citations and times, and **their words in order, from which "
        f"the texts can be read again**; no label of a document."
    )


def _state_limits(config: Config, terms: str | None) -> str:
    stated = f"`{terms}`" if terms else "not stated; ask who shared it"
    lines = [
        "Meant for suggesting labels of documents like those it was trained on: same subject, "
        "language and kind of metadata. Others get labels too, with no sign of doubt but their "
        "probabilities.",
        "It knows no label that the data did not have; rare labels are found seldom.",
        f"Labels at their own thresholds (`threshold=True`) need `{THRESHOLDS}`; probabilities are "
        f"as good as the calibration on valid.",
        "It repeats what is one-sided in the data: names of people, journals and places are "
        "evidence to it where they are metadata.",
        "Not for decisions about people.",
    ]
    if DOCUMENT in config.data.features and config.data.features[DOCUMENT].path is not None:
        lines.insert(1, "A new document must bring its vector `x`: none is made from its text.")
    items = "\n".join(f"- {line}" for line in lines)
    return f"## Intended use and limits\n\n{items}\n\nLicence of the weights: {stated}."


def _table(head: Collection[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(value: object) -> str:
    """A value as code in one cell of a table."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return "none" if value is None else f"`{text}`" if text else '`""`'
