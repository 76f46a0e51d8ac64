"""Replaces sphinx-gallery if there are no examples, as in a source archive or a sparse clone."""

from typing import Any

#: The entry of the toctree that sphinx-gallery would make.
ENTRY = "generated/gallery/index\n"


def drop_entry(app: Any, page: str, source: list[str]) -> None:
    """Removes the gallery from the pages that list it."""
    source[0] = source[0].replace(ENTRY, "")


def setup(app: Any) -> dict[str, bool]:
    """Accepts the setting plot_gallery too."""
    app.add_config_value("plot_gallery", True, "")
    app.connect("source-read", drop_entry)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
