"""Figures by matplotlib: PNG files, and SVG in the colours of a page."""

import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from defusedxml.ElementTree import fromstring

from match_graph.errors import import_extra
from match_graph.io.files import write_beside

STYLE_SHEET = resources.files("match_graph.report").joinpath("page.css").read_text("utf-8")
#: Colours of a page in light mode, by their names in its style sheet; it has the dark ones too.
PALETTE: Mapping[str, str] = dict(
    re.findall(r"--(\w+): (#\w{6});", STYLE_SHEET.partition("@media")[0])
)
_VARIABLES = {colour: f"var(--{name})" for name, colour in PALETTE.items()}
#: Line styles and colours of variants in PNG files, in order; the first is ours.
LINE_STYLES = ("-", "--", ":", "-.")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
#: Letters of a legend's line, and lines of a legend's column.
_LETTERS, _LINES = 40, 20
#: Prefix of a tooltip in the ``gid`` of an artist.
_TOOLTIP = "tooltip: "
#: Settings of SVG: reproducible ids, text as text, and dashes in absolute lengths.
_SETTINGS = {
    "svg.hashsalt": "match-graph",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "lines.scale_dashes": False,
}
#: Characters that XML does not allow.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def make_figure(width: float, height: float, **options: Any) -> Any:
    """Empty figure of a size in inches, made without pyplot, its window system and global state.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    matplotlib = import_extra("matplotlib.figure", "A figure", "report")
    return matplotlib.Figure(figsize=(width, height), **options)


def make_panels(panels: int, width: float = 0.0) -> tuple[Any, Sequence[Any]]:
    """Figure with panels side by side, and its axes; at least ``width`` inches wide.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure = make_figure(max(4.6 * panels, width), 3.6, layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def save_figure(figure: Any, path: Path, dpi: int = 150) -> None:
    """Writes a figure as PNG, atomically."""
    metadata = {"Software": None}  # the version of matplotlib
    write_beside(
        path, lambda beside: figure.savefig(beside, format="png", dpi=dpi, metadata=metadata)
    )


def draw_svg(draw: Callable[[Any], None], width: float, height: float, title: str) -> str:
    """Draws a figure as an SVG element for a page; the same figure gives the same text.

    Colours of `PALETTE` become variables of the page's style sheet. The element has no ids, which
    must be unique in a page, and no links.

    Args:
        draw: Draws on an empty figure; it passes texts through `clean`, and sets ``gid`` to
            `tooltip` for a tooltip.
        width: Width of the canvas, in units of about a pixel.
        height: Height of the canvas.
        title: Accessible title.
    """
    from matplotlib import rc_context

    file = StringIO()
    with rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has other fonts
        figure = make_figure(width / 72, height / 72)
        draw(figure)
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = fromstring(file.getvalue())
    shapes = {f"#{one.get('id')}": one for one in root.iter() if one.tag.endswith("path")}
    box = f"0 0 {width:g} {height:g}"
    element = Element("svg", {"viewBox": box, "role": "img", "aria-label": clean(title)})
    _flatten(root, element, shapes, "")
    return tostring(element, encoding="unicode")


def _flatten(group: Element, target: Element, shapes: Mapping[str, Element], tooltip: str) -> None:
    """Copies shapes and texts of nested groups into one element."""
    for one in group:
        tag, style = one.tag.rpartition("}")[2], _restyle(one.get("style", ""))
        if tag == "g":
            name = one.get("id", "")
            own = name.removeprefix(_TOOLTIP) if name.startswith(_TOOLTIP) else tooltip
            _flatten(one, target, shapes, own)
            continue
        if tag == "text":
            found = SubElement(target, tag, x=one.attrib["x"], y=one.attrib["y"], style=style)
            found.text = one.text
        elif tag == "use":
            shape = shapes[one.attrib["{http://www.w3.org/1999/xlink}href"]]
            place = f"translate({one.attrib['x']} {one.attrib['y']})"
            found = SubElement(target, "path", d=_round(shape), transform=place, style=style)
        elif tag == "path" and style != "fill: none":
            found = SubElement(target, tag, d=_round(one), style=style)
        else:
            continue
        if tooltip:
            SubElement(found, "title").text = tooltip


def _restyle(style: str) -> str:
    """Style in the page's font, with its colours as variables."""
    kept = [part for part in style.split("; ") if not part.startswith("font-family")]
    return re.sub(r"#\w{6}", lambda found: _VARIABLES.get(found[0], found[0]), "; ".join(kept))


def _round(path: Element) -> str:
    numbers = " ".join(path.attrib["d"].split())
    return re.sub(r"-?\d+\.\d+", lambda found: f"{float(found[0]):.1f}", numbers)


def clean(text: str) -> str:
    """Text on one line, without characters that XML does not allow."""
    return _NO_XML.sub("\ufffd", " ".join(text.split()))


def write_name(name: str) -> str:
    """Name for a PNG figure, wrapped, and escaped so that matplotlib shows it as it is."""
    text = textwrap.fill(clean(name), _LETTERS).replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text  # legends omit names with "_" first


def add_legend(owner: Any, handles: Sequence[Any], **options: Any) -> None:
    """Adds a legend in small print, in as few columns as fit the height of a panel.

    Args:
        owner: Axis or figure.
        handles: Artists that have labels; without any there is no legend.
        **options: Place of the legend.
    """
    lines = sum(one.get_label().count("\n") + 1 for one in handles)
    if lines:
        columns = 1 + (lines - 1) // _LINES
        owner.legend(handles=handles, ncols=columns, fontsize=7, **options)


def tooltip(text: str) -> str:
    """``gid`` of an artist with a tooltip."""
    return _TOOLTIP + clean(text)
