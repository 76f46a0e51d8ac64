"""A run with a language model: what it keeps is enough to predict without the checkpoint."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from match_graph import load, load_config, start_run
from match_graph.config import ModelConfig
from match_graph.datasets.records import make_records
from match_graph.graph import TokenSpace
from match_graph.io.files import ENCODER_FILES, LOCK
from match_graph.nn import MatchEncoder, TokenEmbedding
from match_graph.runs import open_run
from match_graph.training.encoder_files import with_encoder_files, write_encoder_files
from match_graph.typing import MASKS


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


def test_an_encoder_without_files_makes_no_folder(tmp_path: Path) -> None:
    """Most encoders keep nothing, and their settings are the run's."""
    embedding = TokenEmbedding(TokenSpace(("word",), (3,)), 4)
    config = ModelConfig()
    write_encoder_files(MatchEncoder(embedding, MatchEncoder.Config()), tmp_path)
    assert not list(tmp_path.iterdir())
    assert with_encoder_files(config, tmp_path) is config


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="transformers is not installed (extra: lm)",
)
def test_a_language_model_predicts_from_the_run_folder_alone(tmp_path: Path) -> None:
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
    records = make_records(run.dataset, run.dataset.documents(MASKS["test"]).tolist())
    results = load(run.folder, device="cpu").predict(records, top_k=1)
    hits = [
        result["labels"][0]["id"] in record["label"]
        for record, result in zip(records, results, strict=True)
    ]
    assert sum(hits) / len(hits) == pytest.approx(metrics["test"]["P@1"])
