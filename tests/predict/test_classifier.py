"""Predictions of new documents equal the evaluation of the same documents."""

import json
import os
import shutil
from collections.abc import Iterator
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from match_graph import Run, load, rank_labels, start_run
from match_graph.config import TrainConfig, load_config
from match_graph.corpus import WORD_PATTERN
from match_graph.datasets import CorpusDataset, from_frames
from match_graph.errors import CheckpointError, ConfigError, CorpusError
from match_graph.io.files import read_tensors, remove_files, write_tensors
from match_graph.io.manifest import read_manifest, write_manifest
from match_graph.io.run_folder import METRICS, MODEL
from match_graph.predict import Classifier
from match_graph.predict import classifier as classifier_module
from match_graph.predict.classifier import choose_labels
from match_graph.predict.evidence import DocumentEvidence
from match_graph.runs.vocabulary import read_document
from match_graph.testing import toy_documents, write_match_folder
from match_graph.typing import MASKS


@pytest.fixture(scope="module")
def classifier(trained_run: Run) -> Classifier:
    return load(trained_run.folder, device="cpu")


@pytest.fixture
def copied(trained_run: Run, tmp_path: Path) -> Path:
    """A copy of the run folder that a test may damage."""
    return Path(shutil.copytree(trained_run.folder, tmp_path / "run"))


def make_records(dataset: CorpusDataset, split: str) -> list[dict[str, Any]]:
    """The raw records of a split, with repeated authors and the fields in another order."""
    documents = dataset.table("document")
    records = [
        {"paper": row.id, "text": row.text, "label": "not read"} for row in documents.itertuples()
    ]
    data = dataset[0]
    for field in ("reference", "author", "venue"):
        names = dataset.names(field).tolist()
        for document, instance in data["document", "has", field].edge_index.t().tolist():
            records[document].setdefault(field, []).append(names[instance])
    for record in records:
        record["author"] = [name for name in record.get("author", []) for _ in range(2)]
    return [records[row] for row in dataset.documents(MASKS[split]).tolist()]


@torch.no_grad()
def evaluated_logits(run: Run, split: str) -> torch.Tensor:
    """Logits of evaluation from the graph, [documents of the split, L]."""
    model = run.finish_model(run.load_model()).eval()
    rows, logits = [], []
    for batch in run.loader(split):
        rows.append(batch.document)
        logits.append(model(batch))
    order = torch.argsort(torch.cat(rows))
    return torch.cat(logits)[order]


@pytest.mark.gpu
def test_Classifier_scores_on_a_gpu_as_on_the_cpu(trained_run: Run, classifier: Classifier) -> None:
    """Network, linear classifier, blend and calibration score in float32 as on the CPU."""
    records = make_records(trained_run.dataset, "test")
    found = []
    for one in (classifier, load(trained_run.folder, device="cuda")):
        read = [read_document(record, one._fields, "here") for record in records]
        batches = sorted(one.score(read), key=lambda batch: int(batch[0][0]))
        found.append(torch.cat([logits for _, logits in batches]))
        assert found[-1].isfinite().all()
    torch.testing.assert_close(found[1], found[0], atol=1e-3, rtol=1e-3)


def test_Classifier_same_logits_as_through_the_graph(
    trained_run: Run, classifier: Classifier
) -> None:
    """Logits equal those through the graph, with unseen metadata and budgets that bind."""
    for split in ("valid", "test", "train"):
        records = make_records(trained_run.dataset, split)
        read = [read_document(record, classifier._fields, "here") for record in records]
        expected = evaluated_logits(trained_run, split)
        found = torch.empty_like(expected)
        for documents, logits in classifier.score(read, batch_size=32):
            found[documents] = logits
        assert torch.allclose(found, expected, atol=1e-4)
    settings = trained_run.config.data
    fields = classifier._fields
    sizes = [sum(len(set(record.get(name, []))) for name in fields) for record in records]
    assert max(sizes) > settings.max_metadata
    assert max(len(record["text"].split()) for record in records) > settings.max_words
    assert not all(record["text"] for record in records)
    kept = set(classifier.vocabulary.rows["author"])
    assert any(set(record["author"]) - kept for record in records)


def test_Classifier_predictions_are_ranking_evaluation_measures(
    trained_run: Run, classifier: Classifier
) -> None:
    """Predictions rank as evaluation does and give P@1 of metrics.json, for any batch size."""
    records = make_records(trained_run.dataset, "test")
    logits = evaluated_logits(trained_run, "test")
    ids = trained_run.dataset.names("label").tolist()
    rank = trained_run.dataset.hierarchy.rank
    ranked = [[ids[label] for label in row] for row in rank_labels(logits, 5, rank).tolist()]
    for size in (3, 256):
        results = classifier.predict(records, batch_size=size)
        assert [result["paper"] for result in results] == [record["paper"] for record in records]
        assert [[label["id"] for label in result["labels"]] for result in results] == ranked
    probabilities = [[label["probability"] for label in result["labels"]] for result in results]
    assert probabilities == [sorted(row, reverse=True) for row in probabilities]
    expected = torch.sigmoid(logits).topk(5).values
    assert torch.allclose(torch.tensor(probabilities), expected, atol=1e-4)
    documents = trained_run.dataset.documents(MASKS["test"])
    ptr, index = trained_run.dataset.targets.select(documents)
    gold = [{ids[label] for label in part.tolist()} for part in index.tensor_split(ptr[1:-1])]
    first = [row[0] in labels for row, labels in zip(ranked, gold, strict=True)]
    metrics = json.loads((trained_run.folder / METRICS).read_text())
    assert metrics["test"]["P@1"] == pytest.approx(sum(first) / len(first))


def test_Classifier_predicted_documents_are_new_to_the_model(
    classifier: Classifier, trained_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder that looks up by `document` gets -1, never the row of the request; also in
    explanations, and of documents that training had. Evaluation gives the rows of the graph."""
    seen: list[torch.Tensor] = []
    encoder = classifier.network.encoder
    original = encoder.forward
    monkeypatch.setattr(
        encoder, "forward", lambda batch: seen.append(batch.document) or original(batch)
    )
    records = make_records(trained_run.dataset, "train")[:9]
    found = classifier.predict(records, batch_size=4)
    assert [one["paper"] for one in found] == [record["paper"] for record in records]
    DocumentEvidence(classifier, read_document(records[0], classifier._fields, "here")).score()
    assert len(torch.cat(seen)) > 9
    assert bool((torch.cat(seen) == -1).all())
    rows = torch.cat([batch.document for batch in trained_run.loader("valid")])
    assert torch.equal(rows.sort().values, trained_run.dataset.documents(MASKS["valid"]))


def test_Classifier_it_streams(classifier: Classifier) -> None:
    """Results of an endless generator come in order, while one more buffer is read ahead."""
    read = []

    def endless() -> Iterator[dict[str, Any]]:
        while True:
            read.append(len(read))
            yield {"paper": len(read), "text": "w1 " * (len(read) % 7)}

    results = list(islice(classifier.predict(endless(), batch_size=4), 50))
    assert [result["paper"] for result in results] == [str(n) for n in range(1, 51)]
    assert len(read) == 96  # the two buffers of eight batches that were given out, and the next


def test_Classifier_predict_of_a_list_is_a_list(classifier: Classifier) -> None:
    """A list or tuple gives a list, an iterator an iterator of the same results."""
    documents = [{"paper": "a", "text": "w1 w2"}, {"paper": "b", "text": "w3"}]
    expected = classifier.predict(documents)
    assert [one["paper"] for one in expected] == ["a", "b"]
    assert classifier.predict(tuple(documents)) == expected
    stream = classifier.predict(iter(documents))
    assert next(stream) == expected[0]
    assert [*stream] == expected[1:]


def test_Classifier_what_is_missing_or_unseen_is_no_fault(classifier: Classifier) -> None:
    """Documents without id, metadata or text, or with unseen names, get five labels each."""
    documents = [
        {"text": ""},
        {"text": "never seen words", "venue": None, "author": [], "label": 7},
        {"paper": None, "text": "w1", "author": ["nobody"], "reference": "d1"},
    ]
    results = classifier.predict(documents)
    assert [result["paper"] for result in results] == [None, None, None]
    assert [len(result["labels"]) for result in results] == [5, 5, 5]
    (two,) = classifier.predict(documents[:1], top_k=2)
    assert two["labels"] == results[0]["labels"][:2]
    assert set(two["labels"][0]) == {"id", "probability"}  # these labels have no names
    (every,) = classifier.predict(documents[:1], top_k=10_000)
    assert len(every["labels"]) == len(classifier.vocabulary.labels)
    assert classifier.predict([]) == []


def test_Classifier_thresholds_choose_the_labels(trained_run: Run, classifier: Classifier) -> None:
    """By threshold, labels at or above their own are given, at most top_k of them."""
    records = make_records(trained_run.dataset, "test")
    table = pd.read_parquet(trained_run.folder / "thresholds.parquet")
    least = dict(zip(table["label"], table["threshold"], strict=True))
    every = classifier.predict(records, top_k=10_000)
    chosen = classifier.predict(records, threshold=True)
    for result, full in zip(chosen, every, strict=True):
        expected = [
            label for label in full["labels"] if label["probability"] >= least[label["id"]] - 1e-6
        ]
        assert result["labels"] == expected
    assert len({len(result["labels"]) for result in chosen}) > 1
    capped = classifier.predict(records, top_k=1, threshold=True)
    assert [result["labels"] for result in capped] == [result["labels"][:1] for result in chosen]


def test_choose_labels_choosing_labels_by_hand() -> None:
    """Labels above thresholds come best first and capped; a document may have none."""
    logits = torch.logit(torch.tensor([[0.2, 0.9, 0.6], [0.1, 0.1, 0.1]]))
    thresholds = torch.tensor([0.15, 0.95, 0.5])
    first, second = choose_labels(logits, None, thresholds)
    assert [label for label, _ in first] == [2, 0]
    assert second == []
    assert [label for label, _ in choose_labels(logits, 1, thresholds)[0]] == [2]
    assert [label for label, _ in choose_labels(logits, 2, None)[0]] == [1, 2]


def test_load_folder_in_the_match_format(tmp_path: Path, small_settings) -> None:
    """A run of a MATCH folder predicts from raw text when the data set is deleted."""
    folder = write_match_folder(tmp_path / "toy")
    (folder / "id2label.txt").write_text("science\tScience\n", encoding="utf-8")
    config = small_settings(
        "data.options={}", "data.min_count=1", "data.min_word_count=1", "train.epochs=1",
        "pretrain.samples=2000", "train.precision=32-true",
    )  # fmt: skip
    run = start_run(str(folder), config, tmp_path / "run", tmp_path / "root")
    run.train()
    expected = evaluated_logits(run, "test")
    shutil.rmtree(folder)
    shutil.rmtree(tmp_path / "root")
    classifier = load(tmp_path / "run")
    records = toy_documents()["test"]
    read = [read_document(record, classifier._fields, "here") for record in records]
    ((documents, logits),) = classifier.score(read)
    assert torch.allclose(logits[torch.argsort(documents)], expected, atol=1e-4)
    (result, _) = classifier.predict(records, top_k=100)
    names = {label["id"]: label.get("name") for label in result["labels"]}
    assert names["science"] == "Science"
    assert names["deep"] is None


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"venue": "v"}, "'text' must be a string, found nothing; give \"\" where there is none."),
        ({"text": ["a"]}, "'text' must be a string, found the list [\"a\"]."),
        (
            {"text": "a", "author": {"name": "x"}},
            '\'author\' must be a string or a list of strings, found the object {"name": "x"}.',
        ),
        (
            {"text": "a", "paper": True},
            "'paper' must be the document's id, found the truth value true.",
        ),
        (
            {"text": "a", "venue": (1,)},
            "'venue' must be a string or a list of strings, found the tuple (1,).",
        ),
        (
            {"text": "a", "venue": [date(2020, 1, 1)]},
            "'venue' must be a string or a list of strings, found the list "
            "[datetime.date(2020, 1, 1)].",
        ),
        ("text", 'a document must be one object, found the string "text".'),
    ],
)
def test_Classifier_wrong_document_is_named(
    classifier: Classifier, document: Any, fault: str
) -> None:
    """A wrong document is named by its number, in a list and in an iterator."""
    documents = [{"text": "w1"}] * 8 + [document]
    results = classifier.predict(iter(documents), batch_size=1)
    assert len(list(islice(results, 8))) == 8
    for call in (lambda: next(results), lambda: classifier.predict(documents)):
        with pytest.raises(CorpusError) as caught:
            call()
        told = f"The documents must be readable: document 9: {fault}"
        assert str(caught.value) == told


def test_Classifier_results_before_a_wrong_document(classifier: Classifier) -> None:
    """An iterator gives the results of all documents before a wrong one, then the error."""
    documents = [{"text": "w1"}, {"text": "w2"}, {"text": 5}, {"text": "w3"}]
    results = classifier.predict(iter(documents))
    assert list(islice(results, 2)) == classifier.predict(documents[:2])
    with pytest.raises(CorpusError, match="document 3: 'text' must be a string"):
        next(results)


def test_Classifier_wrong_arguments(classifier: Classifier, trained_run: Run) -> None:
    """Wrong arguments are refused before any document is read."""
    with pytest.raises(ConfigError) as caught:
        classifier.predict([], top_k=0)
    assert str(caught.value) == "top_k must be a whole number of 1 or more, found 0."
    for wrong in ({"top_k": True}, {"top_k": "2"}):
        with pytest.raises(ConfigError, match="top_k must be a whole number of 1 or more"):
            classifier.predict([], **wrong)
    assert list(classifier.predict([], top_k=np.int64(2))) == []
    for wrong in ({"top_k": 2.5}, {"batch_size": 2.0}):
        with pytest.raises(ConfigError, match="must be a whole number of 1 or more, found 2"):
            classifier.predict([], **wrong)
    with pytest.raises(ConfigError) as caught:
        load(trained_run.folder, device="tpu")
    assert str(caught.value) == (
        "The device must be 'auto', 'cpu' or, where torch finds a GPU, 'cuda', found 'tpu'."
    )
    with pytest.raises(ConfigError, match=r"loaded with valid settings.*precision"):
        load(trained_run.folder, precision="fp8")
    assert load(trained_run.folder, device=torch.device("cpu"))


def test_load_precision_is_chosen_by_who_reads_text(trained_run: Run, monkeypatch) -> None:
    """Precision "auto" depends on the encoder's inputs; by default the run's is kept."""
    seen = []

    def choose(config: TrainConfig, reads_text: bool) -> str:
        seen.append((config.precision, reads_text))
        return "32-true"

    monkeypatch.setattr(classifier_module, "choose_precision", choose)
    load(trained_run.folder, precision="auto", device="cpu")
    load(trained_run.folder, device="cpu")
    assert seen == [("auto", False), (trained_run.config.train.precision, False)]


def change_config(folder: Path, section: str | None, key: str, value: Any) -> None:
    content = yaml.safe_load((folder / "config.yaml").read_text())
    (content if section is None else content[section])[key] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(content))
    write_manifest(folder)


def test_load_folders_that_are_no_trained_run(copied: Path, tmp_path: Path) -> None:
    """A missing folder, no run, an untrained run and another format are refused in one sentence."""
    with pytest.raises(CheckpointError) as caught:
        load(tmp_path / "nothing")
    assert str(caught.value) == (
        f"A run must be a folder that match-graph wrote, but there is none at "
        f"'{tmp_path / 'nothing'}'; check the path."
    )
    remove_files(copied / MODEL)
    with pytest.raises(CheckpointError) as caught:
        load(copied)
    assert str(caught.value) == (
        f"A trained run holds model.safetensors, but '{copied}' has none; "
        f"train it with `match-graph train synthetic --config {copied}/config.yaml --out {copied}`."
    )
    change_config(copied, None, "format", 2)
    with pytest.raises(ConfigError) as caught:
        load(copied)
    assert str(caught.value) == (
        f"A configuration must be of format 1, which this version of match-graph reads, "
        f"found format 2 in "
        f"'{copied / 'config.yaml'}'; use the version that wrote it."
    )
    (copied / "config.yaml").unlink()
    with pytest.raises(CheckpointError, match=r"A run folder holds config\.yaml, but"):
        load(copied)


@pytest.mark.parametrize("name", ["text.json", "venue.parquet", "label.parquet"])
def test_load_tokens_that_are_missing_or_broken(copied: Path, name: str) -> None:
    """The error names the broken file of tokens and the command that writes it again."""
    path = copied / "tokens" / name
    path.write_bytes(b"PAR1 broken")
    with pytest.raises(CheckpointError, match="it has 11 bytes, not"):
        load(copied)
    write_manifest(copied)
    with pytest.raises(CheckpointError, match=r"broken|cannot be"):
        load(copied)
    path.unlink()
    reason = "it is missing, though manifest.json lists it"
    with pytest.raises(CheckpointError) as caught:
        load(copied)
    if name == "text.json":
        assert str(caught.value) == (
            f"'{path}' must be a JSON file that match-graph wrote, but it cannot be read "
            f"({reason}); delete it, or start the run again with --overwrite."
        )
        return
    assert str(caught.value) == (
        f"A run folder keeps how its documents are read, but '{path}' cannot be used ({reason}); "
        f"delete it and go on with the run by `match-graph train`, which writes it again."
    )


def test_load_text_settings_are_checked(copied: Path) -> None:
    """A wrong tokenizer or word pattern in text.json is refused."""
    path = copied / "tokens" / "text.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "tokenizer": "magic"}))
    write_manifest(copied)
    with pytest.raises(ConfigError, match=r"text\.json' must be valid: 'tokenizer'"):
        load(copied)
    for pattern in ("[", "(a+)+b"):  # the second one matches for ever
        path.write_text(json.dumps({**content, "word_pattern": pattern}))
        write_manifest(copied)
        with pytest.raises(CheckpointError) as caught:
            load(copied)
        assert str(caught.value) == (
            f"A run folder keeps how its documents are read, but '{path}' cannot be used "
            f"(word_pattern must be {WORD_PATTERN!r}); delete it and go on with the run by "
            f"`match-graph train`, which writes it again."
        )


def test_load_thresholds_that_are_missing_or_of_other_labels(copied: Path) -> None:
    """Missing thresholds are an error only of predictions by threshold."""
    path = copied / "thresholds.parquet"
    pd.read_parquet(path).head(3).to_parquet(path)
    write_manifest(copied)
    with pytest.raises(CheckpointError) as caught:
        load(copied)
    assert str(caught.value) == (
        f"'{path}' must hold a threshold for each label of the run, but it cannot be used "
        f"(it has other labels); write it again with `match-graph evaluate`."
    )
    remove_files(path)
    classifier = load(copied)
    assert len(list(classifier.predict([{"text": "w1"}]))) == 1
    with pytest.raises(CheckpointError) as caught:
        classifier.predict([], threshold=True)
    assert str(caught.value) == (
        "Predicting by threshold needs a threshold for each label, but the run has none; "
        "choose them on its validation split with `match-graph evaluate RUN`."
    )


def test_load_code_is_imported_by_request_only(
    trained_run: Run, copied: Path, tmp_path: Path, monkeypatch
) -> None:
    """A folder that names module:Class imports nothing unless the caller names it too."""
    (tmp_path / "planted_encoder.py").write_text(
        "from match_graph import MatchEncoder\n"
        "class Mine(MatchEncoder):\n    needs = frozenset({'tokens', 'graph'})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    name = "planted_encoder:Mine"
    change_config(copied, "model", "encoder", name)
    with pytest.raises(CheckpointError) as caught:
        load(copied)
    assert str(caught.value) == (
        f"The run in '{copied}' was trained with the encoder '{name}', and code is imported only "
        f"by request, found encoder=None; load it with encoder='{name}' (--encoder in the shell)."
    )
    documents = [{"text": "w1 w2"}, {"text": ""}]
    found = list(load(copied, encoder=name).predict(documents))
    assert found == list(load(trained_run.folder).predict(documents))  # with a graph of one hop


def test_Classifier_predict_takes_a_frame_and_warns(classifier: Classifier) -> None:
    """A DataFrame has one document a row; keys that are not read are named in a warning."""
    documents = [{"text": "w1 w2", "venue": "venue1"}, {"text": "w3", "venue": "venue2"}]
    expected = classifier.predict(documents)
    assert classifier.predict(pd.DataFrame(documents)) == expected
    with pytest.warns(UserWarning, match=r"the keys \['venu'\] of documents are not read; this"):
        classifier.predict(pd.DataFrame(documents).assign(venu="venue1"))


def test_load_loading_leaves_the_callers_random_state_alone(trained_run: Run) -> None:
    """Loading a run draws nothing from the caller's random state."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load(trained_run.folder)
    assert torch.equal(torch.rand(3), expected)


#: What a prediction does not read.
_OTHERS = (
    "metrics", "history", "record", "reliability", "per_document", "vectors", "checkpoint",
    "tokens/document",
)  # fmt: skip


def test_load_refuses_damage_and_misses_files_aloud(copied: Path) -> None:
    """A flipped byte, a cut or a deleted file is refused by the name of the file."""
    names = sorted(read_manifest(copied))
    needed = [name for name in names if not name.startswith(_OTHERS)]
    assert {"config.yaml", MODEL, "thresholds.parquet", "tokens/word.parquet"} <= {*needed}
    for name in needed:
        path = copied / name
        kept = path.read_bytes()
        place = len(kept) // 2
        flipped = kept[:place] + bytes([kept[place] ^ 1]) + kept[place + 1 :]
        for content in (flipped, kept[:-1], b"", None):
            path.unlink() if content is None else path.write_bytes(content)
            with pytest.raises(CheckpointError) as caught:
                load(copied, "cpu")
            assert name in str(caught.value)
            assert len(str(caught.value).splitlines()) == 1
        path.write_bytes(kept)
    for name in {*names} - {*needed}:
        (copied / name).write_bytes(b"")
    assert load(copied, "cpu")


def test_load_refuses_weights_that_are_not_finite(copied: Path) -> None:
    """Weights with a NaN, which would score every document, are refused."""
    tensors = read_tensors(copied / MODEL)
    name = max(tensors, key=lambda name: tensors[name].numel())
    tensors[name].view(-1)[5] = torch.nan
    write_tensors(copied / MODEL, tensors)
    with pytest.raises(CheckpointError) as caught:
        load(copied, "cpu")
    assert str(caught.value) == (
        f"'{copied / MODEL}' must be a safetensors file of finite numbers, but it cannot be used "
        f"('{name}' holds values that are not finite); restore it, or write it again (a run: with "
        "--overwrite)."
    )


def test_load_refuses_a_pipe_in_place_of_a_file(copied: Path) -> None:
    """A named pipe, on which reading would block for ever, is refused."""
    for name in (MODEL, "thresholds.parquet", "tokens/word.parquet", "tokens/text.json"):
        kept = (copied / name).read_bytes()
        (copied / name).unlink()
        os.mkfifo(copied / name)
        with pytest.raises(CheckpointError, match="not a regular file"):
            load(copied, "cpu")
        (copied / name).unlink()
        (copied / name).write_bytes(kept)


def test_load_says_who_may_not_read(copied: Path) -> None:
    """A file without permission to read is not reported as missing."""
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (copied / MODEL).chmod(0)
    with pytest.raises(CheckpointError, match=r"\(permission denied\)"):
        load(copied, "cpu")


def test_Classifier_reads_rows_of_the_frame_of_its_run(tmp_path: Path) -> None:
    """Rows are read by the columns given to from_frames, also with missing cells."""
    frame = pd.DataFrame(
        {"key": [f"p{n}" for n in range(40)], "title": [f"w{n % 4} w{n % 3}" for n in range(40)],
         "body": ["a text", None] * 20, "who": [["Bo"], [], ["Li", "Bo"], None] * 10,
         "tags": [[f"l{n % 4}", "all"] for n in range(40)], "year": [2001.0, None] * 20}
    )  # fmt: skip
    columns = {"id": "key", "text": ["title", "body"], "author": "who", "label": "tags"}
    corpus = from_frames(frame, fields=["author"], columns=columns | {"date": "year"})
    config = load_config(settings=["model.encoder=tfidf_linear", "data.min_word_count=1"])
    run = start_run(corpus, config, tmp_path / "run", tmp_path / "root")
    run.train()
    classifier = load(run.folder, "cpu")
    found = classifier.predict(frame.head(6), top_k=2)
    documents = [
        {"paper": row.key, "text": f"{row.title} {row.body or ''}".strip(), "author": row.who or []}
        for row in frame.head(6).itertuples()
    ]
    assert found == classifier.predict(documents, top_k=2)
    assert [one["paper"] for one in found] == [f"p{n}" for n in range(6)]
    assert len({one["labels"][0]["id"] for one in found}) > 1
