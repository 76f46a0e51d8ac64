"""Files of a built folder, verified by its manifest before they are read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from match_graph.errors import CorpusError
from match_graph.io.manifest import find_damage

_REMEDY = "delete its folder, or build with force_reload"


@contextmanager
def check_file(path: Path, name: str, remedy: str = _REMEDY) -> Iterator[Path]:
    """Verifies a file of a build by its manifest; exceptions in the block become `CorpusError`.

    Args:
        path: Built folder.
        name: Relative path of the file.
        remedy: What to do about damage, as a clause.

    Raises:
        CorpusError: It is damaged, or the block cannot read it.
    """
    damage = find_damage(path, name)
    if damage:
        raise damaged_build(path / name, damage, remedy)
    try:
        yield path / name
    except CorpusError:
        raise
    except Exception as error:
        fault = f"it cannot be read: {type(error).__name__}"
        raise damaged_build(path / name, fault, remedy) from error


def damaged_build(path: Path, damage: str, remedy: str = _REMEDY) -> CorpusError:
    """Error for a file of a build that is not what was written.

    Args:
        path: Path of the file.
        damage: What is wrong with it, as a clause.
        remedy: What to do, as a clause.
    """
    return CorpusError(
        f"Built data must be what match-graph wrote, but '{path}' is not ({damage}); {remedy}."
    )
