"""The language model encoder, on tiny checkpoints that the tests write."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from match_graph.config import Config
from match_graph.corpus import Corpus
from match_graph.errors import ConfigError
from match_graph.graph import BuiltGraph, EgoBatch, EgoLoader, EgoSampler, TokenSpace
from match_graph.nn import LanguageModelEncoder, TokenEmbedding
from match_graph.testing import assert_encoder
from match_graph.training.models import find_model
from match_graph.typing import TAGGED

WORDS = ["learning", "graphs", "from", "small", "cells", "of", "a", "deep", "net", "kernels", "w1"]
SPACE = TokenSpace(("venue", "word"), (2, 3))

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="transformers is not installed (extra: lm)",
)


def write_checkpoint(folder: Path, kind: str = "bert", positions: int = 48) -> Path:
    """A tiny model with drawn weights and a tokenizer of a dozen words."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {
        name: row for row, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if kind != "gpt2":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]"
    ).save_pretrained(folder)
    size = len(vocabulary)
    common = {"vocab_size": size, "max_position_embeddings": positions, "pad_token_id": 0}
    bert = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = {
        "bert": lambda: transformers.BertConfig(**common, **bert, intermediate_size=32),
        "roberta": lambda: transformers.RobertaConfig(**common, **bert, intermediate_size=32),
        "distilbert": lambda: transformers.DistilBertConfig(
            **common, dim=16, n_layers=2, n_heads=2, hidden_dim=32
        ),
        "albert": lambda: transformers.AlbertConfig(
            **common, **bert, embedding_size=8, intermediate_size=32
        ),
        "electra": lambda: transformers.ElectraConfig(
            **common, **bert, embedding_size=8, intermediate_size=32
        ),
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=size, n_positions=positions, n_embd=16, n_layer=2, n_head=2
        ),
        "t5": lambda: transformers.T5Config(
            vocab_size=size, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2
        ),
    }[kind]()
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory):
    """Kind -> a folder, written once."""
    pytest.importorskip("transformers", reason="transformers is not installed (extra: lm)")
    written: dict[str, Path] = {}

    def make(kind: str = "bert") -> str:
        if kind not in written:
            written[kind] = write_checkpoint(tmp_path_factory.mktemp(kind), kind)
        return str(written[kind])

    return make


def make_encoder(checkpoint: str, channels: int = 6, **settings) -> LanguageModelEncoder:
    config = LanguageModelEncoder.Config(checkpoint=checkpoint, **{"max_pieces": 16, **settings})
    torch.manual_seed(1)
    return LanguageModelEncoder(TokenEmbedding(SPACE, channels), config).eval()


def make_batch(texts: list[str], venues: list[list[int]]) -> EgoBatch:
    """Documents with a text and venues by token id, and one word each that is not read."""
    ids = [token for some in venues for token in [*some, SPACE.offset("word")]]
    field = [number for some in venues for number in [*(0 for _ in some), 1]]
    ptr = torch.tensor([0, *(len(some) + 1 for some in venues)]).cumsum(0)
    documents = torch.arange(len(texts))
    return EgoBatch(
        documents, torch.tensor(ids), torch.tensor(field), torch.zeros(len(ids)).long(), ptr,
        text=texts,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bert", {}),
        ("distilbert", {"pooling": "mean"}),
        ("roberta", {}),
        ("albert", {}),
        ("electra", {"pooling": "mean"}),
        ("gpt2", {"pooling": "mean"}),
        ("bert", {"pretrained": False}),
    ],
)
def test_LanguageModelEncoder_checkpoints_keep_the_contract(
    checkpoint, kind: str, settings
) -> None:
    """Encoders of several kinds, a decoder, and weights that are drawn; see `assert_encoder`."""
    config = {"checkpoint": checkpoint(kind), "max_pieces": 20, **settings}
    assert_encoder(LanguageModelEncoder, config)


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_LanguageModelEncoder_without_metadata_is_the_model(checkpoint, kind: str) -> None:
    """Without metadata the states are the language model's own.

    Texts of different lengths against transformers' own forward, one by one.
    """
    import transformers

    texts = ["deep graphs", "", "learning from small cells of a net", "unheard deep"]
    encoder = make_encoder(checkpoint(kind), metadata=False)
    with torch.no_grad():
        found = encoder(make_batch(texts, [[], [3], [], [4, 4]])).document
    model = transformers.AutoModel.from_pretrained(checkpoint(kind)).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint(kind))
    for row, text in enumerate(texts):
        with torch.no_grad():
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            expected = model(input_ids=ids).last_hidden_state[0, 0]
        torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=1e-4)


def test_LanguageModelEncoder_metadata_are_tokens_behind_text(checkpoint) -> None:
    """Against transformers' forward over pieces and projected rows, by hand; words are not read."""
    import transformers

    encoder = make_encoder(checkpoint(), pooling="mean")
    batch = make_batch(["deep net", "cells"], [[3, 4], [1]])
    with torch.no_grad():
        found = encoder(batch).document
        model = transformers.AutoModel.from_pretrained(checkpoint()).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint())
        for row, venues in enumerate([[3, 4], [1]]):
            ids = tokenizer(batch.text[row], return_tensors="pt")["input_ids"]
            pieces = model.get_input_embeddings()(ids)[0]
            rows = encoder.embedding(make_batch([""], [venues]))[: len(venues)]
            joined = torch.cat([pieces, encoder.project(rows)]).unsqueeze(0)
            expected = model(inputs_embeds=joined).last_hidden_state[0].mean(dim=0)
            torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=1e-4)


def test_LanguageModelEncoder_truncates_to_its_positions(checkpoint) -> None:
    """Long texts and many metadata fit the positions.

    Pieces are cut at max_pieces, metadata at the last position.
    """
    for kind in ("bert", "roberta"):
        encoder = make_encoder(checkpoint(kind), max_pieces=40)
        assert encoder.max_positions == {"bert": 48, "roberta": 47}[kind]
        batch = make_batch(["deep " * 100, "net"], [[3] * 60, [4] * 60])
        output = encoder(batch)
        assert output.ptr.diff().tolist() == [encoder.max_positions] * 2
        assert bool(output.document.isfinite().all())
    with pytest.raises(ConfigError) as caught:
        make_encoder(checkpoint(), max_pieces=49)
    assert str(caught.value) == (
        f"max_pieces must be at most the positions of '{checkpoint()}', found 49 and 48; lower "
        f"model.encoder_config.max_pieces."
    )


def test_LanguageModelEncoder_metadata_start_at_piece_scale(checkpoint) -> None:
    """At the start, so that they neither drown the text nor vanish."""
    encoder = make_encoder(checkpoint(), channels=64)
    pieces = encoder.language_model.get_input_embeddings().weight.detach()
    rows = encoder.embedding(make_batch([""], [[3, 4]]))[:2]
    ratio = encoder.project(rows).detach().std() / pieces.std()
    assert 0.5 < float(ratio) < 2


def test_LanguageModelEncoder_is_rebuilt_from_saved_files(checkpoint, tmp_path) -> None:
    """What is kept makes the encoder without the checkpoint.

    Configuration and tokenizer, no weights; states equal once the weights are read.
    """
    encoder = make_encoder(checkpoint())
    encoder.save_files(tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))
    settings = {**encoder.config.model_dump(), **LanguageModelEncoder.kept_settings(tmp_path)}
    other = LanguageModelEncoder(encoder.embedding, LanguageModelEncoder.Config(**settings)).eval()
    other.load_state_dict(encoder.state_dict())
    batch = make_batch(["deep net"], [[3]])
    assert torch.equal(other(batch).document, encoder(batch).document)


def test_LanguageModelEncoder_weights_have_a_lower_rate(checkpoint) -> None:
    """By rate_factor; the projection does not."""
    encoder = make_encoder(checkpoint(), rate_factor=0.1)
    assert encoder.rate_factors == {"language_model.": 0.1}
    slow = [name for name, _ in encoder.named_parameters() if name.startswith("language_model.")]
    assert len(slow) == len(list(encoder.parameters())) - 2


@needs_transformers
def test_LanguageModelEncoder_no_checkpoint_is_one_sentence() -> None:
    """Nothing is downloaded by default."""
    with pytest.raises(ConfigError) as caught:
        make_encoder("")
    assert str(caught.value) == (
        "The encoder 'language_model' needs a checkpoint, found none; set "
        "model.encoder_config.checkpoint to a folder, or to a model's name on the hub such as "
        "distilbert-base-uncased."
    )


@needs_transformers
@torch.no_grad()
def test_LanguageModelEncoder_no_planted_label_reaches_it(
    checkpoint, toy: Corpus, toy_graph: BuiltGraph
) -> None:
    """States are the same to the bit whatever labels the documents' edges reveal."""
    space = TokenSpace.from_data(toy_graph.data)
    config = LanguageModelEncoder.Config(checkpoint=checkpoint("bert"), max_pieces=16)
    torch.manual_seed(1)
    encoder = LanguageModelEncoder(TokenEmbedding(space, 6), config).eval()
    states = []
    for shift in (0, 1):
        data = toy_graph.data.clone()
        document = torch.arange(int(data["document"].num_nodes))
        label = (document + shift) % int(data["label"].num_nodes)
        data["document", "reveals", "label"].edge_index = torch.stack([document, label])
        data[TAGGED].edge_index = torch.stack([document, label])
        texts = toy.documents["text"].tolist()
        (batch,) = EgoLoader(
            data, EgoSampler(data), space, document, batch_size=len(document), texts=texts
        )
        states.append(encoder(batch).document)
    assert torch.equal(states[0], states[1])


@needs_transformers
def test_LanguageModelEncoder_hash_files_tell_checkpoints_apart(checkpoint, tmp_path: Path) -> None:
    """By content, not by place; a model of the hub has no checksum."""

    def hash_model(name: str) -> dict[str, str]:
        settings = {"encoder": "language_model", "encoder_config": {"checkpoint": name}}
        return find_model(Config(model=settings)).hash_files()

    folder = Path(shutil.copytree(checkpoint(), tmp_path / "checkpoint"))
    before = hash_model(checkpoint())
    assert before.keys() == {"model.encoder_config.checkpoint"}
    assert hash_model(str(folder)) == before
    damage_weights(folder)
    assert hash_model(str(folder)) != before
    assert hash_model("distilbert-base-uncased") == hash_model("") == {}


def spoil_weights(folder: Path) -> None:
    """Only a pickle is left."""
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def damage_weights(folder: Path) -> None:
    """The header claims more than the file has."""
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)


def ask_for_code(folder: Path) -> None:
    path = folder / "config.json"
    content = json.loads(path.read_text())
    content["model_type"] = "own"
    content["auto_map"] = {"AutoConfig": "own.Own", "AutoModel": "own.Own"}
    path.write_text(json.dumps(content))
    (folder / "own.py").write_text("raise SystemExit('code of the checkpoint was run')")


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_weights,
        damage_weights,
        ask_for_code,
        lambda one: one.joinpath("config.json").unlink(),
    ],
)
def test_LanguageModelEncoder_refuses_pickles_and_code(checkpoint, tmp_path, spoil) -> None:
    """Pickles, code and broken folders are refused.

    One sentence; nothing is unpickled or run.
    """
    folder = Path(shutil.copytree(checkpoint(), tmp_path / "checkpoint"))
    spoil(folder)
    with pytest.raises(ConfigError) as caught:
        make_encoder(str(folder))
    text = str(caught.value)
    assert text.startswith(
        f"A language model must be a checkpoint that transformers can read from safetensors "
        f"without code of its own, but '{folder}' is not ("
    )
    assert text.endswith("); check model.encoder_config.checkpoint.")
    assert "\n" not in text


def test_LanguageModelEncoder_decoder_is_refused(checkpoint) -> None:
    """It has no state of a document before it decodes."""
    with pytest.raises(ConfigError, match=r"is not \(it is an encoder-decoder\)"):
        make_encoder(checkpoint("t5"))


def test_LanguageModelEncoder_first_piece_of_a_causal_model(checkpoint) -> None:
    """In a causal model the first piece attends to itself alone."""
    with pytest.raises(ConfigError) as caught:
        make_encoder(checkpoint("gpt2"))
    assert str(caught.value) == (
        f"With pooling=first a language model must read in both directions, but "
        f"'{checkpoint('gpt2')}' (gpt2) reads from left to right, so that its first piece knows no "
        f"other; set model.encoder_config.pooling=mean."
    )


def test_LanguageModelEncoder_needs_transformers(monkeypatch) -> None:
    """Without the package one sentence says what to install.

    The extra is named.
    """
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError) as caught:
        make_encoder("x")
    assert str(caught.value) == (
        "The encoder 'language_model' needs the package transformers, which is not installed; "
        "run: pip install 'match-graph[lm]'"
    )
