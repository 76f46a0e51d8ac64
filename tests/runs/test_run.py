"""Run folders: all stages, reproducibility, and what must hold before a run starts."""

import json
import platform
from importlib.metadata import version
from pathlib import Path

import pandas as pd
import pytest
import torch

from match_graph.config import load_config
from match_graph.datasets import from_frames
from match_graph.errors import CheckpointError, ConfigError, CorpusError
from match_graph.graph import count_twins
from match_graph.io import Reporter
from match_graph.io.files import read_tensors
from match_graph.io.manifest import write_manifest
from match_graph.io.run_folder import CALIBRATION, METRICS, MODEL, RECORD, STATE
from match_graph.nn.coherent import CoherentOutput
from match_graph.predict import load
from match_graph.runs import Run, finish, open_run, start_run
from match_graph.runs.readers import read_record
from match_graph.runs.record import describe_processor
from match_graph.testing import toy_documents, write_match_folder
from match_graph.training.evaluate import evaluate_model
from match_graph.typing import MASKS


@pytest.fixture
def start(tmp_path: Path, small_settings):
    """Starts a run of the small corpus."""

    def make(name: str, *settings: str, **kwargs):
        config = small_settings(*settings)
        return start_run("synthetic", config, tmp_path / name, tmp_path / "root", **kwargs)

    return make


def test_start_run_line_writes_what_the_design_names(start) -> None:
    """All stages write every file of a run folder, with its content."""
    run = start("a", "train.epochs=6")
    run.train()
    run.evaluate()
    metrics = json.loads((run.folder / METRICS).read_text())
    assert set(metrics) == {"valid", "test"}
    names = {"P@1", "P@3", "P@5", "NDCG@1", "NDCG@3", "NDCG@5", "violation_rate"}
    assert names <= set(metrics["test"])
    assert {"R@5", "PSP@5", "PSNDCG@5"} <= set(metrics["valid"]) & set(metrics["test"])
    names = {"F1_micro", "hierarchical_F1", "tail/num_labels", "depth_0/R@5", "depth_0/F1_macro"}
    assert names <= set(metrics["test"])
    assert all(isinstance(value, int | float) for value in metrics["test"].values())
    assert metrics["test"]["NDCG@5"] > run.prior("test")["NDCG@5"] + 0.05
    record = json.loads((run.folder / RECORD).read_text())
    assert record["data_checksum"] == run.dataset.checksum
    assert {"build", "pretrain", "train", "evaluate"} <= set(record["seconds"])
    assert record["versions"]["torch"] == version("torch")
    assert record["peak_memory_mib"]["host"] > 100
    found = count_twins(run.dataset.graph)
    assert record["twins"] == {
        split: {"documents": found[split], "of": len(run.dataset.documents(mask))}
        for split, mask in MASKS.items()
        if split != "train"
    }
    for table, kept in zip(run.space.types, run.space.num_kept, strict=True):
        assert len(pd.read_parquet(run.folder / "tokens" / f"{table}.parquet")) == kept
    assert (run.folder / STATE).stat().st_size < 10_000  # it only says that training is over
    assert not list(run.folder.rglob("*.tmp"))


def test_describe_processor_names_what_torch_computes_with() -> None:
    """The processor is named by architecture and instruction set, which determine rounding."""
    found = [platform.machine(), torch.backends.cpu.get_cpu_capability()]
    assert describe_processor().split(maxsplit=1) == found


def test_RunRecord_stays_that_of_the_training(start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later evaluation or opening adds seconds to the record and changes nothing else."""
    run = start("a", "train.epochs=1")
    run.train()
    before = json.loads((run.folder / RECORD).read_text())
    other = {"versions": {"torch": "0"}, "python": "0", "git": "0"}
    monkeypatch.setattr("match_graph.runs.record.describe_software", lambda: other)
    names = ("processes", "device", "versions", "python", "git")
    seconds = [0.0]
    for _ in range(2):
        open_run(run.folder, run.dataset.root).evaluate()
        after = json.loads((run.folder / RECORD).read_text())
        seconds.append(after["seconds"]["evaluate"])
        assert [after.get(name) for name in names] == [before.get(name) for name in names]
    assert seconds == sorted(set(seconds))


def test_start_run_same_seed_gives_same_metrics_another_seed(start) -> None:
    """The same seed gives the same metrics and another seed others.

    metrics.json is equal to the byte for one seed, and not for two.
    """
    texts = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run = start(name, f"seed={seed}")
        run.train()
        run.evaluate()
        texts.append((run.folder / METRICS).read_text())
    assert texts[0] == texts[1] != texts[2]


def test_start_run_embedding_layer_starts_from_pre_trained(start, monkeypatch) -> None:
    """The embedding layer starts from the pre-trained vectors.

    At the first step, every kept token's row is its pre-trained vector.
    """
    run = start("a", "model.blend=false")
    seen = {}

    def look(model, *_args, **_kwargs):
        seen["weight"] = model.embedding.weight.detach().clone()

    monkeypatch.setattr("match_graph.training.models.train_model", look)
    run.train()
    vectors = read_tensors(run.folder / "vectors.safetensors")
    for node_type, kept in zip(run.space.types, run.space.num_kept, strict=True):
        span = run.space.span(node_type)
        assert kept > 0
        assert torch.equal(seen["weight"][span], vectors[node_type][:kept]), node_type


def test_start_run_random_initialisation_needs_no_pre_training(start) -> None:
    """model.init=random trains without vectors."""
    run = start("a", "model.init=random")
    run.train()
    assert not (run.folder / "vectors.safetensors").exists()
    assert (run.folder / MODEL).is_file()


def test_start_run_regularizers_lower_the_violation_rate(start) -> None:
    """On labels closed upwards, children outrank parents less often with the regularizers."""
    rates = []
    for name, parameter, output in (("with", 1e-4, 2.0), ("without", 0.0, 0.0)):
        run = start(
            name, f"train.lambda_parameter={parameter}", f"train.lambda_output={output}",
            "train.epochs=4", "model.blend=false", "model.coherent=false",
        )  # fmt: skip
        run.train()
        rates.append(run.evaluate()["valid"]["violation_rate"])
    assert rates[0] < 0.8 * rates[1]


def test_start_run_needs_validation_documents(tmp_path: Path, small_settings) -> None:
    """An empty validation split is refused in one sentence."""
    folder = tmp_path / "toy"
    write_match_folder(folder)
    (folder / "dev.json").write_text("")
    with pytest.raises(CorpusError) as caught:
        start_run(str(folder), small_settings("data.options={}"), tmp_path / "run")
    assert str(caught.value) == (
        f"A run chooses its weights on the validation split, but '{folder}' has no document "
        f"there; move some of the training documents to it."
    )
    assert not (tmp_path / "run").exists()


def test_start_run_needs_labels_of_validation_documents(
    tmp_path: Path, small_settings, capsys: pytest.CaptureFixture[str]
) -> None:
    """Validation documents without labels are refused, test ones warned of."""
    folder, config = tmp_path / "toy", small_settings("data.options={}", "model.coherent=false")
    write_match_folder(folder)

    def strip(name: str) -> None:
        lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        text = "".join(f"{json.dumps({**line, 'label': []})}\n" for line in lines)
        (folder / name).write_text(text)

    strip("test.json")
    start_run(str(folder), config, tmp_path / "run", reporter=Reporter())
    assert "warning: no test document has a label" in capsys.readouterr().err
    strip("dev.json")
    with pytest.raises(CorpusError, match=r"by labels of validation documents, but none of"):
        start_run(str(folder), config, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_start_run_is_bound_to_its_data(tmp_path: Path, small_settings) -> None:
    """Changed data are refused by start_run and open_run, as such."""
    folder = tmp_path / "toy"
    write_match_folder(folder)
    config = small_settings("data.options={}").change("train", epochs=None)
    run = start_run(str(folder), config, tmp_path / "run")
    lines = (folder / "train.json").read_text().splitlines()
    (folder / "train.json").write_text("\n".join(lines[:-1]))
    expected = (
        f"The run in '{run.folder}' was made from other data than '{folder}' holds now; "
        f"restore the data, or make the run again (overwrite=True, --overwrite)."
    )
    for attempt in (
        lambda: start_run(str(folder), config, tmp_path / "run"),
        lambda: open_run(tmp_path / "run"),
    ):
        with pytest.raises(CheckpointError) as caught:
            attempt()
        assert str(caught.value) == expected


def test_evaluate_model_validation_while_training_fixed_sample(start) -> None:
    """Training validates on a fixed sample, evaluation on the whole split.

    The sampled documents are of the split and the same each time; metrics.json has them all.
    """
    run = start(
        "a", "train.epochs=1", "train.valid_documents=7", "model.init=random",
        "train.precision=32-true",
    )  # fmt: skip
    loaders = [run.loader("valid", sample=7) for _ in range(2)]
    drawn = [torch.cat([batch.document for batch in loader]).sort().values for loader in loaders]
    assert len(drawn[0]) == 7
    assert torch.equal(*drawn)
    whole = torch.cat([batch.document for batch in run.loader("valid")])
    assert len(whole) == 40
    assert torch.isin(drawn[0], whole).all()
    run.train()
    history = pd.read_csv(run.folder / "history.csv")
    model, measure = run.load_model(), evaluate_model
    assert history["P@1"][0] == pytest.approx(measure(model, loaders[0], None)["P@1"], abs=1e-9)
    expected = measure(run.finish_model(model, held_out=True), run.loader("valid"), None)
    assert run.evaluate()["valid"]["NDCG@5"] == pytest.approx(expected["NDCG@5"], abs=1e-6)


def test_start_run_finished_run_is_not_trained_again(start) -> None:
    """train after evaluate changes neither weights nor measures."""
    run = start("a")
    run.train()
    run.evaluate()
    before = {path.name: path.read_bytes() for path in run.folder.iterdir() if path.is_file()}
    start("a").train()
    for name in (METRICS, MODEL, "thresholds.parquet", "history.csv"):
        assert (run.folder / name).read_bytes() == before[name], name


def test_start_run_unfinished_run_is_not_evaluated_and_goes_on(start, monkeypatch) -> None:
    """A training broken off is not evaluated, and resumes from its checkpoint."""
    from match_graph.training import loop

    run = start("a")
    original = loop._train_epoch

    def break_off(*args, **kwargs):
        if args[0].state.epoch == 1:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "_train_epoch", break_off)
        run.train()
    before = (run.folder / STATE).read_bytes()
    files = {path for path in run.folder.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError) as caught:
        run.evaluate()
    # neither a blend nor a calibration of weights that are still to change
    assert {path for path in run.folder.rglob("*") if path.is_file()} == files
    assert str(caught.value) == (
        f"A run is evaluated when its training is over, but that in '{run.folder}' was broken off "
        f"after epoch 1 of 2; finish it with the command that started it."
    )
    assert (run.folder / STATE).read_bytes() == before
    assert not (run.folder / METRICS).exists()
    run.train()
    assert len(pd.read_csv(run.folder / "history.csv")) == 2
    assert run.evaluate()["test"]


def test_start_run_wrong_model_is_found_before_run_overwritten(start) -> None:
    """A typo in the encoder's name deletes nothing and leaves no folder."""
    run = start("a", "model.init=random")
    kept = (run.folder / "config.yaml").read_text()
    for name, given in (("a", "model.encoder=foo"), ("b", "model.encoder_config={num_heads: 7}")):
        with pytest.raises(ConfigError):
            start(name, "model.init=random", given, overwrite=True)
    assert (run.folder / "config.yaml").read_text() == kept
    assert not (run.folder.parent / "b").exists()


def test_start_run_corpus_without_labels_is_one_sentence(tmp_path: Path, small_settings) -> None:
    """A corpus without labels is refused, as nothing can be learned from it."""
    folder = tmp_path / "toy"
    documents = toy_documents()
    for record in documents["train"]:
        record["label"] = []
    write_match_folder(folder, documents)
    with pytest.raises(CorpusError) as caught:
        start_run(str(folder), small_settings("data.options={}"), tmp_path / "run")
    assert str(caught.value) == (
        f"A run learns from labels, but no training document of '{folder}' has one; check the key "
        f"'label' of its documents."
    )


def test_open_run_broken_record_is_one_sentence(start, tmp_path: Path) -> None:
    """A broken record.json is named."""
    run = start("a")
    (run.folder / RECORD).write_text("[]")
    with pytest.raises(CheckpointError, match=r"cannot be read \(it has 2 bytes, not"):
        open_run(run.folder, tmp_path / "root")


def test_Run_evaluate_without_test_counts_no_twins_of_test(start) -> None:
    """Twins of a split are recorded when it is evaluated."""
    run = start("a")
    run.train()
    assert "twins" not in read_record(run.folder)
    run.evaluate(with_test=False)
    assert read_record(run.folder)["twins"].keys() == {"valid"}
    run.evaluate()
    assert read_record(run.folder)["twins"].keys() == {"valid", "test"}


def test_start_run_evaluation_needs_a_trained_model(start) -> None:
    """A missing model and one of another shape are refused."""
    run = start("a")
    with pytest.raises(CheckpointError, match=r"A trained run holds model\.safetensors, but"):
        run.evaluate()
    other = start("b", "model.channels=16", "pretrain.channels=16")
    other.train()
    (run.folder / MODEL).write_bytes((other.folder / MODEL).read_bytes())
    write_manifest(run.folder)
    with pytest.raises(CheckpointError, match="names or shapes differ"):
        run.evaluate()
    assert not (run.folder / METRICS).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "settings", "epochs", "batch_size"),
    [
        ("match", "{num_layers: 1, num_cls: 2, position_channels: 4}", 5, 16),
        ("hetero_sage", "{channels: 32, neighborhood: {words: [16], document_words: 16}}", 9, 48),
    ],
)
def test_start_run_no_gold_label_reaches_the_encoder(
    tmp_path: Path,
    small_settings,
    monkeypatch,
    encoder: str,
    settings: str,
    epochs: int,
    batch_size: int,
) -> None:
    """Labels independent of the text stay at chance, although every gold label is in the graph.

    That no other encoder sees a label edge is tested to the bit in tests/nn/encoders.
    """
    from match_graph.datasets import CorpusDataset
    from match_graph.graph.csr import row_index

    original = CorpusDataset.__getitem__

    def plant(self, index):
        data = original(self, index)
        rows = row_index(self.targets.ptr).int()
        planted = torch.stack([rows, self.targets.index])
        data["document", "tagged", "label"].edge_index = planted
        data["document", "reveals", "label"].edge_index = planted
        data["label", "marks", "document"].edge_index = planted.flip(0)
        data["label", "marks", "word"].edge_index = planted.flip(0).clamp(max=20)
        return data

    options = "data.options={num_documents: 600, num_labels: 24, num_layers: 3, num_words: 400, "
    results = []
    for random_labels in ("true", "false"):
        config = small_settings(
            options + f"random_labels: {random_labels}}}", "model.init=random",
            f"train.epochs={epochs}", f"train.batch_size={batch_size}", "train.learning_rate=0.005",
            f"model.encoder={encoder}", f"model.encoder_config={settings}",
        )  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(CorpusDataset, "__getitem__", plant)
            run = start_run("synthetic", config, tmp_path / random_labels, tmp_path / "root")
            run.train()
            results.append((run.evaluate()["test"]["NDCG@5"], run.prior("test")["NDCG@5"]))
    (chance, chance_prior), (learned, learned_prior) = results
    assert chance < chance_prior + 0.05
    assert learned > learned_prior + 0.15  # the same training finds what is there


@pytest.mark.parametrize("label_prior", [True, False])
def test_start_run_biases_start_at_log_odds_if_asked(start, monkeypatch, label_prior: bool) -> None:
    """Biases start at the labels' log-odds with model.label_prior, else at 0."""
    handed: list[torch.Tensor] = []

    def stop(model, *_):
        handed.append(model.head.bias.detach().clone())
        raise KeyboardInterrupt

    monkeypatch.setattr("match_graph.training.models.train_model", stop)
    run = start("a", "model.init=random", f"model.label_prior={str(label_prior).lower()}")
    with pytest.raises(KeyboardInterrupt):
        run.train()
    assert bool((handed[0] < -0.5).any()) == label_prior
    assert bool((handed[0] == 0).all()) != label_prior


def test_open_run_folder_alone_imports_no_code(start, tmp_path: Path) -> None:
    """A run with a user's own encoder is opened only by naming that encoder."""
    name = "match_graph.nn.encoders.match:MatchEncoder"
    run = start("a", f"model.encoder={name}")
    root = tmp_path / "root"
    with pytest.raises(CheckpointError) as caught:
        open_run(run.folder, root)
    assert str(caught.value) == (
        f"The run in '{run.folder}' was trained with the encoder '{name}', and code is imported "
        f"only by request, found encoder=None; load it with encoder='{name}' "
        f"(--encoder in the shell)."
    )
    assert open_run(run.folder, root, encoder=name).config.model.encoder == name


def test_load_label_attention_goes_the_whole_line(start) -> None:
    """A label attention head is trained, evaluated and loaded from the folder alone."""
    run = start(
        "a", "model.encoder=attention_xml", "model.head_config={hidden_channels: [8]}",
        "model.encoder_config={hidden_channels: 8}", "model.init=random", "train.epochs=2",
    )  # fmt: skip
    run.train()
    assert pd.read_csv(run.folder / "history.csv")["loss_bce"].is_monotonic_decreasing
    assert run.evaluate()["test"]["NDCG@5"] > run.prior("test")["NDCG@5"] - 0.05
    assert run.config.model.head == "label_attention"
    (found,) = load(run.folder).predict([{"text": "w1 w2 w3"}])
    assert len(found["labels"]) == 5


BLENDED = ("model.init=random", "train.epochs=1", "model.blend=true")
LINEAR = ("model.encoder=tfidf_linear", "model.encoder_config={}")


@pytest.mark.parametrize("settings", [BLENDED, LINEAR], ids=["blended", "baseline"])
def test_load_coherent_run_no_violations_predicts_parents_first(start, settings) -> None:
    """A coherent run has no violations, and ranks parents first among equal scores."""
    run = start("a", "model.coherent=true", *settings)
    run.train()
    metrics = run.evaluate()
    assert metrics["valid"]["violation_rate"] == metrics["test"]["violation_rate"] == 0
    names = run.dataset.names("label").tolist()
    depth = dict(zip(names, run.dataset.hierarchy.depth.tolist(), strict=True))
    parents = [
        (names[child], names[parent]) for child, parent in run.dataset.hierarchy.edge_index.t()
    ]
    texts = [{"text": text} for text in ("w1 w2 w3", "w5", "")]
    for found in load(run.folder).predict(texts, top_k=len(names)):
        order = [label["id"] for label in found["labels"]]
        place = {label: number for number, label in enumerate(order)}
        assert all(place[parent] < place[child] for child, parent in parents)
        ties = zip(found["labels"], found["labels"][1:], strict=False)
        assert all(
            depth[one["id"]] <= depth[other["id"]]
            for one, other in ties
            if one["probability"] == other["probability"]
        )
    (run.folder / "tokens" / "label__is_a.parquet").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"label__is_a\.parquet' cannot be used"):
        load(run.folder)


@pytest.mark.parametrize("closed", [True, False])
def test_start_run_coherent_where_labels_are_not_closed(tmp_path: Path, capsys, closed) -> None:
    """A coherent output is warned of where labels are not closed upwards."""
    above = ["top"] if closed else []
    labels = [["top"], *[["leaf", *above] for _ in range(8)]]
    fold = ["train"] * 7 + ["valid", "test"]
    names = [f"w{n}" for n in range(9)]
    frame = pd.DataFrame({"id": names, "text": names, "label": labels, "fold": fold})
    corpus = from_frames(frame, hierarchy=[("leaf", "top")], columns={"split": "fold"})
    settings = ["model.coherent=true", "model.init=random", "model.channels=8", "train.epochs=1"]
    config = load_config(settings=settings)
    start_run(corpus, config, tmp_path / "run", tmp_path, reporter=Reporter())
    said = " ".join(capsys.readouterr().err.split())
    assert ("of the training documents with a label only 0% have its parent too" in said) != closed
    assert ("as 100% of the training documents with a label have its parent too" in said) == closed


def test_Run_finish_model_is_coherent_at_last(start, monkeypatch) -> None:
    """Coherence is applied last, to the blended and calibrated scores."""
    monkeypatch.setattr(finish, "_MIN_DOCUMENTS", 1)
    settings = (*BLENDED, "train.calibrate=true")
    plain, run = start("plain", "model.coherent=false", *settings), start("coherent", *settings)
    assert run.config.model.coherent
    batch = next(iter(plain.loader("valid")))
    for one in (plain, run):
        one.train()
    with torch.no_grad():
        before, found = (one.finish_model(one.load_model().eval())(batch) for one in (plain, run))
    assert (run.folder / CALIBRATION).is_file()
    child, parent = run.dataset.hierarchy.edge_index
    assert (before[:, child] > before[:, parent]).any()
    assert torch.equal(found, CoherentOutput(run.dataset.hierarchy)(before))


def test_Run_prior_knows_its_splits(trained_run: Run) -> None:
    """The label prior is measured on a split by name; other names are refused."""
    assert trained_run.prior("valid").keys() == trained_run.prior("test").keys()
    with pytest.raises(ConfigError) as caught:
        trained_run.prior("dev")
    assert str(caught.value) == "A split must be one of ['train', 'valid', 'test'], found 'dev'."


def test_start_run_takes_a_configuration(tmp_path: Path) -> None:
    """Anything but a Config is refused."""
    with pytest.raises(ConfigError, match=r"must be a match_graph\.Config, found \{\}; make one"):
        start_run("synthetic", {}, tmp_path / "run")
