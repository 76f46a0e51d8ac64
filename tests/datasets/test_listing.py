"""The registered data sets with licence, size and state."""

from pathlib import Path

from match_graph.datasets import DATASETS, MagCs, Synthetic, list_datasets
from match_graph.testing import write_release_folder

CARDS = Path(__file__).resolve().parents[2] / "datasets"


def states(root: Path) -> dict[str, str]:
    return {row["name"]: row["state"] for row in list_datasets(root)}


def test_list_datasets_every_registered_data_set_row_and_card(tmp_path: Path) -> None:
    """Rows are complete; the card is a file that names the registered name and the licence."""
    rows = list_datasets(tmp_path)
    assert [row["name"] for row in rows] == sorted(DATASETS)
    for row in rows:
        assert all(row[key] for key in ("licence", "size", "needs", "state"))
        text = (CARDS / f"{row['name']}.md").read_text("utf-8")
        assert text.startswith(f"# {row['name']}\n")
        for part in (
            "| source |", "| licence |", "| needs |", "## Checksums\n\n", "## Expected counts\n\n",
        ):  # fmt: skip
            assert part in text, (row["name"], part)
        assert f"match-graph run {row['name']}" in text


def test_list_datasets_state_follows_the_files(tmp_path: Path) -> None:
    """From nothing to raw files to a build; a folder with a broken build is none."""
    assert states(tmp_path)["mag-cs"] == "needs files"
    assert states(tmp_path)["synthetic"] == "needs nothing"
    assert states(tmp_path)["debtags"] == "fetched when used"
    write_release_folder(tmp_path / "raw" / "MAG")
    assert states(tmp_path)["mag-cs"] == "raw present"
    MagCs(root=tmp_path)
    Synthetic(num_documents=200, root=tmp_path)
    assert states(tmp_path)["mag-cs"] == states(tmp_path)["synthetic"] == "built"
    assert states(tmp_path)["pubmed"] == "needs files"
    for path in tmp_path.glob("built/mag-cs-*/corpus.json"):
        path.write_text("{")
    assert states(tmp_path)["mag-cs"] == "raw present"


def test_list_datasets_default_root_is_looked_at(match_graph_home: Path) -> None:
    """Without a root, where data are built by default."""
    write_release_folder(match_graph_home / "raw" / "MAG")
    assert {row["name"]: row["state"] for row in list_datasets()}["mag-cs"] == "raw present"
