"""Shared folders predict as their runs do, describe themselves, and cannot run code."""

import json
import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from match_graph import Corpus, Run, load, open_run, share_run, start_run
from match_graph.config import Config, load_config
from match_graph.errors import CheckpointError, ConfigError, CorpusError
from match_graph.io.files import remove_files
from match_graph.io.manifest import MANIFEST, read_manifest, write_manifest
from match_graph.io.run_folder import CONFIG, METRICS, MODEL, RECORD, SHARES
from match_graph.predict import evaluate_files, share
from match_graph.predict.model_card import find_changes, render_card
from match_graph.predict.share import is_shared, open_settings, remove_paths, take_own_files
from match_graph.report import write_report
from match_graph.runs.folder import verify_run_folder


@pytest.fixture
def shared(trained_run: Run, tmp_path: Path) -> Path:
    """A shared folder that a test may damage."""
    return share_run(trained_run.folder, tmp_path / "shared", license="mit")


@pytest.fixture(scope="module")
def graph_run(make_variant) -> Run:
    """A run of a graph encoder of two hops, which keeps its known graph."""
    return make_variant("sage", "model.encoder=hetero_sage", "train.epochs=1")


def make_documents(run: Run) -> list[dict[str, Any]]:
    """Known documents of the run's data, and one without an id."""
    documents = run.dataset.table("document").head(20)
    known = [
        {"paper": row.id, "text": row.text, "venue": "venue1", "author": ["author1", "nobody"]}
        for row in documents.itertuples()
    ]
    return [*known, {"text": "w1 w2 w3", "author": ["author2"], "reference": [known[0]["paper"]]}]


def predict(folder: Path, documents: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    return list(load(folder, "cpu", **options).predict(documents))


def find_text(folder: Path, text: str) -> list[str]:
    """Files of a folder in whose bytes a text stands."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if text.encode() in path.read_bytes()]


def change_config(folder: Path, **model: str) -> None:
    """Changes model settings and the manifest, as a crafted folder may."""
    content = yaml.safe_load((folder / CONFIG).read_text())
    content["model"] |= model
    (folder / CONFIG).write_text(yaml.safe_dump(content))
    write_manifest(folder)


@pytest.fixture(scope="module")
def latent_run(make_variant) -> Run:
    """A run with latent features and those of predicted neighbours."""
    return make_variant(
        "latent", "data.features.document={latent: 8, neighbors: 3}", "train.epochs=1"
    )


RUNS = ["trained_run", "baseline_run", "graph_run", "text_run", "latent_run"]


@pytest.mark.parametrize("name", RUNS)
def test_share_run_predicts_the_same(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Predictions equal the run's: encoders, a baseline, blends, graphs; also by threshold."""
    run: Run = request.getfixturevalue(name)
    out, documents = share_run(run.folder, tmp_path / "shared"), make_documents(run)
    assert predict(out, documents) == predict(run.folder, documents)
    found = list(load(out, "cpu").predict(documents, threshold=True))
    assert found == list(load(run.folder, "cpu").predict(documents, threshold=True))


def test_share_run_holds_what_prediction_reads(shared: Path, trained_run: Run) -> None:
    """No checkpoint, log, result or path of the machine is shared; the manifest is its own."""
    assert is_shared(shared)
    assert not is_shared(trained_run.folder)
    there = {path.relative_to(shared).as_posix() for path in shared.rglob("*") if path.is_file()}
    listed = set(read_manifest(shared))
    assert there == {*listed, "README.md", MANIFEST}
    own = read_manifest(trained_run.folder)
    tokens = {name for name in own if name.startswith("tokens/")} - {"tokens/document.parquet"}
    blend = {"blend/baseline/tensors.safetensors", SHARES}
    assert listed == {CONFIG, MODEL, "thresholds.parquet", *tokens, *blend}
    assert find_text(shared, str(trained_run.folder.parent.parent)) == []
    verify_run_folder(shared)


def test_open_run_refuses_a_shared_folder(shared: Path) -> None:
    """A shared folder has no checksum of its data, so that it cannot be evaluated."""
    before = sorted(shared.rglob("*"))
    with pytest.raises(CheckpointError) as caught:
        open_run(shared)
    message = (
        f"A run is opened with its data, which its record.json names, but '{shared}' has none. A "
        f"shared folder predicts alone: give the run that it was made of; a run that was killed as "
        f"it began is started again."
    )
    assert str(caught.value) == message
    documents = shared.parent / "one.jsonl"
    documents.write_text('{"text": "w1", "label": []}\n')
    for wrong in (
        lambda: write_report(shared, shared.parent / "page.html"),
        lambda: evaluate_files(shared, [documents], shared.parent / "measured"),
    ):
        with pytest.raises(CheckpointError) as caught:
            wrong()
        assert str(caught.value) == message
    assert sorted(shared.rglob("*")) == before


def test_is_shared_beside_files_of_git(shared: Path) -> None:
    """Hidden files, as of a clone of the hub, are allowed on request, others never."""
    assert is_shared(shared)
    (shared / ".gitattributes").touch()
    assert is_shared(shared, with_hidden=True)
    assert not is_shared(shared)
    (shared / "notes.txt").touch()
    assert not is_shared(shared, with_hidden=True)


def test_share_run_card_is_read_by_the_hub(shared: Path, trained_run: Run) -> None:
    """The card has licence, library and measures as the hub reads them, and the contents."""
    hub = pytest.importorskip("huggingface_hub", reason="extra: hub")
    text = (shared / "README.md").read_text(encoding="utf-8")
    data = hub.ModelCard(text).data
    assert (data.license, data.library_name) == ("mit", "match-graph")
    assert {"match-graph", "multi-label-classification"} <= set(data.tags)
    found = {(one.dataset_split, one.metric_type): one.metric_value for one in data.eval_results}
    metrics = json.loads((trained_run.folder / METRICS).read_text())
    for split in ("valid", "test"):
        assert found[split, "NDCG@5"] == pytest.approx(metrics[split]["NDCG@5"], abs=1e-4)
    share = 1 - json.loads((trained_run.folder / SHARES).read_text())["share"]
    assert f"blended with a linear classifier (its share is {share:.0%}), trained on" in text
    assert "| training documents | 320 |" in text
    assert "| test documents | 40 |" in text
    assert "0 of 40 test documents have the words of a training document." in text
    assert "| licence | match-graph's own |" in text
    assert "| `model.channels` | `32` | `100` |" in text
    assert "No text of a document is here." in text
    assert 'mg.load("FOLDER")' in text


def test_render_card_names_without_markup(trained_run: Run) -> None:
    """Names in the heading of the card are escaped."""
    config = trained_run.config.model_copy(update={"dataset": "a*b|<c>"})
    text = render_card(trained_run.folder, config, None, set())
    assert "\n# match on a\\*b\\|\\<c\\>\n" in text


def test_share_run_card_says_what_the_known_graph_holds(graph_run: Run, tmp_path: Path) -> None:
    """The card warns that texts can be read again from the words of a known graph."""
    out = share_run(graph_run.folder, tmp_path / "shared")
    text = (out / "README.md").read_text(encoding="utf-8")
    assert "ids of 320 documents" in text
    assert "their words in order, from which the texts can be read again" in text
    assert "No text of a document is here." not in text
    assert "license: unknown" in text


def test_find_changes_of_settings_by_hand() -> None:
    """Settings that follow from the encoder are no changes; no code is imported."""
    config = Config(seed=3).change("model", encoder="nowhere:Mine", head="linear")
    changes = find_changes(config)
    assert changes == {
        "seed": (3, 0), "model.encoder": ("nowhere:Mine", "match"), "model.head": ("linear", None)
    }  # fmt: skip


def test_share_run_own_encoder_is_named_by_the_caller(
    trained_run: Run, make_variant, tmp_path: Path
) -> None:
    """file.py:Class is shared without its folder, and loaded from a file of that name alone."""
    code = tmp_path / "mine_shared.py"
    code.write_text("from match_graph import MatchEncoder\nclass Mine(MatchEncoder):\n    pass\n")
    run = make_variant("own", f"model.encoder={code}:Mine", "train.epochs=1")
    out, documents = share_run(run.folder, tmp_path / "shared"), make_documents(trained_run)
    assert CONFIG in find_text(run.folder, str(tmp_path))
    assert find_text(out, str(tmp_path)) == []
    assert 'encoder="mine_shared.py:Mine"' in (out / "README.md").read_text(encoding="utf-8")
    moved = shutil.copytree(tmp_path, tmp_path / "moved") / code.name
    expected = predict(run.folder, documents, encoder=f"{code}:Mine")
    assert predict(out, documents, encoder=f"{moved}:Mine") == expected
    for given in (None, f"{code}:Other", "match"):
        with pytest.raises(CheckpointError, match="code is imported only by request"):
            load(out, encoder=given)


def test_take_own_files_of_the_same_name_alone() -> None:
    """Modules, and files with another folder or name, stay as they are."""
    config = Config().change("model", encoder="mine.py:Mine", head="own:Head")
    found = take_own_files(config, {"encoder": "/a/mine.py:Mine", "head": "own:Head"})
    assert (found.model.encoder, found.model.head) == ("/a/mine.py:Mine", "own:Head")
    for name in ("/a/other.py:Mine", "/a/mine.py:Other", None):
        assert take_own_files(config, {"encoder": name}) == config
    placed = config.change("model", encoder="/b/mine.py:Mine")
    assert take_own_files(placed, {"encoder": "/a/mine.py:Mine"}) == placed


def test_take_own_files_for_a_module_of_their_name() -> None:
    """A file replaces a top-level module of its name, not one of a package."""
    config = Config().change("model", encoder="mine:Mine")
    found = take_own_files(config, {"encoder": "/a/mine.py:Mine"})
    assert found.model.encoder == "/a/mine.py:Mine"
    for name in ("/a/other.py:Mine", "/a/mine.py:Other", "mine:Mine"):
        assert take_own_files(config, {"encoder": name}) == config
    config = config.change("model", encoder="package.mine:Mine")
    assert take_own_files(config, {"encoder": "/a/mine.py:Mine"}) == config


def test_open_settings_own_code_has_changed(tmp_path: Path, toy: Corpus) -> None:
    """Changed code is refused as by `open_run`; a copy of the same content is accepted."""
    source = "from match_graph import LabelPrior\nclass Mine(LabelPrior): ...\n"
    names = {}
    for folder, text in (("a", source), ("b", source), ("c", f"{source}# changed\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine_opened.py").write_text(text, encoding="utf-8")
        names[folder] = f"{tmp_path / folder / 'mine_opened.py'}:Mine"
    config = load_config(settings=[f"model.encoder={names['a']}"])
    run = start_run(toy, config, tmp_path / "run", tmp_path / "root")
    run.train()
    run.evaluate()
    assert open_settings(run.folder, {"encoder": names["a"]}) == run.config
    text = (run.folder / "config.yaml").read_text(encoding="utf-8")
    (run.folder / "config.yaml").write_text(text.replace(names["a"], "mine_opened:Mine"))
    write_manifest(run.folder)
    found = open_settings(run.folder, {"encoder": names["b"]})
    assert found.model.encoder == names["b"]
    with pytest.raises(CheckpointError) as caught:
        open_settings(run.folder, {"encoder": names["c"]})
    assert str(caught.value) == (
        f"The run in '{run.folder}' was made with another content of ['model.encoder'] than is "
        f"there now; restore it, or make the run again (overwrite=True, --overwrite)."
    )
    remove_files(run.folder / RECORD)  # as in a shared folder
    assert open_settings(run.folder, {"encoder": names["c"]}).model.encoder == names["c"]
    with pytest.raises(CheckpointError, match="code is imported only by request"):
        open_settings(run.folder, {"encoder": None})


def test_load_own_code_has_changed(tmp_path: Path, toy: Corpus) -> None:
    """`load` refuses a run whose own code has changed."""
    code = tmp_path / "mine_loaded.py"
    code.write_text("from match_graph import LabelPrior\nclass Mine(LabelPrior): ...\n")
    config = load_config(settings=[f"model.encoder={code}:Mine"])
    run = start_run(toy, config, tmp_path / "run", tmp_path / "root")
    run.train()
    run.evaluate()
    load(run.folder, encoder=f"{code}:Mine")
    code.write_text(f"{code.read_text()}    offset = 1\n")
    with pytest.raises(CheckpointError, match=r"another content of \['model.encoder'\] than is"):
        load(run.folder, encoder=f"{code}:Mine")


def test_share_run_language_models_of_this_machine(
    make_variant, sentence_model: Path, tmp_path: Path
) -> None:
    """An encoder's language model is shared; features of another one are found by id."""
    run = make_variant(
        "lm", "model.encoder=language_model", "train.epochs=1",
        f"model.encoder_config={{checkpoint: {sentence_model}, max_pieces: 16}}",
        f"data.features={{document: {{model: {sentence_model}}}}}",
    )  # fmt: skip
    out, documents = share_run(run.folder, tmp_path / "shared"), make_documents(run)[:-1]
    assert find_text(out, str(sentence_model.parent)) == []
    assert predict(out, documents) == predict(run.folder, documents)
    new = [{"text": "w1", "x": [0.5] * 8}]
    assert predict(out, new) == predict(run.folder, new)
    with pytest.raises(CorpusError, match="must have the features that the run was trained with"):
        predict(out, [{"text": "w1"}])
    assert "must bring its vector `x`" in (out / "README.md").read_text(encoding="utf-8")


def test_remove_paths_of_nested_settings() -> None:
    """Paths in options and own files are cut; names on the hub keep their slash."""
    options = {"files": ["/home/me/a.csv", "b.csv"], "pattern": "a/b"}
    config = Config(dataset="/home/me/data").change("data", options=options)
    config = config.change("model", encoder="/home/me/mine.py:Mine", word_vectors="/home/v.txt")
    found = remove_paths(config)
    assert found.dataset == "data"
    assert found.data.options == {"files": ["a.csv", "b.csv"], "pattern": "a/b"}
    assert (found.model.encoder, found.model.word_vectors) == ("mine.py:Mine", "v.txt")


def test_share_run_place_must_be_free(trained_run: Run, shared: Path, tmp_path: Path) -> None:
    """Only a shared folder is replaced, on request; none is written within the run."""
    with pytest.raises(CheckpointError) as caught:
        share_run(trained_run.folder, shared)
    assert str(caught.value) == (
        f"A run must be shared into a new or empty folder, but '{shared}' holds a shared run; "
        f"choose another with --out, or replace it with --overwrite."
    )
    (shared / "README.md").write_text("edited")
    share_run(trained_run.folder, shared, overwrite=True)
    assert (shared / "README.md").read_text(encoding="utf-8").startswith("---\nlicense: unknown")
    (shared / "notes.txt").touch()
    for place in (shared, shared / "notes.txt"):
        with pytest.raises(CheckpointError, match=r"holds something else; choose another"):
            share_run(trained_run.folder, place, overwrite=True)
    (shared / "notes.txt").unlink()
    (tmp_path / "link").symlink_to(shared)
    share_run(trained_run.folder, tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "link").unlink()
    for place in (trained_run.folder, trained_run.folder / "shared"):
        with pytest.raises(CheckpointError, match="must lie outside of its run"):
            share_run(trained_run.folder, place, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shared"]


def test_share_run_keeps_what_was_there_if_it_fails(
    trained_run: Run, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shared folder that was there stays where the disk refuses the last rename."""
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if target == shared and path.name == shared.name:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(OSError, match="No space left"):
        share_run(trained_run.folder, shared, overwrite=True)
    monkeypatch.undo()
    verify_run_folder(shared)
    assert [path.name for path in shared.parent.iterdir()] == ["shared"]


def test_share_run_refuses_what_is_not_whole(trained_run: Run, tmp_path: Path) -> None:
    """Runs not evaluated, not trained or damaged, and odd licences are refused."""
    copied = Path(shutil.copytree(trained_run.folder, tmp_path / "run"))
    with pytest.raises(ConfigError) as caught:
        share_run(copied, tmp_path / "out", license="My own!")
    assert str(caught.value) == (
        "A licence must be an identifier as the hub writes it, found 'My own!'; see "
        "https://huggingface.co/docs/hub/repositories-licenses, such as 'mit' or 'cc-by-4.0'."
    )
    kept = (copied / MODEL).read_bytes()
    (copied / MODEL).write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(CheckpointError, match="its content is not what was written"):
        share_run(copied, tmp_path / "out")
    (copied / MODEL).write_bytes(kept)
    remove_files(copied / METRICS)
    with pytest.raises(CheckpointError) as caught:
        share_run(copied, tmp_path / "out")
    assert str(caught.value) == (
        f"A run must be trained and evaluated to be shared, as its card says how good it is, but "
        f"'{copied}' has no metrics.json; go on with `match-graph evaluate {copied}`."
    )
    remove_files(copied / MODEL)
    with pytest.raises(CheckpointError, match="and no baseline; go on with `match-graph run"):
        share_run(copied, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


class Payload:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


def test_load_refuses_crafted_weights(shared: Path, tmp_path: Path) -> None:
    """Pickles, torch files and crafted headers are refused, even if the manifest fits."""
    torch.save({"weight": torch.ones(1)}, tmp_path / "weights.pt")
    header = b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,9000]}}'
    contents = (
        pickle.dumps(Payload(tmp_path / "ran")),
        (tmp_path / "weights.pt").read_bytes(),
        (2**63 - 1).to_bytes(8, "little") + b"{}",
        (100 * 2**20 + 1).to_bytes(8, "little") + b"{",
        len(header).to_bytes(8, "little") + header,
        b"",
    )
    for content in contents:
        (shared / MODEL).write_bytes(content)
        write_manifest(shared)
        with pytest.raises(CheckpointError, match="must be a safetensors file") as caught:
            load(shared, "cpu", verify=True)
        assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["encoder", "head"])
@pytest.mark.parametrize("place", ["shared/evil.py", "evil", "evil.py"])
def test_load_imports_no_code_of_the_folder(
    shared: Path, kind: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code beside the settings is not imported, by whatever name they give it."""
    (shared / "evil.py").write_text("open('ran', 'w')\n")
    monkeypatch.chdir(shared)
    change_config(shared, **{kind: f"{place}:Evil"})
    with pytest.raises(CheckpointError, match="code is imported only by request"):
        load(shared, "cpu")
    assert not (shared / "ran").exists()


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "tokens/../../secret"])
def test_load_refuses_paths_out_of_the_folder(shared: Path, name: str) -> None:
    """A manifest that lists paths outside of its folder is refused."""
    content: dict[str, Mapping[str, Any]] = json.loads((shared / MANIFEST).read_text())
    content["files"] = {**content["files"], name: [{"bytes": 1, "sha256": "0" * 64}]}
    (shared / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="which is no path within the folder") as caught:
        load(shared, "cpu")
    assert len(str(caught.value).splitlines()) == 1


def test_share_command(call, trained_run: Run, tmp_path: Path, monkeypatch) -> None:
    """The command prints the folder, or with --push the address; faults are one sentence."""
    out = tmp_path / "shared"
    code, printed, _ = call("share", trained_run.folder, "--out", out, "--license", "mit")
    assert (code, printed) == (0, f"{out}\n")
    code, _, error = call("share", trained_run.folder, "--out", out)
    assert (code, error.count("\n")) == (1, 1)
    assert "replace it with --overwrite" in error
    code, _, error = call("share", out, "--out", tmp_path / "again")
    assert (code, error.count("\n")) == (1, 1)
    assert f"but '{out}' has none. A shared folder predicts alone" in error
    assert {METRICS, RECORD} & share.SHARED == set()
    monkeypatch.setattr("match_graph.predict.push_run", lambda folder, name: f"{folder} at {name}")
    code, printed, _ = call(
        "share", trained_run.folder, "--out", out, "--overwrite", "--push", "me/it"
    )
    assert (code, printed) == (0, f"{out} at me/it\n")
