"""New documents find neighbours in the known graph: the same logits as by evaluation."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from match_graph import Run, load, start_run
from match_graph.corpus import Corpus
from match_graph.datasets import Synthetic
from match_graph.errors import CheckpointError, ConfigError, CorpusError
from match_graph.graph import BuiltGraph, EgoGraphs, NeighborhoodConfig, build_graph
from match_graph.io.files import read_tensors, write_tensors
from match_graph.io.run_folder import EDGES, GRAPH
from match_graph.predict.explain import Explainer
from match_graph.runs.known_graph import read_known_graph, write_known_graph
from match_graph.runs.vocabulary import read_document, read_vocabulary
from match_graph.testing import toy_documents, write_match_folder
from match_graph.typing import CITES, CONTAINS, DOCUMENT, MASKS, reverse_edge

#: Wide enough to reach documents by all edge types, narrow enough to cut.
NEIGHBORHOOD = {
    "metadata": [3, 2], "words": [6, 2], "metadata_documents": [0, 2], "word_documents": [0, 2],
    "cites": [2, 1], "cited_by": [2, 1], "document_metadata": 3, "document_words": 6,
}  # fmt: skip


def make_run(folder: Path, small_settings, encoder: str, *settings: str) -> Run:
    """A run trained in seconds, from random parameters for one epoch."""
    inner = "channels" if encoder != "match_hetero" else "graph_channels"
    small = {inner: 8, "neighborhood": NEIGHBORHOOD}
    if encoder == "match_hetero":
        small |= {"num_layers": 1, "num_cls": 2, "position_channels": 4}
    config = small_settings(
        f"model.encoder={encoder}", f"model.encoder_config={small}", "model.init=random",
        "train.precision=32-true", "train.accelerator=cpu", "train.epochs=1", *settings,
    )  # fmt: skip
    run = start_run("synthetic", config, folder / encoder, folder / "root")
    run.train()
    return run


@pytest.fixture(scope="module")
def graph_run(tmp_path_factory: pytest.TempPathFactory, small_settings) -> Run:
    return make_run(tmp_path_factory.mktemp("graph"), small_settings, "hetero_sage")


def raw_records(run: Run, split: str) -> list[dict[str, Any]]:
    """The documents of a split as they were read, in the order of the graph."""
    return run.dataset.as_json(run.dataset.documents(MASKS[split]).tolist())


@torch.no_grad()
def check_equal(run: Run, split: str) -> None:
    """Prediction from the folder alone equals evaluation of the same documents."""
    model = run.finish_model(run.load_model()).eval()
    rows, logits = [], []
    for batch in run.loader(split):
        rows.append(batch.document)
        logits.append(model(batch))
    expected = torch.cat(logits)[torch.argsort(torch.cat(rows))]
    classifier = load(run.folder, device="cpu")
    records = [classifier.read(record, "here") for record in raw_records(run, split)]
    found = torch.empty_like(expected)
    for documents, scores in classifier.score(records, batch_size=7):
        found[documents] = scores
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("encoder", ["hgt", "rgcn", "match_hetero"])
def test_load_same_logits_as_through_the_graph(
    tmp_path: Path, small_settings, encoder: str
) -> None:
    """Test documents get the logits of evaluation from every graph encoder."""
    check_equal(make_run(tmp_path, small_settings, encoder), "test")


@pytest.mark.parametrize("encoder", ["match", "rgcn"])
def test_load_label_graph_scores_as_evaluated(tmp_path: Path, small_settings, encoder: str) -> None:
    """A head over the label graph scores as evaluated, also with a coherent output."""
    settings = ["model.head=label_graph", "model.head_config={channels: 8}", "model.coherent=true"]
    if encoder == "match":
        settings += ["model.encoder_config={num_layers: 1, num_cls: 2, position_channels: 4}"]
    run = make_run(tmp_path, small_settings, encoder, *settings)
    check_equal(run, "test")
    assert run.evaluate()["valid"]["violation_rate"] == 0


def test_read_known_graph_same_neighbours_as_through_the_graph(graph_run: Run) -> None:
    """Logits are equal with citations, unseen metadata and cut fan-outs."""
    for split in ("valid", "test"):
        check_equal(graph_run, split)
    known = read_known_graph(graph_run.folder, read_vocabulary(graph_run.folder))
    records = [
        read_document(record, ["venue", "author", "reference"], "here")
        for record in raw_records(graph_run, "test")
    ]
    data = known.build_graph(records)
    assert data[CITES].edge_index.numel() > 0
    assert data[reverse_edge(CITES)].edge_index.numel() > 0
    assert int(data["author"].num_nodes) > int(known.data["author"].num_nodes)


@pytest.fixture
def timed_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds have times, many of them equal, and an attribute of author edges."""

    def build(corpus: Corpus) -> BuiltGraph:
        time = np.random.default_rng(0).integers(0, 40, corpus.num_documents)
        authors = corpus.edges["author"]
        place = authors.groupby("document").cumcount().astype(np.float32)
        edges = {**corpus.edges, "author": authors.assign(place=place)}
        documents = corpus.documents.assign(time=time)
        return build_graph(replace(corpus, documents=documents, edges=edges))

    monkeypatch.setattr("match_graph.datasets.dataset.build_graph", build)
    monkeypatch.setattr(Synthetic, "read", lambda dataset: dataset.reader().read_corpus())


@pytest.mark.usefixtures("timed_builds")
def test_load_temporal_run_reaches_no_later_document(tmp_path: Path, small_settings) -> None:
    """No batch reaches a later document; a new one without a time is the latest."""
    run = make_run(tmp_path, small_settings, "rgcn", "data.temporal=true")
    for split in ("train", "valid", "test"):
        for batch in run.loader(split, training=split == "train"):
            store = batch.graph[DOCUMENT]
            assert store.num_nodes > batch.num_documents
            assert (store.time <= store.time[store.batch]).all()
    check_equal(run, "test")
    train = run.dataset[0][DOCUMENT].train_mask
    time = run.dataset[0][DOCUMENT].time
    classifier = load(run.folder, device="cpu")
    assert torch.equal(classifier.known.data[DOCUMENT].time[train], time[train])
    document = raw_records(run, "test")[0]
    limits = {"early": -7, "first": 0, "none": None, "late": 10**6, "half": 3.5}
    reached = {}
    for name, limit in limits.items():
        record = classifier.read({**document, "time": limit}, "here")
        ((_, batch),) = classifier.batches([record])
        reached[name] = batch.graph[DOCUMENT].time[1:]
    assert reached["early"].numel() == 0
    assert reached["half"].numel() > 0
    assert reached["half"].max() <= 3
    assert torch.equal(reached["none"], reached["late"])
    (record,) = run.dataset.as_json([run.dataset.documents(MASKS["test"])[0].item()])
    assert record["time"] == document["time"]
    expected = classifier.predict([document])[0]["labels"]
    found = Explainer(run, "cpu").explain(record)
    assert found.predictions[0].label == expected[0]["id"]
    assert found.predictions[0].probability == pytest.approx(expected[0]["probability"], rel=1e-4)
    with pytest.raises(CorpusError) as caught:
        classifier.predict([{**document, "time": "1999"}])
    assert str(caught.value).endswith(
        "document 1: 'time' must be a number, found the string \"1999\"."
    )


def test_start_run_temporal_needs_times(tmp_path: Path, small_settings) -> None:
    """data.temporal without times is refused before a folder is made."""
    config = small_settings("model.encoder=rgcn", "model.encoder_config={}", "data.temporal=true")
    with pytest.raises(ConfigError, match=r"data.temporal needs the time of every document"):
        start_run("synthetic", config, tmp_path / "run", tmp_path / "root")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("timed_builds")
def test_read_known_graph_keeps_times_and_edge_attributes(tmp_path: Path, small_settings) -> None:
    """Each kept document has its time and each edge its attribute, or the file is refused.

    Citing documents are drawn in their order, so that a cut fan-out is that of evaluation.
    """
    run = make_run(tmp_path, small_settings, "hetero_sage")
    check_equal(run, "valid")
    classifier = load(run.folder, device="cpu")
    ((_, batch),) = classifier.batches([classifier.read(raw_records(run, "test")[0], "here")])
    edges = batch.graph["document", "has", "author"]
    known = classifier.known.data["document", "has", "author"]
    assert torch.equal(
        edges.edge_attr[edges.e_id >= 0], known.edge_attr[edges.e_id[edges.e_id >= 0]]
    )
    data = run.dataset[0]
    kept = data[DOCUMENT].train_mask[data["document", "has", "author"].edge_index[0].long()]
    assert torch.equal(known.edge_attr, data["document", "has", "author"].edge_attr[kept])
    kept = data[DOCUMENT].train_mask[data[CONTAINS].edge_index[0].long()]
    position = classifier.known.data[CONTAINS].position
    assert torch.equal(position, data[CONTAINS].position[kept])
    path = run.folder / GRAPH / EDGES
    tensors = read_tensors(path)
    write_tensors(path, {**tensors, "time": tensors["time"] - 100})  # before 1970
    early = read_known_graph(run.folder, read_vocabulary(run.folder))
    assert early.data[DOCUMENT].time.max() == tensors["time"].max() - 100
    for name, what in (("time", "documents"), ("document has author edge_attr", "edges")):
        write_tensors(path, {**tensors, name: tensors[name][1:].clone()})
        with pytest.raises(
            CheckpointError, match=rf"cannot be used \('{name}' is not of the {what}"
        ):
            load(run.folder)
    write_tensors(path, {**tensors, "time": tensors["time"].float()})
    with pytest.raises(CheckpointError, match="'time' is not of the documents"):
        load(run.folder)


def test_read_known_graph_no_label_and_no_other_split_is_kept(
    graph_run: Run, tmp_path: Path
) -> None:
    """Files hold training documents alone, or with transductive all, and no label."""
    dataset = graph_run.dataset
    data, train = dataset[0], dataset[0][DOCUMENT].train_mask
    vocabulary = read_vocabulary(graph_run.folder)
    known = read_known_graph(graph_run.folder, vocabulary)
    assert "label" not in known.data.node_types
    assert not (graph_run.folder / GRAPH / "label.parquet").exists()
    ids = dataset.names(DOCUMENT)
    assert dict(known.documents) == {ids[row]: row for row in train.nonzero().view(-1).tolist()}
    for edge_type in known.data.edge_types:
        row, col = known.data[edge_type].edge_index.long()
        assert train[row].all()
        assert edge_type != CITES or train[col].all()
        assert col.max() < known.data[edge_type[2]].num_nodes
        kept = train[data[edge_type].edge_index[0].long()]
        if edge_type == CITES:
            kept &= train[data[edge_type].edge_index[1].long()]
        assert torch.equal(data[edge_type].edge_index[:, kept], known.data[edge_type].edge_index)
    assert len(known.vocabulary.rows["author"]) > len(vocabulary.rows["author"])  # rare ones too
    write_known_graph(tmp_path, dataset, graph_run.space, transductive=True)
    everything = read_known_graph(tmp_path, vocabulary)
    assert len(everything.documents) == len(train)
    assert everything.data["author"].num_nodes == data["author"].num_nodes
    x = {"author": torch.randn(int(data["author"].num_nodes), 2)}
    featured = read_known_graph(graph_run.folder, vocabulary, x).data["author"]
    assert torch.equal(featured.x, x["author"][: featured.num_nodes])
    assert len(featured.x) < len(x["author"])


def test_start_run_training_reaches_training_documents_unless(
    tmp_path: Path, small_settings, graph_run: Run
) -> None:
    """Batches reach training documents alone, unless data.transductive is set.

    In every split's batches; `data.transductive` opens the others.
    """
    train = graph_run.dataset[0][DOCUMENT].train_mask
    for split in ("train", "valid", "test"):
        for batch in graph_run.loader(split, training=split == "train"):
            assert batch.graph is not None
            assert train[batch.graph[DOCUMENT].n_id[batch.num_documents :]].all()
    config = graph_run.config.model_copy(
        update={"data": graph_run.config.data.model_copy(update={"transductive": True})}
    )
    run = start_run("synthetic", config, tmp_path / "open", graph_run.dataset.root)
    reached = [
        batch.graph[DOCUMENT].n_id[batch.num_documents :]
        for batch in run.loader("train", training=True)
    ]
    assert not train[torch.cat(reached)].all()


def test_Run_training_draws_anew_and_evaluation_does_not(graph_run: Run) -> None:
    """Random fan-outs are drawn anew each epoch of training, and fixed in evaluation."""

    def words(training: bool, epoch: int) -> dict[int, list[int]]:
        loader = graph_run.loader("valid", training)
        loader.set_epoch(epoch)
        found: dict[int, list[int]] = {}
        for batch in loader:
            store = batch.graph["word"]
            for place, document in enumerate(batch.document.tolist()):
                found[document] = sorted(store.n_id[store.batch == place].tolist())
        return found

    assert words(False, 0) == words(False, 1)
    assert words(True, 0) == words(True, 0) != words(True, 1)


def test_load_what_no_text_knows_is_no_fault(graph_run: Run) -> None:
    """Documents without id, metadata or words, or with unseen names, are predicted."""
    documents = [
        {"text": ""},
        {"text": "w1", "author": ["nobody", "no one"], "reference": ["d0", "nothing"]},
        {"paper": "d0", "text": "w1", "reference": ["d0"], "venue": None},
    ]
    results = list(load(graph_run.folder, device="cpu").predict(documents))
    assert [len(result["labels"]) for result in results] == [5, 5, 5]


def test_load_missing_files_are_one_sentence(graph_run: Run, tmp_path: Path) -> None:
    """A broken table is named, with the command that writes it again."""
    folder = Path(shutil.copytree(graph_run.folder, tmp_path / "run"))
    path = folder / GRAPH / "author.parquet"
    path.unlink()
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    assert str(caught.value) == (
        f"A run folder keeps how its documents are read, but '{path}' cannot be used (it is "
        f"missing, though manifest.json lists it); delete it and go on with the run by "
        f"`match-graph train`, which writes it again."
    )
    start_run("synthetic", graph_run.config, folder, graph_run.dataset.root)
    assert len(pd.read_parquet(path)) > 0
    assert load(folder)


def test_start_run_wrong_fanouts_are_found_before_a_run_starts(
    tmp_path: Path, small_settings
) -> None:
    """Fan-outs of an unknown edge type are refused before a folder is made."""
    settings = {"neighborhood": {"fanouts": {"document has topic": [1]}}}
    config = small_settings("model.encoder=rgcn", f"model.encoder_config={settings}")
    with pytest.raises(ConfigError, match="must name edge types of the graph or their reverses"):
        start_run("synthetic", config, tmp_path / "run", tmp_path / "root")
    assert not (tmp_path / "run").exists()


def test_load_corpus_without_references_has_a_graph_too(tmp_path: Path, small_settings) -> None:
    """Without references, documents are joined by metadata and words."""
    folder = write_match_folder(tmp_path / "toy", toy_documents(), fields=("venue", "author"))
    config = small_settings(
        "data.options={}", "model.encoder=hetero_sage", "model.init=random", "train.epochs=1",
        "model.encoder_config={channels: 8}", "train.accelerator=cpu",
    )  # fmt: skip
    run = start_run(str(folder), config, tmp_path / "run", tmp_path / "root")
    run.train()
    assert CITES not in run.graphs.sampler.edge_types
    (result,) = load(run.folder).predict([{"text": "Deep graphs.", "author": ["Bo"]}])
    assert len(result["labels"]) == 5


@pytest.mark.parametrize("encoder", ["hgt", "match_hetero"])
def test_load_without_metadata_there_may_be_nothing_to_draw(
    tmp_path: Path, small_settings, encoder: str
) -> None:
    """Without metadata, HGT samples words alone and the hybrid nothing; both predict."""
    folder = write_match_folder(tmp_path / "toy")
    config = small_settings(
        "data.options={}", f"model.encoder={encoder}", "model.encoder_config={}",
        "model.init=random", "train.epochs=1", "train.accelerator=cpu", "ablation=[no-metadata]",
    )  # fmt: skip
    run = start_run(str(folder), config, tmp_path / "run", tmp_path / "root")
    run.train()
    assert run.graphs.sampler.edge_types == ((CONTAINS,) if encoder == "hgt" else ())
    (result,) = load(run.folder).predict([{"text": "Deep graphs.", "author": ["Bo"]}])
    assert len(result["labels"]) == 5


def test_read_known_graph_known_graphs_draw_by_the_runs_seed(graph_run: Run) -> None:
    """Fan-outs are cut by the run's seed; another seed gives others."""
    vocabulary = read_vocabulary(graph_run.folder)
    known = read_known_graph(graph_run.folder, vocabulary)
    drawn = [
        EgoGraphs(known.data, NeighborhoodConfig(**NEIGHBORHOOD), vocabulary.space, seed=seed)
        .sample(torch.arange(50))["word"]
        .n_id.tolist()
        for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("name", "place", "value", "reason"),
    [
        ("document contains word", (1, 0), 2**30, "a row is not in 0.."),
        ("document contains word", (1, 0), -1, "a row is not in 0.."),
        ("document has author", (0, 0), 2**30, "a row is not in 0.."),
        ("position", (0,), -1, "a row is not in 0.."),
        ("num_documents", (), 3, "a row is not in 0..2"),
    ],
)
def test_read_known_graph_refuses_rows_that_are_none(
    graph_run: Run, tmp_path: Path, name: str, place: tuple[int, ...], value: int, reason: str
) -> None:
    """Rows beyond a table, which samplers would read, are refused."""
    folder = Path(shutil.copytree(graph_run.folder, tmp_path / "run"))
    path = folder / GRAPH / EDGES
    tensors = read_tensors(path)
    tensors[name][place] = value
    write_tensors(path, tensors)
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    text = str(caught.value)
    assert text.startswith(
        f"A run of a graph encoder keeps the graph that it was trained on, but '{folder / GRAPH}' "
        f"cannot be used ({reason}"
    )
    assert text.endswith(
        "); delete it and go on with the run by `match-graph train`, which writes it again."
    )
    del tensors["position"]
    write_tensors(path, tensors)
    with pytest.raises(CheckpointError, match=r"cannot be used \("):
        load(folder)
