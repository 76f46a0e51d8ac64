"""Encoders and baselines by one protocol: found, completed, fitted, kept, loaded."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
import torch

from match_graph import Baseline, Run, load, load_config, rank_labels, start_run
from match_graph.baselines import BASELINES
from match_graph.baselines.tensors import read_table, write_table
from match_graph.config import Config
from match_graph.errors import CheckpointError, ConfigError
from match_graph.graph import NodeFeatures, TokenSpace
from match_graph.io.run_folder import CONFIG, ENCODER_FILES, FITTED, LOCK, METRICS, RECORD
from match_graph.nn import ENCODERS, MatchEncoder, TokenEmbedding
from match_graph.predict.summary import list_files, show_examples
from match_graph.runs import open_run
from match_graph.runs.readers import read_record
from match_graph.training.models import NeuralModel, find_model
from match_graph.typing import MASKS


class CountingPrior(Baseline):
    """A baseline of a user's own: how many training documents carry each label."""

    def fit(self, batches, advance=lambda _done: None) -> None:
        self.count = torch.zeros(self.num_labels)
        for batch in batches:
            self.count += torch.bincount(batch.label_index, minlength=self.num_labels)

    def predict(self, batch):
        return self.count.expand(batch.num_documents, -1)

    def save(self, folder: Path) -> None:
        write_table(folder, {"count": self.count})

    def load(self, folder: Path) -> None:
        self.count = read_table(folder, {"count": [self.num_labels]})["count"]


OWN = f"{__name__}:CountingPrior"


@pytest.fixture
def start(tmp_path: Path, small_settings):
    """Starts a run of the small corpus with a baseline."""

    def make(encoder: str, *settings: str, name: str = "run", **kwargs) -> Run:
        config = small_settings(
            "model.encoder_config={}", f"model.encoder={encoder}", "train.accelerator=cpu",
            *settings,
        )  # fmt: skip
        return start_run("synthetic", config, tmp_path / name, tmp_path / "root", **kwargs)

    return make


@pytest.mark.parametrize(
    ("encoder", "settings", "read"),
    [
        ("match", [], {"document", "venue", "word"}),
        ("hetero_sage", [], {"document", "venue", "word"}),
        ("match", ["model.head=label_graph"], {"document", "venue", "word", "label"}),
        ("match", ["model.head=mine:Head"], {"document", "venue", "word", "label"}),
        ("xml_cnn", [], {"document", "word"}),
        ("language_model", [], {"document", "venue"}),
        ("tfidf_linear", [], {"document"}),
        ("prior", [], set()),
    ],
)
def test_Model_reads_features_of_types(encoder: str, settings: list[str], read: set[str]) -> None:
    """Of documents everywhere but in the prior; of labels by heads that may see them."""
    model = find_model(load_config(settings=[f"model.encoder={encoder}", *settings]))
    found = {name for name in ("document", "venue", "word", "label") if model.reads_features(name)}
    assert found == read


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_Run_baseline_runs_as_a_network_does(start, trained_run: Run, name: str) -> None:
    """The same files and the same measures; nothing is pre-trained; prediction as evaluated."""
    if name == "omikuji":
        pytest.importorskip("omikuji", reason="omikuji is not installed (extra: peers)")
    run = start(name)
    run.train()
    metrics = run.evaluate()
    expected = trained_run.read_metrics()
    assert {split: set(values) for split, values in metrics.items()} == {
        split: set(values) for split, values in expected.items()
    }
    assert metrics == json.loads((run.folder / METRICS).read_text())
    seconds = json.loads((run.folder / RECORD).read_text())["seconds"]
    assert {"build", "train", "evaluate"} == set(seconds)
    assert str(run.folder / FITTED) in list_files(run.folder)
    assert not (run.folder / "vectors.safetensors").exists()
    assert len(show_examples(run)) == 3
    records = run.dataset.as_json(run.dataset.documents(MASKS["test"]).tolist())
    results = load(run.folder, device="cpu").predict(records, top_k=1)
    hits = [
        result["labels"][0]["id"] in record["label"]
        for record, result in zip(records, results, strict=True)
    ]
    assert sum(hits) / len(hits) == pytest.approx(metrics["test"]["P@1"])


def test_Run_prior_measures_what_the_table_shows(start) -> None:
    """As the line "label prior" below a table."""
    run = start("prior")
    run.train()
    assert run.evaluate()["test"]["P@1"] == run.prior("test")["P@1"]


def test_Run_linear_peer_is_fitted_once_and_the_same_each_time(start) -> None:
    """Neither evaluate nor train again changes what is there; another folder has the same bits."""
    run = start("tfidf_linear")
    run.train()
    run.evaluate()
    fitted = run.folder / FITTED / "tensors.safetensors"
    before = fitted.stat().st_mtime_ns
    start("tfidf_linear").train()
    assert fitted.stat().st_mtime_ns == before
    other = start("tfidf_linear", name="other")
    other.train()
    assert (other.folder / FITTED / "tensors.safetensors").read_bytes() == fitted.read_bytes()
    assert other.evaluate() == run.read_metrics()
    assert [path.name for path in run.folder.glob(".*")] == [LOCK]


@pytest.mark.parametrize("encoder", ["tfidf_linear", "omikuji"])
def test_Run_record_names_the_weight_of_metadata(start, encoder: str) -> None:
    """``metadata_weight`` in record.json is the fitted one, also on resuming; absent if null."""
    if encoder == "omikuji":
        pytest.importorskip("omikuji", reason="omikuji is not installed (extra: peers)")
    for _ in range(2):
        run = start(encoder)
        run.train()
        weight = read_record(run.folder)["metadata_weight"]
        assert weight == run.load_model().metadata_weight > 0
    plain = start(encoder, "model.encoder_config.metadata_weight=null", name="plain")
    plain.train()
    assert plain.load_model().metadata_weight is None
    assert "metadata_weight" not in read_record(plain.folder)


def test_Run_broken_fit_leaves_no_folder(start, monkeypatch) -> None:
    """What is there is whole."""
    run = start("prior")

    def fail(_self, _folder) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(BASELINES["prior"], "save", fail)
        run.train()
    assert not list(run.folder.glob(f"*{FITTED}*"))
    with pytest.raises(CheckpointError) as caught:
        run.evaluate()
    assert str(caught.value) == (
        f"A trained run of a baseline holds a folder 'baseline', but '{run.folder}' has none; "
        f"train it with `match-graph train synthetic --config {run.folder}/config.yaml --out "
        f"{run.folder}`."
    )
    run.train()
    assert run.evaluate()["test"]


def test_Run_only_training_labels_are_seen(start, monkeypatch) -> None:
    """Fitting asks for the labels of training documents and of no others."""
    run = start("tfidf_linear")
    seen = []
    original = type(run.dataset.targets).select

    def select(self, documents):
        seen.append(documents)
        return original(self, documents)

    monkeypatch.setattr(type(run.dataset.targets), "select", select)
    run.train()
    train = run.dataset.documents(MASKS["train"])
    assert torch.equal(torch.cat(seen).sort().values, train)


def test_load_baseline_of_ones_own(start, tmp_path: Path) -> None:
    """By package.module:Class, which must be named again to open the run."""
    run = start(OWN)
    run.train()
    assert run.evaluate()["test"]["P@1"] == run.prior("test")["P@1"]
    with pytest.raises(CheckpointError, match="code is imported only by request"):
        load(run.folder)
    classifier = load(run.folder, device="cpu", encoder=OWN)
    (result,) = classifier.predict([{"text": "w1 w2"}], top_k=1)
    best = rank_labels(run.load_model().count.unsqueeze(0), 1)
    assert result["labels"][0]["id"] == run.dataset.names("label")[int(best)]
    assert open_run(run.folder, tmp_path / "root", encoder=OWN).read_metrics()


def test_Run_names_and_settings_are_checked_before_folder_made(start, tmp_path: Path) -> None:
    """All names are listed, encoders and baselines; settings are the baseline's own."""
    with pytest.raises(ConfigError) as caught:
        start("tfidf")
    assert str(caught.value) == (
        f"The encoder must be one of {sorted({**ENCODERS, **BASELINES})}, or module:Class or "
        f"file.py:Class naming a subclass of Encoder or Baseline, found 'tfidf'; the nearest is "
        "'tfidf_linear'."
    )
    with pytest.raises(ConfigError) as caught:
        start("prior", "model.encoder_config={cost: 2.0}")
    assert str(caught.value) == (
        "model.encoder_config must be valid: 'cost' is not a setting; there are none."
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("encoder", "may"), [("match", False), ("rgcn", True), ("language_model", True), (OWN, True)]
)
def test_NeuralModel_parameters_that_a_step_may_leave_unused(encoder: str, may: bool) -> None:
    """Types without nodes in a graph, and rows of metadata that a text is read without."""
    assert find_model(Config().change("model", encoder=encoder)).may_leave_unused == may


def test_find_model_tells_kinds_apart(start) -> None:
    """By class, not by name."""
    config = start("prior").config
    assert not find_model(config).is_neural
    assert find_model(config.change("model", encoder="match")).is_neural
    assert find_model(config.change("model", encoder=OWN)).cls is CountingPrior


def test_Model_build_starts_from_the_seed() -> None:
    """Of the run, whatever was drawn before: weights of a network, and draws of a baseline."""
    space = TokenSpace(("venue", "word"), (3, 4))
    weights = []
    for seed in (0, 5, 5):
        torch.rand(1)
        network = find_model(load_config(settings=[f"seed={seed}"])).build(space, (6,), None)
        weights.append(torch.cat([one.detach().view(-1) for one in network.parameters()]))
    assert torch.equal(weights[1], weights[2])
    assert not torch.equal(weights[0], weights[1])
    config = load_config(settings=["model.encoder=tfidf_linear", "seed=5"])
    baseline = find_model(config).build(space, (6,), None, NodeFeatures(7))
    assert isinstance(baseline, Baseline)
    assert (baseline.num_labels, baseline.seed, baseline.width) == (6, 5, 7)


def test_NeuralModel_hash_files_follow_own_code(tmp_path: Path) -> None:
    """A run of an encoder that has changed since is recognized by it."""
    text = "from match_graph.nn import ENCODERS\n\n\nclass Mine(ENCODERS['match']):\n    pass\n"
    code = tmp_path / "own_encoder.py"
    found = []
    for content in (text, f"{text}    offset = 1\n"):
        code.write_text(content)
        model = find_model(load_config(settings=[f"model.encoder={code}:Mine"]))
        found.append(model.hash_files())
    assert [one.keys() for one in found] == [{"model.encoder"}] * 2
    assert found[0] != found[1]


def test_NeuralModel_load_leaves_random_numbers(trained_run: Run) -> None:
    """Whoever evaluates or predicts between two draws draws the same as without."""
    state = torch.get_rng_state()
    trained_run.load_model()
    assert torch.equal(torch.get_rng_state(), state)


def test_complete_refuses_unknown_settings() -> None:
    """As when the model is made."""
    with pytest.raises(ConfigError) as caught:
        find_model(Config().change("model", encoder_config={"num_headz": 2})).complete()
    assert str(caught.value).startswith("model.encoder_config must be valid: 'num_headz' is not")
    with pytest.raises(ConfigError) as caught:
        find_model(Config().change("model", head_config={"bias": 2})).complete()
    assert str(caught.value) == (
        "model.head_config must be valid: 'bias' is not a setting; there are none."
    )


def test_check_used_refuses_what_a_baseline_does_not_use() -> None:
    """Of the model, of training and of pre-training; what it uses, and defaults, pass."""
    settings = ["model.encoder=tfidf_linear", "train.learning_rate=77", "pretrain.samples=1"]
    with pytest.raises(ConfigError) as caught:
        find_model(load_config(None, [*settings, "model.init=random"])).check_used()
    assert str(caught.value) == (
        "The baseline 'tfidf_linear' must be given settings that it uses, found model.init, "
        "train.learning_rate, pretrain.samples; leave these out (its own stand in "
        "model.encoder_config)."
    )
    used = ["data.max_words=9", "model.encoder_config.cost=2", "train.calibrate=false"]
    find_model(
        load_config(None, ["model.encoder=tfidf_linear", "train.epochs=~", *used])
    ).check_used()
    find_model(load_config(None, ["train.learning_rate=77"])).check_used()


def test_check_used_takes_the_configuration_of_a_run(baseline_run: Run) -> None:
    """All settings of the file pass, as a message advises to name it; others are refused."""
    path = baseline_run.folder / CONFIG
    config = load_config(path)
    assert config.train.epochs is not None
    find_model(config).check_used(config)
    with pytest.raises(ConfigError, match=r"found train\.epochs, train\.learning_rate; leave"):
        changed = load_config(path, ["train.epochs=77", "train.learning_rate=77"])
        find_model(changed).check_used(config)


def write_checkpoint(folder: Path) -> Path:
    """A tiny BERT that splits at white space and knows a few of the planted words."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{number}" for number in range(200))]
    vocabulary = {name: row for row, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]"
    ).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(names), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    return folder


def test_find_model_encoder_without_files_makes_no_folder(tmp_path: Path) -> None:
    """Most encoders keep nothing, and their settings are the run's."""
    embedding = TokenEmbedding(TokenSpace(("word",), (3,)), 4)
    model = find_model(Config())
    assert isinstance(model, NeuralModel)
    model.write_files(MatchEncoder(embedding, MatchEncoder.Config()), tmp_path)
    assert not list(tmp_path.iterdir())
    assert model.with_files(tmp_path) is model


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="transformers is not installed (extra: lm)",
)
def test_LanguageModelEncoder_predicts_from_the_run_folder(tmp_path: Path) -> None:
    """Trained, checkpoint deleted, evaluated, and predicting as evaluated."""
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    config = load_config(None, [
        "data.options={num_documents: 300, num_labels: 24, num_layers: 3, num_words: 200}",
        "pretrain.samples=2000", "pretrain.channels=16", "model.channels=16",
        "model.encoder=language_model", "train.epochs=1", "train.batch_size=32",
        f"model.encoder_config={{checkpoint: {json.dumps(str(checkpoint))}, max_pieces: 32}}",
        "train.accelerator=cpu", "train.precision=32-true",
    ])  # fmt: skip
    run = start_run("synthetic", config, tmp_path / "run", tmp_path / "root")
    run.train()
    assert (run.folder / ENCODER_FILES / "config.json").is_file()
    assert [path.name for path in run.folder.rglob(".*")] == [LOCK]
    shutil.rmtree(checkpoint)
    again = open_run(run.folder, tmp_path / "root")
    metrics = again.evaluate()
    records = run.dataset.as_json(run.dataset.documents(MASKS["test"]).tolist())
    results = load(run.folder, device="cpu").predict(records, top_k=1)
    hits = [
        result["labels"][0]["id"] in record["label"]
        for record, result in zip(records, results, strict=True)
    ]
    assert sum(hits) / len(hits) == pytest.approx(metrics["test"]["P@1"])
