"""`match-graph export`: one command, and one sentence on a fault."""

from pathlib import Path

from match_graph.testing import write_match_folder


def test_export_prints_the_folder(call, tmp_path: Path) -> None:
    """One command makes a verified export of a folder; --overwrite replaces it."""
    toy, out = write_match_folder(tmp_path / "toy"), tmp_path / "out"
    command = ["export", toy, "--to", "parquet", "--out", out]
    assert call(*command, "--quiet") == (0, f"{out}\n", "")
    assert "Verified" in (out / "EXPORT.md").read_text(encoding="utf-8")
    code, _, error = call(*command)
    assert code == 1
    assert error == (
        f"Error: An export must go into a new or empty folder, but '{out}' holds an export; "
        f"choose another --out, or replace it with --overwrite.\n"
    )
    options = ["--features", "ids", "--include-labels", "all", "--text", "none", "--overwrite"]
    code, printed, error = call(*command, *options)
    assert (code, printed) == (0, f"{out}\n")
    assert error.splitlines()[-2:] == [
        "export: reads it back and compares",
        "export: verified 12 documents (8 train, 2 valid, 2 test), 58 other nodes of 5 types, "
        "131 edges of 7 types, 25 gold labels",
    ]


def test_export_settings_choose_what_is_exported(call, tmp_path: Path) -> None:
    """--set reaches the data set, as in the other commands."""
    toy, out = write_match_folder(tmp_path / "toy"), tmp_path / "out"
    settings = ["--set", "data.fields=[author]", "--root", tmp_path / "root", "--quiet"]
    assert call("export", toy, "--to", "parquet", "--out", out, *settings)[0] == 0
    assert (out / "nodes" / "author.parquet").is_file()
    assert not (out / "nodes" / "venue.parquet").exists()


def test_export_leaves_out_fields_as_a_run_does(call, tmp_path: Path) -> None:
    """Dropped fields are in no file of the export; an unknown one is refused."""
    toy, out = write_match_folder(tmp_path / "toy"), tmp_path / "out"
    command = ["export", toy, "--to", "parquet", "--out", out, "--quiet"]
    code, _, error = call(*command, "--set", "data.drop_fields=[writer]")
    assert code == 1
    assert "must name metadata fields of the data set, found ['writer']" in error
    assert call(*command, "--set", "data.drop_fields=[author]")[0] == 0
    assert (out / "nodes" / "venue.parquet").is_file()
    assert not [path for path in out.rglob("*") if "author" in path.name]
    assert "- Fields ['author'], left out on purpose.\n" in (out / "EXPORT.md").read_text()


def test_export_wrong_choices_are_named(call, tmp_path: Path) -> None:
    """A wrong choice is named with those there are; a missing option is wrong usage."""
    toy = write_match_folder(tmp_path / "toy")
    command = ["export", toy, "--out", tmp_path / "out", "--root", tmp_path / "root"]
    code, _, error = call(*command, "--to", "dgl")
    assert code == 1
    assert error.startswith("Error: An export target must be one of [")
    assert not (tmp_path / "root").exists()  # nothing is built for it
    code, _, error = call(*command, "--to", "pyg", "--features", "all")
    assert code == 1
    assert (
        "'features': Input should be 'none', 'data', 'ids' or 'pretrained', found 'all'." in error
    )
    assert call(*command)[0] == 2
    assert not (tmp_path / "out").exists()
