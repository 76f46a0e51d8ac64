"""Run folders: opened, claimed once, used by one process at a time."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from match_graph.config import Config, load_config
from match_graph.errors import CheckpointError
from match_graph.io import files, manifest
from match_graph.io.manifest import MANIFEST, read_manifest
from match_graph.io.run_folder import CONFIG, METRICS, RECORD, STATE
from match_graph.runs import folder as folders


def test_claim_run_folder_how_many_share_the_work_may_differ(tmp_path: Path) -> None:
    """A run resumes on other devices; another setting is refused and named alone."""
    folder = tmp_path / "run"
    config = load_config(None, ["train.devices=4", "train.strategy=fsdp"])
    folders.claim_run_folder(folder, config, overwrite=False)
    folders.claim_run_folder(folder, load_config(None, ["train.num_nodes=2"]), overwrite=False)
    other = load_config(None, ["train.num_nodes=2", "train.deterministic=true"])
    with pytest.raises(CheckpointError) as caught:
        folders.claim_run_folder(folder, other, overwrite=False)
    assert str(caught.value) == (
        f"The run in '{folder}' has other settings (train.deterministic is False there and True "
        f"here); choose another folder (out, --out), or delete it (overwrite=True, --overwrite)."
    )


def test_claim_run_folder_precision_is_told_with_a_way_on(tmp_path: Path) -> None:
    """A difference in precision alone is refused with the setting that resumes the run."""
    folder = tmp_path / "run"
    folders.claim_run_folder(folder, load_config(None, ["train.precision=bf16-mixed"]), False)
    for more, advice in (
        ([], "go on with --set train.precision=bf16-mixed, or choose"),
        (["seed=1"], "choose"),
    ):
        here = load_config(None, ["train.precision=32-true", *more])
        with pytest.raises(CheckpointError, match=rf"here\); {advice} another folder \(out, "):
            folders.claim_run_folder(folder, here, overwrite=False)


def test_find_difference_names_what_was_chosen_before_follows() -> None:
    """Differences start with the encoder; those that the corpus gives come last."""
    there = load_config(None, ["pretrain.samples=5", "train.epochs=3", "train.warmup=0.1"])
    assert folders.find_difference(there, there) == ""
    here = load_config(None, ["model.encoder=xml_cnn", "pretrain.samples=9", "train.warmup=0.2"])
    assert folders.find_difference(there, here) == (
        "model.encoder is 'match' there and 'xml_cnn' here, train.warmup is 0.1 there and 0.2 "
        "here, pretrain.samples is 5 there and 9 here, and 1 more"
    )
    here = load_config(None, ["model.encoder=prior", "model.encoder_config.a=1", "seed=1"])
    assert folders.find_difference(load_config(), here) == (
        "model.encoder is 'match' there and 'prior' here, seed is 0 there and 1 here, "
        "model.encoder_config.a is not set there and 1 here"
    )


def test_claim_run_folder_is_claimed_resumed_or_refused(tmp_path: Path) -> None:
    """New and equal settings are accepted; others, other files and a file are refused."""
    config, folder = load_config(None, ["seed=1"]), tmp_path / "run"
    folders.claim_run_folder(folder, config, overwrite=False)
    folders.claim_run_folder(folder, config, overwrite=False)
    assert folders.open_run_folder(folder) == config
    with pytest.raises(CheckpointError) as caught:
        folders.claim_run_folder(folder, load_config(None, ["seed=2"]), overwrite=False)
    assert str(caught.value) == (
        f"The run in '{folder}' has other settings (seed is 1 there and 2 here); "
        f"choose another folder (out, --out), or delete it (overwrite=True, --overwrite)."
    )
    folders.claim_run_folder(folder, load_config(None, ["seed=2"]), overwrite=True)
    assert folders.open_run_folder(folder).seed == 2


def test_claim_run_folder_overwrite_never_deletes_what_is_no_run(tmp_path: Path) -> None:
    """A folder with other files is refused even with overwrite, and stays."""
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(CheckpointError) as caught:
        folders.claim_run_folder(tmp_path, load_config(), overwrite=True)
    assert str(caught.value) == (
        f"A run must start in a new or empty folder, but '{tmp_path}' holds other files "
        f"(thesis.tex); choose another folder."
    )
    files.write_beside(tmp_path / "config.yaml", lambda path: path.write_text("my: app"))
    with pytest.raises(CheckpointError, match=r"holds other files \(thesis.tex\)"):
        folders.claim_run_folder(tmp_path, load_config(), overwrite=True)
    assert (tmp_path / "thesis.tex").exists()
    with pytest.raises(CheckpointError, match="is a file; choose another"):
        folders.claim_run_folder(tmp_path / "thesis.tex", load_config(), overwrite=True)


def test_open_run_folder_that_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    """A missing folder and one without config.yaml are refused."""
    with pytest.raises(CheckpointError) as caught:
        folders.open_run_folder(tmp_path / "none")
    assert str(caught.value) == (
        f"A run must be a folder that match-graph wrote, but there is none at "
        f"'{tmp_path / 'none'}'; check the path."
    )
    with pytest.raises(CheckpointError) as caught:
        folders.open_run_folder(tmp_path)
    assert str(caught.value) == (
        f"A run folder holds config.yaml, but '{tmp_path}' has none; check the path, or start a "
        f"run with `match-graph run DATASET --out {tmp_path}`."
    )


@pytest.mark.slow
def test_in_use_names_the_other_process(tmp_path: Path) -> None:
    """A second process is refused by the id of the first; a killed one holds no lock."""
    code = (
        "import sys, time, pathlib\n"
        "from match_graph.runs.folder import in_use\n"
        "with in_use(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    folder = tmp_path / "run"
    folders.claim_run_folder(folder, load_config(), overwrite=False)
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        for claim in (lambda: folders.in_use(folder).__enter__(), lambda: claim_again(folder)):
            with pytest.raises(CheckpointError) as caught:
                claim()
            assert str(caught.value) == (
                f"One process at a time may change a run, but '{folder}' is in use by process "
                f"{other.pid}; wait until it ends, or choose another folder (out, --out)."
            )
        assert folders.open_run_folder(folder) == load_config()  # reading needs no lock
        other.kill()
    with folders.in_use(folder):
        pass
    claim_again(folder)


def claim_again(folder: Path) -> None:
    """Claims the folder as the same command would."""
    folders.claim_run_folder(folder, load_config(), overwrite=False)


def test_claim_run_folder_goes_on_after_any_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill at any rename or deletion, the same command makes a whole folder."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the machine does not fail here
    for overwrite in (False, True):
        for moment in range(20):
            folder = tmp_path / f"{overwrite}{moment}"
            if overwrite:
                claim_again(folder)
                files.write_json(folder / METRICS, {"valid": {}})
            with monkeypatch.context() as patch:
                count = itertools.count()

                def stop(*arguments, number=count, last=moment) -> None:
                    if next(number) == last:
                        raise KeyboardInterrupt

                hook_files(patch, stop)
                try:
                    folders.claim_run_folder(folder, load_config(), overwrite)
                    done = True
                except KeyboardInterrupt:
                    done = False
            folders.claim_run_folder(folder, load_config(), overwrite)
            folders.verify_run_folder(folder)
            assert not (folder / METRICS).exists()
        assert done


def hook_files(patch: pytest.MonkeyPatch, hook: Callable[..., None]) -> None:
    """Calls ``hook`` before every rename and deletion of a file."""
    for name in ("replace", "rename", "unlink"):
        original = getattr(Path, name)

        def wrapped(self: Path, *arguments, _original=original, **options):
            hook(self)
            return _original(self, *arguments, **options)

        patch.setattr(Path, name, wrapped)


def change_files(folder: Path) -> list[Callable[[], None]]:
    """Changes of files, one of each kind."""
    state, metrics = folder / STATE, folder / METRICS

    def fit() -> None:
        if not files.has_folder(folder / "baseline"):
            files.write_folder(folder / "baseline", lambda path: (path / "a").touch())

    return [
        lambda: files.write_state(state, {"epoch": 3}),
        fit,
        lambda: files.write_json(metrics, {"valid": {"P@1": 0.25}}),
        lambda: files.remove_files(metrics),
        lambda: files.write_state(state, {"epoch": 4}, keep_previous=False),
        lambda: files.remove_state(state),
    ]


def test_verify_run_folder_files_of_run_are_whole_after_any_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files match the manifest after a kill at any rename or deletion of a change."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the machine does not fail here
    for moment in range(50):
        folder = tmp_path / f"run{moment}"
        claim_again(folder)
        state = folder / STATE
        for epoch in (1, 2):
            files.write_state(state, {"epoch": epoch})
        files.write_json(folder / METRICS, {"valid": {"P@1": 0.5}})
        work = change_files(folder)
        count, done = itertools.count(), 0
        with monkeypatch.context() as patch:

            def stop(path: Path, number=count, last=moment) -> None:
                if next(number) == last:
                    raise KeyboardInterrupt

            hook_files(patch, stop)
            try:
                for step in work:
                    step()
                    done += 1
            except KeyboardInterrupt:
                pass
        folders.verify_run_folder(folder)
        files.has_file(folder / METRICS)
        files.has_folder(folder / "baseline")
        if files.has_state(state):
            assert files.read_state(state)["epoch"] in (2, 3, 4)
        for step in work[done:]:
            step()
        assert sorted(read_manifest(folder)) == ["baseline/a", "config.yaml"]
        assert not (folder / METRICS).exists()
    assert done == len(work)


def test_verify_run_folder_names_all_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All damaged files are named, however large."""
    monkeypatch.setattr(manifest, "LARGE_BYTES", 1)
    claim_again(tmp_path)
    for name in (METRICS, RECORD):
        files.write_json(tmp_path / name, {"a": 1})
    folders.verify_run_folder(tmp_path)
    text = (tmp_path / METRICS).read_text()
    (tmp_path / METRICS).write_text(text.replace("1", "2"))
    (tmp_path / RECORD).unlink()
    assert files.read_json(tmp_path / METRICS) == {"a": 2}  # large: by its size
    with pytest.raises(CheckpointError) as caught:
        folders.verify_run_folder(tmp_path)
    assert str(caught.value) == (
        f"The files of a run must be what was written, but 2 faults were found:\n"
        f"  '{tmp_path}/metrics.json': its content is not what was written, as its SHA-256 in "
        f"manifest.json shows.\n"
        f"  '{tmp_path}/record.json': it is missing, though manifest.json lists it."
    )


def test_verify_run_folder_of_a_run_called_checkpoint(tmp_path: Path) -> None:
    """Only checkpoints within a run may be missing, whatever its folder is called."""
    folder = tmp_path / "checkpoint"
    claim_again(folder)
    files.write_json(folder / METRICS, {"a": 1})
    files.write_state(folder / STATE, {"epoch": 1})
    (folder / STATE).unlink()
    folders.verify_run_folder(folder)
    (folder / METRICS).unlink()
    with pytest.raises(CheckpointError, match=r"metrics\.json': it is missing"):
        folders.verify_run_folder(folder)


def test_open_run_folder_refuses_damaged_settings(tmp_path: Path) -> None:
    """Damaged settings and a missing manifest are refused."""
    claim_again(tmp_path)
    path = tmp_path / CONFIG
    kept = path.read_text()
    path.write_text(kept.replace("seed: 0", "seed: 7"))
    with pytest.raises(CheckpointError) as caught:
        folders.open_run_folder(tmp_path)
    assert str(caught.value) == (
        f"The settings of a run must stay as they were written, but '{path}' cannot be used (its "
        f"content is not what was written, as its SHA-256 in manifest.json shows); restore it, or "
        f"start the run again with --overwrite."
    )
    path.write_text(kept)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(CheckpointError, match=r"A run folder holds manifest\.json, but"):
        folders.open_run_folder(tmp_path)


def test_claim_run_folder_refuses_a_manifest_of_others(tmp_path: Path) -> None:
    """A folder with the manifest of something else, as of a web page, stays."""
    (tmp_path / MANIFEST).write_text('{"name": "app"}')
    for overwrite in (False, True):
        with pytest.raises(CheckpointError, match="holds other files; choose another"):
            folders.claim_run_folder(tmp_path, load_config(), overwrite)
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]


def test_open_run_folder_of_odd_places_is_one_sentence(tmp_path: Path) -> None:
    """A loop of links, a NUL and a pipe as settings are refused in one sentence."""
    (tmp_path / "loop").symlink_to("loop")
    for folder in (tmp_path / "loop", tmp_path / "a\0b"):
        with pytest.raises(CheckpointError, match="but there is none at"):
            folders.open_run_folder(folder)
    with pytest.raises(CheckpointError, match="is a file; choose another"):
        claim_again(tmp_path / "loop")
    claim_again(tmp_path / "run")
    (tmp_path / "run" / CONFIG).unlink()
    os.mkfifo(tmp_path / "run" / CONFIG)
    with pytest.raises(CheckpointError, match=r"A run folder holds config\.yaml, but"):
        folders.open_run_folder(tmp_path / "run")


def test_check_own_code_file_of_a_module_says_where_it_runs(tmp_path: Path) -> None:
    """A run trained with module:Class and loaded with file.py:Class is refused with advice."""
    config = Config().change("model", encoder="mine:Mine")
    with pytest.raises(CheckpointError) as caught:
        folders.check_own_code(tmp_path, config, {"encoder": "/a/mine.py:Mine"})
    assert str(caught.value) == (
        f"The run in '{tmp_path}' was trained with the encoder 'mine:Mine', and code is imported "
        f"only by request, found encoder='/a/mine.py:Mine'; load it with encoder='mine:Mine' "
        f"(--encoder in the shell), in the folder of mine.py or with it in PYTHONPATH."
    )
