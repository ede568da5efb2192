"""HTML: what a person reads on the page, line by line.

Left out: the head with its title, navigation, scripts, styles, controls of forms, pictures with their descriptions, and
elements with the attribute `hidden`. Style sheets are not applied. Cells of a table row are separated by tabs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from harness.corpus.encodings import decoded
from harness.corpus.readers.layout import Lines
from harness.errors import BadInput

_LEFT_OUT = (
    "[hidden], head, nav, script, style, noscript, template, svg, canvas, object, iframe, audio, video, button, select,"
    "textarea, datalist, noframes"
)
_BLOCKS = frozenset(
    ("address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "dir", "div",
     "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header",
     "hgroup", "hr", "html", "legend", "li", "main", "menu", "ol", "p", "pre", "search", "section", "summary", "table",
     "ul")
)  # fmt: skip
_DECLARED = re.compile(
    rb"""<(?:meta\b[^>]{0,500}?\bcharset|\?xml\b[^>]{0,500}?\bencoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE
)
_HEAD = 4096  # bytes in which a page declares its encoding


def read(path: Path) -> list[str]:
    """The text of the page."""
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError

    data = path.read_bytes()
    declared = _DECLARED.search(data[:_HEAD])
    source = decoded(data, path, declared[1].decode("ascii") if declared else "")
    try:
        page = LexborHTMLParser(source)
    except SelectolaxError as error:
        raise BadInput(f"{path}: the HTML cannot be read ({error}).") from None
    if page.root is None:
        return [""]
    return [_text(page.root, {node.mem_id for node in page.css(_LEFT_OUT)})]


def _text(root: Any, left_out: set[int]) -> str:
    """The text below a node. left_out: nodes without theirs. Without recursion, since pages may be nested deeply."""
    lines, node, kept = Lines(), root, 0  # kept: how many <pre> the node is in
    while True:
        below = None
        if node.is_text_node:
            (lines.exactly if kept else lines.words)(node.text_content or "")
        elif node.is_element_node and node.mem_id not in left_out:
            _open(lines, node)
            below = node.first_child
            if below is None:
                _close(lines, node.tag)
            elif node.tag == "pre":
                kept += 1
        while below is None:
            if node.mem_id == root.mem_id:
                return lines.text()
            below = node.next
            if below is None:
                node = node.parent
                _close(lines, node.tag)
                kept -= node.tag == "pre"
        node = below


def _open(lines: Lines, node: Any) -> None:
    tag = node.tag
    if tag == "br":
        lines.line_break()
    elif tag in ("td", "th"):
        before = node.prev
        while before is not None and before.tag not in ("td", "th"):
            before = before.prev
        if before is not None:
            lines.next_cell()
    elif tag == "tr":
        lines.row()
    elif tag in _BLOCKS:
        lines.block(2 if tag == "p" else 1)


def _close(lines: Lines, tag: str) -> None:
    if tag == "tr":
        lines.end_row()
    elif tag in _BLOCKS:
        lines.block(2 if tag == "p" else 1)
