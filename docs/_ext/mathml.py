"""Formulas as MathML, which browsers render without scripts or network."""

import html
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging


def convert(node: nodes.Element, is_block: bool) -> str:
    """MathML of a formula; one that docutils cannot parse is shown as written, with a warning."""
    text = node.astext()
    try:
        return latex2mathml.tex2mathml(text, as_block=is_block)
    except MathError as error:
        logging.getLogger(__name__).warning("formula %r: %s", text, error, location=node)
        return f"<code>{html.escape(text)}</code>"


def visit_inline(translator: Any, node: nodes.Element) -> None:
    """Writes an inline formula."""
    translator.body.append(convert(node, False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Element) -> None:
    """Writes a displayed formula."""
    translator.body.append(f'<div class="formula">{convert(node, True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Registers the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
