"""The registered data sets with licence, size and state: what `match-graph datasets` prints."""

import json
from pathlib import Path

from match_graph.datasets.dataset import CorpusDataset, default_root
from match_graph.datasets.registry import DATASETS


def list_datasets(root: str | Path | None = None) -> list[dict[str, str]]:
    """One row per registered data set.

    Args:
        root: Root folder of raw and built data; None takes `default_root`.

    Returns:
        For each its ``name``, ``licence``, ``size``, what it ``needs``, and its ``state``: "built"
        where it was built with any options, else "raw present" where its files lie below the root,
        else "needs nothing", "fetched when used" or "needs files".
    """
    root = default_root() if root is None else Path(root)
    built = _built_classes(root)
    rows = []
    for name, cls in sorted(DATASETS.items()):
        assert cls.card is not None, f"{cls.__name__} needs a card"
        card = cls.card._asdict() | {"name": name}
        rows.append({**card, "state": _find_state(cls, root, built)})
    return rows


def _find_state(cls: type[CorpusDataset], root: Path, built: set[str]) -> str:
    assert cls.card is not None
    if cls.__qualname__ in built:
        return "built"
    if cls.has_raw(root):
        return "raw present"
    if cls.card.needs == "nothing":
        return "needs nothing"
    return "fetched when used" if cls.card.needs.startswith("fetched") else "needs files"


def _built_classes(root: Path) -> set[str]:
    """Data set classes of the whole builds below a root."""
    found = set()
    for path in (root / "built").glob("*/corpus.json"):
        try:
            found.add(str(json.loads(path.read_text(encoding="utf-8"))["source"]["class"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a build that cannot be read is no build; opening it says why
    return found
