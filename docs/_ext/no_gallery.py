"""Stands in for sphinx-gallery where there are no examples: a wheel's sources, a sparse clone."""

from typing import Any

#: The entry of the toctree that sphinx-gallery would make.
ENTRY = "generated/gallery/index\n"


def drop_entry(app: Any, page: str, source: list[str]) -> None:
    """Takes the gallery out of the pages that list it."""
    source[0] = source[0].replace(ENTRY, "")


def setup(app: Any) -> dict[str, bool]:
    """Accepts plot_gallery too."""
    app.add_config_value("plot_gallery", True, "")
    app.connect("source-read", drop_entry)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
