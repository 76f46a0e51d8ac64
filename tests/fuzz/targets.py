"""Kinds of input for the fuzzer: how a whole one is made, what is changed of it, what reads it."""

import json
import os
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from safetensors.torch import save_file

from match_graph.benchmark import Experiment, load_experiment, run_benchmark
from match_graph.benchmark.plan import make_plan
from match_graph.cli import main
from match_graph.config import load_config
from match_graph.datasets import MatchFolder, Synthetic
from match_graph.features import open_features
from match_graph.io import Reporter
from match_graph.runs import start_run
from match_graph.runs.configure import load_preset_config
from match_graph.speed.formats import WRITERS, take_sample
from match_graph.testing import toy_documents, write_match_folder

#: What a worker imports before it forks, where it is there.
PRELOAD = ("omikuji", "matplotlib.pyplot", "match_graph.export", "sklearn.svm", "torch._dynamo")
#: Settings of a run of a second.
SMALL = (
    "pretrain.samples=2000", "pretrain.channels=16", "model.channels=16", "train.batch_size=16",
    "train.accelerator=cpu", "train.precision=32-true", "train.epochs=1",
    "model.encoder_config={num_layers: 1, num_cls: 1, position_channels: 4}",
)  # fmt: skip
_OPTIONS = [part for setting in SMALL for part in ("--set", setting)]
_CUSTOM = "columns: {id: paper, text: text, label: label, author: author}, fields: [author]"


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Args:
        make: Writes a whole one into a folder.
        files: Those that are changed, as patterns below the folder.
        arguments: Of the call, in a copy of the folder; ``@whole`` stands for the folder itself.
        call: One of `CALLS`.
        is_verified: Whether every change of a byte must be refused.
        relisted: A folder whose manifest is made anew after the change, as whoever crafts one would
            do; empty for none.
        is_stream: Whether a pipe in place of the file is waited for, as it should be.
    """

    make: Callable[[Path], object]
    files: Sequence[str]
    arguments: Sequence[str]
    call: str = "main"
    is_verified: bool = False
    relisted: str = ""
    is_stream: bool = False


def _main(arguments: list[str]) -> None:
    os.environ["PATH"] = "/nonexistent"  # nothing is fetched, no other program is started
    sys.argv = ["match-graph", *arguments]
    main()


def _within_main(work: Callable[[list[str]], object]) -> Callable[[list[str]], None]:
    """A call whose errors become what the command line makes of them."""

    def call(arguments: list[str]) -> None:
        sys.modules[main.__module__].app = lambda: work(arguments)  # type: ignore[attr-defined]
        _main([])

    return call


def _open_settings(arguments: list[str]) -> None:
    """Resolves a configuration and makes its run folder, as `run` does before it works."""
    dataset, *settings = arguments
    path = Path("settings.yaml")
    config = load_preset_config(path if path.exists() or path.is_symlink() else None, settings)
    start_run(dataset, config, Path("run"), Path("root"), False, Reporter(quiet=True))


def _plan_experiment(arguments: list[str]) -> None:
    """Reads an experiment and plans its cells, as `benchmark` does before it works."""
    make_plan(load_experiment(Path(arguments[0])), Path("root"), Reporter(quiet=True))


CALLS: dict[str, Callable[[list[str]], None]] = {
    "main": _main,
    "settings": _within_main(_open_settings),
    "experiment": _within_main(_plan_experiment),
}


def _write_raw(name: str, place: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        raw = folder / place
        raw.mkdir(parents=True)
        planted = Synthetic(
            num_documents=200, num_labels=10, num_layers=3, num_words=100, words_per_document=12,
            root=folder.parent / "planted",
        )  # fmt: skip
        WRITERS[name](take_sample(planted, 40), raw)

    return make


def _write_archive(folder: Path) -> None:
    _write_raw("maple json", "beside")(folder)
    archive = folder / "root/raw/maple/json/MAPLE.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted((folder / "beside").iterdir()):
            file.write(path, f"MAPLE/Art/{path.name}")
            path.unlink()


def _write_index(folder: Path) -> None:
    raw = folder / "root/raw/debtags"
    raw.mkdir(parents=True)
    packages, texts = [], []
    for number in range(30):
        packages.append(
            f"Package: moss{number}\nSource: moss{number}\nVersion: 1.0\n"
            f"Maintainer: Gardener {number % 3} <a@example.org>\n"
            f"Depends: moss{number // 2} (>= 1.0), stone | moss{number // 3}\nSection: garden\n"
            f"Description-md5: m{number}\nTag: role::{{program,app-data}},\n devel::lang:c\n"
        )
        texts.append(
            f"Package: moss{number}\nDescription-md5: m{number}\nDescription-en: grows\n Green.\n"
        )
    (raw / "Packages").write_text("\n".join(packages), encoding="utf-8")
    (raw / "Translation-en").write_text("\n".join(texts), encoding="utf-8")


def _write_biotools(folder: Path) -> None:
    raw = folder / "root/raw/biotools"
    raw.mkdir(parents=True)
    edam, owl = "http://edamontology.org/", "http://www.w3.org/2002/07/owl#"
    for number in range(30):
        record = {
            "biotoolsID": f"tool{number}",
            "name": f"Tool {number}",
            "description": "It counts.",
            "topic": [{"uri": f"{edam}topic_000{number % 3}"}],
            "function": [{"operation": [{"uri": f"{edam}topic_0003"}]}],
            "publication": [
                {"doi": f"10.1/{number}", "metadata": {"journal": "J", "authors": [{"name": "A"}]}}
            ],
            "relation": [{"biotoolsID": f"tool{number // 2}"}],
        }
        path = raw / f"tool{number}.biotools.json"
        path.write_text(json.dumps(record, indent=1), encoding="utf-8")
    classes = [
        f'<owl:Class rdf:about="{edam}topic_000{number}"><rdfs:label>Topic</rdfs:label>'
        + f'<rdfs:subClassOf rdf:resource="{edam}topic_000{number - 1}"/>' * (number > 0)
        + "</owl:Class>\n"
        for number in range(4)
    ]
    (raw / "EDAM_1.25.owl").write_text(
        f'<?xml version="1.0"?>\n<rdf:RDF xmlns:owl="{owl}"\n'
        'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"\n'
        f'xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#">\n{"".join(classes)}</rdf:RDF>\n',
        encoding="utf-8",
    )


def _write_cacm(folder: Path) -> None:
    raw = folder / "root/raw/cacm"
    raw.mkdir(parents=True)
    records = [
        f".I {number}\n.T\nArticle {number}\n.W\nOn sets\nand lists.\n.B\nCACM May, 1969\n"
        f".A\nLi, A.\n.K\nsets, lists\n.C\n5.1{number % 3} 4.{number % 2}\n.N\nCA\n.X\n"
        f"{number // 2}\t5\t{number}\n{number}\t6\t{number}\n"
        for number in range(30)
    ]
    (raw / "cacm.all").write_text("".join(records), encoding="latin-1")


def _write_request(folder: Path) -> None:
    _make_run("match")(folder)
    _write_request_alone(folder)


def _write_settings(folder: Path) -> None:
    write_match_folder(folder / "toy")
    keys = load_preset_config(None, [*SMALL]).model_dump(mode="json")
    text = yaml.safe_dump(keys, sort_keys=False)
    (folder / "settings.yaml").write_text(text, encoding="utf-8")


def _write_experiment(folder: Path) -> None:
    toy = write_match_folder(folder / "toy")
    experiment = Experiment(
        name="trial", question="Is it better?", datasets=[str(toy)], runs=2,
        measures=["P@1", "NDCG@5"], reference="prior, max_words=10",
        rows=[
            {"name": "prior", "encoder": "prior"},
            {"name": "linear", "encoder": "tfidf_linear", "settings": {"data.min_count": 1}},
            {"name": "MATCH {field}", "ablation": ["no-{field}"], "settings": {"train.epochs": 1}},
        ],
        expected={"toy": {"linear, max_words=10": {"P@1": [0.5, 0.1]}}},
        grid={"data.max_words": [10, 20]},
    )  # fmt: skip
    content = experiment.model_dump(mode="json", exclude_defaults=True)
    text = yaml.safe_dump(content, sort_keys=False)
    (folder / "trial.yaml").write_text(text, encoding="utf-8")


def _write_features(folder: Path) -> None:
    toy = MatchFolder(write_match_folder(folder / "toy"), root=folder.parent / "planted")
    (folder / "features").mkdir()
    np.save(folder / "features/document.npy", np.arange(24, dtype=np.float16).reshape(12, 2))
    for node_type in ("document", "author"):
        names = "".join(f"{name}\n" for name in toy.names(node_type))
        (folder / f"features/{node_type}.txt").write_text(names, encoding="utf-8")
    authors = torch.arange(2.0 * len(toy.names("author"))).view(-1, 2)
    save_file({"x": authors}, folder / "features/author.safetensors")
    labels = pd.DataFrame({"id": toy.names("label"), "x": [[1.0, 2.0]] * toy.num_labels})
    labels.to_parquet(folder / "features/label.parquet")


def _keep_features(folder: Path) -> None:
    _write_features(folder)
    toy = MatchFolder(folder / "toy", root=folder / "root")
    sources = load_config(None, [*_FEATURES[1::2]]).data.features
    for node_type, source in sources.items():
        paths = {"path": str(folder / str(source.path))}
        paths |= {} if source.ids is None else {"ids": str(folder / source.ids)}
        open_features(source.model_copy(update=paths), toy, node_type, folder / "root")


def _make_results(folder: Path) -> None:
    toy = write_match_folder(folder / "toy")
    small = Experiment(
        name="trial", question="Is it better?", datasets=[str(toy)], runs=2,
        measures=["P@1", "NDCG@5"], reference="prior",
        rows=[{"name": "prior", "encoder": "prior"}, {"name": "A", "encoder": "tfidf_linear"}],
        expected={"toy": {"prior": {"P@1": [0.5, 0.1]}}},
    )  # fmt: skip
    run_benchmark(small, folder / "results", folder / "root", reporter=Reporter(quiet=True))


def _make_run(encoder: str, *settings: str, finish: bool = True) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        toy = write_match_folder(folder / "toy")
        chosen = [f"model.encoder={encoder}", *settings]
        if encoder not in ("match",):
            chosen.append("model.encoder_config={}")
        config = load_preset_config(None, [*SMALL, *chosen])
        run = start_run(str(toy), config, folder / "run", folder / "root", False, Reporter(True))
        if finish:
            run.train()
            run.evaluate()
        else:
            _train_until_checkpoint(run)

    return make


def _train_until_checkpoint(run: Any) -> None:
    """Trains one epoch of two, as if it were killed then."""
    line = run.reporter.line

    def stop(text: str) -> None:
        line(text)
        if "epoch 1 of 2" in text:
            raise KeyboardInterrupt

    run.reporter.line = stop
    try:
        run.train()
    except KeyboardInterrupt:
        return
    raise RuntimeError("the training of the fuzzer ended before it was stopped")


_FEATURES = (
    "--set", "data.features.document={path: features/document.npy, ids: features/document.txt}",
    "--set", "data.features.author={path: features/author.safetensors, ids: features/author.txt}",
    "--set", "data.features.label=features/label.parquet",
)  # fmt: skip
_EXPORT = ("export", "toy", "--to", "pyg", "--out", "out", "--quiet", "--root", "root", *_FEATURES)
_BUILD = ("build", "--quiet", "--root", "root")
_PREDICT = ("predict", "run", "--input", "request.jsonl", "--output", "out.jsonl", "--quiet")
_RUN_FILES = ("run/*", "run/*/*")
_BUILT_FILES = (
    "root/built/*/*",
    "root/built/*/nodes/*",
    "root/built/*/nodes/*/*",
    "root/built/*/edges/*/*",
    "root/built/*/edges/*/back/*",
    "root/built/*/targets/*",
)

KINDS: dict[str, Kind] = {
    "match folder": Kind(lambda f: write_match_folder(f / "toy"), ["toy/*"], [*_BUILD, "toy"]),
    "custom json": Kind(
        _write_raw("custom json", "raw"), ["raw/*"],
        [*_BUILD, "custom", "--set", f"data.options={{path: raw/custom.jsonl, {_CUSTOM}}}"],
    ),
    "custom csv": Kind(
        _write_raw("custom csv", "raw"), ["raw/*"],
        [*_BUILD, "custom", "--set", f"data.options={{path: raw/custom.csv, {_CUSTOM}}}"],
    ),
    "openalex": Kind(
        _write_raw("openalex", "root/raw/openalex"), ["root/raw/openalex/*"],
        [*_BUILD, "openalex", "--set", "data.options={labels: concepts}"],
    ),
    "maple json": Kind(
        _write_raw("maple json", "root/raw/maple/json/Art"), ["root/raw/maple/json/Art/*"],
        [*_BUILD, "maple"],
    ),
    "maple graph": Kind(
        _write_raw("maple graph", "root/raw/maple/graph/Art"), ["root/raw/maple/graph/Art/*"],
        [*_BUILD, "maple", "--set", "data.options={release: graph}"],
    ),
    "archive": Kind(_write_archive, ["root/raw/maple/json/MAPLE.zip"], [*_BUILD, "maple"]),
    "pubmed-xml": Kind(
        _write_raw("pubmed-xml", "root/raw/pubmed-xml"), ["root/raw/pubmed-xml/*"],
        [*_BUILD, "pubmed-xml"],
    ),
    "release": Kind(
        _write_raw("mag-cs", "root/raw/MAG"), ["root/raw/MAG/*"], [*_BUILD, "mag-cs"]
    ),
    "package index": Kind(_write_index, ["root/raw/debtags/*"], [*_BUILD, "debtags"]),
    "biotools": Kind(_write_biotools, ["root/raw/biotools/*"], [*_BUILD, "biotools"]),
    "cacm": Kind(_write_cacm, ["root/raw/cacm/*"], [*_BUILD, "cacm"]),
    "features": Kind(_write_features, ["features/*"], _EXPORT),
    "kept features": Kind(_keep_features, ["root/features/*/*"], _EXPORT, is_verified=True),
    "request": Kind(_write_request, ["request.jsonl"], _PREDICT, is_stream=True),
    "settings": Kind(_write_settings, ["settings.yaml"], ["toy"], call="settings"),
    "experiment": Kind(_write_experiment, ["trial.yaml"], ["trial.yaml"], call="experiment"),
    "results": Kind(
        _make_results, ["results/results.json"], ["report", "results", "--quiet", "--root", "root"]
    ),
    "run, predict": Kind(_write_request, _RUN_FILES, _PREDICT),
    "run, evaluate": Kind(
        _make_run("match"), _RUN_FILES, ["evaluate", "run", "--root", "root", "--quiet"]
    ),
    "run, report": Kind(
        _make_run("match"), _RUN_FILES, ["report", "run", "--root", "root", "--quiet"]
    ),
    "weights": Kind(_write_request, ["run/model.safetensors"], _PREDICT, is_verified=True),
    "TF-IDF": Kind(
        lambda f: (_make_run("tfidf_linear")(f), _write_request_alone(f)),
        ["run/baseline/*"], _PREDICT, is_verified=True,
    ),
    "Omikuji": Kind(
        lambda f: (_make_run("omikuji")(f), _write_request_alone(f)),
        ["run/baseline/*", "run/baseline/*/*"], _PREDICT, is_verified=True,
    ),
    "known graph": Kind(
        lambda f: (_make_run("rgcn")(f), _write_request_alone(f)),
        ["run/graph/*"], _PREDICT, is_verified=True,
    ),
    "build": Kind(
        _make_run("match"), _BUILT_FILES,
        [*_BUILD, "@whole/toy", "--verify"], is_verified=True,
    ),
    "crafted run, predict": Kind(_write_request, _RUN_FILES, _PREDICT, relisted="run"),
    "crafted run, evaluate": Kind(
        _make_run("match"), _RUN_FILES, ["evaluate", "run", "--root", "root", "--quiet"],
        relisted="run",
    ),
    "crafted run, report": Kind(
        _make_run("match"), _RUN_FILES, ["report", "run", "--root", "root", "--quiet"],
        relisted="run",
    ),
    "crafted TF-IDF": Kind(
        lambda f: (_make_run("tfidf_linear")(f), _write_request_alone(f)),
        ["run/baseline/*"], _PREDICT, relisted="run",
    ),
    "crafted known graph": Kind(
        lambda f: (_make_run("rgcn")(f), _write_request_alone(f)),
        ["run/graph/*"], _PREDICT, relisted="run",
    ),
    "crafted build": Kind(
        _make_run("match"), _BUILT_FILES,
        ["evaluate", "run", "--root", "root", "--quiet"], relisted="root/built/*",
    ),
    "crafted checkpoint": Kind(
        _make_run("match", "train.epochs=2", finish=False), ["run/checkpoint/*"],
        ["train", "@whole/toy", "--out", "run", "--root", "root", "--quiet", *_OPTIONS,
         "--set", "train.epochs=2"], relisted="run",
    ),
    "checkpoint": Kind(
        _make_run("match", "train.epochs=2", finish=False), ["run/checkpoint/*"],
        ["train", "@whole/toy", "--out", "run", "--root", "root", "--quiet", *_OPTIONS,
         "--set", "train.epochs=2"],
    ),
}  # fmt: skip


def _write_request_alone(folder: Path) -> None:
    lines = [json.dumps(document) for document in toy_documents()["test"]]
    (folder / "request.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
