"""Models of sentence-transformers: what is read, what is refused before it is read."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from match_graph.errors import ConfigError
from match_graph.features.sentence_model import compute_model_digest, find_model, load_model

CPU = torch.device("cpu")


def refuse(folder: Path | str) -> str:
    """Reason for which a model is refused."""
    with pytest.raises(ConfigError) as caught:
        find_model(str(folder))
    must, _, rest = str(caught.value).partition(f", but '{folder}' is not (")
    assert must == (
        "A language model must be a folder or a name on the hub that sentence-transformers can "
        "read from safetensors without code of its own"
    )
    return rest.removesuffix("); check the name, or choose another.")


@pytest.fixture
def folder(sentence_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model."""
    return shutil.copytree(sentence_model, tmp_path / "model")


def test_find_model_refuses_pickled_weights(folder: Path) -> None:
    """Also in a module's folder; beside safetensors they are not read."""
    (folder / "pytorch_model.bin").write_bytes(b"evil")
    assert find_model(str(folder)) == folder
    (folder / "1_Pooling" / "pytorch_model.bin").write_bytes(b"evil")
    reason = "its weights are pickled (pytorch_model.bin), which can run code; convert them to"
    assert refuse(folder) == f"{reason} safetensors"
    (folder / "1_Pooling" / "pytorch_model.bin").unlink()
    (folder / "model.safetensors").unlink()
    assert refuse(folder) == f"{reason} safetensors"


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ({"type": "vile.Vile", "path": ""}, "asks for the module 'vile.Vile', and only Dense, "),
        ({"type": "sentence_transformers.models.Router", "path": ""}, "asks for the module"),
        ({"type": "sentence_transformers.evil.x().Dense", "path": ""}, "asks for the module"),
        ({"type": "sentence_transformers.models.Dense", "path": "../x"}, "must be a path below"),
        ("Transformer", "is no list of modules"),
    ],
)
def test_find_model_refuses_foreign_modules(
    folder: Path, module: object, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the current folder is imported."""
    (folder / "vile.py").write_text("raise SystemExit('ran')\n")
    monkeypatch.chdir(folder)
    (folder / "modules.json").write_text(json.dumps([module]))
    assert reason in refuse(folder)
    assert "vile" not in sys.modules


def test_find_model_refuses_settings_that_name_code(folder: Path) -> None:
    """An attention of the hub, an adapter of another model, JSON that is none."""
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**settings, "attn_implementation": "a/b"}))
    assert refuse(folder) == "its config.json asks for the code 'a/b'"
    nested = {**settings, "text_config": {"attn_implementation": "c/d"}}
    (folder / "config.json").write_text(json.dumps(nested))
    assert refuse(folder) == "its config.json asks for the code 'c/d'"
    (folder / "config.json").write_text("{")
    assert "Expecting property name" in refuse(folder)
    (folder / "adapter_config.json").write_text("{}")
    assert refuse(folder).startswith("it is an adapter of another model")


def test_find_model_names_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that the hub's cache lacks, without a network; a name that is none."""
    hub = pytest.importorskip("huggingface_hub")
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    assert "snapshot folder" in refuse("no/such-model")
    assert "Repo id must" in refuse("no/such model")
    for path in ("./minilm", "/no/model", "no/such/model"):
        assert refuse(path) == "there is no such folder"


def test_find_model_names_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra that brings it."""
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError) as caught:
        find_model("some/model")
    assert str(caught.value) == (
        "A language model for features needs the package sentence_transformers, which is not "
        "installed; run: pip install 'match-graph[lm]'"
    )


def test_compute_model_digest_follows_content(folder: Path, sentence_model: Path) -> None:
    """The digest depends on weights, settings and their places, not on the folder or model card.

    Hidden files, such as those that the hub notes beside a download, do not count either.
    """
    digest = compute_model_digest(folder)
    (folder / "README.md").write_text("A model.")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "download.json").write_text("{}")
    assert compute_model_digest(folder) == digest == compute_model_digest(sentence_model)
    pooling = folder / "1_Pooling" / "config.json"
    moved = pooling.rename(folder / "1_Pooling" / "other.json")
    assert compute_model_digest(folder) != digest
    moved.rename(pooling).write_text("{}")
    assert compute_model_digest(folder) != digest


def test_load_model_limits_pieces(sentence_model: Path) -> None:
    """Texts are cut at the requested number, which is at most the model's positions."""
    model = load_model("tiny", sentence_model, CPU, 3)
    first, second = model.encode(["deep nets and graphs of", "deep nets and kernels"])
    assert (first == second).all()
    assert load_model("tiny", sentence_model, CPU, 32).max_seq_length == 32
    with pytest.raises(ConfigError) as caught:
        load_model("tiny", sentence_model, CPU, 33)
    assert str(caught.value) == (
        "max_pieces must be at most the positions of 'tiny', found 33 and 32; lower it."
    )


def test_load_model_runs_no_code_of_the_model(folder: Path) -> None:
    """Classes of its own, which its settings name, are not imported: transformers' are taken."""
    (folder / "vile.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    settings = json.loads((folder / "config.json").read_text())
    own = {"auto_map": {"AutoConfig": "vile.Config", "AutoModel": "vile.Model"}}
    (folder / "config.json").write_text(json.dumps({**settings, **own}))
    assert find_model(str(folder)) == folder
    assert load_model("tiny", folder, CPU, None).encode("deep nets").shape == (8,)
    assert not (folder / "ran").exists()


def test_load_model_leaves_the_notes_of_transformers_on(sentence_model: Path) -> None:
    """They are silent while it loads, and as verbose as before afterwards."""
    import transformers

    logging = transformers.utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity_info()
    try:
        load_model("tiny", sentence_model, CPU, None)
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(before)


def test_load_model_refuses_broken_weights(folder: Path) -> None:
    """A safetensors file that is none; a folder without a model."""
    (folder / "model.safetensors").write_bytes(b"12345678")
    with pytest.raises(ConfigError, match=r"^A language model must be a folder or a name"):
        load_model("tiny", folder, CPU, None)
    for path in folder.glob("*.*"):
        path.unlink()
    with pytest.raises(ConfigError, match=r"^A language model must be a folder or a name"):
        load_model("tiny", folder, CPU, None)
